"""The logs of attempts: written by workers, read by commands."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lrurun import console, paths
from lrurun.errors import LrurunError
from lrurun.paths import Places
from lrurun.runner.storage import storage_for

_BLOCK = 65536
"""Bytes that are read at once, and that are searched for the last lines."""


def path_of(places: Places, run: str, attempt: int) -> Path:
    """The log of an attempt, which may not exist; in an object store, it exists once the attempt has ended.

    Raises:
        LrurunError: the path leads out of the runs folder, or the store does not answer.
    """
    path = paths.inside(places.runs, run, str(attempt), "log.txt")
    try:
        return storage_for(places.runs).fetch(path)
    except OSError as error:
        raise LrurunError(str(error), "check the credentials and the endpoint of the store") from None


def is_readable(path: Path) -> bool:
    """Whether there is a log that this user can read: those of other users may be private."""
    return os.access(path, os.R_OK) and path.is_file()


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a log, which may grow meanwhile."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def tail(path: Path, count: int) -> list[str]:
    """The last `count` lines of a log, ready to be printed; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _BLOCK))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [console.clean(line) for line in lines[-count:]]


@contextlib.contextmanager
def redirected(folder: Path) -> Iterator[None]:
    """Standard output and error go to `log.txt` in the new folder of an attempt, those of libraries too.

    Raises:
        LrurunError: the folder or the log cannot be created.
    """
    try:
        if folder.exists():
            # of a ledger that was removed, or of another one: this attempt has written nothing yet
            folder.rename(folder.with_name(f"{folder.name}.old-{time.time_ns()}"))
        folder.mkdir(parents=True)
        log = os.open(folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise LrurunError(
            f"{folder}: {error.strerror}", "check space and permissions, or choose another --runs-dir"
        ) from None
    before = [(number, os.dup(number)) for number in (1, 2)]
    try:
        for number, _ in before:
            os.dup2(log, number)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        for number, copy in before:
            os.dup2(copy, number)
            os.close(copy)
        os.close(log)


def write(text: str) -> None:
    """A line of the attempt's log; a full disk must not hide the error that is being reported."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


class Reader:
    """Reads a log that may still be written, line by line. Raises OSError where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._rest = b""
        path.open("rb").close()

    def lines(self, *, last: bool = False) -> list[str]:
        """The next lines, at most a block of them; none where there are none. `last` includes an unfinished line."""
        while True:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_BLOCK)
            self._at += len(data)
            if not data and not (last and self._rest):
                return []
            *complete, self._rest = (self._rest + data).split(b"\n")
            if not data:
                complete, self._rest = [*complete, self._rest], b""
            if complete:
                return [console.clean(line.decode("utf-8", "replace")) for line in complete]
