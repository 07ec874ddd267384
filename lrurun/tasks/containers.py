"""Readers of the files that data come in: TFDS folders, tar archives, PNG images. Nothing is unpacked to disk.

TensorFlow is not needed, and neither TFDS nor Pillow is imported before it is.
"""

from __future__ import annotations

import functools
import gzip
import json
import posixpath
import re
import struct
import tarfile
import zlib
from collections.abc import Iterator
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from lrurun.errors import LrurunError
from lrurun.tasks.base import Tell

_COPY = "the copy is incomplete or damaged: fetch it again"
_FORMATS = ("array_record", "tfrecord")
_BLOCK = 512
"""Bytes; tar archives consist of such blocks, and end with some of zeros."""


class Tfds:
    """A data set that TFDS has prepared, with or without TensorFlow, in array_record or tfrecord files."""

    def __init__(self, folder: Path, table: dict[str, Any]) -> None:
        self.folder = folder
        """The one that holds `dataset_info.json`."""
        self.version: str = table["version"]
        self.format: str = table.get("fileFormat", "tfrecord")
        self.text = f"TFDS {table['name']} {self.version}, {self.format}"
        self.counts = {split["name"]: sum(map(int, split.get("shardLengths", ()))) for split in table.get("splits", ())}
        """Split -> examples."""
        if self.format not in _FORMATS:
            raise LrurunError(
                f"{folder}: the data are in {self.format} files, which cannot be read",
                f"prepare them with TFDS as one of: {', '.join(_FORMATS)}",
            )

    def read(self, split: str) -> Iterator[dict[str, Any]]:
        """The examples of a split in their order: numbers, texts as bytes, images as the bytes of their files.

        Raises:
            LrurunError: the split is not there, or a file of it is missing, cut off or damaged.
        """
        builder = self._builder()
        if split not in builder.info.splits:
            raise LrurunError(f"{self.folder}: no split {split!r} among {', '.join(self.counts)}", _COPY)
        info = builder.info.splits[split]
        paths = [Path(path) for path in info.filepaths]
        for path in paths:
            if not path.is_file():
                raise LrurunError(f"{path}: there is no such file, and dataset_info.json names it", _COPY)
        read = self._array_record if self.format == "array_record" else self._tfrecord
        return read(builder, split, list(zip(paths, info.shard_lengths, strict=True)))

    def _builder(self) -> Any:
        import tensorflow_datasets

        try:
            return tensorflow_datasets.builder_from_directory(self.folder)
        except Exception as error:  # whatever a broken features.json leads to
            raise LrurunError(f"{self.folder}: TFDS cannot read it: {_line(error)}", _COPY) from None

    def _array_record(self, builder: Any, split: str, shards: list[tuple[Path, int]]) -> Iterator[dict[str, Any]]:
        row = 0
        try:
            source = builder.as_data_source(split=split, decoders=_encoded(builder))
            for row in range(len(source)):
                yield source[row]
        except Exception as error:  # RuntimeError of the C++ reader, DecodeError of protobuf, and others
            ends = np.cumsum([count for _, count in shards])
            path, _ = shards[int(np.searchsorted(ends, row, "right"))]
            raise LrurunError(f"{path}: example {row} of {split}: {_line(error)}", _COPY) from None

    def _tfrecord(self, builder: Any, split: str, shards: list[tuple[Path, int]]) -> Iterator[dict[str, Any]]:
        decoders = _encoded(builder)
        for path, count in shards:
            found = 0
            for payload in _records(path):
                try:
                    example = builder.info.features.deserialize_example_np(payload, decoders=decoders)
                except Exception as error:
                    raise LrurunError(f"{path}: record {found} of {split}: {_line(error)}", _COPY) from None
                yield example
                found += 1
            if found != count:
                raise LrurunError(f"{path}: expected {count:,} records, found {found:,}", _COPY)


def tfds(path: Path, name: str, *, version: str | None = None, config: str | None = None) -> Tfds | None:
    """The TFDS data set `name` at `path`, or None where none is there.

    `path` is the folder of a version, that of the data set, or one that holds data sets, as ~/tensorflow_datasets.
    Of several versions the newest is taken, unless one is asked for; of several configurations, `config`.

    Raises:
        LrurunError: its description cannot be read, or it is in another format.
    """
    patterns = ["dataset_info.json", "*/dataset_info.json"]
    patterns += [f"{name}/*/dataset_info.json", f"{name}/*/*/dataset_info.json"]
    if path.absolute().name == name:
        patterns.append("*/*/dataset_info.json")
    found = []
    for file in sorted({file for pattern in patterns for file in path.glob(pattern)}):
        if file.parent.name.startswith("incomplete."):  # TFDS was interrupted
            continue
        table = _description(file)
        if table["name"] != name or (config is not None and table.get("configName") != config):
            continue
        if version in (None, table["version"]):
            found.append((_numbers(table["version"]), file.parent, table))
    if not found:
        return None
    _, folder, table = max(found, key=lambda one: one[0])
    return Tfds(folder, table)


def _description(file: Path) -> dict[str, Any]:
    try:
        table = json.loads(file.read_text())
    except OSError as error:
        raise LrurunError(f"{file}: {error.strerror}", "check its permissions") from None
    except ValueError as error:
        raise LrurunError(f"{file}: not JSON: {error}", _COPY) from None
    if not isinstance(table, dict) or not {"name", "version", "splits"} <= set(table):
        raise LrurunError(f"{file}: not a description of a data set: no name, version or splits", _COPY)
    return table


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _encoded(builder: Any) -> dict[str, Any]:
    """Decoders that leave images as they are stored: some are gray, whatever the description says."""
    import tensorflow_datasets

    images = [
        name
        for name, feature in builder.info.features.items()
        if isinstance(feature, tensorflow_datasets.features.Image)
    ]
    return {name: tensorflow_datasets.decode.SkipDecoding() for name in images}


def _records(path: Path) -> Iterator[bytes]:
    """The records of a tfrecord file: length, its checksum, that many bytes, and their checksum, which is not used."""
    with path.open("rb") as file:
        number = 0
        while head := file.read(12):
            size, check = struct.unpack("<QI", head) if len(head) == 12 else (0, None)
            if check is not None and check != _masked_crc32c(head[:8]):
                raise LrurunError(f"{path}: record {number}: wrong checksum of its length", _COPY)
            payload = file.read(size + 4)
            if check is None or len(payload) != size + 4:
                raise LrurunError(f"{path}: cut off in record {number}", _COPY)
            yield payload[:-4]
            number += 1


@functools.cache
def _crc32c_table() -> list[int]:
    """CRC of every byte with Castagnoli's polynomial, bits reversed."""
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


def _masked_crc32c(data: bytes) -> int:
    table, crc = _crc32c_table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def members(path: Path, tell: Tell | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of a tar archive, gzipped or not, in their order: names without "./", and what to read.

    One pass, nothing on disk: a file must be read before the next one is asked for.

    Raises:
        LrurunError: the archive is none, damaged, or cut off; for the latter two, also where a file is read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream = _Whole(path, gzip.GzipFile(fileobj=file) if zipped else file)
            try:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    for member in archive:
                        if tell:
                            tell(f"reading {path.name}", file.tell(), size)
                        content = archive.extractfile(member) if member.isreg() else None
                        if content:
                            yield posixpath.normpath(member.name).lstrip("/"), content
                        # or the headers of 200,000 files pile up
                        archive.members = []  # type: ignore[attr-defined]
                while stream.read(1 << 20):  # to the checksum at the end
                    pass
            except tarfile.TarError as error:
                raise LrurunError(f"{path}: not a tar archive, or a damaged one: {_line(error)}", _COPY) from None
    except OSError as error:
        if error.filename != str(path):  # of whoever uses what is read
            raise
        raise LrurunError(f"{path}: {error.strerror}", "check the path and its permissions") from None


class _Whole(RawIOBase):
    """Bytes of an archive, read to the end or not at all: what is cut off or damaged is an error wherever it shows."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile) -> None:
        self._path, self._file, self._tail = path, file, b""

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except EOFError:
            raise LrurunError(f"{self._path}: the archive is cut off", _COPY) from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise LrurunError(f"{self._path}: the archive is damaged: {_line(error)}", _COPY) from None
        if not data and self._tail != bytes(_BLOCK):
            raise LrurunError(f"{self._path}: the archive is cut off, or not a tar archive", _COPY)
        self._tail = (self._tail + data[-_BLOCK:])[-_BLOCK:]
        return data


def png(data: bytes, name: str, mode: Literal["L", "RGB"] = "L") -> np.ndarray:
    """The pixels of an image: (height, width) uint8 for mode "L", (height, width, 3) for "RGB".

    Raises:
        LrurunError: it is none; `name` says which.
    """
    from PIL import Image

    if not isinstance(data, bytes):  # TFDS keeps images as arrays if it was told to
        raise LrurunError(f"{name}: expected the bytes of a PNG image, found {type(data).__name__}", _COPY)
    if not data:
        raise LrurunError(f"{name}: the image is empty (0 bytes)", _COPY)
    try:
        with Image.open(BytesIO(data), formats=["PNG"]) as image:
            if image.mode not in ("L", "RGB", "P", "1", "LA", "RGBA"):
                raise ValueError(f"{image.mode} pixels have more than 8 bits")
            return np.asarray(image.convert(mode))
    except Exception as error:  # Pillow raises nearly anything for broken files
        reason = "" if "cannot identify" in str(error) else f": {_line(error)}"
        raise LrurunError(f"{name}: not a PNG image, or a damaged one{reason}", _COPY) from None


def read(path: Path) -> bytes:
    """A small file, whole.

    Raises:
        LrurunError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", _COPY) from None


def _line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
