"""How scores are rounded before a rank test or a sign test, so that equal ones are ties.

Scores are recorded in float32, so that equal ones may differ in last bits, and those less a margin do so in the last
bits of float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_DIGITS = 10
"""Decimals at which shifted scores are compared, significant ones of smaller scores: 0.93 less a margin of 0.03 equals
0.9."""


def to_steps(score: float, step: float | None) -> float:
    """The score as a whole number of steps of its metric; as it is for a continuous score, without a step."""
    return score if step is None else round(score / step) * step


def decimals(scores: Sequence[float]) -> int:
    """The decimals at which scores of this size are compared once they are shifted by a margin or by chance."""
    largest = max((abs(score) for score in scores if math.isfinite(score)), default=0.0)
    return _DIGITS if largest == 0 or largest > 1e-3 else _DIGITS - math.floor(math.log10(largest))
