"""Curves as figures, pages and the browser have them: means over the seeds of a rung in a band, and fewer points for a
screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from lrurun import floats
from lrurun.report.figures.figures import Curve, Panel, suited

if TYPE_CHECKING:
    from lrurun.judging.rung_runs import RungRuns
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run

Recorded = Mapping[str, Sequence[tuple[int, float]]]
"""The curves of a run: metric -> (step, value)."""

BAND = "Line: mean over n finished seeds; band: ± standard error."
LOGARITHMIC = ("train/loss", "norm/", "gradient/", "effective_step/")
"""How metrics on a logarithmic axis begin."""
NORM = "norm/layer"
"""A metric's name before the number of the layer, counted from 0."""
NORM_AXIS = "mean state norm"
NORMS = (
    "Mean norm of the recurrent state over the positions of one batch of the validation split, layer by layer; of "
    "bidirectional layers, of the forward direction."
)


def recorded(ledger: Ledger, rungs: Mapping[str, RungRuns], metrics: Iterable[str]) -> dict[str, list[Recorded]]:
    """Rung -> the curves of each of its finished seeds."""
    by_run: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for curve in ledger.curves([run.id for runs in rungs.values() for run in runs.counted], list(metrics)):
        by_run.setdefault(curve.run, {})[curve.key] = list(zip(curve.steps, curve.values, strict=True))
    return {rung: [by_run.get(run.id, {}) for run in runs.counted] for rung, runs in rungs.items()}


def names_of(runs: Sequence[Run]) -> dict[str, str]:
    """Id -> the name of each run beside the others in a legend: its rung and seed, after its instance where they are of
    several, and before its id where that is not enough."""
    instances = {run.memberships[0].instance for run in runs if run.memberships}

    def name(run: Run) -> str:
        first = run.memberships[0] if run.memberships else None
        rung = run.task if first is None else first.rung + (" (tune)" if first.stage == "tune" else "")
        instance = "" if first is None or len(instances) < 2 else f"{first.instance}: "
        return f"{instance}{rung}, seed {run.seed}"

    names = {run.id: name(run) for run in runs}
    every = list(names.values())
    return {run: text if every.count(text) == 1 else f"{text} ({run})" for run, text in names.items()}


def with_count(rung: str, seeds: int) -> str:
    """The label of the mean curve of a rung."""
    return f"{rung} (n={seeds})"


def of_rungs(seeds: Mapping[str, Sequence[Recorded]], axes: Mapping[str, tuple[str, float]]) -> list[Panel]:
    """The mean curves of rungs, with a panel for each metric.

    Args:
        seeds: rung -> the curves of each seed.
        axes: as in `panels`.
    """
    return panels({with_count(rung, len(runs)): runs for rung, runs in seeds.items()}, axes)


def norms(title: str, seeds: Sequence[Recorded]) -> Panel:
    """The norms of the states of each layer, as means over seeds."""
    keys = set.intersection(*({key for key in seed if key.startswith(NORM)} for seed in seeds))
    layers = sorted(int(key.removeprefix(NORM)) for key in keys)
    lines = tuple(average(f"layer {k}", [seed[f"{NORM}{k}"] for seed in seeds]) for k in layers)
    return Panel(title=title, x="step", y=NORM_AXIS, curves=lines, y_scale=suited(values_of(lines)))


def average(name: str, curves: Sequence[Sequence[tuple[int, float]]]) -> Curve:
    """The mean over seeds, at the steps that all curves have, in a band of one standard error to each side."""
    tables = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    columns = [[table[step] for table in tables] for step in steps]
    means = [floats.mean(column) for column in columns]
    errors = [_stderr(column, mean) for column, mean in zip(columns, means, strict=True)] if len(tables) > 1 else []
    return Curve(
        label=name,
        style="marked",
        x=tuple(map(float, steps)),
        y=tuple(means),
        low=tuple(mean - error for mean, error in zip(means, errors, strict=False)),
        high=tuple(mean + error for mean, error in zip(means, errors, strict=False)),
    )


def _stderr(values: Sequence[float], mean: float) -> float:
    """The standard error without fractions, with which `statistics.stderr` computes: they are too slow for every point
    of many curves."""
    unit = 1.0
    if not 1e-140 < abs(mean) < 1e140:
        unit = floats.unit_of(values)
    try:
        squares = math.fsum((value / unit - mean / unit) ** 2 for value in values)
        return unit * math.sqrt(squares / (len(values) - 1) / len(values))
    except (OverflowError, ValueError):  # infinities, or squares beyond the largest number
        return math.nan


def values_of(curves: Sequence[Curve]) -> list[float]:
    """All values of curves and of their bands."""
    return [value for curve in curves for value in (*curve.y, *curve.low, *curve.high)]


def panels(seeds: Mapping[str, Sequence[Recorded]], axes: Mapping[str, tuple[str, float]]) -> list[Panel]:
    """A panel for each metric of `axes`; a name has a line in it if all of its seeds have the metric.

    Args:
        seeds: name -> metric -> curve, for each seed.
        axes: metric -> the label and the scale of its axis, as of `lrurun.judging.scores.curves_of`.
    """
    drawn = []
    for metric, (label, scale) in axes.items():
        lines = [
            average(name, [[(step, scale * value) for step, value in curves[metric]] for curves in runs])
            for name, runs in seeds.items()
            if runs and all(metric in curves for curves in runs)
        ]
        if lines:
            scale_of = suited(values_of(lines)) if metric.startswith(LOGARITHMIC) else "linear"
            drawn.append(Panel(x="step", y=label, curves=tuple(lines), y_scale=scale_of))
    return drawn


def reduced(curve: Curve, points: int) -> Curve:
    """The curve with at most so many points, as of `kept`."""
    if len(curve.x) <= points:
        return curve
    indices = kept(curve.x, curve.y, points)
    columns = {name: getattr(curve, name) for name in ("x", "y", "low", "high")}
    return structs.replace(
        curve, **{name: tuple(column[k] for k in indices) for name, column in columns.items() if column}
    )


def kept(steps: Sequence[float] | memoryview, values: Sequence[float] | memoryview, points: int) -> Sequence[int]:
    """The indices of at most `points` points of a curve, of at least 4, among them its first, last, smallest, largest.

    Steps are divided into intervals of equal length, of each of which the smallest and the largest finite value are
    kept, and the first that is not finite. Of a curve with no more points, it is all.

    Args:
        steps: increasing.
        values: of the same number; NaN and infinities are allowed.
    """
    if points < 4:
        raise ValueError(f"points: expected at least 4, found {points}")
    if len(steps) <= points:
        return range(len(steps))
    step, height = np.asarray(steps), np.asarray(values, np.float64)
    is_odd = ~np.isfinite(height)
    of_each = 3 if is_odd.any() else 2
    if points < of_each + 2:
        of_each = 2
    intervals = (points - 2) // of_each
    chosen = {0, len(step) - 1}
    edges = np.linspace(step[0], step[-1] + 1, intervals + 1)
    starts = np.searchsorted(step, edges)
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        part = height[start:end]
        finite = np.flatnonzero(~is_odd[start:end])
        if finite.size:
            chosen |= {start + int(finite[part[finite].argmin()]), start + int(finite[part[finite].argmax()])}
        if (of_each == 3 or not finite.size) and is_odd[start:end].any():
            chosen.add(start + int(is_odd[start:end].argmax()))
    return sorted(chosen)
