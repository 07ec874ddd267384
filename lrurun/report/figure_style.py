"""The style of all figures: sizes, colours, lines, and how title, panels, legend and caption are composed.

Each is 3.3 inches wide and as high as it needs: title, panels, legend and caption are placed one below the other, so
that none covers another. Colours are those of Okabe and Ito, which colour-blind readers can distinguish; lines and
markers differ too, for printing without colour. The same data give the same bytes.
matplotlib is imported when drawing.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from lrurun.console import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure

P = ParamSpec("P")
T = TypeVar("T")

SUFFIXES = (".png", ".svg", ".pdf")
WIDTH = 3.3
"""Inches: a column of a paper in two columns."""
DPI = 300

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#7F7F7F")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")

SMALL, USUAL, LARGE = 6.5, 7.0, 8.0
"""Sizes of type in points: captions, labels, titles."""
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
def _style() -> Iterator[None]:
    """Our settings and none of the user's; letters that the font lacks are drawn as boxes, without a warning."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Glyph.*missing.*")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """A function that draws, in our style."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        with _style():
            return function(*args, **kwargs)

    return inside


@styled
def encode(figure: Figure, suffix: str) -> bytes:
    """The bytes of a file of that suffix, without date. Its metadata have the figure's title."""
    title = str(figure.get_label())
    metadata: dict[str, dict[str, Any]] = {
        ".png": {"Title": title},
        ".svg": {"Title": title, "Date": None},
        ".pdf": {"Title": title, "CreationDate": None},
    }
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix.removeprefix("."), dpi=DPI, metadata=metadata[suffix])
    return buffer.getvalue()


def grid(rows: int, columns: int, *, sharex: bool = False, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure and its axes, row by row; `compose` gives it its size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, WIDTH), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    return figure, list(axes.ravel())


def _wrapped(figure: Figure, text: str, size: float, weight: str) -> str:
    """`text` in lines that fit the figure, as measured."""
    from matplotlib.font_manager import FontProperties

    canvas: Any = figure.canvas
    renderer = canvas.get_renderer()
    font = FontProperties(size=size, weight=weight)
    room = (WIDTH - 2 * _MARGIN) * DPI

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


def compose(figure: Figure, height: float, title: str, caption: str, handles: Sequence[Any] = ()) -> Figure:
    """Gives the panels `height` inches, and puts the title over them, the legend and the caption under them."""
    figure.set_label(clean(title))
    parts = []
    for text, size, weight in ((title, LARGE, "bold"), (caption, SMALL, "normal")):
        lines = _wrapped(figure, text, size, weight)
        parts.append(
            figure.text(_MARGIN / WIDTH, 0.5, lines, fontsize=size, fontweight=weight, va="top", linespacing=1.2)
        )
    legend = None
    if handles:
        # Of many entries, those with the longest names say whether a number of columns fits.
        by_length = sorted(handles, key=lambda handle: -len(str(handle.get_label())))
        for columns in (3, 2, 1):
            if legend is not None:
                legend.remove()
            legend = _legend(figure, by_length[:columns] if len(handles) > _MOST_TRIED else handles, columns)
            if legend.get_window_extent().width <= (WIDTH - 2 * _MARGIN) * DPI:
                break
        if legend is not None and len(handles) > _MOST_TRIED:
            legend.remove()
            legend = _legend(figure, handles, columns)
    over, under = (part.get_window_extent().height / DPI + _GAP if part.get_text() else 0.0 for part in parts)
    key = legend.get_window_extent().height / DPI + _GAP if legend else 0.0
    total = _MARGIN + over + height + key + under + _MARGIN
    figure.set_size_inches(WIDTH, total)
    parts[0].set_y(1 - _MARGIN / total)
    parts[1].set_y((_MARGIN + under - _GAP) / total)
    if legend:
        legend.set_bbox_to_anchor((0.5, (_MARGIN + under + key - _GAP / 2) / total))
        legend.set_in_layout(False)
    for part in parts:
        part.set_in_layout(False)
    bottom = (_MARGIN + under + key) / total
    figure.set_layout_engine("constrained", rect=(0.0, bottom, 1.0, height / total), h_pad=0.03, w_pad=0.03)
    return figure


_MOST_TRIED = 24
"""Entries of a legend that is laid out for each number of columns."""


def _legend(figure: Figure, handles: Sequence[Any], columns: int) -> Any:
    return figure.legend(
        handles=list(handles), loc="upper center", ncols=columns, frameon=False, borderaxespad=0.0,
        borderpad=0.0, handlelength=2.6, columnspacing=1.0, labelspacing=0.3,
    )  # fmt: skip


def look_of(index: int) -> dict[str, Any]:
    """Colour, line and marker of a curve."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINES[(index + index // len(COLORS)) % len(LINES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def number(value: float, _: object = None) -> str:
    """A tick without an exponent: 20, 0.5, 20k, 3M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}".replace("-", "−")
    return f"{value:g}".replace("-", "−")


def scale(ax: Axes, which: str, values: Sequence[float]) -> None:
    """Makes the axis "x" or "y" logarithmic if the values span enough. Its ticks are plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = getattr(ax, f"{which}axis")
    known = [value for value in values if math.isfinite(value)]
    if known and min(known) > 0 and max(known) / min(known) >= 5:
        getattr(ax, f"set_{which}scale")("log")
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if max(known) / min(known) < 200 else (1.0,)))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(number))
