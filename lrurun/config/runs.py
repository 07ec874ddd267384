"""The runs that a plan needs: seeds, points of the tuning grid, and what the ledger stores about each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from lrurun.config import position
from lrurun.config.grid import examples
from lrurun.config.resolve import ResolvedRung, full, with_point
from lrurun.config.schema import TUNING_SEED, fingerprint
from lrurun.config.search import proposed
from lrurun.errors import UsageError

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
    config: dict[str, Any]
    execution: dict[str, Any]
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
        f"--seeds {text}: seeds lie between 0 and {TUNING_SEED - 1}", f"{TUNING_SEED} is the seed of tuning runs"
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
    """The tuning runs of a rung, one seed: those of its grid; of a search, those that follow from the first results.

    None of a rung that tries nothing. A search may propose a point twice, which is one run.

    Raises:
        LrurunError: a search without Optuna.
    """
    source = "the tuning grid" if plan.search is None else f"the tuning: {plan.search.text}"
    points = _points(plan, rung, results)
    return [_planned(plan, with_point(rung, point, source), "tune", TUNING_SEED, k) for k, point in enumerate(points)]


def budget(plan: Plan, rung: ResolvedRung) -> int:
    """The number of tuning runs of a rung, in the end."""
    if plan.search is not None and rung.grid:
        return plan.search.trials
    return len(_points(plan, rung, ()))


def _points(plan: Plan, rung: ResolvedRung, results: Results) -> list[dict[str, Any]]:
    if not rung.grid:
        return []
    if plan.search is None:
        return grid_points({path: examples(tried) for path, tried in rung.grid.items()})
    scores = [None if rank is None else rank[0] for rank in map(partial(_rank, plan), results)]
    return proposed(plan.search, rung.grid, full(rung.config), scores)


def _rank(plan: Plan, result: dict[str, float] | None) -> tuple[float, float] | None:
    """What tuning chooses by: the score, more is better, then the negated loss; None unless both are finite."""
    metric = plan.task.metric
    if result is None or not math.isfinite(result["val/loss"]) or not math.isfinite(result[f"val/{metric.name}"]):
        return None
    return metric.oriented(result[f"val/{metric.name}"]), -result["val/loss"]


def final_runs(
    plan: Plan, rung: ResolvedRung, seeds: Iterable[int], point: dict[str, Any] | None = None
) -> list[PlannedRun]:
    """The final runs of a rung; `point` holds the tuned values."""
    tuned = rung if point is None else with_point(rung, point, "tuned on validation")
    return [_planned(plan, tuned, "train", seed, seed) for seed in seeds]


def choose_point(plan: Plan, rung: ResolvedRung, results: Results) -> dict[str, Any] | None:
    """The point with the best validation score among the rung's tuning runs; None where none has a result.

    `results` are in the order of `tuning_of`. Of two equal scores the lower loss wins,
    then the earlier point. A point whose loss or score is not finite is never chosen.
    """
    ranks = [(*rank, -k) for k, result in enumerate(results) if (rank := _rank(plan, result)) is not None]
    return _points(plan, rung, results)[-max(ranks)[-1]] if ranks else None


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
        config=msgspec.to_builtins(config),
        execution=msgspec.to_builtins(rung.execution),
        sources={**rung.sources, "seed": "the seed of tuning runs" if stage == "tune" else "the ladder's seeds"},
        position=position.pack(index, stage, number),
    )
