"""The runs of a ladder with the scores of one metric, as claims are judged from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lrurun.config.ladder import Ladder
from lrurun.data.metric import ESCAPE, Metric, named
from lrurun.report.judging import claims, questions
from lrurun.report.judging.verdicts import Result, Scoring
from lrurun.report.rung_runs import RungRuns, score_of

if TYPE_CHECKING:
    from lrurun.ledger.values import Run


def claimed_metrics(ladder: Ladder, task: str, metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics of a task that claims on it name, beside the one that selects the model."""
    names = dict.fromkeys(questions.metric_of(claim, task) for claim in ladder.claims if claim.is_about(task))
    return [metric for name in names if name and (metric := named(name, metrics)) is not None]


def scored(selected: Mapping[str, RungRuns], scoring: Scoring) -> claims.Scored:
    """The selected runs with the scores of a metric."""
    return claims.Scored(rungs={rung: results_of(runs) for rung, runs in selected.items()}, scoring=scoring)


def scoring_of(metric: Metric, data: Mapping[str, Any], test_items: int | None, *, selects: bool = True) -> Scoring:
    """How runs on these data are scored: chance is that of the data where they have it, else that of the task.

    The baselines of data are scores of the metric that selects the model: they are ignored unless it `selects`.
    """
    baselines = data.get("baselines", {}) if selects else {}
    chance = baselines.get(metric.naive, metric.chance)
    steps = data.get("test_labels") if metric.over == "labels" else None
    return Scoring(metric=metric, chance=chance, items=test_items, steps=steps)


def _diverged(run: Run, metric: str) -> float | None:
    """What a diverged run counts with: None for the score of chance; the step of its escape is known."""
    return (score_of(run, ESCAPE) or float(run.steps)) if metric == ESCAPE else None


def results_of(rung_runs: RungRuns) -> claims.RungResults:
    """The finished runs with a score, those without a usable one, and the diverged ones."""
    scores: dict[str, float | None] = dict(zip((run.id for run in rung_runs.counted), rung_runs.scores, strict=True))
    unscored = {run.id for run in rung_runs.unscored}
    scores |= dict.fromkeys(unscored)
    if scores or not rung_runs.unmeasured:  # else no run of the rung has measured it
        scores |= {run.id: _diverged(run, rung_runs.metric) for run in rung_runs.runs if run.state == "diverged"}
    results = tuple(Result(run.seed, scores[run.id], run.id in unscored) for run in rung_runs.runs if run.id in scores)
    return claims.RungResults(rung=rung_runs.rung, results=results, problem=rung_runs.problem)
