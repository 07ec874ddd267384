"""A worker's attempt at a run, in this process, with a real ledger."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from unittest import mock

import pytest
from msgspec import structs

from lrurun.bench import loop
from lrurun.data.metric import Accuracy
from lrurun.runner import execute, recorder, worker
from lrurun.runner.attempt import ActiveAttempt, StopRequest
from lrurun.training import checkpoints
from lrurun.training import events as train


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
            ledger, claim, plan = loop.claimed(tmp_path, "small")
            stack.enter_context(ledger)
            settings = structs.replace(claim.run.settings, execution=structs.replace(claim.run.execution, **execution))
            claim = structs.replace(claim, run=structs.replace(claim.run, settings=settings))
            return (
                ledger,
                claim,
                ActiveAttempt(ledger, claim, tmp_path / "runs", tmp_path / plan.data_name),
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
                states.extend(c.state for c in ledger.checkpoints(claim.run.id))
                may.set()
                return True
        return False

    ledger, claim, tried, stop = attempt(look, checkpoint_seconds=0.0)
    monkeypatch.setattr(execute.EventWriter, "_save", saving_once(saves))
    worker.train_attempts([tried], stop)
    assert len(after) == 20  # boundaries that were reached while the first checkpoint was being written
    assert states == ["saving"]
    assert [c.state for c in ledger.checkpoints(claim.run.id)] == ["committed", "committed"]  # it, and the last one
    assert [c.step for c in ledger.checkpoints(claim.run.id)] == [after[-1], int(started[0])]
    assert ledger.run(claim.run.id).state == "interrupted"


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
    ledger, claim, tried, stop = attempt(look)
    worker.train_attempts([tried], stop)
    assert len(after) == 40
    assert curve
    assert ledger.metrics(claim.run.id)["train/loss"] == curve
    assert ledger.run(claim.run.id).step == after[-1]


def test_the_log_ends_with_the_results_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    writer = execute.EventWriter.__new__(execute.EventWriter)
    for name in ("attempt", "ledger", "claim", "recorder", "snapshots", "writes", "_save"):
        setattr(writer, name, mock.Mock())
    writer.attempt.data.metrics = (Accuracy(),)
    result = {"val/loss": 0.25, "test/accuracy": 0.5}
    assert writer.write(train.Ended(state="done", step=7, result=result, snapshot=mock.Mock()), stopping=False)
    assert capsys.readouterr().out == "done at step 7: test/accuracy 0.5, val/loss 0.25\n"
