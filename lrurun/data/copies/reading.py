"""Reading files of unknown origin: regular files only, and never more at once than a limit allows."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO

from lrurun.errors import LrurunError

DAMAGED = "the copy is incomplete or damaged: fetch it again"
"""A hint."""
BLOCK = 1 << 16
"""Bytes read at once: Python reserves memory for all that is requested."""


def open_regular(path: Path) -> BufferedReader:
    """Opens a regular file, or a link to one; reading from a pipe or a device might never end.

    Raises:
        LrurunError: it is something else.
        OSError: it cannot be opened.
    """
    file = open(str(path), "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise LrurunError(f"{path}: not a regular file", DAMAGED)


def read_file(path: Path, limit: int) -> bytes:
    """The content of a small file.

    Raises:
        LrurunError: it cannot be read, or has more than `limit` bytes.
    """
    try:
        with open_regular(path) as file:
            return read(file, limit, str(path))
    except OSError as error:
        raise LrurunError(f"{path}: {error.strerror}", DAMAGED) from None


def read(file: IO[bytes], limit: int, name: str) -> bytes:
    """The rest of a file.

    Raises:
        LrurunError: it has more than `limit` bytes; `name` is the file's in the message.
    """
    return b"".join(blocks(file, limit, name))


def blocks(file: IO[bytes], limit: int, name: str) -> Iterator[bytes]:
    """The rest of a file, block by block.

    Raises:
        LrurunError: it has more than `limit` bytes; `name` is the file's in the message.
    """
    remaining = limit + 1
    while block := file.read(min(remaining, BLOCK)):
        remaining -= len(block)
        if not remaining:
            raise LrurunError(f"{name}: longer than {limit:,} bytes: published files of this kind are shorter", DAMAGED)
        yield block


def lines(file: IO[bytes], limit: int, name: str) -> Iterator[bytes]:
    """The lines of a file.

    Raises:
        LrurunError: one has more than `limit` bytes; `name` is the file's in the message.
    """
    number = 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise LrurunError(f"{name}:{number}: a line of more than {limit:,} bytes", DAMAGED)
        yield line


def first_line(error: Exception) -> str:
    """The first line of an error's message, shortened."""
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
