"""A node supervisor: which task of an engine it is, and what it takes back from its own earlier start.

Executors set the environment variables TASK, START, REQUEUE, SHARED and INSTANCE for it; attempts record the first two.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct, convert

from lrurun import console
from lrurun.errors import LrurunError
from lrurun.ledger import owner
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Event, HeldRun, LadderInstance, Run
from lrurun.runner.storage import storage_for

TASK = "LRURUN_TASK"
"""The engine's name for this task, for example "slurm:12_0": the same when it starts the task again."""
START = "LRURUN_START"
"""How often the engine has started the task before; without it, as often as the ledger has it."""
REQUEUE = "LRURUN_REQUEUE"
"""A command by which a task that was asked to save with SIGUSR1 asks the engine to start it again."""
SHARED = "LRURUN_SHARED"
"""The token of a submission: the node must see the file of this token in the runs folder."""
INSTANCE = "LRURUN_INSTANCE"
"""The key of the ladder instance of the command that started it."""

STARTED, SUBMITTED, FAILED = "node", "submitted", "node failed"
"""Kinds of the events of a ladder: a node supervisor began, was submitted, or cannot work."""

HIDDEN_GPUS = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "-1")
"""Environment variables of a task to which the engine has given no GPU, so that it does not use GPUs of others. No
device is called -1; an empty value would hide nothing from HIP."""

NO_GPU = "--on {engine}: asks for no GPU, although the cluster has some; runs use CPUs, and {setting} asks for one"
"""The message of a command that asks for no GPU, which may be meant."""

REQUEUE_SECONDS = 15.0
"""How long a task tries to be started again."""


class NodeStarted(Struct, frozen=True):
    """The payload of the event that a node supervisor began."""

    task: str
    start: int
    host: str


class NodeFailed(Struct, frozen=True):
    """The payload of the event that a node supervisor cannot work."""

    submission: str
    message: str
    hint: str


class NodeTask(Struct, frozen=True):
    """A task of an engine, and how often it was started before."""

    name: str
    start: int

    def begin(self, ledger: Ledger, instance: LadderInstance, host: str) -> None:
        """Records that this task has started on a host."""
        started = NodeStarted(self.name, self.start, host)
        ledger.event(STARTED, f"{self.name}, start {self.start}, on {host}", started, ladder=instance.key)

    def take_back(self, ledger: Ledger, running: Iterable[Run]) -> None:
        """Interrupts the running runs that an earlier start of this task held: the engine has ended that one.

        A process that lives on nevertheless, on a node that the engine has lost, is refused at its next write.
        """
        runs = {run.id: run for run in running}
        for attempt in ledger.newest_attempts(runs).values():
            before = attempt.environment.get("node", {})
            if before.get("task") == self.name and before.get("start", 0) < self.start:
                reason = f"interrupted: {self.name} was started again"
                with contextlib.suppress(Fenced):
                    ledger.finish(HeldRun(run=runs[attempt.run], attempt=attempt.n), "interrupted", reason=reason)

    def check(self, event: Event) -> None:
        """Refuses to go on beside a later start of the same task.

        Raises:
            LrurunError: the event says that there is one.
        """
        if event.kind != STARTED:
            return
        started = convert(event.payload, NodeStarted)
        if started.task == self.name and started.start > self.start:
            raise LrurunError(
                f"{self.name} was started again on {started.host}: the engine has lost this process",
                "nothing to do: its runs go on there",
            )


def task() -> NodeTask | None:
    """The task that this process belongs to; None outside of an engine."""
    name = os.environ.get(TASK)
    start = os.environ.get(START) or "0"
    return NodeTask(name, int(start) if start.isdecimal() else 0) if name else None


def instance() -> str | None:
    """The key of the instance of the command that started this node supervisor; None for a script that was submitted by
    hand."""
    return os.environ.get(INSTANCE)


def count_starts(ledger: Ledger) -> None:
    """Sets START, for this process and its workers, where the engine does not say it.

    The clocks of nodes may differ, but the events of a ledger are in order.
    """
    name = os.environ.get(TASK)
    if name and START not in os.environ:
        events = [event for ladder in ledger.ladders() for event in ledger.events(ladder_key=ladder.key, of_runs=False)]
        starts = [convert(event.payload, NodeStarted) for event in events if event.kind == STARTED]
        os.environ[START] = str(len({started.start for started in starts if started.task == name}))


def shared_file(runs: Path, token: str) -> Path:
    """The file of a token in the runs folder, which contains the token too."""
    return runs / "nodes" / f"{token}.shared"


def sees(runs: Path, token: str) -> bool:
    """Whether this machine sees the file of a token."""
    try:
        file = storage_for(runs).fetch(shared_file(runs, token))
        return bool(token) and file.read_text(errors="replace") == token
    except OSError:
        return False


def check(ledger: Ledger, instance: LadderInstance, runs: Path) -> None:
    """Checks that the runs folder is the one that the command sees which started this node supervisor.

    A script that was submitted by hand has no token, and no folder is checked.

    Raises:
        LrurunError: it is not. The ledger then says so, to the command.
    """
    token = os.environ.get(SHARED)
    if token is not None and not sees(runs, token):
        message = f"{runs}: the runs folder is not shared with the node {owner.host()}"
        hint = "choose a folder on shared storage with --runs-dir"
        failed = NodeFailed(token, message, hint)
        ledger.event(FAILED, f"submission {token}: {message}; {hint}", failed, ladder=instance.key)
        raise LrurunError(message, hint)


def failure(event: Event, tokens: Collection[str]) -> LrurunError | None:
    """Why a node of one of these submissions cannot work, where the event says that.

    Others may train the same ladder, with another runs folder.
    """
    failed = convert(event.payload, NodeFailed) if event.kind == FAILED else None
    return LrurunError(failed.message, failed.hint) if failed and failed.submission in tokens else None


def requeue(number: int | None) -> None:
    """Asks the engine after SIGUSR1 to start this task again; it may be busy for a while."""
    command = shlex.split(os.environ.get(REQUEUE, ""))
    deadline = time.monotonic() + REQUEUE_SECONDS
    while command and number == signal.SIGUSR1:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            console.say(f"requeued: {shlex.join(command)}")
            return
        if time.monotonic() > deadline:
            console.warn(f"{shlex.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
            return
        time.sleep(1.0)
