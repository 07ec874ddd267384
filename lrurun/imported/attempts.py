"""Curves whose steps go back, in the order of recording: after an attempt that was abandoned, or from two writers.

**An abandoned attempt.** A run that is resumed from an older checkpoint repeats steps: what was recorded before the
resumption, at the step of the checkpoint and later ones, is void, as with the purge of TensorBoard. The last attempt
counts.

**Two writers.** All points stay, and of each step the one that was recorded last, where no attempt can be
distinguished from another: if half of the steps or more go back, and more than one; or if, after a step back, the
curve goes on beyond all earlier steps and leaves out two or more of those between, or one of which a later point is
beside: both parts go on.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun.trackers import Curve


class OrderedCurve(Struct, frozen=True):
    """A curve with increasing steps from 0 on, and one value for each."""

    curve: Curve
    went_back: Literal["", "attempts", "writers"] = ""
    """Why its steps went back, if they did."""


def ordered(curve: Curve) -> OrderedCurve:
    """The points of a curve that count, by the rule at the head of this module.

    Points before step 0 are left out: trackers have values without steps there.
    """
    counted = curve.steps >= 0
    steps, values = curve.steps[counted], curve.values[counted]
    differences = np.diff(steps)
    if (differences > 0).all():
        return OrderedCurve(curve if counted.all() else Curve(steps=steps, values=values))
    if (differences < 0).any() and not _interleave(steps):
        later = np.minimum.accumulate(steps[::-1])[::-1]
        live = np.append(steps[:-1] < later[1:], True)
        return OrderedCurve(Curve(steps=steps[live], values=values[live]), "attempts")
    last_first = slice(None, None, -1)
    unique, index = np.unique(steps[last_first], return_index=True)
    latest = Curve(steps=unique, values=values[last_first][index])
    return OrderedCurve(latest, "writers" if (differences < 0).any() else "")


def one_per_step(curve: Curve) -> Curve:
    """The points of a curve that count: see `ordered`."""
    return ordered(curve).curve


def _interleave(steps: NDArray[np.int64]) -> bool:
    """Whether steps that go back are of two writers."""
    returns = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(returns) > 1 and 2 * len(returns) >= len(steps) - 1:
        return True
    greatest = np.maximum.accumulate(steps)
    beyond = np.flatnonzero((steps[1:] > greatest[:-1]) & (steps[:-1] < greatest[:-1])) + 1
    for index in beyond.tolist():
        before, after = steps[index - 1], steps[index]
        left_out = np.unique(steps[:index][steps[:index] > before])
        following = returns[returns > index][:1]
        if len(left_out) > 1 or (len(left_out) and any(before < steps[k] < after for k in following)):
            return True
    return False
