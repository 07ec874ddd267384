"""The table of a ladder: which runs count, and what is computed from them."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy.stats

from lrurun.config import documents
from lrurun.config.resolve import RateSource
from lrurun.errors import LrurunError
from lrurun.report import formats, statistics
from lrurun.report.ladder_table import LadderReport
from tests.reports import (
    GRID,
    GRID_RUNS,
    GRID_SCORES,
    LINEAR,
    MINI,
    ON,
    RUNS,
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
    assert rows["tanh-rnn"].mean == pytest.approx(np.mean(TANH))
    assert rows["tanh-rnn"].stderr == pytest.approx(scipy.stats.sem(TANH))
    assert rows["tanh-rnn"].steps_per_second == 101.0
    assert rows["linear-rnn"].speedup == pytest.approx(250 / 101)
    stable = rows["stable-exponential"]
    assert (stable.diverged, stable.failed, stable.unfinished) == (1, 1, 1)
    assert [(run.id, run.state) for run in stable.other_runs] == [
        ("s2", "diverged"),
        ("s3", "failed"),
        ("s4", "interrupted"),
    ]
    empty = rows["small-phase"]
    assert (empty.mean, empty.stderr, empty.delta, empty.p_value, empty.parameters) == (None,) * 5
    assert (empty.steps_per_second, empty.speedup, empty.runs) == (None, None, ())


def test_changes_are_welch_tests_corrected_over_the_table() -> None:
    rows = {row.rung: row for row in build().rows}
    first = scipy.stats.ttest_ind(LINEAR, TANH, equal_var=False)
    second = scipy.stats.ttest_ind((0.97, 0.98), LINEAR, equal_var=False)
    assert first.pvalue < second.pvalue
    assert rows["linear-rnn"].p_value == pytest.approx(2 * first.pvalue)
    assert rows["stable-exponential"].p_value == pytest.approx(max(second.pvalue, 2 * first.pvalue))
    low, high = first.confidence_interval(0.95)
    assert rows["linear-rnn"].delta == pytest.approx(np.mean(LINEAR) - np.mean(TANH))
    assert (rows["linear-rnn"].delta_low, rows["linear-rnn"].delta_high) == pytest.approx((low, high))
    assert rows["tanh-rnn"].delta is None


def test_one_seed_has_a_change_and_no_test() -> None:
    report = two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "b", 0, 0.75))
    assert [row.n for row in report.rows] == [1, 1]
    assert report.rows[1].delta == 0.25
    assert (report.rows[1].delta_low, report.rows[1].p_value, report.rows[1].stderr) == (None, None, None)
    assert report.detectable is None
    assert "50.00 (n=1)" in formats.render(report, "table")


def test_a_shared_rung_has_the_runs_of_the_one_before() -> None:
    shared = build().rows[2]
    assert shared.same_as_before
    assert (shared.delta, shared.p_value, shared.delta_low, shared.runs) == (0.0, None, None, ("l0", "l1", "l2"))
    # Whichever of the two a run was made for; and through several shared rungs.
    rungs = tuple(make_rung(name) for name in "abcd")
    runs = [make_run(name, name, seed, 0.5 + seed / 10, config={}) for seed, name in enumerate("abc")]
    ladder = documents.Ladder(name="x", title="x", source="s", rungs=rungs)
    report = build(ladder, runs, same_as_before={"a", "b", "c"})
    assert [row.runs for row in report.rows] == [("a", "b", "c")] * 3 + [()]
    assert [row.same_as_before for row in report.rows] == [False, True, True, False]


def test_a_rung_is_compared_with_the_one_that_it_changes() -> None:
    rows = {row.rung: row for row in grid().rows}
    assert [row.on for row in rows.values()] == ON
    assert [row.branches for row in rows.values()] == [False, False, True, False, True, True]
    tests = {
        rung: scipy.stats.ttest_ind(GRID_SCORES[rung], GRID_SCORES[on], equal_var=False)
        for rung, on in (("stable-1", "free-1"), ("free-2", "free-1"), ("stable-2", "free-2"))
    }
    corrected = dict(zip(tests, multiple([test.pvalue for test in tests.values()]), strict=True))
    for rung, test in tests.items():
        low, high = test.confidence_interval(0.95)
        found = rows[rung]
        assert (found.delta_low, found.delta_high) == pytest.approx((low, high))
        assert found.delta == pytest.approx((low + high) / 2)
        assert found.p_value == pytest.approx(corrected[rung])


def test_a_root_is_compared_with_no_rung() -> None:
    rungs = (make_rung("a"), msgspec.structs.replace(make_rung("b"), root=True), make_rung("c"))
    ladder = documents.Ladder(name="x", title="x", source="s", rungs=rungs)
    runs = [make_run(f"{name}{seed}", name, seed, 0.5 + seed / 10) for name in "abc" for seed in (0, 1)]
    rows = build(ladder, runs).rows
    assert [row.on for row in rows] == [None, None, "b"]
    assert [row.delta for row in rows] == [None, None, 0.0]
    assert [row.p_value for row in rows] == [None, None, pytest.approx(1.0)]


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
        assert (rows[rung].delta, rows[rung].p_value, rows[rung].delta_low) == (0.0, None, None)
    # those in between keep their own, and none is counted twice
    assert rows["stable-2"].runs == ("stable-2.0", "stable-2.1", "stable-2.2")
    own = [np.var(scores, ddof=1) for scores in GRID_SCORES.values()]
    assert report.spread == pytest.approx(np.sqrt(np.mean(own)))
    # a run that was made for the later of the two serves the earlier one
    late = [msgspec.structs.replace(run, config={}) for run in GRID_RUNS[:2]]
    late.append(make_run("late", "free-3", 2, 0.5, config={}))
    report = build(GRID, late, same_as_before={"free-3"})
    assert report.rows[0].runs == report.rows[4].runs == ("free-1.0", "free-1.1", "late")
    assert report.rows[5].n == 0


def test_the_first_rungs_of_a_grid_are_a_report_of_their_own() -> None:
    assert [(row.rung, row.on) for row in grid(rungs=4).rows] == list(zip(GRID_SCORES, ON[:4], strict=True))
    assert [row.delta for row in grid(rungs=4).rows] == [row.delta for row in grid().rows[:4]]
    # of which the first two are a ladder like any other
    assert "to the previous rung, in points" in grid(200, rungs=2)
    assert body(grid(200, rungs=2)).split()[:3] == ["rung", "title", "test"]


GRID_100 = """\
rung      base      test accuracy       difference [95 %]        p       steps/s  speed-up
────────  ────────  ──────────────────  ───────────────────────  ──────  ───────  ────────
free-1    –         71.00 ± 0.58 (n=3)  –                        –       –        –
stable-1  free-1    81.67 ± 0.88 (n=3)  +10.67 [+7.55, +13.79]   0.002   –        –
free-2    free-1    61.67 ± 1.20 (n=3)  -9.33 [-13.68, -4.99]    0.007   –        –
stable-2  free-2    91.33 ± 0.88 (n=3)  +29.67 [+25.38, +33.96]  <0.001  –        –
free-3    free-1    71.00 ± 0.58 (n=3)  as free-1                –       –        –
stable-3  stable-1  81.67 ± 0.88 (n=3)  as stable-1              –       –        –"""


def test_a_table_names_the_rung_that_is_changed_where_it_is_not_the_one_before() -> None:
    assert body(grid(100)) == GRID_100
    assert "to the base rung, in points" in grid(200)
    assert body(grid(60)).split("\n")[3].split() == [
        "stable-1",
        "free-1",
        "81.67",
        "±",
        "0.88",
        "(n=3)",
        "+10.67",
        "0.002",
    ]
    # too narrow for the column; then too narrow for any
    assert body(grid(40)).split("\n")[0].split() == ["rung", "test", "accuracy", "diff."]
    assert (
        "  base: free-1\n  test accuracy:\n  61.67 ± 1.20 (n=3)\n  difference [95 %]:\n  -9.33 [-13.68, -4.99]\n"
        in grid(25)
    )
    assert "  difference [95 %]: as\n  stable-1\n" in grid(25)
    for width in range(20, 120, 7):
        assert max(map(len, grid(width).split("\n"))) <= width
    markdown = formats.render(grid(), "md")
    assert "| rung | base | title | test accuracy |" in markdown
    assert "| --- | --- | --- | --- | ---: |" in markdown
    assert "| stable-3 | stable-1 | a rung | 81.67 ± 0.88 (n=3) | as stable-1 |" in markdown
    assert "to the base rung, in points" in markdown


def test_the_data_formats_name_the_rung_that_is_changed() -> None:
    for ladder, expected in ((GRID, ON), (MINI, [None, *(rung.name for rung in MINI.rungs[:-1])])):
        report = build(ladder)
        rows = json.loads(formats.render(report, "json"))["rows"]
        assert [row["on"] for row in rows] == expected
        lines = csv.DictReader(io.StringIO(formats.render(report, "csv")))
        assert [line["on"] or None for line in lines] == expected


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
    assert report.notes == ("a: left out, because their settings are older: r0",)


def test_a_shared_rung_before_anything_ran_has_no_change() -> None:
    assert build(runs=[]).rows[2].delta is None


def test_the_spread_of_shared_runs_is_counted_once() -> None:
    report = build(runs=[run for run in RUNS if run.id[0] in "tl"])
    expected = np.sqrt((np.var(TANH, ddof=1) + np.var(LINEAR, ddof=1)) / 2)
    assert report.spread == pytest.approx(expected)
    assert report.detectable_seeds == 3


def test_the_smallest_difference_is_for_the_seeds_of_undecided_comparisons() -> None:
    def made(*counts: int) -> LadderReport:
        """Of rungs with these numbers of seeds; the first two differ, the others do not."""
        centers = dict(zip("abcd", (0.2, 0.8, 0.8, 0.8), strict=False))
        runs = [
            make_run(f"{rung}{seed}", rung, seed, centers[rung] + 0.01 * (7 * seed % 5))
            for rung, count in zip(centers, counts, strict=False)
            for seed in range(count)
        ]
        rungs = tuple(make_rung(rung) for rung in centers)
        return build(documents.Ladder(name="x", title="x", source="s", rungs=rungs), runs)

    for counts, seeds in (((5, 8, 8), 8), ((5, 8, 7), 7), ((5, 8, 7, 6), 6), ((5, 8), 5), ((5, 8, 1), 5)):
        report = made(*counts)
        assert report.rows[1].verdict == "better"
        assert report.detectable_seeds == seeds
        assert report.spread is not None
        assert report.detectable == statistics.detectable(report.spread, seeds)
        assert f"Smallest difference that {seeds} seeds a side" in formats.render(report, "md")


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
        make_run("old", "a", 0, 0.1, config={"steps": 5, "seed": 0}, created_at=1.0),
        make_run("new1", "a", 0, 0.5, config={"steps": 9, "seed": 0}, created_at=2.0),
        make_run("new2", "a", 1, 0.7, config={"steps": 9, "seed": 1}, created_at=3.0),
    ]
    report = two_rungs(*runs)
    assert report.rows[0].runs == ("new1", "new2")
    assert report.notes == ("a: left out, because their settings are older: old",)


@pytest.mark.parametrize("score", [None, float("nan"), float("inf")])
def test_a_finished_run_without_a_score_is_named(score: float | None) -> None:
    report = two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "a", 1, score))
    assert report.rows[0].runs == ("1",)
    assert report.notes == ("a: run 2 is done without a finite test/accuracy and is not counted",)


def test_a_published_protocol_and_code_versions_are_flagged() -> None:
    paper = make_run("1", "a", 0, 0.5, config={"train": {"protocol": "paper"}})
    report = two_rungs(paper, make_run("2", "b", 0, 0.6, code=("x", "y")))
    assert report.notes == ('protocol = "paper": models were selected as published, where that used the test split',)
    table = formats.render(report, "table")
    assert "60.00 (n=1), 2 code versions" in table
    assert "These runs come from more than one code version: 0.1.0 abc; x; y." in table


def test_numerics_versions_are_flagged_in_every_format() -> None:
    runs = (make_run("1", "a", 0, 0.5, numerics=1), make_run("2", "a", 1, 0.6), make_run("3", "b", 0, 0.7))
    report = two_rungs(*runs)
    assert [row["numerics"] for row in json.loads(formats.render(report, "json"))["rows"]] == [[1, 2], [2]]
    lines = csv.DictReader(io.StringIO(formats.render(report, "csv")))
    assert [line["numerics"] for line in lines] == ["1; 2", "2"]
    for format in ("table", "md", "latex", "html"):
        text = formats.render(report, format)  # type: ignore[arg-type]
        assert text.count("2 numerics versions") == 1
        assert "These runs come from more than one numerics version: 1 (a); 2 (a, b). They round differently" in text


def test_rungs_of_different_numerics_versions_are_flagged() -> None:
    """No row is a mixture, but the comparison of the two is one."""
    table = formats.render(two_rungs(make_run("1", "a", 0, 0.5, numerics=1), make_run("2", "b", 0, 0.6)), "table")
    assert "numerics versions" not in table
    assert "from more than one numerics version: 1 (a); 2 (b)." in table
    assert "numerics" not in formats.render(two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "b", 0, 0.6)), "table")


def test_a_narrow_table_names_the_columns_that_it_omits() -> None:
    report = two_rungs(make_run("1", "a", 0, 0.5), make_run("2", "b", 0, 0.6))
    assert "Not shown" not in formats.render(report, "table", width=200)
    narrow = formats.render(report, "table", width=60)
    named = re.search(r"Not shown at this width: (.*?)\.\s", narrow, re.DOTALL)
    assert named is not None
    assert re.split(r",\s+", named[1]) == ["title", "parameters", "published"]
    assert "width: title, parameters,\nsteps/s, speed-up, published." in formats.render(report, "table", width=48)
    assert "Not shown at this\nwidth: title," in formats.render(report, "table", width=20)


def test_disagreeing_parameter_counts_are_not_hidden() -> None:
    report = two_rungs(make_run("1", "a", 0, 0.5, parameters=7), make_run("2", "a", 1, 0.5, parameters=8))
    assert report.rows[0].parameters is None
    assert report.notes == ("a: its runs disagree on the number of parameters (7, 8)",)


DEFAULT = RateSource("default", "the recipe's default, untuned")


def test_differences_with_an_untuned_side_are_named() -> None:
    rungs = tuple(make_rung(name) for name in "abcd")
    ladder = documents.Ladder(name="x", title="x", source="s", rungs=rungs)
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
        assert "Untuned: the difference of b involves a rung at the recipe" in text
    assert [row["untuned"] for row in rows] == [[], ["b"]]
    # one source and one value are said once; what tuning has yet to choose is not known
    assert "Learning rate (the recipe's default, untuned): 0.1." in formats.render(
        two_rungs(rates={"a": (0.1, DEFAULT), "b": (0.1, DEFAULT)}), "table"
    )
    assert "validation here): not chosen yet." in formats.render(two_rungs(rates={"a": (None, tuned)}), "table")
