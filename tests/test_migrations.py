"""Creating and upgrading ledgers: many at once, killed in the middle, and files that are no ledgers."""

from __future__ import annotations

import collections
import math
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

import lrurun
from lrurun.errors import LedgerError
from lrurun.ledger import migrate
from lrurun.ledger.store import Ledger
from lrurun.ledger.tables import APPLICATION_ID, SCHEMA, TRIGGERS, VERSION_TABLE, metadata

ROOT = Path(lrurun.__file__).parent.parent
OLD = Path(__file__).parent / "ledgers" / "0001.db"
EVERY = sorted(OLD.parent.glob("*.db"))
"""A ledger of each released revision."""
RELEASED = Path(migrate.__file__).parent / "migrations" / "versions"

LATER = """
import os
import signal
import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{head}"


def upgrade() -> None:
    # Rebuilds the table that all others refer to, as changing a column does.
    triggers = op.get_bind().exec_driver_sql("SELECT sql FROM sqlite_master WHERE type = 'trigger'").scalars().all()
    with op.batch_alter_table("runs", recreate="always") as runs:
        runs.add_column(sa.Column("later", sa.Text, nullable=False, server_default="new"))
    for trigger in triggers:
        op.execute(trigger)
    # More than fits into the cache, so that changes are in the files before the commit.
    op.execute(
        "CREATE TABLE filler AS WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
        " SELECT i, hex(zeroblob(2000)) AS text FROM n"
    )
    op.execute("UPDATE metrics SET value = value + 1 WHERE 0")
    {middle}
    op.execute("DROP TABLE filler")
"""

UPGRADE = """
import sys
from pathlib import Path
from lrurun.ledger import migrate
sys.stdin.readline()
print(migrate.upgrade(Path(sys.argv[1]), versions=Path(sys.argv[2])))
"""

OPEN = """
import sys
from lrurun.ledger.store import Ledger
sys.stdin.readline()
with Ledger.open(sys.argv[1]) as ledger:
    ledger.event("opened", sys.argv[2])
"""


def python(code: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def together(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Lets go of all at once, and returns what they printed."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [(*process.communicate(timeout=120), process.returncode) for process in processes]
    assert [end[2] for end in ends] == [0] * len(ends), "\n".join(end[1] for end in ends)
    return [end[0].strip() for end in ends]


def rows(path: Path) -> dict[str, list[Any]]:
    """Every row of every table, by column name, so that added columns can be told from changed ones."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    try:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: [dict(row) for row in connection.execute(f'SELECT * FROM "{table}"')]
            for table in sorted(tables)
            if table not in (VERSION_TABLE, "ledger_info")
        }
    finally:
        connection.close()


def grown(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """`before` with the tables that later revisions have added, which are empty."""
    return {table: before.get(table, []) for table in after}


def version(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()[0])
    finally:
        connection.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLD, tmp_path / "ledger.db"))


def later(tmp_path: Path, middle: str = "") -> Path:
    folder = tmp_path / "versions"
    shutil.copytree(RELEASED, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "9001_later.py").write_text(LATER.format(head=SCHEMA, middle=middle))
    return folder


def test_the_tables_are_what_the_migrations_make(tmp_path: Path) -> None:
    made, declared = tmp_path / "made.db", tmp_path / "declared.db"
    migrate.upgrade(made)
    engine = create_engine(f"sqlite:///{declared}")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for trigger in TRIGGERS.values():
            connection.exec_driver_sql(trigger)
    engine.dispose()

    def schema(path: Path) -> dict[str, list[str]]:
        connection = sqlite3.connect(path)
        found = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name <> ? AND sql IS NOT NULL", [VERSION_TABLE]
        ).fetchall()
        connection.close()
        # The order of constraints means nothing.
        return {name: sorted(re.findall(r"[\w']+", sql)) for name, sql in found}

    assert schema(made) == schema(declared)
    assert {str(t.name) for t in metadata.sorted_tables} <= schema(made).keys()
    for table in metadata.sorted_tables:
        assert all(constraint.name for constraint in table.constraints), table.name


def test_the_newest_revision_is_the_one_that_the_code_knows(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    migrate.upgrade(path)
    assert version(path) == SCHEMA
    assert migrate.upgrade(path) is None
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
    connection.close()
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.db"], "no backup of nothing"


def test_there_is_an_old_ledger_of_each_revision() -> None:
    assert [path.stem for path in EVERY] == sorted(path.name[:4] for path in RELEASED.glob("0*.py"))
    assert [version(path) for path in EVERY] == [path.stem for path in EVERY]


@pytest.mark.parametrize("file", EVERY, ids=lambda path: path.stem)
def test_an_old_ledger_opens_and_reads_as_it_was(tmp_path: Path, file: Path) -> None:
    old = Path(shutil.copy(file, tmp_path / "ledger.db"))
    before = rows(old)
    with Ledger.open(old) as ledger:
        assert ledger.check() == []
        ladder, _ = ledger.ladders()
        states = collections.Counter(run.state for run in ledger.runs(ladder.key))
        assert states == {"queued": 3, "running": 1, "done": 1, "diverged": 1, "interrupted": 1}
        diverged = next(run for run in ledger.runs() if run.state == "diverged")
        values = [value for _, value in ledger.metrics(diverged.id)["train/loss"]]
        assert values[:2] == [2.5, math.inf]
        assert math.isnan(values[2])
        assert diverged.result is not None
        assert diverged.result["val/accuracy"] == -math.inf
    after = rows(old)
    for table, held in before.items():
        assert [{k: row[k] for k in had} for had, row in zip(held, after[table], strict=True)] == held


@pytest.mark.parametrize("file", EVERY, ids=lambda path: path.stem)
def test_an_upgrade_keeps_every_row(tmp_path: Path, file: Path) -> None:
    old = Path(shutil.copy(file, tmp_path / "ledger.db"))
    before = rows(old)
    assert all(before[table] for table in before if table != "sqlite_sequence")
    backup = migrate.upgrade(old, versions=later(tmp_path))
    after = rows(old)
    assert [row.pop("later") for row in after["runs"]] == ["new"] * len(before["runs"])
    assert after == grown(before, after)
    assert version(old) == "9001"
    assert backup == tmp_path / f"ledger.db.backup-{file.stem}"
    assert rows(backup) == before
    assert version(backup) == file.stem
    connection = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        connection.execute("UPDATE runs SET step = 1 WHERE state = 'done'")
    connection.close()


def test_a_backup_is_never_written_over(old: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.db.backup-0001").write_text("another one")
    (tmp_path / "ledger.db.backup-partial").write_text("left by a killed process")
    backup = migrate.upgrade(old, versions=later(tmp_path))
    assert backup == tmp_path / "ledger.db.backup-0001-2"
    assert (tmp_path / "ledger.db.backup-0001").read_text() == "another one"
    assert not (tmp_path / "ledger.db.backup-partial").exists()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_killed_in_the_middle_it_is_as_before(old: Path, tmp_path: Path, journal: str) -> None:
    connection = sqlite3.connect(old)
    assert connection.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    connection.close()
    before = rows(old)
    process = python(UPGRADE, old, later(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    process.communicate("go\n", timeout=60)
    assert process.returncode == -signal.SIGKILL
    left = {p.name for p in tmp_path.iterdir()}
    assert left & {"ledger.db-wal", "ledger.db-journal"}, "it was killed before it changed anything"
    assert rows(old) == before
    assert version(old) == "0001"
    with Ledger.open(old) as ledger:
        assert ledger.check() == []


def test_killed_while_it_is_created_it_is_created_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    process = python(UPGRADE, path, later(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    process.communicate("go\n", timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert path.exists()
    assert Ledger.read(path) is None
    with Ledger.open(path) as ledger:
        assert ledger.check() == []


def test_a_failed_migration_changes_nothing(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    with pytest.raises(ZeroDivisionError):
        migrate.upgrade(old, versions=later(tmp_path, "1 / 0"))
    assert rows(old) == before
    shutil.rmtree(tmp_path / "versions")
    with pytest.raises(LedgerError, match="refer to rows that are not there"):
        migrate.upgrade(old, versions=later(tmp_path, "op.execute('DELETE FROM ladders')"))
    assert rows(old) == before
    assert version(old) == "0001"


def test_sixteen_upgrade_one_ledger_at_once(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    folder = later(tmp_path)
    said = together([python(UPGRADE, old, folder) for _ in range(16)])
    assert sorted(said) == sorted(["None"] * 15 + [f"{old}.backup-0001"])
    after = rows(old)
    assert [row.pop("later") for row in after["runs"]] == ["new"] * len(before["runs"])
    assert after == grown(before, after)
    assert [p.name for p in tmp_path.glob("*backup*")] == ["ledger.db.backup-0001"]


@pytest.mark.parametrize("count", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_many_create_one_ledger_at_once(tmp_path: Path, count: int) -> None:
    path = tmp_path / "ledger.db"
    together([python(OPEN, path, number) for number in range(count)])
    with Ledger.open(path) as ledger:
        assert sorted(int(e.text) for e in ledger.events()) == list(range(count))
        assert ledger.check() == []


@pytest.mark.slow
def test_sixteen_open_an_old_ledger_at_once(old: Path) -> None:
    before = rows(old)
    together([python(OPEN, old, number) for number in range(16)])
    after = rows(old)
    assert len(after["events"]) == len(before["events"]) + 16
    assert after["metrics"] == before["metrics"]


def test_a_newer_ledger_is_refused_with_what_to_install(old: Path, tmp_path: Path) -> None:
    migrate.upgrade(old, versions=later(tmp_path))
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("UPDATE ledger_info SET value = '7.8.9' WHERE name = 'lrurun'")
    connection.close()
    content = old.read_bytes()
    for ask in (Ledger.open, Ledger.read, migrate.upgrade):
        with pytest.raises(LedgerError, match="newer") as refused:
            ask(old)
        assert refused.value.exit_code == 5
        assert "lrurun>=7.8.9" in str(refused.value.hint)
    assert old.read_bytes() == content


def test_a_reader_of_an_older_ledger_says_how_to_migrate(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.ledger.store.SCHEMA", "9001")
    with pytest.raises(LedgerError, match="older") as refused:
        Ledger.read(old)
    assert "lrurun ledger migrate" in str(refused.value.hint)


@pytest.mark.parametrize("content", [b"x", b"hello, world\n" * 10, b"hello, world\n" * 1000], ids=["1", "130", "13000"])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for ask in (Ledger.open, Ledger.read):
        with pytest.raises(LedgerError, match="not a ledger") as refused:
            ask(path)
        assert refused.value.exit_code == 5
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_database_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('0001')")
    connection.close()
    content = path.read_bytes()
    for ask in (Ledger.open, Ledger.read, migrate.upgrade):
        with pytest.raises(LedgerError, match="not a ledger"):
            ask(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["theirs.db"]
