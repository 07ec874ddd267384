"""Finished runs without a usable score: they rank below all others, in every report, or nothing is judged with them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import scipy.stats
from msgspec import structs

from lrurun.config import tuning
from lrurun.config.instance import Instance
from lrurun.config.ladder import Claim, Ladder
from lrurun.data.metric import Accuracy, Metric
from lrurun.judging import claims, ranks, sequential
from lrurun.judging.rung_runs import InstanceRuns, Note, select
from lrurun.judging.scored_runs import results_of, scoring_of
from lrurun.judging.scores import form_of
from lrurun.ledger import values
from lrurun.report import formats
from lrurun.report.tables import all_tasks, answer, swept_table
from lrurun.report.tables.ladder_table import LadderReport
from tests.harness.reports import build, make_run, make_rung

PPL = Metric(name="ppl", unit="ppl", higher_is_better=False)
MAX = Metric(name="score", unit="points")
ALL = ("better", "no-worse", "above-chance", "at-chance")
CLAIMS = tuple(
    Claim(
        text=kind,
        source="s",
        rung="b",
        than=None if kind.endswith("chance") else "a",
        kind=kind,  # type: ignore[arg-type]
        margin=None if kind in ("better", "above-chance") else 0.05,
    )
    for kind in ALL
)
LADDER = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")))
BASE = [2.0 + 0.03 * seed / 23 for seed in range(24)]
Score = float | str | None


def runs_of(rung: str, scores: Sequence[Score], metric: Metric = PPL, val: float = 1.5) -> list[values.Run]:
    """Runs with these test scores; None has no such result, "diverged" diverged."""
    found = []
    for seed, score in enumerate(scores):
        result = {f"val/{metric.name}": val}
        result |= {} if score is None or isinstance(score, str) else {f"test/{metric.name}": score}
        state = "diverged" if score == "diverged" else "done"
        found.append(make_run(f"{rung}{seed}", rung, seed, state=state, result=result))
    return found


def report_on(a: Sequence[Score], b: Sequence[Score], metric: Metric = PPL, **more: Any) -> LadderReport:
    runs = runs_of("a", a, metric) + runs_of("b", b, metric)
    return build(LADDER, runs, task="toy", metric=metric, test_items=None, kind="program", **more)


def overflowing(count: int = 24, at: Score = math.inf) -> list[Score]:
    return [1.5 + 0.01 * seed if seed % 2 == 0 else at for seed in range(count)]


def test_runs_whose_test_score_overflows_rank_below_all_others() -> None:
    """24 seeds, of which every other one is better than the base by far and the others have no perplexity."""
    report = report_on(BASE, overflowing())
    row = report.rows[1]
    assert (row.verdict, row.n, row.unscored, row.diverged, row.ranked) == ("undecided", 12, 12, 0, 24)
    assert row.comparison is not None
    assert row.comparison.improvement == 0.5
    assert (row.comparison.p_adjusted, row.comparison.sides[0].unscored, row.comparison.difference) == (1.0, 12, None)
    assert row.failure_bound == pytest.approx(scipy.stats.beta.ppf(0.95, 13, 12))
    lost = tuple(f"b{seed}" for seed in range(1, 24, 2))
    assert report.notes == (Note("b: 12 runs ranked below all others, for lack of a finite test/ppl", lost),)
    text = "\n".join(answer.content_of(report).foot)
    assert "12 runs finished without a usable score (b)" in text
    assert "24 seeds a rung" in answer.content_of(report).title


@pytest.mark.parametrize(
    ("metric", "score"),
    [(PPL, math.inf), (PPL, math.nan), (PPL, None), (MAX, -math.inf), (MAX, math.nan), (MAX, None)],
)
def test_a_run_without_a_usable_score_is_judged_as_a_diverged_one(metric: Metric, score: Score) -> None:
    chance = 3.0 if metric is PPL else 1.0
    metric = structs.replace(metric, chance=chance)
    ladder = structs.replace(LADDER, claims=CLAIMS)
    base: list[Score] = [*BASE[:10], score, score]

    def judged(b: list[Score], a: list[Score] = base) -> Any:
        runs = runs_of("a", a, metric) + runs_of("b", b, metric)
        return build(ladder, runs, task="toy", metric=metric, test_items=None, kind="program")

    def numbers(comparison: Any) -> Any:
        sides = [(side.n, side.mean, side.stderr, side.without_score) for side in comparison.sides]
        return comparison.verdict, comparison.p_adjusted, comparison.difference, comparison.improvement, sides

    plain, lost = judged(overflowing(12, score)), judged(overflowing(12, "diverged"), [*BASE[:10], *["diverged"] * 2])
    assert plain.rows[1].verdict == lost.rows[1].verdict
    assert [numbers(claim) for claim in plain.claims] == [numbers(claim) for claim in lost.claims]
    assert plain.rows[1].failure_bound == lost.rows[1].failure_bound == ranks.failure_bound(6, 12)
    every = judged([score] * 12)
    assert (every.rows[1].verdict, every.rows[1].n, every.rows[1].unscored) == ("hurts", 0, 12)


def test_the_means_count_chance_for_a_run_without_a_usable_score() -> None:
    report = report_on([0.5, 0.5, 0.6], [0.75, 0.8, math.nan], Accuracy(chance=0.1))
    row = report.rows[1]
    assert row.comparison is not None
    assert (row.mean, row.learning, row.ranked) == (pytest.approx(0.775), 2, 3)
    assert row.comparison.sides[0].mean == pytest.approx((0.75 + 0.8 + 0.1) / 3)
    assert "count in differences with the score of chance, 10.00" in formats.render(report, "md")


@pytest.mark.parametrize(("metric", "score"), [(PPL, -math.inf), (MAX, math.inf)])
@pytest.mark.parametrize("place", ["test", "val"])
def test_nothing_is_judged_with_an_infinite_score_until_it_is_excluded(
    metric: Metric, score: float, place: str
) -> None:
    scores: list[Score] = [*overflowing(23, 1.7), score if place == "test" else 1.5]
    runs = runs_of("a", BASE, metric) + runs_of("b", scores[:-1], metric)
    last = runs_of("b", scores, metric, val=score if place == "val" else 1.5)[-1]
    more = {"task": "toy", "metric": metric, "test_items": None, "kind": "program"}
    ladder = structs.replace(LADDER, claims=CLAIMS[:2])
    report = build(ladder, [*runs, last], **more)
    row, why = report.rows[1], "b has 1 run with an infinite score, an error of the metric"
    assert row.comparison is not None
    assert (row.verdict, row.n, row.infinite, row.unscored) == ("not judged", 23, 1, 0)
    assert (row.comparison.reason, row.comparison.difference, row.comparison.p_adjusted) == (why, None, None)
    assert [(claim.verdict, claim.detail) for claim in report.claims] == [("not judged", why)] * 2
    [note] = report.notes
    assert note.text == f"{why}: nothing is judged with b until it is excluded: lrurun mark b23 --exclude WHY"
    first = "\n".join(answer.content_of(report).foot)
    assert "Not judged: b." in first
    assert "1 run with an infinite score, an error of the metric (b)" in first
    assert note.text in first
    assert f"Not judged: b against a ({why})." in report.conclusions
    without = build(ladder, [*runs, structs.replace(last, excluded="overflow")], **more)
    assert without.rows[1].verdict == ("helps" if metric is PPL else "hurts")


@pytest.mark.parametrize("format", get_args(formats.Format))
def test_every_format_counts_them(format: formats.Format) -> None:
    report = report_on(BASE, [*overflowing(22), "diverged", -math.inf])
    every = all_tasks.build(LADDER, [report])
    for one in (report, every):
        text = formats.render(one, format)
        if format == "json":
            table = json.loads(text)
            row = table["rows"][1] if one is report else table["rows"][1]["cells"][0]
            assert (row["n"], row["unscored"], row["infinite"], row["diverged"]) == (11, 11, 1, 1)
        elif format == "csv":
            header, _, line = (line.split(",") for line in text.splitlines()[:3])
            found = dict(zip(header, line, strict=False))
            assert (found["n"], found["diverged"]) == ("11", "1")
            assert {"unscored", "infinite"} <= set(header)
        else:
            for words in ("11 without a usable score", "1 with an infinite score", "1 diverged"):
                assert words in text
    assert "runs finished without a usable score (all tasks)" in "\n".join(all_tasks.content_of(every).cautions)


def test_a_metric_that_a_claim_names_counts_the_same() -> None:
    """A result that some runs of a rung lack was not measured by them, which nobody can judge; where all lack it, the
    rung has not run."""
    other = Accuracy()
    claim = Claim(text="t", source="s", rung="b", than="a", metric="accuracy@9")
    ladder = structs.replace(LADDER, claims=(claim,))

    def judged(further: Sequence[float | None]) -> Any:
        runs = []
        for rung, scores in (("a", [0.5 + 0.001 * k for k in range(12)]), ("b", further)):
            for seed, score in enumerate(scores):
                result = {"val/accuracy": 0.5, "test/accuracy": 0.5}
                result |= {} if score is None else {"test@9/accuracy": score}
                runs.append(make_run(f"{rung}{seed}", rung, seed, result=result))
        report = build(ladder, runs, metric=other, metrics=(other,))
        return report.claims[0]

    good = [0.9 + 0.001 * k for k in range(12)]
    assert judged(good).verdict == "supported"
    lost = judged([*good[:6], *[math.nan] * 6])
    assert (lost.verdict, lost.improvement, lost.sides[0].unscored) == ("undecided", 0.5, 6)
    assert judged([*good[:6], *[-math.inf] * 6]).improvement == 0.5
    some = judged([*good[:10], None, None])
    assert (some.verdict, some.detail) == (
        "not judged",
        "accuracy at 9: b has 2 runs without test@9/accuracy, beside others with it",
    )
    assert judged([None] * 12).verdict == "not run"


def test_a_look_counts_them_and_is_not_taken_with_an_infinite_score() -> None:
    """The exact seeds of a look are there, with or without a score; one with an infinite score decides nothing."""
    question = claims.questions.difference("b", "a")
    design = sequential.Design(
        max_seeds=12, looks=sequential.looks(12), settings={"a": "", "b": ""}, questions=(question,), finished_before=0
    )
    progress = sequential.DesignProgress(design=design)

    def look(b: list[Score]) -> Any:
        runs = runs_of("a", BASE[:12]) + runs_of("b", b)
        of = Instance(ladder=LADDER.name, task="toy", key="k", short_name="toy")
        instance = InstanceRuns(ladder=LADDER, instance=of, runs=runs, metric=PPL)
        rungs = {name: results_of(of_rung, {}) for name, of_rung in select(instance, PPL, []).items()}
        scoring = scoring_of(PPL, {}, None)
        assert progress.next_look is not None
        record = claims.take_look(progress, progress.next_look, rungs, scoring=scoring, design="d", runs=())
        return record.comparisons[0]

    assert look(overflowing(12, 1.6)).verdict == "supported"
    lost = look(overflowing(12, math.nan))
    assert (lost.verdict, lost.improvement, lost.reason) == ("undecided", 0.5, "")
    assert look([math.inf] * 12).verdict == "contradicted"
    wrong = look([*overflowing(11, 1.6), -math.inf])
    reason = "b has 1 run with an infinite score, an error of the metric"
    assert (wrong.verdict, wrong.reason, wrong.difference) == ("undecided", reason, None)


def test_a_value_is_not_the_best_of_a_sweep_because_its_bad_seeds_leave_the_mean() -> None:
    """Of the values of a setting, those with the fewest lost seeds compete; the mean of the others is not marked."""
    row, of = structs.asdict(report_on(BASE[:3], BASE[:3]).rows[0]), Instance(ladder="two", task="toy", key="i")
    rows = [
        swept_table.SweptRow(
            **row | {"n": n, "unscored": 3 - n, "mean": score}, instance=of, by={"lr": rate}, validation=score
        )
        for rate, n, score in ((0.1, 3, 2.0), (0.2, 2, 1.0), (0.3, 3, 1.9), (0.4, 0, None))
    ]
    report = swept_table.SweptReport(
        instance=of, title="two", by=("lr",), metric="test/ppl", rows=tuple(rows), instances=("i",), data={}, notes=(),
        score=form_of(PPL),
    )  # fmt: skip
    table = swept_table.content_of(report).table
    [column] = [column for column in table.columns if column.name == "val ppl"]
    assert [column.is_marked(row) for row in table.rows] == [False, False, True, False]


def test_a_rate_is_not_chosen_because_its_seeds_without_a_finite_score_leave_the_mean() -> None:
    """A program's validation loss that was not measured decides nothing between equal scores, and loses no seed."""
    task = SimpleNamespace(metric=PPL)

    def scores(*results: dict[str, float] | None) -> list[tuple[int, list[float]]]:
        made: Any = SimpleNamespace(task=task, tuning_seeds=(0, 1), kind="program")
        return [(point.count, point.scores) for point in tuning._point_scores(made, results)]

    bad = [{"val/ppl": score} for score in (math.nan, math.inf, -math.inf)]
    for lost in (*bad, {}, None):
        assert scores({"val/ppl": 1.5}, lost) == [(1, [-1.5])]
    assert scores({"val/ppl": 1.5, "val/loss": math.nan}, {"val/ppl": 1.25, "val/loss": 0.5}) == [(2, [-1.5, -1.25])]
