"""Commands about the ledger file and the machine: ledger, doctor, bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from lrurun.cli import app
from lrurun.cli.options import Json

ledger = typer.Typer(
    help="The ledger file: path, check, backup, merge, export, gc, migrate.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
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


@ledger.command()
def backup(
    context: typer.Context,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="FILE", help="A new file [beside the ledger].")
    ] = None,
) -> int:
    """Copy the ledger, also while it is being written to."""
    from lrurun import housekeeping

    return housekeeping.backup(context.obj.places, out)


@ledger.command()
def merge(
    context: typer.Context,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Another ledger's file.")],
    other_runs: Annotated[
        Optional[Path], typer.Option("--other-runs", metavar="DIR", help="Its runs folder [runs beside it].")
    ] = None,
    json: Json = False,
) -> int:
    """Bring the runs of another ledger into this one, each once."""
    from lrurun import housekeeping

    return housekeeping.merge(context.obj.places, other, other_runs, json=json)


@ledger.command()
def export(
    context: typer.Context,
    format: Annotated[Literal["jsonl", "csv"], typer.Option("--format", help="How to write it.")] = "jsonl",
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="PATH", help="A new file, or for csv a new folder.")
    ] = None,
) -> int:
    """Write everything that the ledger has as JSON Lines, or as CSV files."""
    from lrurun import housekeeping

    return housekeeping.export(context.obj.places, format=format, out=out)


@ledger.command()
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Those of finished runs too.")] = False,
) -> int:
    """Remove checkpoints that nothing needs."""
    from lrurun import housekeeping

    return housekeeping.gc(context.obj.places, dry_run=dry_run, finished=finished)


@app.command()
def doctor(context: typer.Context, json: Json = False) -> int:
    """Devices, versions, data, ledger, disk."""
    from lrurun import housekeeping

    return housekeeping.doctor(context.obj.places, json=json)


@app.command()
def bench(
    what: Annotated[
        Optional[Literal["scan", "layer", "layers", "rnn", "step", "loop"]],
        typer.Argument(
            metavar="[scan|layer|layers|rnn|step|loop]",
            help="What to measure; everything without it. layers: other kinds against the LRU's.",
        ),
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
