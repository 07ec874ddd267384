"""SQL queries on a server: one SELECT in a transaction that can only read, of a role without superuser rights."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.dialects.postgresql.base import PGDialect

from lrurun.errors import LrurunError, UsageError
from lrurun.ledger import servers
from lrurun.ledger.views import View, hint
from lrurun.server import Server

_POWERS = "pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"
"""Roles that can reach the server's files and programs from a query."""

# Which of them this user has; a superuser has all. A query could undo SET ROLE, so that it depends on the user.
_POWERFUL = """
    SELECT session_user, max(name) FROM unnest(%s::text[]) AS name WHERE pg_has_role(session_user, name, 'MEMBER')
"""

_DIALECT: Dialect = PGDialect(paramstyle="named")  # type: ignore[no-untyped-call]
"""With which % in a statement stays as it is."""

_BLANK = r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_BEGIN = re.compile(rf"\A({_BLANK}with\b(?:{_BLANK}recursive\b)?){_BLANK}", re.IGNORECASE | re.DOTALL)
_OWN = re.compile(r"\b(\w+)\s*(?:\([^()]*\)\s*)?as\s+(?:(?:not\s+)?materialized\s*)?\(", re.IGNORECASE)
"""The names that a query gives to tables of its own in WITH, and others."""

# Words that begin statements which are no queries.
_STATEMENTS = frozenset(
    "alter analyze begin call checkpoint close cluster comment commit copy create deallocate declare delete discard do "
    "drop end execute grant import insert listen load lock merge move notify prepare reassign refresh reindex release "
    "reset revoke rollback savepoint security set start truncate unlisten update vacuum".split()
)


def select(server: Server, sql: str, most: int, used: Sequence[View] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and at most `most` rows of a query, which may name the views `used`.

    Raises:
        UsageError: PostgreSQL does not understand the query.
        LrurunError: the query would do more than read, or the user could do more than use the database.
        KeyboardInterrupt: the user pressed ^C.
    """
    from psycopg import Error

    with servers.plain_errors(server), contextlib.closing(servers.connect(server)) as connection:
        connection.read_only = True
        user, power = connection.execute(_POWERFUL, (list(_POWERS),)).fetchall()[0]
        if power is not None:
            raise LrurunError(
                f"the user {user} of the ledger {server} is a superuser or may use the server's files: no query is run",
                "name another user in the URL, made by: CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader",
            )
        if not _first_word(sql) and "(" not in sql:
            return [], []
        try:
            # A cursor has one statement, which begins with SELECT, VALUES or WITH and changes nothing.
            with connection.cursor(name="query") as cursor:
                cursor.execute(_with(used, sql).encode("utf-8"))
                columns = [column.name for column in cursor.description or ()]
                return columns, [tuple(map(_plain, row)) for row in cursor.fetchmany(most)]
        except (Error, UnicodeError, ValueError) as error:
            raise _readable(error, server, sql, used) from error


def _with(used: Sequence[View], sql: str) -> str:
    """The query with the views before it: a transaction that only reads cannot create any."""
    word = _first_word(sql)
    own = [name.lower() for name in _OWN.findall(sql)]
    tables = ", ".join(f"{v.name} AS NOT MATERIALIZED ({v.sql(_DIALECT)})" for v in used if v.name not in own)
    if not tables or word not in ("", "select", "table", "values", "with"):
        return sql
    if word != "with":
        return f"WITH {tables} {sql}"
    return _BEGIN.sub(lambda found: f"{found[1]} {tables}, ", sql, count=1)


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
    found = re.match(rf"{_BLANK}(\w*)", sql, re.DOTALL)
    return found[1].lower() if found else ""


def _readable(error: Exception, server: Server, sql: str, used: Sequence[View]) -> LrurunError:
    from psycopg import Error

    explained = servers.explain(error, server)
    state = str(getattr(error, "sqlstate", None) or "")
    # Of a transaction that only reads, a missing right, or another statement than a query.
    changes = "data-modifying" in str(error)
    if changes or state in ("25001", "25006", "42501") or (state == "42601" and _first_word(sql) in _STATEMENTS):
        return LrurunError(
            "lrurun query can only read, and this query would do more; nothing was changed",
            "start it with select; information_schema.tables lists the tables",
        )
    if explained is not None:
        return explained
    text = servers.first_line(error) if isinstance(error, Error) else str(error)
    return UsageError(f"SQL: {text}", hint(text, used, "information_schema.columns"))
