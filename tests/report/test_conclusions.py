"""The sentences that open a report: they agree with the verdicts of its rows and claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import scipy.stats
from msgspec import structs

from lrurun.config.ladder import Ladder
from lrurun.data.metric import Accuracy
from lrurun.judging import wording
from lrurun.judging.sequential import DesignSummary
from lrurun.report.tables.conclusions import conclude
from lrurun.report.tables.ladder_table import LadderReport
from lrurun.report.tables.row_scores import LadderRow
from tests.harness.reports import build, make_run, make_rung

NAMES = ("one", "two", "three", "four", "five")
LADDER = Ladder(name="mini", title="five", source="s", question="?", rungs=tuple(make_rung(name) for name in NAMES))


def report(*scores: tuple[float, ...], **more: Any) -> LadderReport:
    runs = [
        make_run(f"{rung}{seed}", rung, seed, score)
        for rung, values in zip(NAMES, scores, strict=False)
        for seed, score in enumerate(values)
    ]
    return build(LADDER, runs, **more)


def test_each_verdict_has_its_sentence() -> None:
    scores = ((0.50, 0.51, 0.52), (0.90, 0.91, 0.92), (0.70, 0.71, 0.72), (0.69, 0.72, 0.71))
    made = report(*scores, test_items=None)
    assert [row.verdict for row in made.rows] == ["", "helps", "hurts", "undecided", "not run"]
    between = scipy.stats.ttest_ind((69, 72, 71), (70, 71, 72), equal_var=False).confidence_interval()
    assert made.conclusions == (
        "Helps: two scores 40.00 points more than one (p < 0.001).",
        "Hurts: three scores 20.00 points less than two (p < 0.001).",
        f"Undecided: four against three (between {between.low:+.2f} and {between.high:+.2f} points).",
        "Provisional: all verdicts. With fewer than 12 seeds a verdict assumes that no seed fails.",
        "Not run: five against four.",
    )


def test_an_undecided_difference_comes_with_its_interval() -> None:
    made = report((0.50, 0.51, 0.52), (0.51, 0.53, 0.54, 0.52), test_items=None)
    between = scipy.stats.ttest_ind((51, 53, 54, 52), (50, 51, 52), equal_var=False).confidence_interval()
    assert made.rows[1].verdict == "undecided"
    assert made.conclusions[:2] == (
        "No difference between rungs is decided yet.",
        f"Undecided: two against one (between {between.low:+.2f} and {between.high:+.2f} points).",
    )


HIGH = tuple(0.90 + seed / 300 for seed in range(12))
BASE = tuple(score - 0.06 for score in HIGH)


def test_provisional_differences_are_named_where_others_are_firm() -> None:
    firm = report(BASE, HIGH)
    assert firm.rows[1].verdict == "helps"
    assert not any("Provisional" in one for one in firm.conclusions)
    few = report(BASE, HIGH, HIGH[:5], BASE[:3])
    [sentence] = [one for one in few.conclusions if one.startswith("Provisional")]
    assert sentence == (
        "Provisional: three against two (5 seeds); four against three (3 seeds). "
        "With fewer than 12 seeds a verdict assumes that no seed fails."
    )
    one = report(BASE, HIGH, HIGH[:1])
    assert not any(text.startswith("Provisional") for text in one.conclusions), "one seed is no test"


def test_failing_seeds_stand_beside_a_verdict() -> None:
    made = report(BASE, (0.1, 0.1, *HIGH[2:]), (0.1,) * 12, (0.1,) * 12)
    p = wording.p_value(made.rows[1].comparison.p_adjusted or 0.0) if made.rows[1].comparison else ""
    assert made.conclusions[0] == (
        "Helps: a run of two is better than one of one in 83 % of pairs, though the mean is worse "
        f"({p}; two learns in 10 of 12 seeds)."
    )
    assert "; three learns in 0 of 12 seeds, two learns in 10 of 12 seeds)" in made.conclusions[1]
    assert "four against three (between -0.66 and +0.66 points; neither learns)." in made.conclusions[2]


def test_rungs_that_are_still_improving_are_named() -> None:
    def sentences(*improving: int) -> list[str]:
        """Of rungs of four seeds, so many of which are best at the last step, 10."""
        runs = []
        for name, count in zip(NAMES, improving, strict=False):
            for seed in range(4):
                result = {"test/accuracy": 0.5 + seed / 100, "best_step": 10.0 if seed < count else 9.0}
                runs.append(make_run(f"{name}{seed}", name, seed, result=result))
        return [one for one in build(LADDER, runs, shown=NAMES[: len(improving)]).conclusions if "improving" in one]

    rest = " still improving at the last step in most seeds: verdicts may change with more steps."
    assert sentences(2, 0) == []
    assert sentences(3, 2) == [f"one is{rest}"]
    assert sentences(3, 4, 0) == [f"one, two are{rest}"]
    assert sentences(3, 3) == [f"All rungs are{rest}"]


def test_why_a_difference_has_no_test() -> None:
    few = report((0.5,), (0.6, 0.7)).conclusions
    assert "Undecided, because a test needs at least two seeds a side: two against one." in few
    runs = [make_run(f"one{seed}", "one", seed, score) for seed, score in enumerate((0.5, 0.6))]
    runs += [make_run(f"two{seed}", "two", seed, state="diverged") for seed in range(2)]
    assert "Undecided, because there is no test: two against one." in build(LADDER, runs, metric=Accuracy()).conclusions


def design(**more: Any) -> DesignSummary:
    fields: dict[str, Any] = {
        "max_seeds": 20,
        "looks": (),
        "looks_done": 1,
        "next_look": 20,
        "hypotheses": 2,
        "level": 0.01,
        "questions": 3,
        "undecided": 2,
        "finished_before": 0,
    }
    return DesignSummary(**(fields | more))


def concluded(rows: Sequence[LadderRow], of_design: DesignSummary) -> tuple[str, ...]:
    return tuple(remark.full for remark in conclude(rows, (), of_design, task="sDigits"))


def test_a_sequential_design_says_how_far_it_is() -> None:
    made = report(HIGH, BASE, tuple(score + 0.001 * (-1) ** seed for seed, score in enumerate(BASE)))
    rows = [
        structs.replace(row, comparison=row.comparison and structs.replace(row.comparison, look=12))
        for row in made.rows[:3]
    ]
    helps, running, undecided = concluded(rows, design())
    assert helps == "Hurts: two scores 6.00 points less than one (p = 0.001 at 12 seeds)."
    assert running == "The sequential design is not complete: its next look is at 20 seeds."
    assert undecided.startswith("Undecided: three against two (between -1.1")
    assert undecided.endswith(" points at 12 seeds).")
    assert concluded([rows[0], rows[2]], design(next_look=None, level=None)) == (
        "No difference between rungs is decided.",
        "The sequential design is complete. What is undecided stays undecided, because seeds that are added now are "
        "outside the design.",
        undecided,
    )
    assert concluded(rows[:1], design(next_look=None, level=None, undecided=0)) == (
        "The sequential design is complete: every difference and claim in it is decided.",
    )


def test_claims_are_counted_by_verdict() -> None:
    made = build()
    assert made.conclusions[-1] == (
        "Of 4 claims (sDigits stands in for the tasks of 1 of them): 1 supported, 1 undecided, 1 not run, "
        "1 not comparable (same runs); all provisional."
    )
    assert [(claim.verdict, claim.same_runs) for claim in made.claims] == [
        ("supported", False),
        ("undecided", True),
        ("undecided", False),
        ("not run", False),
    ]
    without = report((0.5, 0.6), (0.7, 0.8)).conclusions
    assert not any("claim" in one for one in without)
    assert build(shown=["tanh-rnn", "linear-rnn"]).conclusions == (
        made.conclusions[0],
        "Provisional: all verdicts. With fewer than 12 seeds a verdict assumes that no seed fails.",
        "Of 1 claim, for whose tasks sDigits stands in: 1 supported; 1 provisional.",
        f"These sentences are about the first 2 of {len(made.rows)} rungs, without 3 claims about others; p and "
        "verdicts count all with results.",
    )
    assert build(shown=[row.rung for row in made.rows]).conclusions == made.conclusions
