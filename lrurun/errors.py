"""Errors that are shown to the user: one sentence that says what is wrong, one that says what to do next."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Iterable, Sequence
from typing import Any


class LrurunError(Exception):
    """The base of all expected errors; itself: something could not be done (missing data, folder, disk, permission)."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LrurunError):
    """Arguments or a TOML file are invalid."""

    exit_code = 2


class NotFoundError(LrurunError):
    """The run or the results asked for are not in this ledger."""

    exit_code = 4


class PreparationError(LrurunError):
    """The data of a task cannot be prepared; other tasks are not affected."""


class NoEigenvaluesError(LrurunError):
    """The kind of recurrence defines no eigenvalues."""


class FaultyProgram(LrurunError):
    """The runs of a user's program would all end with the same fault."""


class UnfinishedError(LrurunError):
    """Runs have failed too often, or cannot be continued here; all others are finished."""

    exit_code = 3


class FailedChecksError(LrurunError):
    """Checks of a study fail."""

    exit_code = 3


class LedgerError(LrurunError):
    """The ledger is busy, of another version, or not a ledger."""

    exit_code = 5


class DamagedError(LedgerError):
    """The file or the database of the ledger is corrupt."""


class LaterVersionError(LedgerError):
    """A later lrurun began the run, which this one cannot continue."""


class UnreachableError(LedgerError):
    """The server of the ledger did not answer or ended the transaction: the same again may work."""


class LedgerFileError(LedgerError):
    """The disk or the permissions of the ledger do not allow it."""

    exit_code = 1


class Stopped(Exception):
    """A signal, or the time limit, stopped what was going on; its state is saved, and the same again continues.

    It is no `LrurunError`: who goes on after an error does not go on after ^C.
    """

    def __init__(self, number: int, cause: str | None = None) -> None:
        """
        Args:
            number: the signal; SIGTERM for the time limit.
            cause: what stopped it, if that is no signal.
        """
        super().__init__(cause or ("^C" if number == signal.SIGINT else signal.Signals(number).name))
        self.number = number
        self.exit_code = 128 + number
        """130 after ^C, 143 after SIGTERM and the time limit, 129 after SIGHUP."""
        self.when = ""
        """What was left then, for example "with 2 of 8 runs remaining"; empty where that is not known."""


def raise_first(errors: Iterable[LrurunError]) -> None:
    """Raises the first of these errors, if there is one."""
    for error in errors:
        raise error


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like `word`, ignoring case, or None."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def nearest_hint(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known name, where the message lists them all."""
    close = nearest(word, known)
    return f"did you mean {close!r}?" if close else None


def hint_for(word: str, known: Iterable[str], what: str = "known names") -> str:
    """A hint that names the nearest known name, and all of them; their number alone where they would fill lines."""
    names = list(known)
    close = nearest(word, names)
    listing = f"{what}: {', '.join(names)}" if names else f"there are no {what}"
    if close and len(listing) > 200:
        listing = f"it is one of {len(names)} {what}"
    return f"did you mean {close!r}? {listing}" if close else listing


def check_type(name: str, value: object, types: Any, expected: str, hint: str) -> None:
    """Refuses an argument of a call in Python that is of none of these types.

    Raises:
        UsageError: with what was expected.
    """
    if not isinstance(value, types):
        raise UsageError(f"{name}: expected {expected}, found {type(value).__name__}", hint)


def listed(words: Sequence[str], most: int = 3) -> str:
    """A few of these words, and how many there are more, as in "a, b, c and 2 more"."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def plural(number: int, noun: str) -> str:
    """A number with its noun, for example "1 run", "2 runs" and "3 hypotheses"."""
    several = f"{noun[:-2]}es" if noun.endswith("sis") else f"{noun}s"
    return f"{number} {noun if number == 1 else several}"
