"""Commands that train, simulated: their processes are threads that take turns, their clock is a number, their training
is arithmetic. Supervisor, executor, worker, recorder, snapshots and ledger are the real ones.

Whatever a process does that others can see is a step: an event of training, a write to the ledger, a file. A fault
comes before a chosen step. So one test has every moment at which a kill can come.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lrurun import plugins
from lrurun.config import planning
from lrurun.data.task import Data, Spec, Split
from lrurun.errors import LrurunError, Stopped
from lrurun.ledger import owner
from lrurun.ledger.database import sql
from lrurun.ledger.database.sqlite import SQLite
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Attempt, Owner, Run
from lrurun.paths import Places
from lrurun.runner import attempt, execute, logs, orders, processes, recorder, run_files, signals, snapshots, supervisor
from lrurun.runner.executors import local
from lrurun.runner.selection import Selection
from lrurun.runner.signals import Signals
from lrurun.runner.supervisor import Supervisor
from lrurun.runner.work import Needs, Order, Work, encode
from lrurun.session.training import sweep_work
from lrurun.training import checkpoint_verification
from lrurun.training.events import Began, Ended, Event, Measured, Reached, Snapshot, Spectrum
from tests.harness.stores import make_empty

STEPS, EVAL_EVERY, SECONDS_PER_STEP = 4, 2, 0.5
SETS = {
    "train.steps": STEPS,
    "train.eval_every": EVAL_EVERY,
    "execution.checkpoint_seconds": 0.4,
    "execution.hang_after_seconds": 30.0,
}
REAL = SimpleNamespace(writing=SQLite.writing, reading=SQLite.reading)


class Killed(BaseException):
    """Raised in a process that is dead already, wherever it would do something."""


class Process:
    """A thread that goes on only while it has the turn."""

    def __init__(self, world: World, name: str, command: Command, target: Callable[[], int]) -> None:
        self.world, self.name, self.command, self.target = world, name, command, target
        self.pid = 1000 + len(world.processes)
        self.wakes, self.is_dead, self.code = world.now, False, None
        self.error: BaseException | None = None
        self.log: list[str] = []
        self.handlers: dict[int, Callable[[int, None], object]] = {}
        self._may = threading.Semaphore(0)
        world.processes.append(self)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._may.acquire()
        code = -signal.SIGKILL
        try:
            if not self.is_dead:
                code = self.target()
        except Killed:
            pass
        except SystemExit:
            code = 0
        except BaseException as error:
            self.error, code = error, 1
        self.code = -signal.SIGKILL if self.is_dead else code
        self.world.back.release()

    def turn(self) -> None:
        """Lets it go on until it sleeps or ends."""
        self.world.current = self
        self._may.release()
        self.world.back.acquire()
        self.world.current = None

    def sleep(self, seconds: float) -> None:
        self.wakes = self.world.now + max(seconds, 0.001)
        self.world.back.release()
        self._may.acquire()
        self.check()

    def check(self) -> None:
        if self.is_dead:
            raise Killed

    def kill(self) -> None:
        if self.code is None:
            self.is_dead, self.wakes = True, self.world.now


class SimulatedWorker:
    """Takes the place of `processes.LocalWorker`."""

    def __init__(self, world: World, work: Work, *, needs: Needs, devices: Sequence[str] = ()) -> None:
        self.world, self.needs, self.devices = world, needs, devices
        self.order = Order(supervisor=0, plugins=plugins.loaded(), needs=needs, work=work)
        self.is_dismissed = False
        self.process = Process(world, "worker", world.current.command, orders.carry_out)
        self.process.worker = self  # type: ignore[attr-defined]
        self.output: list[str] = []
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.code

    def is_suspended(self) -> bool:
        return self.process.wakes - self.world.now > 100

    def terminate(self) -> None:
        self.world.current.check()  # type: ignore[union-attr]
        if self.poll() is None and (handler := self.process.handlers.get(signal.SIGTERM)):
            handler(signal.SIGTERM, None)
        elif self.poll() is None:
            self.kill()

    def kill(self) -> None:
        self.world.current.check()  # type: ignore[union-attr]
        self.process.kill()

    def wait(self) -> None:
        while self.poll() is None:
            self.world.sleep(0.0)

    def dismiss(self) -> None:
        self.is_dismissed = True

    def tail(self, lines: int = 3) -> str:
        return "\n".join(self.output[-lines:])

    def close(self) -> None: ...


class Command:
    """A command `lrurun ladder`, on a machine of its own where `host` says so, with `--sweep` where there are several
    `rates`."""

    def __init__(
        self,
        world: World,
        host: str = "here",
        seeds: Sequence[int] = (0,),
        rates: Sequence[float | None] = (None,),
        extend: int | None = None,
        **fields: Any,
    ) -> None:
        """`extend`: with `--tune --extend` of this number."""
        self.world, self.host, self.seeds, self.rates, self.fields = world, host, seeds, rates, fields
        self.extend = extend
        self.signals, self.said = Signals(), list[str]()
        self.process = Process(world, "command", self, self._run)

    def update(self, ledger: Ledger, *ladders: object) -> None: ...

    def say(self, text: str) -> None:
        self.process.check()
        self.said.append(text)

    def _run(self) -> int:
        plans, places = [plan_of(rate, self.extend) for rate in self.rates], self.world.places
        first, *others = (
            Selection(plan=plan, rungs=planning.choose_rungs(plan, ["gamma-norm"]), seeds=self.seeds) for plan in plans
        )
        with Ledger.open(places.ledger) as ledger:
            try:
                instances = [
                    ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec) for plan in plans
                ]
                work = sweep_work([first, *others], instances, places, **{"jobs": 1} | self.fields)
                executor = local.LocalExecutor()
                one = Supervisor(ledger, work, first, self, self.signals, executor, others)  # type: ignore[arg-type]
                return one.run().exit_code
            except Stopped as stopped:
                return stopped.exit_code
            except LrurunError as error:
                self.say(f"error: {error.message}; {error.hint}")
                return error.exit_code

    def kill(self) -> None:
        """Kills it and its workers, as the system does."""
        for process in self.processes:
            process.kill()

    @property
    def processes(self) -> list[Process]:
        return [process for process in self.world.processes if process.command is self]

    def finish(self) -> int | None:
        """Lets all processes go on to their ends; returns the exit code of this one."""
        self.world.run()
        return self.process.code


@functools.cache
def plan_of(rate: float | None = None, extend: int | None = None) -> planning.Plan:
    sets = SETS if rate is None else SETS | {"optim.lr": rate}
    return planning.make("sDigits", profile="smoke", sets=sets, tune=extend is not None, extend=extend)


class OneThread:
    """Takes the place of an executor with one thread; what it is given it does in the order in which it was given."""

    is_late: bool

    def __init__(self, max_workers: int = 1) -> None:
        self.queue: list[Task] = []

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Task:
        task = Task(self, lambda: call(*arguments))
        self.queue.append(task)
        if not self.is_late:
            task.work()
        return task

    def shutdown(self) -> None:
        if self.queue:
            self.queue[-1].work()


class Late(OneThread):
    """Does nothing before it is waited for."""

    is_late = True


class Prompt(OneThread):
    """Does everything at once."""

    is_late = False


class Task(Future[Any]):
    def __init__(self, thread: OneThread, call: Callable[[], Any]) -> None:
        super().__init__()
        self.thread, self.call = thread, call

    def work(self) -> None:
        """Does it, after everything that was given before."""
        while not self.done():
            first = self.thread.queue.pop(0)
            try:
                first.set_result(first.call())
            except BaseException as error:
                first.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        self.work()
        return super().result()


class World:
    """Processes, their clock, a ledger and a runs folder.

    Args:
        fault: called in the process that is about to do the `at`-th step.
    """

    def __init__(self, folder: Path, at: int = -1, fault: Callable[[World, Process], None] | None = None) -> None:
        folder.mkdir(parents=True)
        make_empty(folder / "ledger.db")
        self.places = Places(ledger=folder / "ledger.db", runs=folder / "runs", data=folder / "data")
        self.at, self.fault, self.now = at, fault, 1_000_000.0
        self.on: dict[str, list[Callable[[World, Process], None]]] = {}
        """Faults before the next steps of a kind."""
        self.score: Callable[[Any, Any], float] = lambda config, state: state / 202
        """The validation score of a run with these settings in this state of training."""
        self.steps: list[str] = []
        self.processes: list[Process] = []
        self.write_ends_with: Exception | None = None
        self.clock = 0.0
        """How far the clock was set: what `time.time` says beside the seconds that have passed."""
        self.back = threading.Semaphore(0)
        self.current: Process | None = None
        self.time = SimpleNamespace(
            monotonic=lambda: self.now,
            time=lambda: self.now + self.clock,
            time_ns=lambda: int(self.now * 1e9),
            sleep=self.sleep,
        )

    def run(self) -> World:
        """Lets all processes go on until they have ended, those first whose time is come."""
        for _ in range(3_000):
            going = [process for process in self.processes if process.code is None]
            if not going:
                return self
            first = min(going, key=lambda process: process.wakes)
            assert first.wakes < math.inf, f"{first.name} {first.pid} stands still for ever"
            self.now = max(self.now, first.wakes)
            first.turn()
            if first.error is not None:
                raise first.error
        raise AssertionError("processes that never end")

    def sleep(self, seconds: float) -> None:
        process = self.current
        assert process is not None
        one = getattr(process, "worker", None)
        if one is not None and one.is_dismissed and seconds == orders.IDLE_SECONDS:
            sys.exit()  # its input is closed, and it has no run
        process.sleep(seconds)

    def step(self, kind: str) -> None:
        """Something that others can see is about to happen."""
        process = self.current
        if process is None:
            return  # the test itself
        process.check()
        number = len(self.steps)
        self.steps.append(f"{process.name}: {kind}")
        faults = [self.fault] if number == self.at and self.fault is not None else []
        if waiting := self.on.get(kind):
            faults.append(waiting.pop(0))
        for fault in faults:
            fault(self, process)
            process.check()

    def owner(self) -> Owner:
        process = self.current
        host, pid = ("test", 1) if process is None else (process.command.host, process.pid)
        return Owner(host=host, boot=host, namespace=host, pid=pid, pid_started=float(pid), user="ann")

    def alive(self, one: Owner) -> bool:
        return any(
            process.pid == one.pid and process.code is None and not process.is_dead for process in self.processes
        )


def install(world: World, patch: pytest.MonkeyPatch, thread: type[OneThread] = Prompt) -> World:
    """Replaces processes, threads, clock, training and checkpoints of the package by those of `world`."""
    for module in (attempt, execute, logs, processes, recorder, signals, supervisor, orders, local, sql):
        if hasattr(module, "time"):
            patch.setattr(module, "time", world.time)
    for module in (recorder, snapshots):
        patch.setattr(module, "ThreadPoolExecutor", thread)
    patch.setattr(owner, "this_process", world.owner)
    patch.setattr(owner, "alive", world.alive)
    patch.setattr(local, "LocalWorker", functools.partial(SimulatedWorker, world))
    patch.setattr(local.machine, "killed_for_memory", lambda: 0)
    patch.setattr(orders, "signal", SimpleNamespace(**vars(signal) | {"signal": _handler(world)}))
    patch.setattr(orders, "_read_order", lambda: world.current.worker.order)  # type: ignore[union-attr]
    patch.setattr(orders, "_exit_with", lambda *_: None)
    patch.setattr(orders, "_send", lambda message: world.current.worker.output.append(encode(message)))  # type: ignore[union-attr]
    patch.setattr(orders, "_execution", lambda: execute)  # it would keep all that lives in the process of the tests
    patch.setattr(logs, "redirected", _redirected)
    patch.setattr(logs, "write", lambda text: world.current.log.append(text) if world.current else None)
    patch.setattr(attempt, "_loaded", lambda config, folder: DATA)
    patch.setattr(execute.loop, "train_together", functools.partial(train_together, world))
    patch.setattr(execute, "compiled_for", lambda *_: SimpleNamespace(is_compiled=lambda *_, **__: True))
    patch.setattr(snapshots.checkpoints, "save", functools.partial(save, world))
    patch.setattr(snapshots.checkpoints, "restore", restore)

    @contextlib.contextmanager
    def writing(database: SQLite, *, durable: bool) -> Iterator[Any]:
        world.step(f"write {_method()}")
        failing, world.write_ends_with = world.write_ends_with, None
        with REAL.writing(database, durable=durable) as connection:
            yield connection
            if isinstance(failing, sqlite3.Error):
                raise failing
        if failing is not None:
            raise failing

    def retry(database: SQLite, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except Unanswered:
                world.sleep(1.0)

    @contextlib.contextmanager
    def reading(database: SQLite) -> Iterator[Any]:
        if world.current is not None:
            world.current.check()
        with REAL.reading(database) as connection:
            yield connection

    patch.setattr(SQLite, "writing", writing)
    patch.setattr(SQLite, "reading", reading)
    patch.setattr(SQLite, "retry", retry)
    for module in (supervisor, processes):
        patch.setattr(module, "POLL_SECONDS", 0.5)  # fewer looks at what happens
    patch.setattr(supervisor, "UPDATE_SECONDS", 2.0)
    patch.setattr(orders, "IDLE_SECONDS", 1.0)
    for name in ("keep_run", "keep_ladder"):  # which take half of the time, and have tests of their own
        patch.setattr(run_files, name, lambda *_: world.step("record"))
    return world


def _method() -> str:
    """The method of the ledger that writes."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, frame = frame.f_code, frame.f_back
        in_ledger = Path(code.co_filename).parent == Path(owner.__file__).parent
        if in_ledger and hasattr(Ledger, code.co_name) and not code.co_name.startswith("_"):
            return code.co_name
    return ""


def _handler(world: World) -> Callable[[int, Any], None]:
    def keep(number: int, handler: Any) -> None:
        assert world.current is not None
        world.current.handlers[number] = handler

    return keep


@contextlib.contextmanager
def _redirected(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)  # which nobody else has made
    yield


# Training


_SPLIT = Split(inputs=np.zeros((2, 3), np.uint8), labels=np.zeros(2, np.uint8))
DATA = Data(
    spec=Spec(name="simulated", kind="features", features=1, classes=2, length=3),
    sha256="sha256:0",
    train=_SPLIT,
    validation=_SPLIT,
    test=_SPLIT,
)


def train_together(world: World, configs: Sequence[Any], execution: Any, data: Data, **options: Any) -> Iterator[Event]:
    """Takes the place of `training.loop.train_together`."""
    for event in _events(world, configs, options.get("resume") or [None] * len(configs)):
        world.step(f"event {type(event).__name__} {event.step}")
        yield event


def _events(world: World, configs: Sequence[Any], resume: Sequence[Snapshot | None]) -> Iterator[Event]:
    start = resume[0].step if resume[0] is not None else 0
    states = [config.seed if one is None else one.live for config, one in zip(configs, resume, strict=True)]
    best = [(-1.0, 0) if one is None else (one.score, one.best_step) for one in resume]
    members = range(len(configs))

    def snapshot(member: int, step: int) -> Snapshot:
        score, best_step = best[member]
        state: Any = states[member]
        return Snapshot(step=step, score=score, best_step=best_step, live=state, best=state)

    def spectrum(member: int, step: int, moment: Any) -> Spectrum:
        return Spectrum(member=member, step=step, moment=moment, layers=(np.array([complex(states[member], step)]),))

    for member in members:
        yield Began(member=member, step=start, parameters=7, compile_seconds=0.0)
        if start == 0:
            yield spectrum(member, 0, "start")
    for step in range(start + 1, STEPS + 1):
        world.sleep(SECONDS_PER_STEP)
        for member in members:
            states[member] = (states[member] * 31 + 7) % 101
            yield Measured(
                member=member, step=step, values={"train/loss": states[member] / 101, "machine/s": world.now}
            )
            if step % EVAL_EVERY == 0:
                score = world.score(configs[member], states[member])
                best[member] = max(best[member], (score, -step))
                yield Measured(member=member, step=step, values={"val/accuracy": score})
        for member in members if step < STEPS else ():
            yield Reached(member=member, step=step, snapshot=functools.partial(snapshot, member, step))
    for member in members:
        yield spectrum(member, STEPS, "end")
        result = {"val/accuracy": best[member][0], "best_step": float(-best[member][1])}
        yield Ended(member=member, state="done", step=STEPS, result=result, snapshot=snapshot(member, STEPS))


def save(world: World, folder: Path, snapshot: Snapshot, fingerprint: str) -> tuple[int, str]:
    """Takes the place of `checkpoints.save`: two files, so that a kill between them leaves one."""
    for name in ("one", "two"):
        world.step("checkpoint")
        folder.mkdir(parents=True, exist_ok=True)
        fields = [snapshot.step, snapshot.score, snapshot.best_step, snapshot.live, fingerprint]
        (folder / name).write_text(json.dumps(fields))
    return checkpoint_verification.digest(folder)


def restore(folder: Path, programs: object, fingerprint: str) -> Snapshot:
    step, score, best_step, live, written = json.loads((folder / "two").read_text())
    assert written == fingerprint
    return Snapshot(step=step, score=score, best_step=best_step, live=live, best=live)


# Faults: each is called in the process that is about to do a step


def kill_worker(world: World, process: Process) -> None:
    process.kill()


def kill_command(world: World, process: Process) -> None:
    process.command.kill()


def sigterm(world: World, process: Process) -> None:
    process.command.signals.received = signal.SIGTERM


def hang(world: World, process: Process) -> None:
    process.sleep(math.inf)


def lose_answer(world: World, process: Process) -> None:
    """The server does what it is asked, and its answer is lost."""
    world.write_ends_with = Unanswered()


def fill_disk_of_ledger(world: World, process: Process) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorname = "SQLITE_FULL"
    world.write_ends_with = error


def fill_disk_of_runs(world: World, process: Process) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def freeze(world: World, process: Process) -> None:
    """The whole machine stands still for an hour, in which the same command on another one begins."""
    for one in process.command.processes:
        one.wakes = world.now + 3600
    Command(world, "elsewhere", process.command.seeds, process.command.rates).process.wakes = world.now + 1
    process.sleep(3600)


def set_clock(seconds: float, world: World, process: Process) -> None:
    """The clock is set, and the worker is killed."""
    world.clock = seconds
    process.kill()


class Unanswered(Exception):
    pass


# What is left


def history(world: World, key: Callable[[Run], Any] = lambda run: run.seed) -> dict[Any, Any]:
    """What must be the same however the runs were disturbed, by seed or another `key`."""
    found = {}
    with Ledger.open(world.places.ledger) as ledger:
        assert ledger.check() == []
        for run in ledger.runs():
            curves = {name: curve for name, curve in ledger.metrics(run.id).items() if not name.startswith("machine/")}
            [last] = ledger.checkpoints(run.id)
            path = world.places.runs / last.path
            checkpoint_verification.verify(path, last.sha256)
            saved = json.loads((path / "two").read_text())
            spectra = ledger.eigenvalues(run.id)
            found[key(run)] = (run.state, run.step, run.result, curves, spectra, last.state, last.step, saved)
    return found


def attempts(world: World, seed: int = 0) -> list[Attempt]:
    with Ledger.open(world.places.ledger) as ledger:
        [run] = [run for run in ledger.runs() if run.seed == seed]
        return ledger.attempts(run.id)
