"""The settings of S4."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from lrurun.config.recurrences.base import LARGEST_HIPPO, Declaration, RecurrenceSettings, Step, check_steps


class S4Settings(RecurrenceSettings, frozen=True, kw_only=True, tag="s4"):
    """x' = (Lambda - P P*) x + B u, y = C x + D u for each channel, with step size Delta (Gu, Goel and Ré 2022, S4)."""

    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """The initial Delta of each channel is log-uniform between the two."""
    n_ssm: Annotated[int, Meta(ge=0, le=65536)] = 0
    """Number of Lambda, P and B, which the channels share in turn; 0: one of each for every channel."""
    slow_dt: bool = True
    """Whether Delta is in the recurrent group, as Lambda, P and B always are."""
    clip_b: bool = False
    """Whether the initial B is clipped as in the published code: its imaginary part to at most 2, in eigenvectors whose
    first entry is real."""

    @property
    def initial_only(self) -> frozenset[str]:
        return frozenset({"dt_min", "dt_max", "clip_b"})

    def __post_init__(self) -> None:
        check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % 2:
            raise ValueError(f"s4 needs an even state, for pairs of conjugates, found state = {state}")
        if state > LARGEST_HIPPO:
            raise ValueError(f"s4 needs a state of at most {LARGEST_HIPPO}, found state = {state}")
        if self.n_ssm and width % self.n_ssm:
            raise ValueError(f"n_ssm must divide width, found n_ssm = {self.n_ssm}, width = {width}")


DECLARATIONS = (
    Declaration(
        settings=S4Settings,
        implementation="lrurun.nn.recurrences.s4:S4",
        variants={"": {}, "shared": {"n_ssm": 4, "slow_dt": False}, "clipped B": {"clip_b": True}},
    ),
)
