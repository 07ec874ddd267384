"""Small drawings for pages whose policy forbids styles inside of elements: their classes have the page's styles.

They are made of SVG elements: intervals beside claims, and eigenvalues in the plane.
"""

from __future__ import annotations

import cmath
from collections.abc import Sequence
from html import escape

from lrurun.console import clean
from lrurun.report.figures import SpectrumPanel
from lrurun.report.judging.claims import JudgedClaim
from lrurun.report.scores import ScoreForm

_WIDTH, _HEIGHT = 360, 36
"""Of an interval."""


def interval(claim: JudgedClaim, form: ScoreForm) -> str:
    """The difference of a claim with its interval, 0 and the margins; empty where there is none.

    The axis has 0 in its middle. `form` is that of the metric of the report.
    """
    if claim.difference is None or claim.low is None or claim.high is None:
        return ""
    low, high, margin = claim.low, claim.high, claim.margin or 0.0
    edge = 1.6 * max(abs(low), abs(high), margin) or 1.0

    def x(value: float) -> str:
        return f"{_WIDTH / 2 * (1 + value / edge):.1f}"

    def number(value: float) -> str:
        return form.difference(value) if not claim.metric else f"{value:+.3g}"

    def text(at: str, anchor: str, content: str, y: int = 34) -> str:
        return f'<text x="{at}" y="{y}" text-anchor="{anchor}">{content.replace("-", "−")}</text>'

    label = f"interval from {number(low)} to {number(high)} around the difference {number(claim.difference)}"
    ticks = [
        f'<line class="{"margin" if value else "zero"}" x1="{x(value)}" x2="{x(value)}" y1="2" y2="24"/>'
        + text(x(value), "middle", number(value) if value else "0")
        for value in dict.fromkeys([0.0, -margin, margin])
    ]
    ends = text(f"{float(x(low)) - 6:.1f}", "end", number(low), 17)
    ends += text(f"{float(x(high)) + 6:.1f}", "start", number(high), 17)
    return (
        f'<svg class="interval {escape(claim.shown.replace(" ", "-"))}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{"".join(ticks)}{ends}'
        f'<line class="band" x1="{x(low)}" x2="{x(high)}" y1="13" y2="13"/>'
        f'<circle cx="{x(claim.difference)}" cy="13" r="5"/></svg>'
    )


def plane(panels: Sequence[SpectrumPanel]) -> str:
    """Eigenvalues of each panel, on one scale, with the unit circle."""
    every = [z for one in panels for z in (*one.initial, *one.trained) if cmath.isfinite(z)]
    edge = 1.08 * max([1.0, *(max(abs(z.real), abs(z.imag)) for z in every)])
    return "".join(_panel(one, edge) for one in panels)


def _panel(panel: SpectrumPanel, edge: float) -> str:
    def at(z: complex) -> tuple[float, float]:
        return 100 * (1 + z.real / edge), 100 * (1 - z.imag / edge)

    def path(name: str, values: Sequence[complex], mark: str) -> str:
        drawn = "".join(f"M{x:.1f},{y:.1f}{mark}" for x, y in map(at, filter(cmath.isfinite, values)))
        return f'<path class="{name}" d="{drawn}"/>'

    title, counts = escape(clean(panel.title)), (len(panel.initial), len(panel.trained))
    label = f"{title}: eigenvalues in the plane, {counts[0]} at initialisation, {counts[1]} after training"
    return (
        f'<figure class="plane"><svg viewBox="0 0 200 200" role="img" aria-label="{label}">'
        f'<line class="zero" x1="0" x2="200" y1="100" y2="100"/><line class="zero" x1="100" x2="100" y1="0" y2="200"/>'
        f'<circle class="unit" cx="100" cy="100" r="{100 / edge:.2f}"/>'
        f"{path('initial', panel.initial, 'm-2,0a2,2 0 1,0 4,0a2,2 0 1,0 -4,0')}"
        f"{path('trained', panel.trained, 'm-2,-2l4,4m0,-4l-4,4')}</svg><figcaption>{title}</figcaption></figure>"
    )
