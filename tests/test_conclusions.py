"""The sentences that open a report: they agree with the verdicts of its rows and claims."""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs

from lrurun.config.documents import Ladder
from lrurun.report import formats
from lrurun.report.conclusions import conclude
from lrurun.report.ladder_table import LadderReport
from lrurun.report.sequential import DesignSummary
from tests.reports import build, make_run, make_rung

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
    made = report((0.50, 0.51, 0.52), (0.90, 0.91, 0.92), (0.70, 0.71, 0.72), (0.69, 0.72, 0.71))
    assert [row.verdict for row in made.rows] == ["", "better", "worse", "undecided", "not run"]
    seeds = made.rows[3].seeds_to_decide
    assert seeds is None
    assert made.conclusions == (
        "What helps: two scores 40.00 points more than one (p < 0.001).",
        "What hurts: three scores 20.00 points less than two (p < 0.001).",
        "Undecided even with 100 seeds a side, if the true difference is as small as the observed one: "
        "four against three (-0.33 points).",
        "Not run: five against four.",
    )


def test_the_number_of_seeds_is_that_of_the_verdict_less_those_that_there_are() -> None:
    made = report((0.50, 0.51, 0.52), (0.51, 0.53, 0.54, 0.52))
    row = made.rows[1]
    assert row.verdict == "undecided"
    assert row.seeds_to_decide is not None
    assert made.conclusions[0] == "No difference between rungs is decided yet."
    assert made.conclusions[1] == (
        f"Undecided: two against one (+1.50 points; about {row.seeds_to_decide - 3} more seeds a side would decide). "
        "The estimate takes the observed difference as the true one."
    )


def test_why_a_difference_has_no_test() -> None:
    few = report((0.5,), (0.6, 0.7)).conclusions
    assert "Undecided, because a test needs at least two seeds a side: two against one." in few
    runs = [make_run(f"one{seed}", "one", seed, score) for seed, score in enumerate((0.5, 0.6))]
    runs += [make_run(f"two{seed}", "two", seed, state="diverged") for seed in range(2)]
    assert "Undecided, because there is no test: two against one." in build(LADDER, runs, metric=None).conclusions


def design(**more: Any) -> DesignSummary:
    fields: dict[str, Any] = {
        "max_seeds": 12,
        "looks": (),
        "looks_done": 1,
        "next_look": 8,
        "hypotheses": 2,
        "level": 0.01,
        "questions": 3,
        "undecided": 2,
        "finished_before": 0,
    }
    return DesignSummary(**(fields | more))


def test_seeds_are_added_to_a_sequential_design_only_until_it_is_complete() -> None:
    made = report((0.50, 0.51, 0.52), (0.51, 0.53, 0.54, 0.52), (0.51, 0.54, 0.52, 0.55))
    rows = [
        structs.replace(row, look=5, counted_n=5, counted_base_n=5, seeds_to_decide=needed)
        for row, needed in zip(made.rows[:3], (None, 10, 30), strict=True)
    ]
    running, undecided = conclude(rows, (), design(), task="sDigits")[-2:]
    assert running == "The sequential design is not complete: its next look is at 8 seeds."
    assert undecided == (
        "Undecided: two against one (+1.50 points at 5 seeds; about 5 more seeds a side would decide); three "
        "against two (+0.50 points at 5 seeds; about 25 more seeds a side would decide, but this design ends at 12). "
        "The estimates take the observed differences as the true ones."
    )
    first, over, undecided = conclude(rows, (), design(next_look=None, level=None), task="sDigits")
    assert first == "No difference between rungs is decided."
    assert over == (
        "The sequential design is complete. What is undecided stays undecided, because seeds that are added now are "
        "outside the design."
    )
    assert undecided == (
        "Undecided: two against one (+1.50 points at 5 seeds; a new design with about 10 seeds a side would decide); "
        "three against two (+0.50 points at 5 seeds; a new design with about 30 seeds a side would decide). "
        "The estimates take the observed differences as the true ones."
    )
    assert conclude(rows[:1], (), design(next_look=None, level=None, undecided=0), task="sDigits") == (
        "The sequential design is complete: every difference and claim in it is decided.",
    )


def test_claims_are_counted_by_verdict() -> None:
    made = build()
    assert made.conclusions[-1] == (
        "Of 4 claims (sDigits stands in for the tasks of 1 of them): 1 supported, 1 undecided, 1 not run, "
        "1 not comparable (same runs)."
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
        "Of 1 claim, for whose tasks sDigits stands in: 1 supported.",
        f"These sentences are about the first 2 of {len(made.rows)} rungs; p and verdicts take all into account.",
    )
    assert build(shown=[row.rung for row in made.rows]).conclusions == made.conclusions


def test_every_format_begins_with_them() -> None:
    made = build()
    assert json.loads(formats.render(made, "json"))["conclusions"] == list(made.conclusions)
    helps = made.conclusions[0]
    for name in ("table", "md", "latex", "html"):
        text = formats.render(made, name)  # type: ignore[arg-type]
        assert text.index(helps.replace("<", "&lt;")) < text.index("12,345"), name
