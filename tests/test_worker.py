"""A worker's attempt at a run, in this process, with a real ledger."""

from __future__ import annotations

import sqlite3
import threading
import time

import pytest

from lrurun import checkpoint, train, worker
from lrurun.bench import loop
from lrurun.errors import LrurunError
from lrurun.ledger.store import Ledger


class Watched(worker.Stop):
    """Calls `look` at every event; stops where it says so."""

    def __init__(self, look):
        super().__init__()
        self.look = look

    def at(self, event):
        return bool(self.look(event))


def attempt(place, look, **execution):
    ledger, claim, plan = loop.claimed(place, "small")
    claim.run.execution.update(execution)
    return ledger, claim, worker.Attempt(ledger, claim, place / "runs", place / plan.data_name), Watched(look)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    may, real = threading.Event(), checkpoint.save
    started, after, states = [], [], []

    def slow(*arguments):
        started.append(arguments[0].name)
        assert may.wait(60)
        return real(*arguments)

    monkeypatch.setattr(checkpoint, "save", slow)

    def look(event):
        if isinstance(event, train.Reached) and started and not may.is_set():
            after.append(event.step)
            if len(after) == 20:
                states.extend(c.state for c in ledger.checkpoints(claim.run.id))
                may.set()
                return True
        return False

    ledger, claim, tried, stop = attempt(tmp_path, look, checkpoint_seconds=0.0)
    saves = []
    monkeypatch.setattr(tried, "_save", saving_once(tried, saves))
    worker.work([tried], stop)
    assert len(after) == 20  # boundaries that were reached while the first checkpoint was on its way
    assert states == ["saving"]
    assert [c.state for c in ledger.checkpoints(claim.run.id)] == ["committed", "committed"]  # it, and the last one
    assert [c.step for c in ledger.checkpoints(claim.run.id)] == [after[-1], int(started[0])]
    assert ledger.run(claim.run.id).state == "interrupted"


def saving_once(tried, saves):
    """`_save`, but for the saves between the first and the one that a stop asks for."""
    real = type(tried)._save

    def save(snapshot):
        saves.append(snapshot.step)
        if len(saves) == 1 or len(saves) == 21:
            real(tried, snapshot)

    return save


def test_a_checkpoint_that_cannot_be_written_stops_the_worker(tmp_path, monkeypatch):
    """The fault shows at an event after the save was asked for, and is the machine's, not the run's."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    ledger, claim, tried, stop = attempt(tmp_path, lambda event: False, checkpoint_seconds=0.0)
    with pytest.raises(LrurunError, match=r"could not be saved: .*No space left"):
        worker.work([tried], stop)
    assert ledger.run(claim.run.id).state == "interrupted"
    assert "No space left" in ledger.attempts(claim.run.id)[-1].reason


def seen_by(look):
    """`look` at every event, and the training curve that passes by: (step, loss) as it was yielded."""
    curve = []

    def both(event):
        asked = look(event)
        if isinstance(event, train.Measured) and "train/loss" in event.values:
            curve.append((event.step, event.values["train/loss"]))
        return asked

    return curve, both


def test_training_waits_for_nobody_who_holds_the_ledger(tmp_path, monkeypatch):
    """Rows that are due go to the ledger by a thread; in the end all of them are there."""
    monkeypatch.setattr(worker, "FLUSH_SECONDS", 0.0)
    other = []
    after = []

    def look(event):
        if not isinstance(event, train.Reached):
            return False
        if event.step >= 1500 and not other:
            other.append(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, timeout=60))
            other[0].execute("BEGIN IMMEDIATE")
        elif other:
            after.append(event.step)
        if len(after) == 40:
            other[0].execute("COMMIT")
            return True
        return False

    curve, look = seen_by(look)
    ledger, claim, tried, stop = attempt(tmp_path, look)
    worker.work([tried], stop)
    other[0].close()
    assert len(after) == 40
    assert curve
    assert ledger.metrics(claim.run.id)["train/loss"] == curve
    assert ledger.run(claim.run.id).step == after[-1]


@pytest.mark.parametrize("end", ["an exception", "a signal"])
def test_no_row_is_lost_when_training_ends_before_they_were_due(tmp_path, monkeypatch, end):
    monkeypatch.setattr(worker, "FLUSH_SECONDS", 1e9)

    def look(event):
        if isinstance(event, train.Reached) and event.step >= 1500:
            if end == "an exception":
                raise ValueError("no more")
            return True
        return False

    curve, look = seen_by(look)
    ledger, claim, tried, stop = attempt(tmp_path, look, checkpoint_seconds=1e6)
    worker.work([tried], stop)
    assert curve
    assert ledger.metrics(claim.run.id)["train/loss"] == curve
    run = ledger.run(claim.run.id)
    assert run.state == ("failed" if end == "an exception" else "interrupted")
    assert ("ValueError: no more" in (run.error or "")) == (end == "an exception")
    assert bool(ledger.checkpoints(run.id, "committed")) == (end == "a signal")


def test_rows_are_there_before_the_checkpoint_that_has_seen_them(tmp_path, monkeypatch):
    """However slowly they are written: of a checkpoint's step and those before it no row comes after it."""
    monkeypatch.setattr(worker, "FLUSH_SECONDS", 0.0)
    record, saving = Ledger.record, Ledger.saving
    short, saved = [], []

    def slowly(self, *arguments):
        # the thread's most of all: what it has in hand is behind what the loop writes itself
        time.sleep(1.0 if threading.current_thread() is not threading.main_thread() else 0)
        record(self, *arguments)

    def announced(self, claim, step, path):
        there = self.metrics(claim.run.id).get("train/loss", [])
        short.extend(set(curve) - set(there))
        saved.append(step)
        return saving(self, claim, step, path)

    monkeypatch.setattr(Ledger, "record", slowly)
    monkeypatch.setattr(Ledger, "saving", announced)
    curve, look = seen_by(lambda event: isinstance(event, train.Reached) and len(saved) >= 3)
    _, _, tried, stop = attempt(tmp_path, look, checkpoint_seconds=0.1)
    worker.work([tried], stop)
    assert len(saved) >= 4
    assert curve
    assert short == []


def test_a_run_that_was_taken_away_is_let_go(tmp_path, monkeypatch):
    """The thread that writes finds out; the worker stops, and writes nothing more."""
    monkeypatch.setattr(worker, "FLUSH_SECONDS", 0.0)
    taken = []

    def look(event):
        if isinstance(event, train.Reached) and event.step >= 1500 and not taken:
            connection = sqlite3.connect(tmp_path / "ledger.db", timeout=60)
            connection.execute("update runs set attempt = attempt + 1")
            connection.commit()
            connection.close()
            taken.append(event.step)
        assert not taken or event.step < taken[0] + 100_000, "it goes on for ever"
        return False

    ledger, claim, tried, stop = attempt(tmp_path, look, checkpoint_seconds=1e6)
    worker.work([tried], stop)
    assert max(step for step, _ in ledger.metrics(claim.run.id)["train/loss"]) <= taken[0]
    assert ledger.run(claim.run.id).state == "running", "another's"
