"""Commands that look closer: query."""

from __future__ import annotations

from typing import Annotated

import typer

from lrurun.cli import app
from lrurun.cli.options import Json


@app.command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One statement that reads.")],
    json: Json = False,
) -> int:
    """Ask the ledger in SQL; nothing can be changed."""
    from lrurun import inspection

    return inspection.query(context.obj.places, sql, json=json)
