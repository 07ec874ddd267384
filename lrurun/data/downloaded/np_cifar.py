"""npCIFAR: noise-padded CIFAR-10 (Chang et al. 2019), one row of 32 pixels in colour per step, and then noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated

import numpy as np
from msgspec import Meta, structs

from lrurun.data.copies.reader import Copy
from lrurun.data.copies.tfds import Tfds
from lrurun.data.downloaded.images import MEAN, SIDE, STD, Cifar, CifarOptions
from lrurun.data.synthetic import noise
from lrurun.data.task import Seed, Source, Spec, Split


class NpCifarOptions(CifarOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the noise is."""

    length: Annotated[int, Meta(ge=SIDE, le=65_536)] = 1000
    """Steps: the 32 rows of an image, or 32 / pool, then noise."""
    seed: Seed = 0
    """Seed of the noise."""


class NpCifar(Cifar):
    """The images of sCIFAR with its splits; every example has its own noise, the same in every epoch.

    The noise is standard normal beside standardised pixels. It is stored in levels of pixels, to which it is rounded.
    """

    name = "npCIFAR"
    title = "CIFAR-10 row by row, then noise, 10 classes"
    version = "1"
    """1: the splits and pixels of sCIFAR version 1 as int16, noise of version 1."""
    options = NpCifarOptions
    reducible = ("pool", "length")
    dtype = np.int16
    block = 500

    def spec(self, options: NpCifarOptions, vocabulary: Sequence[str] = ()) -> Spec:
        row = SIDE // options.pool
        return Spec(
            name=self.name,
            kind="features",
            features=3 * row,
            classes=self.classes,
            length=options.length,
            scale=1 / 255,
            mean=MEAN * row,
            std=STD * row,
        )

    def pixels(self, images: np.ndarray, options: NpCifarOptions) -> np.ndarray:
        return images

    def steps(self, images: np.ndarray, split: str, first: int, options: NpCifarOptions) -> np.ndarray:
        count, rows, row, colours = images.shape
        missing = options.length - rows
        bits = noise.bits(options.seed, split, first, count, missing * row * colours)
        levels = _levels()[np.arange(colours), bits.reshape(-1, colours)]
        pixels = images.reshape(count, rows, row * colours).astype(np.int16)
        return np.concatenate([pixels, levels.reshape(count, missing, row * colours)], axis=1)

    def images(self, inputs: np.ndarray, options: NpCifarOptions) -> np.ndarray:
        return super().images(inputs[:, : SIDE // options.pool].reshape(len(inputs), -1, 3), options).astype(np.uint8)

    def source(self, copy: Copy | Tfds, options: NpCifarOptions) -> Source:
        plain = super().source(copy, options)
        text = f"{plain.text}, {noise.described(options.seed)}"
        return structs.replace(plain, text=text, generator=noise.manifest(options.seed))

    def example(self, spec: Spec, split: Split, index: int, vocabulary: Sequence[str]) -> np.ndarray:
        """The rows from top to bottom."""
        row = np.clip(split.inputs[index], 0, 255).astype(np.uint8)
        return row.reshape(spec.length, -1, 3)


@cache
def _levels() -> np.ndarray:
    """(3, 65,536) int16: colour and random bits -> level of a pixel, standard normal once it is standardised."""
    mean, std = (np.array(values)[:, None] for values in (MEAN, STD))
    return np.rint(255 * (mean + std * noise.normal())).astype(np.int16)
