"""Questions before something is removed for good."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lrurun import console
from lrurun.errors import UsageError

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
OnlySay = Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")]


def check(command: str, *, yes: bool) -> None:
    """Checks that there is a terminal to ask on, unless `yes` answers.

    Raises:
        UsageError: there is none.
    """
    if not (yes or (sys.stdin is not None and sys.stdin.isatty() and console.is_terminal())):
        raise UsageError(
            f"{command}: asks before it removes anything, and there is no terminal: nothing was removed",
            "--yes removes without asking, --dry-run only says what",
        )


def agreed(question: str, *, yes: bool) -> bool:
    """Whether the user answers with yes, which `yes` does for them."""
    if yes:
        return True
    console.say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
