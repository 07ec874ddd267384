"""Figures as PNG, SVG and PDF, drawn by Matplotlib in one style.

Each is as wide as a column or a page of a paper, with the same sizes of type, and as high as it needs: title, panels,
legend and caption are placed one below the other, so that none covers another. The colours are Okabe's and Ito's,
which colour-blind readers can distinguish; lines and markers differ too, for printing without colour. The same data
give the same bytes.
matplotlib is imported when drawing.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from lrurun.console import clean
from lrurun.judging import scores
from lrurun.report.figures import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from lrurun.report.figures.figures import Curve, Figure, Panel, Picture, Scale
    from lrurun.report.widths import Width

P = ParamSpec("P")
T = TypeVar("T")

SUFFIXES = (".png", ".svg", ".pdf")
WIDTHS: dict[Width, float] = {"column": 3.3, "page": 6.75}
"""Inches: a column of a paper in two columns, and both of them, as in the style of ICML."""
DPI = 300

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#7F7F7F")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
BETTER, WORSE, GREY = "#0072B2", "#D55E00", "#888888"

_DIFFERENCES = {"better": (BETTER, "^", BETTER), "worse": (WORSE, "v", WORSE), "open": ("#555555", "D", "white")}
"""Style of points -> colour, marker, and colour inside: they differ without colour too."""

SMALL, USUAL, LARGE = 7.0, 7.5, 8.5
"""Sizes of type in points: captions, labels, titles. None is smaller than 7 points in print."""
_MARGIN, _GAP = 0.04, 0.06
"""Inches: around the figure, and between its parts."""

_SETTINGS: dict[str, Any] = {
    "font.size": USUAL,
    "axes.titlesize": USUAL,
    "axes.labelsize": USUAL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "text.parse_math": False,  # names come from files: a dollar sign is a dollar sign
    "svg.hashsalt": "lrurun",
    "pdf.fonttype": 42,
}


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Our settings and none of the user's; letters that the font lacks are drawn as boxes, without a warning."""
    import matplotlib

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # no line when it builds its cache
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*missing.*")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def _styled(function: Callable[P, T]) -> Callable[P, T]:
    """A function that draws, in our style."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        with _settings():
            return function(*args, **kwargs)

    return inside


@_styled
def encode(drawing: Drawing, suffix: str) -> bytes:
    """The bytes of a file of that suffix, without date. Its metadata have the figure's title."""
    title = str(drawing.get_label())
    metadata: dict[str, dict[str, Any]] = {
        ".png": {"Title": title},
        ".svg": {"Title": title, "Date": None},
        ".pdf": {"Title": title, "CreationDate": None},
    }
    buffer = io.BytesIO()
    drawing.savefig(buffer, format=suffix.removeprefix("."), dpi=DPI, metadata=metadata[suffix])
    return buffer.getvalue()


def render(figure: Figure, suffix: str, width: Width = "column") -> bytes:
    """A figure as a file of that suffix."""
    return encode(draw(figure, width), suffix)


def shown(figure: Figure, width: Width = "column") -> Drawing:
    """A figure of Matplotlib, which a notebook shows by itself, half as large as its pixels."""
    drawing = draw(figure, width)
    size = {"width": round(WIDTHS[width] * DPI / 2)}
    drawing._repr_png_ = lambda: (encode(drawing, ".png"), size)  # type: ignore[attr-defined]
    return drawing


@_styled
def draw(figure: Figure, width: Width = "column") -> Drawing:
    """The panels of a figure; labels that several of them share are explained once, below them."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    figure = figures.in_powers_of_ten(figure)
    curves = [curve for panel in figure.panels for curve in panel.curves]
    families = list(dict.fromkeys(curve.family or curve.label for curve in curves if not curve.grey))
    solid = any(curve.family and curve.style == "dashed" for curve in curves)
    matplotlib.rcParams["text.parse_math"] = figure.mathematics
    inches, columns = WIDTHS[width], figure.columns * (1 if width == "column" else 2)
    rows = -(-len(figure.panels) // columns)
    columns = -(-len(figure.panels) // rows)  # rows as full as each other
    drawing = Drawing(figsize=(inches, inches), dpi=DPI)  # `_compose` gives it its height
    FigureCanvasAgg(drawing)
    grid = drawing.subplots(rows, columns, squeeze=False, sharex=figure.same_x, sharey=figure.same_y)
    axes = list(grid.ravel())
    styles: dict[str, dict[str, Any]] = {}
    per_inch = columns / (inches - _room_of_colors(figure))
    titles = [_title(panel, per_inch).count("\n") for panel in figure.panels]
    high = _height(figure, inches, columns) + 0.13 * max(titles)
    for index, (panel, ax) in enumerate(zip(figure.panels, axes, strict=False)):
        if panel.picture is not None and not panel.picture.label:
            _unlabelled(panel.picture, ax)
        for curve in panel.curves:
            number = 0 if curve.grey else families.index(curve.family or curve.label)
            style = _style(curve, number, solid=solid)
            _curve(curve, ax, style, number / max(1, len(families)), high)
            if curve.label:
                styles[curve.label] = _both(styles.get(curve.label, style), style)
        lowest = index + columns >= len(figure.panels)
        _axes(
            panel,
            ax,
            x=lowest or not figure.same_x,
            y=not (figure.same_y and index % columns),
            per_inch=per_inch,
        )
    for ax in axes[len(figure.panels) :]:
        ax.remove()
    _pictures(figure.panels, axes, drawing)
    handles = [Line2D([], [], label=_text(label), **style) for label, style in styles.items()]
    return _compose(drawing, rows * high + 0.2, figure.title, figure.caption, handles)


_NAME = 24
"""Letters of a line of a name on the vertical axis."""
_ROOM_OF_TEXTS = 0.65
"""About how many inches of the height of a square panel its title and the texts of its horizontal axis have."""
_LEFT_OF_SQUARE = 0.5
"""About how many inches of its width the texts of its vertical axis have."""


def _height(figure: Figure, width: float, columns: int) -> float:
    """Inches of a row of panels."""
    circles = [panel for panel in figure.panels if panel.circles]
    if all(panel.picture is not None and panel.picture.levels for panel in figure.panels):
        return (width - 0.2) / columns
    if any(panel.square for panel in figure.panels):
        return (width - 0.2) / columns + _ROOM_OF_TEXTS - _LEFT_OF_SQUARE
    if not circles:
        lines = [[_folded(name, _NAME).count("\n") + 1 for _, name in panel.y_ticks] for panel in figure.panels]
        most = [max(of_panel, default=0) for of_panel in lines]
        if any(curve.lane for panel in figure.panels for curve in panel.curves):
            return 0.45 + max(len(of_panel) for of_panel in lines) * max(0.42, 0.08 + 0.135 * max(most))
        names = max(map(sum, lines))
        row = 0.17 if not _has_short_cells(figure, width / columns) else 0.3
        return max(1.25 + 0.175 * width / columns, 0.4 + row * names)
    square = (width - 0.5 - _room_of_colors(figure)) / columns + 0.3
    wide, high = (1.2 + max(values) - min(values) for values in zip(*circles[0].circles, strict=True))
    return float(square * max(1.0, high / wide))


def _has_short_cells(figure: Figure, width: float) -> bool:
    """Whether cells of a picture are about too narrow for their texts, so that they have two lines."""
    for panel in figure.panels:
        if panel.short_texts and panel.x_ticks:
            names = max((_length(line) for _, name in panel.y_ticks for line in name.split("\n")), default=0)
            cell = (width - 0.15 - 0.058 * names) / len(panel.x_ticks)
            lengths = sorted(len(text) for _, _, text in panel.texts)
            if cell < 0.064 * lengths[int(_MOST_CELLS * (len(lengths) - 1))]:
                return True
    return False


def _room_of_colors(figure: Figure) -> float:
    """About how many inches the scales of colours of a figure are wide, with their numbers."""
    return 0.5 * len({panel.picture.label for panel in figure.panels if panel.picture is not None} - {""})


def _axes(panel: Panel, ax: Axes, *, x: bool, y: bool, per_inch: float) -> None:
    """The scales and the texts of the axes; labels only where `x` and `y`. `per_inch`: panels in an inch of a row."""
    curves = panel.curves
    xs, ys = ([number for curve in curves for number in getattr(curve, name)] for name in ("x", "y"))
    _axis(ax, "x", panel.x if x else "", panel.x_scale, panel.x_ticks, xs, max(2, int(2.2 / per_inch)))
    _axis(ax, "y", panel.y if y else "", panel.y_scale, panel.y_ticks, ys)
    if x:
        ax.tick_params(axis="x", labelbottom=True)  # also where no panel is below it
    longest = max((_length(line) for _, name in panel.x_ticks for line in _folded(name, 14).split("\n")), default=0)
    if len(panel.x_ticks) * longest * per_inch > 15:
        ax.tick_params(axis="x", labelrotation=45)
        # a line each: two of one name would cover the next
        ax.set_xticks([number for number, _ in panel.x_ticks], [_folded(name, _NAME) for _, name in panel.x_ticks])
        for label in ax.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    if panel.is_beside and per_inch > 0.5:  # narrow panels side by side
        ax.set(xlabel=_folded(ax.get_xlabel(), 13))
    ax.set_title(_title(panel, per_inch))
    for number, (right, up, text) in enumerate(panel.texts):
        written = ax.text(right, up, _text(text), fontsize=SMALL, ha="center", va="center", linespacing=1.0)
        if panel.short_texts:
            written.set_gid(f"cell {panel.short_texts[number]}")
    for up, text in panel.notes:
        lines = _lines_of(text)
        place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center", "linespacing": 1.1}
        ax.text(1.04, up, lines, fontsize=SMALL, **place)
    if panel.zero:
        ax.axvline(0.0, linewidth=0.6, color="black", zorder=1.5)
    if panel.square:
        ax.set_box_aspect(1)
        room = int(17 * (1 / per_inch - 0.5))  # letters
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_label_text(_folded(axis.get_label_text(), room), fontsize=SMALL)
    if panel.circles:
        _circles(panel.circles, ax)
    elif panel.picture is None:
        ax.grid(axis="both" if panel.y_ticks or panel.square else "y", linewidth=0.3, color="#cccccc")
        if panel.y_ticks:
            heights = [height for height, _ in panel.y_ticks]
            ax.set_ylim(min(heights) - 0.5, max(heights) + 0.5)
        ax.set_axisbelow(True)
    elif panel.picture.levels:
        ax.spines[:].set_visible(True)
        ax.set(xticks=(), yticks=())
    elif not panel.picture.label:
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)


def _title(panel: Panel, per_inch: float) -> str:
    """The title of a panel in lines that fit it."""
    room = int(15 / per_inch)  # letters
    return _folded(panel.title, room) if _length(panel.title) > room else _lines_of(panel.title)


def _axis(
    ax: Axes,
    direction: str,
    label: str,
    scale: str,
    ticks: Sequence[tuple[float, str]],
    values: Sequence[float],
    most: int | Literal["auto"] = "auto",
) -> None:
    """`most`: intervals between numbers of a linear scale."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis = getattr(ax, f"{direction}axis")
    getattr(ax, f"set_{direction}label")(_lines_of(label))
    getattr(ax, f"set_{direction}scale")(scale)
    if ticks:
        axis.set_ticks(
            [number for number, _ in ticks], [_folded(name, 14 if direction == "x" else _NAME) for _, name in ticks]
        )
        if scale == "linear":  # names, not numbers
            axis.set_tick_params(length=0)
        axis.set_minor_locator(NullLocator())  # a logarithmic scale has some, with numbers
    elif scale == "log":
        positive = [value for value in values if 0 < value < math.inf]
        narrow = positive and max(positive) < 30 * min(positive)  # no two powers of ten
        if narrow:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(_power))
        axis.set_minor_formatter(NullFormatter())
    else:
        integers = all(map(float.is_integer, values))
        few = integers and max(values, default=0.0) - min(values, default=0.0) < 2
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10], integer=integers, min_n_ticks=1 if few else 2))
        axis.set_major_formatter(FuncFormatter(_number))


def _text(text: str) -> str:
    return clean(text).replace(" - ", " − ")


def _lines_of(text: str) -> str:
    """A text of several lines."""
    return "\n".join(map(_text, text.split("\n")))


def _length(text: str) -> int:
    """About how many letters a text shows, which may have mathematics."""
    return len(re.sub(r"\\[A-Za-z]+|[${}_^]", lambda match: match[0][:1].strip("${}_^"), text))


def _folded(name: str, width: int) -> str:
    """A name in lines of at most so many characters."""
    lines = [line for part in name.split("\n") for line in textwrap.wrap(_text(part), width) or [""]]
    return "\n".join(lines)


def _style(curve: Curve, number: int, *, solid: bool) -> dict[str, Any]:
    """The style of a curve of the family of that number; `solid` lines do not differ in their dashes."""
    color = GREY if curve.grey else COLORS[number % len(COLORS)]
    if curve.style in ("points", "rings", "crosses"):
        marker = {"rings": "o", "crosses": "x"}.get(curve.style, MARKERS[number % len(MARKERS)])
        if curve.style == "points":
            size = 3.0 if len(curve.x) < 30 else 2.0 if len(curve.x) < 100 else 1.2
            return {"color": color, "marker": marker, "linestyle": "none", "markersize": size}
        size = 3.0 if len(curve.x) < 100 else 2.2
        hollow = {"markerfacecolor": "none", "markeredgewidth": 0.7}
        return {"color": color, "marker": marker, "linestyle": "none", "markersize": size, **hollow}
    if curve.style in _DIFFERENCES:
        color, marker, fill = _DIFFERENCES[curve.style]
        shape = {"color": color, "marker": marker, "markerfacecolor": fill, "markeredgewidth": 0.8}
        return {"linestyle": "none", "markersize": 3.4 if curve.style == "open" else 4.0, **shape}
    if curve.style == "thin":
        return {"color": color, "linestyle": "-", "linewidth": 0.5}
    if curve.style == "dashed":
        return {"color": color, "linestyle": "--" if curve.grey else (0, (4, 2))}
    line = LINES[(number + number // len(COLORS)) % len(LINES)]
    style = {"color": color, "linestyle": "-" if solid else line}
    return style | ({"marker": MARKERS[number % len(MARKERS)]} if curve.style == "marked" else {})


def _both(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The style in the legend of curves of one label: a line with markers, where there are both."""
    drawn = [style["linestyle"] for style in (first, second) if style["linestyle"] != "none"]
    return {**second, **first, "linestyle": drawn[0] if drawn else "none"}


def _curve(curve: Curve, ax: Axes, style: dict[str, Any], share: float, high: float) -> None:
    """`share`: of other curves, so that the markers of all are not in one column; `high`: inches of the panel."""
    if curve.diameters:
        share = math.pi / 4 if style["marker"] == "s" else 1.0  # a square with the area of the circle
        areas = [share * max(72 * (high - _ROOM_OF_TEXTS) * diameter, 1.0) ** 2 for diameter in curve.diameters]
        look = {"color": style["color"], "marker": style["marker"]}
        ax.scatter(curve.x, curve.y, areas, linewidth=0, zorder=2.0, clip_on=False, **look)
        return
    points = style["linestyle"] == "none"
    if curve.lane:
        # a marker at the end of the axis is whole
        style = style | {"gid": f"lane {curve.lane}", "markersize": 1.9, "markeredgewidth": 0.5, "clip_on": False}
    if curve.style == "marked":
        every = max(1, len(curve.x) // 5)
        style = style | {"markevery": (int(share * every), every)}
    # Lines are above points, of which there may be many.
    ax.plot(curve.x, curve.y, label=_text(curve.label) or None, zorder=2.0 if points else 2.5, **style)
    if not curve.low:
        return
    if points:
        bars = ax.hlines if curve.sideways else ax.vlines
        bars(curve.y if curve.sideways else curve.x, curve.low, curve.high, color=style["color"], linewidth=0.8)
    else:
        ax.fill_between(curve.x, curve.low, curve.high, color=style["color"], alpha=0.15, linewidth=0)


def _unlabelled(picture: Picture, ax: Axes) -> None:
    """A picture from worse to better, or an image of classes."""
    from matplotlib.colors import LinearSegmentedColormap

    across, up = _edges(picture.x), _edges(picture.y)
    if picture.levels:
        ax.pcolormesh(across, up, picture.z, vmin=0, vmax=picture.levels - 1, cmap="gray_r", rasterized=True)
        ax.set_aspect("equal")
        return
    colors = LinearSegmentedColormap.from_list("", [WORSE, "0.93", BETTER])
    ax.pcolormesh(across, up, picture.z, vmin=-1, vmax=1, cmap=colors, edgecolors="white", linewidth=1.5)


def _pictures(panels: Sequence[Panel], axes: Sequence[Axes], drawing: Drawing) -> None:
    """The pictures with labels: pictures with one label have one scale of colours, which is drawn once."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FuncFormatter, NullFormatter

    drawn = [(panel.picture, ax) for panel, ax in zip(panels, axes, strict=False) if panel.picture is not None]
    kinds: dict[tuple[str, Scale], list[tuple[Picture, Axes]]] = {}
    for picture, ax in drawn:
        if picture.label:
            kinds.setdefault((picture.label, picture.scale), []).append((picture, ax))
    for (label, scale), group in kinds.items():
        values = [value for picture, _ in group for row in picture.z for value in row if math.isfinite(value)]
        norm = (LogNorm if scale == "log" else Normalize)(min(values, default=1.0), max(values, default=1.0))
        for picture, ax in group:
            mesh = ax.pcolormesh(
                _edges(picture.x), _edges(picture.y), picture.z, norm=norm, cmap="cividis", rasterized=True
            )
        form = FuncFormatter(_power) if scale == "log" else None
        # Of one panel, inside of its axes, so that it is as high as they are where their units are equal.
        bar_axes: dict[str, Any] = (
            {"cax": group[0][1].inset_axes((1.04, 0.0, 0.06, 1.0))}
            if len(group) == 1
            else {"ax": [ax for _, ax in group], "aspect": 30, "pad": 0.06}
        )
        bar = drawing.colorbar(mesh, label=_text(label), format=form, **bar_axes)
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
        bar.outline.set_linewidth(0.6)


def _edges(middles: Sequence[float]) -> list[float]:
    """The ends of the cells around these middles."""
    between = [(a + b) / 2 for a, b in itertools.pairwise(middles)]
    first, last = (between[0], between[-1]) if between else (middles[0] + 0.5, middles[0] - 0.5)
    return [2 * middles[0] - first, *between, 2 * middles[-1] - last]


def _circles(middles: Sequence[tuple[float, float]], ax: Axes) -> None:
    from matplotlib.patches import Circle

    for middle in middles:
        ax.add_patch(Circle(middle, 1, fill=False, linewidth=0.6, color="black"))
    ax.set_aspect("equal")
    ax.autoscale_view()
    if len(middles) > 1:
        ax.set_axis_off()


def _wrapped(figure: Drawing, text: str, size: float, weight: str) -> str:
    """`text` in lines that fit the figure, as measured."""
    from matplotlib.font_manager import FontProperties

    canvas: Any = figure.canvas
    renderer = canvas.get_renderer()
    font = FontProperties(size=size, weight=weight)
    room = (figure.get_figwidth() - 2 * _MARGIN) * DPI

    def fits(line: str) -> bool:
        return bool(renderer.get_text_width_height_descent(line, font, False)[0] <= room)

    lines = [""]
    for word in clean(text).split():
        while not fits(word):  # longer than a line
            cut = next(n for n in range(len(word), 0, -1) if n == 1 or fits(word[:n]))
            lines += [word[:cut], ""]
            word = word[cut:]
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if fits(longer) else [*lines, word]
    return "\n".join(line for line in lines if line)


def _compose(figure: Drawing, height: float, title: str, caption: str, handles: Sequence[Any]) -> Drawing:
    """Gives the panels `height` inches, and puts the title over them, the legend and the caption under them."""
    figure.set_label(clean(title))
    width = figure.get_figwidth()
    parts = []
    for text, size, weight in ((title, LARGE, "bold"), (caption, SMALL, "normal")):
        style: dict[str, Any] = {"fontsize": size, "fontweight": weight, "va": "top", "linespacing": 1.2}
        lines = _wrapped(figure, text, size, weight)
        parts.append(figure.text(_MARGIN / width, 0.5, lines, parse_math=False, **style))
    legend = None
    if handles:
        room = (width - 2 * _MARGIN) * DPI
        # Of many entries, those with the longest names say whether a number of columns fits.
        by_length = sorted(handles, key=lambda handle: -len(str(handle.get_label())))
        for columns in range(int(width), 0, -1):
            if legend is not None:
                legend.remove()
            legend = _legend(figure, by_length[:columns] if len(handles) > _MOST_TRIED else handles, columns)
            if legend.get_window_extent().width <= room:
                break
        if legend is not None and (size := legend.get_window_extent().width) > room:  # not even one entry fits
            longest = len(str(by_length[0].get_label()))
            for handle in handles:
                handle.set_label(_folded(str(handle.get_label()), max(_NAME, int(longest * room / size) - 4)))
            legend.remove()
            legend = _legend(figure, handles, columns)
        elif legend is not None and len(handles) > _MOST_TRIED:
            legend.remove()
            legend = _legend(figure, handles, columns)
    over, under = (part.get_window_extent().height / DPI + _GAP if part.get_text() else 0.0 for part in parts)
    key = legend.get_window_extent().height / DPI + _GAP if legend else 0.0
    total = _MARGIN + over + height + key + under + _MARGIN
    figure.set_size_inches(width, total)
    parts[0].set_y(1 - _MARGIN / total)
    parts[1].set_y((_MARGIN + under - _GAP) / total)
    if legend:
        legend.set_bbox_to_anchor((0.5, (_MARGIN + under + key - _GAP / 2) / total))
        legend.set_in_layout(False)
    for part in parts:
        part.set_in_layout(False)
    bottom = (_MARGIN + under + key) / total
    figure.set_layout_engine("constrained", rect=(0.0, bottom, 1.0, height / total), h_pad=0.03, w_pad=0.03)
    _put_side_by_side(figure)
    _shorten_cells(figure)
    return figure


_MOST_CELLS = 0.9
"""The share of a picture's cells that longer texts must fit to stand there."""


def _shorten_cells(figure: Drawing) -> None:
    """Gives the cells of a picture their shorter texts where the longer ones do not fit most of them, and a cell that
    has no room for that either its first line."""
    cells = [(ax, [text for text in ax.texts if str(text.get_gid()).startswith("cell ")]) for ax in figure.axes]
    if not any(texts for _, texts in cells):
        return
    figure.draw_without_rendering()  # the layout decides how wide a cell is
    for ax, texts in cells:
        if not texts:
            continue
        shorter = [str(text.get_gid()).removeprefix("cell ") for text in texts]
        for text in texts:
            text.set_gid(None)
        room = 0.98 * abs(ax.transData.transform((1.0, 0.0))[0] - ax.transData.transform((0.0, 0.0))[0])
        too_wide = [text.get_window_extent().width > room for text in texts]
        are_short = sum(too_wide) > (1 - _MOST_CELLS) * len(texts)
        for text, form, is_wide in zip(texts, shorter, too_wide, strict=True):
            for tried in (form, form.split("\n")[0]) if are_short or is_wide else ():
                text.set_text(_lines_of(tried))
                if text.get_window_extent().width <= room:
                    break


_CLEAR = 0.2
"""Points between markers side by side."""


def _put_side_by_side(figure: Drawing) -> None:
    """Moves the points of curves with lanes so that none covers another: down, and beside where a lane is full."""
    lanes = [
        (ax, drawn, float(gid.removeprefix("lane ")))
        for ax in figure.axes
        for drawn in ax.lines
        if (gid := str(drawn.get_gid())).startswith("lane ")
    ]
    if not lanes:
        return
    figure.draw_without_rendering()  # the layout decides how large the panels are
    for ax, drawn, lane in lanes:
        drawn.set_gid(None)
        ax.set_xlim(ax.get_xlim())
        to_pixels, pixels = ax.transData, DPI / 72
        step = pixels * (drawn.get_markersize() + drawn.get_markeredgewidth() + _CLEAR)
        points = to_pixels.transform(drawn.get_xydata())
        unit = abs(to_pixels.transform((1.0, 1.0))[1] - to_pixels.transform((1.0, 0.0))[1])
        rows = max(1, int(lane * unit / step))
        moved: dict[float, list[tuple[float, float]]] = {}
        for k in sorted(range(len(points)), key=lambda k: (points[k][1], points[k][0])):
            x, y = points[k]
            taken = moved.setdefault(round(float(y), 3), [])
            places = ((x + sign * beside * step, y - row * step) for beside in range(len(points) + 1)
                      for row in range(rows) for sign in ((1, -1) if beside else (1,)))  # fmt: skip
            free = next(
                (right, up)
                for right, up in places
                if all(math.hypot(right - a, up - b) >= step * (1 - 1e-6) for a, b in taken)
            )
            taken.append(free)
            points[k] = free
        across, up = to_pixels.inverted().transform(points).T
        drawn.set_data(across, up)


_MOST_TRIED = 24
"""Entries of a legend that is laid out for each number of columns."""


def _legend(figure: Drawing, handles: Sequence[Any], columns: int) -> Any:
    return figure.legend(
        handles=list(handles), loc="upper center", ncols=columns, frameon=False, borderaxespad=0.0,
        borderpad=0.0, handlelength=2.6, columnspacing=1.0, labelspacing=0.3,
    )  # fmt: skip


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _power(value: float, _: object = None) -> str:
    """A tick of a logarithmic axis: 0.1, 0.5, 1, 10, 100, else a power of ten."""
    exponent = round(math.log10(value)) if value > 0 else 0
    if -1 <= exponent <= 2 or not math.isclose(value, 10.0**exponent):
        return _number(value)
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def _number(value: float, _: object = None) -> str:
    """A tick without an exponent, as 20, 0.5, 20k, 3M; large ones have one."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if size <= abs(value) < scores.LARGE:
            return f"{value / size:g}{letter}".replace("-", "−")
    return f"{value:g}".replace("-", "−")
