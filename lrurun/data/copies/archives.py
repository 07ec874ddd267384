"""Tar archives, gzipped or not, read in one pass: nothing is unpacked to disk, so no member's name is ever a path."""

from __future__ import annotations

import gzip
import posixpath
import tarfile
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, cast

from lrurun.data.copies.reading import BLOCK, DAMAGED, first_line, open_regular
from lrurun.data.task import Progress
from lrurun.errors import LrurunError


def members(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """The regular files of an archive in their order: their names, without "./", and files to read.

    Each file must be read before the next one is requested, with a function of `reading` that has a limit. Links,
    devices and pipes are skipped. A name may be any text.

    Raises:
        LrurunError: not an archive, damaged, or truncated; the latter two also when a file is read.
    """
    try:
        size = path.stat().st_size
        with open_regular(path) as file:
            stream = _Forward(path, file)
            for member, content in _entries(path, stream):
                if progress:
                    progress(f"reading {path.name}", file.tell(), size)
                if content:
                    yield posixpath.normpath(member.name).lstrip("/"), content
            stream.skip_rest()
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", "check the path and its permissions") from None


def is_archive(path: Path) -> bool:
    """Whether the file begins like a tar archive, gzipped or not."""
    with open_regular(path) as file:
        try:
            tarfile.TarInfo.frombuf(_Forward(path, file).read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
        except (LrurunError, tarfile.HeaderError):
            return False
    return True


def _entries(path: Path, stream: _Forward) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """The members, with content where they are regular files."""
    try:
        archive = tarfile.open(fileobj=cast(Any, stream), mode="r:")
        while (member := archive.next()) is not None:
            yield member, archive.extractfile(member) if member.isreg() else None
            cast(Any, archive).members.clear()  # or the headers of two million files fill the memory
    except (LrurunError, OSError):
        raise
    except Exception as error:  # TarError; for invalid headers also ValueError, RecursionError and others
        raise LrurunError(f"{path}: not a tar archive, or a damaged one: {first_line(error)}", DAMAGED) from None


class _Forward:
    """The decompressed bytes of an archive for `tarfile`, which reads headers whole and trusts the sizes they state.

    No read returns fewer bytes than requested, or may request more than a long header can have; positions only grow.
    """

    def __init__(self, path: Path, file: BufferedReader) -> None:
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
        self._path, self._position = path, 0
        self._file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if zipped else file

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("a size in it is negative")
        while self._position < position:
            self.read(min(position - self._position, BLOCK))
        return position

    def read(self, size: int) -> bytes:
        if size > BLOCK:
            raise tarfile.ReadError(f"a header of {size:,} bytes, where {BLOCK:,} are allowed")
        data = self._take(size)
        if len(data) < size:
            raise LrurunError(f"{self._path}: the archive is truncated, or not a tar archive", DAMAGED)
        return data

    def skip_rest(self) -> None:
        """Reads to the end, where gzip keeps its checksum."""
        while self._take(BLOCK):
            pass

    def _take(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except EOFError:
            raise LrurunError(f"{self._path}: the archive is truncated", DAMAGED) from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise LrurunError(f"{self._path}: the archive is damaged: {first_line(error)}", DAMAGED) from None
        self._position += len(data)
        return data
