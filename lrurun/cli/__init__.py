"""The command line: global options, and the commands in the order of `lrurun --help`."""

from __future__ import annotations

import functools
import pkgutil
import shutil
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, Optional

import typer
import typer.core
import typer.main
from msgspec import Struct

from lrurun import console
from lrurun.cli.arguments import options_of, with_json
from lrurun.cli.values import convert_without_typer
from lrurun.paths import Places, note_place_options, places
from lrurun.version import VERSION

EXIT_CODES = """\b
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
GROUPS = {
    "Run": {
        "ladder": "ladder:ladder",
        "resume": "resume:resume",
        "plan": "plan:plan",
        "study": "lrurun.commands.study:study",
        "verify": "verify:verify",
        "import": "import_runs:import_",
    },
    "Look": {
        "status": "status:status",
        "runs": "runs:runs",
        "show": "show:show",
        "report": "report:report",
        "claims": "claims:claims",
        "plot": "plot:plot",
        "compare": "compare:compare",
        "query": "query:query",
        "ui": "ui:ui",
    },
    "Manage": {
        "mark": "mark:mark",
        "data": "data:app",
        "ledger": "ledger:app",
        "doctor": "doctor:doctor",
    },
    "Extend": {
        "list": "list:list_",
        "new": "new:new",
        "check": "check:check",
        "bench": "bench:bench",
    },
}
"""Group in `lrurun --help` -> name -> its module (in `lrurun.commands` unless whole) and function or group."""
COMMANDS = {name: where for group in GROUPS.values() for name, where in group.items()}


class Overview(typer.core.TyperGroup):
    """The command `lrurun`, whose help is one screen; with -v it also explains global options and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_without_typer(self, ctx)
        return super().parse_args(ctx, args)

    def format_help(self, context: Any, formatter: Any) -> None:
        if {"-v", "--verbose"}.intersection(context.obj or ()):
            super().format_help(context, formatter)
            return
        width = min(max(shutil.get_terminal_size().columns, 40), 100)

        def write(text: str, indent: str = "") -> None:
            lines = textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
            formatter.write("".join(f"{line}\n" for line in lines))

        write("Usage: lrurun COMMAND ...   Examples and options of each: lrurun COMMAND --help")
        write(
            "Trains a ladder of models, from a tanh RNN to the Linear Recurrent Unit (LRU), to see which changes "
            "matter on a task. Begin with: lrurun ladder npDigits"
        )
        formatter.write("\n")
        for group, names in GROUPS.items():
            for number, name in enumerate(names):
                about = self.commands[name].get_short_help_str(limit=1000)
                write(f"{'' if number else group:8}{name:9}{about}", " " * 17)
        formatter.write("\n")
        write(
            "With any command: --ledger PATH|URL, --runs-dir DIR|URL, --data-dir DIR, --load FILE, -q, -v, --debug. "
            "Also: --version, --install-completion. All of this and the exit codes: lrurun --help -v"
        )


class Command(typer.core.TyperCommand):
    """A command, which takes `--format json` for `--json` where it has this option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        convert_without_typer(self, ctx)
        return super().parse_args(ctx, with_json(args, options_of(self)))


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
            "--runs-dir",
            metavar="DIR|URL",
            help="Logs and checkpoints [runs/ beside ledger.db, b-runs/ beside b.db; env LRURUN_RUNS].",
        ),
    ] = None,
    data_dir: Annotated[
        Optional[str],
        typer.Option("--data-dir", metavar="DIR", help="Prepared data [~/.local/share/lrurun; env LRURUN_DATA]."),
    ] = None,
    load: Annotated[
        Optional[list[str]],
        typer.Option("--load", metavar="FILE", help="A .py file with your recurrence, optimiser or task. Repeatable."),
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
    note_place_options(None if ledger is None else console.redact(ledger), runs_dir, data_dir)
    context.obj = Globals(places(ledger, runs_dir, data_dir), tuple(context.obj or ()))
    if load:
        from lrurun import plugins

        plugins.load_files(load)


@functools.cache
def make_command(only: str | None = None) -> Any:
    """The command `lrurun`: with all its commands, or with one of them, so that no other is imported."""
    app = typer.Typer(
        name="lrurun",
        help=(
            "Train a ladder of models, from a tanh RNN to the Linear Recurrent Unit (LRU), and see which changes "
            "matter on a task.\n\nBegin with: lrurun ladder npDigits"
        ),
        epilog=EXIT_CODES,
        cls=Overview,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_globals)
    for name in COMMANDS if only is None else [only]:
        where = COMMANDS[name]
        target = pkgutil.resolve_name(where if where.startswith("lrurun.") else f"lrurun.commands.{where}")
        if isinstance(target, typer.Typer):
            for inner in target.registered_commands:
                inner.epilog, inner.cls = _examples(inner.callback), Command
            app.add_typer(target, name=name)
        else:
            app.command(name, cls=Command, epilog=_examples(target))(target)
    return typer.main.get_command(app)


def _examples(command: Callable[..., Any] | None) -> str:
    """The examples at the end of the help of a command; `\\b` keeps their lines apart."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in getattr(command, "examples", ()))
