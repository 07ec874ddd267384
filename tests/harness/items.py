"""Per-item results, for tests of reports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lrurun.items import ItemResults, TestSet


@cache
def _test_set(count: int) -> TestSet:
    return TestSet(count=count, order="0" * 64)


def alike(score: float, count: int) -> ItemResults:
    """Every item contributes the same, so that another choice of items would not change this score."""
    return ItemResults(test_set=_test_set(count), sums=np.full(count, score))


def on_items(values: NDArray[np.float64]) -> ItemResults:
    """The results of a run that contributed so much on each item."""
    return ItemResults(test_set=_test_set(len(values)), sums=values)


def drawn(
    rungs: Mapping[str, float], seeds: int, count: int, *, taste: float, spread: float = 0.05, number: int = 0
) -> dict[str, list[ItemResults]]:
    """Right and wrong answers of runs: rung -> those of each seed.

    The logit of a right answer is that of the item, the `taste` of the rung for it, the skill of the rung, which
    `rungs` names, and that of the seed, whose `spread` is given.
    """
    rng = np.random.default_rng(number)
    difficulty = rng.normal(1.0, 1.5, count)
    found: dict[str, list[ItemResults]] = {}
    for rung, skill in rungs.items():
        own = difficulty + skill + taste * rng.normal(size=count)
        logits = own + spread * rng.normal(size=(seeds, 1)) + 0.3 * rng.normal(size=(seeds, count))
        right = rng.random((seeds, count)) < 1 / (1 + np.exp(-logits))
        found[rung] = [ItemResults(test_set=_test_set(count), sums=answers.astype(np.float64)) for answers in right]
    return found
