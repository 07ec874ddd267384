"""Holm's correction of p-values for the number of hypotheses that are tested together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar


def step_down(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p-values in the order of `p_values`; None stands for no test and is not counted."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    floor = 0.0
    for rank, (p, index) in enumerate(tested):
        floor = max(floor, min(1.0, (len(tested) - rank) * p))
        corrected[index] = floor
    return corrected


_Key = TypeVar("_Key")


def correct(p_values: Mapping[_Key, float | None], *, share: float = 1.0, rest: int = 0) -> dict[_Key, float]:
    """Adjusted p of each hypothesis where a share of the level may be spent; `rest` more are not rejected.

    Results without a test (None) count as p = 1: whether there is a test can depend on the outcome.
    """
    spent = [1.0 if p is None else min(1.0, p / share) for p in p_values.values()]
    corrected = step_down([*spent, *[1.0] * rest])
    return {key: p for key, p in zip(p_values, corrected, strict=False) if p is not None}
