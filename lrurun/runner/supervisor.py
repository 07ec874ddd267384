"""The supervisor of a ladder: trains the runs that a command asks for, through worker processes.

It handles signals, writes the heartbeat and updates the display. It never imports jax: a worker that compiles may not
answer for minutes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from lrurun import plugins
from lrurun.config.schema import STUDY
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import FINISHED, LadderInstance, Run
from lrurun.paths import Places
from lrurun.runner import reasons
from lrurun.runner.heartbeat import Heartbeat
from lrurun.runner.messages import TrainOrder
from lrurun.runner.pool import WorkerPool
from lrurun.runner.processes import FAULT_EXIT, ONE_THREAD, POLL_SECONDS, error_of
from lrurun.runner.selection import RETRIES, RunSelection, SelectedRuns
from lrurun.runner.signals import Signals, Stopped

UPDATE_SECONDS = 0.5
RELOAD_SECONDS = 60.0
"""How often all runs are read, not only those that have changed."""


class LadderDisplay(Protocol):
    """Shows the progress of a ladder; it reads the ledger itself."""

    def update(self, ledger: Ledger, ladder: LadderInstance) -> object: ...

    def say(self, text: str) -> None: ...


class Outcome(Struct, frozen=True):
    """The runs of a command when it has ended."""

    instance: LadderInstance
    runs: Sequence[Run]
    worked: bool
    """Whether there was anything to do."""

    @property
    def exit_code(self) -> int:
        return 0 if all(run.state in FINISHED for run in self.runs) else 3


class Supervisor:
    """One command's work on one ladder instance."""

    def __init__(
        self,
        ledger: Ledger,
        places: Places,
        selection: RunSelection,
        display: LadderDisplay,
        signals: Signals,
        *,
        jobs: int | None = None,
        pack: int = 1,
    ) -> None:
        """Adds the ladder to the ledger if it is new.

        Args:
            jobs: how many workers; None for one a device, or for cores / threads.
            pack: seeds of a rung that a worker trains in one program.
        """
        self.ledger, self.places, self.display, self.signals = ledger, places, display, signals
        self.owner = owner.here()
        self._files = _LedgerFiles(places)
        self._loaded = time.monotonic()
        """When all runs were last read."""
        self._failed_starts = 0
        """Workers in a row that exited before they claimed a run."""
        self.instance = selection.instance(ledger)
        self._last_event = max((event.id for event in ledger.events(limit=1)), default=0)
        self.runs = SelectedRuns(ledger, self.instance, selection, display.say)
        self._heartbeat = Heartbeat(ledger, self.owner.host, display.say)
        variables = ONE_THREAD if self.instance.task.startswith(STUDY) else {}
        self._pool = WorkerPool(_order(self.instance, places, selection, pack), jobs, variables)

    def run(self, prepare: Callable[[], object]) -> Outcome:
        """Trains every selected run that is unfinished, to its end.

        Args:
            prepare: makes sure that the data are there; called if there is anything to train.

        Raises:
            Stopped: after a signal, if any run remains; the state is saved.
            LrurunError: data, folders or ledger do not allow it.
        """
        self.ledger.reap(self.owner)
        self.runs.enqueue()
        self.runs.advance(first=True)
        if self.runs.all_over():
            return Outcome(self.instance, self.runs.load(), worked=False)
        try:
            prepare()
            self._loop()
        except Stopped:
            self._stop("stopping: runs are saved after the current steps (^C again stops without saving)")
            if self.remaining()[0] > 0:
                raise
        except BaseException:
            self._stop("stopping the other workers, which save their runs")
            raise
        self._pool.dismiss()
        self._pool.wait(self.signals)
        return Outcome(self.instance, self.runs.load(), worked=True)

    def remaining(self) -> tuple[int, int]:
        """How many selected runs are unfinished, and how many there are."""
        return self.runs.remaining()

    def _loop(self) -> None:
        updated = float("-inf")
        while True:
            self.signals.check()
            self._check_workers()
            if time.monotonic() - updated >= UPDATE_SECONDS:
                updated = time.monotonic()
                if self._update():
                    return
            time.sleep(POLL_SECONDS)

    def _update(self) -> bool:
        """Brings ledger, display and workers up to date; returns whether all runs are over."""
        if notice := self._files.check():
            self.display.say(notice)
        self.ledger.reap(self.owner)
        self._read_events()
        if time.monotonic() - self._loaded >= RELOAD_SECONDS:
            self._reload()
        self.runs.advance()
        running = self.runs.in_state("running")
        self._heartbeat.update(running, self._pool.workers)
        self.display.update(self.ledger, self.instance)
        if self.runs.all_over():
            self._reload()
            return self.runs.all_over()
        if queued := Counter(self.runs.threads[run.id] for run in self.runs.in_state("queued")):
            newest = self.ledger.newest_attempts(run.id for run in running).values()
            self._pool.fill(queued, {attempt.pid for attempt in newest if attempt.host == self.owner.host})
        return False

    def _reload(self) -> None:
        """Reads all runs: what another command has queued again or started over leaves no event."""
        self._loaded = time.monotonic()
        self.runs.load()

    def _read_events(self) -> None:
        """Reads the runs that have changed, and shows what workers found when they resumed one.

        Every change of state is an event. Found are damaged checkpoints, another machine, other numerics.
        """
        events = self.ledger.events(after=self._last_event)
        self.runs.refresh({event.run for event in events if event.run})
        for event in events:
            self._last_event = event.id
            if event.run not in self.runs.threads:
                continue
            if event.kind in ("checkpoint", "changed", "restarted", "resumed"):
                text = f"resumed {event.text}" if event.kind == "resumed" else event.text
                self.display.say(f"{event.run}: {text}")

    def _check_workers(self) -> None:
        """Records why workers exited.

        Raises:
            LrurunError: one reported a fault, or they exit again and again before they have claimed a run.
        """
        for pid, code, output in self._pool.exited():
            if code == FAULT_EXIT:
                raise error_of(output)
            if code in (0, 143):
                continue
            claimed = self.runs.attempts_of(self.owner.host, pid)
            broken = [attempt for attempt in claimed if reasons.process_exited(attempt)]
            text = f"a worker ended with {self._pool.explain(code, output, self.places.runs, broken)}"
            for attempt in broken:
                self.ledger.event("died", text, run=attempt.run, attempt=attempt.n)
            self.display.say(text)
            self._failed_starts = 0 if claimed else self._failed_starts + 1
            if self._failed_starts > RETRIES:
                raise LrurunError(text, "lrurun doctor shows what this machine has")

    def _do_not_wait(self, _seconds: float) -> None:
        raise LedgerError(f"the ledger {self.ledger.path} is busy")

    def _stop(self, text: str) -> None:
        """Lets the workers save and exit, kills those that do not, and leaves none of their runs running."""
        self.ledger.waiting = self._do_not_wait
        if self._pool.workers:
            self._pool.terminate()
            self.display.say(text)
        self._pool.wait(self.signals)
        with contextlib.suppress(Exception):
            self.ledger.reap(self.owner)
            self.display.update(self.ledger, self.instance)


class _LedgerFiles:
    """Notices that the ledger or the runs folder was removed or replaced.

    A removed ledger still accepts what is written to it, and nobody would see it.
    """

    def __init__(self, places: Places) -> None:
        self.places = places
        self._ledger, self._runs = _identity(places.ledger), _identity(places.runs)

    def check(self) -> str | None:
        """Returns a notice about a lost runs folder. Raises LedgerError for a lost ledger."""
        if _identity(self.places.ledger) != self._ledger:
            raise LedgerError(
                f"the ledger {self.places.ledger} was removed or replaced while this command was writing to it",
                "restore it if you can; the same command starts a new one",
            )
        before, self._runs = self._runs, _identity(self.places.runs)
        if before is None or before == self._runs:
            return None
        return (
            f"the runs folder {self.places.runs} was removed or replaced: its logs and checkpoints are lost, and runs "
            "that are interrupted now start from the beginning"
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _order(instance: LadderInstance, places: Places, selection: RunSelection, pack: int) -> TrainOrder:
    return TrainOrder(
        supervisor=os.getpid(),
        plugins=plugins.loaded(),
        ledger=str(places.ledger.absolute()),
        runs=str(places.runs.absolute()),
        data=str((places.data / selection.data_name).absolute()),
        ladder=instance.key,
        rungs=list(selection.names),
        seeds=list(selection.seeds),
        threads=1,
        pack=pack,
    )
