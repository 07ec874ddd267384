"""The command line: parse, call one function, print. Heavy imports stand inside the commands."""

from __future__ import annotations

from typing import Annotated, Optional

import typer
from msgspec import Struct

from lrurun import __version__, console
from lrurun.paths import Places, places

EPILOG = (
    "Exit codes: 0 all done; 1 it could not be done; 2 the words or a TOML file are wrong; 3 finished, but some runs "
    "failed; 4 not in this ledger; 5 the ledger is busy, of another version, or no ledger; 130, 143, 129 after ^C, "
    "SIGTERM or the time limit, SIGHUP, with state saved. Global options stand before or after the command."
)

app = typer.Typer(
    name="lrurun",
    help="Ablation ladders between a tanh RNN and the Linear Recurrent Unit: run, resume, compare.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Globals(Struct, frozen=True):
    """What the global options say."""

    places: Places
    words: tuple[str, ...]
    """The command line."""


def _version(value: bool) -> None:
    if value:
        console.write(f"lrurun {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    context: typer.Context,
    ledger: Annotated[
        Optional[str], typer.Option("--ledger", metavar="PATH", help="The ledger [env LRURUN_LEDGER; ./ledger.db].")
    ] = None,
    runs_dir: Annotated[
        Optional[str],
        typer.Option(
            "--runs-dir", metavar="DIR", help="Logs and checkpoints [env LRURUN_RUNS; runs/ beside the ledger]."
        ),
    ] = None,
    data_dir: Annotated[
        Optional[str],
        typer.Option("--data-dir", metavar="DIR", help="Prepared data [env LRURUN_DATA; ~/.local/share/lrurun]."),
    ] = None,
    load: Annotated[
        Optional[list[str]],
        typer.Option("--load", metavar="FILE", help="A .py file with a recurrence or task of your own."),
    ] = None,
    quiet: Annotated[int, typer.Option("-q", "--quiet", count=True, help="Less talk; twice: errors only.")] = 0,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="More talk.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    console.set_verbosity(verbose - quiet)
    context.obj = Globals(places(ledger, runs_dir, data_dir), tuple(context.obj or ()))
    if load:
        from lrurun import plugins

        plugins.give(load)


# the groups register their commands on `app`; the order is that of --help
from lrurun.cli import climb, read, inspect, curate, check, data, tools  # noqa: E402, F401, I001
