"""Numbers that trackers write in JSON or as texts, and curves of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lrurun.trackers import Curve

_WORD = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)


def number(value: Any) -> float | None:
    """A value as a number, where it is one: also words for NaN and infinities, as which some trackers store them, but
    not true and false. A whole number that no float reaches is infinite."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or _is_word(value)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def step(value: Any) -> int | None:
    """A value as the number of a step, where it is one: a whole number of 64 bits."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and value == value // 1 and abs(value) < 2**63:
        return int(value)
    return None


def curve(points: Iterable[tuple[int, float]]) -> Curve:
    """The curve with these steps and values."""
    steps, values = zip(*points, strict=True)
    return Curve(steps=np.array(steps, np.int64), values=np.array(values, np.float64))


def last_step(curves: Mapping[str, Curve]) -> int | None:
    """The greatest step of the curves of a run; None where there are none."""
    return max((int(np.max(curve.steps)) for curve in curves.values()), default=None)
