"""A ledger on a PostgreSQL server: creation, errors, several processes, restarts, and moving one there and back."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, inspect

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError, NotFoundError
from lrurun.ledger import heartbeat
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.database import migrate, servers
from lrurun.ledger.database import postgresql as database
from lrurun.ledger.database.schema import SCHEMA, TRIGGERS, UNRECORDED, VIEWS, metadata
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Run
from lrurun.server import VARIABLE, Server
from tests.harness.forks import at_once
from tests.harness.machine import Machine
from tests.harness.old_ledgers import items_of
from tests.harness.results import fill
from tests.harness.servers import LOCKED, PASSWORD, PrivateServer, path, running
from tests.harness.stores import ELSEWHERE, ME, counts, dump, key, ledger, raw, take, want
from tests.harness.tables import write_runs

__all__ = ["key", "ledger", "path"]  # fixtures

pytestmark = pytest.mark.slow


@pytest.fixture
def empty(postgres: PrivateServer) -> Iterator[Server]:
    made = postgres.empty()
    yield made
    postgres.drop(made)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "OPENING", 0.2)


# The schema


def test_the_schema_is_that_of_the_tables(ledger: Ledger, path: Server) -> None:
    with ledger._reading() as connection:
        found = inspect(connection)
        for table in metadata.sorted_tables:
            columns = {c["name"]: (str(c["type"]), c["nullable"]) for c in found.get_columns(table.name)}
            wanted = {
                c.name: (_server_type(str(c.type)), bool(c.nullable) and not c.primary_key) for c in table.columns
            }
            assert columns == wanted, table.name
            assert found.get_pk_constraint(table.name)["constrained_columns"] == [c.name for c in table.primary_key]
            keys = {(k["name"], tuple(k["constrained_columns"])) for k in found.get_foreign_keys(table.name)}
            assert keys == {(c.name, tuple(x.name for x in c.columns)) for c in table.foreign_key_constraints}
            indexes = {index["name"] for index in found.get_indexes(table.name)} - {
                unique["name"] for unique in found.get_unique_constraints(table.name)
            }
            assert indexes == {index.name for index in table.indexes}
        assert set(found.get_view_names()) == set(VIEWS)
    triggers = raw(path, "SELECT DISTINCT tgname FROM pg_trigger WHERE NOT tgisinternal")
    assert {name for (name,) in triggers} == {*TRIGGERS, UNRECORDED}
    assert len(raw(path, "SELECT 1 FROM pg_indexes WHERE indexname LIKE 'ix_%' AND indexdef LIKE '%WHERE%'")) == 5
    assert raw(path, "SELECT version_num FROM lrurun_version") == [(SCHEMA,)]


def _server_type(kind: str) -> str:
    types = {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "TEXT": 'TEXT COLLATE "C"', "BLOB": "BYTEA"}
    return types[kind]


OPEN = """
import alembic.command
from lrurun.ledger.attempt import Fenced
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import Run

def work(number):
    with Ledger.open(sys.argv[1]) as ledger:
        ledger.event("opened", str(number))
"""


def test_many_create_one_ledger_at_once(empty: Server) -> None:
    assert not Ledger.read(empty).exists
    with pytest.raises(NotFoundError, match="there is no ledger"):
        Ledger.open(empty, create=False)
    at_once(8, OPEN, empty)
    with Ledger.open(empty) as ledger:
        assert sorted(int(e.text) for e in ledger.events()) == list(range(8))
        assert ledger.check() == []
        assert ledger.note is None


LATER = """
import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{head}"


def upgrade() -> None:
    op.add_column("stored_runs", sa.Column("later", sa.Text, nullable=False, server_default="new"))
    {end}
"""


def later(folder: Path, end: str = "") -> Path:
    shutil.copytree(Path(migrate.__file__).parent / "migrations" / "versions", folder)
    (folder / "9001_later.py").write_text(LATER.format(head=SCHEMA, end=end))
    return folder


def upgrade(server: Server, versions: Path) -> None:
    opened = database.engine(server)
    try:
        with opened.begin() as connection:
            database.upgrade(connection, server, versions)
    finally:
        opened.dispose()


def test_an_upgrade_is_one_transaction_and_newer_ledgers_are_refused(
    ledger: Ledger, key: str, path: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.enqueue(key, [want()])
    before = dump(path)
    with pytest.raises(ZeroDivisionError):
        upgrade(path, later(tmp_path / "failing", "1 / 0"))
    assert dump(path) == before
    with monkeypatch.context() as patched:
        patched.setattr(database, "SCHEMA", "9001")
        with pytest.raises(LedgerError, match="older version") as older:
            Ledger.read(path)
        assert f"pg_dump, then migrate it: lrurun ledger migrate --ledger {path}" in str(older.value.hint)
    upgrade(path, later(tmp_path / "versions"))
    assert raw(path, "SELECT later FROM stored_runs") == [("new",)]
    raw(path, "UPDATE ledger_info SET value = '7.8.9' WHERE name = 'lrurun'")
    for ask in (Ledger.open, Ledger.read):
        with pytest.raises(LedgerError, match="newer") as newer:
            ask(path)
        assert "lrurun>=7.8.9" in str(newer.value.hint)


def test_tables_of_another_program_are_not_changed(empty: Server) -> None:
    raw(empty, "CREATE TABLE tags (name text)")
    for ask in (Ledger.open, Ledger.read):
        with pytest.raises(LedgerError, match="has a table tags, which is not of a ledger"):
            ask(empty)
    raw(empty, "CREATE SCHEMA mine")
    with Ledger.open(Server(f"{empty.text}?options=-csearch_path%3Dmine")) as ledger:
        ledger.event("a", "b")
        assert ledger.check() == []


@pytest.mark.parametrize("is_written_again", [False, True])
def test_an_import_is_as_in_a_file(empty: Server, machine: Machine, tmp_path: Path, is_written_again: bool) -> None:
    usual = ("import", "runs.csv", "--metric", "test_acc", "--by", "norm", "--seed-column", "seed")
    shown = (("report", "runs"), ("runs", "--limit", "0", "--columns", "rung,seed,test/acc"))
    answers, records = [], []
    for place in (machine, Machine(tmp_path / "server").use(empty)):
        table = write_runs(place.folder / "runs.csv")
        place.run(*usual)
        if is_written_again:
            (place.folder / "runs.toml").unlink()
        rows = table.read_text().replace("none-0,none,0,0.801", "none-0,none,0,0.71")
        table.write_text(f"{rows}none-9,none,9,0.7\n")
        records.append(place.json(*usual)["record"])
        answers.append([place.run(*words).stdout for words in shown])
        assert (place.folder / "runs.toml").is_file()
    assert answers[0] == answers[1]
    assert records[0] == records[1]
    assert (records[0]["new"], records[0]["changed"], records[0]["equal"]) == (1, 1, 17)


# Errors


@pytest.mark.usefixtures("quick")
def test_errors_say_what_to_do_and_no_password(postgres: PrivateServer, path: Server, machine: Machine) -> None:
    name = path.text.rpartition("/")[2]
    cases = {
        f"{LOCKED}:wrong-secret@127.0.0.1:{postgres.port}/{name}": ("password authentication failed", "PGPASSFILE"),
        f"{LOCKED}@127.0.0.1:{postgres.port}/{name}": ("no password supplied", "LRURUN_LEDGER"),
        f"lrurun:secret@127.0.0.1:{postgres.port}/nothing": ('database "nothing" does not exist', "createdb"),
        f"nobody:secret@127.0.0.1:{postgres.port}/{name}": ('role "nobody" does not exist', "CREATE ROLE"),
        f"lrurun:secret@127.0.0.1:1/{name}": ("cannot be reached: Connection refused", "host and port"),
        f"lrurun:secret@nowhere.invalid/{name}": ("cannot be reached", "host and port"),
        f"{LOCKED}:{PASSWORD}@127.0.0.1:{postgres.port}/{name}": ("lacks a right: permission denied", "GRANT"),
    }
    for url, (what, hint) in cases.items():
        env = {VARIABLE: f"postgresql+psycopg://{url}", "PGPASSFILE": "none"}
        for words in (["runs"], ["--debug", "runs"]):
            said = machine.refused(*words, code=1 if "right" in what else 5, env=env)
            assert what in said
            assert hint in said
            assert "secret" not in said
            assert PASSWORD not in said


@pytest.mark.usefixtures("quick")
def test_a_server_without_connections_says_so(postgres: PrivateServer, path: Server) -> None:
    postgres.admin("CREATE ROLE narrow LOGIN CONNECTION LIMIT 0")
    try:
        with pytest.raises(LedgerError, match="has no connection left: too many connections") as refused:
            Ledger.read(Server(path.text.replace("lrurun@", "narrow@")))
        assert "max_connections" in str(refused.value.hint)
    finally:
        postgres.admin("DROP ROLE narrow")


def test_a_server_that_holds_what_is_written_is_busy(ledger: Ledger, key: str, path: Server) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    ledger.database.timeout = 0.1
    with contextlib.closing(servers.connect(path)) as other:
        other.execute("SELECT * FROM stored_runs FOR UPDATE")
        with ledger.database.engine.connect() as connection:
            connection.exec_driver_sql("SET lock_timeout = '50ms'")
            connection.commit()
        with pytest.raises(LedgerError, match="is busy"):
            ledger.record(held, [(1, "loss", 1.0)], 1)
        other.rollback()
    ledger.record(held, [(1, "loss", 1.0)], 1)


def test_texts_that_postgresql_cannot_hold_are_replaced(ledger: Ledger, key: str) -> None:
    planned = want(config={"data": {"note": "a\0b"}, "optim": {"lr": 0.5}})
    [run] = ledger.enqueue(key, [planned])
    assert ledger.run(run.id).config == planned.config
    ledger.event("kind", "a\0b\udcff", run=run.id)
    assert [e.text for e in ledger.events()] == ["a\ufffdb?"]
    ledger.finish(take(ledger, key), "failed", error="Traceback\0")
    assert ledger.run(run.id).error == "Traceback\ufffd"
    from lrurun.ledger.where import grammar
    from lrurun.ledger.where.names import Names

    condition = grammar.parse("optim.lr=0.5", Names())
    assert ledger.run_ids(condition) == [run.id], "one NUL does not keep conditions from reading the rest"


def test_the_clock_is_the_servers(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time()
    ledger.enqueue(key, [want()])
    monkeypatch.setattr(time, "time", lambda: before + 10_000)
    held = take(ledger, key, ELSEWHERE)
    assert ledger.reap(ME) == [], "by this machine's clock there was no heartbeat for hours"
    ledger.record_heartbeats([(held.run.id, 1)])
    assert abs(ledger.attempts(held.run.id)[0].heartbeat_at - before) < 60


# Many at once


def test_processes_that_request_the_same_runs_at_once_share_them(ledger: Ledger, key: str, path: Server) -> None:
    found: list[list[Run]] = []
    with Ledger.open(path) as other:
        thread = threading.Thread(target=lambda: found.append(other.enqueue(key, [want()])))

        def commit(connection: Connection) -> None:
            if not thread.is_alive() and not found:
                thread.start()
                thread.join(0.5)
                assert not found, "the other one waits"

        event.listen(ledger.database.engine, "commit", commit)
        first = ledger.enqueue(key, [want()])
        thread.join(10)
    assert found == [first]
    assert ledger.count_runs() == 1


def test_numbers_of_events_have_the_order_of_their_commits(ledger: Ledger, path: Server) -> None:
    """A process that has read up to a number would never see a smaller one that is committed later."""
    seen: list[int] = []
    with Ledger.open(path) as other, ledger._writing() as connection:
        from lrurun.ledger.rows import add_event

        first = add_event(connection, 0.0, "slow", "")
        thread = threading.Thread(target=lambda: seen.append(other.event("quick", "")))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        assert not seen
        connection.commit()
        thread.join(10)
    assert seen == [first + 1]


def test_reports_of_a_ledger_that_was_moved_are_identical(path: Server, tmp_path: Path) -> None:
    original, on_server, back = (Machine(tmp_path / name) for name in ("original", "server", "back"))
    scores = {"tanh-rnn": [0.5, None], "gamma-norm": [0.1, 0.3]}
    fill(original.ledger, "sDigits", scores, profile="smoke", eigenvalues={"start": [0.5j], "end": [1j]})
    with Ledger.open(original.ledger) as ledger:
        ledger.mark([ledger.run_ids()[0]], tag=["a"], note="hot")
        ledger.mark([ledger.run_ids()[1]], exclude="too hot")
    on_server.use(path).run("ledger", "merge", str(original.ledger), "--other-runs", str(original.runs))
    back.run("ledger", "merge", str(path), "--other-runs", str(on_server.runs))
    for words in (
        ["report", "sDigits", "--profile", "smoke"],
        ["report", "sDigits", "--profile", "smoke", "--format", "html"],
        ["report", "sDigits", "--profile", "smoke", "--json"],
        ["runs", "--json"],
        ["status"],
        ["runs", "--where", "state=done and test/accuracy>0", "--sort", "-test/accuracy"],
        ["ledger", "export"],
    ):
        said = original.run(*words).stdout
        assert said
        assert on_server.run(*words).stdout == said
        assert back.run(*words).stdout == said


# Restarts


@contextlib.contextmanager
def at_first(ledger: Ledger, moment: str, call: Callable[[], None], statement: str = "") -> Iterator[list[int]]:
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
        held = take(ledger, key)
        waited: list[float] = []

        def waiting(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:
                restarting.start()

        ledger.waiting = waiting
        rows = iter([(10, "train/loss", 2.0), (20, "train/loss", 1.0)])
        with at_first(ledger, "before_cursor_execute", lambda: restarting.stop(how), "INSERT INTO metrics"):
            ledger.record(held, rows, 20)
        assert ledger.metrics(held.run.id) == {"train/loss": [(10, 2.0), (20, 1.0)]}
        assert len(waited) >= 2
        assert waited == sorted(waited)
        with at_first(ledger, "before_cursor_execute", lambda: restarting.restart(how), "SELECT"):
            assert ledger.run(held.run.id).step == 20, "reading is repeated too"
        restarting.restart(how)
        assert ledger.hold(key, ME) is not None, "an idle connection is replaced"
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
        held = take(ledger, key)
    assert counts(ledger, key) == {"queued": 2, "running": 1}
    assert raw(path, "SELECT count(*) FROM stored_attempts") == [(1,)]
    with answers_lost(ledger):
        ledger.rewind(held, 0)
    with answers_lost(ledger):
        ledger.record(held, iter([(5, "train/loss", 2.0)]), 5)
    with answers_lost(ledger):
        ledger.describe(held, parameters=7, environment={"device": "cpu"})
    with answers_lost(ledger):
        ledger.record_eigenvalues(held, "start", [[1j]])
    with answers_lost(ledger):
        checkpoint = ledger.begin_checkpoint(held, 5, "a/1/5")
    with answers_lost(ledger):
        ledger.commit_checkpoint(held, checkpoint, 10, "f" * 64)
    with answers_lost(ledger):
        assert ledger.record_heartbeats([(held.run.id, 1)]) == []
    [found] = ledger.checkpoints(held.run.id)
    assert (found.state, found.bytes) == ("committed", 10)
    with answers_lost(ledger):
        items = {"test/accuracy": items_of(0.5)}
        ledger.finish(held, "done", result={"val/accuracy": 0.5}, step=100, items=items)
    assert ledger.run(held.run.id).result == {"val/accuracy": 0.5}
    assert ledger.items([held.run.id], "test/accuracy")[held.run.id].mean == 0.5
    with answers_lost(ledger):
        ledger.drop_items([held.run.id])
    with answers_lost(ledger):
        ledger.record_items(held.run.id, items)
    assert ledger.items([held.run.id], "test/accuracy")[held.run.id].mean == 0.5
    with pytest.raises(Fenced):
        ledger.finish(held, "done", result={"val/accuracy": 0.75}, step=100)
    assert [e.kind for e in ledger.events(run=held.run.id)] == ["running", "done", "items", "items"]
    assert ledger.metrics(held.run.id) == {"train/loss": [(5, 2.0)]}


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_an_end_that_was_recorded_is_not_recorded_twice(ledger: Ledger, key: str, state: str) -> None:
    ledger.enqueue(key, [want()])
    held = take(ledger, key)
    with answers_lost(ledger):
        ledger.finish(held, state, error="boom" if state == "failed" else None, reason=f"{state}: x", step=3)
    assert [e.kind for e in ledger.events(run=held.run.id)] == ["running", state]
    ledger.requeue([held.run.id])
    with pytest.raises(Fenced):
        ledger.finish(held, state)


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
            held = take(other, key, ELSEWHERE)
            if state == "done":
                other.finish(held, "done", result={})

    with answers_lost(ledger, work):
        [run] = ledger.enqueue(key, [want()], fresh=True)
    assert (run.generation, run.state) == (1 + known, state)


def test_requests_may_be_done_twice(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        heartbeat, "RETURN_SECONDS", 0.0
    )  # a lost answer is an outage, after which owners have more time
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
    ledger.hold(key, ELSEWHERE)
    with answers_lost(ledger):
        ledger.reap(ME, timeout=-1)
    assert counts(ledger, key) == {"interrupted": 1}
