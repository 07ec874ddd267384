"""Why attempts end: the sentences that the ledger keeps for people, and what outcomes mean to a supervisor."""

from __future__ import annotations

from lrurun.ledger.values import Attempt

SIGTERM = "interrupted: SIGTERM"


def failed(text: str) -> str:
    """The reason of an attempt that an exception ended."""
    return f"failed: {text}"


def interrupted(text: str) -> str:
    """The reason of an attempt that was ended from outside, and can be resumed."""
    return f"interrupted: {text}"


def process_exited(attempt: Attempt) -> bool:
    """Whether the process of an attempt that has exited did not end the attempt itself."""
    return attempt.ended_at is None or attempt.outcome == "exited"


def broke(attempt: Attempt) -> bool:
    """Whether an attempt has ended by an exception, or because its process exited: retried a few times at most."""
    return attempt.outcome in ("failed", "exited")
