"""The settings of S4D."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.recurrences.base import LARGEST_HIPPO, Declaration, RecurrenceSettings, Step, check_steps


class S4DSettings(RecurrenceSettings, frozen=True, kw_only=True, tag="s4d"):
    """x' = A x + B u, y = C x + D u for each channel, A diagonal, with step size Delta (Gu et al. 2022, S4D)."""

    init: Literal["lin", "inv", "inv2", "quad", "legs", "real"] = "lin"
    """The initial N / 2 numbers of A, see `lrurun.nn.recurrences.s4d`."""
    discretization: Literal["zoh", "bilinear", "euler"] = "zoh"
    """The rule that makes lambda and the factor of B of A and Delta. The factor of "euler" is Delta alone, the first
    order of the factor of "zoh", whose lambda it has (Orvieto et al. 2023, section 4)."""
    dt_min: Step = 0.001
    dt_max: Step = 0.1
    """The initial Delta of each channel is log-uniform between the two."""
    n_ssm: Annotated[int, Meta(ge=0, le=65536)] = 0
    """Number of A and B, which the channels share in turn; 0: one of each for every channel."""
    train_b: bool = True
    """Whether B is trained. Initially it is ones; for "legs", the B of HiPPO."""
    shared_dt: bool = True
    """Whether A and B have the same Delta; otherwise they start equal and are trained separately (Orvieto et al.
    2023, section 4)."""
    slow_dt: bool = True
    """Whether Delta is in the recurrent group, as A and B always are."""

    @property
    def initial_only(self) -> frozenset[str]:
        # a B that is not trained is part of the functions, and "legs" has its own
        return frozenset({"dt_min", "dt_max", *(("init",) if self.train_b else ())})

    def __post_init__(self) -> None:
        check_steps(self.dt_min, self.dt_max)

    def fits(self, *, width: int, state: int, bidirectional: bool) -> None:
        if state % 2:
            raise ValueError(f"s4d needs an even state, for pairs of conjugates, found state = {state}")
        if self.init == "legs" and state > LARGEST_HIPPO:
            raise ValueError(f'init = "legs" needs a state of at most {LARGEST_HIPPO}, found state = {state}')
        if self.n_ssm and width % self.n_ssm:
            raise ValueError(f"n_ssm must divide width, found n_ssm = {self.n_ssm}, width = {width}")


DECLARATIONS = (
    Declaration(
        settings=S4DSettings,
        implementation="lrurun.nn.recurrences.s4d:S4D",
        variants={
            "lin": {},
            "lin, bilinear": {"discretization": "bilinear", "slow_dt": False},
            "legs, Delta B": {"init": "legs", "discretization": "euler"},
            "legs, Delta B, two Deltas": {"init": "legs", "discretization": "euler", "shared_dt": False},
            "inv, shared": {"init": "inv", "n_ssm": 4},
            "inv2": {"init": "inv2"},
            "quad": {"init": "quad"},
            "legs": {"init": "legs"},
            "legs, fixed B": {"init": "legs", "train_b": False},
            "real": {"init": "real"},
        },
    ),
)
