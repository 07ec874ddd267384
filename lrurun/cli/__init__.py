"""The command line: global options, and the commands in the order of `lrurun --help`."""

from __future__ import annotations

import pkgutil
from typing import Annotated, Optional

import typer
from msgspec import Struct

from lrurun import console
from lrurun.paths import Places, places
from lrurun.version import VERSION

EPILOG = """\b
Exit codes:
  0    all done
  1    it could not be done
  2    invalid arguments or TOML
  3    finished, but some runs or checks failed
  4    the run or its results are not in this ledger
  5    the ledger is busy, of another version, or not a ledger
  130  stopped by ^C, with state saved
  143  stopped by SIGTERM or the time limit, with state saved
  129  stopped by SIGHUP, with state saved

Global options may be given before or after the command.
"""

COMMANDS = {
    "ladder": "ladder:ladder",
    "resume": "resume:resume",
    "study": "study:study",
    "plan": "plan:plan",
    "status": "status:status",
    "runs": "runs:runs",
    "show": "show:show",
    "report": "report:report",
    "claims": "claims:claims",
    "ui": "ui:ui",
    "plot": "plot:plot",
    "compare": "compare:compare",
    "verify": "verify:verify",
    "query": "query:query",
    "mark": "mark:mark",
    "list": "list:list_",
    "check": "check:check",
    "new": "new:new",
    "doctor": "doctor:doctor",
    "bench": "bench:bench",
    "data": "data:app",
    "ledger": "ledger:app",
}
"""Name -> the module in `lrurun.commands` and the function, or the group of further commands."""


class Globals(Struct, frozen=True):
    """The values of the global options."""

    places: Places
    arguments: tuple[str, ...]
    """The whole command line."""


def _version(value: bool) -> None:
    if value:
        console.write(f"lrurun {VERSION}")
        raise typer.Exit


def _globals(
    context: typer.Context,
    ledger: Annotated[
        Optional[str],
        typer.Option("--ledger", metavar="PATH|URL", help="The ledger [./ledger.db; env LRURUN_LEDGER]."),
    ] = None,
    runs_dir: Annotated[
        Optional[str],
        typer.Option(
            "--runs-dir", metavar="DIR|URL", help="Logs and checkpoints [runs/ beside the ledger; env LRURUN_RUNS]."
        ),
    ] = None,
    data_dir: Annotated[
        Optional[str],
        typer.Option("--data-dir", metavar="DIR", help="Prepared data [~/.local/share/lrurun; env LRURUN_DATA]."),
    ] = None,
    load: Annotated[
        Optional[list[str]],
        typer.Option("--load", metavar="FILE", help="A .py file with your recurrence or task. Repeatable."),
    ] = None,
    quiet: Annotated[
        int, typer.Option("-q", "--quiet", count=True, show_default=False, help="Fewer messages; -qq: errors only.")
    ] = 0,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, show_default=False, help="More messages.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    console.set_verbosity(verbose - quiet)
    context.obj = Globals(places(ledger, runs_dir, data_dir), tuple(context.obj or ()))
    if load:
        from lrurun import plugins

        plugins.load_files(load)


def make_app(command: str | None = None) -> typer.Typer:
    """The application: with all commands, or with one of them, so that no other is imported."""
    app = typer.Typer(
        name="lrurun",
        help=(
            "Train a ladder of models, from a tanh RNN to the Linear Recurrent Unit (LRU), and see which changes "
            "matter on a task.\n\nBegin with: lrurun ladder sDigits"
        ),
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_globals)
    for name in COMMANDS if command is None else [command]:
        found = pkgutil.resolve_name(f"lrurun.commands.{COMMANDS[name]}")
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app
