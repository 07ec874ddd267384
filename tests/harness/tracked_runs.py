"""Runs of trackers and readings of them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from lrurun.config.imported import ImportTable
from lrurun.imported.scoring import ScoredRun
from lrurun.ledger.values import State
from lrurun.trackers import Curve, TrackedRun


def table(**fields: Any) -> ImportTable:
    """A table `[import]` with "test_acc" as the score."""
    every = {"source": ("runs.csv",), "from_": "csv", "metric": "test_acc", "direction": "max"} | fields
    return ImportTable(**every)


def curve(points: Mapping[int, float] | Sequence[tuple[int, float]]) -> Curve:
    """A curve of steps with their values, in the order in which they were recorded."""
    pairs = list(points.items()) if isinstance(points, Mapping) else list(points)
    steps, values = [step for step, _ in pairs], [value for _, value in pairs]
    return Curve(steps=np.array(steps, np.int64), values=np.array(values, np.float64))


def tracked(run: str = "a", /, *, curves: Mapping[str, Any] | None = None, **fields: Any) -> TrackedRun:
    """A run with this id, whose last values are those of its curves unless they are given."""
    made = {metric: curve(points) for metric, points in (curves or {}).items()}
    last = {metric: float(of_metric.values[-1]) for metric, of_metric in made.items()}
    reached = [max(of_metric.steps.tolist()) for of_metric in made.values()]
    every: dict[str, Any] = {"id": run, "curves": made, "last": last, "last_step": max(reached, default=None)} | fields
    return TrackedRun(**every)


def made(
    run: str,
    score: float | None = 0.5,
    /,
    *,
    seed: int | None = 0,
    val: float | None = None,
    state: State | None = None,
    step: int = 100,
    went_back: Literal["", "attempts", "writers"] = "",
    at_only_value: bool = False,
    **fields: Any,
) -> ScoredRun:
    """A scored run with this id, done with a score and missing without one unless `state` says otherwise; the fields
    are those of a tracked run."""
    return ScoredRun(
        run=TrackedRun(id=run, **fields),
        tracker="csv",
        seed=seed,
        state=state or ("failed" if score is None else "done"),
        result=None if score is None else {"test/acc": score} | ({} if val is None else {"val/acc": val}),
        step=step,
        choice=val,
        went_back=went_back,
        at_only_value=at_only_value,
    )
