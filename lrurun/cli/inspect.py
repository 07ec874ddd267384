"""Commands that look closer: compare, query."""

from __future__ import annotations

from typing import Annotated

import typer

from lrurun.cli import app
from lrurun.cli.options import Json, complete_runs


@app.command()
def compare(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN ...", help="Run ids, or the beginnings of some.", autocompletion=complete_runs),
    ],
    json: Json = False,
) -> int:
    """In what runs differ, and their results side by side."""
    from lrurun import inspection

    return inspection.compare(context.obj.places, runs, json=json)


@app.command()
def query(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One statement that reads.")],
    json: Json = False,
) -> int:
    """Ask the ledger in SQL; nothing can be changed."""
    from lrurun import inspection

    return inspection.query(context.obj.places, sql, json=json)
