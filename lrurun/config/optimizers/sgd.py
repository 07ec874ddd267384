"""Stochastic gradient descent, with or without momentum."""

from __future__ import annotations

from typing import Literal

from lrurun.config.optimizers.base import Average, Declaration, OptimConfig


class SGD(OptimConfig, frozen=True, kw_only=True):
    """Stochastic gradient descent, with or without momentum (Sutskever et al. 2013); weight decay is in the gradient.

    The momentum has the form of torch and optax, v = momentum v + g, so that the rate of a step does not fall with it.
    There is none by default, as there.
    """

    name: Literal["sgd"]
    momentum: Average = 0.0
    """The share of v that each step keeps; 0: no v."""
    nesterov: bool = False
    """Whether the parameters move by momentum v + g, in place of v."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs momentum, found momentum = 0, nesterov = true")


DECLARATIONS = [
    Declaration(
        name="sgd",
        settings=SGD,
        implementation="lrurun.training.optimizers.sgd:SGD",
        title="stochastic gradient descent",
        source="Robbins and Monro 1951; Sutskever et al. 2013",
        is_decay_in_gradient=True,
        variants={"momentum": {"momentum": 0.9}, "Nesterov": {"momentum": 0.9, "nesterov": True}},
    )
]
