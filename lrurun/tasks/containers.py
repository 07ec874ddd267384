"""Readers of the files that data come in: TFDS folders, tar archives, PNG images. Nothing is unpacked to disk.

Whoever made a file may mean harm: nothing is read whole without a limit, and nothing is read but regular files.
TensorFlow is not needed, and neither TFDS nor Pillow is imported before it is.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import posixpath
import re
import stat
import struct
import tarfile
import warnings
import zlib
from collections.abc import Iterator, Mapping
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec
import numpy as np

from lrurun.errors import LrurunError
from lrurun.tasks.base import Tell

_COPY = "the copy is incomplete or damaged: fetch it again"
_FORMATS = ("array_record", "tfrecord")
_BLOCK = 512
"""Bytes; tar archives consist of such blocks, and end with some of zeros."""
IMAGE = 4 << 20
"""Bytes of a PNG file, at most: 1,024 x 1,024 gray pixels, the most that a task asks for, are 1 MiB unpacked."""
_RECORD = 16 << 20
"""Bytes of a record of a TFDS file, at most: those of the tasks are a review or a small image, some kilobytes."""
_TABLE = 16 << 20
"""Bytes of a description that TFDS has written, at most: they are kilobytes."""
_NAME = 1000
"""Bytes of a member's name, at most: those of published archives have fewer than 100, and errors show them."""
_PIECE = 1 << 16
"""Bytes read at once: room for all that is asked for is made before anything is read."""
_HEADER = 1 << 16
"""Bytes of what a tar archive says of a member in headers of its own, at most: paths have 4,096 on Linux."""
_PAST = 9
"""Reads past the end, at most: it takes one or two, and to skip a member of petabytes tarfile would never stop."""
_LONG = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)
"""Types of such headers, which tarfile reads whole."""


class _Part(msgspec.Struct, rename="camel"):
    """A split, as TFDS describes it."""

    name: str
    shard_lengths: list[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,12}\Z")]] = []


class _Description(msgspec.Struct, rename="camel"):
    """What is read of `dataset_info.json`."""

    name: str
    version: Annotated[str, msgspec.Meta(pattern=r"^[\w.+-]{1,40}\Z")]
    splits: list[_Part]
    file_format: str = "tfrecord"
    config_name: str | None = None


class Tfds:
    """A data set that TFDS has prepared, with or without TensorFlow, in array_record or tfrecord files."""

    def __init__(self, folder: Path, table: _Description) -> None:
        self.folder = folder
        """The one that holds `dataset_info.json`."""
        self.version = table.version
        self.format = table.file_format
        self.text = f"TFDS {table.name} {self.version}, {self.format}"
        self.counts = {split.name: sum(map(int, split.shard_lengths)) for split in table.splits}
        """Split -> examples."""
        if self.format not in _FORMATS:
            raise LrurunError(
                f"{folder}: the data are in {self.format} files, which cannot be read",
                f"prepare them with TFDS as one of: {', '.join(_FORMATS)}",
            )

    def read(self, split: str, features: Mapping[str, type]) -> Iterator[dict[str, Any]]:
        """The examples of a split in their order: numbers, texts as bytes, images as the bytes of their files.

        `features` are those that every example must have, each with `int` or `bytes`.

        Raises:
            LrurunError: the split is not there, a file of it is missing, cut off or damaged, or an example is another.
        """
        builder = self._builder()
        if split not in builder.info.splits:
            raise LrurunError(f"{self.folder}: no split {split!r} among {', '.join(self.counts)}", _COPY)
        info = builder.info.splits[split]
        paths = [Path(path) for path in info.filepaths]
        for path in paths:
            if os.path.normpath(path.parent) != os.path.normpath(self.folder):
                raise LrurunError(f"{path}: leads out of {self.folder}, and dataset_info.json names it", _COPY)
            if not path.is_file():
                raise LrurunError(f"{path}: there is no such file, and dataset_info.json names it", _COPY)
        read = self._array_record if self.format == "array_record" else self._tfrecord
        return self._checked(split, read(builder, split, list(zip(paths, info.shard_lengths, strict=True))), features)

    def _checked(
        self, split: str, examples: Iterator[dict[str, Any]], features: Mapping[str, type]
    ) -> Iterator[dict[str, Any]]:
        kinds = {int: (int, np.integer), bytes: (bytes,)}
        for row, example in enumerate(examples):
            where = f"{self.folder}: {split}: example {row}"
            if not set(features) <= set(example):
                wanted = " and ".join(sorted(features))
                raise LrurunError(f"{where}: expected features {wanted}, found {', '.join(example)}", _COPY)
            for name, kind in features.items():
                if not isinstance(example[name], kinds[kind]):
                    found = type(example[name]).__name__
                    raise LrurunError(f"{where}: {name}: expected {kind.__name__}, found {found}", _COPY)
            yield example

    def _builder(self) -> Any:
        import tensorflow_datasets

        self._check_classes(self.folder / "features.json")
        try:
            return tensorflow_datasets.builder_from_directory(self.folder)
        except Exception as error:  # whatever a broken features.json leads to
            raise LrurunError(f"{self.folder}: TFDS cannot read it: {line(error)}", _COPY) from None

    def _check_classes(self, file: Path) -> None:
        """Whether the description of the features names only classes of TFDS, which imports any module named there.

        Raises:
            LrurunError: it names another one.
        """
        if not file.exists():
            return  # TFDS says what it misses
        for name in _strings(_json(file), "pythonClassName"):
            if not name.startswith("tensorflow_datasets.core.features."):
                raise LrurunError(f"{file}: names {name[:200]!r}, which is no feature of TFDS", _COPY)

    def _array_record(self, builder: Any, split: str, shards: list[tuple[Path, int]]) -> Iterator[dict[str, Any]]:
        row = 0
        try:
            source = builder.as_data_source(split=split, decoders=_encoded(builder))
            for row in range(len(source)):
                yield source[row]
        except Exception as error:  # RuntimeError of the C++ reader, DecodeError of protobuf, and others
            ends = np.cumsum([count for _, count in shards])
            path, _ = shards[int(np.searchsorted(ends, row, "right"))]
            raise LrurunError(f"{path}: example {row} of {split}: {line(error)}", _COPY) from None

    def _tfrecord(self, builder: Any, split: str, shards: list[tuple[Path, int]]) -> Iterator[dict[str, Any]]:
        decoders = _encoded(builder)
        for path, count in shards:
            found = 0
            for payload in _records(path):
                try:
                    example = builder.info.features.deserialize_example_np(payload, decoders=decoders)
                except Exception as error:
                    raise LrurunError(f"{path}: record {found} of {split}: {line(error)}", _COPY) from None
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
        if table.name != name or (config is not None and table.config_name != config):
            continue
        if version in (None, table.version):
            found.append((_numbers(table.version), file.parent, table))
    if not found:
        return None
    _, folder, table = max(found, key=lambda one: one[0])
    return Tfds(folder, table)


def _description(file: Path) -> _Description:
    try:
        return msgspec.convert(_json(file), _Description)
    except msgspec.ValidationError as error:
        raise LrurunError(f"{file}: not a description of a data set: {line(error)}", _COPY) from None


def _json(file: Path) -> Any:
    try:
        return json.loads(read(file, _TABLE))
    except ValueError as error:
        raise LrurunError(f"{file}: not JSON: {line(error)}", _COPY) from None
    except RecursionError:
        raise LrurunError(f"{file}: not JSON that can be read: nested too deeply", _COPY) from None


def _strings(table: Any, key: str) -> Iterator[str]:
    """The values of `key` anywhere in a table, as text."""
    todo = [table]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if key in one:
                yield str(one[key])
            todo += one.values()
        elif isinstance(one, list):
            todo += one


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
    with opened(path) as file:
        number = 0
        while head := file.read(12):
            size, check = struct.unpack("<QI", head) if len(head) == 12 else (0, None)
            if check is not None and check != _masked_crc32c(head[:8]):
                raise LrurunError(f"{path}: record {number}: wrong checksum of its length", _COPY)
            if size > _RECORD:
                raise LrurunError(
                    f"{path}: record {number}: {size:,} bytes are more than the {_RECORD:,} allowed", _COPY
                )
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


class _Header(tarfile.TarInfo):
    """What an archive says of a member, of which nothing is read that could be large or endless."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _LONG and not 0 <= self.size <= _HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes, where {_HEADER:,} are allowed")
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        length = len(found.name.encode(errors="surrogateescape"))
        if length > _NAME:
            raise tarfile.ReadError(f"a name of {length:,} bytes, where {_NAME:,} are allowed")
        if found.size < 0:
            raise tarfile.ReadError(f"{found.name[:200]} has {found.size:,} bytes")
        return found

    def _refuse_sparse(self, *_: Any) -> Any:
        raise tarfile.ReadError(f"{self.name[:200]} is sparse, which no published archive has")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


def members(path: Path, tell: Tell | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of a tar archive, gzipped or not, in their order: names without "./", and what to read.

    One pass, nothing on disk: a file must be read before the next one is asked for, with `whole` or `lines`. Links,
    devices and pipes are passed over. A name may be anything.

    Raises:
        LrurunError: the archive is none, damaged, or cut off; for the latter two, also where a file is read.
    """
    try:
        size = path.stat().st_size
        with opened(path) as file:
            stream = _unzipped(path, file)
            archive = _begun(path, stream)
            while (member := _next(path, archive)) is not None:
                if tell:
                    tell(f"reading {path.name}", file.tell(), size)
                content = archive.extractfile(member) if member.isreg() else None
                if content:
                    yield posixpath.normpath(member.name).lstrip("/"), content
                # or the headers of 200,000 files pile up
                archive.members = []  # type: ignore[attr-defined]
                archive.pax_headers.clear()  # type: ignore[attr-defined]
            while stream.read(1 << 20):  # to the checksum at the end
                pass
    except OSError as error:
        if error.filename != str(path):  # of whoever uses what is read
            raise
        raise LrurunError(f"{path}: {error.strerror}", "check the path and its permissions") from None


def is_archive(path: Path) -> bool:
    """Whether a tar begins at `path`, gzipped or not."""
    with opened(path) as file:
        try:
            tarfile.TarInfo.frombuf(_unzipped(path, file).read(_BLOCK), "utf-8", "surrogateescape")
        except (LrurunError, tarfile.HeaderError):
            return False
    return True


def _unzipped(path: Path, file: IO[bytes]) -> _Whole:
    zipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return _Whole(path, gzip.GzipFile(fileobj=file) if zipped else file)


def _begun(path: Path, stream: _Whole) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header)
    except (LrurunError, OSError):
        raise
    except Exception as error:
        raise _damaged(path, error) from None


def _next(path: Path, archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return archive.next()
    except (LrurunError, OSError):
        raise
    except Exception as error:  # TarError, and for made-up headers ValueError, RecursionError and others
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> LrurunError:
    return LrurunError(f"{path}: not a tar archive, or a damaged one: {line(error)}", _COPY)


class _Whole(RawIOBase):
    """Bytes of an archive, read to the end or not at all: what is cut off or damaged is an error wherever it shows."""

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile) -> None:
        self._path, self._file, self._tail = path, file, b""
        self._past = 0

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except EOFError:
            raise LrurunError(f"{self._path}: the archive is cut off", _COPY) from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise LrurunError(f"{self._path}: the archive is damaged: {line(error)}", _COPY) from None
        self._past += not data
        if not data and (self._tail != bytes(_BLOCK) or self._past > _PAST):
            raise LrurunError(f"{self._path}: the archive is cut off, or not a tar archive", _COPY)
        self._tail = (self._tail + data[-_BLOCK:])[-_BLOCK:]
        return data


def png(data: bytes, name: str, size: int, hint: str, mode: Literal["L", "RGB"] = "L") -> np.ndarray:
    """The pixels of an image, `size` a side: (size, size) uint8 for mode "L", (size, size, 3) for "RGB".

    Raises:
        LrurunError: it is none, or of another size, with `hint`; `name` says which.
    """
    from PIL import Image

    if not isinstance(data, bytes):  # TFDS keeps images as arrays if it was told to
        raise LrurunError(f"{name}: expected the bytes of a PNG image, found {type(data).__name__}", _COPY)
    if not data:
        raise LrurunError(f"{name}: the image is empty (0 bytes)", _COPY)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(BytesIO(data), formats=["PNG"])
        with image:
            if image.size != (size, size):  # before anything is unpacked
                width, height = image.size
                raise LrurunError(f"{name}: expected {size} x {size} pixels, found {height} x {width}", hint)
            if image.mode not in ("L", "RGB", "P", "1", "LA", "RGBA"):
                raise ValueError(f"{image.mode} pixels have more than 8 bits")
            return np.asarray(image.convert(mode))
    except LrurunError:
        raise
    except Exception as error:  # Pillow raises nearly anything for broken files
        reason = "" if "cannot identify" in str(error) else f": {line(error)}"
        raise LrurunError(f"{name}: not a PNG image, or a damaged one{reason}", _COPY) from None


def opened(path: Path) -> BufferedReader:
    """A regular file, or a link to one, to be read. A pipe or a device, which may never end, is none.

    Raises:
        LrurunError: it is something else.
        OSError: it cannot be opened.
    """
    file = open(str(path), "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise LrurunError(f"{path}: is no regular file", _COPY)


def read(path: Path, most: int) -> bytes:
    """A small file, whole.

    Raises:
        LrurunError: it cannot be read, or has more than `most` bytes.
    """
    try:
        with opened(path) as file:
            return whole(file, most, str(path))
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", _COPY) from None


def whole(file: IO[bytes], most: int, name: str) -> bytes:
    """What is left of a file.

    Raises:
        LrurunError: that is more than `most` bytes; `name` says which file.
    """
    return b"".join(pieces(file, most, name))


def pieces(file: IO[bytes], most: int, name: str) -> Iterator[bytes]:
    """What is left of a file, piece by piece.

    Raises:
        LrurunError: that is more than `most` bytes; `name` says which file.
    """
    left = most + 1
    while part := file.read(min(left, _PIECE)):
        left -= len(part)
        if not left:
            raise LrurunError(f"{name}: longer than {most:,} bytes, which no published file of its kind is", _COPY)
        yield part


def lines(file: IO[bytes], most: int, name: str) -> Iterator[bytes]:
    """The lines of a file.

    Raises:
        LrurunError: one has more than `most` bytes; `name` says in which file.
    """
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise LrurunError(f"{name}:{number}: a line of more than {most:,} bytes", _COPY)
        yield line


def line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
