"""The table of a ladder: which runs count, and what is computed from them."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy.stats
from msgspec import structs

from lrurun.config.ladder import Claim, Ladder
from lrurun.config.resolve import RateSource
from lrurun.data.metric import Accuracy
from lrurun.errors import LrurunError
from lrurun.judging import statistics
from lrurun.judging.rung_runs import Note
from lrurun.judging.statistics import Estimate
from lrurun.judging.verdicts import Comparison
from lrurun.ledger import values
from lrurun.report import formats
from lrurun.report.tables.ladder_table import PAPER_PROTOCOL, LadderReport
from lrurun.report.tables.row_scores import LadderRow
from tests.harness import configs
from tests.harness.reports import (
    GRID,
    GRID_RUNS,
    GRID_SCORES,
    LINEAR,
    ON,
    TANH,
    body,
    build,
    grid,
    make_run,
    make_rung,
    two_rungs,
)


def test_a_row_for_every_rung_counts_its_final_runs_alone() -> None:
    rows = {row.rung: row for row in build().rows}
    assert list(rows) == ["tanh-rnn", "linear-rnn", "ring-init", "stable-exponential", "small-phase"]
    assert [row.n for row in rows.values()] == [3, 3, 3, 2, 0]
    assert rows["tanh-rnn"].runs == ("t0", "t1", "t2")
    assert rows["tanh-rnn"].scores == TANH
    assert rows["tanh-rnn"].mean == pytest.approx(np.mean(TANH))
    assert rows["tanh-rnn"].stderr == pytest.approx(scipy.stats.sem(TANH))
    assert rows["tanh-rnn"].steps_per_second == 101.0
    stable = rows["stable-exponential"]
    assert (stable.diverged, stable.failed, stable.unfinished) == (1, 1, 1)
    assert [(run.id, run.state) for run in stable.other_runs] == [
        ("s2", "diverged"),
        ("s3", "failed"),
        ("s4", "interrupted"),
    ]
    empty = rows["small-phase"]
    assert (empty.mean, empty.stderr, empty.parameters) == (None,) * 3
    assert (empty.steps_per_second, empty.runs, empty.scores) == (None, (), ())
    assert (empty.verdict, empty.failure_bound, compared(empty).difference) == ("not run", None, None)
    assert (rows["tanh-rnn"].verdict, rows["tanh-rnn"].comparison) == ("", None)


def compared(row: LadderRow) -> Comparison:
    assert row.comparison is not None
    return row.comparison


def test_the_change_of_a_rung_is_its_comparison_with_its_base() -> None:
    rows = {row.rung: row for row in build(test_items=None).rows}
    first = scipy.stats.ttest_ind(LINEAR, TANH, equal_var=False)
    diverged = (0.97, 0.98, 0.1)
    second = scipy.stats.ttest_ind(diverged, LINEAR, equal_var=False)
    linear, stable = compared(rows["linear-rnn"]), compared(rows["stable-exponential"])
    assert linear.p_adjusted == pytest.approx(2 * first.pvalue)
    assert stable.p_adjusted == pytest.approx(max(second.pvalue, 2 * first.pvalue))
    assert (linear.low, linear.high) == pytest.approx(tuple(first.confidence_interval(0.95)))
    assert linear.difference == pytest.approx(np.mean(LINEAR) - np.mean(TANH))
    assert stable.difference == pytest.approx(np.mean(diverged) - np.mean(LINEAR))
    assert [(side.rung, side.n, side.diverged) for side in stable.sides] == [
        ("stable-exponential", 3, 1),
        ("ring-init", 3, 0),
    ]
    assert [(row.verdict, compared(row).provisional) for row in (rows["linear-rnn"], rows["stable-exponential"])] == [
        ("helps", True),
        ("undecided", True),
    ]
    assert [rows[rung].verdict for rung in ("ring-init", "small-phase")] == ["same runs", "not run"]


def test_verdicts_of_twelve_seeds_are_firm_and_by_ranks() -> None:
    scores = {"a": 0.5, "b": 0.8, "c": 0.3}
    rungs = tuple(make_rung(rung) for rung in scores)
    ladder = Ladder(name="x", title="x", source="s", rungs=rungs)
    runs = [make_run(f"{rung}{k}", rung, k, center + 0.01 * k) for rung, center in scores.items() for k in range(12)]
    report = build(ladder, runs, test_items=None)
    assert [row.verdict for row in report.rows] == ["", "helps", "hurts"]
    for row, improvement in zip(report.rows[1:], (1.0, 0.0), strict=True):
        assert (compared(row).provisional, compared(row).improvement) == (False, improvement)
        assert compared(row).p_unadjusted == pytest.approx(2**-11)
    text = formats.render(report, "md")
    assert "p: two-sided, of ranks (Brunner and Munzel, by permutation), corrected by" in text
    assert "rovisional" not in text
    fewer = formats.render(build(ladder, runs[:-1]), "md")
    ranks = "p: two-sided, for new seeds and test items, of ranks (Brunner and Munzel, by permutation)"
    assert f"{ranks}; with fewer than 12 seeds, of means" in fewer
    assert (
        "- Provisional: c against b (11 seeds). With fewer than 12 seeds a verdict assumes that no seed fails." in fewer
    )


def test_one_seed_has_a_change_and_no_test() -> None:
    report = two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "b", 0, 0.75))
    assert [row.n for row in report.rows] == [1, 1]
    found = compared(report.rows[1])
    assert (found.difference, report.rows[1].verdict, found.reason) == (0.25, "undecided", "n = 1: no test")
    assert (found.low, found.p_adjusted, found.improvement, found.detectable, report.rows[1].stderr) == (None,) * 5
    assert found.provisional
    assert "50.00 (n=1)" in formats.render(report, "table")


def test_a_shared_rung_has_the_runs_of_the_one_before() -> None:
    shared = build().rows[2]
    assert shared.same_as_before
    assert (shared.verdict, shared.runs) == ("same runs", ("l0", "l1", "l2"))
    assert (compared(shared).difference, compared(shared).p_adjusted, compared(shared).low) == (0.0, None, None)
    # Whichever of the two a run was made for; and through several shared rungs.
    rungs = tuple(make_rung(name) for name in "abcd")
    runs = [
        make_run(name, name, seed, 0.5 + seed / 10, config={"data": {"rung": "any"}}) for seed, name in enumerate("abc")
    ]
    ladder = Ladder(name="x", title="x", source="s", rungs=rungs)
    report = build(ladder, runs, same_as_base={"a", "b", "c"})
    assert [row.runs for row in report.rows] == [("a", "b", "c")] * 3 + [()]
    assert [row.same_as_before for row in report.rows] == [False, True, True, False]


def test_a_rung_is_compared_with_the_one_that_it_changes() -> None:
    report = build(GRID, GRID_RUNS, same_as_base={"free-3", "stable-3"}, test_items=None)
    rows = {row.rung: row for row in report.rows}
    assert [row.on for row in rows.values()] == ON
    assert [row.branches for row in rows.values()] == [False, False, True, False, True, True]
    tests = {
        rung: scipy.stats.ttest_ind(GRID_SCORES[rung], GRID_SCORES[on], equal_var=False)
        for rung, on in (("stable-1", "free-1"), ("free-2", "free-1"), ("stable-2", "free-2"))
    }
    corrected = dict(zip(tests, multiple([test.pvalue for test in tests.values()]), strict=True))
    for rung, test in tests.items():
        low, high = test.confidence_interval(0.95)
        found = compared(rows[rung])
        assert (found.low, found.high) == pytest.approx((low, high))
        assert found.difference == pytest.approx((low + high) / 2)
        assert found.p_adjusted == pytest.approx(corrected[rung])


def test_a_root_is_compared_with_no_rung() -> None:
    rungs = (make_rung("a"), msgspec.structs.replace(make_rung("b"), root=True), make_rung("c"))
    ladder = Ladder(name="x", title="x", source="s", rungs=rungs)
    runs = [make_run(f"{name}{seed}", name, seed, 0.5 + seed / 10) for name in "abc" for seed in (0, 1)]
    rows = build(ladder, runs).rows
    assert [row.on for row in rows] == [None, None, "b"]
    assert [row.comparison for row in rows[:2]] == [None, None]
    assert (compared(rows[2]).difference, compared(rows[2]).p_adjusted) == (0.0, pytest.approx(1.0))


def multiple(p_values: list[float]) -> list[float]:
    """Holm's correction of three p-values, written out."""
    order = sorted(range(3), key=p_values.__getitem__)
    first = 3 * p_values[order[0]]
    second = max(first, 2 * p_values[order[1]])
    third = max(second, p_values[order[2]])
    return [min(1.0, dict(zip(order, (first, second, third), strict=True))[k]) for k in range(3)]


def test_runs_are_shared_with_the_rung_that_is_changed_however_far_it_is() -> None:
    report = grid()
    rows = {row.rung: row for row in report.rows}
    for rung, on in (("free-3", "free-1"), ("stable-3", "stable-1")):
        assert rows[rung].same_as_before
        assert (rows[rung].runs, rows[rung].mean) == (rows[on].runs, rows[on].mean)
        found = compared(rows[rung])
        assert (found.difference, found.p_adjusted, found.low) == (0.0, None, None)
    # those in between keep their own, and none is counted twice
    assert rows["stable-2"].runs == ("stable-2.0", "stable-2.1", "stable-2.2")
    # a run that was made for the later of the two serves the earlier one
    any_rung = configs.config({"data": {"rung": "any"}})
    late = [
        structs.replace(run, settings=structs.replace(run.settings, config=any_rung), config_id=1)
        for run in GRID_RUNS[:2]
    ]
    late.append(make_run("late", "free-3", 2, 0.5, config={"data": {"rung": "any"}}))
    report = build(GRID, late, same_as_base={"free-3"})
    assert report.rows[0].runs == report.rows[4].runs == ("free-1.0", "free-1.1", "late")
    assert report.rows[5].n == 0


def test_runs_of_an_earlier_version_count_with_those_that_have_its_new_fields() -> None:
    """A field that came later, at its default, is no other setting."""
    new: dict[str, Any] = {
        "task": "sDigits",
        "data": {"version": "1"},
        "model": {"recurrence": {"kind": "dense", "draw": "normal"}, "depth": 1, "width": 8, "state": 8},
        "optim": {"lr": 0.01, "recurrent_factor": 0.5, "weight_decay": 0.05},
        "train": {"steps": 10, "batch": 8, "eval_every": 5},
    }
    old = json.loads(json.dumps(new))
    del old["model"]["recurrence"]["draw"]
    other = json.loads(json.dumps(new))
    other["model"]["recurrence"]["draw"] = "truncated"
    runs = [
        make_run(f"r{seed}", "a", seed, 0.5, config=config | {"seed": seed}, created_at=float(seed))
        for seed, config in enumerate((other, old, new))
    ]
    report = two_rungs(*runs)
    assert report.rows[0].runs == ("r1", "r2")
    assert report.notes == (Note("a: 1 run left out, because of older settings", ("r0",)),)


def of_seeds(spread: dict[str, float], seeds: int = 3) -> list[values.Run]:
    """Runs of rungs at 50 % with these distances between their seeds."""
    return [make_run(f"{rung}{k}", rung, k, 0.5 + k * step) for rung, step in spread.items() for k in range(seeds)]


def test_the_seeds_that_a_difference_needs_are_those_of_welchs_test_at_the_level_of_holm() -> None:
    rungs = tuple(make_rung(rung) for rung in "abcde")
    ladder = Ladder(name="x", title="x", source="s", rungs=rungs)
    runs = [*of_seeds({"a": 0.005, "b": 0.03, "c": 0.03}), make_run("d0", "d", 0, 0.5)]
    report = build(ladder, runs, detect=0.02, test_items=None)
    assert report.hypotheses == 3, "of e there are no runs; the one seed of d counts"
    narrow, wide = (Estimate(mean=0.5, variance=step**2 / 3, df=2.0, n=3) for step in (0.005, 0.03))
    few, many = (statistics.to_detect(0.02, wide, other, 0.05 / 3, None, least=12)[0] for other in (narrow, wide))
    assert report.detect is not None
    assert report.detect.seeds == {"b": few, "c": many}
    assert 12 < (few or 0) < (many or 0) < 60
    assert (
        "Seeds a side to detect 2 points between a rung and its base (by means, power 80 %, spreads as seen here, "
        f"Holm's correction of 3 hypotheses): {few} (b); {many} (c). These seeds are for the same test items: nothing "
        "is known of others."
    ) in formats.render(report, "md")


def test_a_difference_needs_twelve_seeds_at_least_and_is_out_of_reach_beyond_a_thousand() -> None:
    runs = of_seeds({"a": 0.03, "b": 0.03})
    for difference, seeds, said in ((0.5, 12, "12 (b)"), (0.0001, None, "more than 1,000 (b)")):
        report = two_rungs(*runs, detect=difference)
        assert report.detect is not None
        assert report.detect.seeds == {"b": seeds}
        assert f"hypothesis): {said}." in formats.render(report, "md")
    few = "Seeds to detect 2 points: not known before two seeds of both rungs have a score."
    assert few in formats.render(two_rungs(*runs[:4], detect=0.02), "md")
    assert two_rungs(*runs).detect is None
    assert "detect" not in formats.render(two_rungs(*runs), "md")


@pytest.mark.parametrize("failed", [0.12, None])
def test_where_a_seed_fails_no_number_is_given_of_the_seeds_that_a_difference_needs(failed: float | None) -> None:
    """Of the rung and of the one that has it as its base."""
    scores: tuple[float | None, ...] = (0.5, 0.53, 0.56)
    report = learners(a=scores, b=(*scores[:2], failed), c=scores, d=scores, detect=0.02)
    assert report.detect is not None
    assert report.detect.failing == ("b", "c")
    assert list(report.detect.seeds) == ["d"]
    text = formats.render(report, "md")
    assert f": {report.detect.seeds['d']} (d); no number, because a seed of it or of its base fails (b, c).\n" in text
    alone = learners(a=scores, b=(*scores[:2], failed), detect=0.02)
    assert (
        "Holm's correction of 1 hypothesis): no number, because a seed of it or of its base fails (b).\n"
        in formats.render(alone, "md")
    )


def learners(detect: float | None = None, **scores: tuple[float | None, ...]) -> LadderReport:
    """A report on rungs with these scores; None: diverged. Chance is 10 %, and a seed learns above 15.20 %."""
    ladder = Ladder(name="x", title="x", source="s", rungs=tuple(make_rung(rung) for rung in scores))
    return build(
        ladder,
        [
            make_run(f"{rung}{k}", rung, k, score, state="diverged" if score is None else "done")
            for rung, found in scores.items()
            for k, score in enumerate(found)
        ],
        detect=detect,
    )


def test_a_column_counts_the_seeds_that_learn_where_any_does_not() -> None:
    report = learners(a=(0.5, 0.6), b=(0.12, 0.5, None), c=())
    assert [row.learning for row in report.rows] == [2, 1, 0]
    lines = [line.split() for line in body(formats.render(report, "table", width=200)).split("\n")]
    assert lines[0][-9:] == ["p", "learn", "better", "[95", "%]", "items", "parameters", "steps/s", "published"]
    assert [" ".join(line[line.index("of") - 1 :][:3]) for line in lines[2:4]] == ["2 of 2", "1 of 3"]
    assert " of " not in " ".join(lines[4]), "there are no runs of c"
    assert "Learn: seeds better than chance." in formats.render(report, "table")
    assert "learn" not in body(formats.render(learners(a=(0.5, 0.6), b=(0.4, 0.5)), "table", width=200))


def test_the_rate_of_failure_has_an_upper_bound() -> None:
    """Clopper and Pearson, one-sided: with it as the true rate, so few failures have a probability of 5 %."""
    report = learners(a=(0.5,) * 12, b=(0.12, *(0.5,) * 11), c=(None,) * 3, d=())
    bounds = [row.failure_bound for row in report.rows]
    assert bounds[0] == pytest.approx(1 - 0.05 ** (1 / 12))
    assert bounds[2:] == [1.0, None]
    assert scipy.stats.binom.cdf(1, 12, bounds[1]) == pytest.approx(0.05)
    assert (
        "A seed learns if its score is better than 15.20. Rate at which seeds fail to learn, 95 % upper bound: 22 % "
        "(a); 34 % (b); 100 % (c)."
    ) in formats.render(report, "md")
    # without a known chance a seed that fails is one that diverges, and the table does not call that learning
    unknown = two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "a", 1, state="diverged"), metric=Accuracy())
    assert (unknown.rows[0].learning, unknown.rows[0].failure_bound) == (None, pytest.approx(0.95**0.5))
    assert "fail to learn" not in formats.render(unknown, "md")


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ({"a": (10, 10, 5), "b": (10, 5, 5)}, "a is still improving"),
        ({"a": (10, 10, 10), "b": (5, 10, 10)}, "All rungs are still improving"),
        ({"a": (5, 10), "b": (10, 5)}, ""),
    ],
)
def test_rungs_are_still_improving_where_most_seeds_score_best_at_the_last_step(
    best: dict[str, tuple[int, ...]], said: str
) -> None:
    result = {"test/accuracy": 0.5, "val/accuracy": 0.5}
    runs = [
        make_run(f"{rung}{k}", rung, k, result=result | {"best_step": step})
        for rung, steps in best.items()
        for k, step in enumerate(steps)
    ]
    report = two_rungs(*runs)
    assert [row.improving for row in report.rows] == [steps.count(10) for steps in best.values()]
    sentence = f"{said} at the last step in most seeds: verdicts may change with more steps."
    assert [one for one in report.conclusions if "improving" in one] == ([sentence] if said else [])
    improving = tuple(rung for rung, steps in best.items() if 2 * steps.count(10) > len(steps))
    ladder = Ladder(
        name="x",
        title="x",
        source="s",
        rungs=(make_rung("a"), make_rung("b")),
        claims=(Claim(text="b is better", source="s", rung="b", than="a"),),
    )
    scored = [
        msgspec.structs.replace(run, result={**(run.result or {}), "test/accuracy": 0.5 + run.seed / 9}) for run in runs
    ]
    claim = build(ladder, scored).claims[0]
    assert set(claim.improving) == set(improving)
    said_there = f"still improving at the last step: {' and '.join(claim.improving)}"
    assert (said_there in claim.detail) == bool(improving)


def test_runs_of_unequal_data_are_refused_with_their_names() -> None:
    runs = [make_run("1", "a", 0, 0.5), make_run("2", "a", 1, 0.6, data_sha256="b" * 64), make_run("3", "b", 0, 0.7)]
    with pytest.raises(LrurunError) as caught:
        two_rungs(*runs)
    assert caught.value.exit_code == 1
    assert f"{'a' * 19}: 1, 3; {'b' * 19}: 2" in caught.value.message
    # What is not averaged does not matter.
    two_rungs(runs[0], msgspec.structs.replace(runs[1], state="failed", result=None), runs[2])


def test_runs_of_earlier_settings_are_left_out_and_named() -> None:
    runs = [
        make_run("old", "a", 0, 0.1, config={"train": {"steps": 5}, "seed": 0}, created_at=1.0),
        make_run("new1", "a", 0, 0.5, config={"train": {"steps": 9}, "seed": 0}, created_at=2.0),
        make_run("new2", "a", 1, 0.7, config={"train": {"steps": 9}, "seed": 1}, created_at=3.0),
    ]
    report = two_rungs(*runs)
    assert report.rows[0].runs == ("new1", "new2")
    assert report.notes == (Note("a: 1 run left out, because of older settings", ("old",)),)


def test_a_report_names_the_rungs_whose_steps_depend_on_the_parts_of_a_batch() -> None:
    parts, whole = ({"optim": {"accumulate": 2}, "model": {"norm": norm}} for norm in ("batch", "layer"))
    seen = "sees one part of a batch at a time, so that a step is not that of the whole batch"
    for second, where in ((whole, " of a"), (parts, "")):
        report = two_rungs(make_run("1", "a", 0, 0.5, config=parts), make_run("2", "b", 0, 0.6, config=second))
        assert report.notes == (Note(f"with optim.accumulate, batch norm{where} {seen}"),)
    assert two_rungs(make_run("1", "a", 0, 0.5, config=whole), make_run("2", "b", 0, 0.6, config=whole)).notes == ()


def test_a_published_protocol_and_code_versions_are_flagged() -> None:
    paper = make_run("1", "a", 0, 0.5, config={"train": {"protocol": "paper"}})
    report = two_rungs(paper, make_run("2", "b", 0, 0.6, code=("x", "y")))
    assert report.notes == (PAPER_PROTOCOL,)
    table = formats.render(report, "table")
    assert "60.00 (n=1), 2 code versions" in table
    assert "These runs come from more than one code version: 0.1.0 abc; x; y." in table


def test_numerics_versions_are_flagged_in_every_format() -> None:
    """Of a row, and of a comparison of rows that are no mixture."""
    table = formats.render(two_rungs(make_run("1", "a", 0, 0.5, numerics=1), make_run("2", "b", 0, 0.6)), "table")
    assert "from more than one numerics version: 1 (a); 2 (b)." in table
    assert "numerics" not in formats.render(two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "b", 0, 0.6)), "table")
    runs = (make_run("1", "a", 0, 0.5, numerics=1), make_run("2", "a", 1, 0.6), make_run("3", "b", 0, 0.7))
    report = two_rungs(*runs)
    assert [row["numerics"] for row in json.loads(formats.render(report, "json"))["rows"]] == [[1, 2], [2]]
    lines = csv.DictReader(io.StringIO(formats.render(report, "csv")))
    assert [line["numerics"] for line in lines] == ["1; 2", "2"]
    for format in ("table", "md", "latex", "html"):
        text = formats.render(report, format)  # type: ignore[arg-type]
        assert text.count("2 numerics versions") == (2 if format == "html" else 1), "a page has a caution, too"
        assert "These runs come from more than one numerics version: 1 (a); 2 (a, b). They round differently" in text


def test_disagreeing_parameter_counts_are_not_hidden() -> None:
    report = two_rungs(make_run("1", "a", 0, 0.5, parameters=7), make_run("2", "a", 1, 0.5, parameters=8))
    assert report.rows[0].parameters is None
    assert report.notes == (Note("a: its runs disagree on the number of parameters (7, 8)"),)


DEFAULT = RateSource("default", "the recipe's default, untuned")


def test_differences_with_an_untuned_side_are_named() -> None:
    rungs = tuple(make_rung(name) for name in "abcd")
    ladder = Ladder(name="x", title="x", source="s", rungs=rungs)
    chosen = RateSource("chosen", "chosen for this rung: it is ours")
    rates = {rung: (0.1, DEFAULT if rung == "b" else chosen) for rung in "abcd"}
    runs_of_all = [make_run(rung, rung, 0, 0.5) for rung in "abcd"]
    report = build(ladder, runs_of_all, rates=rates)
    assert [row.untuned for row in report.rows] == [(), ("b",), ("b",), ()]
    text = " ".join(formats.render(report, "table").split())
    assert "Untuned: the differences of b, c involve a rung at the recipe's default learning rate" in text
    assert "Untuned" not in formats.render(build(ladder, [], rates=dict.fromkeys("abcd", (0.1, chosen))), "table")
    everywhere = dict.fromkeys("abcd", (0.1, DEFAULT))
    for runs, named in (([], False), ([make_run("1", "a", 0, 0.5)], False), (runs_of_all, True)):
        text = formats.render(build(ladder, runs, rates=everywhere), "table")
        assert ("Untuned: all differences involve a rung" in text) == ("Untuned:" in text) == named


def test_every_format_says_where_the_learning_rates_come_from() -> None:
    tuned = RateSource("tuned", "tuned on validation here")
    chosen = {
        rung: make_run(rung, rung, 0, 0.5, config={"optim": {"lr": rate}}) for rung, rate in (("a", 0.04), ("b", 0.2))
    }
    report = two_rungs(*chosen.values(), rates={"a": (None, tuned), "b": (0.1, DEFAULT)})
    # runs have the rate that they were trained with, whatever is planned
    rows = json.loads(formats.render(report, "json"))["rows"]
    assert [row["learning_rate"] for row in rows] == [0.04, 0.2]
    assert [row["rate_source"] for row in rows] == [
        {"kind": "tuned", "text": "tuned on validation here"},
        {"kind": "default", "text": "the recipe's default, untuned"},
    ]
    lines = list(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    assert [(line["learning_rate"], line["rate_source_kind"]) for line in lines] == [
        ("0.04", "tuned"),
        ("0.2", "default"),
    ]
    for format in ("table", "md", "latex", "html"):
        text = formats.render(report, format)  # type: ignore[arg-type]
        assert "Learning rate (tuned on validation here): 0.04 (a)." in text
        assert "default, untuned): 0.2 (b)." in text
        untuned = "not tuned, see --tune (all rungs)" if format == "html" else "Untuned: the difference of b involves a"
        assert text.count(untuned) == 1
        assert ("Untuned" in text) == (format != "html"), "a page says it once"
    assert [row["untuned"] for row in rows] == [[], ["b"]]
    # one source and one value are said once; what tuning has yet to choose is not known
    assert "Learning rate (the recipe's default, untuned): 0.1." in formats.render(
        two_rungs(rates={"a": (0.1, DEFAULT), "b": (0.1, DEFAULT)}), "table"
    )
    assert "validation here): not chosen yet." in formats.render(two_rungs(rates={"a": (None, tuned)}), "table")
    config = {"optim": {"name": "prodigy", "lr": 1.0, "recurrent_factor": 1.0}}
    estimated = two_rungs(
        make_run("1", "a", 0, 0.5, config=config), rates={"a": (1.0, RateSource("set", "given by -"))}
    )
    assert "Learning rate (given by -): 1 times its estimate." in formats.render(estimated, "table")
