"""A ledger in an SQLite file: its connections and its transactions."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from lrurun.errors import LedgerError, LrurunError, NotFoundError
from lrurun.ledger import engines, files, migrate
from lrurun.ledger.files import TIMEOUT
from lrurun.ledger.schema import SCHEMA

WAITING_INTERVAL = 1.0
"""Seconds between two calls of `SQLite.waiting`."""

T = typing.TypeVar("T")


class SQLite:
    """A file that is open, for writing (`open`) or for reading (`read`). Threads may share it."""

    retries = False
    """A transaction that has begun succeeds, or fails for good."""
    away_at = float("-inf")
    """A file is never away."""

    def __init__(
        self, path: Path, *, query: str, timeout: float, read_only: bool, write_ahead: bool, note: str | None
    ) -> None:
        self.place = path
        self.read_only = read_only
        self.note = note
        self.timeout = timeout
        self.waiting: Callable[[float], None] | None = None
        self._files = (path, path.with_name(f"{path.name}-wal")) if write_ahead else (path,)

        def engine(synchronous: str) -> Engine:
            def connect() -> sqlite3.Connection:
                only = ("query_only=ON",) if read_only else ()
                return files.connect(path, query, timeout, f"synchronous={synchronous}", *only)

            made = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
            event.listen(made, "begin", self._begin)
            return made

        self.engine = engine("FULL")
        # Without a write-ahead log a lesser setting could damage the file when the power fails.
        self.fast_engine = engine("NORMAL" if write_ahead else "FULL")
        self._reader = self.engine.execution_options(lrurun_begin="BEGIN")

    @classmethod
    def open(cls, path: Path, *, create: bool, timeout: float, given: str) -> SQLite:
        """`given` is the path as the user wrote it, for messages."""
        size = files.size_of(path)
        if size is None and not create:
            raise NotFoundError(f"there is no ledger {path}", f"create it: {files.migration(given)}")
        files.require_writable(path, size is not None)
        kind = files.filesystem(path)
        wanted = "delete" if kind in files.NETWORK else "wal"
        # Signals are not handled while the file is opened, so that an existing one is not waited for very long.
        patience = min(timeout, TIMEOUT) if size else max(timeout, migrate.TIMEOUT)
        with (
            files.plain_errors(path, patience),
            contextlib.closing(files.connect(path, "mode=rwc", patience)) as connection,
        ):
            backup = migrate.upgrade_file(path) if migrate.version_of_file(connection, path) != SCHEMA else None
            journal = files.set_journal(connection, wanted, patience)
        note = None
        if kind in files.NETWORK:
            note = (
                f"the ledger {path} is on a network file system ({kind}): slow, and safe from one machine only; "
                "keep it on a local disk, or use a PostgreSQL server: --ledger postgresql+psycopg://USER@HOST/DATABASE"
            )
        elif journal != "wal":
            note = f"the file system of {path} refuses a write-ahead log: the ledger works, but slowly"
        if backup is not None:
            migrated = f"the ledger {path} was migrated to version {SCHEMA}; the old file is kept as {backup.name}"
            note = migrated if note is None else f"{migrated}; {note}"
        return cls(path, query="mode=rw", timeout=timeout, read_only=False, write_ahead=journal == "wal", note=note)

    @classmethod
    def read(cls, path: Path, *, timeout: float, given: str) -> SQLite | None:
        if not files.size_of(path):
            return None
        if not os.access(path, os.R_OK):
            raise LrurunError(f"the ledger {path} cannot be read by this user", f"change the permissions of {path}")
        query, note = files.read_query(path)
        with files.plain_errors(path, timeout), contextlib.closing(files.connect(path, query, timeout)) as connection:
            version = migrate.version_of_file(connection, path)
            if version is None:
                return None
            if version > SCHEMA:
                raise migrate.newer(path, version, migrate.writer_of_file(connection))
            if version < SCHEMA:
                raise migrate.older(path, version, f"migrate it, a backup is made: {files.migration(given)}")
        return cls(path, query=query, timeout=timeout, read_only=True, write_ahead=False, note=note)

    def close(self) -> None:
        engines.close(self.engine)
        engines.close(self.fast_engine)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads."""
        with files.plain_errors(self.place, self.timeout), self._reader.begin() as connection:
            yield connection
            self._check_files(connection)

    @contextlib.contextmanager
    def writing(self, *, durable: bool) -> Iterator[Connection]:
        """A transaction that writes. What is not `durable` survives a killed process, but maybe not a power cut."""
        engine = self.engine if durable else self.fast_engine
        with files.plain_errors(self.place, self.timeout), engine.begin() as connection:
            self._check_files(connection)
            yield connection

    def checkpoint(self) -> None:
        """Copies what the write-ahead log holds to the file, as far as other processes allow it without waiting."""
        with files.plain_errors(self.place, self.timeout), contextlib.closing(self.engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def _check_files(self, connection: Connection) -> None:
        """Raises LedgerError if the file or its write-ahead log was removed or replaced since a connection was made.

        Removed files still accept what is written to them, and nobody would see it. SQLite itself removes neither while
        a connection is open.
        """
        if self.read_only:
            return
        found = {path: _identity(path) for path in self._files}
        known = connection.info.get("lrurun_files")
        if known is None and None not in found.values():  # the first statement of a connection makes the log
            known = connection.info["lrurun_files"] = found
        if known and (lost := next((path for path in found if found[path] != known[path]), None)):
            what = "the ledger" if lost == self.place else "the write-ahead log of the ledger"
            raise LedgerError(
                f"{what}, {lost}, was removed or replaced while this command was writing to it",
                "restore it if you can; the same command continues with what is there",
            )

    def retry(self, call: Callable[[], T]) -> T:
        """What `call` returns: waiting for other processes is part of each transaction."""
        return call()

    def _begin(self, connection: Connection) -> None:
        # A deferred begin of a transaction that reads and then writes fails under several processes, without waiting.
        begin = connection.get_execution_options().get("lrurun_begin", "BEGIN IMMEDIATE")
        if self.waiting is None or begin == "BEGIN":
            connection.exec_driver_sql(begin)
            return
        started = time.monotonic()
        raw = typing.cast(sqlite3.Connection, connection.connection.dbapi_connection)
        # SQLite handles no signals while it waits, so that it waits for a short time, again and again.
        raw.execute(f"PRAGMA busy_timeout={int(1000 * min(WAITING_INTERVAL, self.timeout))}")
        try:
            while True:
                try:
                    raw.execute(begin)
                    return
                except sqlite3.OperationalError as error:
                    waited = time.monotonic() - started
                    if not files.busy(error) or waited >= self.timeout:
                        raise
                self.waiting(waited)
        finally:
            raw.execute(f"PRAGMA busy_timeout={int(1000 * self.timeout)}")


def _identity(path: Path) -> tuple[int, int] | None:
    """The numbers of a file's device and of the file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
