"""A worker's attempt at a run, in this process, with a real ledger."""

from __future__ import annotations

import threading

import pytest

from lrurun import checkpoint, train, worker
from lrurun.bench import loop
from lrurun.errors import LrurunError


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
