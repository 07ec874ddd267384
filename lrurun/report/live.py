"""The display of a running ladder: a live view in a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from lrurun import console
from lrurun.report.progress import Lines, Progress, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.live import Live

    from lrurun.ledger.values import Run

SPEAK_SECONDS = 30.0
"""How often a pipe hears that work goes on."""


class Display:
    """Shows progress on stderr. A context manager: the terminal is put right again whatever happens."""

    def __init__(self, ladder_key: str = "") -> None:
        self._lines = Lines(ladder_key)
        self._live: Live | None = None

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def update(self, progress: Progress, runs: Callable[[], Iterable[Run]]) -> None:
        """Draws the ladder anew, or says what has happened since to its `runs`."""
        if console.verbosity() < 0:
            return
        if console.is_terminal():
            try:
                self._draw(progress)
            except OSError:
                self._live = None
                console.mute()
            return
        self._lines.key = progress.ladder.key
        for line in self._lines.update(progress, runs()):
            console.say(line)

    def _draw(self, progress: Progress) -> None:
        terminal = console.err()
        picture = view(progress, terminal.width)
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                picture, console=terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(picture, refresh=True)

    def say(self, text: str) -> None:
        """A line of talk, above the live view where there is one."""
        console.say(text)


class Preparing:
    """How far the preparation of data is: a bar in a terminal, plain lines in a pipe. A context manager."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._what = ""
        self._said = 0.0

    def __enter__(self) -> Preparing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()

    def tell(self, what: str, done: int, total: int | None) -> None:
        """`done` of `total` of what is being done."""
        if console.verbosity() < 0:
            return
        if console.is_terminal():
            with contextlib.suppress(OSError):
                self._draw(what, done, total)
            return
        now = time.monotonic()
        if what != self._what or now - self._said >= SPEAK_SECONDS:
            far = f": {done / total:.0%}" if total and what == self._what else ""
            console.say(what + far)
            self._what, self._said = what, now

    def _draw(self, what: str, done: int, total: int | None) -> None:
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.table import Column

            columns = (
                TextColumn("{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True)),
                BarColumn(bar_width=None, table_column=Column(ratio=1)),
                TaskProgressColumn(),
                TimeRemainingColumn(compact=True),
            )
            self._bar = Progress(
                *columns, console=console.err(), expand=True, redirect_stdout=False, redirect_stderr=False
            )
            self._bar.start()
        if what != self._what:
            if self._what:
                before = self._bar.tasks[-1]
                self._bar.update(before.id, completed=before.total)  # not every step of it was told
                self._bar.stop_task(before.id)
            self._bar.add_task(console.clean(what), total=None)
            self._what = what
        self._bar.update(self._bar.task_ids[-1], completed=done, total=total)
