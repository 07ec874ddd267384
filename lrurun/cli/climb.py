"""Commands that train: ladder, resume; and plan, which tells what they would do."""

from __future__ import annotations

from typing import Annotated

import typer

from lrurun.cli import app
from lrurun.cli.options import Jobs, Json, LadderName, ProfileName, Rungs, Seeds, Sets, Task, TimeLimit, Tune


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
    jobs: Jobs = None,
    pack: Annotated[
        int, typer.Option("--pack", metavar="N", min=1, max=64, help="Seeds of a rung trained at once, in one program.")
    ] = 1,
    time_limit: TimeLimit = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Set finished runs aside and train them again.")] = False,
) -> int:
    """Run a ladder on a task, or what is left of it, and print its table."""
    from lrurun import commands

    asked = commands.Asked(
        task=task, ladder=ladder, profile=profile, rungs=rung or [], seeds=seeds, tune=tune, sets=set_ or []
    )
    how = commands.How(jobs=jobs, pack=pack, fresh=fresh, time_limit=time_limit, words=context.obj.words)
    return commands.ladder(context.obj.places, asked, how)


@app.command()
def resume(
    context: typer.Context,
    jobs: Jobs = None,
    time_limit: TimeLimit = None,
) -> int:
    """Finish every unfinished ladder of this ledger."""
    from lrurun import commands

    how = commands.How(jobs=jobs, time_limit=time_limit, words=context.obj.words)
    return commands.resume(context.obj.places, how)


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
