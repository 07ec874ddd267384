"""A worker's attempt at a run with real training, the thread that writes what it yields, and turns at compiling."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import pytest
from msgspec import structs

from lrurun.bench import loop
from lrurun.data.metric import Accuracy
from lrurun.ledger.attempt import Fenced
from lrurun.runner import execute, orders, recorder
from lrurun.runner.attempt import ActiveAttempt, StopRequest
from lrurun.runner.execute import turn
from lrurun.runner.recorder import LedgerThread, Recorder
from lrurun.training import checkpoints
from lrurun.training import events as train
from tests.harness.machine import Machine


class Watched(StopRequest):
    """Calls `look` at every event; stops where it says so."""

    def __init__(self, look):
        super().__init__()
        self.look = look

    def at(self, event):
        return bool(self.look(event))


@pytest.fixture
def attempt(tmp_path):
    """Makes an attempt at a run of a million steps, whose ledger is closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(look, **execution):
            ledger, held, plan = loop.held_run(tmp_path, "small")
            stack.enter_context(ledger)
            settings = structs.replace(held.run.settings, execution=structs.replace(held.run.execution, **execution))
            held = structs.replace(held, run=structs.replace(held.run, settings=settings))
            return (
                ledger,
                held,
                ActiveAttempt(ledger, held, tmp_path / "runs", tmp_path / plan.data_name),
                Watched(look),
            )

        yield make


@pytest.mark.slow
def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, attempt, monkeypatch):
    may, real = threading.Event(), checkpoints.save
    started, after, states, saves, began = [], [], [], [], threading.Event()

    def slow(*arguments):
        started.append(arguments[0].name)
        began.set()
        assert may.wait(60)
        return real(*arguments)

    monkeypatch.setattr(checkpoints, "save", slow)

    def look(event):
        if isinstance(event, train.Reached) and saves and not may.is_set():
            assert began.wait(60)
            after.append(event.step)
            if len(after) == 20:
                states.extend(c.state for c in ledger.checkpoints(held.run.id))
                may.set()
                return True
        return False

    ledger, held, tried, stop = attempt(look, checkpoint_seconds=0.0)
    monkeypatch.setattr(execute.EventWriter, "_save", saving_once(saves))
    orders.train_attempts([tried], stop)
    assert len(after) == 20  # boundaries that were reached while the first checkpoint was being written
    assert states == ["saving"]
    assert [c.state for c in ledger.checkpoints(held.run.id)] == ["committed", "committed"]  # it, and the last one
    assert [c.step for c in ledger.checkpoints(held.run.id)] == [after[-1], int(started[0])]
    assert ledger.run(held.run.id).state == "interrupted"


def saving_once(saves):
    """`EventWriter._save`, but for the saves between the first and that of the stop."""
    real = execute.EventWriter._save

    def save(writer, snapshot):
        saves.append(snapshot.step)
        if len(saves) == 1 or len(saves) == 21:
            real(writer, snapshot)

    return save


def seen_by(look):
    """Calls `look` at every event, and collects the training curve, (step, loss), as it was yielded."""
    curve = []

    def both(event):
        asked = look(event)
        if isinstance(event, train.Measured) and "train/loss" in event.values:
            curve.append((event.step, event.values["train/loss"]))
        return asked

    return curve, both


def holding(file, after):
    """Holds the ledger's lock from step 100 on, for 40 boundaries, which are added to `after`; then asks to stop."""
    other = []

    def look(event):
        if not isinstance(event, train.Reached):
            return False
        if event.step >= 100 and not other:
            other.append(sqlite3.connect(file, isolation_level=None, timeout=60))
            other[0].execute("BEGIN IMMEDIATE")
        elif other:
            after.append(event.step)
        if len(after) == 40:
            other[0].execute("COMMIT")
            other[0].close()
            return True
        return False

    return look


@pytest.mark.slow
def test_training_does_not_wait_for_a_busy_ledger(tmp_path, attempt, monkeypatch):
    """Rows are written by a thread; in the end all of them are in the ledger."""
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 0.0)
    after = []
    curve, look = seen_by(holding(tmp_path / "ledger.db", after))
    ledger, held, tried, stop = attempt(look)
    orders.train_attempts([tried], stop)
    assert len(after) == 40
    assert curve
    assert ledger.metrics(held.run.id)["train/loss"] == curve
    assert ledger.run(held.run.id).step == after[-1]


def test_the_log_ends_with_the_results_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    writer = execute.EventWriter.__new__(execute.EventWriter)
    for name in ("attempt", "ledger", "held", "recorder", "snapshots", "writes", "_save"):
        setattr(writer, name, mock.Mock())
    writer.attempt.data.metrics = (Accuracy(),)
    result = {"val/loss": 0.25, "test/accuracy": 0.5}
    assert writer.write(train.Ended(state="done", step=7, result=result, snapshot=mock.Mock()), stopping=False)
    assert capsys.readouterr().out == "done at step 7: test/accuracy 0.5, val/loss 0.25\n"


class Rows:
    """A ledger that keeps what it gets, once it may."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, float]] = []
        self.may = threading.Event()

    def record(self, held: object, rows: Any, step: int, *, score: str) -> None:
        assert self.may.wait(30)
        self.rows += rows


def test_everything_is_written_in_the_order_of_the_calls():
    thread, done, may = LedgerThread(), list[int](), threading.Event()
    assert thread.is_idle
    thread.submit(lambda: may.wait(30))
    for number in range(50):
        thread.submit(lambda number=number: done.append(number))
    assert not thread.is_idle
    thread.poll()
    assert done == []
    may.set()
    thread.drain()
    assert done == list(range(50))
    assert thread.is_idle
    thread.close()


def test_nothing_is_written_after_an_error():
    thread, done = LedgerThread(), list[int]()

    def fenced() -> None:
        raise Fenced("taken")

    for write in (lambda: done.append(1), fenced, lambda: done.append(2)):
        thread.submit(write)
    with pytest.raises(Fenced):
        thread.drain()
    with pytest.raises(Fenced):
        thread.submit(lambda: done.append(3)).result()
    assert done == [1]
    thread.close()


def test_training_waits_when_the_rows_in_memory_are_too_many(monkeypatch):
    monkeypatch.setattr(recorder, "MOST_ROWS", 10)
    ledger, thread = Rows(), LedgerThread()
    kept = Recorder(ledger, None, thread, "val/accuracy")  # type: ignore[arg-type]
    for step in range(10):
        kept.add(step, {"a": 0.5})
    waits = threading.Thread(target=kept.add, args=(10, {"a": 0.5}))
    waits.start()
    waits.join(0.2)
    assert waits.is_alive()
    ledger.may.set()
    waits.join(30)
    assert not waits.is_alive()
    assert kept.recorded == 9
    assert [step for step, _, _ in ledger.rows] == list(range(10))
    kept.flush()
    thread.drain()
    assert [step for step, _, _ in ledger.rows] == list(range(11))
    thread.close()


HOLDER = """
import sys, jax
from lrurun.runner.attempt import StopRequest
from lrurun.runner.execute import turn
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
with turn(sys.argv[2], StopRequest()):
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_one_process_compiles_a_program_while_others_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.runner.execute.WAIT_SECONDS", 0.01)
    monkeypatch.setattr("lrurun.machine.cores", lambda: 2)
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), "program"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        with turn("another", StopRequest()):
            pass
        monkeypatch.setattr("lrurun.machine.cores", lambda: 1)
        assert not _enters("another"), "the only place is taken"
        monkeypatch.setattr("lrurun.machine.cores", lambda: 2)
        stop, entered = StopRequest(), threading.Event()

        def enter() -> None:
            with turn("program", stop):
                entered.set()

        waiting = threading.Thread(target=enter)
        waiting.start()
        assert not entered.wait(0.2)
        stop.request()
        assert entered.wait(10), "a request to stop ends the wait"
        waiting.join()
        holder.kill()
        with turn("program", StopRequest()):  # the turn of a process that was killed is over
            pass
    finally:
        holder.kill()
        holder.communicate()
        jax.config.update("jax_compilation_cache_dir", before)


def _enters(program: str) -> bool:
    """Whether a turn begins soon."""
    stop = StopRequest()
    ends = threading.Timer(0.2, stop.request)
    ends.start()
    with turn(program, stop):
        ends.cancel()
        return not stop.requested


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rungs", "programs"), [(("linear-rnn", "diagonal"), 2), (("stable-exponential", "ring-init"), 1)]
)
def test_every_program_is_compiled_once(
    rungs: tuple[str, str], programs: int, tmp_path: Path, machine: Machine
) -> None:
    """Three workers on two rungs: each waits for or starts elsewhere than the others. Rungs that differ in initial
    values alone are one program, of which nothing is compiled twice."""
    sizes = [f"model.{name}=4" for name in ("width", "state")] + ["train.steps=20", "train.eval_every=20"]
    done = machine.run(
        *("ladder", "sDigits", "--profile", "smoke", *(word for rung in rungs for word in ("--rung", rung))),
        *("--seeds", "3", "--jobs", "3"),
        *(word for setting in sizes for word in ("--set", setting)),
        env={"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_DEBUG_LOG_MODULES": "jax._src.compiler"},
        apart=True,
    )
    assert done.stderr.count("done, val") == 6
    logs = "".join(path.read_text() for path in machine.runs.glob("*/*/log.txt"))
    written = re.findall(r"CACHE MISS for '(\w+)' with key '([\w-]+)'", logs)
    for program in ("_dispatch", "_outputs"):
        assert [name for name, _ in written].count(f"jit_{program}") == programs, program
    if programs == 1:
        assert len({key for _, key in written}) == len(written)
