"""Tuning: the runs of each rung, and the choice of learning rates and other values by their validation scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median_low, stdev
from typing import Any

from msgspec import Struct

from lrurun import floats
from lrurun.config import tuning_grid
from lrurun.config.planning import Plan, fits, planned_run
from lrurun.config.recipe import Range, Tried
from lrurun.config.resolve import ResolvedRung, full, with_point
from lrurun.config.runs import PlannedRun
from lrurun.config.search import proposed_points
from lrurun.config.settings import combinations

Results = Sequence["dict[str, float] | None"]
"""The metrics of tuning runs, in the order of the runs; None for a run without a result."""

TUNING_GRID = "the tuning grid"
EXTENDED_GRID = "the tuning grid, extended beyond its edge"
"""The sources of the values of tuning runs."""


def tuning_runs(plan: Plan, rungs: Iterable[ResolvedRung]) -> list[PlannedRun]:
    """The tuning runs of rungs that need no earlier results, see `tuning_of`."""
    return [run for rung in rungs for run in tuning_of(plan, rung, ())]


def tuning_of(plan: Plan, rung: ResolvedRung, results: Results) -> list[PlannedRun]:
    """The tuning runs of a rung: all of a grid, with the values that the results add to it; for a search, as many as
    follow from the earlier results.

    The seeds of a point are side by side. A rung that tries nothing has none. A search may propose a point twice,
    with the same runs.

    Raises:
        LrurunError: a search without Optuna.
    """
    source = TUNING_GRID if plan.search is None else f"the tuning: {plan.search.text}"
    points, count = _points(plan, rung, results), len(_points(plan, rung, ()))
    rungs = [
        with_point(rung, point, source if k < count or plan.search else EXTENDED_GRID, plan.recipe)
        for k, point in enumerate(points)
    ]
    return [planned_run(plan, tuned, "tune", seed, k) for k, tuned in enumerate(rungs) for seed in plan.tuning_seeds]


def budget(plan: Plan, rung: ResolvedRung) -> int:
    """The number of tuning runs that a rung has at least when its tuning is complete, see `most_added`."""
    points = plan.search.trials if plan.search is not None and rung.grid else len(_points(plan, rung, ()))
    return points * len(plan.tuning_seeds)


def most_added(plan: Plan, rung: ResolvedRung) -> int:
    """The largest number of tuning runs that follow the grid of a rung, with values beyond its edges."""
    return plan.extend * len(plan.tuning_seeds) if tuning_grid.extensible(rung.grid) else 0


def added_points(plan: Plan, rung: ResolvedRung, results: Results) -> list[dict[str, Any]]:
    """The points that the results of a rung's tuning runs add to its grid, in their order."""
    return [] if plan.search is not None else _points(plan, rung, results)[len(_points(plan, rung, ())) :]


def _points(plan: Plan, rung: ResolvedRung, results: Results) -> list[dict[str, Any]]:
    if not rung.grid:
        return []
    if plan.search is None:
        grid = combinations({path: tuning_grid.examples(tried) for path, tried in rung.grid.items()})
        return _extended(plan, rung, grid, results)
    seeds = len(plan.tuning_seeds)
    scores = [trial.mean if trial.scores and trial.count == seeds else None for trial in _point_scores(plan, results)]
    return proposed_points(plan.search, rung.grid, full(rung.config), scores)


def _extended(plan: Plan, rung: ResolvedRung, grid: list[dict[str, Any]], results: Results) -> list[dict[str, Any]]:
    """The points of a grid with those that follow: each from the results of all points before it."""
    points, scored = list(grid), _point_scores(plan, results)
    for _ in range(plan.extend):
        if len(scored) < len(points):
            break
        chosen = _choice(rung, points, scored[: len(points)])
        point = None if chosen is None else _beyond(plan, rung, chosen, points)
        if point is None:
            break
        points.append(point)
    return points


def _beyond(
    plan: Plan, rung: ResolvedRung, chosen: dict[str, Any], points: Sequence[dict[str, Any]]
) -> dict[str, Any] | None:
    """The point beyond a chosen one: the first setting that is at an edge of its values has the next value, the others
    stay. None if none is at an edge, or none has a next value that is valid."""
    defaults = full(rung.config)
    for path in tuning_grid.extensible(rung.grid):
        values = {point[path] for point in points}
        if not tuning_grid.is_edge(chosen[path], list(values)):
            continue
        whole = not isinstance(defaults.get(path), float) and all(isinstance(value, int) for value in values)
        value = tuning_grid.next_value(chosen[path], values, whole=whole)
        if value is not None and fits(plan, rung, point := chosen | {path: value}):
            return point
    return None


class _PointScores(Struct, frozen=True):
    """The scores and losses of the tuning runs of a point."""

    scores: list[float]
    """Scores of the seeds with a finite score and loss; more is better."""
    losses: list[float]
    """Losses of the same seeds."""
    lost: list[float]
    """The score of chance for each of the other seeds, if it is known."""

    @property
    def mean(self) -> float:
        return floats.mean(self.scores + self.lost)

    @property
    def count(self) -> int:
        """The number of seeds in the mean."""
        return len(self.scores) + len(self.lost)


def _point_scores(plan: Plan, results: Results) -> list[_PointScores]:
    """The scores of each point, from the results of all its seeds."""
    metric, seeds = plan.task.metric, len(plan.tuning_seeds)
    points = []
    for first in range(0, len(results), seeds):
        known = [result for result in results[first : first + seeds] if result is not None]
        # a program need not record a loss, which decides between equal scores
        pairs = [(metric.oriented(result.get(f"val/{metric.name}", math.nan)), _loss(plan, result)) for result in known]
        finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
        lost = [] if metric.chance is None else [metric.oriented(metric.chance)] * (seeds - len(finite))
        points.append(_PointScores([score for score, _ in finite], [loss for _, loss in finite], lost))
    return points


def _loss(plan: Plan, result: dict[str, float]) -> float:
    """The validation loss of a tuning run; 0 where a program has not measured it."""
    loss = result.get("val/loss", 0.0)
    return 0.0 if plan.kind == "program" and not math.isfinite(loss) else loss


def choose_point(plan: Plan, rung: ResolvedRung, results: Results) -> dict[str, Any] | None:
    """The point that the validation scores of a rung's tuning runs choose; None if no score is finite.

    `results` are in the order of `tuning_of`. A seed that diverged or failed, or whose score is not finite, scores
    chance. Where chance is not known, a point with fewer finite seeds is worse. The best point has the best mean score;
    between equal means, the lower mean loss decides, then the order of the points. With a single seed, the best point
    is chosen.

    With n seeds, a point ties with the best one if its mean is worse by at most sqrt(2 / n) s, where s is the standard
    deviation of the best point's scores: one standard error of a difference of two means with that spread. The spread
    of the other point does not count, because with it a point with one bad seed would always tie. Of the points that
    tie, the middle is chosen, see `_middle`.
    """
    return _choice(rung, _points(plan, rung, results), _point_scores(plan, results))


def _choice(
    rung: ResolvedRung, points: Sequence[dict[str, Any]], scored: Sequence[_PointScores]
) -> dict[str, Any] | None:
    """The point that the scores of these points choose, see `choose_point`."""
    most = max((point.count for point in scored if point.scores), default=0)
    if not most:
        return None
    ranked = sorted(
        (k for k, point in enumerate(scored) if point.scores and point.count == most),
        key=lambda k: (-scored[k].mean, floats.mean(scored[k].losses)),
    )
    best = scored[ranked[0]]
    if len(best.scores) == 1:
        return points[ranked[0]]
    least = best.mean - math.sqrt(2 / most) * stdev(best.scores)
    return _middle(rung.grid, points, [points[k] for k in ranked if scored[k].mean >= least])


def _middle(grid: dict[str, Tried], points: Sequence[dict[str, Any]], tied: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The middle of the points that tie, which are in the order of their scores.

    For each path, the tried values are ranked: numbers by size, others as they are listed. The middle is the lower
    median of the ranks of the points that tie. The nearest point to it is chosen, by the sum of the distances in rank
    over all paths; among equally near points, the first. In a grid of one path this is the middle of the values that
    tie, or the lower of two.
    """
    orders = [_order(tried, [point[path] for point in points]) for path, tried in grid.items()]
    ranks = [[order.index(point[path]) for path, order in zip(grid, orders, strict=True)] for point in tied]
    middle = [median_low(column) for column in zip(*ranks, strict=True)]
    distances = [sum(abs(a - b) for a, b in zip(rank, middle, strict=True)) for rank in ranks]
    return tied[distances.index(min(distances))]


def _order(tried: Tried, values: list[Any]) -> list[Any]:
    """The values of a path in the order of their ranks; `values` are those of the points, which may be more than a grid
    lists."""
    listed = values if isinstance(tried, Range) else [*tried, *(value for value in values if value not in tried)]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in listed)
    return sorted(listed) if numbers else listed
