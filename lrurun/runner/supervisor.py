"""The supervisor of a ladder: has the runs trained that a command asks for, through an executor.

It handles signals, queues runs and updates the display. It never imports jax: a worker that compiles may not answer for
minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from lrurun import paths
from lrurun.errors import FaultyProgram, Stopped, UnreachableError, plural
from lrurun.files import identity
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import FINISHED, ITEMS_REFUSED, LadderInstance, Run
from lrurun.runner import node, program_faults, run_files
from lrurun.runner.executors import Executor
from lrurun.runner.executors.local import LocalExecutor
from lrurun.runner.processes import POLL_SECONDS
from lrurun.runner.selection import RunSelection, SelectedRuns
from lrurun.runner.signals import Signals
from lrurun.runner.work import Work

UPDATE_SECONDS = 0.5
BUSY_SECONDS = 5.0
"""How long the ledger may be busy before the command says so."""
STOPPING_SECONDS = 2.0
"""How long a command that stops waits for a ledger that does not answer."""
RELOAD_SECONDS = 60.0
"""How often all runs are read, not only those that have changed."""


class LadderDisplay(Protocol):
    """Shows the progress of a ladder, or of the instances of a sweep; it reads the ledger itself."""

    def update(self, ledger: Ledger, *ladders: LadderInstance) -> object: ...

    def say(self, text: str) -> None: ...


class SupervisorResult(Struct, frozen=True):
    """The runs of a command when it has ended."""

    instance: LadderInstance
    runs: Sequence[Run]
    worked: bool
    """Whether there was anything to do."""

    @property
    def exit_code(self) -> int:
        return 0 if all(run.state in FINISHED for run in self.runs) else 3


def while_busy(ledger: Ledger, say: Callable[[str], None], signals: Signals) -> None:
    """Makes a signal end every wait for the ledger (Stopped); each wait is announced once."""
    announced, last = False, float("-inf")

    def waiting(seconds: float) -> None:
        nonlocal announced, last
        signals.check()
        now = time.monotonic()
        # several calls may wait for the same thing, one after the other
        announced = announced and now - last < BUSY_SECONDS
        last = now
        if seconds >= BUSY_SECONDS and not announced:
            announced = True
            say(ledger.database.wait_text(seconds))

    ledger.waiting = waiting


class Supervisor:
    """One command's work on one ladder instance, or on those of a sweep."""

    def __init__(
        self,
        ledger: Ledger,
        work: Work,
        selection: RunSelection,
        display: LadderDisplay,
        signals: Signals,
        executor: Executor | None = None,
        others: Sequence[RunSelection] = (),
    ) -> None:
        """
        Args:
            selection: of the instance `work.ladder`.
            executor: says where the workers run; None for this machine.
            others: one for each of `work.others`.
        """
        self.ledger, self.work, self.display, self.signals = ledger, work, display, signals
        self.owner = owner.this_process()
        self._runs_folder = _RunsFolder(work.runs)
        self._loaded = time.monotonic()
        """When all runs were last read."""
        self._recorded = 0
        """How often runs had been queued when the file of the ladder was last written."""
        self.instances = [ledger.ladder(key) for key in work.ladders]
        self.instance = self.instances[0]
        self._last_event = max((event.id for event in ledger.events(limit=1)), default=0)
        self.runs = SelectedRuns(ledger, work, selection, display.say, others)
        if work.on_node:
            node.count_starts(ledger)
        self._task = node.task() if work.on_node else None
        self._executor = executor or LocalExecutor()

    def run(self) -> SupervisorResult:
        """Trains every selected run that is unfinished, to its end; with `detach`, starts the executor and returns.

        The data must be there.

        Raises:
            Stopped: after a signal, if any run remains; the state is saved.
            LrurunError: data, folders or ledger do not allow it.
        """
        if not self.queue():
            return SupervisorResult(self.instance, self.runs.load(), worked=False)
        if self.work.detach:
            self._executor.start(self.runs)
            return SupervisorResult(self.instance, self.runs.load(), worked=True)
        waiting = self.ledger.waiting
        try:
            self.ledger.waiting = self._watching(waiting)
            self._loop()
            self.ledger.waiting = waiting
        except Stopped:
            self._stop("stopping: runs are saved after the current steps (^C again stops without saving)")
            if self.remaining()[0] > 0:
                raise
        except BaseException as error:
            self._stop("stopping the other workers, which save their runs")
            if isinstance(error, FaultyProgram):
                self.runs.put_back()
            raise
        self._executor.stop(self.runs, self.signals, finished=True)
        return SupervisorResult(self.instance, self.runs.load(), worked=True)

    def queue(self) -> bool:
        """Queues the runs; returns whether any remains."""
        self.ledger.reap(self.owner)
        self.runs.enqueue()
        if self._task is not None:
            self._task.begin(self.ledger, self.instance, self.owner.host)
            self._task.take_back(self.ledger, self.runs.in_state("running"))
            self.runs.load()
        self.runs.advance(first=not self.work.on_node)
        self._keep_ladder()
        return not self.runs.all_over()

    def remaining(self) -> tuple[int, int]:
        """How many selected runs are unfinished, and how many there are."""
        return self.runs.remaining()

    def _loop(self) -> None:
        updated = float("-inf")
        while True:
            self.signals.check()
            for text in self._executor.ended(self.runs):
                self.display.say(text)
            if time.monotonic() - updated >= UPDATE_SECONDS:
                updated = time.monotonic()
                if self._update():
                    return
            time.sleep(POLL_SECONDS)

    def _update(self) -> bool:
        """Brings ledger, display and executor up to date; returns whether nothing is left for this process."""
        if notice := self._runs_folder.check():
            self.display.say(notice)
        self.ledger.reap(self.owner)
        self._read_events()
        if time.monotonic() - self._loaded >= RELOAD_SECONDS:
            self._reload()
        self.runs.advance()
        self._keep_ladder()
        self.display.update(self.ledger, *self.instances)
        if self.runs.all_over():
            self._reload()
            if self.runs.all_over():
                return True
        self._executor.start(self.runs)
        if not self.work.on_node or self.runs.is_tuning or self.runs.queued():
            return False
        return self._executor.count() == 0

    def _keep_ladder(self) -> None:
        """Writes the file of the ladder if runs were added to it."""
        if self.runs.enqueued != self._recorded:
            self._recorded = self.runs.enqueued
            # a run that was started over has the memberships of the one before in other ladders too
            other_ladders = self.runs.ladder_keys if self.work.fresh else set()
            for key in sorted(other_ladders | set(self.work.ladders)):
                run_files.keep_ladder(self.ledger, self.work.runs, key)

    def _reload(self) -> None:
        """Reads all runs: what another command has queued again or started over leaves no event."""
        self._loaded = time.monotonic()
        self.runs.load()

    def _read_events(self) -> None:
        """Reads the runs that have changed, and shows what workers found when they resumed one.

        Every change of state is an event. Workers find damaged checkpoints, another machine, other numerics, and
        results of test items that cannot belong to the score.
        """
        events = self.ledger.events(after=self._last_event)
        self.runs.refresh({event.run for event in events if event.run})
        for event in events:
            self._last_event = event.id
            if self._task is not None:
                self._task.check(event)
            if event.run not in self.runs.needs:
                continue
            if (fault := program_faults.of_event(event, self.runs.known(event.run))) is not None:
                raise fault
            if event.kind in ("checkpoint", "changed", "restarted", "resumed", ITEMS_REFUSED):
                text = f"resumed {event.text}" if event.kind == "resumed" else event.text
                self.display.say(f"{event.run}: {text}")

    def _watching(self, waiting: Callable[[float], None] | None) -> Callable[[float], None]:
        """A function to call while the ledger is busy: it also ends workers here that hold it and are suspended."""

        def watch(seconds: float) -> None:
            if waiting is not None:
                waiting(seconds)
            if isinstance(self._executor, LocalExecutor):
                self._executor.end_suspended(self.runs, seconds)

        return watch

    def _do_not_wait(self, seconds: float) -> None:
        if seconds < STOPPING_SECONDS and not self.signals.abort:
            return
        raise UnreachableError(f"the ledger {self.ledger.path} is busy")

    def _stop(self, text: str) -> None:
        """Lets the workers save and exit, kills those that do not, and leaves none of their runs running."""
        self.ledger.waiting = self._do_not_wait
        if self._executor.count():
            self.display.say(text)
        self._executor.stop(self.runs, self.signals, finished=False)
        try:
            self.ledger.reap(self.owner)
            self.display.update(self.ledger, *self.instances)
        except UnreachableError:
            running = plural(len(self.runs.in_state("running")), "run")
            self.display.say(
                f"the ledger {self.ledger.path} does not answer: what has been computed since is not recorded; "
                f"{running} that this command was training will continue from the last recorded checkpoint"
            )
        except Exception:  # the error that ended the command is shown
            return


class _RunsFolder:
    """Notices that the runs folder was removed or replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._identity = identity(folder)

    def check(self) -> str | None:
        """A notice about a lost folder, once; None if it is as it was."""
        before, self._identity = self._identity, identity(self.folder)
        if before is None or before == self._identity:
            return None
        return (
            f"the runs folder {paths.shown(self.folder)} was removed or replaced: its logs and checkpoints are lost, "
            "and runs that are interrupted now start from the beginning"
        )
