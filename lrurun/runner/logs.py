"""The logs of attempts: written by workers, read by commands.

Files stay as they were written. What is read of them is what a terminal would show in the end: of a progress bar that
was drawn a thousand times in one line, the last state.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lrurun import console, paths
from lrurun.errors import LrurunError
from lrurun.paths import Places
from lrurun.runner.storage import storage_for

_BLOCK = 65536
"""Bytes that are read at once."""
_SEARCHED = 1 << 22
"""The most bytes that are searched for the last lines."""
HEIGHT = 100
"""Lines that may still be changed, by moving the cursor up."""
WIDTH = 1_000_000
"""The longest line; what is longer continues in the next one."""
_FAR = 500
"""The farthest column to which a cursor is moved beyond the end of a line."""
_MOVES = re.compile(r"[\r\n\b]|(?:\x1b\[|\x9b)(\d{0,4})([A-GJK])")
_DRAWS = re.compile(r"[\r\b\x1b\x9b]")
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c\r\n]*|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
"""The end of a text that may be the beginning of an escape sequence."""
_LONGEST_SEQUENCE = 1000


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
    """Whether there is a log that this user can read: logs of other users may be private."""
    return os.access(path, os.R_OK) and path.is_file()


def tail(path: Path, count: int) -> list[str]:
    """The last `count` lines of a log, ready to be printed; none where it cannot be read."""
    searched = _BLOCK
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                file.seek(max(0, size - searched))
                text = file.read(min(size, searched)).decode("utf-8", "replace")
                screen = Screen()
                lines = [*screen.write(text), *screen.end()]
                if len(lines) > count or searched >= min(size, _SEARCHED):
                    return lines[-count:]
                searched *= 4
    except OSError:
        return []


@contextlib.contextmanager
def redirected(folder: Path) -> Iterator[None]:
    """Sends standard output and error, of libraries too, to `log.txt` in the new folder of an attempt.

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
    """Writes a line to the attempt's log; a full disk must not hide the error that is being reported."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


class Screen:
    """The lines that a terminal shows of a text with cursor movements, where a character takes one column.

    What a terminal would clear as a whole stays, as in its history.
    """

    def __init__(self) -> None:
        self._rows = [""]
        self._row = self._column = 0
        self._highest = 0
        """The highest row of the cursor since lines were last taken by `settled`."""
        self._rest = ""

    def write(self, text: str) -> list[str]:
        """Takes a text, and returns the lines that no movement reaches any more, ready to be printed."""
        text, self._rest = self._rest + text, ""
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        if unfinished:
            text, self._rest = text[: unfinished.start()], unfinished[0]
        if self._row == len(self._rows) - 1 and not _DRAWS.search(text):  # the usual case
            first, *others = console.clean(text, lines=True).split("\n")
            self._put(first)
            for line in others:
                self._next_row()
                self._put(line)
        else:
            at = 0
            for move in _MOVES.finditer(text):
                start, end = move.span()
                if at < start:
                    self._put(console.clean(text[at:start], lines=True))
                self._move(move)
                at = end
            self._put(console.clean(text[at:], lines=True))
        return self._take(len(self._rows) - HEIGHT)

    def settled(self) -> list[str]:
        """The lines above which the cursor has not been since the last call: they are probably not changed any more."""
        lines = self._take(self._highest)
        self._highest = self._row
        return lines

    def end(self) -> list[str]:
        """All lines that remain."""
        self._put(console.clean(self._rest, lines=True))
        rows = self._rows if self._rows[-1] else self._rows[:-1]
        lines = [console.clean(row).rstrip(" ") for row in rows]
        self._rows, self._row, self._column, self._highest, self._rest = [""], 0, 0, 0, ""
        return lines

    def _take(self, count: int) -> list[str]:
        """Removes the first rows, up to the one of the cursor."""
        count = max(0, min(count, self._row))
        taken, self._rows = self._rows[:count], self._rows[count:]
        self._row -= count
        self._highest = max(0, self._highest - count)
        return [console.clean(row).rstrip(" ") for row in taken]

    def _put(self, text: str) -> None:
        """Writes over what is at the cursor."""
        if not self._column and len(self._rows[self._row]) <= len(text) <= WIDTH:  # the usual case
            self._rows[self._row], self._column = text, len(text)
            return
        while text:
            if self._column >= WIDTH:
                self._next_row()
            piece, text = text[: WIDTH - self._column], text[WIDTH - self._column :]
            row, end = self._rows[self._row].ljust(self._column), self._column + len(piece)
            self._rows[self._row] = row[: self._column] + piece + row[end:]
            self._column = end

    def _next_row(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append("")

    def _move(self, move: re.Match[str]) -> None:
        key = move[2] or move[0]
        if key == "\r":
            self._column = 0
        elif key == "\n":
            self._next_row()
        elif key == "\b":
            self._column = max(0, self._column - 1)
        else:
            self._move_by(key, int(move[1] or 0))

    def _move_by(self, key: str, number: int) -> None:
        """Executes a control sequence (ECMA-48): its last letter and its number, 0 where there is none."""
        row, steps = self._rows[self._row], max(1, number)
        far = max(_FAR, len(row))
        if key == "D":
            self._column = max(0, self._column - steps)
        elif key == "C":
            self._column = min(self._column + steps, max(far, self._column))
        elif key == "G":
            self._column = min(steps - 1, far)
        elif key in "AF":
            self._row = max(0, self._row - steps)
        elif key in "BE":
            self._row = min(self._row + steps, len(self._rows) - 1)
        elif number == 0:  # K and J: from the cursor on
            self._rows[self._row] = row[: self._column]
            if key == "J":
                del self._rows[self._row + 1 :]
        elif key == "K":
            kept = "" if number == 2 else row[self._column + 1 :]
            self._rows[self._row] = kept.rjust(len(row)) if kept else ""
        if key in "EF":
            self._column = 0
        self._highest = min(self._highest, self._row)


class Reader:
    """Reads a log that may still be written, line by line. Raises OSError where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0
        self._screen = Screen()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        path.open("rb").close()

    def lines(self, *, last: bool = False) -> list[str]:
        """The next lines, of a block or more; none where there are none. `last` includes what may still change."""
        while True:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read(_BLOCK)
            self._at += len(data)
            if lines := self._screen.write(self._decoder.decode(data, final=last and not data)):
                return lines
            if not data:
                return self._screen.end() if last else []

    def settled(self) -> list[str]:
        """The lines that have not been changed since the last call, of those that have been read."""
        return self._screen.settled()
