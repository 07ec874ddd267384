"""`lrurun query`: read the ledger with SQL."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import Struct

from lrurun import console
from lrurun.commands import output
from lrurun.commands.options import Json


class QueryDocument(Struct, frozen=True):
    """The JSON of `lrurun query`; binary values are hexadecimal text."""

    columns: list[str]
    rows: list[list[Any]]


def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT statement.")],
    json: Json = False,
) -> int:
    """Read the ledger with SQL.

    The connection is read-only.
    """
    from lrurun.ledger.query import select

    columns, rows, note = select(context.obj.places.ledger, sql)
    if note:
        console.warn(note)
    if json:
        plain = [[cell.hex() if isinstance(cell, bytes) else cell for cell in row] for row in rows]
        output.write_json(QueryDocument(columns, plain))
        return 0
    console.table(
        None, [console.clean(column) for column in columns], [[output.cell(cell) for cell in row] for row in rows]
    )
    if not rows:
        console.say("no rows")
    return 0
