"""SQL on a ledger that can only read: whatever it says, no row, file or setting changes."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger import files
from lrurun.ledger.store import TIMEOUT, Ledger

MOST = 1_000_000
"""Rows of an answer, which is held in memory."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_PRAGMAS = {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
"""Those that tell of the schema; what they are given is the name of a table."""
_NO_FUNCTIONS = {"load_extension", "fts3_tokenizer"}
_FUNCTIONS_AS_TABLES = (
    "json_each('[]')",
    "json_tree('[]')",
    "pragma_table_info('runs')",
    "pragma_table_list",
    "pragma_index_list('runs')",
)
_LONGEST = 50_000_000
"""Bytes of a value: a query must not be able to fill the memory with one."""
_BETWEEN = 20_000
"""Instructions of SQLite between two looks at the keyboard: about a millisecond."""


def select(path: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]], str | None]:
    """Columns and rows of a query, and a sentence for the user about how the ledger was opened, or None.

    Raises:
        NotFoundError: there is no ledger.
        UsageError: SQLite does not understand the query.
        LrurunError: the query would do something else than read, or gives too many rows.
        KeyboardInterrupt: it was stopped by ^C.
    """
    # a ledger of another version, and a file that is none, are refused as everywhere
    ledger = Ledger.read(path)
    if ledger is None:
        raise NotFoundError(f"there is no ledger at {path}", "name one with --ledger PATH")
    ledger.close()
    with contextlib.closing(files.connect(ledger.path, files.read_query(ledger.path)[0], TIMEOUT)) as connection:
        connection.execute("PRAGMA query_only=ON")
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        for table in _FUNCTIONS_AS_TABLES:
            # the first use declares such a table, which the authorizer would take for a change
            connection.execute(f"SELECT 1 FROM {table}").close()
        connection.set_authorizer(_authorize)
        # Python hears of ^C between its own instructions only: here it has some
        connection.set_progress_handler(lambda: 0, _BETWEEN)
        try:
            cursor = connection.execute(sql)
            columns = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(MOST + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise _readable(error, ledger.path) from error
    if len(rows) > MOST:
        raise LrurunError(f"the query gives more than {MOST:,} rows", "end it with a limit")
    if not columns:
        raise UsageError("there is no query in this text", "as in: lrurun query 'select id, state from runs'")
    return columns, rows, ledger.note


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = (
        action in _ALLOWED
        or (action == sqlite3.SQLITE_FUNCTION and str(second).lower() not in _NO_FUNCTIONS)
        or (action == sqlite3.SQLITE_PRAGMA and str(first).lower() in _PRAGMAS)
    )
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _readable(error: Exception, path: Path) -> BaseException:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name == "SQLITE_INTERRUPT":
        # what the handler of ^C raised inside SQLite, which makes this of it
        return KeyboardInterrupt()
    if name in ("SQLITE_AUTH", "SQLITE_READONLY") or str(error).startswith("not authorized"):
        return LrurunError(
            "lrurun query only reads, and this would do more; nothing was changed",
            "begin with select; sqlite_master lists the tables",
        )
    told = files.explain(error, path, TIMEOUT)
    return told or UsageError(f"SQL: {error}", "sqlite_master lists the tables: select sql from sqlite_master")
