"""Curves with fewer points, for figures on a screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def reduced(
    steps: Sequence[int] | memoryview, values: Sequence[float] | memoryview, points: int
) -> tuple[list[int], list[float]]:
    """At most `points` points of a curve, of at least 4, among them its first, last, smallest and largest.

    Steps are divided into intervals of equal length, of each of which the smallest and the largest finite value are
    kept, and the first that is not finite. A curve with no more points is returned as it is.

    Args:
        steps: increasing.
        values: of the same number; NaN and infinities are allowed.
    """
    if points < 4:
        raise ValueError(f"points: expected at least 4, found {points}")
    if len(steps) <= points:
        return list(steps), list(values)
    at, height = np.asarray(steps, np.int64), np.asarray(values, np.float64)
    is_odd = ~np.isfinite(height)
    of_each = 3 if is_odd.any() else 2
    if points < of_each + 2:
        of_each = 2
    intervals = (points - 2) // of_each
    kept = {0, len(at) - 1}
    edges = np.linspace(at[0], at[-1] + 1, intervals + 1)
    starts = np.searchsorted(at, edges)
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        part = height[start:end]
        finite = np.flatnonzero(~is_odd[start:end])
        if finite.size:
            kept |= {start + int(finite[part[finite].argmin()]), start + int(finite[part[finite].argmax()])}
        if (of_each == 3 or not finite.size) and is_odd[start:end].any():
            kept.add(start + int(is_odd[start:end].argmax()))
    chosen = sorted(kept)
    return at[chosen].tolist(), height[chosen].tolist()
