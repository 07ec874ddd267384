"""Commands that read the ledger: status, runs, show, report, plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Drawn, Json, LadderName, ProfileName, RunId, Sets, Task, Tune

Limit = Annotated[Optional[int], typer.Option("--limit", metavar="N", min=1, help="At most so many, newest first.")]


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
    limit: Limit = None,
    json: Json = False,
) -> int:
    """List runs, newest first."""
    from lrurun import reading

    return reading.runs(context.obj.places, ladder=ladder, limit=limit, json=json)


@app.command()
def show(context: typer.Context, run: RunId, json: Json = False) -> int:
    """One run: result, configuration and where each value came from, attempts, events."""
    from lrurun import reading

    return reading.show(context.obj.places, run, json=json)


@app.command()
def report(
    context: typer.Context,
    task: Task,
    ladder: LadderName = "lru",
    profile: ProfileName = None,
    tune: Tune = False,
    set_: Sets = None,
    instance: Annotated[
        Optional[str],
        typer.Option("--instance", metavar="ID", help="A ladder instance by its id (lrurun status --json)."),
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="The training speeds instead, beside the published ones.")
    ] = False,
    format: Annotated[
        Literal["table", "md", "csv", "json"], typer.Option("--format", help="How to write it.")
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

    asked = commands.Asked(task=task, ladder=ladder, profile=profile, rungs=[], seeds=None, tune=tune, sets=set_ or [])
    return reading.report(
        context.obj.places,
        asked,
        instance=instance,
        format="json" if json else format,
        out=out,
        limit=limit,
        speeds=speed,
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
    instance: Annotated[
        Optional[str],
        typer.Option("--instance", metavar="ID", help="A ladder instance by its id (lrurun status --json)."),
    ] = None,
) -> int:
    """Draw a ladder or runs into a PNG, SVG or PDF file."""
    from lrurun import commands, plotting

    asked = commands.Asked(
        task=what[0], ladder=ladder, profile=profile, rungs=[], seeds=None, tune=tune, sets=set_ or []
    )
    return plotting.plot(context.obj.places, what, asked, kind=kind, instance=instance, out=out)
