"""What a process that trains does while another one keeps the ledger, or while the ledger's server does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable

from lrurun.errors import LedgerError
from lrurun.ledger.store import Ledger
from lrurun.runner.signals import GRACE_SECONDS, Signals
from lrurun.server import Server

BUSY_SECONDS = 5.0
"""How long the ledger may be busy before the command says so."""


def while_busy(ledger: Ledger, say: Callable[[str], None], signals: Signals) -> None:
    """From now on, waiting for the ledger ends with a signal (Stopped), and is announced once each time."""
    announced, last = False, float("-inf")

    def waiting(seconds: float) -> None:
        nonlocal announced, last
        signals.check()
        now = time.monotonic()
        # Several calls may wait for the same thing, one after the other.
        announced = announced and now - last < BUSY_SECONDS
        last = now
        if seconds >= BUSY_SECONDS and not announced:
            announced = True
            say(_announcement(ledger, seconds))

    ledger.waiting = waiting


def _announcement(ledger: Ledger, seconds: float) -> str:
    if isinstance(ledger.path, Server):
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
        return f"the ledger {ledger.path} has not answered since {since}: training goes on and keeps its rows"
    return f"the ledger {ledger.path} is busy: waiting for another process that writes to it"


def until_stopped(is_requested: Callable[[], bool]) -> Callable[[float], None]:
    """For `Ledger.waiting` of a worker: gives up in half the time that it has after a request to save and exit."""
    asked: float | None = None

    def waiting(_seconds: float) -> None:
        nonlocal asked
        if not is_requested():
            return
        asked = asked or time.monotonic()
        if time.monotonic() - asked >= GRACE_SECONDS / 2:
            raise LedgerError(
                "the server of the ledger does not answer, so that the end of this attempt is not recorded",
                "the same command continues from the last checkpoint that is",
            )

    return waiting
