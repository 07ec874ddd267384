"""Noise that follows an image in a noise-padded sequence (Chang et al. 2019): random bits, fixed for each example.

The bits are from Philox 4x64 with ten rounds (Salmon et al. 2011), a counter-based generator: the key is the seed
and the number of the split, and each example has its own counters, so that the noise of an example depends neither on
the others nor, in its first steps, on the length. NumPy never changes the bits of its bit generators.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from lrurun.data.task import SPLITS

VERSION = "1"
"""Version of the bits that a seed gives."""

LEVELS = 1 << 16


def described(seed: int) -> str:
    """The noise in the description of a source."""
    return f"then lrurun noise {VERSION}, seed {seed}"


def manifest(seed: int) -> dict[str, Any]:
    """The generator as the manifest of the data records it."""
    return {"name": "lrurun noise", "version": VERSION, "seed": seed}


def bits(seed: int, split: str, first: int, count: int, values: int) -> np.ndarray:
    """(count, values) uint16, uniform: the noise of `count` examples of a split, beginning with example `first`."""
    noise = np.empty((count, values), np.uint16)
    for row in range(count):
        source = np.random.Philox(key=[seed, SPLITS.index(split)], counter=[0, 0, 0, first + row])
        noise[row] = source.random_raw(-(-values // 4)).astype("<u8").view("<u2")[:values]
    return noise


def normal() -> np.ndarray:
    """(65,536,) float64: the standard normal value for each uint16, at the middle of its share of the probability."""
    return np.array([NormalDist().inv_cdf((level + 0.5) / LEVELS) for level in range(LEVELS)])
