"""The settings of the recurrence with a block-diagonal matrix."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, Fraction, RecurrenceSettings, check_radii


class BlockDiagonalSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="block-diagonal"):
    """x_k = A x_(k-1) + B u_k with a real A of N / 2 blocks of size 2 (Zucchet and Orvieto 2024, section 4.2)."""

    tied: bool = False
    """Whether each block is a scaled rotation, [[a, -b], [b, a]]: one complex number."""
    doubled: bool = False
    """Whether there are N blocks, as many as the complex diagonal has numbers, instead of N / 2."""
    r_min: Fraction = 0.0
    """nu of eq. 133: the lower end of the initial |lambda|."""
    r_max: Fraction = 1.0
    """The upper end of the initial |lambda| of tied blocks."""
    max_phase: Annotated[float, Meta(gt=0, le=math.pi)] = math.pi
    """Upper end of the initial phases, in radians; the other eigenvalue of a block has the opposite phase."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"r_min", "r_max", "max_phase"})

    def __post_init__(self) -> None:
        check_radii(self.r_min, self.r_max)
        if self.r_max != 1.0 and not self.tied:
            raise ValueError(f"r_max needs tied = true, found r_max = {self.r_max}, tied = false")

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % 2 and not self.doubled:
            raise ValueError(f"block-diagonal needs an even state, for blocks of size 2, found state = {state}")


DECLARATIONS = (
    Declaration(
        settings=BlockDiagonalSettings,
        implementation="lrurun.nn.recurrences.block_diagonal:BlockDiagonal",
        variants={
            "": {},
            "long memory, small phase": {"r_min": 0.99, "max_phase": 0.3},
            "doubled": {"doubled": True},
            "tied": {"tied": True},
            "tied, on a ring": {"tied": True, "r_min": 0.9, "r_max": 0.999, "max_phase": 1.0},
        },
    ),
)
