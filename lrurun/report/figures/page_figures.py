"""What pages draw: where the marks are in the SVG of templates, and learning curves drawn by Matplotlib.

Templates draw the table of a ladder with its dot plot, intervals and eigenvalues, in the colours of the page's style.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape
from msgspec import Struct, structs

from lrurun.console import clean
from lrurun.judging import wording
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.scores import ScoreForm, curves_of
from lrurun.report.figures import curves, figure_files, figures
from lrurun.report.figures.compared_items import ComparedItems, ItemComparison
from lrurun.report.figures.figures import Curve, Figure, Panel
from lrurun.report.run_details import RunDetail
from lrurun.report.tables import answer, axes, cells
from lrurun.report.tables.content import RunGroup
from lrurun.report.tables.ladder_table import LadderReport
from lrurun.report.tables.row_scores import LadderRow

_MOST_POINTS = 300
"""The largest number of points of a curve in a page: more cannot be seen."""
_MOST_EIGENVALUES = 400
"""Points in a panel at each moment: more could not be distinguished."""
_MOST_OF_ALL = 10_000
"""Points in all panels at each moment, of which each panel has at least 50: a page of many rungs is not to be huge."""


class DotPlotRow(Struct, frozen=True, kw_only=True):
    """A rung. Places are in per cent of the axis."""

    rung: str
    seeds: tuple[float, ...]
    mean: float | None
    low: float | None
    high: float | None
    """The ends of the standard error."""
    score: str
    """The mean with its error, and how many runs have no score."""
    verdict: str
    """The verdict on the change; empty for a rung without a base."""
    on_these_items: str
    """The verdict on these test items, where it is another one; else empty."""
    change: str
    """The difference to the base."""
    base: str
    """The base, if that is not the previous rung."""


class DotPlot(Struct, frozen=True, kw_only=True):
    """The scores of all seeds of a ladder on one axis."""

    axis: str
    unit: str
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[DotPlotRow, ...]


def ladder(report: LadderReport) -> DotPlot | None:
    """The dot plot of a ladder; None without a score."""
    form = report.score
    axis = axes.of((score for row in report.rows for score in row.scores), form.scale)
    if axis is None:
        return None

    def position(value: float) -> float:
        return round(100 * axis.position(value), 2)

    def plotted(row: LadderRow) -> DotPlotRow:
        mean, error = row.mean, row.stderr or 0.0
        return DotPlotRow(
            rung=row.rung,
            seeds=tuple(position(score) for score in row.scores if math.isfinite(score)),
            mean=None if mean is None else position(mean),
            low=None if mean is None else max(position(mean - error), 0.0),
            high=None if mean is None else min(position(mean + error), 100.0),
            score="\n".join([answer.score(row, report), *(cells.uncounted(row) if mean is not None else [])]),
            verdict=row.verdict,
            on_these_items=row.on_these_items,
            change=answer.difference(row, report),
            base=row.on or "" if row.branches else "",
        )

    return DotPlot(
        axis=form.on_test(form.axis),
        unit=form.unit,
        ticks=tuple((round(100 * place, 2), label.replace("-", "−")) for place, label in axis.labelled),
        rows=tuple(map(plotted, report.rows)),
    )


_WIDTH = 360
"""The width of the drawing of an interval."""


class Interval(Struct, frozen=True, kw_only=True):
    """The difference of a claim with its interval; positions from left to right."""

    label: str
    low: float
    at: float
    high: float
    ends: tuple[str, str]
    """The numbers of both ends."""
    ticks: tuple[tuple[float, str, str], ...]
    """0 and the margins: position, sort of line, number."""


def interval(claim: JudgedClaim, form: ScoreForm) -> Interval | None:
    """The interval of a claim, with 0 in the middle of its axis; None where it has none, or an end overflows.

    `form` is the form of the report's metric.
    """
    if claim.difference is None or claim.low is None or claim.high is None:
        return None
    low, high, margin = claim.low, claim.high, claim.margin or 0.0
    edge = max(abs(low), abs(high), margin) or 1.0
    if math.isinf(edge):
        return None

    def x(value: float) -> float:
        return round(_WIDTH / 2 * (1 + value / edge / 1.6), 1)

    def number(value: float) -> str:
        return wording.form_beside(form, claim).difference(value) if not claim.metric else f"{value:+.3g}"

    return Interval(
        label=f"interval from {number(low)} to {number(high)} around the difference {number(claim.difference)}",
        low=x(low),
        at=x(claim.difference),
        high=x(high),
        ends=(number(low).replace("-", "−"), number(high).replace("-", "−")),
        ticks=tuple(
            (x(value), "margin" if value else "zero", number(value).replace("-", "−") if value else "0")
            for value in dict.fromkeys([0.0, -margin, margin])
        ),
    )


class Plane(Struct, frozen=True, kw_only=True):
    """Eigenvalues in the plane of complex numbers, from 0 to 200 in both directions."""

    title: str
    label: str
    unit: float
    """The radius of the unit circle."""
    paths: tuple[tuple[str, str], ...]
    """The style of each curve, and a path with a mark for each eigenvalue."""


_MARKS = {"rings": "m-2,0a2,2 0 1,0 4,0a2,2 0 1,0 -4,0", "crosses": "m-2,-2l4,4m0,-4l-4,4"}


def planes(panels: Sequence[Panel]) -> tuple[Plane, ...]:
    """A plane for each panel, all on one scale."""
    edge = figures.edge(panels)

    def path(curve: Curve) -> str:
        points = ((x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(x) and math.isfinite(y))
        return "".join(
            f"M{100 * (1 + x / edge):.1f},{100 * (1 - y / edge):.1f}{_MARKS[curve.style]}" for x, y in points
        )

    return tuple(
        Plane(
            title=clean(panel.title),
            label=f"{clean(panel.title)}: eigenvalues in the plane, "
            + ", ".join(f"{len(curve.x)} {curve.label}" for curve in panel.curves),
            unit=round(100 / edge, 2),
            paths=tuple((curve.style, path(curve)) for curve in panel.curves),
        )
        for panel in panels
    )


class PageCurves(Struct, frozen=True, kw_only=True):
    """The learning curves of a page."""

    svg: Markup
    groups: tuple[RunGroup, ...]
    """The groups whose runs are drawn."""
    band: str
    """The sentence on the lines and their bands."""


class PagePlanes(Struct, frozen=True, kw_only=True):
    """The eigenvalues of a page."""

    planes: tuple[Plane, ...]
    caption: str


def learning_curves(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> PageCurves | None:
    """The curves of the runs of `groups` as SVG; None where there are none."""
    drawn = _own(groups, details)
    seeds = {group.title: [details[run].curves for run in group.runs if run in details] for group in drawn}
    forms = dict.fromkeys(group.score for group in drawn)
    panels = curves.of_rungs(seeds, curves_of(*forms, test=True))  # where details have any
    if not panels:
        return None
    labels = {curve.label for panel in panels for curve in panel.curves}
    figure = Figure(
        panels=tuple(
            structs.replace(panel, curves=tuple(curves.reduced(curve, _MOST_POINTS) for curve in panel.curves))
            for panel in panels
        ),
        same_x=True,
    )
    return PageCurves(
        svg=inline(figure, "curves", "learning curves of the rungs"),
        groups=tuple(group for group in drawn if curves.with_count(group.title, len(seeds[group.title])) in labels),
        band=curves.BAND,
    )


def _own(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> list[RunGroup]:
    """The groups whose runs are drawn: not those that have the runs of another one, and none without runs."""
    return [group for group in groups if group.same_as is None and any(run in details for run in group.runs)]


def eigenvalues(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> PagePlanes | None:
    """The eigenvalues of the first counted run of each group; None where no run is finished."""
    firsts = {group: details[next(run for run in group.runs if run in details)] for group in _own(groups, details)}
    if not firsts:
        return None
    missing = [group.title for group, run in firsts.items() if not run.eigenvalues]
    drawn = {group: run for group, run in firsts.items() if any(run.eigenvalues.values())}
    most = min(_MOST_EIGENVALUES, max(50, _MOST_OF_ALL // max(1, len(drawn))))
    panels = [
        figures.spectrum(
            group.title,
            initial=_sampled(run.eigenvalues.get("start", ()), most),
            trained=_sampled(run.eigenvalues.get("end", ()), most),
        )
        for group, run in drawn.items()
    ]
    caption = []
    if drawn:
        seeds = " and ".join(map(str, sorted({run.seed for run in drawn.values()})))
        caption.append(f"Eigenvalues of the recurrence, all layers, seed {seeds}; the unit circle.")
        if any(len(values) > most for run in drawn.values() for values in run.eigenvalues.values()):
            caption.append(f"Of more than {most}, an even sample is shown.")
        caption += figures.not_finite(panels)
    if missing:
        caption.append(f"Not recorded: {', '.join(missing)}.")
    return PagePlanes(planes=planes(panels), caption=" ".join(caption))


def _sampled(values: Sequence[complex], most: int) -> tuple[complex, ...]:
    return tuple(values[:: math.ceil(len(values) / most) or 1])


class ItemPlane(Struct, frozen=True, kw_only=True):
    """The test items in the plane of the means of two rungs, from 0 to 200 in both directions."""

    title: str
    """The rungs, with an arrow along the axis of each."""
    counts: str
    label: str
    ends: tuple[str, str]
    """The numbers at both ends of the axes."""
    low: float
    high: float
    """The positions of these ends, from left to right."""
    paths: tuple[tuple[str, str], ...]
    """The style of the dots of each side, and a path with all of them."""


_STYLES = {1: "gain", -1: "loss", 0: "same"}
_PLANE, _FRAME = 200.0, 16.0
"""The side of the drawing, and its margin."""


def item_planes(compared: ComparedItems) -> tuple[ItemPlane, ...]:
    """A drawing for each comparison of two rungs."""
    return tuple(_item_plane(pair, compared.scale) for pair in compared.comparisons)


def _item_plane(pair: ItemComparison, scale: float) -> ItemPlane:
    cells, ends = pair.cells, pair.ends
    scaled = math.log if cells.scale == "log" else float
    low, width = scaled(ends[0]), (scaled(ends[1]) - scaled(ends[0])) or 1.0
    inner = _PLANE - 2 * _FRAME

    def position(value: float) -> float:
        return _FRAME + inner * (scaled(value) - low) / width

    def number(value: float) -> str:
        return f"{scale * value:.3g}".replace("-", "−")

    paths = dict.fromkeys(_STYLES, "")
    for x, y, side, diameter in zip(cells.x, cells.y, cells.sides, cells.diameters(), strict=True):
        radius = max(inner * diameter / 2, 0.8)
        arc = f"a{radius:.2f},{radius:.2f} 0 1,0 "
        paths[side] += (
            f"M{position(x) - radius:.2f},{_PLANE - position(y):.2f}{arc}{2 * radius:.2f},0{arc}{-2 * radius:.2f},0"
        )
    counts = f"better on {pair.better:,}, worse on {pair.worse:,}, equal on {pair.equal:,}"
    return ItemPlane(
        title=f"{clean(pair.rung.name)} ↑ beside {clean(pair.other.name)} →",
        counts=f"{counts}; seeds alone: {pair.changed_by_seeds:,.0f}"
        + ("; logarithmic axes" if cells.scale == "log" else ""),
        label=f"{clean(pair.rung.rung)} beside {clean(pair.other.rung)}: {counts}",
        ends=(number(ends[0]), number(ends[1])),
        low=_FRAME,
        high=_PLANE - _FRAME,
        paths=tuple((style, paths[side]) for side, style in _STYLES.items()),
    )


def inline(figure: Figure, prefix: str, label: str) -> Markup:
    """The figure as an element of an HTML page, in the page's ink and without a background.

    `prefix` keeps its ids apart from ids of other figures.
    """
    svg = figure_files.render(figure, ".svg").decode()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # Its style sheet would apply to the whole page.
    svg = re.sub(r"\s*<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(?::xlink)?="[^"]*"| (?:width|height)="[\d.]+pt"', "", svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for color, ours in (("fill: #ffffff", "fill: none"), ("#000000", "currentColor"), ("#cccccc", "var(--rule)")):
        svg = svg.replace(color, ours)
    style = "fill: currentColor; stroke-linejoin: round; stroke-linecap: butt"
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(clean(label))}" style="{style}"', 1))
