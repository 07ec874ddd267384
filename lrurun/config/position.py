"""A run's position in its ladder: rung, stage, and point of the grid or seed in one integer.

The ledger stores the position in one column, by which workers claim runs in ladder order. Ledgers of 0.1.0 have such
numbers, and old and new runs of a ladder must stay in order, so the packing remains; nothing else knows it.
"""

from __future__ import annotations

from typing import Literal

RUNG = 10_000
"""Positions of a rung."""
_FINAL = 5_000


def pack(rung: int, stage: Literal["tune", "train"], number: int) -> int:
    """The position of a run of the rung at this index: `number` is the point of the grid, or the seed."""
    return rung * RUNG + (number if stage == "tune" else _FINAL + number)


def point(position: int) -> int:
    """The point of the grid, from 0, of a tuning run."""
    return position % RUNG
