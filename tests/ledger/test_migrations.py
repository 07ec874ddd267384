"""Creating and upgrading ledgers: many processes at once, killed processes, and files that are no ledgers."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import NullPool, create_engine

from lrurun.errors import LedgerError
from lrurun.ledger.database import migrate, sqlite
from lrurun.ledger.database.schema import SCHEMA, VERSION_TABLE
from lrurun.ledger.ledger import Ledger
from tests.harness import ROOT, old_ledgers
from tests.harness.forks import at_once
from tests.harness.machine import Machine
from tests.harness.shared import once

UPGRADE = """
import alembic.command
from pathlib import Path
from lrurun.ledger.database import migrate, sqlite

def work(number):
    print(sqlite.upgrade(Path(sys.argv[1]), versions=Path(sys.argv[2])))
"""

OPEN = """
import alembic.command
from lrurun.ledger.ledger import Ledger

def work(number):
    with Ledger.open(sys.argv[1]) as ledger:
        ledger.event("opened", str(number))
"""


def killed(*arguments: object) -> None:
    """Upgrade a ledger in a process that the migration kills."""
    command = [sys.executable, "-c", f"import sys\n{UPGRADE}\nwork(0)", *map(str, arguments)]
    done = subprocess.run(command, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL


def rows(path: Path) -> dict[str, list[Any]]:
    """Every row of every table and view, by column name, so that added columns are distinguished from changed ones."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]
        return {
            table: [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')]
            for table in sorted(tables)
            if table not in (VERSION_TABLE, "ledger_info")
        }
    finally:
        connection.close()


def kept(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """`after` without the tables and columns that later revisions have added."""
    columns = {table: found[0].keys() if found else () for table, found in before.items()}
    return {table: [{name: row[name] for name in columns[table]} for row in after[table]] for table in before}


def version(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])
    finally:
        connection.close()


def make(folder: Path) -> None:
    folder.mkdir(parents=True)
    old_ledgers.build(folder / "ledger.db")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger with rows in every table."""
    return Path(shutil.copy(once("old-ledger", make) / "ledger.db", tmp_path / "ledger.db"))


def later(tmp_path: Path, middle: str = "") -> Path:
    return old_ledgers.later(tmp_path / "versions", middle)


def test_the_newest_revision_is_that_of_the_code(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    sqlite.upgrade(path)
    assert version(path) == SCHEMA
    assert sqlite.upgrade(path) is None
    assert sqlite.upgrade(path, versions=old_ledgers.VERSIONS) is None
    assert version(path) == SCHEMA
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone()[0] == 0x4C525552, "which other programs know"
    connection.close()
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.db"], "no backup of nothing"


def test_a_new_ledger_has_its_version_as_alembic_writes_it(tmp_path: Path) -> None:
    """It is made without Alembic, which later migrates it."""
    stamped = tmp_path / "stamped.db"
    script = ScriptDirectory(old_ledgers.VERSIONS.parent, version_locations=[old_ledgers.VERSIONS])
    with create_engine(f"sqlite:///{stamped}", poolclass=NullPool).begin() as connection:
        MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).stamp(script, "head")
    made = tmp_path / "made.db"
    sqlite.upgrade(made)
    tables = []
    for path in (made, stamped):
        connection = sqlite3.connect(path)
        tables.append(connection.execute(f"SELECT * FROM pragma_table_xinfo('{VERSION_TABLE}')").fetchall())
        connection.close()
    assert tables[0] == tables[1] != []
    assert version(made) == version(stamped) == SCHEMA


def test_an_upgrade_keeps_every_row(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    assert all(before[table] for table in before if table != "sqlite_sequence")
    backup = sqlite.upgrade(old, versions=later(tmp_path))
    after = rows(old)
    assert [row["later"] for row in after["stored_runs"]] == ["new"] * len(before["runs"])
    assert kept(before, after) == before
    assert version(old) == "9001"
    assert backup == tmp_path / f"ledger.db.backup-{SCHEMA}"
    assert rows(backup) == before
    assert version(backup) == SCHEMA
    connection = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        connection.execute("UPDATE stored_runs SET step = 1 WHERE state = 'done'")
    connection.close()


def test_a_ledger_from_before_the_first_release_is_refused(old: Path) -> None:
    connection = sqlite3.connect(old)
    with connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '0005'")
    connection.close()
    content = old.read_bytes()
    for ask in (Ledger.open, Ledger.read, sqlite.upgrade):
        with pytest.raises(LedgerError, match="from before the first release of lrurun") as refused:
            ask(old)
        assert refused.value.exit_code == 5
        assert refused.value.hint == "it cannot be migrated: name another ledger"
    assert old.read_bytes() == content


def test_a_command_that_migrates_says_so_once(machine: Machine, old: Path, tmp_path: Path, monkeypatch) -> None:
    versions = later(tmp_path)
    for module in ("database.migrate", "database.sqlite"):
        monkeypatch.setattr(f"lrurun.ledger.{module}.SCHEMA", "9001")
    monkeypatch.setattr(migrate, "_VERSIONS", versions)
    old.rename(machine.ledger)
    said = machine.run("ledger", "migrate").stderr
    assert "was migrated to version 9001; the old file is kept as ledger.db.backup-" in said
    assert machine.run("ledger", "migrate").stderr == "ledger.db: up to date\n"


def test_a_backup_is_never_written_over(old: Path, tmp_path: Path) -> None:
    almost = bytearray(old.read_bytes())
    almost[-1] ^= 1
    (tmp_path / f"ledger.db.backup-{SCHEMA}").write_bytes(almost)
    (tmp_path / "ledger.db.backup-partial").write_text("left by a killed process")
    backup = sqlite.upgrade(old, versions=later(tmp_path))
    assert backup == tmp_path / f"ledger.db.backup-{SCHEMA}-2"
    assert (tmp_path / f"ledger.db.backup-{SCHEMA}").read_bytes() == almost
    assert not (tmp_path / "ledger.db.backup-partial").exists()


@pytest.mark.parametrize("journal", ["wal", pytest.param("delete", marks=pytest.mark.slow)])
def test_an_upgrade_that_is_killed_changes_nothing(old: Path, tmp_path: Path, journal: str) -> None:
    connection = sqlite3.connect(old)
    assert connection.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    connection.close()
    before = rows(old)
    killed(old, later(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    left = {p.name for p in tmp_path.iterdir()}
    assert left & {"ledger.db-wal", "ledger.db-journal"}, "it was killed before it changed anything"
    assert rows(old) == before
    assert version(old) == SCHEMA
    with Ledger.open(old) as ledger:
        assert ledger.check() == []
    assert [p.name for p in tmp_path.glob("*backup*")] == [f"ledger.db.backup-{SCHEMA}"]
    assert rows(tmp_path / f"ledger.db.backup-{SCHEMA}") == before


@pytest.mark.slow
def test_a_ledger_whose_creation_was_killed_is_created_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    killed(path, later(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    assert path.exists()
    assert not Ledger.read(path).exists
    with Ledger.open(path) as ledger:
        assert ledger.check() == []


def test_a_failed_migration_changes_nothing(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    with pytest.raises(ZeroDivisionError):
        sqlite.upgrade(old, versions=later(tmp_path, "1 / 0"))
    assert rows(old) == before
    shutil.rmtree(tmp_path / "versions")
    with pytest.raises(LedgerError, match="refer to rows that do not exist"):
        sqlite.upgrade(old, versions=later(tmp_path, "op.execute('DELETE FROM ladders')"))
    assert rows(old) == before
    assert version(old) == SCHEMA


@pytest.mark.slow
def test_several_upgrade_one_ledger_at_once(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    folder = later(tmp_path)
    assert sorted(at_once(3, UPGRADE, old, folder)) == sorted(["None"] * 2 + [f"{old}.backup-{SCHEMA}"])
    after = rows(old)
    assert [row["later"] for row in after["stored_runs"]] == ["new"] * len(before["runs"])
    assert kept(before, after) == before
    assert [p.name for p in tmp_path.glob("*backup*")] == [f"ledger.db.backup-{SCHEMA}"]


@pytest.mark.slow
def test_many_create_one_ledger_at_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    at_once(4, OPEN, path)
    with Ledger.open(path) as ledger:
        assert sorted(int(e.text) for e in ledger.events()) == list(range(4))
        assert ledger.check() == []


def test_a_newer_ledger_is_refused_with_what_to_install(old: Path, tmp_path: Path) -> None:
    sqlite.upgrade(old, versions=later(tmp_path))
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("UPDATE ledger_info SET value = '7.8.9' WHERE name = 'lrurun'")
    connection.close()
    content = old.read_bytes()
    for ask in (Ledger.open, Ledger.read, sqlite.upgrade):
        with pytest.raises(LedgerError, match="newer") as refused:
            ask(old)
        assert refused.value.exit_code == 5
        assert "lrurun>=7.8.9" in str(refused.value.hint)
    assert old.read_bytes() == content


def test_a_reader_of_an_older_ledger_says_how_to_migrate(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.ledger.database.sqlite.SCHEMA", "9001")
    with pytest.raises(LedgerError, match="older") as refused:
        Ledger.read(old)
    assert f"lrurun ledger migrate --ledger {old}" in str(refused.value.hint)


def test_a_file_that_is_no_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for content in (b"x", b"hello, world\n" * 10, b"hello, world\n" * 1000):
        path.write_bytes(content)
        for ask in (Ledger.open, Ledger.read):
            with pytest.raises(LedgerError, match="not a ledger") as refused:
                ask(path)
            assert refused.value.exit_code == 5
        assert path.read_bytes() == content
        assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0001')")
    connection.close()
    content = path.read_bytes()
    for ask in (Ledger.open, Ledger.read, sqlite.upgrade):
        with pytest.raises(LedgerError, match="not a ledger"):
            ask(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["theirs.db"]
