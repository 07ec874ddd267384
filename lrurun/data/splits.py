"""Functions for the splits of tasks: parts of generated chunks, and the random orders of published ones, bit for bit.

The file of each task says which examples are for validation. With protocol "paper", `task_data.load` trains on them
too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from lrurun.data.task import Progress


def portions(sizes: Mapping[str, int], first: int, count: int) -> Iterator[tuple[str, int, slice]]:
    """The splits of generated examples `first` to `first + count`: split, first row in it, and which of the examples.

    Test comes first and train last, so that another number of training examples does not change the test split.
    """
    begin = 0
    for split in ("test", "validation", "train"):
        end = begin + sizes[split]
        low, high = max(first, begin), min(first + count, end)
        if low < high:
            yield split, low - begin, slice(low - first, high - first)
        begin = end


Chunk = TypeVar("Chunk", bound=Any)
"""A named tuple of arrays with a row for each example, one of them `labels`."""


def distributed(
    chunks: Iterable[Chunk], sizes: Mapping[str, int], progress: Progress, what: str
) -> Iterator[tuple[str, int, Chunk]]:
    """The parts of generated chunks, as `portions` has them: split, first row in it, and the examples."""
    done, total = 0, sum(sizes.values())
    for chunk in chunks:
        for split, row, rows in portions(sizes, done, len(chunk.labels)):
            yield split, row, type(chunk)(*(array[rows] for array in chunk))
        done += len(chunk.labels)
        progress(what, done, total)


def torch_permutation(n: int, seed: int) -> np.ndarray:
    """(n,) int64: `torch.randperm(n)` with a generator of this seed, as S4 and S5 split their data.

    PyTorch shuffles forwards with the 32-bit outputs of a Mersenne Twister, which NumPy's frozen `RandomState` also
    gives. Above n = 2**32 / 20, PyTorch has another algorithm.
    """
    random = np.random.RandomState(seed).randint(0, 2**32, n, dtype=np.uint32)
    partners = (np.arange(n) + random % np.arange(n, 0, -1)).tolist()
    order = list(range(n))
    for index, partner in enumerate(partners):
        order[index], order[partner] = order[partner], order[index]
    return np.array(order, np.int64)


def tfds_order(n: int, split: str) -> np.ndarray:
    """(n,) int64: the order in which TFDS stores a split of `n` examples with the keys 0 to n - 1."""
    return hashed_order(map(str, range(n)), split)


def hashed_order(keys: Iterable[str], split: str) -> np.ndarray:
    """(n,) int64: the order in which TFDS stores examples with these keys: by MD5 of the split's name and the key."""
    salt = hashlib.md5(split.encode(), usedforsecurity=False)
    digests = []
    for key in keys:
        digest = salt.copy()
        digest.update(key.encode())
        digests.append(digest.digest())
    return np.array(sorted(range(len(digests)), key=digests.__getitem__), np.int64)


def stratified(order: np.ndarray, classes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """`order`, changed so that each of its parts, the first ones of these sizes and the rest, has the classes in the
    proportions of the whole.

    A part takes from each class by the method of Webster (Sainte-Lague), in the order of the class: the example with
    the smallest (rank + 1/2) / examples of the class comes next, of equal ones the first in `order`. The last example
    of a class comes after all others, so that a class is left out of the rest only where all are.

    Args:
        order: (n,) a permutation of the examples.
        classes: (n,) the class of each example.
        sizes: the sizes of all parts but the last.
    """
    parts, rest = [], order
    for size in sizes:
        chosen = np.zeros(len(rest), bool)
        chosen[_by_share(classes[rest])[:size]] = True
        parts.append(rest[chosen])
        rest = rest[~chosen]
    return np.concatenate([*parts, rest])


def _by_share(classes: np.ndarray) -> np.ndarray:
    """(n,) indices, in the order in which a growing part takes them."""
    by_class = np.argsort(classes, kind="stable")
    _, counts = np.unique(classes, return_counts=True)
    count = np.repeat(counts, counts)
    rank = np.arange(len(classes)) - np.repeat(np.cumsum(counts) - counts, counts)
    share = np.where(rank == count - 1, 1.0, (rank + 0.5) / count)
    chosen: np.ndarray = by_class[np.lexsort((by_class, share))]
    return chosen


def grouped(groups: np.ndarray, sizes: Sequence[int], seed: int) -> list[np.ndarray]:
    """The examples of each part, of about these sizes, and the rest; examples of a group are in one part.

    Each part takes the next groups of `numpy.random.RandomState(seed).permutation(number of groups)`, as many as
    bring the number of examples up to its end nearest to what is asked for, and at least one.

    Args:
        groups: (n,) the number of the group of each example, from 0; there are more groups than sizes.
        sizes: the sizes of all parts but the last.
    """
    counts = np.bincount(groups)
    order = np.random.RandomState(seed).permutation(len(counts))
    ends, cuts = np.cumsum(counts[order]), [0]
    for k, wanted in enumerate(np.cumsum(sizes).tolist()):
        least, most = cuts[-1] + 1, len(counts) - (len(sizes) - k)  # each part that follows needs a group
        cuts.append(least + int(np.argmin(np.abs(ends[least - 1 : most] - wanted))))
    rank = np.empty(len(counts), np.int64)
    rank[order] = np.arange(len(counts))
    part = np.searchsorted(cuts, rank[groups], side="right") - 1
    return [np.flatnonzero(part == k) for k in range(len(cuts))]
