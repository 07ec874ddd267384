"""Small drawings for pages whose policy forbids styles inside of elements: their classes have the page's styles.

They are made of SVG elements: intervals beside claims, and eigenvalues in the plane.
"""

from __future__ import annotations

import cmath
from collections.abc import Sequence
from html import escape

from lrurun.console import clean
from lrurun.report.claims import Verdict
from lrurun.report.figures import SpectrumPanel

_WIDTH, _HEIGHT = 320, 34
"""Of an interval."""


def interval(claim: Verdict) -> str:
    """The difference of a claim with its interval, 0 and the margins; empty where there is none.

    The axis has 0 in its middle and its ends in the units of the ledger. Text has the same numbers.
    """
    if claim.difference is None or claim.low is None or claim.high is None:
        return ""
    margin = claim.margin or 0.0
    edge = 1.15 * max(abs(claim.low), abs(claim.high), margin) or 1.0

    def x(value: float) -> str:
        return f"{_WIDTH / 2 * (1 + value / edge):.1f}"

    middle = _HEIGHT / 2 - 4
    ticks = dict.fromkeys([0.0, -margin, margin])
    label = f"interval from {claim.low:.4g} to {claim.high:.4g} around the difference {claim.difference:.4g}"
    marks = "".join(
        f'<line class="{"zero" if value == 0 else "margin"}" x1="{x(value)}" x2="{x(value)}" y1="2" y2="22"/>'
        f'<text x="{x(value)}" y="32" text-anchor="middle">{_number(value)}</text>'
        for value in ticks
    )
    return (
        f'<svg class="interval {escape(claim.shown.replace(" ", "-"))}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}">{marks}'
        f'<line class="band" x1="{x(claim.low)}" x2="{x(claim.high)}" y1="{middle}" y2="{middle}"/>'
        f'<circle cx="{x(claim.difference)}" cy="{middle}" r="5"/></svg>'
    )


def _number(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if value else "0"


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
