"""The settings of S6, the selective state space of Mamba, and of the steps to it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import Declaration, Step, check_steps
from lrurun.config.recurrences.gated import GatedSettings


class S6Settings(GatedSettings, frozen=True, kw_only=True, tag="s6"):
    """x_n = exp(Delta A_n) x_n + Delta B_n u, y = sum C_n x_n + D u for each channel (Gu and Dao 2023, Mamba)."""

    delta: Literal["low-rank", "dense", "constant"] = "low-rank"
    """Delta = softplus(W_dt W_r u + b_dt); softplus(W_dt u + b_dt); softplus(b_dt)."""
    rank: Annotated[int, Meta(ge=0, le=65536)] = 0
    """For delta = "low-rank": the number of rows of W_r; 0: a sixteenth of the channels, rounded up."""
    b: Literal["selective", "constant"] = "selective"
    c: Literal["selective", "constant"] = "selective"
    """Whether B and C are linear in the input, the same for all channels, or (H, N) parameters: B first 1, C standard
    normal, or 1 for a single state [ours]."""
    discretization: Literal["euler", "zoh"] = "euler"
    """Delta B u, as in the public code, or (exp(Delta A) - 1) / A B u, as in the paper."""
    heads: Annotated[int, Meta(ge=0, le=65536)] = 0
    """0: A has a number for each channel and state, Delta one for each channel. More: heads of neighbouring channels,
    each with one A and one Delta, as in Mamba-2 (Dao and Gu 2024)."""
    skip: bool = True
    """Whether the output has the term D u."""
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """The initial Delta, without input, is log-uniform between the two."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"dt_min", "dt_max"})

    def __post_init__(self) -> None:
        check_steps(self.dt_min, self.dt_max)
        if self.gates == "static" and "selective" in (self.b, self.c):
            raise ValueError(
                'gates = "static" would make a selective B or C zero, which have no bias: it needs b = "constant" and '
                f'c = "constant", found b = "{self.b}", c = "{self.c}"'
            )
        if self.rank and self.delta != "low-rank":
            raise ValueError(f'rank needs delta = "low-rank", found delta = "{self.delta}", rank = {self.rank}')

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        super().fits(width=width, state=state, bidirectional=bidirectional)
        if self.heads and width % self.heads:
            raise ValueError(f"heads must divide width, found heads = {self.heads}, width = {width}")


_CONSTANT = {"b": "constant", "c": "constant"}

DECLARATIONS = (
    Declaration(
        settings=S6Settings,
        implementation="lrurun.nn.recurrences.s6:S6",
        variants={
            "": {},
            "constant": {"delta": "constant", "skip": False, **_CONSTANT},
            "selective Delta": {"rank": 2, "discretization": "zoh", **_CONSTANT},
            "selective Delta, dense": {"delta": "dense", **_CONSTANT},
            "scalar decays": {"delta": "dense", "heads": 4},
            "negative": {"negative": True},
            "shuffled gates": {"gates": "shuffled"},
            "static gates": {"gates": "static", **_CONSTANT},
        },
    ),
)
