"""Why attempts end: the texts that the ledger keeps, and what they mean to a supervisor."""

from __future__ import annotations

from lrurun.ledger.store import OWNER_EXITED
from lrurun.ledger.values import Attempt

SIGTERM = "interrupted: SIGTERM"
_FAILED = "failed"


def failed(text: str) -> str:
    """The reason of an attempt that an exception ended."""
    return f"{_FAILED}: {text}"


def interrupted(text: str) -> str:
    """The reason of an attempt that was ended from outside, and can be resumed."""
    return f"interrupted: {text}"


def process_exited(attempt: Attempt) -> bool:
    """Whether the process of an attempt that has exited did not end the attempt itself."""
    return attempt.ended_at is None or attempt.reason == OWNER_EXITED


def broke(attempt: Attempt) -> bool:
    """Whether an attempt has ended by an exception, or because its process exited: retried a few times at most."""
    return attempt.ended_at is not None and (attempt.reason or "").startswith((_FAILED, OWNER_EXITED))
