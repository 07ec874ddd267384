"""The thread that writes what an attempt yields: in order, nothing after an error, and not more than memory holds."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lrurun.ledger.store import Fenced
from lrurun.runner import recorder
from lrurun.runner.recorder import LedgerThread, Recorder


class Rows:
    """A ledger that keeps what it gets, once it may."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, float]] = []
        self.may = threading.Event()

    def record(self, claim: object, rows: Any, step: int, *, score: str) -> None:
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
