"""An axis of scores, with round numbers at equal steps, for the dot plots of terminals and pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal

from msgspec import Struct

_LIMITS = 1e-100, 1e100
"""The largest score of an axis lies between these, or the axis is one of a power of ten."""


class Axis(Struct, frozen=True, kw_only=True):
    """An axis from the first to the last of its ticks, which are times 10^`exponent`."""

    ticks: tuple[float, ...]
    exponent: int
    scale: float
    """Scores are multiplied by it."""

    def position(self, score: float) -> float:
        """The position of a score, 0 at the beginning of the axis and 1 at its end."""
        low, high = self.ticks[0], self.ticks[-1]
        return (_scaled(score, self.scale, self.exponent) - low) / (high - low)

    @property
    def labelled(self) -> list[tuple[float, str]]:
        """The position of each tick and its number."""
        low, high = self.ticks[0], self.ticks[-1]
        return [((tick - low) / (high - low), self._label(tick)) for tick in self.ticks]

    def _label(self, tick: float) -> str:
        if self.exponent == 0 or tick == 0:
            return f"{tick:g}"
        return f"{Decimal(f'{tick:.6g}').scaleb(self.exponent).normalize():g}"


def of(scores: Iterable[float], scale: float) -> Axis | None:
    """The axis of the finite ones of these scores; None without any."""
    finite = [score for score in scores if math.isfinite(score)]
    if not finite:
        return None
    largest = max(abs(Decimal(score) * Decimal(scale)) for score in finite)
    exponent = 0 if largest == 0 or _LIMITS[0] <= largest <= _LIMITS[1] else largest.adjusted()
    ticks = _ticks([_scaled(score, scale, exponent) for score in finite])
    return Axis(ticks=tuple(ticks), exponent=exponent, scale=scale)


def _scaled(score: float, scale: float, exponent: int) -> float:
    if exponent == 0 or not math.isfinite(score):
        return score * scale
    return float((Decimal(score) * Decimal(scale)).scaleb(-exponent))


def _ticks(scores: Sequence[float]) -> list[float]:
    """Round numbers around the scores, in equal steps: two or more."""
    low, high = min(scores), max(scores)
    least = (high - low or abs(high) or 1) / 4
    power = 10 ** math.floor(math.log10(least))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= least)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]
