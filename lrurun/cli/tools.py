"""Commands about the ledger file and the machine: ledger, doctor, bench."""

from __future__ import annotations

from typing import Annotated, Literal, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Json

ledger = typer.Typer(help="The ledger file: path, check, migrate.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(ledger, name="ledger")


@ledger.command()
def path(context: typer.Context) -> int:
    """Print where the ledger is."""
    from lrurun import housekeeping

    return housekeeping.path(context.obj.places)


@ledger.command("check")
def check_(context: typer.Context, json: Json = False) -> int:
    """Check the ledger's integrity, and that its checkpoints are on disk as recorded."""
    from lrurun import housekeeping

    return housekeeping.check(context.obj.places, json=json)


@ledger.command()
def migrate(context: typer.Context) -> int:
    """Create the ledger, or bring it up to date."""
    from lrurun import housekeeping

    return housekeeping.migrate(context.obj.places)


@app.command()
def doctor(context: typer.Context, json: Json = False) -> int:
    """Devices, versions, data, ledger, disk."""
    from lrurun import housekeeping

    return housekeeping.doctor(context.obj.places, json=json)


@app.command()
def bench(
    what: Annotated[
        Optional[Literal["scan", "layer", "rnn", "step", "loop"]],
        typer.Argument(metavar="[scan|layer|rnn|step|loop]", help="What to measure; everything without it."),
    ] = None,
    shape: Annotated[
        Optional[list[str]],
        typer.Option(metavar="NAME", help="digits, scifar, listops, long; or the paper's, by the name of a task."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Turns of both forms.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.01, max=600, metavar="S", help="Of a turn of one form.")] = 2.0,
    json: Json = False,
) -> int:
    """Measure speed, as ratios against the published forms on this machine."""
    from lrurun import bench

    return bench.run([what] if what else [], shape or [], rounds=rounds, seconds=seconds, json=json)
