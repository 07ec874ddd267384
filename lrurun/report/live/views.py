"""The display of a running ladder: a live view in a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from lrurun import console
from lrurun.config.schema import LADDER_KINDS
from lrurun.judging.scores import of_instance
from lrurun.report.live.progress import (
    LadderProgress,
    Lines,
    SweepProgress,
    collect,
    collect_sweep,
    summary,
    sweep_summary,
    view_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.live import Live

    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance, Run

MOST_SILENT_SECONDS = 30.0
"""The longest time without a line in a pipe."""

OFTEN_SECONDS = 10.0
"""The same for what a user waits for in front of the screen."""

PAUSE = 20.0
"""The time between two drawings of the live view that no change of a state causes, as a multiple of the time of one."""


class LadderView:
    """Shows the progress of a ladder, or of the instances of a sweep, on stderr. A context manager, which restores the
    terminal at its end."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._last_event: int | None = None
        self._failures: dict[str, list[str]] = {}
        """Run id -> the reason of each attempt that has failed."""
        self._due = 0.0
        """When the live view is drawn again although no run has changed its state."""
        self._live: Live | None = None

    def __enter__(self) -> LadderView:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def update(self, ledger: Ledger, *ladders: LadderInstance) -> None:
        """Draws the progress of a ladder or a sweep, or prints what has happened since the last update."""
        if console.verbosity() < 0:
            return
        changed = self._changed(ledger, ladders)
        if not console.is_terminal():
            programs = of_instance(ledger, ladders[0]) if changed else {}
            names = {ladder.key: ladder.short_name if len(ladders) > 1 else "" for ladder in ladders}
            whole = partial(_summary, ledger, ladders)
            for line in self._lines.update(names, changed, whole, self._failures, programs):
                console.say(line)
        elif changed or time.monotonic() >= self._due:
            began = time.monotonic()
            try:
                self._draw(collect(ledger, ladders[0]) if len(ladders) == 1 else collect_sweep(ledger, ladders))
            except OSError:
                self._live = None
                console.mute()
            self._due = time.monotonic() + PAUSE * (time.monotonic() - began)

    def _changed(self, ledger: Ledger, ladders: Sequence[LadderInstance]) -> list[Run]:
        """The runs of ladders that have changed since the last call; at first, those that have begun and not ended."""
        brief = ladders[0].kind in LADDER_KINDS  # lines on others name their settings
        if self._last_event is None:
            self._last_event = max((event.id for event in ledger.events(limit=1)), default=0)
            return _runs(ledger, ladders, states=("running", "failed", "interrupted"), brief=brief)
        events = ledger.events(after=self._last_event)  # every change of a state is one
        self._last_event = max((event.id for event in events), default=self._last_event)
        for event in events:
            if event.kind == "failed" and event.run:
                self._failures.setdefault(event.run, []).append(event.text.partition("\n")[0])
        changed = {event.run for event in events if event.run}
        return _runs(ledger, ladders, ids=changed, brief=brief) if changed else []

    def _draw(self, progress: LadderProgress | SweepProgress) -> None:
        terminal = console.err()
        from rich.text import Text

        lines = view_of(progress, terminal.width, color=not terminal.no_color)
        picture = Text.from_ansi("\n".join(lines), no_wrap=True)
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                picture, console=terminal, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        self._live.update(picture, refresh=True)

    def say(self, text: str) -> None:
        """Print a message, above the live view if there is one."""
        console.say(text)


def _runs(ledger: Ledger, ladders: Sequence[LadderInstance], **chosen: Any) -> list[Run]:
    """Some runs of ladders, each once."""
    return list({run.id: run for ladder in ladders for run in ledger.runs(ladder.key, **chosen)}.values())


def _summary(ledger: Ledger, ladders: Sequence[LadderInstance]) -> str:
    if len(ladders) == 1:
        return summary(collect(ledger, ladders[0]))
    return sweep_summary(collect_sweep(ledger, ladders))


class PreparationView:
    """Shows the progress of a preparation: a bar in a terminal, plain lines in a pipe. A context manager."""

    def __init__(self, pause: float = 0.0) -> None:
        """`pause`: for how many seconds it shows nothing at first, and in a pipe between two lines."""
        self._bar: Any = None
        self._what = ""
        self._pause = pause
        self._began = time.monotonic()
        self._printed_at = self._began if pause else 0.0

    def __enter__(self) -> PreparationView:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.stop()

    def update(self, what: str, done: int, total: int | None) -> None:
        """`done` of `total` units of the step `what` are finished."""
        now = time.monotonic()
        if console.verbosity() < 0 or now - self._began < self._pause:
            return
        if console.is_terminal():
            with contextlib.suppress(OSError):
                self._draw(what, done, total)
            return
        silent = now - self._printed_at
        if silent >= (self._pause or MOST_SILENT_SECONDS) or (what != self._what and not self._pause):
            share = f": {done / total:.0%}" if total and (self._pause or what == self._what) else ""
            console.say(what + share)
            self._what, self._printed_at = what, now

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
                self._bar.update(before.id, completed=before.total)  # the last update may have come before its end
                self._bar.stop_task(before.id)
            self._bar.add_task(console.clean(what), total=None)
            self._what = what
        self._bar.update(self._bar.task_ids[-1], completed=done, total=total)


class MeasuringView:
    """Shows what is measured, and for how long already: a line that changes in a terminal, plain lines in a pipe. A
    context manager, which removes the line."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._what = ""
        self._began = self._printed_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()

    def update(self, what: str) -> None:
        """`what` is being done."""
        if console.verbosity() < 0:
            return
        now, is_new = time.monotonic(), what != self._what
        if is_new:
            self._what, self._began = what, now
        if console.is_terminal():
            with contextlib.suppress(OSError):
                self._draw(f"{what}, {console.duration(now - self._began)}")
        elif is_new or now - self._printed_at >= OFTEN_SECONDS:
            console.say(what if is_new else f"{what}, {console.duration(now - self._began)} so far")
            self._printed_at = now

    def _draw(self, text: str) -> None:
        from rich.text import Text

        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=console.err(),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(Text(console.clean(text), no_wrap=True, overflow="ellipsis"), refresh=True)
