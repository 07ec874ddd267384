"""Commands that read the ledger: status, runs, show, report, plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import (
    Drawn,
    InstanceId,
    Json,
    LadderName,
    ProfileName,
    RunId,
    Sets,
    Sort,
    TaskOrAll,
    Tune,
    Where,
)

Limit = Annotated[
    Optional[int],
    typer.Option("--limit", metavar="N", min=0, help="At most so many; 0 lists all [50 on a terminal, else all]."),
]


@app.command()
def status(
    context: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing, until everything is finished.")] = False,
    json: Json = False,
) -> int:
    """What is running, where, how far, how long still."""
    from lrurun import reading

    return reading.status(context.obj.places, watch=watch, json=json)


@app.command()
def runs(
    context: typer.Context,
    ladder: Annotated[Optional[str], typer.Option("--ladder", metavar="NAME", help="Only runs of this ladder.")] = None,
    where: Where = None,
    sort: Sort = None,
    limit: Limit = None,
    json: Json = False,
) -> int:
    """List runs, newest first."""
    from lrurun import reading

    return reading.runs(context.obj.places, ladder=ladder, limit=limit, json=json, condition=where, sort=sort)


@app.command()
def show(
    context: typer.Context,
    run: RunId,
    toml: Annotated[bool, typer.Option("--toml", help="As a ladder file that trains this run again.")] = False,
    json: Json = False,
) -> int:
    """One run: result, configuration and where each value came from, attempts, events."""
    from lrurun import reading

    return reading.show(context.obj.places, run, json=json, toml=toml)


@app.command()
def report(
    context: typer.Context,
    task: TaskOrAll = None,
    all_: Annotated[
        bool, typer.Option("--all", help="All tasks of the ladder that the ledger has, in one table.")
    ] = False,
    ladder: LadderName = "lru",
    profile: ProfileName = None,
    tune: Tune = False,
    set_: Sets = None,
    instance: InstanceId = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="The training speeds instead, beside the published ones.")
    ] = False,
    format: Annotated[
        Literal["table", "md", "csv", "json", "latex", "html"], typer.Option("--format", help="How to write it.")
    ] = "table",
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="Write to a file instead of stdout.")
    ] = None,
    limit: Annotated[
        Optional[int], typer.Option("--limit", metavar="N", min=1, help="Only the first N rungs' rows.")
    ] = None,
    json: Json = False,
) -> int:
    """The comparison table of a ladder, beside the published numbers, with its claims."""
    from lrurun import commands, reading
    from lrurun.errors import UsageError

    if all_ == (task is not None):
        raise UsageError("report: expected a TASK, or --all", "lrurun status lists what the ledger has results of")
    if all_ and (speed or instance):
        other, words = ("--speed", "--speed") if speed else ("--instance", f"--instance {instance}")
        raise UsageError(f"--all and {other} exclude each other", f"{other} is of one task: lrurun report TASK {words}")
    asked = commands.Asked(
        task=task or "", ladder=ladder, profile=profile, rungs=[], seeds=None, tune=tune, sets=set_ or []
    )
    chosen = "json" if json else format
    if all_:
        return reading.report_all(context.obj.places, asked, format=chosen, out=out, limit=limit)
    return reading.report(
        context.obj.places, asked, instance=instance, format=chosen, out=out, limit=limit, speeds=speed
    )


@app.command()
def plot(
    context: typer.Context,
    what: Drawn,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file: .png, .svg or .pdf.")],
    kind: Annotated[
        Optional[Literal["curves", "ladder", "eigenvalues", "norms", "speed"]],
        typer.Option("--kind", help="What to draw; the ladder of a TASK, the curves of RUNs without it."),
    ] = None,
    ladder: LadderName = "lru",
    profile: ProfileName = None,
    tune: Tune = False,
    set_: Sets = None,
    instance: InstanceId = None,
) -> int:
    """Draw a ladder or runs into a PNG, SVG or PDF file."""
    from lrurun import commands, plotting

    asked = commands.Asked(
        task=what[0], ladder=ladder, profile=profile, rungs=[], seeds=None, tune=tune, sets=set_ or []
    )
    return plotting.plot(context.obj.places, what, asked, kind=kind, instance=instance, out=out)
