"""SQLite files of trackers, which reading never changes."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from lrurun import files
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import documents

TIMEOUT = 10.0
"""Seconds that a reader waits for a process that holds the file."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees one state of the database, with the rows of a write-ahead log beside it.

    As long as it is open, nobody can write to a database that has no such log.

    Raises:
        UsageError: the file is no database, or a damaged one.
        LrurunError: it cannot be read, or another process holds it.
    """
    try:
        with contextlib.closing(connected(path)) as connection:
            connection.execute("BEGIN")
            yield connection
    except sqlite3.DatabaseError as error:
        raise refusal(error, path) from None


def connected(path: Path) -> sqlite3.Connection:
    """A connection of which each statement sees the state at its time: others write between two of them.

    Raises:
        sqlite3.DatabaseError: see `refusal`.
        LrurunError: the file cannot be read.
    """
    with documents.reading(path):
        uri = f"{path.absolute().as_uri()}?{_query(path)}"
    connection = sqlite3.connect(uri, uri=True, timeout=TIMEOUT, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def columns(path: Path) -> dict[str, set[str]]:
    """Table -> its columns; empty where the file is no database.

    Raises:
        LrurunError: it may be one, which cannot be read now: another process holds it.
    """
    try:
        if not path.is_file() or not files.is_database(path):
            return {}
        with opened(path) as connection:
            rows = connection.execute(
                "SELECT tables.name, info.name FROM sqlite_master tables, pragma_table_info(tables.name) info"
                " WHERE tables.type = 'table'"
            ).fetchall()
    except (UsageError, OSError):
        return {}
    found: dict[str, set[str]] = {}
    for table, column in rows:
        found.setdefault(table, set()).add(column)
    return found


def _query(path: Path) -> str:
    """How the file is opened: a reader of a write-ahead log leaves files behind, so there is none where no log is."""
    with path.open("rb") as file:
        has_log = file.read(20)[18:20] == b"\2\2"
    return "immutable=1" if has_log and not path.with_name(f"{path.name}-wal").exists() else "mode=ro"


def refusal(error: sqlite3.Error, path: Path) -> LrurunError:
    """An error of SQLite as a message for users."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return LrurunError(f"{path}: another process holds this database", "end it or wait for it, and import again")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return UsageError(f"{path}: not a whole database of SQLite: {error}", "name another file, or a backup of it")
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_PERM", "SQLITE_AUTH")):
        return LrurunError(
            f"{path}: cannot be read: {error}",
            "check the permissions of the file and of its folder; where a writer was killed, copy it with the files"
            " beside it whose names begin with its own (-wal, -journal), and import the copy",
        )
    return UsageError(f"{path}: not the tables that were expected: {error}", "another version may have written it")
