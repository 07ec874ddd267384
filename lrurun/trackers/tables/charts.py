"""What the page of W&B exports of a chart: the horizontal axis, and columns `run - metric` with `__MIN` and `__MAX`.

With another axis than the step, each run has a column `run - _step`, which then has the steps. The page shows a chart
of many points by some of them, and groups of runs by their mean: only then __MIN and __MAX differ from the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from lrurun.errors import UsageError, plural
from lrurun.trackers import Curve, TrackedRun
from lrurun.trackers.tables.columns import Column, Table

_BETWEEN = " - "
_BOUNDS = ("__MIN", "__MAX")
_STEP = "_step"


def is_chart(names: Sequence[str]) -> bool:
    """Whether columns are those of a chart: all but the first are named so, and at least one has its bounds."""
    known = set(names)
    return (
        len(names) > 1
        and all(_BETWEEN in name for name in names[1:])
        and any({f"{name}{bound}" for bound in _BOUNDS} <= known for name in names[1:])
    )


def runs(table: Table, curves: Collection[str] | None) -> Iterator[TrackedRun]:
    """The runs of a chart in the order of their columns. They have no settings.

    Raises:
        UsageError: the axis has no whole numbers, and there are no columns of steps.
    """
    known = set(table.names)
    values = [
        name
        for name in table.names[1:]
        if not any(name.endswith(bound) and name.removesuffix(bound) in known for bound in _BOUNDS)
    ]
    columns = {name: column for _, block in table.blocks(table.names) for name, column in block.items()}
    means = sum(_differing(columns, name) for name in values)
    if means:
        table.notes.append(
            f"{table.place}: {plural(means, 'point')} of this chart are means, of grouped runs or of neighbouring "
            "points: export the table of runs, or the history by W&B's API, for the values themselves"
        )
    by_run: dict[str, dict[str, Column]] = {}
    for name in values:
        run, _, metric = name.rpartition(_BETWEEN)
        if not columns[name].is_numeric and not columns[name].empty.all():
            raise UsageError(f"{table.place}: {name!r} has cells that are no numbers", "export the chart again")
        by_run.setdefault(run, {})[metric] = columns[name]
    axis = table.names[0]
    return (_run(table, curves, run, metrics, axis, columns[axis]) for run, metrics in by_run.items())


def _differing(columns: dict[str, Column], name: str) -> int:
    """How many values of a column lie between other bounds than themselves."""
    value = columns[name]
    bounds = [columns[f"{name}{bound}"] for bound in _BOUNDS if f"{name}{bound}" in columns]
    differs = np.zeros(len(value.empty), bool)
    for bound in bounds:
        differs |= ~value.same(bound) & ~value.empty & ~bound.empty
    return int(differs.sum())


def _run(
    table: Table,
    curves: Collection[str] | None,
    run: str,
    metrics: dict[str, Column],
    axis: str,
    axis_cells: Column,
) -> TrackedRun:
    steps = metrics.get(_STEP, axis_cells)
    last: dict[str, float] = {}
    drawn: dict[str, Curve] = {}
    greatest: list[int] = []
    for metric, column in metrics.items():
        filled = ~column.empty & ~steps.empty
        if metric == _STEP or not filled.any():
            continue
        points = Curve(_whole(table, steps.values[filled], axis), column.values[filled].astype(np.float64))
        last[metric] = float(points.values[-1])
        greatest.append(int(max(points.steps.tolist())))
        if curves is None or metric in curves:
            drawn[metric] = points
    return TrackedRun(
        id=run,
        last=last,
        last_step=max(greatest, default=None),
        curves=drawn,
        place=table.place,
    )


def _whole(table: Table, steps: NDArray[np.float64], axis: str) -> NDArray[np.int64]:
    numbers = steps.astype(np.float64) if steps.dtype != object else np.array([np.nan])
    if not (np.isfinite(numbers) & (numbers >= 0) & (numbers == np.floor(numbers))).all():
        problem = f"{table.place}: the axis {axis!r} has other values than whole numbers, and there are no steps"
        raise UsageError(problem, "export the chart with Step as its horizontal axis")
    return numbers.astype(np.int64)
