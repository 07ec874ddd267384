"""The file of a ledger: connections, full disks, paths, and files that may only be read."""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import LedgerError, LrurunError, NotFoundError
from lrurun.ledger import views
from lrurun.ledger.database import files, wal
from lrurun.ledger.ledger import Ledger
from tests import conftest
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import ME, finished, key, ledger, python, take, want

__all__ = ["key", "ledger"]  # fixtures


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "NO_SYNC", False)


def test_settings_of_connections(ledger: Ledger) -> None:
    for engine, synchronous in ((ledger.database.engine, 2), (ledger.database.fast_engine, 1)):
        with engine.connect() as connection:
            ask = connection.exec_driver_sql
            assert ask("PRAGMA journal_mode").scalar() == "wal"
            assert ask("PRAGMA foreign_keys").scalar() == 1
            assert ask("PRAGMA synchronous").scalar() == synchronous
            assert ask("PRAGMA busy_timeout").scalar() == 30_000
    assert ledger.note is None


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:  # "Cannot operate on a closed database."
        return False
    return True


def test_a_closed_ledger_leaves_no_connection_open(path: Path) -> None:
    ledger = Ledger.open(path)
    with ledger._reading() as connection:
        raw: Any = connection.connection.dbapi_connection
        ledger.close()  # by another thread
        assert connection.exec_driver_sql("SELECT count(*) FROM runs").scalar() == 0, "a transaction ends undisturbed"
    with ledger._reading() as connection:
        later: Any = connection.connection.dbapi_connection
    ledger.close()
    assert not is_open(raw)
    assert not is_open(later)


def test_commands_leave_no_connection_open(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(machine.ledger, "sDigits", {"gamma-norm": [0.5]}, profile="smoke")
    opened: list[sqlite3.Connection] = []
    connect = files.connect

    def watched(*arguments: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments))
        return opened[-1]

    monkeypatch.setattr(files, "connect", watched)
    for arguments, code in (
        (("report", "sDigits", "--profile", "smoke"), 0),
        (("report", "sDigits", "--ladder", "nothing", "--by", "optim.lr"), 2),
        (("report", "--instance", "zzz"), 4),
        (("runs", "--where", "nothing=1"), 2),
        (("status",), 0),
        (("compare", "zzz", "yyy"), 4),
        (("query", "select nothing"), 2),
        (("ledger", "export", "--to", "csv", "out", "--where", "id=zzz"), 4),
        (("ledger", "export", "--to", "csv", "out"), 0),
    ):
        opened.clear()
        machine.run(*arguments, code=code)
        assert opened or code == 2
        assert not list(filter(is_open, opened)), arguments


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal"])
def test_removed_and_replaced_files_are_noticed(path: Path, name: str) -> None:
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        ledger.event("a", "b")
        other.events()
        file = path.with_name(name)
        file.rename(file.with_name("elsewhere"))
        for touch in (False, True):
            if touch:
                file.touch()
            with pytest.raises(LedgerError, match=f"{name}, was removed or replaced"):
                ledger.event("a", "lost")
            with pytest.raises(LedgerError, match="was removed or replaced"):
                other.events()
        file.with_name("elsewhere").replace(file)
        ledger.event("a", "c")
        assert [event.text for event in other.events()] == ["b", "c"]


def test_a_finished_run_is_in_the_file_itself(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(key, [want()])
        ledger.finish(take(ledger, key), "done", result={"val/accuracy": 0.5})
        copy = tmp_path / "copy.db"
        copy.write_bytes(path.read_bytes())  # without the log
        with Ledger.open(copy) as found:
            assert [run.state for run in found.runs()] == ["done"]


def test_a_network_file_system_gets_no_write_ahead_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path).close()
    monkeypatch.setattr(wal, "filesystem", lambda path: "nfs4")
    with Ledger.open(path) as ledger:
        assert ledger.note is not None
        assert "nfs4" in ledger.note
        ledger.event("a", "b")
        with ledger.database.fast_engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]


def test_the_type_of_a_file_system() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("/proc is Linux")
    assert wal.filesystem(Path("/proc/self/stat")) == "proc"


def test_a_held_ledger_is_busy(path: Path) -> None:
    Ledger.open(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with Ledger.open(path, timeout=0.1) as ledger:
            with pytest.raises(LedgerError, match="busy") as busy:
                ledger.event("a", "b")
            assert busy.value.exit_code == 5
            assert ledger.events() == [], "readers do not wait for writers"
            other.execute("ROLLBACK")
            ledger.event("a", "b")
    finally:
        other.close()


def test_a_full_disk_is_reported_and_survived(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger.open(path).close()
    connect = files.connect

    def small(*words: Any) -> sqlite3.Connection:
        connection = connect(*words)
        connection.execute("PRAGMA max_page_count=60")
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(files, "connect", small)
        with Ledger.open(path) as ledger:
            ledger.event("a", "small")
            with pytest.raises(LrurunError, match="no space") as full:
                ledger.event("b", "x" * 1_000_000)
            assert full.value.exit_code == 1
            assert full.value.hint
            ledger.event("c", "small again")
    with Ledger.open(path) as ledger:
        assert [e.kind for e in ledger.events()] == ["a", "c"]


def test_paths_where_no_ledger_can_be(tmp_path: Path) -> None:
    with pytest.raises(LrurunError, match="does not exist") as missing:
        Ledger.open(tmp_path / "no" / "ledger.db")
    assert missing.value.exit_code == 1
    assert "mkdir -p" in str(missing.value.hint)
    for ask in (Ledger.open, Ledger.read):
        with pytest.raises(LrurunError, match="folder"):
            ask(tmp_path)
    with pytest.raises(NotFoundError):
        Ledger.open(tmp_path / "none.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_unusual_file_names(tmp_path: Path) -> None:
    for name in ("a b.db", "50%.db", "what?x=1#y.db", "ü.db", "file:x.db", "%(here)s.db"):
        path = tmp_path / name
        with Ledger.open(path) as ledger:
            ledger.event("a", "b")
        with Ledger.read(path) as found:
            assert len(found.events()) == 1
        assert path.exists()


def test_a_ledger_that_does_not_exist_is_read_as_one_without_rows(path: Path) -> None:
    with Ledger.read(path) as ledger:
        assert (ledger.exists, ledger.path, ledger.note) == (False, path, None)
        assert ledger.runs() == ledger.ladders() == ledger.events() == ledger.run_ids() == ledger.result_names() == []
        assert (ledger.count_runs(), ledger.latest_run(), ledger.latest_ladder()) == (0, None, None)
        assert list(ledger.each(["abc"])) == list(ledger.curves(["abc"])) == []
        assert ledger.newest_results() == ledger.program_settings() == ledger.columns_of(["test/accuracy"]) == {}
        assert {view.name for view in ledger.views()} == set(views.NAMES)
        assert not ledger.has_abandoned(ME)
        for ask in (ledger.run, ledger.ladder, ledger.attempts, ledger.metrics):
            with pytest.raises(NotFoundError, match="abc"):
                ask("abc")
        with pytest.raises(LrurunError, match="opened for reading only"):
            ledger.event("note", "x")
        # each thread has a connection of its own
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: ledger.count_runs(), range(20))) == [0] * 20
    assert list(path.parent.iterdir()) == []
    with Ledger.open(path) as ledger:
        assert ledger.exists


def test_readers_create_nothing_and_change_nothing(path: Path) -> None:
    assert not Ledger.read(path).exists
    assert not Ledger.read(path.parent / "no" / "ledger.db").exists
    assert list(path.parent.iterdir()) == []
    path.touch()
    assert not Ledger.read(path).exists
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(key, [want()])
    content = path.read_bytes()
    with Ledger.read(path) as reader:
        assert reader.note is None
        assert len(reader.runs()) == 1
        for write in (lambda: reader.event("a", "b"), lambda: reader.hold(key, ME), lambda: reader.requeue([])):
            with pytest.raises(LrurunError, match="reading"):
                write()
    assert path.read_bytes() == content
    assert [p.name for p in path.parent.iterdir()] == ["ledger.db"]


UNPRIVILEGED = """
import os, sys
from lrurun.errors import LrurunError
from lrurun.ledger.database import sqlite  # while it can be read
from lrurun.ledger.ledger import Ledger
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
reader = Ledger.read(sys.argv[1])
print(len(reader.events()), reader.note)
reader.close()
try:
    Ledger.open(sys.argv[1])
except LrurunError as error:
    print(error.exit_code, error.message, "|", error.hint)
try:
    Ledger.open(sys.argv[1] + "-new")
except LrurunError as error:
    print(error.exit_code, error.message, "|", error.hint)
"""


def test_a_read_only_ledger_is_read_as_it_is() -> None:
    # Not in pytest's own folder, which other users cannot enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "ledger.db"
        with Ledger.open(path) as ledger:
            ledger.event("a", "b")
        path.chmod(0o444)
        folder.chmod(0o555)
        try:
            read, opened, created = finished(python(UNPRIVILEGED, path)).splitlines()
            assert read.startswith("1 the ledger")
            assert "read-only" in read
            assert opened.startswith("1 the ledger")
            assert "cannot be written" in opened
            assert "cannot be written" in created
            assert [p.name for p in folder.iterdir()] == ["ledger.db"]
        finally:
            folder.chmod(0o755)
