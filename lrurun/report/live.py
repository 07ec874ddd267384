"""The display of a running ladder: a live view in a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from lrurun import console
from lrurun.report.progress import Lines, Progress, view

if TYPE_CHECKING:
    from rich.live import Live


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

    def update(self, progress: Progress) -> None:
        """Draws the ladder anew, or says what has happened since."""
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
        for line in self._lines.update(progress):
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
