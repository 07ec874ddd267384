"""LAMB."""

from __future__ import annotations

from typing import Literal

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class Lamb(OptimConfig, frozen=True, kw_only=True):
    """Adam whose step, with the weight decay, has in each array of parameters the norm of that array times the learning
    rate (You et al. 2020, algorithm 2), for large batches. Defaults of that paper and of optax."""

    name: Literal["lamb"]
    b1: Average = 0.9
    b2: Average = 0.999
    eps: Epsilon = 1e-6


DECLARATIONS = [
    Declaration(
        name="lamb",
        settings=Lamb,
        implementation="lrurun.training.optimizers.lamb:Lamb",
        title="LAMB",
        source="You et al. 2020",
    )
]
