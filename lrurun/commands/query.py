"""`lrurun query`: read the ledger with SQL."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer
from msgspec import Struct

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json
from lrurun.commands._shared.rules import examples, exclusive
from lrurun.errors import UsageError


class QueryDocument(Struct, frozen=True):
    """The JSON of `lrurun query`; binary values are hexadecimal text."""

    columns: list[str]
    rows: list[list[Any]]


class ColumnOutput(Struct, frozen=True):
    """A column of a view, and what it is."""

    name: str
    about: str


class ViewOutput(Struct, frozen=True):
    """A view, and what its rows are."""

    name: str
    about: str
    columns: list[ColumnOutput]


class ViewsDocument(Struct, frozen=True):
    """The JSON of `lrurun query --views`."""

    views: list[ViewOutput]


@examples(
    "lrurun query 'select rung, avg(test_accuracy) from results group by rung'",
    "lrurun query --views",
)
@exclusive("views", "sql")
def query(
    context: typer.Context,
    sql: Annotated[Optional[str], typer.Argument(metavar="SQL", help="One SELECT statement.")] = None,
    views: Annotated[bool, typer.Option("--views", help="List the columns of results, trials and curves.")] = False,
    json: Json = False,
) -> int:
    """Read the ledger with SQL.

    The connection is read-only. Beside the tables it has three views with plain columns, such as test_accuracy and
    optim_lr: results (final runs), trials (tuning runs) and curves.
    """
    from lrurun.ledger.query import select

    if views:
        return _list_views(context, json)
    if sql is None:
        raise UsageError(
            "SQL is missing", "as in: lrurun query 'select rung, avg(test_accuracy) from results group by rung'"
        )

    columns, rows, note = select(context.obj.places.ledger, sql)
    if note:
        console.warn(note)
    if json:
        plain = [[cell.hex() if isinstance(cell, bytes) else cell for cell in row] for row in rows]
        output.write_json(QueryDocument(columns, plain))
        return 0
    table.show_text(columns, [[output.cell(cell) for cell in row] for row in rows])
    if not rows:
        console.say("no rows")
    return 0


def _list_views(context: typer.Context, json: bool) -> int:
    from lrurun.ledger.query import described

    views = described(context.obj.places.ledger)
    if json:
        listed = [
            ViewOutput(view.name, view.about, [ColumnOutput(column.name, column.about) for column in view.columns])
            for view in views
        ]
        output.write_json(ViewsDocument(listed))
        return 0
    for view in views:
        table.show_text(
            ["column", "what it is"],
            [[column.name, column.about] for column in view.columns],
            title=f"{view.name}: {view.about}",
            cut={"what it is": 20},
            below={"what it is": lambda row: row[0]},
        )
    return 0
