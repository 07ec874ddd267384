"""The settings of S5."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import LARGEST_HIPPO, Declaration, RecurrenceSettings, Step, check_steps


class S5Settings(RecurrenceSettings, frozen=True, kw_only=True, tag="s5"):
    """x' = Lambda x + B u, y = C x + D u with step size Delta, initialised with HiPPO-LegS (Smith et al. 2023)."""

    blocks: Annotated[int, Meta(ge=1, le=65536)] = 1
    """The initial Lambda are the eigenvalues of this number of HiPPO matrices of size N / blocks."""
    conj_sym: bool = True
    """Whether one number of each pair of conjugates is kept, N / 2 in all, and y = 2 Re(C x) + D u."""
    discretization: Literal["zoh", "bilinear"] = "zoh"
    c_init: Literal["truncated", "lecun", "complex"] = "truncated"
    """How the published code samples C: entries of variance 1 / N in the coordinates of the real system; the same with
    variance 1 / (N H), the effect of its LeCun normal; or N(0, 1/2) for each part in the coordinates of
    the eigenvectors."""
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """The initial Delta of each state is log-uniform between the two."""
    clip_eigs: bool = False
    """Whether Re(Lambda) is clipped to at most -1e-4."""
    slow_b: bool = True
    slow_dt: bool = True
    """Whether B and Delta are in the recurrent group, as Lambda always is."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"blocks", "c_init", "dt_min", "dt_max"})

    def __post_init__(self) -> None:
        check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        values = f"found state = {state}, blocks = {self.blocks}"
        if state % self.blocks:
            raise ValueError(f"blocks must divide state, {values}")
        size = state // self.blocks
        if self.conj_sym and size % 2:
            raise ValueError(f"conj_sym = true needs blocks of an even size, state / blocks, {values}")
        if size > LARGEST_HIPPO:
            raise ValueError(f"a block, state / blocks, must not be larger than {LARGEST_HIPPO}, {values}")


DECLARATIONS = (
    Declaration(
        settings=S5Settings,
        implementation="lrurun.nn.recurrences.s5:S5",
        variants={
            "": {},
            "blocks, bilinear": {"blocks": 4, "c_init": "lecun", "discretization": "bilinear"},
            "complex C, clipped": {"blocks": 2, "c_init": "complex", "clip_eigs": True},
            "without conjugates": {"conj_sym": False, "slow_b": False, "slow_dt": False},
        },
    ),
)
