"""Counts over stored arrays, block by block: labels of every position may have gigabytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_BLOCK = 32 << 20
"""Bytes."""


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of an array, some at a time."""
    rows = max(1, _BLOCK * len(array) // max(1, array.nbytes))
    for first in range(0, len(array), rows):
        yield np.asarray(array[first : first + rows])


def labelled(labels: np.ndarray) -> int:
    """How many of these classes are labels: the others are -1."""
    return sum(int(np.count_nonzero(block >= 0)) for block in blocks(labels))


def of_classes(labels: np.ndarray, classes: int) -> np.ndarray:
    """(classes,) int64: how many labels each class has. Other numbers, such as -1 for none, are not counted."""
    total = np.zeros(classes, np.int64)
    for block in blocks(labels):
        total += np.bincount(block[(block >= 0) & (block < classes)].astype(np.int64), minlength=classes)
    return total
