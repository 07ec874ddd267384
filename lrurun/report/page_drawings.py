"""What templates draw as SVG: where the marks are. Colours are those of the page's style, for light and dark.

The picture of a ladder opens its pages; intervals are beside claims, and eigenvalues in the plane.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence

from msgspec import Struct

from lrurun.console import clean
from lrurun.report import answer, cells
from lrurun.report.figures import SpectrumPanel
from lrurun.report.judging.claims import JudgedClaim
from lrurun.report.ladder_table import LadderReport
from lrurun.report.row_scores import LadderRow
from lrurun.report.scores import ScoreForm


class PictureRow(Struct, frozen=True, kw_only=True):
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
    """On the change; empty for a rung without a base."""
    change: str
    """The difference to the base."""
    base: str
    """Where that is not the previous rung."""


class Picture(Struct, frozen=True, kw_only=True):
    """The scores of all seeds of a ladder on one axis."""

    axis: str
    unit: str
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[PictureRow, ...]


def ladder(report: LadderReport) -> Picture | None:
    """The picture of a ladder; None without a score."""
    form = report.score
    scores = [score * form.scale for row in report.rows for score in row.scores if math.isfinite(score)]
    if not scores:
        return None
    ticks = answer.ticks(scores)
    low, high = ticks[0], ticks[-1]

    def place(value: float) -> float:
        return round(100 * (value * form.scale - low) / (high - low), 2)

    def row(one: LadderRow) -> PictureRow:
        mean, error = one.mean, one.stderr or 0.0
        return PictureRow(
            rung=one.rung,
            seeds=tuple(place(score) for score in one.scores if math.isfinite(score)),
            mean=None if mean is None else place(mean),
            low=None if mean is None else max(place(mean - error), 0.0),
            high=None if mean is None else min(place(mean + error), 100.0),
            score="\n".join([answer.score(one, report), *cells.uncounted(one)]),
            verdict=one.verdict,
            change=answer.difference(one, report),
            base=one.on or "" if one.branches else "",
        )

    return Picture(
        axis=f"test {form.axis}",
        unit=form.unit,
        ticks=tuple((place(tick / form.scale), f"{tick:g}".replace("-", "−")) for tick in ticks),
        rows=tuple(map(row, report.rows)),
    )


_WIDTH = 360
"""Of an interval."""


class Interval(Struct, frozen=True, kw_only=True):
    """The difference of a claim with its interval; places from left to right."""

    label: str
    low: float
    at: float
    high: float
    ends: tuple[str, str]
    """The numbers of both ends."""
    ticks: tuple[tuple[float, str, str], ...]
    """0 and the margins: place, kind, number."""


def interval(claim: JudgedClaim, form: ScoreForm) -> Interval | None:
    """The interval of a claim, with 0 in the middle of its axis; None where it has none.

    `form` is that of the metric of the report.
    """
    if claim.difference is None or claim.low is None or claim.high is None:
        return None
    low, high, margin = claim.low, claim.high, claim.margin or 0.0
    edge = 1.6 * max(abs(low), abs(high), margin) or 1.0

    def x(value: float) -> float:
        return round(_WIDTH / 2 * (1 + value / edge), 1)

    def number(value: float) -> str:
        return form.difference(value) if not claim.metric else f"{value:+.3g}"

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
    initial: str
    trained: str
    """Paths, with a mark for each eigenvalue."""


def planes(panels: Sequence[SpectrumPanel]) -> tuple[Plane, ...]:
    """A plane for each panel, all on one scale."""
    every = [z for one in panels for z in (*one.initial, *one.trained) if cmath.isfinite(z)]
    edge = 1.08 * max([1.0, *(max(abs(z.real), abs(z.imag)) for z in every)])

    def path(values: Sequence[complex], mark: str) -> str:
        places = ((100 * (1 + z.real / edge), 100 * (1 - z.imag / edge)) for z in values if cmath.isfinite(z))
        return "".join(f"M{x:.1f},{y:.1f}{mark}" for x, y in places)

    return tuple(
        Plane(
            title=clean(one.title),
            label=f"{clean(one.title)}: eigenvalues in the plane, {len(one.initial)} at initialisation, "
            f"{len(one.trained)} after training",
            unit=round(100 / edge, 2),
            initial=path(one.initial, "m-2,0a2,2 0 1,0 4,0a2,2 0 1,0 -4,0"),
            trained=path(one.trained, "m-2,-2l4,4m0,-4l-4,4"),
        )
        for one in panels
    )
