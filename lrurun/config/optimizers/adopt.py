"""ADOPT."""

from __future__ import annotations

from typing import Literal

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class Adopt(OptimConfig, frozen=True, kw_only=True):
    """Adam whose second moment does not see the gradient that it divides (Taniguchi et al. 2024, algorithm 2).

    With its clipping by the fourth root of the step, and its defaults, which are optax's. The first step only begins
    the second moment.
    """

    name: Literal["adopt"]
    b1: Average = 0.9
    b2: Average = 0.9999
    eps: Epsilon = 1e-6
    """The smallest root of the second moment that divides; Adam adds eps."""


DECLARATIONS = [
    Declaration(
        name="adopt",
        settings=Adopt,
        implementation="lrurun.training.optimizers.adopt:Adopt",
        title="ADOPT",
        source="Taniguchi et al. 2024",
    )
]
