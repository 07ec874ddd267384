"""Arrays that are written to disk and counted in pieces, so that none is ever complete in memory."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from lrurun.errors import LrurunError


class ArrayFile:
    """A `.npy` file with a known number of rows, which may be written in any order.

    The bytes are those that `numpy.save` would write. Space is allocated when the file is created, so that a full disk
    is an error then, and not a signal during a write to mapped memory.
    """

    def __init__(self, path: Path, shape: Sequence[int], dtype: Any) -> None:
        self.path, self.shape, self.dtype = path, tuple(map(int, shape)), np.dtype(dtype)
        head = header(self.shape, self.dtype)
        self._row = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        self._start = len(head)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._filled = np.zeros(self.shape[0], bool)
        _write(self._descriptor, head, 0)
        size = self._start + self._row * self.shape[0]
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
        else:  # macOS
            os.ftruncate(self._descriptor, size)

    def put(self, first: int, rows: np.ndarray) -> None:
        """Writes rows `first` and following. Values never wrap around.

        Raises:
            LrurunError: the rows do not fit the array's shape, or a value its type.
        """
        values = np.ascontiguousarray(rows, self.dtype) if np.can_cast(rows.dtype, self.dtype, "safe") else None
        if values is None:
            values = np.ascontiguousarray(rows.astype(self.dtype))
            if not np.array_equal(values, rows):
                raise LrurunError(
                    f"{self.path.name}: values do not fit {self.dtype}", "this is a bug: please report it"
                )
        last = first + len(values)
        if values.shape[1:] != self.shape[1:] or first < 0 or last > self.shape[0]:
            raise LrurunError(
                f"{self.path.name}: rows {first} to {last} of shape {values.shape[1:]} do not fit {self.shape}",
                "the source has more data than expected, or different data",
            )
        _write(self._descriptor, values.tobytes(), self._start + first * self._row)
        self._filled[first:last] = True

    def missing(self) -> int:
        """The number of rows that have not been written."""
        return int(np.count_nonzero(~self._filled))

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Writer:
    """The folder of one task while it is being written: arrays, and facts for the manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays: dict[str, ArrayFile] = {}
        self.vocabulary: list[str] = []
        """Tokens in the order of their ids, for tasks of tokens."""
        self.baselines: dict[str, float] = {}
        """Naive predictor -> its score on the test split, as a fraction."""
        self.notes: list[str] = []
        """Sentences about this copy, for users."""

    def create(self, split: str, part: str, shape: Sequence[int], dtype: Any) -> ArrayFile:
        """Creates the array `<split>-<part>.npy`; `part` is "inputs", "labels", "lengths" or, for tests, "groups"."""
        name = f"{split}-{part}"
        self.arrays[name] = ArrayFile(self.folder / f"{name}.npy", shape, dtype)
        return self.arrays[name]

    def save(self, split: str, part: str, array: np.ndarray) -> None:
        """Writes a complete array."""
        self.create(split, part, array.shape, array.dtype).put(0, array)

    def finish(self) -> dict[str, str]:
        """Closes the arrays; returns array name -> sha256 of its file.

        Raises:
            LrurunError: rows are missing.
        """
        for name, array in self.arrays.items():
            if array.missing():
                raise LrurunError(
                    f"{name}: {array.missing()} of {array.shape[0]} examples are missing", "the source is incomplete"
                )
        self.close()
        return {name: sha256(array.path) for name, array in self.arrays.items()}

    def close(self) -> None:
        """Closes every file."""
        for array in self.arrays.values():
            array.close()


def header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """The bytes before the numbers of an array in a `.npy` file."""
    head = BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


def sha256(path: Path, progress: Callable[[int, int], None] | None = None) -> str:
    """Hex digest of a file's bytes. `progress` is called with the bytes that are done, and all of them."""
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(_READ):
            digest.update(block)
            done += len(block)
            if progress:
                progress(done, size)
    return digest.hexdigest()


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


_BLOCK = 4 << 20
"""Bytes."""
_READ = 1 << 18
"""Bytes."""


def blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of an array, some at a time; pages of a file that is mapped do not stay in memory."""
    rows = max(1, _BLOCK * len(array) // max(1, array.nbytes))
    mapped = getattr(array, "_mmap", None)
    for first in range(0, len(array), rows):
        yield np.asarray(array[first : first + rows])
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


def count_labels(labels: np.ndarray) -> int:
    """How many of these classes are labels: the others are -1."""
    return sum(int(np.count_nonzero(block >= 0)) for block in blocks(labels))


def count_classes(labels: np.ndarray, classes: int) -> np.ndarray:
    """(classes,) int64: how many labels each class has. Other numbers, such as -1 for none, are not counted."""
    total = np.zeros(classes, np.int64)
    for block in blocks(labels):
        total += np.bincount(block[(block >= 0) & (block < classes)].astype(np.int64), minlength=classes)
    return total
