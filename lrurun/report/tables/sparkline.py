"""A curve in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.:-=+*#"
"""The characters for outputs that cannot show blocks."""
NOT_FINITE = "!"


def draw(values: Sequence[float], width: int, levels: str = BLOCKS, *, low: float | None = None) -> str:
    """`values` from left to right in at most `width` characters; where one stands for several, it is their mean.

    Args:
        low: the value of the lowest level; None for the smallest of the means.
    """
    means = averages(values, width)
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite, default=0.0) if low is None else low, max(finite, default=0.0)
    return "".join(_level(mean, low, high, levels) if math.isfinite(mean) else NOT_FINITE for mean in means)


def averages(values: Sequence[float], width: int) -> list[float]:
    """`values` as at most `width` numbers, each the mean of neighbours."""
    count = min(len(values), max(width, 1))
    edges = [len(values) * k // count for k in range(count + 1)] if count else []
    return [sum(part) / len(part) for a, b in pairwise(edges) if (part := values[a:b])]


def _level(value: float, low: float, high: float, levels: str) -> str:
    # Halved first: the difference of two large numbers might not be finite.
    span = high / 2 - low / 2
    share = (value / 2 - low / 2) / span if span > 0 else 0.0
    return levels[min(int(share * len(levels)), len(levels) - 1)]
