"""What a figure shows, as plain numbers: panels of curves, points and pictures.

`figure_files` draws it, pages draw its curves and eigenvalues themselves.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import numpy as np
from msgspec import Struct, structs

Scale = Literal["linear", "log"]

Style = Literal["line", "marked", "dashed", "thin", "points", "rings", "crosses", "better", "worse", "open"]


class Curve(Struct, frozen=True, kw_only=True):
    """Numbers over a coordinate."""

    label: str
    """Curves of one label have one style in all panels; without one, the curve is not in the legend."""
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Style = "line"
    """marked: a line with some markers, for many lines; thin: of what oscillates, and of single seeds; better, worse,
    open: points of differences that are decided, and of those that are not."""
    family: str = ""
    """The label of the curve whose colour and marker it shares, as a simulation and its closed form do."""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """The ends of the band of a line, or of the bars of points; empty if there are none."""
    diameters: tuple[float, ...] = ()
    """The diameters of points, as shares of the height of the panel; empty if all have the usual one."""
    sideways: bool = False
    """Whether the bars are along the horizontal axis."""
    grey: bool = False
    """Whether the curve is a reference that the question is not about."""
    lane: float = 0.0
    """Of points in rows: how much of the vertical axis below each they may take, so that none covers another; 0: they
    are where they are."""


class Picture(Struct, frozen=True, kw_only=True):
    """Colours over a plane: `z[i][j]` at (`x[j]`, `y[i]`); NaN has none."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    z: tuple[tuple[float, ...], ...]
    label: str = ""
    """The label of the colours: pictures of one label have one scale. Without a label, they are two: from worse (-1)
    over white (0) to better (1)."""
    scale: Scale = "linear"
    levels: int = 0
    """Of an image of classes: their number. It is drawn in levels of gray, white for class 0, without axes."""


class Panel(Struct, frozen=True, kw_only=True):
    """Curves over a picture, or either of them, on two axes."""

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
    square: bool = False
    """Whether it is as high as it is wide."""
    circles: tuple[tuple[float, float], ...] = ()
    """The middles of unit circles in a plane of complex numbers, whose units are equal. Several have no axes."""
    texts: tuple[tuple[float, float, str], ...] = ()
    """Texts at positions."""
    short_texts: tuple[str, ...] = ()
    """What stands in place of `texts` where these do not fit the cells of a picture; empty if they always do."""
    notes: tuple[tuple[float, str], ...] = ()
    """Texts at the right of the panel, at places of the vertical axis."""
    is_beside: bool = False
    """Whether it has another one beside it in a column, so that labels have little room."""
    zero: bool = False
    """Whether it has a line at 0 of the horizontal axis."""


class Figure(Struct, frozen=True, kw_only=True):
    """Panels with a title above and a caption below them."""

    panels: tuple[Panel, ...]
    columns: int = 1
    """Panels in a row of a figure as wide as a column. One as wide as a page has twice as many in a row."""
    same_x: bool = False
    same_y: bool | Literal["row"] = False
    """Whether all panels, or all in a row, have the same horizontal and the same vertical axis."""
    title: str = ""
    caption: str = ""
    mathematics: bool = False
    """Whether the texts of panels have mathematics between dollar signs, as Matplotlib reads it. It is only for texts
    of our own: a dollar sign in a name from a file is a dollar sign."""

    def without_texts(self) -> Figure:
        """The figure without title and caption, for a paper that has its own."""
        return structs.replace(self, title="", caption="")


_LIMITS: Mapping[Scale, tuple[float, float]] = {"linear": (1e-100, 1e100), "log": (1e-250, 1e250)}
"""Matplotlib multiplies what is on an axis: numbers beyond these are drawn in a unit of a power of ten."""


def in_powers_of_ten(figure: Figure) -> Figure:
    """The figure with axes of numbers that Matplotlib can place; their labels name the powers of ten."""
    panels = list(figure.panels)
    for axis, is_shared in (("x", figure.same_x), ("y", bool(figure.same_y))):
        groups = [range(len(panels))] if is_shared else [[k] for k in range(len(panels))]
        for group in groups:
            numbers = [number for k in group for number in _on_axis(panels[k], axis)]
            largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
            low, high = _LIMITS[getattr(panels[group[0]], f"{axis}_scale")]
            if largest == 0 or low <= largest <= high:
                continue
            exponent = Decimal(largest).adjusted()
            for k in group:
                panels[k] = _times_power(panels[k], axis, -exponent)
    return structs.replace(figure, panels=tuple(panels))


def _on_axis(panel: Panel, axis: str) -> Iterator[float]:
    """The numbers of curves on an axis; none where it has names or belongs to a picture."""
    if panel.picture is None and not getattr(panel, f"{axis}_ticks"):
        for curve in panel.curves:
            for name in _names_on(curve, axis):
                yield from getattr(curve, name)


def _names_on(curve: Curve, axis: str) -> tuple[str, ...]:
    return (axis, "low", "high") if curve.sideways == (axis == "x") else (axis,)


def _times_power(panel: Panel, axis: str, exponent: int) -> Panel:
    """The panel with the numbers of an axis times 10^`exponent`; an end of a band or bar that overflows is at the
    largest number."""
    largest = sys.float_info.max

    def scaled(number: float) -> float:
        return float(Decimal(number).scaleb(exponent)) if math.isfinite(number) else number

    def end(number: float) -> float:
        return scaled(math.copysign(largest, number) if math.isinf(number) else number)

    curves = [
        structs.replace(
            curve,
            **{
                name: tuple(map(scaled if name == axis else end, getattr(curve, name)))
                for name in _names_on(curve, axis)
            },
        )
        for curve in panel.curves
    ]
    label = f"{getattr(panel, axis)}, in 1e{-exponent:+}"
    return structs.replace(panel, curves=tuple(curves), **{axis: label})


def greek(text: str) -> str:
    """A name that other outputs share, with its Greek letters as mathematics."""
    return re.sub("([α-ω])", r"$\1$", text)


def suited(values: Iterable[float]) -> Scale:
    """Logarithmic, if the values are positive and the largest is at least five times the smallest."""
    finite = [value for value in values if math.isfinite(value)]
    return "log" if finite and min(finite) > 0 and max(finite) / min(finite) >= 5 else "linear"


def floats(values: Iterable[Any] | np.ndarray[Any, Any]) -> tuple[float, ...]:
    """Numbers as a curve has them."""
    return tuple(map(float, values.tolist() if isinstance(values, np.ndarray) else values))


def line(
    label: str,
    x: Iterable[Any],
    y: Iterable[Any],
    *,
    style: Style = "line",
    low: Sequence[float] = (),
    high: Sequence[float] = (),
    family: str = "",
    grey: bool = False,
) -> Curve:
    """A closed form, or a mean with a band from `low` to `high`."""
    low, high = floats(low), floats(high)
    return Curve(label=label, x=floats(x), y=floats(y), style=style, low=low, high=high, family=family, grey=grey)


points = partial(line, style="points")
"""A simulation, with bars from `low` to `high` where there are some."""
dashed = partial(line, style="dashed")
"""A second closed form, or a limit, beside the first."""
grey = partial(dashed, grey=True)
"""A reference that the question is not about."""
thin = partial(line, style="thin")
"""A thin line, for a curve that oscillates."""


def spread(label: str, samples: Mapping[float, Sequence[float]], *, percent: float = 100.0, family: str = "") -> Curve:
    """The median of the samples at each x, with bars over the middle `percent` of them: all of them by default.

    An x without samples is left out.
    """
    present, tail = {x: sample for x, sample in samples.items() if len(sample)}, (100 - percent) / 2
    low, middle, high = (
        [np.percentile(sample, percentile) for sample in present.values()] for percentile in (tail, 50, 100 - tail)
    )
    return points(label, present, middle, low=low, high=high, family=family)


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
    picture = matrix(values, "$|H|$", scale="log")
    return Panel(title=title, x="parameter", y="parameter", picture=picture, x_ticks=names, y_ticks=names)


def log_log(x: str, y: str, curves: Iterable[Curve], *, title: str = "") -> Panel:
    """Curves over two logarithmic axes."""
    return Panel(title=title, x=x, y=y, curves=tuple(curves), x_scale="log", y_scale="log")


# Eigenvalues

REAL, IMAGINARY = "Re $λ$", "Im $λ$"
"""The labels of the axes of a plane of eigenvalues."""
MOST_PLANES = 24
"""More spectra share one pair of axes: Matplotlib would need minutes for hundreds of them."""


def spectrum(title: str, initial: Iterable[complex], trained: Iterable[complex]) -> Panel:
    """Eigenvalues in the plane, with the unit circle."""
    moments: tuple[tuple[str, Style, tuple[complex, ...]], ...] = (
        ("at initialisation", "rings", tuple(initial)),
        ("after training", "crosses", tuple(trained)),
    )
    curves = tuple(
        Curve(label=label, style=style, x=tuple(z.real for z in values), y=tuple(z.imag for z in values))
        for label, style, values in moments
        if values
    )
    return Panel(title=title, x=REAL, y=IMAGINARY, curves=curves, circles=((0.0, 0.0),))


def spectra(panels: Sequence[Panel], *, title: str, caption: str) -> Figure:
    """The eigenvalues of several recurrences on one scale."""
    if len(panels) > MOST_PLANES:
        return Figure(panels=(_together(panels),), title=title, caption=caption)
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    return Figure(
        panels=tuple(panels), columns=columns, same_x=True, same_y=True, title=title, caption=caption, mathematics=True
    )


def _together(panels: Sequence[Panel]) -> Panel:
    """Spectra side by side in one panel, three in a row, each around its own circle and under its own name."""
    size = 2.1 * edge(panels)
    middles = [(size * (k % 3), -1.15 * size * (k // 3)) for k in range(len(panels))]
    moved: dict[str, list[Curve]] = {}
    for panel, (right, up) in zip(panels, middles, strict=True):
        for curve in panel.curves:
            x, y = tuple(right + x for x in curve.x), tuple(up + y for y in curve.y)
            moved.setdefault(curve.label, []).append(structs.replace(curve, x=x, y=y))
    curves = tuple(
        structs.replace(group[0], x=sum((curve.x for curve in group), ()), y=sum((curve.y for curve in group), ()))
        for group in moved.values()
    )
    names = zip(middles, panels, strict=True)
    texts = tuple((right, up + 0.55 * size, panel.title) for (right, up), panel in names)
    return Panel(x="", y="", curves=curves, circles=tuple(middles), texts=texts)


def edge(panels: Sequence[Panel]) -> float:
    """The largest coordinate of planes, with a margin."""
    sizes = (abs(value) for panel in panels for curve in panel.curves for value in (*curve.x, *curve.y))
    return 1.08 * max([1.0, *filter(math.isfinite, sizes)])


def not_finite(panels: Sequence[Panel]) -> list[str]:
    """A sentence on what cannot be drawn of planes, if anything."""
    lost = [
        panel.title
        for panel in panels
        if not all(math.isfinite(value) for curve in panel.curves for value in (*curve.x, *curve.y))
    ]
    return [f"Not drawn, because not finite: some eigenvalues of {', '.join(lost)}."] if lost else []
