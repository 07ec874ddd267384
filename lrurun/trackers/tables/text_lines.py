"""The lines of a text file, decoded, and whether the last one is whole."""

from __future__ import annotations

import codecs
import stat
from collections.abc import Iterator
from pathlib import Path

from lrurun.errors import UsageError
from lrurun.trackers import documents

_WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""Byte-order mark -> encoding: spreadsheets save "Unicode text" so."""
_BLOCK = 1 << 16
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"(\xb5/\xfd": "zstd", b"\xfd7zX": "xz", b"BZh": "bzip2"}
"""First bytes -> the program that has packed a file."""


class TextLines:
    """Iterates over the lines of a file, with their ends. A line ends with a newline; a byte-order mark is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        """How many lines were read."""
        self.is_whole = True
        """Whether the last line that was read ends with a newline: another one is perhaps still being written."""

    def __iter__(self) -> Iterator[str]:
        """
        Raises:
            UsageError: a folder, or a file that is no text in UTF-8 or UTF-16.
            LrurunError: it cannot be read.
        """
        self.number, self.is_whole = 0, True
        check_file(self.path)
        try:
            with self.path.open("rb") as file:
                start = file.read(4)
                file.seek(0)
                self._check_start(start)
                if encoding := _WIDE.get(start[:2]):
                    yield from self._wide(encoding)
                    return
                for raw in file:
                    self.number += 1
                    self.is_whole = raw.endswith(b"\n")
                    yield self._decoded(raw)
        except OSError as error:
            raise documents.unreadable(self.path, error) from None

    def _check_start(self, start: bytes) -> None:
        if start == b"PAR1":
            raise UsageError(f"{self.path}: this is a Parquet file", "add --from parquet")
        for magic, program in _PACKED.items():
            if start.startswith(magic):
                raise UsageError(f"{self.path}: this file is packed ({program})", "unpack it first")

    def _decoded(self, raw: bytes) -> str:
        try:
            text = raw.decode("utf-8-sig" if self.number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            if not self.is_whole and error.reason == "unexpected end of data":  # cut within a letter
                return raw[: error.start].decode()
            hint = 'save it as UTF-8 ("CSV UTF-8" in a spreadsheet), or convert it with iconv'
            raise UsageError(f"{self.path}: line {self.number} is no text in UTF-8", hint) from None
        if "\0" in text:
            raise UsageError(
                f"{self.path}: line {self.number} has zero bytes", "this is no text file, or a damaged one"
            )
        return text

    def _wide(self, encoding: str) -> Iterator[str]:
        try:
            with self.path.open(encoding=encoding, newline="\n") as file:
                file.read(1)  # the mark
                for text in file:
                    self.number += 1
                    self.is_whole = text.endswith("\n")
                    yield text
        except UnicodeDecodeError as error:
            if error.reason != "truncated data":
                problem = f"{self.path}: after line {self.number} comes no text in {encoding.upper()}"
                raise UsageError(problem, "save it as UTF-8") from None


def check_file(path: Path) -> None:
    """Refuses what is no regular file.

    Raises:
        UsageError: a folder, a pipe, or nothing.
        LrurunError: it cannot be looked at.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file", "check the path") from None
    except (OSError, ValueError) as error:
        raise documents.unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path}: this is a folder, expected a file with a table", "name the file in it")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: this is no regular file", "save the table to a file first")


def first_bytes(path: Path, number: int = 4096) -> bytes:
    """The first bytes of a regular file; none where there is none, or it cannot be read."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return b""
        with path.open("rb") as file:
            return file.read(number)
    except (OSError, ValueError):
        return b""
