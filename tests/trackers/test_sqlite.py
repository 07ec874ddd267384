"""SQLite files of trackers: what is locked, damaged or not there is an error, and reading changes nothing."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from lrurun import trackers
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source, sqlite


def made(path: Path, journal: str = "delete") -> Path:
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA journal_mode={journal}")
        database.execute("CREATE TABLE runs (id, name)")
        database.executemany("INSERT INTO runs VALUES (?, 'a text')", [(number,) for number in range(2000)])
        database.commit()
    return path


def count(path: Path) -> int:
    with sqlite.opened(path) as connection:
        (number,) = connection.execute("SELECT count(*) FROM runs WHERE name = 'a text'").fetchone()
    return int(number)


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_is_read_as_it_is(journal: str, tmp_path: Path) -> None:
    path = made(tmp_path / "a b?#%.db", journal)
    before = path.read_bytes()
    assert count(path) == 2000
    assert sqlite.columns(path) == {"runs": {"id", "name"}}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with sqlite.opened(path) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM runs")
    assert path.read_bytes() == before


def test_a_locked_database_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TIMEOUT", 0.01)
    path = made(tmp_path / "runs.db")
    with contextlib.closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LrurunError) as refused:
            count(path)
        for source in (path, tmp_path):  # whose tool is not known then
            with pytest.raises(LrurunError) as unknown:
                trackers.recognise(Source(name=str(source)))
            assert unknown.value.message == refused.value.message
        (tmp_path / "metrics.csv").write_text("step,acc\n1,2\n")
        (tmp_path / "hparams.yaml").write_text("{}")
        assert trackers.recognise(Source(name=str(tmp_path))).name == "lightning"
    assert refused.value.message == f"{path}: another process holds this database"
    assert refused.value.hint == "end it or wait for it, and import again"
    assert count(path) == 2000


def test_a_reader_sees_one_state(tmp_path: Path) -> None:
    path = made(tmp_path / "runs.db", "wal")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("UPDATE runs SET name = 'a text'")
        with sqlite.opened(path) as connection:
            first = connection.execute("SELECT count(*) FROM runs").fetchone()
            writer.execute("DELETE FROM runs")
            assert connection.execute("SELECT count(*) FROM runs").fetchone() == first == (2000,)
        assert count(path) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x" * 4096, "not a whole database of SQLite: file is not a database"),
        (b"", "not the tables that were expected: no such table: runs"),
    ],
)
def test_what_is_no_database_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        count(path)
    assert refused.value.message == f"{path}: {message}"
    assert sqlite.columns(path) == {}


def test_a_cut_off_database_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "runs.db")
    path.write_bytes(path.read_bytes()[:8192])
    with pytest.raises(UsageError, match="not a whole database of SQLite: database disk image is malformed"):
        count(path)


def test_a_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "runs.db")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE runs SET name = CAST(x'ff' AS TEXT)")
    with pytest.raises(UsageError, match="Could not decode to UTF-8"), sqlite.opened(path) as connection:
        connection.execute("SELECT name FROM runs").fetchall()


def test_no_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.db", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(LrurunError) as refused:
            count(path)
        assert refused.value.message == f"{path}: cannot be read: {message}"
        assert sqlite.columns(path) == {}
