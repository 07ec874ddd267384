"""A ledger in an SQLite file: its connections, transactions and migrations, queries and copies."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, Select, Table, create_engine, event
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import NullPool, QueuePool

from lrurun.errors import LedgerError, LrurunError, NotFoundError, UsageError
from lrurun.files import atomic
from lrurun.ledger.database import (
    DAMAGED,
    TIMEOUT,
    Database,
    Freed,
    QueryError,
    Rows,
    command,
    damaged,
    files,
    migrate,
    wal,
)
from lrurun.ledger.database.schema import APPLICATION_ID, LACKING, SCHEMA, VERSION_TABLE, metadata
from lrurun.ledger.database.sql import close, literal_statement

WAITING_INTERVAL = 1.0
"""Seconds between two calls of `SQLite.waiting`."""

MIGRATION_TIMEOUT = 60.0
"""Seconds to wait for another process that creates or migrates the same ledger."""

SHRINK_TIMEOUT = 5.0
"""Seconds to wait for them before the file is made smaller, which it need not be."""

_LITTLE = 1_000_000
"""Free bytes of a file that are not worth a copy of it."""

_PATIENCE = 1.0
"""Seconds to wait for others before the space of deleted rows is left to what is recorded next."""

T = typing.TypeVar("T")


class SQLite(Database):
    """A file. A transaction that has begun succeeds, or fails for good."""

    is_shared = False
    may_be_away = False
    catalogue = "sqlite_master"
    location: Path

    def __init__(
        self, path: Path, *, query: str, timeout: float, read_only: bool, write_ahead: bool, note: str | None
    ) -> None:
        self.location = path
        self.read_only = read_only
        self.note = note
        self.timeout = timeout
        self._files = (path, wal.log_of(path)) if write_ahead else (path,)

        def engine(synchronous: str) -> Engine:
            def connect() -> sqlite3.Connection:
                pragmas = ("query_only=ON",) if read_only else ()
                return files.connect(path, query, timeout, f"synchronous={synchronous}", *pragmas)

            new_engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
            event.listen(new_engine, "begin", self._begin)
            return new_engine

        self.engine = engine("FULL")
        # Without a write-ahead log a lesser setting could damage the file when the power fails.
        self.fast_engine = engine("NORMAL" if write_ahead else "FULL")
        self._reader = self.engine.execution_options(lrurun_begin="BEGIN")

    # Opening

    @classmethod
    def open(cls, location: Path, *, create: bool, timeout: float) -> SQLite:
        path = location.absolute()
        size = files.size_of(path)
        if size is None and not create:
            raise NotFoundError(f"there is no ledger {path}", f"create it: {command('migrate', location)}")
        files.require_writable(path, size is not None)
        file_system = wal.filesystem(path)
        journal_mode = "delete" if file_system in wal.NETWORK else "wal"
        # Signals are not handled while the file is opened, so that an existing one is not waited for very long.
        patience = min(timeout, TIMEOUT) if size else max(timeout, MIGRATION_TIMEOUT)
        with (
            files.plain_errors(path, patience),
            contextlib.closing(files.connect(path, "mode=rwc", patience)) as connection,
        ):
            backup = upgrade(path) if _version(connection, path) != SCHEMA else None
            journal = wal.set_journal(connection, journal_mode, patience)
        note = None
        if file_system in wal.NETWORK:
            note = (
                f"the ledger {path} is on a network file system ({file_system}): slow, and safe from one machine only; "
                "keep it on a local disk, or use a PostgreSQL server: --ledger postgresql+psycopg://USER@HOST/DATABASE"
            )
        elif journal != "wal":
            note = f"the file system of {path} refuses a write-ahead log: the ledger works, but slowly"
        if backup is not None:
            migrated = f"the ledger {path} was migrated to version {SCHEMA}; the old file is kept as {backup.name}"
            note = migrated if note is None else f"{migrated}; {note}"
        return cls(path, query="mode=rw", timeout=timeout, read_only=False, write_ahead=journal == "wal", note=note)

    @classmethod
    def read(cls, location: Path, *, timeout: float) -> SQLite | None:
        path = location.absolute()
        if not files.size_of(path):
            return None
        if not os.access(path, os.R_OK):
            raise LrurunError(f"the ledger {path} cannot be read by this user", f"change the permissions of {path}")
        query, note = files.read_query(path)
        with files.plain_errors(path, timeout), contextlib.closing(files.connect(path, query, timeout)) as connection:
            version = _version(connection, path)
            if version is None:
                return None
            if version > SCHEMA:
                raise migrate.newer(path, version, _writer(connection))
            if version < SCHEMA and version not in LACKING:
                raise migrate.older(path, version, f"migrate it, a backup is made: {command('migrate', location)}")
        database = cls(path, query=query, timeout=timeout, read_only=True, write_ahead=False, note=note)
        database.lacking = LACKING.get(version, frozenset())
        return database

    @classmethod
    def exists(cls, location: Path) -> bool:
        return location.exists()

    @classmethod
    def is_writable(cls, location: Path) -> bool:
        path = location.absolute()
        return all(os.access(part, os.W_OK) for part in (path, path.parent) if part.exists())

    @classmethod
    def can_be_created(cls, location: Path) -> bool:
        return location.absolute().parent.is_dir()

    @classmethod
    @contextlib.contextmanager
    def making(cls, location: Path) -> Iterator[Path]:
        if location.exists():
            yield location
            return
        for log in (location.with_name(location.name + suffix) for suffix in ("-wal", "-journal")):
            if log.exists():  # SQLite would add an old log to the new file
                raise LedgerError(f"{log} exists, and is not overwritten", f"move it aside first: mv {log} {log}.old")
        path = location.resolve()
        files.require_writable(path, False)
        with atomic(path) as partial:
            yield partial
            with contextlib.closing(files.connect(partial, "mode=rw", TIMEOUT)) as connection:
                wal.set_journal(connection, "delete", TIMEOUT)  # so that the file is all there is
            if path.exists():
                raise LedgerError(f"{location} was made by another command meanwhile, and is not overwritten")

    @classmethod
    def backup_file(cls, location: Path) -> Path:
        return location

    def close(self) -> None:
        close(self.engine)
        close(self.fast_engine)

    # Transactions

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        with files.plain_errors(self.location, self.timeout), self._reader.begin() as connection:
            yield connection
            self._check_files(connection)

    @contextlib.contextmanager
    def writing(self, *, durable: bool) -> Iterator[Connection]:
        engine = self.engine if durable else self.fast_engine
        with files.plain_errors(self.location, self.timeout), engine.begin() as connection:
            self._check_files(connection)
            yield connection

    def retry(self, call: Callable[[], T]) -> T:
        """Calls once: waiting for other processes is part of each transaction."""
        return call()

    def write_back(self) -> None:
        with files.plain_errors(self.location, self.timeout), contextlib.closing(self.engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()

    def wait_text(self, seconds: float) -> str:
        return f"the ledger {self.location} is busy: waiting for another process that writes to it"

    def _check_files(self, connection: Connection) -> None:
        if not self.read_only:
            wal.check_files(connection.info, self._files)

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

    # Checks

    def damage(self, connection: Connection) -> Iterator[str]:
        try:
            yield from _integrity(connection, "PRAGMA integrity_check")
        except DatabaseError:  # SQLite stops at a table that it cannot read at all
            for table in sorted(metadata.tables):
                try:
                    yield from _integrity(connection, f'PRAGMA integrity_check("{table}")')
                except DatabaseError as error:
                    yield f"{DAMAGED}{table}: {error.orig}"

    def references(self, connection: Connection) -> Iterator[str]:
        for table, rowid, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            yield f"a row of {table} ({rowid}) refers to a row of {parent} that does not exist"

    def names(self, connection: Connection) -> set[str]:
        return set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())

    def missing_rights(self, connection: Connection, wanted: Iterable[tuple[str, str]]) -> list[str]:
        """None: who can write to a file may do everything."""
        return []

    def give_back(self) -> Freed:
        """Vacuums the file, if a quarter of it is free and nobody uses it, and empties its log."""
        try:
            with contextlib.closing(files.connect(self.location, "mode=rw", _PATIENCE)) as connection:

                def value(statement: str) -> int:
                    return int((connection.execute(statement).fetchone() or (0,))[0])

                # While somebody reads, neither this nor a vacuum makes files smaller, but the log larger.
                is_used = value("PRAGMA wal_checkpoint(TRUNCATE)")
                free, before = value("PRAGMA freelist_count"), self.location.stat().st_size
                size = free * value("PRAGMA page_size")
                if size < _LITTLE or free * 4 <= value("PRAGMA page_count"):
                    return Freed(0)
                if is_used or value("SELECT count(*) FROM stored_runs WHERE state = 'running'"):
                    return Freed(0, f"others use the ledger, in which {size / 1e6:,.1f} MB are free")
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                return Freed(max(0, before - self.location.stat().st_size))
        except sqlite3.OperationalError as error:  # busy, or the disk is too full for a copy
            return Freed(0, f"the ledger was not made smaller ({error})")

    # Queries of users

    def query(self, sql: str, views: Mapping[str, Select[Any]], limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        query, _ = files.read_query(self.location)
        with contextlib.closing(files.connect(self.location, query, TIMEOUT, "temp_store=MEMORY")) as connection:
            for name, statement in views.items():
                connection.execute(f"CREATE TEMP VIEW {name} AS {literal_statement(statement, self.engine.dialect)}")
            connection.execute("PRAGMA query_only=ON")
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
            for table in _FUNCTIONS_AS_TABLES:
                # The first use declares such a table, which the authorizer would refuse as a change.
                connection.execute(f"SELECT 1 FROM {table}").close()
            connection.set_authorizer(_authorize)
            # Python handles ^C between its own instructions only: this calls some.
            connection.set_progress_handler(lambda: 0, _INSTRUCTIONS)
            try:
                cursor = connection.execute(sql)
                columns = [column[0] for column in cursor.description or ()]
                return columns, cursor.fetchmany(limit)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                raise self._explained(error) from error

    def _explained(self, error: Exception) -> BaseException:
        name = str(getattr(error, "sqlite_errorname", ""))
        if name == "SQLITE_INTERRUPT":
            # The handler of ^C raised inside SQLite, which reports it as this.
            return KeyboardInterrupt()
        if name in ("SQLITE_AUTH", "SQLITE_READONLY") or _REFUSED.match(str(error)):
            return UsageError(
                "lrurun query can only read, and this query would do more; nothing was changed",
                "start it with select; sqlite_master lists the tables",
            )
        # SQLite has no code of its own for this error, and never translates its messages.
        unknown = re.search(r'no such column: "?(?:\w+\.)*(\w+)', str(error))
        return files.explain(error, self.location, TIMEOUT) or QueryError(str(error), unknown and unknown[1])

    # Copies

    @contextlib.contextmanager
    def rows(self) -> Iterator[Rows]:
        query, _ = files.read_query(self.location)
        with (
            files.plain_errors(self.location, TIMEOUT),
            contextlib.closing(files.connect(self.location, query, TIMEOUT)) as connection,
        ):
            connection.execute("BEGIN")
            yield _Rows(connection, self.location)

    def backup(self, target: Path) -> None:
        with (
            files.plain_errors(target, TIMEOUT),
            contextlib.closing(files.connect(self.location, "mode=ro", TIMEOUT)) as source,
            contextlib.closing(files.connect(target, "mode=rwc", TIMEOUT)) as copy,
        ):
            source.backup(copy)
            [(answer,)] = copy.execute("PRAGMA quick_check(1)")
            if answer != "ok":
                raise damaged(self.location, str(answer).splitlines()[-1])
            copy.execute("PRAGMA journal_mode=delete")  # a single file, even while it is open

    @contextlib.contextmanager
    def copying(self, target: Path) -> Iterator[_Copying]:
        upgrade(target)
        query, _ = files.read_query(self.location)

        def connect() -> sqlite3.Connection:
            # The rows refer to each other as in this file, and checking each takes long.
            connection = files.connect(self.location, query, TIMEOUT, "foreign_keys=OFF", "temp_store=MEMORY")
            connection.execute("ATTACH ? AS copy", (f"{target.as_uri()}?mode=rw",))
            connection.execute("PRAGMA copy.synchronous=OFF")
            return connection

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
        event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN"))
        with files.plain_errors(self.location, TIMEOUT), engine.begin() as connection:
            yield _Copying(connection)

    @contextlib.contextmanager
    def file(self) -> Iterator[Path]:
        yield self.location

    @contextlib.contextmanager
    def joined(self, other: Database) -> Iterator[_Joined]:
        with (
            other.file() as file,
            files.plain_errors(self.location, TIMEOUT),
            contextlib.closing(files.connect(self.location, "mode=rw", TIMEOUT)) as connection,
        ):
            query, _ = files.read_query(file)
            # The other ledger is only read.
            connection.execute("ATTACH ? AS other", (f"{file.as_uri()}?{query.replace('mode=rw', 'mode=ro')}",))
            yield _Joined(connection)


class _Rows:
    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self._path = connection, path

    def select(self, statement: str) -> tuple[list[str], Generator[tuple[Any, ...], None, None]]:
        cursor = self._connection.execute(statement)
        return [column[0] for column in cursor.description], self._each(cursor)

    def _each(self, cursor: sqlite3.Cursor) -> Generator[tuple[Any, ...], None, None]:
        with files.plain_errors(self._path, TIMEOUT):
            yield from cursor


class _Copying:
    """A file with a new one attached, which no other process has."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def copy(self, rows: Select[Any]) -> None:
        [table] = rows.get_final_froms()
        assert isinstance(table, Table)
        self.connection.execute(_of_copy(table).insert().from_select(table.c.keys(), rows))

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self.connection.execute(_of_copy(table).insert(), list(rows))


def _of_copy(table: Table) -> Table:
    return table.to_metadata(MetaData(), schema="copy")


class _Joined:
    """A file with another one attached."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def begin(self, *, writing: bool) -> None:
        self._connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        return self._connection.execute(statement.format(main="main.", other="other."), values or {}).fetchall()

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        self._connection.execute("ROLLBACK")


def _integrity(connection: Connection, check: str) -> Iterator[str]:
    for (text,) in connection.exec_driver_sql(check):
        if text != "ok":
            yield from (f"{DAMAGED}{line}" for line in text.splitlines() if not line.startswith("***"))


# What queries may do

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
"""Pragmas that describe the schema; their arguments are names of tables."""
_NO_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
_FUNCTIONS_AS_TABLES = (
    "json_each('[]')",
    "json_tree('[]')",
    "pragma_table_info('runs')",
    "pragma_table_list",
    "pragma_index_list('runs')",
)
_REFUSED = re.compile(r"not authorized|cannot .* view", re.IGNORECASE)
"""Messages of SQLite about statements that would change something; `runs` and `attempts` are views."""
_MAX_BYTES = 50_000_000
"""Most bytes of a value, so that one value cannot fill the memory."""
_INSTRUCTIONS = 20_000
"""Instructions of SQLite, about a millisecond, between two chances for Python to handle ^C."""


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = (
        action in _ALLOWED
        or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() not in _NO_FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and str(first).lower() in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


# Creating and migrating


def _version(connection: sqlite3.Connection, path: Path) -> str | None:
    """The revision of an open file, None if it has no tables yet. Raises LedgerError if it is not a ledger."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    names = {name for name in tables if not name.startswith("sqlite_")}
    if not names:
        return None
    if VERSION_TABLE not in names:
        raise files.not_a_ledger(path)
    return migrate.only([row[0] for row in connection.execute(f"SELECT version_num FROM {VERSION_TABLE}")], path)


def _writer(connection: sqlite3.Connection) -> str | None:
    """The version of lrurun that created or last migrated a file."""
    try:
        row = connection.execute("SELECT value FROM ledger_info WHERE name = 'lrurun'").fetchone()
    except sqlite3.OperationalError:
        # A later version may have moved the table; then only its own number is known.
        row = None
    return str(row[0]) if row else None


def upgrade(path: Path, *, versions: Path | None = None, timeout: float = MIGRATION_TIMEOUT) -> Path | None:
    """Create the ledger at `path`, or migrate it to the newest revision if it has an older one.

    `versions` is a folder of revisions to use instead of the packaged ones. Returns the backup that was made beside a
    ledger that had rows, else None. Raises LedgerError if the file is not a ledger, is newer, or is busy.
    """

    def open_file() -> sqlite3.Connection:
        # With keys enforced, copying a table in batch mode would delete the rows that refer to it.
        return files.connect(path, "mode=rwc", timeout, "foreign_keys=OFF", "synchronous=FULL")

    engine = create_engine("sqlite://", creator=open_file, poolclass=NullPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("BEGIN IMMEDIATE"))
    with files.plain_errors(path, timeout):
        with engine.connect() as connection, connection.begin():
            backup = _upgrade_locked(connection, path, versions)
        if backup is not None:
            _shrink(path)
    return backup


def _upgrade_locked(connection: Connection, path: Path, versions: Path | None) -> Path | None:
    raw = typing.cast(sqlite3.Connection, connection.connection.dbapi_connection)
    # Read again under the lock: another process may have migrated it meanwhile.
    version = _version(raw, path)
    if version == SCHEMA and versions is None:
        return None
    due = migrate.Migration(path, version, versions, _writer(raw))
    if not due.is_due:
        return None
    backup = _backup_beside(path, version) if version is not None and _has_rows(raw) else None
    due.run(connection)
    broken = raw.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        tables = ", ".join(sorted({str(row[0]) for row in broken}))
        raise LedgerError(
            f"the ledger {path} could not be migrated: {len(broken)} rows of {tables} refer to rows that do not exist",
            "it was not changed; `lrurun ledger check` lists what is wrong",
        )
    if not raw.in_transaction:
        raise RuntimeError("a migration ended the transaction that it runs in")
    raw.execute(f"PRAGMA application_id={APPLICATION_ID}")
    return backup


def _shrink(path: Path) -> None:
    """Return the space of removed pages to the file system, if they are many."""
    with contextlib.closing(files.connect(path, "mode=rw", SHRINK_TIMEOUT)) as connection:
        # The ledger is migrated, and SQLite uses the free pages later: it is no error if the disk is too full for a
        # copy, or others use the file.
        with contextlib.suppress(sqlite3.OperationalError):
            free = connection.execute("PRAGMA freelist_count").fetchone()[0]
            if free * 4 > connection.execute("PRAGMA page_count").fetchone()[0]:
                connection.execute("VACUUM")


def _has_rows(connection: sqlite3.Connection) -> bool:
    tables = [
        row[0]
        for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if row[0] not in (VERSION_TABLE, "ledger_info") and not row[0].startswith("sqlite_")
    ]
    return any(connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() for table in tables)


def _backup_beside(path: Path, version: str) -> Path:
    """Copy the ledger, as it is before the open transaction, to the first free name beside it.

    A backup that is equal byte for byte is used instead: a migration that was killed left it. The caller holds the
    write lock, so that nothing changes meanwhile, and no other process makes a backup.
    """
    import filecmp

    partial = path.with_name(path.name + ".backup-partial")
    partial.unlink(missing_ok=True)
    with (
        contextlib.closing(files.connect(path, "mode=rw", MIGRATION_TIMEOUT)) as source,
        contextlib.closing(files.connect(partial, "mode=rwc", MIGRATION_TIMEOUT)) as target,
    ):
        source.backup(target)
    backup = path.with_name(f"{path.name}.backup-{version}")
    count = 1
    while backup.exists():
        with contextlib.suppress(OSError):  # it is not readable, and so not known to be equal
            if filecmp.cmp(partial, backup, shallow=False):
                partial.unlink()
                return backup
        count += 1
        backup = path.with_name(f"{path.name}.backup-{version}-{count}")
    partial.replace(backup)
    return backup
