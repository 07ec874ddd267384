"""SQL queries on a ledger. They can only read: no row, file or setting changes, whatever the SQL is."""

from __future__ import annotations

from typing import Any

from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger import views
from lrurun.ledger.database import QueryError
from lrurun.ledger.ledger import Ledger
from lrurun.server import Location

MAX_ROWS = 1_000_000
"""Most rows of a result, which is held in memory."""


def select(path: Location, sql: str) -> tuple[list[str], list[tuple[Any, ...]], str | None]:
    """Columns and rows of a query, and a note for the user about how the ledger was opened, or None.

    Raises:
        NotFoundError: there is no ledger.
        UsageError: the database does not understand the query, or it would do more than read.
        LrurunError: the query has too many rows.
        KeyboardInterrupt: the user pressed ^C.
    """
    with _ledger(path) as ledger:
        used = ledger.views(views.names_in(sql))
        try:
            columns, rows = ledger.database.query(sql, {view.name: view.rows_for(sql) for view in used}, MAX_ROWS + 1)
        except QueryError as error:
            hint = views.hint(error.column, used, ledger.database.catalogue)
            if (column := error.column) is not None:
                owners = [view.name for view in ledger.views() if column in [known.name for known in view.columns]]
                hint = f"{column} is a column of {' and '.join(owners)}; {hint}" if owners else hint
            raise UsageError(f"SQL: {error}", hint) from error
    if len(rows) > MAX_ROWS:
        raise LrurunError(f"the query has more than {MAX_ROWS:,} rows", "add a limit to it")
    if not columns:
        raise UsageError("the text contains no query", "as in: lrurun query 'select id, state from runs'")
    return columns, rows, ledger.note


def described(path: Location) -> list[views.View]:
    """The views that queries on a ledger may name."""
    with _ledger(path) as ledger:
        return ledger.views()


def _ledger(path: Location) -> Ledger:
    ledger = Ledger.read(path)
    if not ledger.exists:
        raise NotFoundError(f"there is no ledger at {path}", "name one with --ledger PATH")
    return ledger
