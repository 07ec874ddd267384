"""Commands about what there is: list, check."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Json


@app.command("list")
def list_(
    what: Annotated[
        Optional[Literal["ladders", "recipes", "tasks", "recurrences"]],
        typer.Argument(metavar="[ladders|recipes|tasks|recurrences]", help="What to list; everything without it."),
    ] = None,
    json: Json = False,
) -> int:
    """What there is to run."""
    from lrurun import inventory

    return inventory.list_(what, json=json)


@app.command()
def check(
    what: Annotated[
        Literal["ladder", "recipe", "recurrence"],
        typer.Argument(metavar="ladder|recipe|recurrence", help="What to check."),
    ],
    name: Annotated[Optional[str], typer.Argument(metavar="NAME|FILE", help="Its name, or a file.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    json: Json = False,
) -> int:
    """Check a ladder or recipe file, or a recurrence against the conformance suite."""
    from lrurun import inventory

    return inventory.check(what, name, all_=all_, json=json)
