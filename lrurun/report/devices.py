"""The devices that an attempt at a run was carried out on, for messages and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt


def name(attempt: Attempt) -> str:
    """The type of the devices, and their number if there are several; empty if it is not recorded."""
    return str(attempt.environment.get("device") or "") + several(attempt)


def several(attempt: Attempt) -> str:
    """The number of devices as the end of a phrase, if there are several."""
    placement = attempt.environment.get("placement")
    count = placement.get("devices") if isinstance(placement, dict) else 1  # a ledger may hold anything
    return f", on {count} devices" if isinstance(count, int) and count > 1 else ""
