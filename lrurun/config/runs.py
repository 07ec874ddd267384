"""The runs that a plan needs: seeds, points of the tuning grid, and what the ledger stores about each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import fmean, median_low, stdev
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from lrurun.config import position
from lrurun.config.grid import Tried, examples
from lrurun.config.resolve import ResolvedRung, full, with_point
from lrurun.config.schema import TUNING_SEED, Config, Execution, fingerprint
from lrurun.config.search import Range, proposed
from lrurun.errors import UsageError, plural

if TYPE_CHECKING:
    from lrurun.config.plan import Plan


class PlannedRun(Struct, frozen=True, kw_only=True):
    """A run that a ladder needs, finished or not."""

    fingerprint: str
    task: str
    rung: str
    stage: str
    """"tune" or "train"."""
    seed: int
    steps: int
    config: Config
    execution: Execution
    sources: dict[str, str]
    """Dotted path -> where its value comes from."""
    position: int
    """Order within the ladder, see `lrurun.config.position`; smaller first."""


def seeds_of(text: str) -> tuple[int, ...]:
    """`3` means 0, 1, 2; `0,4,7` is a list, and so are `4,`, `0-4` (0, 1, 2, 3, 4) and `0-2,7`.

    Raises:
        UsageError: not a number, no seed, a repeated seed, or one reserved for tuning.
    """
    hint = (
        "a number of seeds, as in --seeds 3, or a list with ranges, as in --seeds 0-2,4,7; seed 0 alone is --seeds 0,"
    )
    outside = UsageError(
        f"--seeds {text}: seeds lie between 0 and {TUNING_SEED - 1}", f"those from {TUNING_SEED} on are for tuning runs"
    )
    if not re.fullmatch(r"-?[0-9]+(-[0-9]+)?(,-?[0-9]+(-[0-9]+)?)*,?", text, re.ASCII):
        raise UsageError(f"--seeds {text}: expected whole numbers", hint)
    if re.search("[0-9]{10}", text):  # Python does not convert numbers of any length
        raise outside
    if "," in text or "-" in text[1:]:
        numbers = tuple(seed for part in text.removesuffix(",").split(",") for seed in _range(part, text))
    elif int(text) < 1:
        raise UsageError(f"--seeds {text}: at least one seed is needed", hint)
    else:
        numbers = tuple(range(min(int(text), TUNING_SEED + 1)))
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"--seeds {text}: a seed is named twice", hint)
    if min(numbers) < 0 or max(numbers) >= TUNING_SEED:
        raise outside
    return numbers


def _range(part: str, text: str) -> Iterable[int]:
    """The seeds of one part of `text`: a number, or the first and the last one of a range."""
    first, hyphen, last = part.rpartition("-")
    if not hyphen or not first:
        return [int(part)]
    if int(last) < int(first):
        raise UsageError(f"--seeds {text}: the range {part} ends before it begins", f"as in --seeds {last}-{first}")
    return range(int(first), min(int(last), TUNING_SEED) + 1)


Results = Sequence["dict[str, float] | None"]
"""The metrics of tuning runs, in their order; None for one without a result."""


def tuning_runs(plan: Plan, rungs: Iterable[ResolvedRung]) -> list[PlannedRun]:
    """The tuning runs of rungs that need no results of others, see `tuning_of`."""
    return [run for rung in rungs for run in tuning_of(plan, rung, ())]


def tuning_of(plan: Plan, rung: ResolvedRung, results: Results) -> list[PlannedRun]:
    """The tuning runs of a rung: those of its grid; of a search, those that follow from the first results.

    The seeds of a point are side by side. There are none of a rung that tries nothing. A search may propose a point
    twice, which has the same runs.

    Raises:
        LrurunError: a search without Optuna.
    """
    source = "the tuning grid" if plan.search is None else f"the tuning: {plan.search.text}"
    points = _points(plan, rung, results)
    tried = [with_point(rung, point, source) for point in points]
    return [_planned(plan, one, "tune", seed, k) for k, one in enumerate(tried) for seed in plan.tuning_seeds]


def budget(plan: Plan, rung: ResolvedRung) -> int:
    """The number of tuning runs of a rung, in the end."""
    points = plan.search.trials if plan.search is not None and rung.grid else len(_points(plan, rung, ()))
    return points * len(plan.tuning_seeds)


def _points(plan: Plan, rung: ResolvedRung, results: Results) -> list[dict[str, Any]]:
    if not rung.grid:
        return []
    if plan.search is None:
        return grid_points({path: examples(tried) for path, tried in rung.grid.items()})
    seeds = len(plan.tuning_seeds)
    scores = [trial.mean if trial.scores and trial.count == seeds else None for trial in _trained(plan, results)]
    return proposed(plan.search, rung.grid, full(rung.config), scores)


class _Trained(Struct, frozen=True):
    """What the tuning runs of a point have shown."""

    scores: list[float]
    """Of the seeds with a finite score and loss; more is better."""
    losses: list[float]
    """Of the same seeds."""
    lost: list[float]
    """Of the other seeds: the score of chance, if it is known."""

    @property
    def mean(self) -> float:
        return fmean(self.scores + self.lost)

    @property
    def count(self) -> int:
        """Seeds that the mean is over."""
        return len(self.scores) + len(self.lost)


def _trained(plan: Plan, results: Results) -> list[_Trained]:
    """The points, one for the results of all its seeds."""
    metric, seeds = plan.task.metric, len(plan.tuning_seeds)
    found = []
    for first in range(0, len(results), seeds):
        known = [result for result in results[first : first + seeds] if result is not None]
        pairs = [(metric.oriented(result[f"val/{metric.name}"]), result["val/loss"]) for result in known]
        finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
        lost = [] if metric.chance is None else [metric.oriented(metric.chance)] * (seeds - len(finite))
        found.append(_Trained([score for score, _ in finite], [loss for _, loss in finite], lost))
    return found


def final_runs(
    plan: Plan, rung: ResolvedRung, seeds: Iterable[int], point: dict[str, Any] | None = None
) -> list[PlannedRun]:
    """The final runs of a rung; `point` holds the tuned values."""
    how = f"tuned on validation with {plural(len(plan.tuning_seeds), 'seed')}"
    tuned = rung if point is None else with_point(rung, point, how)
    return [_planned(plan, tuned, "train", seed, seed) for seed in seeds]


def choose_point(plan: Plan, rung: ResolvedRung, results: Results) -> dict[str, Any] | None:
    """The point that the validation scores of a rung's tuning runs choose; None if no score is finite.

    `results` are in the order of `tuning_of`. A seed that diverged or failed scores chance. Where chance is not known,
    a point with fewer finite seeds is worse. The best point has the best mean score; of equal means it has the lower
    mean loss, then it comes first. With one seed it is chosen.

    With n seeds, a point ties with the best one if its mean is worse by at most sqrt(2 / n) s, where s is the standard
    deviation of the best point's scores: one standard error of a difference of two means with that spread. The spread
    of the other point does not count, because with it a point with one bad seed would always tie. Of the points that
    tie, the middle is chosen, see `_middle`.
    """
    trained = _trained(plan, results)
    most = max((one.count for one in trained if one.scores), default=0)
    if not most:
        return None
    points = _points(plan, rung, results)
    ranked = sorted(
        (k for k, one in enumerate(trained) if one.scores and one.count == most),
        key=lambda k: (-trained[k].mean, fmean(trained[k].losses)),
    )
    best = trained[ranked[0]]
    if len(best.scores) == 1:
        return points[ranked[0]]
    least = best.mean - math.sqrt(2 / most) * stdev(best.scores)
    return _middle(rung.grid, points, [points[k] for k in ranked if trained[k].mean >= least])


def _middle(grid: dict[str, Tried], points: Sequence[dict[str, Any]], tied: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The middle of the points that tie, which are in the order of their scores.

    For each path, the values that were tried are ranked, numbers by size, others as they are listed. In the middle is
    the lower median of the ranks of the points that tie. Chosen is the point that is nearest to it, by the sum of the
    distances in rank over all paths; of equally near ones the first. In a grid of one path this is the middle of the
    values that tie, or the lower one of two.
    """
    orders = [_order(tried, [point[path] for point in points]) for path, tried in grid.items()]
    ranks = [[order.index(point[path]) for path, order in zip(grid, orders, strict=True)] for point in tied]
    middle = [median_low(column) for column in zip(*ranks, strict=True)]
    distances = [sum(abs(a - b) for a, b in zip(one, middle, strict=True)) for one in ranks]
    return tied[distances.index(min(distances))]


def _order(tried: Tried, values: list[Any]) -> list[Any]:
    """The values of a path in the order of their ranks; `values` are those that points of a search have tried."""
    listed = values if isinstance(tried, Range) else tried
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in listed)
    return sorted(listed) if numbers else listed


def grid_points(grid: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values, the first path slowest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def _planned(plan: Plan, rung: ResolvedRung, stage: Literal["tune", "train"], seed: int, number: int) -> PlannedRun:
    config = msgspec.structs.replace(rung.config, seed=seed)  # a checked int: nothing else changes
    index = [one.name for one in plan.rungs].index(rung.name)
    return PlannedRun(
        fingerprint=fingerprint(config),
        task=config.task,
        rung=rung.name,
        stage=stage,
        seed=seed,
        steps=config.train.steps,
        config=config,
        execution=rung.execution,
        sources={**rung.sources, "seed": "the seeds of tuning runs" if stage == "tune" else "the ladder's seeds"},
        position=position.pack(index, stage, number),
    )
