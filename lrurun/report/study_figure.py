"""Draws the figures of studies in the style of all figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lrurun.console import clean
from lrurun.report import figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from lrurun.studies.figure import Curve, Figure, Panel

HEIGHT = 1.7
"""Inches of a panel, where a row has one."""


@figure_style.styled
def draw(figure: Figure, *, title: str, caption: str) -> Drawing:
    """The panels of a study's figure; labels that several panels share are explained once, below them."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullFormatter

    labels = list(dict.fromkeys(curve.label for panel in figure.panels for curve in panel.curves if curve.label))
    looks = {label: figure_style.look_of(index) for index, label in enumerate(labels)}
    rows = -(-len(figure.panels) // figure.columns)
    drawing, axes = figure_style.grid(rows, figure.columns)
    styles: dict[str, str] = {}
    for panel, ax in zip(figure.panels, axes, strict=False):
        if panel.picture is not None:
            _picture(panel, ax, drawing)
        for curve in panel.curves:
            _curve(curve, ax, looks.get(curve.label, figure_style.look_of(4)))
            styles.setdefault(curve.label, curve.style)
        for which, scale in (("x", panel.x_scale), ("y", panel.y_scale)):
            getattr(ax, f"set_{which}scale")(scale)
            if scale == "log":
                getattr(ax, f"{which}axis").set_major_formatter(_power)
                getattr(ax, f"{which}axis").set_minor_formatter(NullFormatter())
        ax.set_xlabel(clean(panel.x))
        ax.set_ylabel(clean(panel.y))
        ax.set_title(clean(panel.title))
        if panel.circle:
            _circle(ax)
    for ax in axes[len(figure.panels) :]:
        ax.remove()
    handles = [Line2D([], [], label=clean(label), **_style(styles[label], looks[label])) for label in labels]
    square = (figure_style.WIDTH - 0.5) / figure.columns + 0.3
    height = square if any(panel.circle for panel in figure.panels) else HEIGHT / (1 if figure.columns == 1 else 1.2)
    return figure_style.compose(drawing, rows * height + 0.2, title, caption, handles)


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(value: float, _: object = None) -> str:
    """A tick of a logarithmic axis: 0.1, 1, 10, 100, else a power of ten."""
    exponent = round(math.log10(value)) if value > 0 else 0
    return f"{value:g}" if -1 <= exponent <= 2 else f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def _style(style: str, look: dict[str, Any]) -> dict[str, Any]:
    if style == "points":
        return {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
    return {"color": look["color"], "linestyle": (0, (4, 2)) if style == "dashed" else look["linestyle"]}


def _curve(curve: Curve, ax: Axes, look: dict[str, Any]) -> None:
    style = _style(curve.style, look)
    if curve.style == "points":
        style["markersize"] = 3.0 if len(curve.x) < 100 else 1.2
    ax.plot(curve.x, curve.y, **style)
    if not curve.low:
        return
    if curve.style == "points":
        ax.vlines(curve.x, curve.low, curve.high, color=look["color"], linewidth=0.8)
    else:
        ax.fill_between(curve.x, curve.low, curve.high, color=look["color"], alpha=0.15, linewidth=0)


def _picture(panel: Panel, ax: Axes, drawing: Drawing) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import NullFormatter

    picture = panel.picture
    assert picture is not None
    norm = LogNorm() if picture.scale == "log" else None
    mesh = ax.pcolormesh(picture.x, picture.y, picture.z, norm=norm, cmap="cividis", shading="nearest", rasterized=True)
    form = _power if picture.scale == "log" else None
    # Without its own grid: that has a row of height 0, which the layout of `compose` cannot divide by.
    bar = drawing.colorbar(mesh, ax=ax, label=clean(picture.label), format=form, use_gridspec=False)
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.outline.set_linewidth(0.6)


def _circle(ax: Axes) -> None:
    from matplotlib.patches import Circle

    ax.add_patch(Circle((0, 0), 1, fill=False, linewidth=0.6, color="black"))
    ax.set_aspect("equal")
