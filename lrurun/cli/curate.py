"""Commands by which people say something of runs: tag, note, exclude."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import RunId


@app.command()
def tag(
    context: typer.Context,
    run: RunId,
    tags: Annotated[list[str], typer.Argument(metavar="TAG ...", help="Words, found again by --where tag=WORD.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take them from the run.")] = False,
) -> int:
    """Give a run tags."""
    from lrurun import curation

    return curation.tag(context.obj.places, run, tags, remove=remove)


@app.command()
def note(
    context: typer.Context,
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember of it.")],
) -> int:
    """Write a note on a run."""
    from lrurun import curation

    return curation.note(context.obj.places, run, text)


@app.command()
def exclude(
    context: typer.Context,
    run: RunId,
    why: Annotated[Optional[str], typer.Option("--why", metavar="TEXT", help="The reason, for the reports.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it in again.")] = False,
) -> int:
    """Leave a run out of every report; it is kept."""
    from lrurun import curation

    return curation.exclude(context.obj.places, run, why=why, undo=undo)
