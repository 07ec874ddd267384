"""The runs of a ladder with the scores of one metric, as claims are judged from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun.config.ladder import Ladder
from lrurun.data.metric import Metric, named
from lrurun.errors import LrurunError
from lrurun.judging import claims, questions
from lrurun.judging.rung_runs import InstanceRuns, RungRuns, name_in
from lrurun.judging.samples import Scoring

if TYPE_CHECKING:
    from lrurun.items import ItemResults, TestSet


def claimed_metrics(ladder: Ladder, task: str, metrics: Sequence[Metric]) -> list[Metric]:
    """The metrics of a task that claims on it name, beside the one that selects the model."""
    names = dict.fromkeys(questions.metric_of(claim, task) for claim in ladder.claims if claim.is_about(task))
    return [metric for name in names if name and (metric := named(name, metrics)) is not None]


def scored(
    instance: InstanceRuns, selected: Mapping[str, RungRuns], metric: Metric, test_items: int | None
) -> claims.Scored:
    """The selected runs with the scores of a metric, and with the per-item results that were recorded.

    Args:
        test_items: the number of test items, where the task knows it.

    Raises:
        LrurunError: runs were scored on unequal test items.
    """
    items, removed = _items_of(instance, selected)
    test_set = next(iter(items.values())).test_set if items else None
    count = test_set.count if test_set else next(iter(removed.values()), test_items)
    scoring = scoring_of(
        metric, instance.identity.data, count if metric.of_test_items else None, selects=metric == instance.metric
    )
    if scoring.step is not None and not _is_counted(selected, items, scoring.step):
        scoring = structs.replace(scoring, is_counted=False)
    return claims.Scored(
        rungs={rung: structs.replace(runs, items=items) for rung, runs in selected.items()},
        scoring=scoring,
        items_removed=tuple(removed),
    )


def _items_of(
    instance: InstanceRuns, selected: Mapping[str, RungRuns]
) -> tuple[dict[str, ItemResults], dict[str, int]]:
    """The results of runs on single test items, by their ids; the number of items of runs whose results were
    removed."""
    by_name: dict[str, list[str]] = {}
    for run in {run.id: run for runs in selected.values() for run in runs.counted}.values():
        name = name_in(run.result or {}, next(iter(selected.values())).metric)
        by_name.setdefault(name, []).append(run.id)
    items: dict[str, ItemResults] = {}
    removed: dict[str, int] = {}
    for name, runs in by_name.items():
        items |= (known := instance.items(runs, name))
        if without := [run for run in runs if run not in known]:
            removed |= instance.items_removed(without, name)
    test_sets: dict[str, tuple[TestSet, list[str]]] = {}
    for run_id, results in items.items():
        test_sets.setdefault(results.test_set.sha256, (results.test_set, []))[1].append(run_id)
    if len(test_sets) > 1:
        (first, _), (second, _), *_ = test_sets.values()
        sides = "; ".join(", ".join(sorted(runs)) for _, runs in test_sets.values())
        raise LrurunError(
            f"these runs have different test sets, and are never compared: {first.difference(second)}: {sides}",
            hint="leave some of them out: lrurun mark RUN --exclude WHY; or score them on the same items",
        )
    return items, removed


def _is_counted(selected: Mapping[str, RungRuns], items: Mapping[str, ItemResults], step: float) -> bool:
    """Whether scores change by whole steps. The metric of a training says so; runs of other kinds may have any values
    from 0 to 1 on their test items, as the overlap of two areas, under a unit of per cent."""
    if all(run.kind == "training" for runs in selected.values() for run in runs.runs):
        return True
    if items:
        return all(results.is_counted for results in items.values())
    counts = [score / step for runs in selected.values() for score in runs.scores]
    return all(abs(count - round(count)) <= _ROUNDING * max(1.0, abs(count)) for count in counts)


_ROUNDING = 1e-6
"""The relative error of a score that was computed in float32."""


def scoring_of(metric: Metric, data: Mapping[str, Any], test_items: int | None, *, selects: bool = True) -> Scoring:
    """How runs on these data are scored: chance is declared by the data, else by the task.

    The baselines of data are scores of the metric that selects the model: they are ignored unless it `selects`.
    """
    baselines = data.get("baselines", {}) if selects else {}
    chance = baselines.get(metric.naive, metric.chance)
    steps = data.get("test_labels") if metric.over == "labels" else None
    return Scoring(metric=metric, chance=chance, items=test_items, steps=steps)
