"""The ledger: what was requested, what is running, and the results. Every method is one short transaction."""

from __future__ import annotations

from lrurun.ledger.database import TIMEOUT, TRAINING_TIMEOUT
from lrurun.ledger.queue import OWNER_EXITED, Queue, refuse_later
from lrurun.ledger.recording import Fenced
from lrurun.ledger.records import Records

__all__ = ["OWNER_EXITED", "TIMEOUT", "TRAINING_TIMEOUT", "Fenced", "Ledger", "refuse_later"]


class Ledger(Queue, Records):
    """A ledger that is open, for writing (`Ledger.open`) or for reading (`Ledger.read`). Threads may share it."""
