"""SQLite files: how they are opened, and their errors as messages for users."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from lrurun.errors import DamagedError, LedgerError, LedgerFileError, LrurunError
from lrurun.ledger.database import COMPRESSED, command, damaged, damaged_column

QUICK_TIMEOUT = 0.2
"""Seconds that shell completion waits for other processes."""


def size_of(path: Path) -> int | None:
    """The size of the ledger in bytes, None if there is no such file. Raises LrurunError if there cannot be one."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LrurunError(
            f"the ledger {path} cannot be reached: {error.strerror}",
            "check the permissions of the folders above it, or name another ledger",
        ) from error
    if stat.S_ISDIR(status.st_mode):
        raise LrurunError(f"the ledger {path} is a folder", f"name a file in it, for example {path / 'ledger.db'}")
    if 0 < status.st_size < 512:
        # Smaller than any page of SQLite, which would read the shortest such files as empty databases.
        raise not_a_ledger(path, whole=False)
    return status.st_size


def require_writable(path: Path, exists: bool) -> None:
    """Raise LrurunError unless the ledger and its folder, which holds the write-ahead log, can be written."""
    folder = path.parent
    if not folder.is_dir():
        raise LrurunError(
            f"the folder {folder} of the ledger does not exist", f"create it: mkdir -p {shlex.quote(str(folder))}"
        )
    for target in [folder, path] if exists else [folder]:
        if not os.access(target, os.W_OK):
            raise LrurunError(
                f"the ledger {path} cannot be written: {target} is read-only for this user",
                "change its permissions, or name another ledger",
            )


def read_query(path: Path) -> tuple[str, str | None]:
    """How a reader opens an existing ledger without leaving files behind: the URI's query, and a note for the user."""
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        # A read-only connection would leave a log and its index behind, which belong to the reader.
        return "mode=rw", None
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
        return "mode=ro", None
    with path.open("rb") as file:
        header = file.read(20)
    if header[18:20] == b"\1\1":
        # With a rollback journal a reader needs no other file, and locks keep what it reads consistent.
        return "mode=ro", None
    return (
        "immutable=1",
        f"the ledger {path} is read-only: it is read as it is on disk, and runs of exited processes show as running",
    )


def connect(path: Path, query: str, timeout: float, *pragmas: str) -> sqlite3.Connection:
    """A connection that begins no transaction by itself and waits up to `timeout` seconds for other processes.

    `query` is for the SQLite URI: `mode=rw`, `mode=rwc`, `mode=ro` or `immutable=1`; `pragmas` are settings of the
    connection, as in "synchronous=FULL".
    """
    # The timeout is set inside connect, before any statement: switching to WAL may have to wait already.
    connection = sqlite3.connect(
        f"{path.as_uri()}?{query}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        # A foreign file may contain views and triggers: without trust they call no function with side effects.
        for pragma in ("foreign_keys=ON", "trusted_schema=OFF", *pragmas):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def quick_select(path: Path, statement: str, values: Mapping[str, str]) -> list[str]:
    """The first column of a statement's rows; none if there is no file. Waits for other processes only shortly."""
    file = path.absolute()
    if not size_of(file):
        return []
    with contextlib.closing(connect(file, read_query(file)[0], QUICK_TIMEOUT)) as connection:
        return [row[0] for row in connection.execute(statement, values)]


def busy(error: BaseException) -> bool:
    """Whether an error of SQLite means that another process holds the file."""
    return str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@contextlib.contextmanager
def plain_errors(path: Path, timeout: float) -> Iterator[None]:
    """Turn errors of SQLite that the user can do something about into LrurunError and LedgerError; others pass."""
    try:
        yield
    except (msgspec.DecodeError, RecursionError) as raised:
        raise damaged_column(path, raised) from raised
    except Exception as raised:
        error = getattr(raised, "orig", raised)  # SQLAlchemy wraps the errors of SQLite
        explained = explain(error, path, timeout) if isinstance(error, sqlite3.Error) else None
        if explained is None and (isinstance(error, _UNEXPECTED) or type(raised).__module__.startswith("sqlalchemy.")):
            explained = _damage(path)
        if explained is None:
            raise
        raise explained from raised


_UNEXPECTED = (sqlite3.Error, LookupError, ValueError, TypeError, AttributeError, AssertionError)
"""Errors that are either mistakes of lrurun or consequences of a damaged file."""


def _damage(path: Path) -> DamagedError | None:
    """The error for a file that SQLite finds damaged, or that lacks a table; None if it is whole."""
    from lrurun.ledger.database.schema import LACKING, VERSION_TABLE, metadata

    try:
        with contextlib.closing(connect(path, read_query(path)[0], 0.0)) as connection:
            [(answer,)] = connection.execute("PRAGMA integrity_check(1)")
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            versions = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}") if VERSION_TABLE in tables else ()
            lacking = frozenset[str]().union(*(LACKING.get(version, ()) for (version,) in versions))
    except sqlite3.DatabaseError as error:
        explained = explain(error, path, 0.0)
        return explained if isinstance(explained, DamagedError) else None
    except OSError:
        return None
    if answer != "ok":
        return damaged(path, str(answer).splitlines()[-1])
    missing = sorted(metadata.tables.keys() - tables - lacking)
    return damaged(path, f"it has no table {missing[0]}") if missing and tables else None


def explain(error: BaseException, path: Path, timeout: float) -> LrurunError | None:
    """The error as a message for users, or None if it is not about the file."""
    name = str(getattr(error, "sqlite_errorname", ""))
    if busy(error):
        return LedgerError(
            f"the ledger {path} is busy: another process held it for more than {timeout:g} s",
            "try again; if it is still busy, look for a stopped process that has the file open",
        )
    if name == "SQLITE_NOTADB":
        return not_a_ledger(path, whole=False)
    if name.startswith("SQLITE_CORRUPT"):
        return damaged(path, error)
    if str(error).startswith("malformed JSON"):  # which has no code of its own
        return damaged_column(path, error)
    if name == "SQLITE_FULL":
        return LedgerFileError(
            f"no space left for the ledger {path}", "free some space and repeat the command: nothing recorded is lost"
        )
    if name.startswith("SQLITE_READONLY"):
        return LedgerFileError(
            f"the ledger {path} cannot be written: {error}",
            f"make {path} and its folder writable, or name another ledger",
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return LedgerFileError(
            f"the ledger {path} cannot be opened: {error}",
            f"check the permissions of {path} and of its folder, or name another ledger",
        )
    if name.startswith("SQLITE_IOERR"):
        return LedgerFileError(
            f"reading or writing the ledger {path} failed: {error}",
            f"check the disk that holds {path.parent}: is it full, over its quota, or unmounted?",
        )
    return None


def not_a_ledger(path: Path, *, whole: bool = True) -> LedgerError:
    """The error for a file that is not a ledger: another database, or if it is not `whole`, no database of SQLite."""
    if path.suffix == COMPRESSED:
        hint = f"add its runs to yours: lrurun ledger merge {path}"
        return LedgerError(f"{path} is a compressed copy of a ledger", hint)
    restore = f"restore a copy made by lrurun ledger backup, or move it aside and run {command('rebuild', path)}"
    advice = "" if whole else f"; if it was one, it is damaged: {restore}"
    return LedgerError(f"{path} is not a ledger of lrurun", f"name another file; this one was not changed{advice}")
