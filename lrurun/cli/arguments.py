"""Global options, which may be given before or after the command, and the second spelling of `--json`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from lrurun.errors import UsageError

GLOBAL_VALUES = ("--ledger", "--runs-dir", "--data-dir", "--load")
GLOBAL_FLAGS = ("-q", "--quiet", "-v", "--verbose", "--debug")


def split_global(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The global options with their values, and the other arguments. Typer takes the former before the command only.

    Raises:
        UsageError: a global option without its value.
    """
    front: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            rest += [argument, *remaining]
        elif argument in GLOBAL_VALUES:
            value = next(remaining, "-")
            if value.startswith("-"):
                raise UsageError(f"option {argument!r} requires an argument", f"as in {argument} PATH")
            front += [argument, value]
        elif (
            argument in GLOBAL_FLAGS
            or argument.partition("=")[0] in GLOBAL_VALUES
            or re.fullmatch("-[qv]+", argument) is not None
        ):
            front.append(argument)
        else:
            rest.append(argument)
    return front, rest


def options_of(command: Any) -> list[str]:
    """All spellings of the options of a command."""
    spellings = [name for parameter in command.params for name in parameter.opts]
    return [spelling for spelling in spellings if spelling.startswith("-")]  # the others are arguments


def with_json(arguments: Sequence[str], options: Collection[str]) -> list[str]:
    """The arguments of a command with `--json` for `--format json`, if `--json` is one of its options."""
    words = list(arguments)
    if "--json" not in options:
        return words
    end = words.index("--") if "--" in words else len(words)
    for index in reversed(range(end)):
        if words[index] == "--format=json":
            words[index] = "--json"
        elif words[index : index + 2] == ["--format", "json"]:
            words[index : index + 2] = ["--json"]
    return words
