"""What executors of engines have in common: when they start node supervisors, and when they give up.

The ledger decides: node supervisors are started while runs are queued and fewer of them are alive than the command
allows. The engine is asked only how many are alive.
"""

from __future__ import annotations

import secrets
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from lrurun import paths
from lrurun.errors import LrurunError, UsageError, plural
from lrurun.files import write
from lrurun.ledger import database
from lrurun.runner import node
from lrurun.runner.executors import NodeJob
from lrurun.runner.selection import MAX_RETRIES, SelectedRuns
from lrurun.runner.signals import Signals
from lrurun.runner.storage import storage_for

AGAIN = "the runs are queued; give the same command again, or without --detach, which tries again by itself"
STOP_SECONDS = 60.0
"""How long a command waits for node supervisors to save and end."""


class NodeExecutor(ABC):
    """Starts node supervisors through an engine; a subclass knows the engine."""

    poll_seconds = 5.0
    """How often the engine is asked."""

    def __init__(self, job: NodeJob) -> None:
        self.job = job
        self.nodes = job.nodes or 1
        mirror = paths.is_mirror(job.places.runs)  # which other machines lack
        self._logs = job.folder / "lrurun-nodes" if mirror else job.places.runs / "nodes"
        """Where node supervisors print to."""
        self._alive = 0
        self._due = 0.0
        self._silent = ""
        """Why the engine did not answer, as it was said last."""
        self._before: int | None = None
        """How many attempts there were when node supervisors were last started."""
        self._useless = 0
        """Starts in a row after which no run was held."""
        self._last_event: int | None = None
        self._read = float("-inf")
        """When the events were last read."""
        self._tokens: set[str] = set()
        """The tokens of this command's submissions."""

    @abstractmethod
    def submit(self, count: int, variables: dict[str, str]) -> str:
        """Starts node supervisors, with these environment variables, and returns what they are called."""

    @abstractmethod
    def alive(self) -> int:
        """How many node supervisors are waiting or running, of earlier commands of the same name too.

        Raises:
            LrurunError: the engine does not answer.
        """

    @abstractmethod
    def cancel(self, *, waiting_only: bool) -> None:
        """Saves and ends node supervisors, or removes those that have not begun. Raises LrurunError as `alive`."""

    @abstractmethod
    def last_line(self) -> tuple[str, str]:
        """The last line that a node supervisor printed, or "", and where the rest is."""

    def check(self, *, detach: bool) -> None:
        if not database.implementation(self.job.places.ledger).is_shared and self.nodes > 1:
            detail = f", and {self.job.places.ledger} is one"
            raise one_machine(f"nodes={self.nodes}", detail, "use one node")

    def count(self) -> int:
        return self._alive

    def start(self, runs: SelectedRuns) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self.poll_seconds
        if self._last_event is None:
            self._last_event = max((event.id for event in runs.ledger.events(limit=1)), default=0)
        try:
            self._alive = self.alive()
            missing = min(self.nodes - self._alive, runs.queued().total())
            if missing > 0:
                self._start(runs, missing)
            elif runs.work.detach:
                runs.say(
                    f"submitted nothing: {plural(self._alive, 'node supervisor')} of an earlier command wait or run"
                )
            self._silent = ""
        except EngineError as error:
            if runs.work.detach:
                raise EngineError(f"nothing was submitted: {error.message}", AGAIN) from None
            if error.message != self._silent:
                runs.say(f"{error.message}; trying again")
            self._silent = error.message

    def _start(self, runs: SelectedRuns, count: int) -> None:
        newest = runs.ledger.newest_attempts(runs.needs).values()
        attempts = sum(attempt.n for attempt in newest)
        if self._alive == 0:
            self._useless = self._useless + 1 if attempts == self._before else 0
            if self._useless > MAX_RETRIES:
                text, where = self.last_line()
                problem = "node supervisors end before they claim a run"
                raise LrurunError(f"{problem}: {text}" if text else problem, f"see {where}")
        self._before = attempts
        token = write_token(self.job.places.runs)
        self._tokens.add(token)
        started = self.submit(count, {node.SHARED: token, node.INSTANCE: runs.work.ladder})
        self._alive += count
        text = f"submitted {plural(count, 'node supervisor')}: {started}"
        runs.ledger.event(node.SUBMITTED, text, ladder=runs.work.ladder)
        runs.say(text)

    def ended(self, runs: SelectedRuns) -> Iterator[str]:
        """Raises LrurunError where a node has recorded that it cannot work: the runs folder is not shared."""
        if self._last_event is None or time.monotonic() - self._read < self.poll_seconds:
            return
        self._read = time.monotonic()
        for event in runs.ledger.events(self._last_event, runs.work.ladder, of_runs=False):
            self._last_event = event.id
            if (error := node.failure(event, self._tokens)) is None:
                continue
            try:
                self.cancel(waiting_only=False)
                self._alive = 0
            except EngineError as silent:
                yield silent.message
            raise error

    def stop(self, runs: SelectedRuns, signals: Signals, *, finished: bool) -> None:
        """Stops the node supervisors after ^C, SIGTERM and the time limit; otherwise they go on without the command."""
        stopped = signals.received in (signal.SIGINT, signal.SIGTERM)
        try:
            if finished or stopped:
                self.cancel(waiting_only=finished)
            elif self._alive:
                runs.say("the node supervisors go on without this command")
            deadline = time.monotonic() + STOP_SECONDS
            while stopped and not finished and not signals.abort and time.monotonic() < deadline:
                self._alive = self.alive()
                if not self._alive:
                    return
                time.sleep(0.5)
        except EngineError as error:
            runs.say(error.message)


def one_machine(setting: str, detail: str, otherwise: str) -> UsageError:
    """The error for a `setting` that takes an SQLite ledger to several machines; `otherwise` is what else helps."""
    return UsageError(
        f"{setting}: an SQLite ledger is for one machine{detail}",
        f"keep the ledger in PostgreSQL (--ledger postgresql+psycopg://USER@HOST/DATABASE), or {otherwise}",
    )


class EngineError(LrurunError):
    """The engine does not answer, for now."""


def write_token(runs: Path) -> str:
    """Writes a new file that nodes must see in the runs folder, and returns its token.

    A file for each submission: an older one may have been copied with the folder, and a task that is started again
    looks for the file of its own submission.
    """
    token = secrets.token_hex(8)
    file = node.shared_file(runs, token)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, token.encode())
        storage_for(runs).put(file)
    except OSError as error:
        raise LrurunError(f"{file}: {error.strerror or error}", "check space and permissions") from None
    return token
