"""What a worker process does: it reads its order, the first line of standard input, and carries it out.

It takes a run, holds it while it trains it, and takes the next one. On SIGTERM it saves at the next dispatch boundary
and exits; it is killed when its supervisor exits.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from lrurun import kinds, machine, plugins
from lrurun.data import tasks
from lrurun.errors import LedgerError, LrurunError, UnreachableError
from lrurun.ledger import owner
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.database import TRAINING_TIMEOUT
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun
from lrurun.paths import inside
from lrurun.runner import environment, logs, run_files
from lrurun.runner.attempt import ActiveAttempt, MachineFault, StopRequest
from lrurun.runner.processes import FAULT_EXIT
from lrurun.runner.signals import GRACE_SECONDS
from lrurun.runner.storage import storage_for
from lrurun.runner.work import (
    Message,
    Needs,
    Order,
    Preparation,
    PreparationProgress,
    Work,
    WorkerError,
    decode,
    encode,
)
from lrurun.training import COMPILED_KEPT

PROGRESS_SECONDS = 0.2
IDLE_SECONDS = 0.2
TRACE_CHARACTERS = 4000
"""The length of a traceback, of which the last characters are sent: the supervisor reads the last 32 kB of the
output."""


def carry_out() -> int:
    """Reads the order and carries it out; returns the exit code of the process."""
    stop = StopRequest()
    signal.signal(signal.SIGTERM, stop.request)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which users' programs would inherit
    order = _read_order()
    if order is None:
        return 0
    _exit_with(order.supervisor, stop)
    try:
        plugins.load_all(order.plugins)
        match order.work:
            case Preparation():
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # at once: data appear whole or not at all
                _prepare(order.work)
                return 0
            case Work():
                _check_platform()
                with _opened(order.work.ledger, stop) as ledger:
                    _train_queued(ledger, order.work, order.needs, stop)
    except Exception as error:
        fault = error if isinstance(error, LrurunError) else plugins.fault(error)
        if fault is None:
            raise
        trace = traceback.format_exc()[-TRACE_CHARACTERS:]
        _send(WorkerError(message=fault.message, hint=fault.hint, exit_code=fault.exit_code, trace=trace))
        return 143 if stop.requested and isinstance(error, LedgerError) else FAULT_EXIT
    return 143 if stop.requested else 0


def _check_platform() -> None:
    """jax skips a platform without devices, such as CUDA, and would take the CPU.

    Raises:
        LrurunError: it has no device of the platforms in JAX_PLATFORMS, and the CPU is none of these.
    """
    if not (platforms := os.environ.get(machine.NOT_ON_CPU)):
        return
    import jax

    hint = "install jax for it: pip install 'lrurun[cuda]' or 'lrurun[tpu]'; unset JAX_PLATFORMS to train on the CPU"
    try:
        platform = jax.local_devices()[0].platform
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise LrurunError(f"JAX_PLATFORMS={platforms}: {reason}", hint) from None
    if platform == "cpu":
        hint = "nvidia-smi lists devices, CUDA_VISIBLE_DEVICES limits them; unset JAX_PLATFORMS to train on the CPU"
        raise LrurunError(f"JAX_PLATFORMS={platforms}: jax finds no such device, only the CPU", hint)


def _opened(location: str, stop: StopRequest) -> Ledger:
    """The ledger; a server that restarts is waited for, as later by every write."""
    started = time.monotonic()
    while True:
        try:
            ledger = Ledger.open(location, timeout=TRAINING_TIMEOUT)
        except UnreachableError:
            if stop.requested or time.monotonic() - started >= TRAINING_TIMEOUT:
                raise
            continue
        if ledger.database.may_be_away:
            ledger.waiting = _until_stopped(stop)
        return ledger


def _until_stopped(stop: StopRequest) -> Callable[[float], None]:
    """A function for `Ledger.waiting`, which gives up in half the time that a worker has after a request to save and
    exit."""
    requested_at: float | None = None

    def waiting(_seconds: float) -> None:
        nonlocal requested_at
        if not stop.requested:
            return
        requested_at = requested_at or time.monotonic()
        if time.monotonic() - requested_at >= GRACE_SECONDS / 2:
            raise LedgerError(
                "the server of the ledger does not answer, so that the end of this attempt is not recorded",
                "the same command continues from the last recorded checkpoint",
            )

    return waiting


def _prepare(work: Preparation) -> None:
    from lrurun.data import task_data

    task = tasks.get(work.task, work.options)
    task.recipe = work.recipe
    sent: tuple[str, float] = ("", 0.0)

    def progress(what: str, done: int, total: int | None) -> None:
        nonlocal sent
        now = time.monotonic()
        if what != sent[0] or now - sent[1] >= PROGRESS_SECONDS:
            sent = (what, now)
            _send(PreparationProgress(what=what, done=done, total=total))

    options = tasks.options_of(task, work.options)
    task_data.prepare(task, options, work.data, from_path=work.from_path, force=work.force, progress=progress)


def _train_queued(ledger: Ledger, work: Work, needs: Needs, stop: StopRequest) -> None:
    """Holds and trains runs until it is stopped."""
    process = owner.this_process()
    described = environment.record(needs.threads)
    compiled = deque[str](maxlen=COMPILED_KEPT)

    def hold_next(ladders: Sequence[str], rungs: Sequence[str]) -> HeldRun | None:
        return ledger.hold(
            ladders,
            process,
            rungs=rungs,
            seeds=work.seeds,
            threads=needs.threads,
            devices=needs.devices,
            compiled=compiled,
            programs=work.programs,
            environment=described,
        )

    runs = work.runs
    while not (stop.requested or stop.refused):
        ledger.reap(process)
        program, held_runs = _hold(hold_next, work)
        stop.idle = not held_runs
        if not held_runs:
            time.sleep(IDLE_SECONDS)
            continue
        if program not in compiled:
            compiled.append(program)
        with contextlib.ExitStack() as stack:
            for held in reversed(held_runs):
                folder = inside(runs, held.run.id, str(held.attempt))
                stack.callback(_keep_log, ledger, held, runs, folder)
                stack.enter_context(logs.redirected(folder))
                if held is not held_runs[0]:
                    logs.write(f"trained together with run {held_runs[0].run.id}: its log has the rest")
                run_files.keep_run(ledger, runs, held.run.id)
            try:
                train_attempts([ActiveAttempt(ledger, held, runs, work.data) for held in held_runs], stop)
            finally:
                with contextlib.suppress(LedgerError):  # what ended the training is the error to show
                    for held in held_runs:
                        run_files.keep_run(ledger, runs, held.run.id)


def _keep_log(ledger: Ledger, held: HeldRun, runs: Path, folder: Path) -> None:
    """Copies the log of an attempt that has ended to the object store, where that has the runs folder."""
    try:
        storage_for(runs).put(folder / "log.txt")
    except (OSError, LrurunError) as error:
        text = f"the log is only on {owner.host()}, in {folder}: {error}"
        ledger.event("log", text, run=held.run.id, attempt=held.attempt)


def _hold(hold_next: Callable[[Sequence[str], Sequence[str]], HeldRun | None], work: Work) -> tuple[str, list[HeldRun]]:
    """A program and the next queued run of it, or several of one instance and rung, which are trained together; no run
    if none is queued."""
    first = hold_next(work.ladders, work.rungs)
    if first is None:
        return "", []
    held_runs = [first]
    # a run that instances of a sweep share has the same program in each of them
    membership = next(member for member in first.run.memberships if member.ladder_key in work.ladders)
    ladder, rung = membership.ladder_key, membership.rung
    while len(held_runs) < work.pack and membership.stage == "train" and (held := hold_next([ladder], [rung])):
        held_runs.append(held)
    return work.program(ladder, rung), held_runs


def train_attempts(attempts: Sequence[ActiveAttempt], stop: StopRequest) -> None:
    """Trains attempts at runs of one rung, to their ends or to the next boundary after a stop request.

    Raises:
        LrurunError: data cannot be read, ledger or runs folder cannot be written.
    """
    active = list(attempts)
    try:
        if stop.requested:
            for attempt in active:
                attempt.interrupt("SIGTERM")
            return
        if (kind := kinds.of(active[0].held.run.kind)) is not None:
            kind.execute(active[0], stop)
            return
        execution = _execution()  # before data are loaded, which need some of the same packages
        for attempt in active:
            attempt.load()
        execution.execute(active, stop)
    except LedgerError:
        raise
    except (Fenced, MachineFault) as error:  # the runs are not to blame
        logs.write(f"{error.message}: {error.hint}")
        stop.refused = stop.refused or isinstance(error, Fenced)
        for attempt in active:
            with contextlib.suppress(LrurunError):
                attempt.interrupt(error.message)
        if isinstance(error, MachineFault):
            raise
    except Exception as error:
        logs.write(traceback.format_exc())
        for attempt in active:
            with contextlib.suppress(Fenced):
                attempt.fail(error)


@functools.cache
def _execution() -> ModuleType:
    """What imports jax, imported once: each time, everything that then lives is kept."""
    with machine.without_collection():
        from lrurun.runner import execute
    return execute


def _send(message: Message) -> None:
    print(encode(message), flush=True)


def _read_order() -> Order | None:
    """The first line of standard input; None where it was closed.

    It is read without a buffer: the thread that waits for the end of the input must hold no lock.
    """
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            return None
        line += piece
    return decode(line, Order)


def _exit_with(supervisor: int, stop: StopRequest) -> None:
    """Makes this process exit when its supervisor does: by the kernel on Linux, at end-of-file elsewhere."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG
    if os.getppid() != supervisor:
        os._exit(1)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        while not stop.idle and os.getppid() == supervisor:
            time.sleep(IDLE_SECONDS)
        os._exit(0 if os.getppid() == supervisor else 1)

    threading.Thread(target=watch, daemon=True).start()
