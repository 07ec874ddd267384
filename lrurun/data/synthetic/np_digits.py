"""npDigits: scikit-learn's handwritten digits, one row of 8 pixels per step, then noise, as in Chang et al. 2019."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from lrurun.data.arrays import Writer
from lrurun.data.synthetic import noise
from lrurun.data.synthetic.digits import SIZES, splits
from lrurun.data.task import Options, Progress, Seed, Source, Spec, Split, Task, limited

SIDE = 8
"""Rows of a digit, and pixels of a row."""


class NpDigitsOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how strong the noise is."""

    length: Annotated[int, Meta(ge=SIDE, le=65_536)] = 80
    """Steps: 8 rows of a digit, then noise."""
    noise: Annotated[int, Meta(ge=0, le=255)] = 3
    """Values of the noise are uniform from 0 to this; pixels have 0 to 16."""
    seed: Seed = 0
    """Seed of the noise."""


class NpDigits(Task):
    """The digits of sDigits with its splits; every example has its own noise, the same in every epoch."""

    name = "npDigits"
    title = "8x8 digits row by row, then noise, 10 classes"
    version = "1"
    """1: the splits of sDigits, pixels 0 to 16 as uint8, noise of version 1."""
    options = NpDigitsOptions
    classes = 10

    def sizes(self, options: NpDigitsOptions) -> dict[str, int]:
        return limited(options, SIZES)

    def spec(self, options: NpDigitsOptions, vocabulary: Sequence[str] = ()) -> Spec:
        return Spec(name=self.name, kind="features", features=SIDE, classes=10, length=options.length, scale=1 / 16)

    def offline(self, options: NpDigitsOptions) -> Source:
        def fill(writer: Writer, progress: Progress) -> None:
            for name, split in splits().items():
                count = self.sizes(options)[name]
                writer.save(name, "inputs", padded(split.inputs[:count], name, options))
                writer.save(name, "labels", split.labels[:count])

        return Source(
            kind="generated",
            text=f"scikit-learn load_digits, {noise.described(options.seed)}",
            fill=fill,
            generator=noise.manifest(options.seed),
        )

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> np.ndarray:
        """The rows from top to bottom."""
        return np.clip(split.inputs[index] * (255 / 16), 0, 255).astype(np.uint8)


def padded(digits: np.ndarray, split: str, options: NpDigitsOptions) -> np.ndarray:
    """(n, 64) uint8 -> (n, length, 8) uint8."""
    count, steps = len(digits), options.length - SIDE
    bits = noise.bits(options.seed, split, 0, count, steps * SIDE).astype(np.uint32)
    levels = (bits * (options.noise + 1) // noise.LEVELS).astype(np.uint8)
    return np.concatenate([digits.reshape(count, SIDE, SIDE), levels.reshape(count, steps, SIDE)], axis=1)
