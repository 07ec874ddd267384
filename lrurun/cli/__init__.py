"""The command line: global options, and the commands in the order of `lrurun --help`."""

from __future__ import annotations

from typing import Annotated, Optional

import typer
from msgspec import Struct

from lrurun import __version__, console
from lrurun.commands import data, ledger
from lrurun.commands.annotate import exclude, note, tag
from lrurun.commands.bench import bench
from lrurun.commands.check import check
from lrurun.commands.claims import claims
from lrurun.commands.compare import compare
from lrurun.commands.data_import import import_
from lrurun.commands.doctor import doctor
from lrurun.commands.ladder import ladder
from lrurun.commands.list import list_
from lrurun.commands.logs import logs
from lrurun.commands.new import new
from lrurun.commands.plan import plan
from lrurun.commands.plot import plot
from lrurun.commands.query import query
from lrurun.commands.report import report
from lrurun.commands.resume import resume
from lrurun.commands.runs import runs
from lrurun.commands.show import show
from lrurun.commands.status import status
from lrurun.commands.study import study
from lrurun.commands.ui import ui
from lrurun.commands.verify import verify
from lrurun.paths import Places, places

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

app = typer.Typer(
    name="lrurun",
    help=(
        "Train a ladder of models, from a tanh RNN to the Linear Recurrent Unit (LRU), and see which changes matter on "
        "a task.\n\nBegin with: lrurun ladder sDigits"
    ),
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Globals(Struct, frozen=True):
    """The values of the global options."""

    places: Places
    arguments: tuple[str, ...]
    """The whole command line."""


def _version(value: bool) -> None:
    if value:
        console.write(f"lrurun {__version__}")
        raise typer.Exit


@app.callback()
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

        plugins.load_named(load)


app.command()(ladder)
app.command()(resume)
app.command()(study)
app.command()(plan)
app.command()(status)
app.command()(runs)
app.command()(show)
app.command()(report)
app.command()(claims)
app.command()(ui)
app.command()(plot)
app.command()(compare)
app.command()(verify)
app.command()(query)
app.command()(logs)
app.command()(tag)
app.command()(note)
app.command()(exclude)
app.command("list")(list_)
app.command()(check)
app.command()(new)
app.command()(doctor)
app.command()(bench)
data.app.command("import")(import_)
app.add_typer(data.app, name="data")
app.add_typer(ledger.app, name="ledger")
