"""A ledger on a PostgreSQL server: creation, errors, several processes, and moving one there and back."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import Connection, event, inspect

from lrurun.__main__ import run as command
from lrurun.errors import LedgerError, NotFoundError
from lrurun.ledger.database import migrate, servers
from lrurun.ledger.database import postgresql as database
from lrurun.ledger.database.schema import SCHEMA, TRIGGERS, VIEWS, metadata
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from lrurun.server import VARIABLE, Server
from tests.harness.forks import at_once
from tests.harness.servers import LOCKED, PASSWORD, PrivateServer, path
from tests.harness.stores import ELSEWHERE, ME, dump, key, ledger, raw, take, want

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
    assert {name for (name,) in triggers} == set(TRIGGERS)
    assert len(raw(path, "SELECT 1 FROM pg_indexes WHERE indexname LIKE 'ix_%' AND indexdef LIKE '%WHERE%'")) == 5
    assert raw(path, "SELECT version_num FROM lrurun_version") == [(SCHEMA,)]


def _server_type(kind: str) -> str:
    return {"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "TEXT": 'TEXT COLLATE "C"'}[kind]


OPEN = """
import alembic.command
from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run

def work(number):
    with Ledger.open(sys.argv[1]) as ledger:
        ledger.event("opened", str(number))
"""


def test_many_create_one_ledger_at_once(empty: Server) -> None:
    assert Ledger.read(empty) is None
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


# Errors


@pytest.mark.usefixtures("quick")
def test_errors_say_what_to_do_and_no_password(
    postgres: PrivateServer,
    path: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
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
        monkeypatch.setenv(VARIABLE, f"postgresql+psycopg://{url}")
        for words in (["runs"], ["--debug", "runs"]):
            assert command(words) == (1 if "right" in what else 5), url
            out, err = capsys.readouterr()
            assert out == ""
            assert what in err
            assert hint in err
            assert "secret" not in err
            assert PASSWORD not in err


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
    claim = take(ledger, key)
    ledger.database.timeout = 0.1
    with contextlib.closing(servers.connect(path)) as other:
        other.execute("SELECT * FROM stored_runs FOR UPDATE")
        with ledger.database.engine.connect() as connection:
            connection.exec_driver_sql("SET lock_timeout = '50ms'")
            connection.commit()
        with pytest.raises(LedgerError, match="is busy"):
            ledger.record(claim, [(1, "loss", 1.0)], 1)
        other.rollback()
    ledger.record(claim, [(1, "loss", 1.0)], 1)


def test_texts_that_postgresql_cannot_hold_are_replaced(ledger: Ledger, key: str) -> None:
    planned = want(config={"data": {"note": "a\0b"}, "optim": {"lr": 0.5}})
    [run] = ledger.enqueue(key, [planned])
    assert ledger.run(run.id).config == planned.config
    ledger.event("kind", "a\0b\udcff", run=run.id)
    assert [e.text for e in ledger.events()] == ["a\ufffdb?"]
    ledger.finish(take(ledger, key), "failed", error="Traceback\0")
    assert ledger.run(run.id).error == "Traceback\ufffd"
    from lrurun.ledger import columns, filters

    condition = filters.parse("optim.lr=0.5", columns.Names())
    assert ledger.run_ids(condition) == [run.id], "one NUL does not keep conditions from reading the rest"


def test_the_clock_is_the_servers(ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = time.time()
    ledger.enqueue(key, [want()])
    monkeypatch.setattr(time, "time", lambda: before + 10_000)
    claim = take(ledger, key, ELSEWHERE)
    assert ledger.reap(ME) == [], "by this machine's clock there was no heartbeat for hours"
    ledger.record_heartbeats([(claim.run.id, 1)])
    assert abs(ledger.attempts(claim.run.id)[0].heartbeat_at - before) < 60


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


def test_reports_of_a_ledger_that_was_moved_are_identical(
    finished: Any, path: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    back = tmp_path / "back" / "ledger.db"
    back.parent.mkdir()
    source = finished.folder / "ledger.db"
    monkeypatch.chdir(tmp_path)
    runs: dict[Path | Server, Path] = {
        source: finished.runs,
        path: tmp_path / "on-server",
        back: tmp_path / "back" / "runs",
    }

    def lrurun(place: Path | Server, *words: str) -> str:
        monkeypatch.setenv("LRURUN_LEDGER", str(place))  # options would be in the commands that are proposed
        monkeypatch.setenv("LRURUN_RUNS", str(runs[place]))
        code = command(list(words))
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    lrurun(path, "ledger", "merge", str(source), "--other-runs", str(runs[source]))
    lrurun(back, "ledger", "merge", str(path), "--other-runs", str(runs[path]))
    from lrurun.report.formats import Format

    for words in (
        *[["report", "sDigits", "--profile", "smoke", "--format", one] for one in get_args(Format) if one != "json"],
        ["report", "sDigits", "--profile", "smoke", "--json"],
        ["runs", "--json"],
        ["status"],
        ["runs", "--where", "state=done and test/accuracy>0", "--sort", "-val/accuracy"],
        ["ledger", "export"],
    ):
        original = lrurun(source, *words)
        assert original
        assert lrurun(path, *words) == original
        assert lrurun(back, *words) == original
