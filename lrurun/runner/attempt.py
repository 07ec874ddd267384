"""One process's execution of a run, before and after its training. No jax here."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from lrurun import plugins
from lrurun.config import plugin_code
from lrurun.config.fingerprint import compiled_key, program_key
from lrurun.config.schema import Execution, RunConfig
from lrurun.data import tasks
from lrurun.errors import LrurunError
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import ITEMS_REFUSED, HeldRun
from lrurun.runner import logs

if TYPE_CHECKING:
    from lrurun.data.task import Data
    from lrurun.training.events import Event


class StopRequest:
    """Whether the supervisor asked this process to save and exit."""

    def __init__(self) -> None:
        self.requested = False
        self.idle = True
        """Whether this process trains no run."""
        self.refused = False
        """Whether the ledger has refused a write of this process, because another one has the run, or other runs would
        end as this one: it takes no more, so that its supervisor can find out why."""

    def request(self, *_: object) -> None:
        """Handles SIGTERM."""
        self.requested = True

    def at(self, event: Event) -> bool:
        """Whether to stop at this event of training; tests stop at chosen events."""
        return self.requested


class MachineFault(LrurunError):
    """The run is not to blame: a checkpoint cannot be written, data or plug-ins cannot be read."""


class ActiveAttempt:
    """An attempt at a run that this process holds."""

    config: RunConfig
    execution: Execution
    data: Data

    def __init__(self, ledger: Ledger, held: HeldRun, runs: Path, data_folder: Path) -> None:
        """
        Args:
            runs: folder of logs and checkpoints.
            data_folder: the prepared data of the task.
        """
        self.ledger, self.held, self.runs, self.data_folder = ledger, held, runs, data_folder
        self.id = held.run.id

    @property
    def is_tuning(self) -> bool:
        return self.held.run.memberships[0].stage == "tune"

    @property
    def compiled_key(self) -> str:
        """The key that runs must share to be trained together."""
        return compiled_key(self.config, self.execution)

    @property
    def program_key(self) -> str:
        """The key of the compiled functions."""
        return program_key(self.config, self.execution)

    def load(self) -> None:
        """Reads the run's configuration and the data.

        Raises:
            MachineFault: the data cannot be read, or the command that queued the run had other plug-ins.
            LrurunError: the run began on other data.
        """
        self.execution = self.held.run.execution
        try:
            self.config = plugin_code.config_of(self.held.run.config, f"run {self.id}")
            self.data = _loaded(self.config, self.data_folder)
        except LrurunError as error:
            raise MachineFault(error.message, error.hint) from None
        before, now = self.held.run.data_sha256, self.data.sha256
        if before and before != now:
            raise LrurunError(
                f"run {self.id}: began on data {before[:19]}, the prepared data are {now[:19]}",
                "restore the data it began on, or start again with --fresh",
            )

    def interrupt(self, cause: str) -> None:
        """Ends the attempt from outside, without a result; the run can be resumed."""
        self.ledger.finish(self.held, "interrupted", reason=f"interrupted: {cause}")

    def fail(self, error: Exception) -> None:
        """Ends the attempt with an exception, which the run keeps."""
        fault = plugins.fault(error)
        text = f"{type(error).__name__}: {error}" if fault is None else fault.message
        if isinstance(error, LrurunError):
            text = f"{error.message}; {error.hint}" if error.hint else error.message
        trace = "".join(traceback.format_exception(error))
        self.ledger.finish(self.held, "failed", error=f"{text}\n\n{trace}", reason=f"failed: {text}")

    def note(self, kind: str, text: str) -> None:
        """Adds an event to the ledger and a line to the log."""
        logs.write(text)
        self.ledger.event(kind, text, run=self.id, attempt=self.held.attempt)

    def refuse_items(self, score: str, why: str) -> None:
        """Notes that the per-item results of a score are not recorded: the supervisor prints it, and reports say it."""
        self.note(ITEMS_REFUSED, f"per-item results of {score} are not recorded: {why}")

    def report_changes(self) -> None:
        """Records how machine, packages and code differ from the previous attempt's."""
        before, now = (attempt.environment for attempt in self.ledger.attempts(self.id)[-2:])
        for (table, name), label in _COMPARED.items():
            old, new = (environment.get(table, {}).get(name) for environment in (before, now))
            if old != new:
                self.note("changed", f"resumed with a different {label}: {old or 'none'} before, {new or 'none'} now")


_COMPARED = {
    ("machine", "cpu"): "CPU",
    ("placement", "devices"): "number of devices",
    ("versions", "jax"): "jax",
    ("versions", "jaxlib"): "jaxlib",
    ("code", "lrurun"): "lrurun",
    ("code", "commit"): "commit",
    ("code", "dirty"): "hash of uncommitted changes",
}
"""Entry of an attempt's environment -> its name in a message."""

_DATA: dict[str, Data] = {}
"""The data that this process has loaded: the runs of a rung share them."""


def _loaded(config: RunConfig, folder: Path) -> Data:
    key = json.dumps([config.task, config.data, config.train.protocol, str(folder)], sort_keys=True)
    if key not in _DATA:
        from lrurun.data import task_data  # numpy: a worker takes its first run without it

        task = tasks.get(config.task, config.data)
        _DATA[key] = task_data.load(task, tasks.options_of(task, config.data), folder, config.train.protocol)
    return _DATA[key]
