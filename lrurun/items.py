"""The per-item results of a run, of which its score is a weighted mean.

A verdict that holds for other test items needs them: how far a difference would move with another choice of items is
seen only in how it is spread over those at hand. A ledger has them compressed, see `pack`.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_EPSILON = float(np.finfo(np.float32).eps)


class TestSet(Struct, frozen=True, kw_only=True, dict=True):
    """The items of a test set, in their order."""

    count: int
    order: str = ""
    """A digest of the items and of their order; empty where a program does not say which items they are."""
    weights: Numbers | None = None
    """(count,) the weight of each item in the score; None: they are equal."""
    groups: NDArray[np.int64] | None = None
    """(count,) the number of the group of each item, such as its speaker; None: every item is a group of its own."""

    @cached_property
    def sha256(self) -> str:
        """A digest of all that two runs must have in common for their items to be paired.

        Numbers count as a ledger gives them back, and uncompressed: the same ones can be compressed to other bytes by
        another release of zlib.
        """
        digest = hashlib.sha256(f"{self.count}\n{self.order}\n".encode())
        for part, column in (("weights", self.weights), ("groups", self.groups)):
            digest.update(f"no {part}\n".encode() if column is None else f"{part}\n".encode() + _kept(column))
        return digest.hexdigest()

    def difference(self, other: TestSet) -> str | None:
        """How two test sets differ, as in "90 and 80 items"; None if their items can be paired."""
        if self is other or self.sha256 == other.sha256:
            return None
        if self.count != other.count:
            return f"{self.count:,} and {other.count:,} items"
        if self.order != other.order:
            return "other items, or another order"
        same_weights = self.weights is other.weights or (
            self.weights is not None and other.weights is not None and _kept(self.weights) == _kept(other.weights)
        )
        return "other groups" if same_weights else "other weights"


def _kept(column: NDArray[Any]) -> bytes:
    """Numbers as a ledger gives them back, as the same bytes on every machine."""
    return unpack(pack(np.asarray(column, np.float64))).astype("<f8").tobytes()


class ItemResults(Struct, frozen=True, kw_only=True):
    """The results of one run on the items of a test set, for one score."""

    test_set: TestSet
    sums: Numbers
    """(count,) the contribution of each item: the mean is their sum over the sum of the weights."""

    @property
    def mean(self) -> float:
        """The weighted mean over all items."""
        weights = self.test_set.weights
        return float(self.sums.sum() / (self.test_set.count if weights is None else weights.sum()))

    @property
    def is_counted(self) -> bool:
        """Whether the score is a share of the items: each of them is right or wrong, and all weigh the same."""
        weights = self.test_set.weights
        weight = 1.0 if weights is None else float(weights[0])
        is_even = weights is None or bool((weights == weight).all())
        return is_even and bool(np.isin(self.sums, (0.0, weight)).all())

    @property
    def tolerance(self) -> float:
        """By how much the mean may differ from the score: half a step where items are right or wrong, else what is lost
        where a program sums in float32."""
        count, weights = self.test_set.count, self.test_set.weights
        size = float(np.abs(self.sums).sum() / (count if weights is None else weights.sum()))
        rounding = max(8.0, math.sqrt(count)) * _EPSILON * size
        return max(rounding, 0.5 / count) if self.is_counted else rounding


# Compressed numbers

_BITS, _FLOATS = b"b", b"f"
_WHOLE: dict[bytes, type[np.signedinteger[Any]]] = {b"1": np.int8, b"2": np.int16, b"4": np.int32}
"""First byte of packed numbers -> how the rest is to be read."""


def pack(numbers: Numbers) -> bytes:
    """Numbers as few bytes: zeros and ones as bits, whole numbers as integers, all others as float32.

    What `unpack` reads from them has the same bytes again.
    """
    if not np.array_equal(numbers, np.round(numbers)):  # false for NaN too
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float32).astype(np.float64)  # which may be whole numbers now
    if np.isin(numbers, (0.0, 1.0)).all():
        return _BITS + len(numbers).to_bytes(4, "big") + zlib.compress(np.packbits(numbers == 1).tobytes(), 9)
    largest = np.abs(numbers).max(initial=0.0)
    if largest < 2**31 and np.array_equal(numbers, np.round(numbers)):  # false for NaN and infinities
        prefix, form = next((prefix, form) for prefix, form in _WHOLE.items() if largest <= np.iinfo(form).max)
        return prefix + zlib.compress(numbers.astype(np.dtype(form).newbyteorder("<")).tobytes(), 9)
    table = numbers.astype("<f4").view(np.uint8).reshape(-1, 4)
    return _FLOATS + zlib.compress(np.ascontiguousarray(table.T).tobytes(), 9)  # bytes at one position are alike


def unpack(packed: bytes) -> Numbers:
    """The numbers that `pack` has packed.

    Raises:
        ValueError: these are no packed numbers.
    """
    prefix, rest = packed[:1], packed[1:]
    if prefix not in (_BITS, _FLOATS, *_WHOLE):
        raise ValueError(f"per-item results cannot be read: unknown form {prefix!r}")
    try:
        if prefix == _BITS:
            bits = np.frombuffer(zlib.decompress(rest[4:]), np.uint8)
            return np.unpackbits(bits, count=int.from_bytes(rest[:4], "big")).astype(np.float64)
        raw: Any = zlib.decompress(rest)
        if prefix in _WHOLE:
            return np.frombuffer(raw, np.dtype(_WHOLE[prefix]).newbyteorder("<")).astype(np.float64)
        table = np.frombuffer(raw, np.uint8).reshape(4, -1)
        return np.ascontiguousarray(table.T).view("<f4").ravel().astype(np.float64)
    except (zlib.error, ValueError) as error:
        raise ValueError(f"per-item results cannot be read: {error}") from None
