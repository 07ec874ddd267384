"""Typer's usage errors in lrurun's format: what is wrong in one line, what to do next in another.

Typer contains its own copy of Click and exports few of its exceptions. The others are recognised here by their
attributes. Messages of Typer are printed, but nothing is decided by their text.
"""

from __future__ import annotations

from collections.abc import Sequence

from lrurun.cli.arguments import GLOBAL_FLAGS, GLOBAL_VALUES
from lrurun.errors import UsageError, hint_for, nearest


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
            return UsageError(f"no such command {named[depth]!r}", hint_for(named[depth], commands, "commands"))
    message = error.format_message().strip().rstrip(".")  # type: ignore[attr-defined]
    return UsageError(message[:1].lower() + message[1:], help_)
