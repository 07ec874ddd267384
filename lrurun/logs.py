"""The logs of attempts: where they are, their last lines, and what is added to them."""

from __future__ import annotations

import os
from pathlib import Path

from lrurun import console, paths
from lrurun.paths import Places

_BLOCK = 65536
"""Bytes that are looked at for last lines, and read at once."""


def path_of(places: Places, run: str, attempt: int) -> Path:
    """The log of an attempt at a run, whether it is there or not. Raises LrurunError where that leads elsewhere."""
    return paths.inside(places.runs, run, str(attempt), "log.txt")


def tail(path: Path, count: int) -> list[str]:
    """The last lines of a log, ready to be printed; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _BLOCK))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [console.clean(line) for line in lines[-count:]]


class Reader:
    """A log that may be written still: whole lines as they come. Raises OSError where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._rest = b""
        path.open("rb").close()

    def lines(self, *, last: bool = False) -> list[str]:
        """At most a block of the lines that have come since; none when there are none. `last` takes half a line too."""
        while True:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_BLOCK)
            self._at += len(data)
            if not data and not (last and self._rest):
                return []
            *whole, self._rest = (self._rest + data).split(b"\n")
            if not data:
                whole, self._rest = [*whole, self._rest], b""
            if whole:
                return [console.clean(line.decode("utf-8", "replace")) for line in whole]
