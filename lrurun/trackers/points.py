"""Points of metrics: the numbers that trackers write as texts or in JSON, and curves of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lrurun.trackers import Curve

_WORD = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)


def number(value: Any) -> float | None:
    """A value as a number, where it is one: also words for NaN and infinities, as which some trackers store them."""
    if isinstance(value, int | float) or (isinstance(value, str) and _WORD.fullmatch(value)):
        with contextlib.suppress(OverflowError):
            return float(value)
    return None


def step(value: Any) -> int | None:
    """A value as the number of a step, where it is one: a whole number of 64 bits."""
    if isinstance(value, int | float) and value == value // 1 and abs(value) < 2**63:
        return int(value)
    return None


def curve(points: Iterable[tuple[int, float]]) -> Curve:
    """The curve with these steps and values."""
    steps, values = zip(*points, strict=True)
    return Curve(steps=np.array(steps, np.int64), values=np.array(values, np.float64))


def last_step(curves: Mapping[str, Curve]) -> int | None:
    """The greatest step of the curves of a run; None where there are none."""
    return max((int(np.max(curve.steps)) for curve in curves.values()), default=None)
