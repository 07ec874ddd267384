"""The settings of the RotRNN."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, Fraction, RecurrenceSettings, check_radii


class RotRNNSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="rotrnn"):
    """x_k = gamma P Theta P^T x_(k-1) + xi B u_k, real, a scaled rotation in each head (RotRNN paper, eq. 12)."""

    heads: Annotated[int, Meta(ge=1, le=65536)] = 1
    """Number of rotations, each of N / heads dimensions and with its own decay gamma."""
    r_min: Fraction = 0.9
    r_max: Fraction = 0.999
    """The initial gamma lies between the two."""
    draw: Literal["log", "ring"] = "log"
    """How the initial gamma is sampled: log(-log gamma) uniform, as in the public code, or uniform in area, as |lambda|
    of the LRU."""
    max_phase: Annotated[float, Meta(gt=0, le=2 * math.pi)] = 2 * math.pi
    """Upper end of the initial angles, in radians."""
    normalizer: Literal["trace", "naive", "gamma", "none"] = "trace"
    """xi: from gamma and tr(B^T B) at every step (eq. 11), trained like the gamma of the LRU, or 1. "naive" scales the
    state as well as the input (eq. 6), which makes the decay faster than gamma."""
    slow_rotations: bool = True
    """Whether theta and M are in the recurrent group, as gamma and B always are. In the public code they are not: they
    train at the full learning rate, with weight decay."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"r_min", "r_max", "draw", "max_phase"})

    def __post_init__(self) -> None:
        check_radii(self.r_min, self.r_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % (2 * self.heads):
            raise ValueError(
                f"heads must divide state into planes, an even part each, found heads = {self.heads}, state = {state}"
            )


DECLARATIONS = (
    Declaration(
        settings=RotRNNSettings,
        implementation="lrurun.nn.recurrences.rotrnn:RotRNN",
        variants={
            "": {},
            "heads": {"heads": 4},
            "normalised by gamma": {"heads": 4, "normalizer": "gamma", "draw": "ring"},
            "naive": {"heads": 4, "normalizer": "naive"},
            "not normalised": {"heads": 4, "normalizer": "none"},
            "rotations outside the recurrent group": {"heads": 4, "slow_rotations": False},
        },
    ),
)
