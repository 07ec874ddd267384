"""SQL queries on a ledger. They can only read: no row, file or setting changes, whatever the SQL is."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.dialects import sqlite

from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger import files, query_server, views
from lrurun.ledger.store import TIMEOUT, Ledger
from lrurun.server import Place, Server

MAX_ROWS = 1_000_000
"""Most rows of a result, which is held in memory."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
"""Those that describe the schema; their arguments are names of tables."""
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


def select(path: Place, sql: str) -> tuple[list[str], list[tuple[Any, ...]], str | None]:
    """Columns and rows of a query, and a note for the user about how the ledger was opened, or None.

    Raises:
        NotFoundError: there is no ledger.
        UsageError: SQLite does not understand the query.
        LrurunError: the query would do more than read, or has too many rows.
        KeyboardInterrupt: the user pressed ^C.
    """
    # A ledger of another version, and a file that is not a ledger, are refused as by other commands.
    with _ledger(path) as ledger:
        used = ledger.views(views.named(sql))
    if isinstance(path, Server):
        columns, rows = query_server.select(path, sql, MAX_ROWS + 1, used)
    else:
        columns, rows = _of_file(path.absolute(), sql, used)
    if len(rows) > MAX_ROWS:
        raise LrurunError(f"the query has more than {MAX_ROWS:,} rows", "add a limit to it")
    if not columns:
        raise UsageError("the text contains no query", "as in: lrurun query 'select id, state from runs'")
    return columns, rows, ledger.note


def described(path: Place) -> list[views.View]:
    """The views that queries on a ledger may name."""
    with _ledger(path) as ledger:
        return ledger.views()


def _ledger(path: Place) -> Ledger:
    ledger = Ledger.read(path)
    if ledger is None:
        raise NotFoundError(f"there is no ledger at {path}", "name one with --ledger PATH")
    return ledger


def _of_file(file: Path, sql: str, used: Sequence[views.View]) -> tuple[list[str], list[tuple[Any, ...]]]:
    with contextlib.closing(files.connect(file, files.read_query(file)[0], TIMEOUT, "temp_store=MEMORY")) as connection:
        for view in used:
            connection.execute(f"CREATE TEMP VIEW {view.name} AS {view.sql(sqlite.dialect())}")
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
            return columns, cursor.fetchmany(MAX_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise _readable(error, file, used) from error


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = (
        action in _ALLOWED
        or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() not in _NO_FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and str(first).lower() in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _readable(error: Exception, path: Path, used: Sequence[views.View]) -> BaseException:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name == "SQLITE_INTERRUPT":
        # The handler of ^C raised inside SQLite, which reports it as this.
        return KeyboardInterrupt()
    if name in ("SQLITE_AUTH", "SQLITE_READONLY") or _REFUSED.match(str(error)):
        return LrurunError(
            "lrurun query can only read, and this query would do more; nothing was changed",
            "start it with select; sqlite_master lists the tables",
        )
    return files.explain(error, path, TIMEOUT) or UsageError(
        f"SQL: {error}", views.hint(str(error), used, "sqlite_master")
    )
