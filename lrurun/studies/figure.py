"""What the figure of a study shows, as plain numbers; `lrurun.studies.drawing` draws it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct

Scale = Literal["linear", "log"]


class Curve(Struct, frozen=True, kw_only=True):
    """Numbers over a coordinate. Closed forms are lines, simulations are points."""

    label: str
    """Curves of one label have one look in all panels; without one, the curve is not in the legend."""
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Literal["line", "dashed", "points", "thin", "grey"] = "line"
    """thin: of what oscillates; grey: a reference that the question is not about."""
    of: str = ""
    """The label of the curve whose colour and marker it has, as a simulation and its closed form."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """The ends of the band of a line, or of the bars of points; empty if there are none."""


class Picture(Struct, frozen=True, kw_only=True):
    """Colours over a plane: `z[i][j]` at (`x[j]`, `y[i]`)."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    z: tuple[tuple[float, ...], ...]
    label: str
    """Of the colours."""
    scale: Scale = "linear"


class Panel(Struct, frozen=True, kw_only=True):
    """What shares two axes: curves over a picture, or either of them."""

    x: str
    """Label of the horizontal axis, with its unit."""
    y: str
    title: str = ""
    curves: tuple[Curve, ...] = ()
    picture: Picture | None = None
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    x_ticks: tuple[tuple[float, str], ...] = ()
    y_ticks: tuple[tuple[float, str], ...] = ()
    """Places with names, instead of numbers."""
    circle: bool = False
    """Whether the plane is that of complex numbers: equal units, and the unit circle."""


class Figure(Struct, frozen=True, kw_only=True):
    """Panels, `columns` in a row."""

    panels: tuple[Panel, ...]
    columns: int = 1
    same_y: bool = False
    """Whether all panels have the same vertical axis."""


def floats(values: Iterable[Any] | np.ndarray[Any, Any]) -> tuple[float, ...]:
    """Numbers as a curve has them."""
    return tuple(map(float, values))


def line(
    label: str,
    x: Iterable[Any],
    y: Iterable[Any],
    *,
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    of: str = "",
) -> Curve:
    """A closed form, or a mean with a band from `low` to `high`."""
    return Curve(label=label, x=floats(x), y=floats(y), low=floats(low), high=floats(high), of=of)


def dashed(label: str, x: Iterable[Any], y: Iterable[Any], *, of: str = "") -> Curve:
    """A second closed form, or a limit, beside the first."""
    return Curve(label=label, x=floats(x), y=floats(y), style="dashed", of=of)


def grey(label: str, x: Iterable[Any], y: Iterable[Any]) -> Curve:
    """A reference that the question is not about."""
    return Curve(label=label, x=floats(x), y=floats(y), style="grey")


def thin(label: str, x: Iterable[Any], y: Iterable[Any]) -> Curve:
    """What oscillates."""
    return Curve(label=label, x=floats(x), y=floats(y), style="thin")


def points(
    label: str,
    x: Iterable[Any],
    y: Iterable[Any],
    *,
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    of: str = "",
) -> Curve:
    """A simulation, with bars from `low` to `high` where there are some."""
    return Curve(label=label, x=floats(x), y=floats(y), style="points", low=floats(low), high=floats(high), of=of)


def spread(label: str, samples: Mapping[float, Sequence[float]], *, percent: float = 100.0, of: str = "") -> Curve:
    """The median of the samples at each place, with bars over the middle `percent` of them: all of them by default.

    Places without samples are left out.
    """
    found, tail = {place: one for place, one in samples.items() if len(one)}, (100 - percent) / 2
    low, middle, high = ([np.percentile(one, at) for one in found.values()] for at in (tail, 50, 100 - tail))
    return points(label, found, middle, low=low, high=high, of=of)


def matrix(values: Any, label: str, *, rows: int = 0, scale: Scale = "linear") -> Picture:
    """The sizes of a matrix's entries over their indices; `rows` is 0 for square ones.

    Where `scale` is logarithmic, those below 1e-9 of the largest are shown as that.
    """
    sizes = np.abs(np.asarray(values))
    sizes = sizes.reshape(rows or math.isqrt(sizes.size), -1)
    if scale == "log":
        sizes = np.maximum(sizes, 1e-9 * sizes.max())
    z = tuple(map(floats, sizes))
    return Picture(x=floats(range(sizes.shape[1])), y=floats(range(len(z))), z=z, label=label, scale=scale)


def parameter_matrix(title: str, values: Any, names: tuple[tuple[float, str], ...]) -> Panel:
    """A square matrix over parameters, as a Hessian; `names` of their groups are at the middle of each."""
    picture = matrix(values, "|H|", scale="log")
    return Panel(title=title, x="parameter", y="parameter", picture=picture, x_ticks=names, y_ticks=names)


def log_log(x: str, y: str, curves: Iterable[Curve], *, title: str = "") -> Panel:
    """Curves over two logarithmic axes."""
    return Panel(title=title, x=x, y=y, curves=tuple(curves), x_scale="log", y_scale="log")
