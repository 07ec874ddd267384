"""Commands about data: prepare, check, info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Json, ProfileName, Task

data = typer.Typer(help="The data of a task: prepare, check, info.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data, name="data")


@data.command()
def prepare(
    context: typer.Context,
    task: Task,
    profile: ProfileName = None,
    from_: Annotated[
        Optional[Path], typer.Option("--from", metavar="PATH", help="A copy that you have: `data info` says which.")
    ] = None,
) -> int:
    """Get the data of a task ready: from a copy, a download, or a generator."""
    from lrurun import datasets

    return datasets.prepare(context.obj.places, task, profile=profile, given=from_)


@data.command()
def check(
    context: typer.Context,
    task: Task,
    profile: ProfileName = None,
    image: Annotated[
        Optional[Path], typer.Option("--image", metavar="FILE", help="Draw the examples into a PNG file.")
    ] = None,
    json: Json = False,
) -> int:
    """Verify prepared data; show counts, classes, lengths and examples."""
    from lrurun import datasets

    return datasets.check(context.obj.places, task, profile=profile, json=json, image=image)


@data.command()
def info(context: typer.Context, task: Task, profile: ProfileName = None, json: Json = False) -> int:
    """What the data of a task are, where they go, and where they come from."""
    from lrurun import datasets

    return datasets.info(context.obj.places, task, profile=profile, json=json)
