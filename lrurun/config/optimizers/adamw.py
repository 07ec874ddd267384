"""AdamW, the default, and Adam with the decay in the gradient."""

from __future__ import annotations

from typing import Literal

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class AdamW(OptimConfig, frozen=True, kw_only=True):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    name: Literal["adamw"] = "adamw"
    b1: Average = 0.9
    b2: Average = 0.999
    eps: Epsilon = 1e-8


class Adam(OptimConfig, frozen=True, kw_only=True):
    """Adam (Kingma and Ba 2015, algorithm 1) with its defaults; weight decay is a part of the gradient, as in torch."""

    name: Literal["adam"]
    b1: Average = 0.9
    b2: Average = 0.999
    eps: Epsilon = 1e-8


DECLARATIONS = [
    Declaration(
        name="adamw",
        settings=AdamW,
        implementation="lrurun.training.optimizers.adamw:AdamW",
        title="AdamW",
        source="Loshchilov and Hutter 2019",
    ),
    Declaration(
        name="adam",
        settings=Adam,
        implementation="lrurun.training.optimizers.adamw:Adam",
        title="Adam",
        source="Kingma and Ba 2015",
        is_decay_in_gradient=True,
    ),
]
