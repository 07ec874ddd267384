"""The figures of the HTML page: drawn as `lrurun plot` draws them, as SVG inside the page."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from lrurun.report import figure_style, figures
from lrurun.report.content import RunGroup
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


class PageFigure(Struct, frozen=True, kw_only=True):
    """A section of the page."""

    title: str
    caption: tuple[str, ...]
    """Sentences."""
    svg: str
    """Empty where there is nothing to draw."""
    groups: tuple[RunGroup, ...]
    """Whose runs are drawn."""


def of(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> list[PageFigure]:
    """The figures of the runs of `groups`, those without any data left out."""
    drawn = own(groups, details)
    return [found for found in (_curves(drawn, details), _eigenvalues(drawn, details)) if found is not None]


def _curves(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> PageFigure | None:
    seeds = {group: [details[run].curves for run in group.runs if run in details] for group in groups}
    names = {group: f"{group.title} (n={len(curves)})" for group, curves in seeds.items()}
    forms = dict.fromkeys(group.score for group in groups)
    panels = figures.curve_panels({names[group]: curves for group, curves in seeds.items()}, curves_of(*forms))
    if not panels:
        return None
    drawn = {curve.name for panel in panels for curve in panel.curves}
    panels = [structs.replace(panel, curves=tuple(map(_thinned, panel.curves))) for panel in panels]
    return PageFigure(
        title="Learning curves",
        caption=(figures.BAND,),
        svg=inline(figures.curves(panels, title="", caption=""), "curves", "learning curves of the rungs"),
        groups=tuple(group for group in groups if names[group] in drawn),
    )


def _thinned(curve: figures.Curve) -> figures.Curve:
    """The curve with at most `_MOST_POINTS` points, its last among them."""
    every = -(-len(curve.steps) // _MOST_POINTS)
    if every < 2:
        return curve
    kept = slice((len(curve.steps) - 1) % every, None, every)
    columns = {name: getattr(curve, name)[kept] for name in ("steps", "values", "low", "high")}
    return structs.replace(curve, **columns)


def _eigenvalues(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> PageFigure | None:
    if not groups:
        return None
    panels, caption, drawn = spectra(groups, details)
    return PageFigure(
        title="Eigenvalues",
        caption=tuple(caption),
        svg=inline(figures.eigenvalues(panels, title="", caption=""), "eigenvalues", "eigenvalues in the plane")
        if drawn
        else "",
        groups=tuple(drawn),
    )


def own(groups: Sequence[RunGroup], details: Mapping[str, RunDetail]) -> list[RunGroup]:
    """The groups whose runs are drawn: not those that have the runs of another one, and none without runs."""
    return [group for group in groups if group.same_as is None and any(run in details for run in group.runs)]


def spectra(
    groups: Sequence[RunGroup], details: Mapping[str, RunDetail]
) -> tuple[list[figures.SpectrumPanel], list[str], list[RunGroup]]:
    """The eigenvalues of the first counted run of each group: panels, sentences, and the groups that have a panel."""
    firsts = {group: details[next(run for run in group.runs if run in details)] for group in groups}
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
    return panels, caption, list(drawn)


def _sampled(values: Sequence[complex], most: int) -> tuple[complex, ...]:
    return tuple(values[:: math.ceil(len(values) / most) or 1])


def inline(figure: Figure, prefix: str, label: str) -> str:
    """The figure as an element of an HTML page; `prefix` keeps its ids apart from those of other figures."""
    svg = figure_style.encode(figure, ".svg").decode()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"\s*<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    # Its style sheet would apply to the whole page.
    svg = re.sub(r"\s*<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(?::xlink)?="[^"]*"| (?:width|height)="[\d.]+pt"', "", svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    attributes = f'role="img" aria-label="{label}" style="stroke-linejoin: round; stroke-linecap: butt"'
    return svg.replace("<svg", f"<svg {attributes}", 1)
