"""Scores up to the limits of float64: verdicts do not depend on their size, and every report prints them."""

from __future__ import annotations

import itertools
import json
import math
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import scipy.stats
from msgspec import structs

from lrurun.config import tuning
from lrurun.config.ladder import Claim, Ladder
from lrurun.data.metric import Accuracy, Metric
from lrurun.judging import samples, statistics, verdicts
from lrurun.judging.samples import Result, Scoring
from lrurun.judging.scores import ScoreForm, form_of, number
from lrurun.judging.verdicts import Comparison, Pair, Question
from lrurun.ledger.ledger import Ledger
from lrurun.report import formats
from lrurun.report.figures import curves, drawing, figure_files
from lrurun.report.figures.figures import Curve, Figure, Panel, in_powers_of_ten
from lrurun.report.tables import all_tasks, axes
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness.reports import build, make_run, make_rung
from tests.harness.stores import key, ledger, path, take, want

__all__ = ["key", "ledger", "path"]  # fixtures

LARGEST, SMALLEST = sys.float_info.max, 5e-324
KINDS: Sequence[Any] = ("better", "no-worse", "equal", "above-chance", "at-chance")
PPL = Metric(name="ppl", unit="ppl", higher_is_better=False)


def judged(kind: Any, mine: Sequence[float | None], other: Sequence[float | None], unit: float) -> Comparison:
    """The verdict on scores in a unit, of which chance is 0.5 and the margin a tenth."""
    scoring = Scoring(metric=Metric(name="score", unit="points"), chance=0.5 * unit)
    sides = [
        samples.sample([Result(k, score and score * unit) for k, score in enumerate(some)], scoring)
        for some in (mine, other)
    ]
    against = kind.endswith("chance")
    question = Question(
        kind=kind, rung="b", other=None if against else "a", margin=unit / 10 if kind != "better" else 0
    )
    constant = samples.constant(scoring)
    pair = Pair(question=question, mine=sides[0], other=constant if against else sides[1], metric=scoring.metric)
    return verdicts.judge([pair])[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [2.0**1021, 2.0**600, 2.0**-600, 2.0**-1000])
@pytest.mark.parametrize("n", [3, 12])
def test_a_verdict_does_not_depend_on_the_size_of_the_scores(kind: Any, unit: float, n: int) -> None:
    """Times a power of two every number is as exact: p, verdict and chance are the same, differences the product."""
    random = np.random.default_rng(n)
    seen = set()
    for centre, spread in itertools.product((0.52, 0.6, 0.75, 0.9), (0.01, 0.2)):
        mine: list[float | None] = [float(score) for score in random.normal(centre, spread, n)]
        other: list[float | None] = [float(score) for score in random.normal(0.75, 0.05, n)]
        if spread > 0.1:
            mine[0] = None
        usual, found = judged(kind, mine, other, 1.0), judged(kind, mine, other, unit)
        for name in ("verdict", "p_adjusted", "improvement", "improvement_low", "provisional", "reason"):
            assert getattr(found, name) == getattr(usual, name), name
        for name in ("difference", "low", "high", "detectable"):
            value = getattr(usual, name)
            assert getattr(found, name) == (None if value is None else pytest.approx(value * unit, rel=1e-9))
        seen.add(usual.verdict)
    assert len(seen) > 1


def test_a_difference_may_overflow_and_its_test_does_not() -> None:
    """p is that of the same scores in another unit."""
    mine, other = [-1.5, -1.6, -1.4], [1.5, 1.3, 1.6]
    large = [[score * 2.0**1023 for score in some] for some in (mine, other)]
    estimates = [statistics.estimate(some) for some in large]
    assert estimates[0] is not None
    assert estimates[1] is not None
    found = statistics.between(*estimates)
    assert found.p_value() == pytest.approx(scipy.stats.ttest_ind(mine, other, equal_var=False).pvalue, rel=1e-9)
    assert found.interval(0.95) == (-math.inf, -math.inf)
    assert statistics.difference(-1.5 * 2.0**1023, 1.5 * 2.0**1023) == -math.inf
    assert statistics.stderr(large[0]) == pytest.approx(scipy.stats.sem(mine) * 2.0**1023)


def test_means_that_differ_by_what_rounding_does_are_equal() -> None:
    """The first two have the sum of the last two, and another mean in float64."""
    first, second = statistics.mean([0.1, 0.7]), statistics.mean([0.3, 0.5])
    assert first is not None
    assert second is not None
    assert first != second
    assert statistics.difference(first, second) == 0
    assert statistics.difference(0.4 + 1e-12, 0.4) == pytest.approx(1e-12, rel=1e-3)


# Text


PERCENT = form_of(Accuracy())
PLAIN = ScoreForm(name="ppl", unit="ppl", scale=1.0, decimals=3, symbol="")


@pytest.mark.parametrize(
    ("form", "score", "short", "full"),
    [
        (PLAIN, 1.5, "1.500", "1.5000"),
        (PLAIN, 0.0, "0.000", "0.0000"),
        (PLAIN, 123456789.125, "123456789.125", "123456789.1250"),
        (PLAIN, 1e9, "1.00e+09", "1.000e+09"),
        (PLAIN, -1e20, "-1.00e+20", "-1.000e+20"),
        (PLAIN, 1e-3, "0.001", "0.0010"),
        (PLAIN, -4e-5, "-0.000", "-0.0000"),
        (PLAIN, 1e-7, "1.00e-07", "1.000e-07"),
        (PLAIN, 1e-200, "1.00e-200", "1.000e-200"),
        (PLAIN, SMALLEST, "4.94e-324", "4.941e-324"),
        (PLAIN, LARGEST, "1.80e+308", "1.798e+308"),
        (PLAIN, math.inf, "inf", "inf"),
        (PLAIN, math.nan, "nan", "nan"),
        (PERCENT, 0.7, "70.0", "70.00"),
        (PERCENT, LARGEST, "1.80e+310", "1.798e+310"),
        (PERCENT, 1e-300, "1.00e-298", "1.000e-298"),
        (structs.replace(PLAIN, decimals=0), 1e20, "1.00e+20", "1.000e+20"),
        (structs.replace(PLAIN, decimals=8), 1e-7, "0.00000010", "0.000000100"),
    ],
)
def test_large_and_tiny_scores_have_powers_of_ten(form: ScoreForm, score: float, short: str, full: str) -> None:
    assert (form.short(score), form.full(score)) == (short, full)


def test_differences_are_printed_as_the_scores_beside_them() -> None:
    """A difference of usual scores that is smaller than their last decimal is 0; one of tiny scores is not."""
    assert [PLAIN.difference(value) for value in (1e-6, -1e-6, -1e-200, 0.5, 1e20)] == [
        "+0.0000", "+0.0000", "+0.0000", "+0.5000", "+1.000e+20",
    ]  # fmt: skip
    assert PLAIN.beside([0.5, 1e-200]).difference(-1e-6) == "+0.0000"
    tiny = PLAIN.beside([1e-200, None, 0.0])
    assert (tiny.difference(-1e-200), tiny.size(1e-201), tiny.difference(0.0)) == (
        "-1.000e-200",
        "1.000e-201",
        "+0.0000",
    )
    assert PLAIN.beside([0.0, None]).difference(1e-9) == "+0.0000"
    assert (PLAIN.difference(math.inf), PLAIN.short_difference(-math.inf)) == ("over +1.798e+308", "under -1.80e+308")
    assert (PERCENT.size(math.inf), PLAIN.published(1.2e20), PLAIN.published(0.25)) == (
        "over 1.798e+310",
        "1.200e+20",
        "0.250",
    )
    assert [number(value, 3) for value in (0.25, 1e200, 1e-200)] == ["0.250", "1.00e+200", "1.00e-200"]


# Reports


EXTREMES = {
    "usual": 1.0,
    "large": 0.3 * LARGEST,
    "negative": -0.3 * LARGEST,
    "least": SMALLEST,
    "tiny": 1e-200,
    "e20": 1e20,
}


def report_on(scores: dict[str, list[float]], metric: Metric = PPL) -> LadderReport:
    claims = (Claim(text="t", source="s", rung=list(scores)[-1], than=next(iter(scores)), kind="no-worse", margin=0.1),)
    ladder = Ladder(name="x", title="x", source="s", rungs=tuple(map(make_rung, scores)), claims=claims)
    runs = [
        make_run(f"{rung}{seed}", rung, seed, result={f"val/{metric.name}": score, f"test/{metric.name}": score})
        for rung, of_rung in scores.items()
        for seed, score in enumerate(of_rung)
    ]
    return build(ladder, runs, task="toy", metric=metric, test_items=None, kind="program")


def extremes(seeds: int = 3) -> dict[str, list[float]]:
    return {name: [score * (1 + k) for k in range(seeds)] for name, score in EXTREMES.items()}


@pytest.mark.parametrize("percent", [False, True])
@pytest.mark.parametrize("format", get_args(formats.Format))
def test_every_format_prints_every_size(format: formats.Format, percent: bool) -> None:
    report = report_on(extremes(), structs.replace(PPL, scale=100.0, symbol="%") if percent else PPL)
    assert all(row.verdict in ("helps", "hurts", "undecided") for row in report.rows[1:])
    assert report.rows[2].comparison is not None
    assert report.rows[2].comparison.difference == -math.inf
    for one in (report, all_tasks.build(Ladder(name="x", title="x", source="s"), [report])):
        text = formats.render(one, format)
        if format == "json":
            row = json.loads(text)["rows"][2]
            cell = row if one is report else row["cells"][0]
            assert (cell["comparison"]["difference"], cell["comparison"]["finite"]) == (None, False)
        elif format == "csv":
            assert {f"{score}" for score in (0.3 * LARGEST, 1e-323, 2e-200)} <= set(text.replace(",", " ").split())
        else:
            power = 22 if percent else 20
            assert (rf"2.000$\cdot 10^{{{power}}}$" if format == "latex" else f"2.000e+{power}") in text
            assert max(map(len, text.replace(">", " ").replace('"', " ").split())) < 300, "no number has all its digits"


def test_the_first_screen_has_the_axis_and_the_numbers() -> None:
    text = formats.render(report_on(extremes()), "table", width=120, answer=True)
    assert "under -1.80e+308" in text
    [line] = [line for line in text.splitlines() if line.startswith("tiny")]
    assert "2.00e-200 ± 5.77e-201" in line
    small = formats.render(report_on({"a": [1e-200, 2e-200], "b": [3e-200, 4e-200]}), "table", width=120, answer=True)
    assert "1e-200" in small
    assert "+2.00e-200" in small


@pytest.mark.parametrize(
    "scores", [[SMALLEST, 3 * SMALLEST], [-LARGEST, LARGEST], [1e300, 1e300], [0.0, 1e-310], [1e150, -1e-150], [0.0]]
)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_an_axis_has_room_for_scores_of_every_size(scores: list[float], scale: float) -> None:
    drawn = axes.of([*scores, math.inf, math.nan], scale)
    assert drawn is not None
    positions = [drawn.position(score) for score in scores]
    assert all(0 <= place <= 1 for place in positions)
    assert positions == sorted(positions) if scores == sorted(scores) else positions == sorted(positions, reverse=True)
    ends = [float(drawn.labelled[k][1]) for k in (0, -1)]
    assert ends[0] <= min(scores) * scale
    assert ends[1] >= max(scores) * scale * (1 - 1e-6)
    assert axes.of([math.nan], scale) is None


def test_figures_have_powers_of_ten_as_units_of_their_axes(tmp_path: Path) -> None:
    report = report_on(extremes())
    scores = {f"{rung}{seed}": score for rung, some in extremes().items() for seed, score in enumerate(some)}
    figure = drawing.ladder(report, scores)
    panel, _ = in_powers_of_ten(figure).panels
    assert panel.x == "test ppl, in 1e+308"
    drawn = [value for curve in panel.curves for value in (*curve.x, *curve.low, *curve.high)]
    assert max(map(abs, drawn)) < 18
    assert figure_files.render(figure, ".svg").startswith(b"<?xml")
    usual = Figure(panels=(Panel(x="x", y="y", curves=(Curve(label="a", x=(1.0, 2.0), y=(1e20, 3.0)),)),))
    assert in_powers_of_ten(usual) == usual
    tiny = Figure(panels=(Panel(x="x", y="y", curves=(Curve(label="a", x=(1.0,), y=(2e-200,), high=(math.inf,)),)),))
    [panel] = in_powers_of_ten(tiny).panels
    assert (panel.y, panel.curves[0].y, panel.x) == ("y, in 1e-200", (pytest.approx(2.0),), "x")
    assert figure_files._number(1e20) == "1e+20"
    losses = Curve(label="a", x=(1.0, 2.0), y=(1.0, LARGEST))
    logarithmic = Figure(panels=(Panel(x="step", y="loss", curves=(losses,), y_scale="log"),))
    with warnings.catch_warnings(action="error"):
        assert figure_files.render(logarithmic, ".svg").startswith(b"<?xml")
    mean = curves.average("a", [[(1, LARGEST), (2, math.inf)], [(1, LARGEST / 2), (2, -math.inf)]])
    assert mean.y[0] == pytest.approx(0.75 * LARGEST)
    assert mean.high[0] - mean.y[0] == pytest.approx(LARGEST / 4)
    assert math.isnan(mean.y[1])


def test_means_in_the_ledger_have_every_size(ledger: Ledger, key: str) -> None:
    """Those of `lrurun status` and of groups of runs."""
    sizes = {"large": LARGEST / 2, "tiny": SMALLEST, "usual": 0.1, "mixed": 1.0}
    ledger.enqueue(key, [want(rung, seed, position=seed) for rung in sizes for seed in range(2)])
    for _ in range(8):
        held = take(ledger, key)
        rung, seed = held.run.memberships[0].rung, held.run.seed
        score = sizes[rung] * (1 + seed) if rung != "mixed" else (1.0, 1e300)[seed]
        ledger.record(held, [(20, "train/loss", score)], 20)
        ledger.finish(held, "done", result={"val/accuracy": score, "test/accuracy": score}, step=100)
    expected = {"large": 0.75 * LARGEST, "tiny": 1e-323, "usual": statistics.mean([0.1, 0.2]), "mixed": 5e299}
    near = {rung: pytest.approx(score, rel=1e-9, abs=0) for rung, score in expected.items()}
    assert {one.rung: one.score for one in ledger.state_summaries(key)} == near
    assert {one.rung: one.loss for one in ledger.state_summaries(key)} == near
    groups = {group.values[0]: group for group in ledger.groups_of(["rung"], {"sDigits": "test/accuracy"})}
    assert {name: group.mean for name, group in groups.items()} == {
        rung: pytest.approx(score, rel=1e-9, abs=SMALLEST) for rung, score in expected.items()
    }
    errors = {rung: statistics.stderr([sizes[rung], 2 * sizes[rung]]) for rung in ("large", "tiny", "usual")}
    errors["mixed"] = statistics.stderr([1.0, 1e300])
    assert {name: group.stderr for name, group in groups.items()} == {
        name: pytest.approx(error, rel=1e-9, abs=SMALLEST) for name, error in errors.items()
    }


def test_tuning_chooses_among_scores_of_every_size() -> None:
    points = tuning._PointScores([LARGEST, LARGEST / 2], [0.0, 0.0], [])
    assert points.mean == pytest.approx(0.75 * LARGEST)
    made: Any = SimpleNamespace(task=SimpleNamespace(metric=PPL), tuning_seeds=(0, 1), kind="program", extend=0)
    rung: Any = SimpleNamespace(grid={"lr": [1, 2]})
    results = [{"val/ppl": score} for score in (LARGEST, LARGEST / 2, LARGEST / 4, LARGEST / 4)]
    chosen = tuning.choose_point(structs_with_points(made), rung, results)
    assert chosen == {"lr": 2}


def structs_with_points(plan: Any) -> Any:
    """A plan of a grid."""
    plan.search = None
    return plan
