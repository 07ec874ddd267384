"""SQL queries on a server: one SELECT in a transaction that can only read, of a role without superuser rights."""

from __future__ import annotations

import contextlib
import json
import re
from decimal import Decimal
from typing import Any

from lrurun.errors import LrurunError, UsageError
from lrurun.ledger import servers
from lrurun.server import Server

_POWERS = "pg_read_server_files", "pg_write_server_files", "pg_execute_server_program"
"""Roles that can reach the server's files and programs from a query."""

# Which of them this user has; a superuser has all. A query could undo SET ROLE, so that it depends on the user.
_POWERFUL = """
    SELECT session_user, max(name) FROM unnest(%s::text[]) AS name WHERE pg_has_role(session_user, name, 'MEMBER')
"""

# Words that begin statements which are no queries.
_STATEMENTS = frozenset(
    "alter analyze begin call checkpoint close cluster comment commit copy create deallocate declare delete discard do "
    "drop end execute grant import insert listen load lock merge move notify prepare reassign refresh reindex release "
    "reset revoke rollback savepoint security set start truncate unlisten update vacuum".split()
)


def select(server: Server, sql: str, most: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and at most `most` rows of a query.

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
                cursor.execute(sql.encode("utf-8"))
                columns = [column.name for column in cursor.description or ()]
                return columns, [tuple(map(_plain, row)) for row in cursor.fetchmany(most)]
        except (Error, UnicodeError, ValueError) as error:
            raise _readable(error, server, sql) from error


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
    found = re.match(r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", sql, re.DOTALL)
    return found[1].lower() if found else ""


def _readable(error: Exception, server: Server, sql: str) -> LrurunError:
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
    return UsageError(f"SQL: {text}", "information_schema.columns lists tables and columns")
