"""The learning rate of every step, for all parameters and for those of recurrences, as figures have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lrurun.config.phases import phases
from lrurun.config.schedules import learning_rates
from lrurun.config.schema import RunConfig
from lrurun.config.wording import estimates_rate
from lrurun.errors import UsageError
from lrurun.report.figures.figures import Curve, Figure, Panel, Scale, Style

if TYPE_CHECKING:
    from lrurun.ledger.values import Run

POINTS = 400
"""Steps of a curve that are drawn, beside those where its parts begin."""
_FAR = 20.0
"""Peaks that differ by more have a logarithmic axis: the smaller rates would be lines at 0."""
_LOWEST = 1e-3
"""On a logarithmic axis, the smallest rate that is drawn, as a share of the smallest peak."""
_NAMES = 2
"""Rungs of one curve that a legend names."""

Config = RunConfig[Any, Any]
Line = tuple[str, Config]
"""A name, and the settings of its runs."""


def lines(rungs: Mapping[str, Sequence[Run]], names: Mapping[str, str]) -> list[Line]:
    """The configurations that differ in their rates, each with its name in the legend.

    It is the rung; where the runs of a rung differ, with the peak; and where this is not enough, that of the run.

    Args:
        rungs: rung -> its runs.
        names: run -> its name in a legend.

    Raises:
        UsageError: a run is not a training by lrurun.
    """
    found: list[Line] = []
    for rung, runs in rungs.items():
        trainings: dict[tuple[object, ...], tuple[Run, Config]] = {}
        for run in runs:
            config = _training(run)
            trainings.setdefault(_key(config), (run, config))
        peaks = {config.optim.lr for _, config in trainings.values()}
        for run, config in trainings.values():
            name = rung if len(trainings) == 1 else f"{rung}, lr = {config.optim.lr:g}"
            found.append((name if len(trainings) in (1, len(peaks)) else names[run.id], config))
    return found


def _training(run: Run) -> Config:
    if isinstance(run.config, RunConfig):
        return run.config
    if run.kind == "program":
        why = "executed a program, and lrurun does not know the learning rates of its steps"
    else:
        why = f"is a run of {run.task}, which has no schedule of the learning rate"
    raise UsageError(f"rates: run {run.id} {why}", "draw curves instead")


def _key(config: Config) -> tuple[object, ...]:
    """What the rates of a run follow from."""
    optim = config.optim
    rates = learning_rates(optim, config.train.steps)
    return rates.tobytes(), optim.recurrent_factor, estimates_rate(optim)


def figure(lines: Sequence[Line], *, title: str, sentences: Iterable[str] = ()) -> Figure:
    """The rates of these configurations over their steps, with a panel for each group of parameters."""
    shared: dict[tuple[object, ...], tuple[list[str], Config]] = {}
    for name, config in lines:
        shared.setdefault(_key(config), ([], config))[0].append(name)
    labels = {_label(names): (names, config) for names, config in shared.values()}
    configs = {label: config for label, (_, config) in labels.items()}
    factors = {config.optim.recurrent_factor for config in configs.values()}
    groups = {"": False} if factors == {1.0} else {"all but the recurrent group": False, "recurrent group": True}
    peaks = [_peak(config, recurrent=recurrent) for config in configs.values() for recurrent in groups.values()]
    scale: Scale = "log" if max(peaks) > _FAR * min(peaks) else "linear"
    lowest = _LOWEST * min(peaks)
    panels = [
        Panel(
            title=group,
            x="step",
            y=_axis(configs.values()),
            y_scale=scale,
            curves=(
                *(_curve(label, config, recurrent, scale, lowest) for label, config in configs.items()),
                *_marks(configs.values(), recurrent),
            ),
        )
        for group, recurrent in groups.items()
    ]
    remarks = [*sentences]
    if len(groups) > 1:
        remarks.append("The recurrent group trains at optim.recurrent_factor times the rate of the other parameters.")
    remarks += [f"{label}: {', '.join(names)}." for label, (names, _) in labels.items() if len(names) > _NAMES]
    if scale == "log":
        remarks.append(f"Rates below {lowest:.1g} are not drawn.")
    if any(estimates_rate(config.optim) for config in configs.values()):
        names = {config.optim.name for config in configs.values() if estimates_rate(config.optim)}
        remarks.append(f"Of {' and '.join(sorted(names))}: the factor of the learning rate that it estimates.")
    return Figure(panels=tuple(panels), same_x=True, same_y=True, title=title, caption=" ".join(remarks))


def _label(names: Sequence[str]) -> str:
    if len(names) <= _NAMES:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} others"


def _axis(configs: Iterable[Config]) -> str:
    """The label of the rates, some or all of which may multiply an estimate."""
    kinds = {estimates_rate(config.optim) for config in configs}
    if kinds == {True}:
        return "factor of the learning rate"
    return "learning rate, or its factor" if True in kinds else "learning rate"


def _factor(config: Config, *, recurrent: bool) -> float:
    """What the rates of the schedule are multiplied by in a group of parameters."""
    return float(config.optim.recurrent_factor) if recurrent else 1.0


def _peak(config: Config, *, recurrent: bool) -> float:
    return _factor(config, recurrent=recurrent) * float(config.optim.lr)


def _curve(label: str, config: Config, recurrent: bool, scale: Scale, lowest: float) -> Curve:
    optim, steps = config.optim, config.train.steps
    rates = learning_rates(optim, steps).astype(np.float64) * _factor(config, recurrent=recurrent)
    if scale == "log":
        rates = np.where(rates < lowest, np.nan, rates)
    parts = phases(optim, steps)
    ends = [parts.warmup, parts.warmup + 1, steps - parts.cooldown]
    at = np.concatenate([np.linspace(0, steps - 1, min(POINTS, steps)).round(), np.minimum(ends, steps - 1)])
    at = np.unique(at).astype(np.int64)
    return Curve(label=label, x=tuple(map(float, at)), y=tuple(rates[at].tolist()))


def _marks(configs: Iterable[Config], recurrent: bool) -> list[Curve]:
    """Where warm-ups end and cooldowns begin."""
    ends: list[tuple[float, float]] = []
    starts: list[tuple[float, float]] = []
    for config in configs:
        parts, peak = phases(config.optim, config.train.steps), _peak(config, recurrent=recurrent)
        if 0 < parts.warmup < parts.steps:
            ends.append((float(parts.warmup), peak))
        if parts.cooldown:
            starts.append((float(parts.steps - parts.cooldown), peak))
    marks: list[Curve] = []
    if ends:
        marks.append(_points("end of the warm-up", "rings", ends))
    if starts:
        marks.append(_points("start of the cooldown", "crosses", starts))
    return marks


def _points(label: str, style: Style, places: Sequence[tuple[float, float]]) -> Curve:
    x, y = zip(*dict.fromkeys(places), strict=True)
    return Curve(label=label, x=x, y=y, style=style, grey=True)
