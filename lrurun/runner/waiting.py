"""What a command that trains does while another process keeps the ledger."""

from __future__ import annotations

from collections.abc import Callable

from lrurun.ledger.store import Ledger
from lrurun.runner.signals import Signals

BUSY_SECONDS = 5.0
"""How long the ledger may be busy before the command says so."""


def while_busy(ledger: Ledger, say: Callable[[str], None], signals: Signals) -> None:
    """From now on, waiting for the ledger ends with a signal (Stopped), and is announced once."""
    announced = False

    def waiting(seconds: float) -> None:
        nonlocal announced
        signals.check()
        if seconds >= BUSY_SECONDS and not announced:
            announced = True
            say(f"the ledger {ledger.path} is busy: waiting for another process that writes to it")

    ledger.waiting = waiting
