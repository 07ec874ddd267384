"""Commands that train: ladder, resume; and plan, which tells what they would do."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Json, LadderName, ProfileName, Rungs, Seeds, Sets, Task, Tune


@app.command()
def ladder(
    context: typer.Context,
    task: Task,
    ladder: LadderName = "lru",
    profile: ProfileName = None,
    rung: Rungs = None,
    seeds: Seeds = None,
    tune: Tune = False,
    set_: Sets = None,
    jobs: Annotated[
        Optional[int], typer.Option("--jobs", metavar="N", min=1, max=4096, help="Worker processes [cores / threads].")
    ] = None,
    pack: Annotated[
        int, typer.Option("--pack", metavar="N", min=1, max=64, help="Seeds of a rung trained at once, in one program.")
    ] = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set finished runs aside and train them again.")] = False,
) -> int:
    """Run a ladder on a task, or what is left of it, and print its table."""
    from lrurun import commands

    asked = commands.Asked(
        task=task, ladder=ladder, profile=profile, rungs=rung or [], seeds=seeds, tune=tune, sets=set_ or []
    )
    return commands.ladder(context.obj.places, asked, jobs=jobs, pack=pack, fresh=fresh)


@app.command()
def resume(
    context: typer.Context,
    jobs: Annotated[
        Optional[int], typer.Option("--jobs", metavar="N", min=1, max=4096, help="Worker processes [cores / threads].")
    ] = None,
) -> int:
    """Finish every unfinished ladder of this ledger."""
    from lrurun import commands

    return commands.resume(context.obj.places, jobs=jobs)


@app.command()
def plan(
    context: typer.Context,
    task: Task,
    ladder: LadderName = "lru",
    profile: ProfileName = None,
    rung: Rungs = None,
    seeds: Seeds = None,
    tune: Tune = False,
    set_: Sets = None,
    json: Json = False,
) -> int:
    """Tell what a ladder would do, what is done already, and how long the rest will take."""
    from lrurun import commands

    asked = commands.Asked(
        task=task, ladder=ladder, profile=profile, rungs=rung or [], seeds=seeds, tune=tune, sets=set_ or []
    )
    return commands.plan(context.obj.places, asked, json=json)
