"""The random orders of published splits, bit for bit, without the libraries that made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def torch_permutation(n: int, seed: int) -> np.ndarray:
    """(n,) int64: `torch.randperm(n)` with a generator of this seed, as S4 and S5 split their data.

    PyTorch shuffles forwards with the 32-bit outputs of a Mersenne Twister, which NumPy's frozen `RandomState` also
    gives. Above n = 2**32 / 20, PyTorch has another algorithm.
    """
    random = np.random.RandomState(seed).randint(0, 2**32, n, dtype=np.uint32)
    partners = (np.arange(n) + random % np.arange(n, 0, -1)).tolist()
    order = list(range(n))
    for place, partner in enumerate(partners):
        order[place], order[partner] = order[partner], order[place]
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
