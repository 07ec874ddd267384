"""Before training: the folders are checked, and missing data are prepared in a process of their own."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Protocol

from lrurun import machine, paths
from lrurun.data import task_data
from lrurun.data.task import Options, Task
from lrurun.decoding import canonical
from lrurun.errors import LrurunError, PreparationError, UsageError
from lrurun.paths import Places
from lrurun.runner.processes import FAULT_EXIT, POLL_SECONDS, LocalWorker, cause, error_of, finish
from lrurun.runner.signals import GRACE_SECONDS, Signals
from lrurun.runner.storage import storage_for
from lrurun.runner.work import Needs, Preparation, PreparationProgress, last


class DataChoice(Protocol):
    """The data of a plan, or those that `lrurun data` names."""

    @property
    def task(self) -> Task: ...

    @property
    def options(self) -> Options: ...

    @property
    def data_name(self) -> str: ...


class PreparationDisplay(Protocol):
    """Shows the progress of a preparation."""

    def update(self, what: str, done: int, total: int | None) -> None: ...


class TooFewDevices(UsageError):
    """This machine has fewer devices than a run needs."""

    def __init__(self, count: int, found: int, *, on_cpu: bool) -> None:
        super().__init__(
            f"execution.devices = {count}: a run needs {count} devices, this machine has {found}"
            f"{' (a CPU is one)' if on_cpu else ''}",
            f"use at most {found}: --set execution.devices={found}",
        )
        self.found = found
        self.elsewhere = (
            f"let the CPU count as {count}: export XLA_FLAGS=--xla_force_host_platform_device_count={count}"
            if on_cpu
            else f"use a machine that has {count}"
        )
        """What to do where the number is to stay."""


def check_devices(count: int, *, of_programs: bool = False) -> None:
    """Checks that this machine has as many devices as a run needs; users' programs need them where there are any.

    Raises:
        TooFewDevices: it has fewer.
    """
    devices = len(machine.nvidia_devices()) or None if of_programs else machine.devices()
    if devices is not None and count > devices:
        on_cpu = not of_programs and (
            os.environ.get("JAX_PLATFORMS", "").split(",")[0] == "cpu" or not machine.accelerators()
        )
        raise TooFewDevices(count, devices, on_cpu=on_cpu)


def prepare_data(
    data_dir: Path,
    choice: DataChoice,
    signals: Signals,
    display: PreparationDisplay,
    *,
    from_path: Path | None = None,
    force: bool = False,
) -> bool:
    """Prepares the data if they are missing; returns whether it did.

    Args:
        data_dir: the folder of all data.
        from_path: a copy of the published data to read, instead of downloading or generating them.
        force: prepare data that are there again.

    Raises:
        Stopped: after a signal; nothing half-written remains.
        PreparationError: the data cannot be obtained or written.
    """
    folder = (data_dir / choice.data_name).absolute()
    if not force and task_data.manifest(choice.task, choice.options, folder) is not None:
        return False
    preparation = Preparation(
        task=choice.task.name,
        options=canonical(choice.options),
        data=folder,
        from_path=None if from_path is None else from_path.absolute(),
        force=force,
        recipe=choice.task.recipe,
    )
    worker = LocalWorker(preparation, needs=Needs())
    try:
        while worker.poll() is None:
            signals.check()
            if progress := last(worker.tail(1), PreparationProgress):
                display.update(progress.what, progress.done, progress.total)
            time.sleep(POLL_SECONDS)
        code, output = worker.poll(), worker.tail()
    finally:
        worker.terminate()
        finish([worker], signals, GRACE_SECONDS)
    if code == FAULT_EXIT:
        fault = error_of(output)
        error = PreparationError(fault.message, fault.hint)
        error.exit_code = fault.exit_code
        raise error from fault
    if code != 0:
        reason = output.splitlines()[-1] if output else "it printed nothing"
        raise PreparationError(
            f"{choice.data_name}: the preparation ended with {cause(code or 1)}: {reason}",
            "lrurun doctor shows what this machine has",
        )
    return True


def check_data_folder(places: Places, choice: DataChoice, *, force: bool = False) -> None:
    """Checks that the data are there in full or can be prepared (with `force`: again), before anything is written.

    Their digests are compared by the workers, when they load them.

    Raises:
        LrurunError: neither holds.
    """
    folder = places.data / choice.data_name
    if force and choice.task.restore:
        raise LrurunError(f"--force: {choice.task.name} has imported arrays, which nothing makes", choice.task.restore)
    table = None if force else task_data.manifest(choice.task, choice.options, folder)
    if table is not None:
        task_data.check_sizes(table, folder)
    else:
        if choice.task.restore:
            raise task_data.missing(choice.task, folder)
        above = places.data.absolute()
        while not above.exists():
            above = above.parent
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            why = "cannot be written" if above.is_dir() else "is not a folder"
            raise LrurunError(
                f"{places.data}: the data folder cannot be created: {above} {why}", "choose another with --data-dir"
            )


def check_runs_folder(runs: Path) -> None:
    """Checks that files can be written to the runs folder, before anything else is written.

    Raises:
        LrurunError: they cannot.
    """
    if paths.is_mirror(runs):
        runs.parent.mkdir(parents=True, exist_ok=True)
    created = False
    try:
        with contextlib.suppress(FileExistsError):  # it may be a file, which the next step reports
            runs.mkdir()
            created = True
        with tempfile.NamedTemporaryFile(dir=runs, prefix=".room-") as file:
            file.write(b"\0" * 65536)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if created:
            with contextlib.suppress(OSError):
                runs.rmdir()
        hint = "free some space or change the permissions, or choose another folder with --runs-dir"
        reason = error.strerror
        if isinstance(error, FileNotFoundError) and runs.parent.is_dir():  # as in /proc
            reason = f"nothing can be created in {runs.parent.absolute()}"
            hint = "choose another folder with --runs-dir, or with --ledger, whose folder has the runs by default"
        elif isinstance(error, FileNotFoundError):
            hint = f"create the folder: mkdir -p {runs.parent}"
        raise LrurunError(f"{runs}: the runs folder cannot be written: {reason}", hint) from None
    storage_for(runs).check()
