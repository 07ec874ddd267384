"""A ledger in a PostgreSQL database: its connections, transactions and migrations, queries and copies."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Dialect, Engine, Select, Table, create_engine, select, text
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.pool import QueuePool

from lrurun.errors import LedgerError, LrurunError, NotFoundError, UnreachableError, UsageError
from lrurun.ledger.database import TIMEOUT, Database, Freed, QueryError, Rows, command, files, migrate, servers, sqlite
from lrurun.ledger.database.schema import LACKING, SCHEMA, VERSION_TABLE, VIEWS, info, metadata
from lrurun.ledger.database.sql import ENQUEUE, MIGRATION, close, literal_statement, lock
from lrurun.server import Server

if TYPE_CHECKING:
    import psycopg

OPENING = 5.0
"""Seconds to wait for a server that is restarting when a ledger is opened: a wrong port should be reported soon."""

HANGING = 15.0
"""Seconds after which a statement does not wait for a lock (10 s at most) but for a server that hangs."""

OTHER = "other_"
"""The beginning of the names of the temporary tables that have the rows of a ledger which is joined."""

_AT_ONCE = 10_000
"""How many rows of a copy are in memory at a time."""

TABLES = [table for table in metadata.sorted_tables if table is not info]
"""Every table with rows of runs; those that a table refers to precede it."""

T = TypeVar("T")


class PostgreSQL(Database):
    """A database of a server. Transactions can fail although the same ones would work a moment later.

    Those that write read what is committed, and lock what they rely on; those that only read see the database as it
    was at their first statement.
    """

    is_shared = True
    may_be_away = True
    catalogue = "information_schema.columns"
    location: Server

    def __init__(self, server: Server, *, timeout: float, read_only: bool) -> None:
        self.location = server
        self.read_only = read_only
        self.note = None
        self.timeout = timeout
        self.engine = engine(server, self._answer_missing)
        self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    # Opening

    @classmethod
    def open(cls, location: Server, *, create: bool, timeout: float) -> PostgreSQL:
        database = cls(location, timeout=min(timeout, OPENING), read_only=False)
        try:
            migrated = database.retry(lambda: database._prepare(create=create))
        except BaseException:
            database.close()
            raise
        database.timeout = timeout
        if migrated:
            database.note = f"the ledger {location} was migrated to version {SCHEMA}"
        return database

    @classmethod
    def read(cls, location: Server, *, timeout: float) -> PostgreSQL | None:
        database = cls(location, timeout=min(timeout, OPENING), read_only=True)
        try:
            version = database.retry(database._version)
            if version is not None and version < SCHEMA and version not in LACKING:
                raise migrate.older(
                    location, version, f"save it with pg_dump, then migrate it: {command('migrate', location)}"
                )
        except BaseException:
            database.close()
            raise
        database.timeout = timeout
        if version is None:
            database.close()
            return None
        database.lacking = LACKING.get(version, frozenset())
        return database

    @classmethod
    def exists(cls, location: Server) -> bool:
        try:
            database = cls.read(location, timeout=OPENING)
        except LedgerError:  # of an older version
            return True
        if database is not None:
            database.close()
        return database is not None

    @classmethod
    def is_writable(cls, location: Server) -> bool:
        return True

    @classmethod
    def can_be_created(cls, location: Server) -> bool:
        return True

    @classmethod
    def making(cls, location: Server) -> AbstractContextManager[Server]:
        return contextlib.nullcontext(location)

    @classmethod
    def backup_file(cls, location: Server) -> Path:
        return Path("ledger.db")

    def close(self) -> None:
        close(self.engine)

    def _version(self) -> str | None:
        """The revision of the ledger in the database, None if there is none. Raises LedgerError for a newer one."""
        with self.reading() as connection:
            return _version(connection, self.location)

    def _prepare(self, *, create: bool) -> bool:
        """Create the ledger, or migrate it, if necessary. Returns whether one of an older version was migrated."""
        version = self._version()
        if version is None and not create:
            raise NotFoundError(
                f"there is no ledger in the database {self.location}", f"create it: {command('migrate', self.location)}"
            )
        if version != SCHEMA:
            with self.writing(durable=True) as connection:
                upgrade(connection, self.location)
        return version is not None and version != SCHEMA

    # Transactions

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        with servers.plain_errors(self.location), self._reader.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *, durable: bool) -> Iterator[Connection]:
        """All are durable: a server that is killed could lose others."""
        with servers.plain_errors(self.location), self.engine.begin() as connection:
            yield connection

    def retry(self, call: Callable[[], T]) -> T:
        started = time.monotonic()
        pause = 0.05
        while True:
            try:
                return call()
            except UnreachableError as error:
                if not isinstance(error, servers.Busy):
                    self.away_at = time.monotonic()
                if time.monotonic() - started >= self.timeout:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, 1.0)
            if self.waiting is not None and time.monotonic() - started >= 1.0:
                self.waiting(time.monotonic() - started)

    def write_back(self) -> None:
        """Does nothing: a server takes care of its log."""

    def wait_text(self, seconds: float) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
        return f"the ledger {self.location} has not answered since {since}: training goes on and keeps its rows"

    def _answer_missing(self, seconds: float) -> None:
        """Called while this process waits for one answer of the server."""
        if seconds >= HANGING:
            self.away_at = time.monotonic()
        if self.waiting is not None:
            self.waiting(seconds)
            if seconds >= self.timeout:
                raise UnreachableError(
                    f"the ledger {self.location} cannot be reached: it has not answered for {seconds:.0f} s",
                    "check that the server is running, and that its disk and its machine answer",
                )

    # Checks

    def damage(self, connection: Connection) -> Iterator[str]:
        """Nothing: a server checks its files itself."""
        return iter(())

    def references(self, connection: Connection) -> Iterator[str]:
        """Nothing: a server allows no broken reference."""
        return iter(())

    def names(self, connection: Connection) -> set[str]:
        return set(
            connection.exec_driver_sql(
                "SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) UNION ALL "
                "SELECT tgname FROM pg_trigger WHERE pg_table_is_visible(tgrelid)"
            ).scalars()
        )

    def missing_rights(self, connection: Connection, wanted: Iterable[tuple[str, str]]) -> list[str]:
        right = text("SELECT has_table_privilege(:name, :right)")
        return [
            f"{kind} on {table}"
            for table, kind in wanted
            if not connection.execute(right, {"name": table, "right": kind}).scalar_one()
        ]

    def give_back(self) -> Freed:
        """Vacuums the tables. The server gives back what is free at the end of a table, and uses the rest again."""
        sizes = f"SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY{[t.name for t in TABLES]}) name"
        skipped: list[str] = []
        with servers.plain_errors(self.location), contextlib.closing(servers.connect(self.location)) as connection:
            connection.add_notice_handler(lambda notice: skipped.append(notice.message_primary or ""))
            connection.commit()
            connection.autocommit = True
            before = connection.execute(sizes.encode()).fetchall()[0][0]
            connection.execute(f"VACUUM {', '.join(table.name for table in TABLES)}".encode())
            after = connection.execute(sizes.encode()).fetchall()[0][0]
        kept = "only the owner of its tables may vacuum them" if skipped else ""
        return Freed(max(0, int(before) - int(after)), kept)

    # Queries of users

    def query(self, sql: str, views: Mapping[str, Select[Any]], limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
        """One SELECT in a transaction that can only read, of a role without superuser rights."""
        from psycopg import Error

        with servers.plain_errors(self.location), contextlib.closing(servers.connect(self.location)) as connection:
            connection.read_only = True
            user, power = connection.execute(_POWERFUL, (list(_POWERS),)).fetchall()[0]
            if power is not None:
                raise LrurunError(
                    f"the user {user} of the ledger {self.location} is a superuser or may use the server's files: "
                    "no query is run",
                    "name another user in the URL, made by: CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader",
                )
            if not _first_word(sql) and "(" not in sql:
                return [], []
            try:
                # A cursor has one statement, which begins with SELECT, VALUES or WITH and changes nothing.
                with connection.cursor(name="query") as cursor:
                    cursor.execute(_with(views, sql).encode("utf-8"))
                    columns = [column.name for column in cursor.description or ()]
                    return columns, [tuple(map(_plain, row)) for row in cursor.fetchmany(limit)]
            except (Error, UnicodeError, ValueError) as error:
                raise self._explained(error, sql) from error

    def _explained(self, error: Exception, sql: str) -> Exception:
        from psycopg import Error

        explained = servers.explain(error, self.location)
        state = str(getattr(error, "sqlstate", None) or "")
        # Of a transaction that only reads, a missing right, or another statement than a query.
        changes = "data-modifying" in str(error)
        if changes or state in ("25001", "25006", "42501") or (state == "42601" and _first_word(sql) in _STATEMENTS):
            return UsageError(
                "lrurun query can only read, and this query would do more; nothing was changed",
                "start it with select; information_schema.tables lists the tables",
            )
        if not isinstance(error, Error):
            return explained or QueryError(str(error))
        line = servers.first_line(error)
        # the code means an undefined column, whose name is in the message as "name" or as table.name
        name = re.search(r'"(?:\w+\.)?(\w+)"|\w\.(\w+)', line) if state == "42703" else None
        return explained or QueryError(line, name and (name[1] or name[2]))

    # Copies

    @contextlib.contextmanager
    def rows(self) -> Iterator[Rows]:
        with servers.plain_errors(self.location), contextlib.closing(servers.connect(self.location)) as connection:
            from psycopg import IsolationLevel

            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            yield _Rows(connection)

    def backup(self, target: Path) -> None:
        with self.copying(target) as copy:
            for table in TABLES:
                if table.name not in self.lacking:
                    copy.copy(select(table).order_by(*table.primary_key))

    @contextlib.contextmanager
    def copying(self, target: Path) -> Iterator[_Copying]:
        sqlite.upgrade(target)
        with (
            self.reading() as source,
            files.plain_errors(target, TIMEOUT),
            contextlib.closing(files.connect(target, "mode=rw", TIMEOUT, "synchronous=OFF")) as file,
        ):
            file.execute("BEGIN")
            yield _Copying(source, file)
            file.execute("COMMIT")

    @contextlib.contextmanager
    def file(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="lrurun-") as folder:
            file = Path(folder) / "ledger.db"
            self.backup(file)
            yield file

    @contextlib.contextmanager
    def joined(self, other: Database) -> Iterator[_Joined]:
        with servers.plain_errors(self.location), contextlib.closing(servers.connect(self.location)) as connection:
            with other.rows() as source:
                for table in TABLES:
                    if table.name not in other.lacking:
                        _copy(source, connection, table)
            connection.commit()
            yield _Joined(connection)


class _Rows:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def select(self, statement: str) -> tuple[list[str], Generator[tuple[Any, ...], None, None]]:
        cursor = self._connection.cursor(name="rows")
        cursor.itersize = _AT_ONCE
        cursor.execute(statement.encode())
        return [column.name for column in cursor.description or ()], _each(cursor)


def _each(cursor: psycopg.ServerCursor[Any]) -> Generator[tuple[Any, ...], None, None]:
    with cursor:
        yield from cursor


class _Copying:
    """A connection that reads, and a new file, which no other process has."""

    def __init__(self, connection: Connection, file: sqlite3.Connection) -> None:
        self.connection, self._file = connection, file

    def copy(self, rows: Select[Any]) -> None:
        [table] = rows.get_final_froms()
        assert isinstance(table, Table)
        streaming = {"stream_results": True, "max_row_buffer": _AT_ONCE}
        streamed = self.connection.execute(rows, execution_options=streaming)
        self._insert(table, [column.name for column in table.c], map(tuple, streamed))

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            names = list(rows[0])
            self._insert(table, [table.c[name].name for name in names], ([row[name] for name in names] for row in rows))

    def _insert(self, table: Table, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(names))
        self._file.executemany(f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})", rows)


class _Joined:
    """A connection with temporary tables, which have the rows of another ledger."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def begin(self, *, writing: bool) -> None:
        if writing:
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (ENQUEUE,))
            # Workers wait until this is over, and then find the runs that they hold unchanged.
            self._connection.execute("LOCK TABLE stored_runs IN EXCLUSIVE MODE")

    def execute(self, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
        named = servers.in_psycopg(statement.format(main="", other=OTHER))
        cursor = self._connection.execute(named, values or None)
        return list(cursor.fetchall()) if cursor.description else []

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()


def _copy(source: Rows, connection: psycopg.Connection[Any], table: Table) -> None:
    """Copies a table to a temporary one."""
    names = ", ".join(column.name for column in table.columns)
    copy = f"{OTHER}{table.name}"
    connection.execute(f"CREATE TEMP TABLE {copy} (LIKE {table.name})".encode())
    with connection.cursor() as cursor, cursor.copy(f"COPY {copy} ({names}) FROM STDIN".encode()) as into:
        for row in source.select(f"SELECT {names} FROM {table.name}")[1]:
            into.write_row(row)
    # Otherwise the joins of these tables would be planned as for small ones.
    connection.execute(f"ANALYZE {copy}".encode())


def engine(server: Server, waiting: Callable[[float], None] = lambda _seconds: None) -> Engine:
    """Connections to a server. Few are kept: its number of connections is limited.

    `waiting` is called every second while one of them waits for the server; what it raises ends the wait.
    """
    server.url()  # says so if the driver is missing, before SQLAlchemy imports it
    from lrurun.ledger.database import sessions

    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: sessions.connect(lambda: servers.connect(server), waiting),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=15,
        isolation_level="READ COMMITTED",
        use_native_hstore=False,
    )


# What queries may do

_POWERS = "pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"
"""Roles that can reach the server's files and programs from a query."""

# Which of them this user has; a superuser has all. A query could undo SET ROLE, so that it depends on the user.
_POWERFUL = """
    SELECT session_user, max(name) FROM unnest(%s::text[]) AS name WHERE pg_has_role(session_user, name, 'MEMBER')
"""

_DIALECT: Dialect = PGDialect(paramstyle="named")  # type: ignore[no-untyped-call]
"""A dialect in which % in a statement stays as it is."""

_BLANK = r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_BEGIN = re.compile(rf"\A({_BLANK}with\b(?:{_BLANK}recursive\b)?){_BLANK}", re.IGNORECASE | re.DOTALL)
_OWN = re.compile(r"\b(\w+)\s*(?:\([^()]*\)\s*)?as\s+(?:(?:not\s+)?materialized\s*)?\(", re.IGNORECASE)
"""Matches the names that a query gives to its own tables in WITH, and other names before "as ("."""

# Words that begin statements which are no queries.
_STATEMENTS = frozenset(
    "alter analyze begin call checkpoint close cluster comment commit copy create deallocate declare delete discard do "
    "drop end execute grant import insert listen load lock merge move notify prepare reassign refresh reindex release "
    "reset revoke rollback savepoint security set start truncate unlisten update vacuum".split()
)


def _with(views: Mapping[str, Select[Any]], sql: str) -> str:
    """The query with the views before it: a transaction that only reads cannot create any."""
    word = _first_word(sql)
    own_names = [name.lower() for name in _OWN.findall(sql)]
    tables = ", ".join(
        f"{name} AS NOT MATERIALIZED ({literal_statement(statement, _DIALECT)})"
        for name, statement in views.items()
        if name not in own_names
    )
    if not tables or word not in ("", "select", "table", "values", "with"):
        return sql
    if word != "with":
        return f"WITH {tables} {sql}"
    return _BEGIN.sub(lambda match: f"{match[1]} {tables}, ", sql, count=1)


def _plain(value: Any) -> Any:
    """A value of PostgreSQL as one of SQLite."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
    if isinstance(value, dict | list):
        return json.dumps(value, default=str)
    return value if isinstance(value, int | float | str | bytes | None) else str(value)


def _first_word(sql: str) -> str:
    """The first word of a statement, "" if there is none."""
    match = re.match(rf"{_BLANK}(\w*)", sql, re.DOTALL)
    return match[1].lower() if match else ""


# Creating and migrating


def _existing(connection: Connection, names: Sequence[str]) -> set[str]:
    """The tables and views of these names."""
    # Not by to_regclass: within a transaction it may not find what another one has created meanwhile.
    query = text(
        "SELECT relname::text FROM pg_class WHERE relname = ANY(:names) AND relkind IN ('r', 'p', 'v')"
        " AND pg_table_is_visible(oid)"
    )
    return set(connection.execute(query, {"names": list(names)}).scalars())


def _version(connection: Connection, server: Server) -> str | None:
    """The revision of the ledger in a database, None if there is none.

    Raises LedgerError if a later lrurun has written it, or tables of another program have the names of a ledger's.
    """
    names = [VERSION_TABLE, *metadata.tables, *VIEWS]
    existing = _existing(connection, names)
    if not existing:
        return None
    if VERSION_TABLE not in existing:
        raise LedgerError(
            f"the database {server} has a table {min(existing)}, which is not of a ledger",
            "name another database, or another schema with ?options=-csearch_path%3DNAME; this one was not changed",
        )
    version = migrate.only(connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all(), server)
    if version > SCHEMA:
        raise migrate.newer(server, version, _writer(connection))
    return version


def _writer(connection: Connection) -> str | None:
    with connection.begin_nested():
        # A later version may have moved the table; then only its own number is known.
        if not _existing(connection, ["ledger_info"]):
            return None
        return connection.execute(text("SELECT value FROM ledger_info WHERE name = 'lrurun'")).scalar()


def upgrade(connection: Connection, server: Server, versions: Path | None = None) -> None:
    """Create the ledger in a database, or migrate it to the newest revision, in the transaction of `connection`.

    `versions` is a folder of revisions to use instead of the packaged ones.
    """
    lock(connection, MIGRATION)
    # Read again under the lock: another process may have migrated it meanwhile.
    version = _version(connection, server)
    if version == SCHEMA and versions is None:
        return
    due = migrate.Migration(server, version, versions, None)
    if due.is_due:
        due.run(connection)
