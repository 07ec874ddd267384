"""Prodigy."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class Prodigy(OptimConfig, frozen=True, kw_only=True):
    """Adam with a learning rate that it estimates (Mishchenko and Defazio 2023, algorithm 4).

    The estimate is from the distance to the initial parameters; the schedule multiplies it, so `lr` is 1. Defaults of
    optax.
    """

    name: Literal["prodigy"]
    b1: Average = 0.9
    b2: Average = 0.999
    beta3: Average | None = None
    """The share of the sums for the estimate that each step keeps; without a value, the root of b2."""
    eps: Epsilon = 1e-8
    estim_lr0: Annotated[float, Meta(gt=0, le=1)] = 1e-6
    """The first estimate, which must be too small: it never falls."""
    estim_lr_coef: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """A factor of the estimates."""
    safeguard_warmup: bool = False
    """Whether the learning rates of the schedule are left out of the estimate's denominator, for long warm-ups."""

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [f"{name} = {value}" for name in ("lr", "recurrent_factor") if (value := getattr(self, name)) != 1]
        if wrong:
            raise ValueError(
                "prodigy estimates one learning rate for all parameters, which lr multiplies: it needs lr = 1 and"
                f" recurrent_factor = 1, found {', '.join(wrong)}"
            )


DECLARATIONS = [
    Declaration(
        name="prodigy",
        settings=Prodigy,
        implementation="lrurun.training.optimizers.prodigy:Prodigy",
        title="Prodigy",
        source="Mishchenko and Defazio 2023",
        estimates_rate=True,
    )
]
