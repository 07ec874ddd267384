"""Learning curves and eigenvalues of the runs of a report, for its page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape
from msgspec import Struct, structs

from lrurun.console import clean
from lrurun.report import figure_style, figures, page_drawings
from lrurun.report.content import RunGroup
from lrurun.report.page_drawings import Plane
from lrurun.report.run_details import RunDetail
from lrurun.report.scores import curves_of

if TYPE_CHECKING:
    from lrurun.report.figure_style import Figure

_MOST_POINTS = 300
"""Of a curve: more cannot be seen."""
_MOST_EIGENVALUES = 400
"""Points in a panel at each moment: more could not be distinguished."""
_MOST_OF_ALL = 10_000
"""Points in all panels at each moment, of which each panel has at least 50: a page of many rungs is not to be huge."""


class PageCurves(Struct, frozen=True, kw_only=True):
    """The learning curves of a page."""

    svg: Markup
    groups: tuple[RunGroup, ...]
    """Whose runs are drawn."""


class PagePlanes(Struct, frozen=True, kw_only=True):
    """The eigenvalues of a page."""

    planes: tuple[Plane, ...]
    caption: str


def curves(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> PageCurves | None:
    """The curves of the runs of `groups` as SVG; None where there are none."""
    drawn = _own(groups, details)
    seeds = {group: [details[run].curves for run in group.runs if run in details] for group in drawn}
    names = {group: f"{group.title} (n={len(curves)})" for group, curves in seeds.items()}
    forms = dict.fromkeys(group.score for group in drawn)
    panels = figures.curve_panels({names[group]: curves for group, curves in seeds.items()}, curves_of(*forms))
    if not panels:
        return None
    shown = {curve.name for panel in panels for curve in panel.curves}
    panels = [structs.replace(panel, curves=tuple(map(_thinned, panel.curves))) for panel in panels]
    return PageCurves(
        svg=inline(figures.curves(panels, title="", caption=""), "curves", "learning curves of the rungs"),
        groups=tuple(group for group in drawn if names[group] in shown),
    )


def _thinned(curve: figures.Curve) -> figures.Curve:
    """The curve with at most `_MOST_POINTS` points, its last among them."""
    every = -(-len(curve.steps) // _MOST_POINTS)
    if every < 2:
        return curve
    kept = slice((len(curve.steps) - 1) % every, None, every)
    columns = {name: getattr(curve, name)[kept] for name in ("steps", "values", "low", "high")}
    return structs.replace(curve, **columns)


def _own(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> list[RunGroup]:
    """The groups whose runs are drawn: not those that have the runs of another one, and none without runs."""
    return [group for group in groups if group.same_as is None and any(run in details for run in group.runs)]


def eigenvalues(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> PagePlanes | None:
    """The eigenvalues of the first counted run of each group; None where no run is finished."""
    firsts = {group: details[next(run for run in group.runs if run in details)] for group in _own(groups, details)}
    if not firsts:
        return None
    missing = [group.title for group, one in firsts.items() if not one.eigenvalues]
    drawn = {group: one for group, one in firsts.items() if any(one.eigenvalues.values())}
    most = min(_MOST_EIGENVALUES, max(50, _MOST_OF_ALL // max(1, len(drawn))))
    panels = [
        figures.SpectrumPanel(
            title=group.title,
            initial=_sampled(one.eigenvalues.get("start", ()), most),
            trained=_sampled(one.eigenvalues.get("end", ()), most),
        )
        for group, one in drawn.items()
    ]
    caption = []
    if drawn:
        seeds = " and ".join(map(str, sorted({one.seed for one in drawn.values()})))
        caption.append(f"Eigenvalues of the recurrence, all layers, seed {seeds}; the unit circle.")
        if any(len(values) > most for one in drawn.values() for values in one.eigenvalues.values()):
            caption.append(f"Of more than {most}, an even sample is shown.")
        caption += figures.not_finite(panels)
    if missing:
        caption.append(f"Not recorded: {', '.join(missing)}.")
    return PagePlanes(planes=page_drawings.planes(panels), caption=" ".join(caption))


def _sampled(values: Sequence[complex], most: int) -> tuple[complex, ...]:
    return tuple(values[:: math.ceil(len(values) / most) or 1])


def inline(figure: Figure, prefix: str, label: str) -> Markup:
    """The figure as an element of an HTML page, in the page's ink and without a background.

    `prefix` keeps its ids apart from those of other figures.
    """
    svg = figure_style.encode(figure, ".svg").decode()
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
