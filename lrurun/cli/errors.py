"""Typer's usage errors in lrurun's format: what is wrong in one line, what to do next in another.

Typer contains its own copy of Click and exports few of its exceptions. The others are recognised here by their
attributes. Messages of Typer are printed, but nothing is decided by their text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lrurun.cli.arguments import GLOBAL_FLAGS, GLOBAL_VALUES
from lrurun.errors import UsageError, hint_for, nearest

_ELSEWHERE = {
    **dict.fromkeys(("tag", "label", "annotate"), "mark RUN --tag TAG"),
    **dict.fromkeys(("note", "comment"), "mark RUN --note TEXT"),
    **dict.fromkeys(("exclude", "drop"), "mark RUN --exclude WHY"),
    "include": "mark RUN --include",
    **dict.fromkeys(("logs", "log", "tail"), "show RUN --log"),
    **dict.fromkeys(("train", "run", "fit", "ablate"), "ladder TASK"),
    **dict.fromkeys(("continue", "restart"), "resume"),
    **dict.fromkeys(("watch", "progress", "ps"), "status --watch"),
    **dict.fromkeys(("ls", "tasks", "recipes", "ladders", "recurrences", "studies"), "list"),
    **dict.fromkeys(("diff",), "compare RUN RUN"),
    **dict.fromkeys(("table", "results", "summary"), "report TASK"),
    **dict.fromkeys(("figure", "draw"), "plot TASK --out FILE"),
    **dict.fromkeys(("sql", "select"), "query SQL"),
    **dict.fromkeys(("serve", "web", "dashboard", "browser"), "ui"),
    **dict.fromkeys(("init", "create"), "new"),
    **dict.fromkeys(("download", "fetch"), "data prepare TASK"),
    **dict.fromkeys(("sweep", "grid"), "ladder TASK --sweep K=V,V"),
    **dict.fromkeys(("tune", "search"), "ladder TASK --tune"),
    **dict.fromkeys(("clean", "delete", "remove", "rm"), "ledger gc"),
    "help": "--help",
    "version": "--version",
}
"""What people type for a command -> the command that does it."""


def _command_hint(word: str, commands: Mapping[str, Any]) -> str:
    """The command that someone meant who typed a word that is none, also one that is in a group."""
    if word in _ELSEWHERE:
        return f"it is: lrurun {_ELSEWHERE[word]}"
    inner = [f"{name} {word}" for name, group in everything().items() if word in getattr(group, "commands", ())]
    if inner:
        return f"it is: {' or '.join(f'lrurun {name}' for name in inner)}"
    return hint_for(word, commands, "commands")


def everything() -> Mapping[str, Any]:
    """All commands and groups of them, by name."""
    import typer.main

    from lrurun.cli import make_app

    return typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]


def is_usage_error(error: Exception) -> bool:
    """Whether Typer raised this because of the arguments."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def usage_error(error: Exception, arguments: Sequence[str]) -> UsageError:
    """The error to show.

    Args:
        error: Typer's, as `is_usage_error` recognises it.
        arguments: those of the command line, without the global options.
    """
    context = getattr(error, "ctx", None)
    named = [argument for argument in arguments if not argument.startswith("-")]
    command = context.command_path if context else " ".join(["lrurun", *named[:1]])
    help_ = f"see {command} --help"
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        known = [name for parameter in context.command.params for name in parameter.opts] if context else []
        close = nearest(option, [*known, *GLOBAL_VALUES, *GLOBAL_FLAGS])
        return UsageError(f"no such option: {option}", f"did you mean {close}? {help_}" if close else help_)
    commands = getattr(context.command, "commands", None) if context else None
    if commands and option is None:
        depth = len(command.split()) - 1
        if len(named) <= depth:
            return UsageError(f"{command}: no command given", f"{command} --help; commands: {', '.join(commands)}")
        if named[depth] not in commands:
            return UsageError(f"no such command {named[depth]!r}", _command_hint(named[depth], commands))
    message = error.format_message().strip().rstrip(".")  # type: ignore[attr-defined]
    return UsageError(message[:1].lower() + message[1:], help_)
