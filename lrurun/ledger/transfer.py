"""Rows of a ledger on a PostgreSQL server, copied to a file and from one."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun.ledger import files, migrate, servers
from lrurun.ledger.schema import info, metadata
from lrurun.server import Server

if TYPE_CHECKING:
    import psycopg

_AT_ONCE = 10_000
"""How many rows are in memory at a time."""

TABLES = [table for table in metadata.sorted_tables if table is not info]
"""Every table with rows of runs; those that a table refers to precede it."""


@contextlib.contextmanager
def snapshot(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A connection that sees the server's rows as they are at its first statement, and changes none."""
    with servers.plain_errors(server), contextlib.closing(servers.connect(server)) as connection:
        from psycopg import IsolationLevel

        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        yield connection


def rows(
    connection: psycopg.Connection[Any], statement: str
) -> tuple[list[str], Generator[tuple[Any, ...], None, None]]:
    """Columns and rows of a statement; they are read from the server as they are needed."""
    cursor = connection.cursor(name="rows")
    cursor.itersize = _AT_ONCE
    cursor.execute(statement.encode())
    columns = [column.name for column in cursor.description or ()]

    def each() -> Generator[tuple[Any, ...], None, None]:
        with cursor:
            yield from cursor

    return columns, each()


def to_file(server: Server, file: Path) -> None:
    """Copy the ledger of a server, as it is at one moment, to a new file."""
    migrate.upgrade_file(file)
    with (
        snapshot(server) as source,
        files.plain_errors(file, files.TIMEOUT),
        contextlib.closing(files.connect(file, "mode=rw", files.TIMEOUT, "synchronous=OFF")) as target,
    ):
        target.execute("BEGIN")
        for table in TABLES:
            names = [column.name for column in table.columns]
            listed, values = ", ".join(names), ", ".join("?" * len(names))
            order = ", ".join(column.name for column in table.primary_key)
            _, found = rows(source, f"SELECT {listed} FROM {table.name} ORDER BY {order}")
            target.executemany(f"INSERT INTO {table.name} ({listed}) VALUES ({values})", found)
        target.execute("COMMIT")


def to_server(source: sqlite3.Connection, connection: psycopg.Connection[Any], prefix: str) -> None:
    """Copy the tables of a file to temporary ones of a server's connection, with `prefix` before their names."""
    for table in TABLES:
        names = ", ".join(column.name for column in table.columns)
        copy = f"{prefix}{table.name}"
        connection.execute(f"CREATE TEMP TABLE {copy} (LIKE {table.name})".encode())
        with connection.cursor() as cursor, cursor.copy(f"COPY {copy} ({names}) FROM STDIN".encode()) as into:
            for row in source.execute(f"SELECT {names} FROM {table.name}"):
                into.write_row(row)
        # Otherwise the joins of these tables would be planned as those of small ones.
        connection.execute(f"ANALYZE {copy}".encode())
