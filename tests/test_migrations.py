"""Creating and upgrading ledgers: many processes at once, killed processes, and files that are no ledgers."""

from __future__ import annotations

import collections
import json
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

from lrurun.errors import LedgerError
from lrurun.ledger import migrate
from lrurun.ledger.schema import APPLICATION_ID, SCHEMA, TRIGGERS, VERSION_TABLE, VIEWS, metadata
from lrurun.ledger.store import Ledger
from tests.forks import ROOT, at_once

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
    wanted = "SELECT sql FROM sqlite_master WHERE name IN ('runs', 'runs_finished_stay', 'runs_finished_not_deleted')"
    made_last = op.get_bind().exec_driver_sql(wanted).scalars().all()
    op.execute("DROP VIEW runs")
    with op.batch_alter_table("stored_runs", recreate="always") as runs:
        runs.add_column(sa.Column("later", sa.Text, nullable=False, server_default="new"))
    for statement in made_last:
        op.execute(statement)
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
import alembic.command
from pathlib import Path
from lrurun.ledger import migrate

def work(number):
    print(migrate.upgrade(Path(sys.argv[1]), versions=Path(sys.argv[2])))
"""

OPEN = """
import alembic.command
from lrurun.ledger.store import Ledger

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


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(OLD, tmp_path / "ledger.db"))


def later(tmp_path: Path, middle: str = "") -> Path:
    folder = tmp_path / "versions"
    shutil.copytree(RELEASED, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "9001_later.py").write_text(LATER.format(head=SCHEMA, middle=middle))
    return folder


def test_the_migrations_create_the_declared_schema(tmp_path: Path) -> None:
    made, declared = tmp_path / "made.db", tmp_path / "declared.db"
    migrate.upgrade(made)
    engine = create_engine(f"sqlite:///{declared}")
    with engine.begin() as connection:
        metadata.create_all(connection)
        for made_last in (*TRIGGERS.values(), *VIEWS.values()):
            connection.exec_driver_sql(made_last)
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


def test_the_newest_revision_is_that_of_the_code(tmp_path: Path) -> None:
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
        assert {attempt.numerics for run in ledger.runs() for attempt in ledger.attempts(run.id)} == {1}
    assert kept(before, rows(old)) == before


def test_runs_of_an_old_ledger_hold_their_newest_values(old: Path) -> None:
    with Ledger.open(old) as ledger:
        for run in ledger.runs():
            curves = {key: curve[-1][1] for key, curve in ledger.metrics(run.id).items()}
            wanted = [curves.get(key) for key in ("train/loss", "val/accuracy", "machine/steps_per_second")]
            found = [run.last_loss, run.last_score, run.last_speed]
            assert found == [None if value is None or math.isnan(value) else value for value in wanted]
    connection = sqlite3.connect(old)
    results = connection.execute("SELECT val_accuracy, result FROM runs WHERE result IS NOT NULL").fetchall()
    connection.close()
    assert {value for value, _ in results} >= {-math.inf, 0.5}
    assert all(value == float(json.loads(result)["val/accuracy"]) for value, result in results)


@pytest.mark.parametrize("file", EVERY, ids=lambda path: path.stem)
def test_an_upgrade_keeps_every_row(tmp_path: Path, file: Path) -> None:
    old = Path(shutil.copy(file, tmp_path / "ledger.db"))
    before = rows(old)
    assert all(before[table] for table in before if table != "sqlite_sequence")
    backup = migrate.upgrade(old, versions=later(tmp_path))
    after = rows(old)
    assert [row["later"] for row in after["stored_runs"]] == ["new"] * len(before["runs"])
    assert kept(before, after) == before
    assert version(old) == "9001"
    assert backup == tmp_path / f"ledger.db.backup-{file.stem}"
    assert rows(backup) == before
    assert version(backup) == file.stem
    connection = sqlite3.connect(old)
    with pytest.raises(sqlite3.IntegrityError, match="never changes"):
        connection.execute("UPDATE stored_runs SET step = 1 WHERE state = 'done'")
    connection.close()


def test_a_command_that_migrates_says_so_once(old: Path, monkeypatch, capsys) -> None:
    from lrurun.__main__ import run

    monkeypatch.chdir(old.parent)
    assert run(["--ledger", old.name, "ledger", "migrate"]) == 0
    assert f"was migrated to version {SCHEMA}; the old file is kept as {old.name}.backup-" in capsys.readouterr().err
    assert run(["--ledger", old.name, "ledger", "migrate"]) == 0
    assert capsys.readouterr().err == f"{old.name}: up to date\n"


def test_a_backup_is_never_written_over(old: Path, tmp_path: Path) -> None:
    almost = bytearray(old.read_bytes())
    almost[-1] ^= 1
    (tmp_path / "ledger.db.backup-0001").write_bytes(almost)
    (tmp_path / "ledger.db.backup-partial").write_text("left by a killed process")
    backup = migrate.upgrade(old, versions=later(tmp_path))
    assert backup == tmp_path / "ledger.db.backup-0001-2"
    assert (tmp_path / "ledger.db.backup-0001").read_bytes() == almost
    assert not (tmp_path / "ledger.db.backup-partial").exists()


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_an_upgrade_that_is_killed_changes_nothing(old: Path, tmp_path: Path, journal: str) -> None:
    connection = sqlite3.connect(old)
    assert connection.execute(f"PRAGMA journal_mode={journal}").fetchone() == (journal,)
    connection.close()
    before = rows(old)
    killed(old, later(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
    left = {p.name for p in tmp_path.iterdir()}
    assert left & {"ledger.db-wal", "ledger.db-journal"}, "it was killed before it changed anything"
    assert rows(old) == before
    assert version(old) == "0001"
    with Ledger.open(old) as ledger:
        assert ledger.check() == []
    assert [p.name for p in tmp_path.glob("*backup*")] == ["ledger.db.backup-0001"]
    assert rows(tmp_path / "ledger.db.backup-0001") == before


def test_a_ledger_whose_creation_was_killed_is_created_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    killed(path, later(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)"))
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
    with pytest.raises(LedgerError, match="refer to rows that do not exist"):
        migrate.upgrade(old, versions=later(tmp_path, "op.execute('DELETE FROM ladders')"))
    assert rows(old) == before
    assert version(old) == "0001"


def test_eight_upgrade_one_ledger_at_once(old: Path, tmp_path: Path) -> None:
    before = rows(old)
    folder = later(tmp_path)
    assert sorted(at_once(8, UPGRADE, old, folder)) == sorted(["None"] * 7 + [f"{old}.backup-0001"])
    after = rows(old)
    assert [row["later"] for row in after["stored_runs"]] == ["new"] * len(before["runs"])
    assert kept(before, after) == before
    assert [p.name for p in tmp_path.glob("*backup*")] == ["ledger.db.backup-0001"]


@pytest.mark.parametrize("count", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_many_create_one_ledger_at_once(tmp_path: Path, count: int) -> None:
    path = tmp_path / "ledger.db"
    at_once(count, OPEN, path)
    with Ledger.open(path) as ledger:
        assert sorted(int(e.text) for e in ledger.events()) == list(range(count))
        assert ledger.check() == []


MOMENTS = {
    "CREATE TABLE documents": 1,
    "INSERT INTO new_runs": 2,
    "INSERT INTO new_attempts": 1,
    "DROP TABLE stored_runs": 1,
    "UPDATE stored_runs SET last_loss": 1,
    "CREATE TRIGGER documents_stay": 1,
    "UPDATE lrurun_version": 1,
}
"""A statement of the migration, and before which of them the process is killed."""

KILL_AT = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import Engine, event
from lrurun.ledger import migrate

remaining = int(sys.argv[3])

def count(connection, cursor, statement, *rest):
    global remaining
    if " ".join(statement.split()).startswith(sys.argv[2]):
        remaining -= 1
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

event.listen(Engine, "before_cursor_execute", count)
migrate.upgrade(Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of version 0003 with 3,000 runs, larger than SQLite's cache, so that changes reach the files at once."""
    path = Path(shutil.copy(OLD.with_name("0003.db"), tmp_path_factory.mktemp("large") / "ledger.db"))
    connection = sqlite3.connect(path)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
    changed = {
        "number": "r.number + 100 * i",
        "id": "'r' || i || '-' || r.number",
        "fingerprint": "'f' || i || '-' || r.number",
        "seed": "i",
        "config": """replace(r.config, '"seed":' || r.seed, '"seed":' || i)""",
        "provenance": """json_object('model', hex(zeroblob(900)), 'odd " text', 'of ' || (i % 7))""",
    }
    values = ", ".join(changed.get(name, f"r.{name}") for name in columns)
    with connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 450)"
            f" INSERT INTO runs SELECT {values} FROM n, runs r WHERE r.number < 100"
        )
        connection.execute(
            "INSERT INTO attempts SELECT r.number, a.n, host, boot, namespace, pid, pid_started, started_at,"
            " heartbeat_at, seen_at, ended_at, reason, resumed_from, environment, code"
            " FROM runs r JOIN attempts a ON a.run = r.number % 100 WHERE r.number > 100"
        )
        connection.execute(
            "INSERT INTO metrics SELECT r.number, m.key, m.step, m.value"
            " FROM runs r JOIN metrics m ON m.run = r.number % 100 WHERE r.number > 100"
        )
        connection.execute(
            "INSERT INTO ladder_runs (ladder, run, rung, stage, position)"
            " SELECT l.ladder, r.number, rung, stage, position FROM runs r"
            " JOIN ladder_runs l ON l.run = r.number % 100 WHERE r.number > 100"
        )
    connection.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("statement", MOMENTS)
def test_a_migration_killed_at_any_moment_loses_nothing(large: Path, tmp_path: Path, statement: str) -> None:
    path = Path(shutil.copy(large, tmp_path / "ledger.db"))
    before = rows(path)
    command = [sys.executable, "-c", KILL_AT, str(path), statement, str(MOMENTS[statement])]
    done = subprocess.run(command, check=False, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == -signal.SIGKILL
    assert (version(path), rows(path)) == ("0003", before)
    with Ledger.open(path) as ledger:
        assert ledger.check() == []
        assert {run.seed for run in ledger.runs() if run.config["seed"] == run.seed} >= set(range(1, 450))
    assert (version(path), kept(before, rows(path))) == (SCHEMA, before)
    assert rows(tmp_path / "ledger.db.backup-0003") == before
    assert not (tmp_path / "ledger.db.backup-0003-2").exists()
    assert path.stat().st_size < large.stat().st_size / 2


@pytest.mark.slow
def test_sixteen_open_an_old_ledger_at_once(old: Path) -> None:
    before = rows(old)
    at_once(16, OPEN, old)
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
    monkeypatch.setattr("lrurun.ledger.sqlite.SCHEMA", "9001")
    with pytest.raises(LedgerError, match="older") as refused:
        Ledger.read(old)
    assert f"lrurun --ledger {old} ledger migrate" in str(refused.value.hint)


@pytest.mark.parametrize("content", [b"x", b"hello, world\n" * 10, b"hello, world\n" * 1000], ids=["1", "130", "13000"])
def test_a_file_that_is_no_database_is_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
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
    for ask in (Ledger.open, Ledger.read, migrate.upgrade):
        with pytest.raises(LedgerError, match="not a ledger"):
            ask(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["theirs.db"]
