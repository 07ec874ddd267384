"""Curves with fewer points, for figures: what can be seen stays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

MOST = 1600
"""Points of a reduced curve: two for each column of a wide screen."""


def reduced(curve: Sequence[tuple[int, float]], most: int = MOST) -> list[tuple[int, float]]:
    """At most `most` points of a curve (at least 6): its first and last one, and the smallest and largest finite value
    of each of many spans of equal length. Values that are not finite stay where a span has no others."""
    if len(curve) <= most:
        return list(curve)
    values = np.array([value for _, value in curve], dtype=np.float64)
    finite = np.isfinite(values)
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    edges = np.linspace(1, len(curve) - 1, (most - 2) // 2 + 1).astype(int)
    kept = {0, len(curve) - 1}
    for start, end in pairwise(edges.tolist()):
        if start < end:
            kept |= {start + int(low[start:end].argmin()), start + int(high[start:end].argmax())}
    return [curve[place] for place in sorted(kept)]
