"""Where the workers of a command run: on this machine, or on nodes of an engine such as Slurm.

An executor of an engine starts node supervisors. A node supervisor is the same command on a node, with `--on-node`: it
takes runs from the ledger, starts workers of its own, and leaves when nothing is queued. The ledger holds all state:
whether to start more of them is decided from it, not from what the engine says. Executors set environment variables for
their node supervisors: NODE of `ledger.owner`; TASK, START, SHARED and INSTANCE of `runner.node`.

Installed packages add executors by entry points of the group `lrurun.executors`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from lrurun import machine
from lrurun.errors import LrurunError, UsageError, hint_for
from lrurun.paths import Places
from lrurun.runner.selection import SelectedRuns
from lrurun.runner.signals import Signals

GROUP = "lrurun.executors"
BUILT_IN = {
    "local": "lrurun.runner.executors.local:LocalExecutor",
    "slurm": "lrurun.runner.executors.slurm:SlurmExecutor",
    "ray": "lrurun.runner.executors.ray:RayExecutor",
}


class NodeJob(Struct, frozen=True, kw_only=True):
    """The request of a command to an executor, before anything is written."""

    name: str
    """A name that is the same for every command on the same runs of the same ledger, so that jobs of earlier
    commands are found."""
    arguments: Sequence[str]
    """The command line of a node supervisor, from its program on. It has no password."""
    folder: Path
    """The working directory."""
    places: Places
    """Absolute paths of ledger, runs and data."""
    nodes: int | None = None
    """The largest number of node supervisors at a time; None for the executor's default."""
    devices: int = 1
    """The number of devices that a run needs."""
    of_programs: bool = False
    """Whether the runs execute a user's program, which needs devices only where there are any."""
    stop_seconds: float = 0.0
    """How long such a program may take to save and exit."""
    settings: Mapping[str, str] = {}
    """The settings of the executor, from `--on` and the user's configuration file."""


class Executor(Protocol):
    """Starts what trains the runs of a command, counts it, stops it, and says what became of it.

    The class is called with a NodeJob. `start` and `ended` are called again and again while a command runs. `runs.work`
    is the work, `runs.ledger` the ledger, and `runs.say` shows a message.
    """

    def __init__(self, job: NodeJob) -> None: ...

    def check(self, *, detach: bool) -> None:
        """Refuses what cannot work, before anything is written or submitted.

        Args:
            detach: whether the command returns after the first start.

        Raises:
            LrurunError: the engine, its settings or the places do not allow it.
        """

    def script(self) -> str:
        """The script that would be submitted, which can also be used by hand.

        Raises:
            UsageError: this executor submits nothing.
        """

    def start(self, runs: SelectedRuns) -> None:
        """Starts what is missing for the queued runs.

        Raises:
            LrurunError: it is useless to try again, or the command does not try again.
        """

    def count(self) -> int:
        """How many workers or node supervisors that were started are alive, as far as is known."""

    def ended(self, runs: SelectedRuns) -> Iterable[str]:
        """Yields a sentence about each worker or node supervisor that has ended since the last call, where needed.

        Raises:
            LrurunError: it is useless to start more.
        """

    def stop(self, runs: SelectedRuns, signals: Signals, *, finished: bool) -> None:
        """Ends what was started and waits for it; runs are saved.

        Args:
            finished: whether no run remains.
        """


def names() -> list[str]:
    """The names of all executors, which are not imported for it."""
    return [*BUILT_IN, *sorted({point.name for point in machine.entry_points(GROUP)} - BUILT_IN.keys())]


def make(name: str, job: NodeJob) -> Executor:
    """The executor of a name, for a command.

    Raises:
        UsageError: there is none of this name, or its settings are wrong.
        LrurunError: the package that has it cannot be imported.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        executor_class: Any = getattr(import_module(module), attribute)
    else:
        points = list(machine.entry_points(GROUP).select(name=name))
        if not points:
            raise UsageError(f"--on: there is no executor {name!r}", hint_for(name, names(), "executors"))
        try:
            executor_class = points[0].load()
        except Exception as error:
            where = f"executor {name!r} of package {points[0].dist.name if points[0].dist else points[0].value}"
            raise LrurunError(f"{where}: raised {type(error).__name__}: {error}", "correct or remove it") from error
    executor: Executor = executor_class(job)
    return executor
