"""Figures in the width of a column: curves, ladders, speeds, eigenvalues, norms."""

from __future__ import annotations

import cmath
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.console import clean
from lrurun.report import figure_style as style
from lrurun.report.task_map import DECIDED, TaskMap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BETTER, WORSE = "#0072B2", "#D55E00"
BAND = "Line: mean over n finished seeds; band: ± standard error."


class Curve(Struct, frozen=True, kw_only=True):
    """A number over steps, and the two ends of its band, which are empty if it has none."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


class Panel(Struct, frozen=True, kw_only=True):
    """Curves that share two axes."""

    title: str = ""
    label: str
    """Of the vertical axis, with its unit."""
    curves: tuple[Curve, ...]
    log: bool = False
    across: str = "step"
    """Of the horizontal axis."""
    log_across: bool = False


class Mark(Struct, frozen=True, kw_only=True):
    """A published value."""

    value: float
    stderr: float | None = None


class RungMeans(Struct, frozen=True, kw_only=True):
    """A rung in a figure of means."""

    name: str
    note: str
    """Under the name: the number of seeds, and the states of the others."""
    mean: float | None
    stderr: float | None
    seeds: tuple[float, ...]
    published: tuple[Mark, ...] = ()
    group: str = ""
    """Lines of one group have the same marker."""


class SpectrumPanel(Struct, frozen=True, kw_only=True):
    """Eigenvalues in the plane."""

    title: str
    initial: tuple[complex, ...]
    trained: tuple[complex, ...]


LOGARITHMIC = ("train/loss", "norm/", "gradient/", "effective_step/")
"""How metrics on a logarithmic axis begin."""


def average(name: str, curves: Sequence[Sequence[tuple[int, float]]]) -> Curve:
    """The mean over seeds, at the steps that all curves have, in a band of one standard error to each side."""
    tables = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*(set(table) for table in tables))) if tables else []
    columns = [[table[step] for table in tables] for step in steps]
    means = [math.fsum(column) / len(column) for column in columns]
    errors = [_stderr(column, mean) for column, mean in zip(columns, means, strict=True)] if len(tables) > 1 else []
    return Curve(
        name=name,
        steps=tuple(steps),
        values=tuple(means),
        low=tuple(mean - error for mean, error in zip(means, errors, strict=False)),
        high=tuple(mean + error for mean, error in zip(means, errors, strict=False)),
    )


def _stderr(values: Sequence[float], mean: float) -> float:
    """As `statistics.stderr`, which computes with fractions: too slow for every point of many curves."""
    try:
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    except (OverflowError, ValueError):  # infinities, or squares beyond the largest number
        return math.nan


def curve_panels(
    seeds: Mapping[str, Sequence[Mapping[str, Sequence[tuple[int, float]]]]], shown: Mapping[str, tuple[str, float]]
) -> list[Panel]:
    """A panel for each metric of `shown`; a name has a line in it if all of its seeds have the metric.

    Args:
        seeds: name -> metric -> curve, for each seed.
        shown: metric -> the label and the scale of its axis, as of `lrurun.report.scores.curves_of`.
    """
    panels = []
    for metric, (label, scale) in shown.items():
        found = [
            average(name, [[(step, scale * value) for step, value in curves[metric]] for curves in each])
            for name, each in seeds.items()
            if each and all(metric in curves for curves in each)
        ]
        if found:
            panels.append(Panel(label=label, curves=tuple(found), log=metric.startswith(LOGARITHMIC)))
    return panels


def not_finite(spectra: Sequence[SpectrumPanel]) -> list[str]:
    """A sentence on what cannot be drawn, if anything."""
    lost = [one.title for one in spectra if not all(map(cmath.isfinite, one.trained))]
    return [f"Not drawn, because not finite: some eigenvalues of {', '.join(lost)}."] if lost else []


# Curves


@style.styled
def curves(panels: Sequence[Panel], *, title: str, caption: str, columns: int = 1, height: float = 1.45) -> Figure:
    """Panels of curves over steps, `columns` in a row; a name has the same look in all of them."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    looks = {name: style.look_of(index) for index, name in enumerate(names)}
    place_of = {name: index for index, name in enumerate(names)}
    rows = -(-len(panels) // columns)
    figure, axes = style.grid(rows, columns, sharex=True, sharey=columns > 1)
    drawn: list[float] = []
    for place, (panel, ax) in enumerate(zip(panels, axes, strict=False)):
        if columns == 1:
            drawn = []  # each panel has its own scale
        for curve in panel.curves:
            look, number = looks[curve.name], place_of[curve.name]
            # some markers a curve, not all of them in one column
            every = max(1, len(curve.steps) // 5)
            first = (number * every // max(1, len(names))) % every
            ax.plot(curve.steps, curve.values, label=clean(curve.name), markevery=(first, every), **look)
            if curve.low:
                ax.fill_between(curve.steps, curve.low, curve.high, color=look["color"], alpha=0.15, linewidth=0)
        ax.set_title(clean(panel.title))
        if place % columns == 0:
            ax.set_ylabel(panel.label)
        if place >= (rows - 1) * columns:
            ax.set_xlabel(panel.across)
        if panel.log_across:
            style.scale(ax, "x", [float(step) for curve in panel.curves for step in curve.steps])
        else:
            ax.xaxis.set_major_locator(MaxNLocator(5 if columns == 1 else 3, integer=True))
            ax.xaxis.set_major_formatter(FuncFormatter(style.number))
        drawn += [value for curve in panel.curves for value in (*curve.values, *curve.low, *curve.high)]
        if panel.log:
            style.scale(ax, "y", drawn)
        ax.grid(axis="y", linewidth=0.3, color="#cccccc")
        ax.set_axisbelow(True)
    for ax in axes[len(panels) :]:
        ax.remove()
    handles = [Line2D([], [], label=clean(name), **looks[name]) for name in names]
    return style.compose(figure, rows * height + 0.2, title, caption, handles)


# Means


@style.styled
def means(lines: Sequence[RungMeans], *, label: str, title: str, caption: str, log: bool = False) -> Figure:
    """A line for each rung, the first on top: mean and standard error, seeds below, published values above."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    figure, [ax] = style.grid(1, 1)
    groups = list(dict.fromkeys(line.group for line in lines if line.mean is not None))
    apart = 0.24
    handles: dict[str, Any] = {}
    drawn: list[float] = []
    error: dict[str, Any] = {"capsize": 2, "elinewidth": 0.8, "capthick": 0.8}
    for y, line in enumerate(lines):
        if line.mean is not None:
            number = groups.index(line.group)
            mine = {name: style.look_of(number)[name] for name in ("color", "marker")}
            name = clean(line.group) or "mean ± standard error"
            bar = ax.errorbar([line.mean], [y], xerr=line.stderr, linestyle="none", markersize=3.8, **mine, **error)
            bar.set_label(f"mean of {line.name}")
            handles.setdefault(name, bar)
            drawn += [line.mean, line.mean + (line.stderr or 0.0), line.mean - (line.stderr or 0.0)]
        if line.seeds:
            (dots,) = ax.plot(
                line.seeds, [y + apart] * len(line.seeds), linestyle="none", marker="o", markersize=2.5,
                markerfacecolor="none", markeredgecolor="#555555", markeredgewidth=0.6, label=f"seeds of {line.name}",
            )  # fmt: skip
            handles.setdefault("one seed", dots)
            drawn += line.seeds
        for mark in line.published:
            mark_bar = ax.errorbar(
                [mark.value], [y - apart], xerr=mark.stderr, linestyle="none", marker="D", markersize=3.5,
                color="#D55E00", markerfacecolor="white", label=f"published of {line.name}", **error,
            )  # fmt: skip
            handles.setdefault("published", mark_bar)
            drawn += [mark.value, mark.value + (mark.stderr or 0.0), mark.value - (mark.stderr or 0.0)]
    names = ["\n".join(textwrap.wrap(clean(line.name), 22)) + f"\n{clean(line.note)}" for line in lines]
    ax.set_yticks(range(len(lines)), names, linespacing=1.15)
    ax.set_ylim(len(lines) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    for y in range(1, len(lines)):
        ax.axhline(y - 0.5, color="#dddddd", linewidth=0.4, zorder=0)
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(style.number))
    if log:
        style.scale(ax, "x", drawn)
    ax.grid(axis="x", linewidth=0.3, color="#cccccc")
    ax.set_axisbelow(True)
    found = [_named(handle, name) for name, handle in handles.items()]
    rows = sum(name.count("\n") + 1 for name in names)
    return style.compose(figure, 0.4 + max(0.36 * len(lines), 0.13 * rows), title, caption, found)


def _named(handle: Any, name: str) -> Any:
    """The entry of a legend for an artist that has another label."""
    from matplotlib.lines import Line2D

    line = handle if isinstance(handle, Line2D) else handle.lines[0]
    shown = Line2D([], [])
    shown.update_from(line)
    shown.set_label(name)
    return shown


# A map


@style.styled
def task_map(drawn: TaskMap, *, title: str, caption: str) -> Figure:
    """Tasks by rungs: the difference to the base by colour, pale where it is undecided, and as text."""
    from matplotlib.patches import Rectangle

    figure, [ax] = style.grid(1, 1)
    for y, row in enumerate(drawn.cells):
        for x, cell in enumerate(row):
            if cell.benefit is not None:
                color = BETTER if cell.benefit > 0 else WORSE
                strength = (0.15 + 0.6 * abs(cell.benefit)) if cell.verdict in DECIDED else 0.12
                ax.add_patch(Rectangle((x - 0.47, y - 0.45), 0.94, 0.9, facecolor=color, alpha=strength, linewidth=0))
            ax.text(x, y, clean(cell.text).replace("-", "−"), ha="center", va="center", fontsize=style.SMALL)
    ax.set_xlim(-0.5, len(drawn.tasks) - 0.5)
    ax.set_ylim(len(drawn.rungs) - 0.5, -0.5)
    names = ["\n".join(textwrap.wrap(clean(name), 14)) for name in drawn.tasks]
    fits = len(names) * max(len(line) for name in names for line in name.split("\n")) < 50
    ax.set_xticks(range(len(names)), names, rotation=0 if fits else 45, ha="center" if fits else "left")
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(drawn.rungs)), [clean(name) for name in drawn.rungs])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return style.compose(figure, 0.6 + 0.22 * len(drawn.rungs), title, caption)


# Eigenvalues

_INITIAL: dict[str, Any] = {
    "label": "at initialisation", "linestyle": "none", "marker": "o", "markerfacecolor": "none", "color": "#E69F00",
    "markeredgewidth": 0.7,
}  # fmt: skip
_TRAINED: dict[str, Any] = {
    "label": "after training", "linestyle": "none", "marker": "x", "color": "#0072B2", "markeredgewidth": 0.7,
}  # fmt: skip
MOST_PANELS = 24
"""More spectra share one pair of axes: Matplotlib would need minutes for hundreds of them."""


@style.styled
def eigenvalues(spectra: Sequence[SpectrumPanel], *, title: str, caption: str) -> Figure:
    """A panel for each spectrum, with the unit circle."""
    every = [abs(part) for one in spectra for z in (*one.initial, *one.trained) for part in (z.real, z.imag)]
    edge = 1.08 * max([1.0, *(value for value in every if math.isfinite(value))])
    if len(spectra) > MOST_PANELS:
        return _many_spectra(spectra, edge, title, caption)
    from matplotlib.patches import Circle
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    columns = {1: 1, 2: 2, 4: 2}.get(len(spectra), 3)
    rows = -(-len(spectra) // columns)
    figure, axes = style.grid(rows, columns, sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for place, (one, ax) in enumerate(zip(spectra, axes, strict=False)):
        ax.add_patch(Circle((0, 0), 1, fill=False, linewidth=0.6, color="black"))
        size = 3.4 if max(len(one.initial), len(one.trained)) < 100 else 2.2
        for values, look in ((one.initial, _INITIAL), (one.trained, _TRAINED)):
            if values:
                points = [z.real for z in values], [z.imag for z in values]
                (handles[look["label"]],) = ax.plot(*points, markersize=size, **look)
        ax.set_title(clean(one.title), fontsize=style.SMALL, pad=3)
        ax.set_aspect("equal")
        ax.set_xlim(-edge, edge)
        ax.set_ylim(-edge, edge)
        for axis in (ax.xaxis, ax.yaxis):
            near = MultipleLocator(0.5 if columns == 1 else 1.0)
            axis.set_major_locator(near if edge < 2 else MaxNLocator(3, symmetric=True))
            axis.set_major_formatter(FuncFormatter(style.number))
        if place % columns == 0:
            ax.set_ylabel("Im λ")
        if place >= (rows - 1) * columns:
            ax.set_xlabel("Re λ")
    for ax in axes[len(spectra) :]:
        ax.remove()
    height = rows * ((style.WIDTH - 0.5) / columns + 0.22) + 0.2
    return style.compose(figure, height, title, caption, list(handles.values()))


def _many_spectra(spectra: Sequence[SpectrumPanel], edge: float, title: str, caption: str) -> Figure:
    """Spectra side by side in one pair of axes, which is not drawn: each has its name and the unit circle."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Circle

    columns = 3
    rows = -(-len(spectra) // columns)
    figure, [ax] = style.grid(1, 1)
    inch = (style.WIDTH - 0.2) / (2.1 * edge * columns)  # of a unit of the plane
    across, down = 2.1 * edge, 2.1 * edge + 0.15 / inch  # from panel to panel; names take 0.15 inches
    centres = [complex(across * (place % columns), -down * (place // columns)) for place in range(len(spectra))]
    circles = [Circle((centre.real, centre.imag), 1) for centre in centres]
    ax.add_collection(PatchCollection(circles, facecolor="none", edgecolor="black", linewidth=0.6))
    handles = []
    moments = ((_INITIAL, [one.initial for one in spectra]), (_TRAINED, [one.trained for one in spectra]))
    for look, found in moments:
        points = [z + centre for values, centre in zip(found, centres, strict=True) for z in values]
        if points:
            handles += ax.plot([z.real for z in points], [z.imag for z in points], markersize=1.8, **look)
    for one, centre in zip(spectra, centres, strict=True):
        name = clean(one.title)
        size = style.SMALL * min(1.0, 20 / max(1, len(name)))  # about twenty characters fit
        ax.text(centre.real, centre.imag + edge, name, fontsize=size, ha="center", va="bottom")
    ax.set_xlim(-across / 2, across * (columns - 0.5))
    ax.set_ylim(-down * (rows - 1) - across / 2, across / 2 + 0.15 / inch)
    ax.set_axis_off()
    return style.compose(figure, rows * down * inch, title, caption, handles)
