"""Commands about the ledger file and the machine: ledger, doctor."""

from __future__ import annotations

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
