"""Results on single test items, for tests of reports."""

from __future__ import annotations

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


def drawn(score: float, count: int, seed: int, spread: float = 0.0) -> ItemResults:
    """So many right answers that their share is nearly this score: for all runs of a `seed` on the same items, but for
    a `spread` of their difficulty."""
    rng = np.random.default_rng(seed)
    difficulty = np.random.default_rng(0).normal(size=count) + spread * rng.normal(size=count)
    right = np.argsort(np.argsort(difficulty)) < round(score * count)
    return ItemResults(test_set=_test_set(count), sums=right.astype(np.float64))
