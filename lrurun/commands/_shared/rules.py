"""Declarations above a command: examples, and which of its options exclude or need each other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lrurun.errors import UsageError

if TYPE_CHECKING:
    import typer

Command = TypeVar("Command", bound=Callable[..., Any])

INSTANCE = ("ladder", "profile", "tune", "extend", "set_")
"""The parameters that choose an instance of a ladder on a task, unless `--instance` names it."""
DECIDE_HINT = "the design of --decide fixes seeds and rungs; --max-seeds 12 bounds the seeds"


def examples(*lines: str) -> Callable[[Command], Command]:
    """Command lines that the help of the command ends with."""

    def decorate(command: Command) -> Command:
        command.examples = lines  # type: ignore[attr-defined]
        return command

    return decorate


def exclusive(*names: str, hint: str = "leave one of them out") -> Callable[[Command], Command]:
    """Declares that at most one of these parameters of the command may be given."""

    def check(context: typer.Context) -> None:
        used = [name for name in names if is_given(context, name)]
        if len(used) > 1:
            raise UsageError(f"{spelling(context, used[0])} and {spelling(context, used[1])} exclude each other", hint)

    return _checked(check)


def excludes(name: str, *others: str, hint: str = "leave one of them out") -> Callable[[Command], Command]:
    """Declares that none of the other parameters of the command may be given beside `name`."""

    def check(context: typer.Context) -> None:
        used = [spelling(context, other) for other in others if is_given(context, other)]
        if used and is_given(context, name):
            raise UsageError(f"{spelling(context, name)} and {used[0]} exclude each other", hint)

    return _checked(check)


def needs(name: str, *others: str) -> Callable[[Command], Command]:
    """A parameter of the command may be given with one of the others only."""

    def check(context: typer.Context) -> None:
        if is_given(context, name) and not any(is_given(context, other) for other in others):
            wanted = " or ".join(spelling(context, other) for other in others)
            raise UsageError(f"{spelling(context, name)}: belongs to {wanted}", f"add {wanted}, or leave it out")

    return _checked(check)


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line has this parameter; else its value is the default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def spelling(context: typer.Context, name: str) -> str:
    """A parameter as one types it: the longest form of an option, or the name that the help gives an argument."""
    [parameter] = [parameter for parameter in context.command.params if parameter.name == name]
    return max(parameter.opts, key=len) if parameter.opts[0].startswith("-") else str(parameter.metavar).strip("[]")


def _checked(check: Callable[[typer.Context], None]) -> Callable[[Command], Command]:
    """A decorator that makes a check before the command begins. The command's first parameter is its context."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def checked(context: typer.Context, **values: Any) -> Any:
            check(context)
            return command(context, **values)

        return checked  # type: ignore[return-value]

    return decorate
