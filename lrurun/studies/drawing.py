"""Draws the figures of studies in the style of all figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lrurun.console import clean
from lrurun.report import figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from lrurun.studies.figure import Curve, Figure, Panel, Picture

HEIGHT = 1.7
"""Inches of a panel, where a row has one."""
GREY = "#999999"


@figure_style.styled
def draw(figure: Figure, *, title: str, caption: str) -> Drawing:
    """The panels of a study's figure; labels that several panels share are explained once, below them."""
    from matplotlib.lines import Line2D

    curves = [curve for panel in figure.panels for curve in panel.curves]
    families = list(dict.fromkeys(curve.of or curve.label for curve in curves if curve.style != "grey"))
    looks = {family: figure_style.look_of(index) for index, family in enumerate(families)}
    rows = -(-len(figure.panels) // figure.columns)
    drawing, axes = figure_style.grid(rows, figure.columns, sharey=figure.same_y)
    styles: dict[str, dict[str, Any]] = {}
    for panel, ax in zip(figure.panels, axes, strict=False):
        if panel.picture is not None:
            _picture(panel.picture, ax, drawing)
        for curve in panel.curves:
            style = _style(curve, looks, solid=any(one.of and one.style == "dashed" for one in curves))
            _curve(curve, ax, style)
            if curve.label:
                styles[curve.label] = _both(styles.get(curve.label, style), style)
        _axes(panel, ax)
    for ax in axes[len(figure.panels) :]:
        ax.remove()
    handles = [Line2D([], [], label=_text(label), **style) for label, style in styles.items()]
    square = (figure_style.WIDTH - 0.5) / figure.columns + 0.3
    circles = [panel for panel in figure.panels if panel.circle]
    if circles and all(panel.picture is not None for panel in circles):
        square -= 0.5  # for their scales of colours
    height = square if circles else HEIGHT / (1 if figure.columns == 1 else 1.2)
    return figure_style.compose(drawing, rows * height + 0.2, title, caption, handles)


def _axes(panel: Panel, ax: Axes) -> None:
    """The scales and the texts of the axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    for which, label, scale, ticks in (
        ("x", panel.x, panel.x_scale, panel.x_ticks),
        ("y", panel.y, panel.y_scale, panel.y_ticks),
    ):
        axis = getattr(ax, f"{which}axis")
        getattr(ax, f"set_{which}label")(_text(label))
        getattr(ax, f"set_{which}scale")(scale)
        values = [x for curve in panel.curves for x in getattr(curve, which)]
        if ticks:
            axis.set_ticks([at for at, _ in ticks], [_text(name) for _, name in ticks])
        elif scale == "log":
            known = [value for value in values if 0 < value < math.inf]
            if known and max(known) < 30 * min(known):  # no two powers of ten
                axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(_power)
            axis.set_minor_formatter(NullFormatter())
        elif max(map(abs, values), default=0) >= 10_000:
            axis.set_major_formatter(FuncFormatter(figure_style.number))
        elif all(map(float.is_integer, values)):
            axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    ax.set_title(_text(panel.title))
    if panel.circle:
        _circle(ax)


def _text(text: str) -> str:
    return clean(text).replace(" - ", " − ")


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(value: float, _: object = None) -> str:
    """A tick of a logarithmic axis: 0.1, 0.5, 1, 10, 100, else a power of ten."""
    exponent = round(math.log10(value)) if value > 0 else 0
    return (
        f"{value:g}"
        if -1 <= exponent <= 2 or not math.isclose(value, 10.0**exponent)
        else f"10{str(exponent).translate(_SUPERSCRIPTS)}"
    )


def _style(curve: Curve, looks: dict[str, dict[str, Any]], *, solid: bool) -> dict[str, Any]:
    """`solid` lines do not differ in their dashes."""
    if curve.style == "grey":
        return {"color": GREY, "linestyle": "--"}
    look = looks[curve.of or curve.label]
    if curve.style == "points":
        size = 3.0 if len(curve.x) < 30 else 2.0 if len(curve.x) < 100 else 1.2
        return {"color": look["color"], "marker": look["marker"], "linestyle": "none", "markersize": size}
    if curve.style == "thin":
        return {"color": look["color"], "linestyle": "-", "linewidth": 0.5}
    dashes = (0, (4, 2)) if curve.style == "dashed" else "-" if solid else look["linestyle"]
    return {"color": look["color"], "linestyle": dashes}


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The look in the legend of curves of one label: a line with markers, where there are both."""
    drawn = [one["linestyle"] for one in (first, second) if one["linestyle"] != "none"]
    return {**second, **first, "linestyle": drawn[0] if drawn else "none"}


def _curve(curve: Curve, ax: Axes, style: dict[str, Any]) -> None:
    # Lines are above points, of which there may be many.
    ax.plot(curve.x, curve.y, zorder=2.0 if curve.style == "points" else 2.5, **style)
    if not curve.low:
        return
    if curve.style == "points":
        ax.vlines(curve.x, curve.low, curve.high, color=style["color"], linewidth=0.8)
    else:
        ax.fill_between(curve.x, curve.low, curve.high, color=style["color"], alpha=0.15, linewidth=0)


def _picture(picture: Picture, ax: Axes, drawing: Drawing) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import NullFormatter

    norm = LogNorm() if picture.scale == "log" else None
    mesh = ax.pcolormesh(picture.x, picture.y, picture.z, norm=norm, cmap="cividis", shading="nearest", rasterized=True)
    form = _power if picture.scale == "log" else None
    # Inside of the axes, so that it is as high as they are where their units are equal.
    bar = drawing.colorbar(mesh, cax=ax.inset_axes((1.04, 0.0, 0.06, 1.0)), label=_text(picture.label), format=form)
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.outline.set_linewidth(0.6)


def _circle(ax: Axes) -> None:
    from matplotlib.patches import Circle

    ax.add_patch(Circle((0, 0), 1, fill=False, linewidth=0.6, color="black"))
    ax.set_aspect("equal")
