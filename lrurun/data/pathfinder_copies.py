"""Copies of Long Range Arena's Pathfinder images: folders, the released archive, TFDS folders.

Images are read one at a time: Path-X is never complete in memory.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from lrurun.data import archives, lra, png, reading, tfds
from lrurun.data.orders import hashed_order, torch_permutation
from lrurun.data.task import Progress
from lrurun.errors import LrurunError

LEVEL = "curv_contour_length_14"
"""The folder of the published difficulty, "hard"."""
TFDS_SPLIT = "hard"
"""Its name in Long Range Arena's TFDS builder."""

_LIST_LIMIT = 4 << 20
"""Bytes of a list: 1,000 lines are about 100 kB of text, or 1 MB as an array of texts."""
_LISTS_LIMIT = 1 << 28
"""Bytes of all lists: there are 200."""
_LIST_NAME = re.compile(r"[0-9]{1,9}\.npy")
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
"""The name of an image, relative to the folder of the level; it leads nowhere else."""

HINT = "give an undamaged copy, or omit --from to generate the data"


class Sample(NamedTuple):
    """A stored image."""

    number: int
    where: str
    """The image's place, for messages."""
    image: bytes
    """PNG."""
    label: int


class Copy(ABC):
    """A copy of the released images."""

    where: str
    text: str
    note = ""
    """A note for the split "s4"."""

    @abstractmethod
    def order(self, split: str, total: int, progress: Progress) -> np.ndarray:
        """(n,) indices of all images, of which there should be `total`: train, then validation, then test."""

    @abstractmethod
    def samples(self, wanted: set[int], progress: Progress) -> Iterator[Sample]:
        """The images with these indices, in any order."""

    def name(self, index: int) -> str:
        return f"image {index}"


class _Prepared(Copy):
    """Prepared by Long Range Arena's TFDS builder, which keeps no names: only its own order is known."""

    note = "the copy is in the order of TFDS, without names of images: the split is random like that of S4, but another"

    def __init__(self, prepared: tfds.Tfds) -> None:
        self._prepared = prepared
        self.where = str(prepared.folder)
        self.text = f"{prepared.text}, {prepared.folder.absolute()}"

    def order(self, split: str, total: int, progress: Progress) -> np.ndarray:
        if TFDS_SPLIT not in self._prepared.counts:
            found = ", ".join(self._prepared.counts)
            raise LrurunError(f"{self.where}: expected a split {TFDS_SPLIT!r}, found {found}", HINT)
        count = self._prepared.counts[TFDS_SPLIT]
        if count != total:
            raise LrurunError(f"{self.where}: expected {total:,} images, found {count:,}", HINT)
        return torch_permutation(count, 42) if split == "s4" else np.arange(count)

    def samples(self, wanted: set[int], progress: Progress) -> Iterator[Sample]:
        for index, example in enumerate(self._prepared.read(TFDS_SPLIT, {"image": bytes, "label": int})):
            where = f"{self.where}: {TFDS_SPLIT}: example {index}"
            if example["label"] not in (0, 1):
                raise LrurunError(f"{where}: expected a label of 0 or 1, found {example['label']}", HINT)
            if index in wanted:
                yield Sample(index, where, example["image"], int(example["label"]))


class _Release(Copy):
    """As released: images, and lists of them. Images are numbered in the order of the lists and their lines."""

    def __init__(self) -> None:
        self._rows: list[_Line] = []

    def order(self, split: str, total: int, progress: Progress) -> np.ndarray:
        lists = self.lists(progress)
        if not lists:
            raise LrurunError(f"{self.where}: metadata/0.npy and all others missing", HINT)
        files = [(f"{self.where}/metadata/{number}.npy", lists[number]) for number in sorted(lists)]
        self._rows = []
        for where, content in files:
            self._rows += _rows(content, where)
            if len(self._rows) > 2 * total:  # a few too many are reported by the caller
                break
        name, count = Counter(row.name for row in self._rows).most_common(1)[0] if self._rows else ("", 0)
        if count > 1:
            raise LrurunError(f"{self.where}: {name} is listed {count} times", HINT)
        if split == "s4":
            return torch_permutation(len(self._rows), 42)
        return hashed_order([row.key for row in self._rows], TFDS_SPLIT)

    def name(self, index: int) -> str:
        return self._rows[index].name

    @abstractmethod
    def lists(self, progress: Progress) -> dict[int, bytes]:
        """Number -> content of `metadata/<number>.npy`."""


class _Folder(_Release):
    """A level in a folder."""

    def __init__(self, level: Path, others: bool) -> None:
        super().__init__()
        self._level, self.where = level, str(level)
        choice = ", the inner one of two copies" if others else ""
        self.text = f"Long Range Arena's release, {level.absolute()}{choice}"

    def lists(self, progress: Progress) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        left = _LISTS_LIMIT
        for path in (self._level / "metadata").iterdir():
            if _LIST_NAME.fullmatch(path.name):
                found[int(path.stem)] = reading.read_file(path, min(left, _LIST_LIMIT))
                left -= len(found[int(path.stem)])
        return found

    def samples(self, wanted: set[int], progress: Progress) -> Iterator[Sample]:
        for index in sorted(wanted):
            path = self._level / self._rows[index].name
            yield Sample(index, str(path), reading.read_file(path, png.LIMIT), self._rows[index].label)


class _Archive(_Release):
    """A level in the released archive, which is read twice because lists may come after images."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__()
        self._path, self._name = path, name
        self.where = f"{path}: {name}/{LEVEL}"
        self.text = f"Long Range Arena's release, {path.absolute()}"

    def lists(self, progress: Progress) -> dict[int, bytes]:
        found: dict[PurePosixPath, dict[int, bytes]] = {}
        left = _LISTS_LIMIT
        for member, file in archives.members(self._path, progress):
            path = PurePosixPath(member)
            level = path.parent.parent
            if path.parent.name == "metadata" and (level.parent.name, level.name) == (self._name, LEVEL):
                if _LIST_NAME.fullmatch(path.name):
                    content = reading.read(file, min(left, _LIST_LIMIT), f"{self._path}: {member}")
                    found.setdefault(level, {})[int(path.stem)] = content
                    left -= len(content)
        if not found:
            return {}
        level = max(found, key=lra.inner)
        self.where = f"{self._path}: {level}"
        return found[level]

    def samples(self, wanted: set[int], progress: Progress) -> Iterator[Sample]:
        level = self.where.removeprefix(f"{self._path}: ")
        indices = {f"{level}/{self._rows[index].name}": index for index in wanted}
        for member, file in archives.members(self._path, progress):
            index = indices.pop(member, None)
            if index is not None:
                where = f"{self._path}: {member}"
                image = reading.read(file, png.LIMIT, where)
                yield Sample(index, where, image, self._rows[index].label)


def find(path: Path, name: str) -> Copy | None:
    if path.is_file():
        return _Archive(path, name) if archives.is_archive(path) else None
    levels = [folder / LEVEL for folder in lra.folders(path, name)]
    if path.absolute().name == LEVEL:
        levels.append(path)
    found = [level for level in levels if (level / "metadata").is_dir()]
    if found:
        return _Folder(found[0], others=len(found) > 1)
    archive = next((path / file for file in lra.ARCHIVES if (path / file).is_file()), None)
    if archive:
        return _Archive(archive, name)
    prepared = tfds.find(path, name)
    return _Prepared(prepared) if prepared else None


class _Line(NamedTuple):
    """A line of a list."""

    name: str
    """The image's, relative to the folder of the level."""
    label: int
    key: str
    """The key of the image in Long Range Arena's TFDS builder."""


def _rows(content: bytes, where: str) -> list[_Line]:
    """The lines of a list, which is text, or an array of texts saved by NumPy.

    Raises:
        LrurunError: file, line, and the error.
    """
    rows = []
    for number, fields in enumerate(_fields(content, where), 1):
        if len(fields) < 4:
            raise LrurunError(f"{where}:{number}: expected 4 fields or more, found {len(fields)}", HINT)
        if fields[3] not in ("0", "1"):
            raise LrurunError(f"{where}:{number}: expected a label of 0 or 1, found {fields[3][:40]!r}", HINT)
        name = f"{fields[0]}/{fields[1]}"
        if not _NAME.fullmatch(name):
            raise LrurunError(f"{where}:{number}: expected an image as imgs/0 sample_0.png, found {name[:200]!r}", HINT)
        rows.append(_Line(name, int(fields[3]), f"{fields[0]}_{fields[1]}_{number}"))
    return rows


def _fields(content: bytes, where: str) -> list[list[str]]:
    if not content.startswith(b"\x93NUMPY"):
        try:
            return [line.split() for line in content.decode().splitlines()]
        except UnicodeDecodeError as error:
            raise LrurunError(f"{where}: neither text nor a NumPy array: {error.reason}", HINT) from None
    try:
        array = np.load(BytesIO(content), allow_pickle=False)
        if array.dtype.kind not in "US" or array.ndim not in (1, 2) or array.size > len(content):
            raise ValueError(f"found {array.ndim} axes of {array.dtype}")
        texts = array.astype(str).tolist()
    except Exception as error:  # NumPy raises many types for an invalid header
        raise LrurunError(f"{where}: not an array of texts: {reading.first_line(error)}", HINT) from None
    return [text.split() if isinstance(text, str) else [" ".join(field.split()) for field in text] for text in texts]
