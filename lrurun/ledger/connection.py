"""An open ledger file: its connections and its transactions."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import time
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.pool import QueuePool

from lrurun.errors import LedgerError, LrurunError, NotFoundError
from lrurun.ledger import files, migrate
from lrurun.ledger.schema import SCHEMA, ladders, runs
from lrurun.paths import places

TIMEOUT = 30.0
"""Seconds to wait for other processes that write."""

TRAINING_TIMEOUT = 600.0
"""The same for commands that train: hours of work are worth minutes of waiting."""

WAITING_INTERVAL = 1.0
"""Seconds between two calls of `LedgerFile.waiting`."""


class LedgerFile:
    """A ledger file that is open, for writing (`open`) or for reading (`read`). Threads may share it.

    Queue, Recording and Reading add what is done with it; Ledger is all of them.
    """

    def __init__(
        self, path: Path, *, query: str, timeout: float, read_only: bool, write_ahead: bool, note: str | None
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.note = note
        """A sentence for the user about how the file had to be opened, or None."""
        self.waiting: Callable[[float], None] | None = None
        """Called about every second while another process keeps this one from writing, with the seconds waited so far;
        what it raises ends the wait."""
        self._timeout = timeout
        self._metric_numbers: dict[str, int] = {}
        """Name -> number of the metrics that Recording has written."""

        def engine(synchronous: str) -> Engine:
            def connect() -> sqlite3.Connection:
                only = ("query_only=ON",) if read_only else ()
                return files.connect(path, query, timeout, f"synchronous={synchronous}", *only)

            made = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
            event.listen(made, "begin", self._begin)
            return made

        self._durable_engine = engine("FULL")
        # Without a write-ahead log a lesser setting could damage the file when the power fails.
        self._fast_engine = engine("NORMAL" if write_ahead else "FULL")
        self._reading_engine = self._durable_engine.execution_options(lrurun_begin="BEGIN")

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True, timeout: float = TIMEOUT) -> typing.Self:
        """Open a ledger for writing; it is created or migrated if necessary.

        `timeout` is how many seconds each write waits for other processes. Raises NotFoundError if there is no ledger
        and `create` is off, LrurunError if the file cannot be written, LedgerError if it is busy, newer than this
        version, or not a ledger.
        """
        place = files.locate(path)
        size = files.size_of(place)
        if size is None and not create:
            raise NotFoundError(f"there is no ledger {place}", f"create it: {_migration(path)}")
        files.require_writable(place, size is not None)
        kind = files.filesystem(place)
        wanted = "delete" if kind in files.NETWORK else "wal"
        # Signals are not handled while the file is opened, so that an existing one is not waited for very long.
        patience = min(timeout, TIMEOUT) if size else max(timeout, migrate.TIMEOUT)
        with (
            files.plain_errors(place, patience),
            contextlib.closing(files.connect(place, "mode=rwc", patience)) as connection,
        ):
            backup = migrate.upgrade(place) if migrate.version_of(connection, place) != SCHEMA else None
            journal = files.set_journal(connection, wanted, patience)
        note = None
        if kind in files.NETWORK:
            note = (
                f"the ledger {place} is on a network file system ({kind}): slow, and safe from one machine only; "
                "keep it on a local disk"
            )
        elif journal != "wal":
            note = f"the file system of {place} refuses a write-ahead log: the ledger works, but slowly"
        if backup is not None:
            migrated = f"the ledger {place} was migrated to version {SCHEMA}; the old file is kept as {backup.name}"
            note = migrated if note is None else f"{migrated}; {note}"
        return cls(place, query="mode=rw", timeout=timeout, read_only=False, write_ahead=journal == "wal", note=note)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> typing.Self | None:
        """Open a ledger for reading; None if there is none. Never creates a file and never changes a row.

        Raises LedgerError for a ledger of another version and for a file that is not a ledger, LrurunError if it
        cannot be read.
        """
        place = files.locate(path)
        if not files.size_of(place):
            return None
        if not os.access(place, os.R_OK):
            raise LrurunError(f"the ledger {place} cannot be read by this user", f"change the permissions of {place}")
        query, note = files.read_query(place)
        with files.plain_errors(place, timeout), contextlib.closing(files.connect(place, query, timeout)) as connection:
            version = migrate.version_of(connection, place)
            if version is None:
                return None
            if version > SCHEMA:
                raise migrate.newer(connection, place, version)
            if version < SCHEMA:
                raise LedgerError(
                    f"the ledger {place} has an older version ({version}, this lrurun reads {SCHEMA})",
                    f"migrate it, a backup is made: {_migration(path)}",
                )
        return cls(place, query=query, timeout=timeout, read_only=True, write_ahead=False, note=note)

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        self._durable_engine.dispose()
        self._fast_engine.dispose()

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A transaction that reads."""
        with files.plain_errors(self.path, self._timeout), self._reading_engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[Connection]:
        """A transaction that writes. What is not `durable` survives a killed process, but maybe not a power cut."""
        if self.read_only:
            raise LrurunError(f"the ledger {self.path} was opened for reading only")
        engine = self._durable_engine if durable else self._fast_engine
        with files.plain_errors(self.path, self._timeout), engine.begin() as connection:
            yield connection

    def _begin(self, connection: Connection) -> None:
        # A deferred begin of a transaction that reads and then writes fails under several processes, without waiting.
        begin = connection.get_execution_options().get("lrurun_begin", "BEGIN IMMEDIATE")
        if self.waiting is None or begin == "BEGIN":
            connection.exec_driver_sql(begin)
            return
        started = time.monotonic()
        raw = typing.cast(sqlite3.Connection, connection.connection.dbapi_connection)
        # SQLite handles no signals while it waits, so that it waits for a short time, again and again.
        raw.execute(f"PRAGMA busy_timeout={int(1000 * min(WAITING_INTERVAL, self._timeout))}")
        try:
            while True:
                try:
                    raw.execute(begin)
                    return
                except sqlite3.OperationalError as error:
                    waited = time.monotonic() - started
                    if not files.busy(error) or waited >= self._timeout:
                        raise
                self.waiting(waited)
        finally:
            raw.execute(f"PRAGMA busy_timeout={int(1000 * self._timeout)}")

    def _run_number(self, connection: Connection, run_id: str) -> int:
        number = connection.execute(select(runs.c.number).where(runs.c.id == run_id)).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no run {run_id!r} in {self.path}", "see `lrurun runs`")
        return int(number)

    def _ladder_number(self, connection: Connection, key: str) -> int:
        number = connection.execute(select(ladders.c.id).where(ladders.c.key == key)).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no ladder instance {key!r} in {self.path}", "see `lrurun status`")
        return int(number)


def _migration(path: str | os.PathLike[str]) -> str:
    """The command that migrates the ledger at `path`; it is named unless commands find it by themselves."""
    found_alone = files.locate(path) == files.locate(places().ledger)
    return "lrurun ledger migrate" if found_alone else f"lrurun --ledger {shlex.quote(os.fspath(path))} ledger migrate"
