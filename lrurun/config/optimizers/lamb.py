"""LAMB."""

from __future__ import annotations

from typing import Literal

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class Lamb(OptimConfig, frozen=True, kw_only=True):
    """Adam whose step is scaled to the norm of each array of parameters, for large batches (You et al. 2020).

    The step with the weight decay has the norm of the array times the learning rate (algorithm 2). Defaults of that
    paper and of optax.
    """

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
