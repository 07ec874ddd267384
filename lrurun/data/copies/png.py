"""Decoding of PNG images. Pillow is imported when the first image is decoded."""

from __future__ import annotations

import warnings
from io import BytesIO
from typing import Literal

import numpy as np

from lrurun.data.copies.reading import DAMAGED, first_line
from lrurun.errors import LrurunError

LIMIT = 4 << 20
"""Bytes of a PNG file: 1,024 x 1,024 gray pixels, the most that a task reads, are 1 MiB uncompressed."""


def pixels(data: bytes, name: str, size: int, hint: str, mode: Literal["L", "RGB"] = "L") -> np.ndarray:
    """The pixels of a square image: (size, size) uint8 for mode "L", (size, size, 3) uint8 for "RGB".

    Args:
        name: the image's in messages.
        hint: shown if the image has another size.

    Raises:
        LrurunError: not a PNG image of that size with 8 bits per channel.
    """
    from PIL import Image

    if not data:  # the published Path-X has such a file
        raise LrurunError(f"{name}: the image is empty (0 bytes)", DAMAGED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(data), formats=["PNG"])
        with image:
            if image.size != (size, size):  # known before anything is decompressed
                width, height = image.size
                raise LrurunError(f"{name}: expected {size} x {size} pixels, found {height} x {width}", hint)
            if image.mode not in ("L", "RGB", "P", "1", "LA", "RGBA"):
                raise ValueError(f"{image.mode} pixels have more than 8 bits")
            return np.asarray(image.convert(mode))
    except LrurunError:
        raise
    except Exception as error:  # Pillow raises many types for damaged files
        reason = "" if "cannot identify" in str(error) else f": {first_line(error)}"
        raise LrurunError(f"{name}: not a PNG image, or a damaged one{reason}", DAMAGED) from None
