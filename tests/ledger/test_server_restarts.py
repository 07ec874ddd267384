"""A ledger on a PostgreSQL server that restarts, or whose answers are lost."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, event

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError
from lrurun.ledger import store
from lrurun.ledger.store import Fenced, Ledger
from lrurun.server import Server
from tests.harness.servers import PrivateServer, path, running
from tests.harness.stores import ELSEWHERE, ME, counts, key, ledger, raw, take, want

__all__ = ["key", "ledger", "path"]  # fixtures

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def once(ledger: Ledger, moment: str, call: Callable[[], None], statement: str = "") -> Iterator[list[int]]:
    """Calls `call` at the first of these events of SQLAlchemy, of a statement that contains a text."""
    calls: list[int] = []

    def listen(connection: Connection, *rest: Any) -> None:
        if not calls and (not rest or statement in str(rest[1])):
            calls.append(1)
            call()

    event.listen(ledger.database.engine, moment, listen)
    try:
        yield calls
    finally:
        event.remove(ledger.database.engine, moment, listen)


@pytest.fixture(scope="module")
def restarting() -> Iterator[PrivateServer]:
    """A server of its own, which no other test uses."""
    with running() as server:
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_a_restart_within_a_transaction_is_retried(restarting: PrivateServer, how: signal.Signals) -> None:
    with Ledger.open(restarting.ledger()) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(2)])
        claim = take(ledger, key)
        waited: list[float] = []

        def waiting(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                restarting.start()

        ledger.waiting = waiting
        rows = iter([(10, "train/loss", 2.0), (20, "train/loss", 1.0)])
        with once(ledger, "before_cursor_execute", lambda: restarting.stop(how), "INSERT INTO metrics"):
            ledger.record(claim, rows, 20)
        assert ledger.metrics(claim.run.id) == {"train/loss": [(10, 2.0), (20, 1.0)]}
        assert len(waited) >= 2
        assert waited == sorted(waited)
        with once(ledger, "before_cursor_execute", lambda: restarting.restart(how), "SELECT"):
            assert ledger.run(claim.run.id).step == 20, "reading is repeated too"
        restarting.restart(how)
        assert ledger.claim(key, ME) is not None, "an idle connection is replaced"
        assert ledger.check() == []


def test_what_waiting_raises_ends_the_wait(restarting: PrivateServer) -> None:
    with Ledger.open(restarting.ledger()) as ledger:
        restarting.stop()
        try:

            def give_up(seconds: float) -> None:
                raise InterruptedError

            ledger.waiting = give_up
            with pytest.raises(InterruptedError):
                ledger.event("a", "b")
            ledger.waiting = None
            ledger.database.timeout = 0.3
            with pytest.raises(LedgerError, match="cannot be reached: Connection refused"):
                ledger.runs()
        finally:
            restarting.start()
        ledger.event("a", "b")


def test_what_waiting_raises_ends_the_wait_for_a_server_that_hangs(restarting: PrivateServer) -> None:
    with Ledger.open(restarting.ledger()) as ledger:
        waited: list[float] = []

        def give_up(seconds: float) -> None:
            waited.append(seconds)
            raise InterruptedError

        ledger.waiting = give_up
        with restarting.suspended():
            with pytest.raises(InterruptedError):
                ledger.event("through the open connection", "b")
            with pytest.raises(InterruptedError):
                ledger.event("through a new connection", "b")
            ledger.waiting, ledger.database.timeout = (lambda _seconds: None), 0.5
            with pytest.raises(LedgerError, match="has not answered for 1 s"):
                ledger.runs()
        assert [round(seconds) for seconds in waited] == [1, 1]
        ledger.waiting, ledger.database.timeout = None, 30.0
        ledger.event("through a third one", "b")
        assert "through a third one" in [event.kind for event in ledger.events()]


# Answers that were lost: the server has done the transaction, and the connection breaks before it says so


@contextlib.contextmanager
def answers_lost(ledger: Ledger, then: Callable[[], object] = lambda: None) -> Iterator[list[int]]:
    """The first commit is done, and fails here. Then something else happens."""
    engine = ledger.database.engine
    commit, lost = engine.dialect.do_commit, list[int]()

    def committed(connection: Any) -> None:
        commit(connection)
        if not lost:
            from psycopg import OperationalError

            lost.append(1)
            then()
            raise OperationalError("server closed the connection unexpectedly")

    engine.dialect.do_commit = committed  # type: ignore[method-assign]
    try:
        yield lost
    finally:
        engine.dialect.do_commit = commit  # type: ignore[method-assign]
    assert lost


def test_every_write_of_a_worker_may_be_done_twice(ledger: Ledger, key: str, path: Server) -> None:
    ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(3)])
    with answers_lost(ledger):
        claim = take(ledger, key)
    assert counts(ledger, key) == {"queued": 2, "running": 1}
    assert raw(path, "SELECT count(*) FROM stored_attempts") == [(1,)]
    with answers_lost(ledger):
        ledger.rewind(claim, 0)
    with answers_lost(ledger):
        ledger.record(claim, iter([(5, "train/loss", 2.0)]), 5)
    with answers_lost(ledger):
        ledger.describe(claim, parameters=7, environment={"device": "cpu"})
    with answers_lost(ledger):
        ledger.record_eigenvalues(claim, "start", [[1j]])
    with answers_lost(ledger):
        checkpoint = ledger.begin_checkpoint(claim, 5, "a/1/5")
    with answers_lost(ledger):
        ledger.commit_checkpoint(claim, checkpoint, 10, "f" * 64)
    with answers_lost(ledger):
        assert ledger.record_heartbeats([(claim.run.id, 1)]) == []
    [found] = ledger.checkpoints(claim.run.id)
    assert (found.state, found.bytes) == ("committed", 10)
    with answers_lost(ledger):
        ledger.finish(claim, "done", result={"val/accuracy": 0.5}, step=100)
    assert ledger.run(claim.run.id).result == {"val/accuracy": 0.5}
    with pytest.raises(Fenced):
        ledger.finish(claim, "done", result={"val/accuracy": 0.75}, step=100)
    assert [e.kind for e in ledger.events(run=claim.run.id)] == ["running", "done"]
    assert ledger.metrics(claim.run.id) == {"train/loss": [(5, 2.0)]}


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_an_end_that_was_recorded_is_not_recorded_twice(ledger: Ledger, key: str, state: str) -> None:
    ledger.enqueue(key, [want()])
    claim = take(ledger, key)
    with answers_lost(ledger):
        ledger.finish(claim, state, error="boom" if state == "failed" else None, reason=f"{state}: x", step=3)
    assert [e.kind for e in ledger.events(run=claim.run.id)] == ["running", state]
    ledger.requeue([claim.run.id])
    with pytest.raises(Fenced):
        ledger.finish(claim, state)


@pytest.mark.parametrize("state", ["done", "running"])
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_a_run_is_started_over_once_although_the_answer_was_lost(
    ledger: Ledger, key: str, path: Server, state: str, known: bool
) -> None:
    if known:
        ledger.enqueue(key, [want()])
        ledger.finish(take(ledger, key), "done", result={})

    def work() -> None:
        with Ledger.open(path) as other:
            claim = take(other, key, ELSEWHERE)
            if state == "done":
                other.finish(claim, "done", result={})

    with answers_lost(ledger, work):
        [run] = ledger.enqueue(key, [want()], fresh=True)
    assert (run.generation, run.state) == (1 + known, state)


def test_requests_may_be_done_twice(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "RETURN_SECONDS", 0.0)  # a lost answer is an outage, after which owners have more time
    with answers_lost(ledger):
        assert ledger.add_ladder("grid", "sDigits", None, InstanceSpec()).name == "grid"
    with answers_lost(ledger):
        [run] = ledger.enqueue(key, [want()])
    ledger.finish(take(ledger, key), "done", result={})
    with answers_lost(ledger):
        [again] = ledger.enqueue(key, [want()], fresh=True)
    assert (again.id, again.generation) == (f"{run.id}-2", 2)
    with answers_lost(ledger):
        assert ledger.mark([run.id], tag=["a"])[0].tags == ("a",)
    with answers_lost(ledger):
        assert ledger.mark([run.id], exclude="why")[0].excluded == "why"
    assert [e.kind for e in ledger.events(run=run.id)] == ["running", "done", "tags", "excluded"]
    ledger.claim(key, ELSEWHERE)
    with answers_lost(ledger):
        ledger.reap(ME, timeout=-1)
    assert counts(ledger, key) == {"interrupted": 1}
