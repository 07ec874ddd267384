"""Arithmetic with numbers up to the limits of float64: units in which they can be added and squared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_SMALL, _LARGE = 1e-140, 1e140
"""Squares of numbers between these are exact enough, and their sums do not overflow."""


def unit_of(values: Iterable[float]) -> float:
    """A power of two near the largest of these numbers, by which they are divided before they are squared or added.

    It is 1 unless squares would overflow or vanish, and exact. Numbers that are not finite are ignored.
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0 or _SMALL <= largest <= _LARGE:
        return 1.0
    return math.ldexp(1.0, math.frexp(largest)[1] - 1)


def mean(values: Sequence[float]) -> float:
    """The mean of one or more numbers; NaN of infinities of both signs."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        unit = unit_of(values)
        return unit * (math.fsum(value / unit for value in values) / len(values))
    except ValueError:  # infinities of both signs
        return math.nan
