"""Commands that look closer: compare, query, logs."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Json, RunId, complete_runs


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


@app.command()
def logs(
    context: typer.Context,
    run: RunId,
    attempt: Annotated[
        Optional[int], typer.Option("--attempt", metavar="N", min=1, help="Of this attempt [the newest].")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run is over.")] = False,
    json: Json = False,
) -> int:
    """The log of a run's newest attempt."""
    from lrurun import inspection

    return inspection.logs(context.obj.places, run, attempt=attempt, follow=follow, json=json)
