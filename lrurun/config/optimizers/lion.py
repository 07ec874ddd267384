"""Lion."""

from __future__ import annotations

from typing import Literal

from lrurun.config.optimizers.base import Average, Declaration, OptimConfig


class Lion(OptimConfig, frozen=True, kw_only=True):
    """The sign of a momentum (Chen et al. 2023, algorithm 2), with the defaults of that paper.

    It advises a learning rate 3 to 10 times smaller than AdamW's, and a weight decay as much larger (section 5).
    """

    name: Literal["lion"]
    b1: Average = 0.9
    """The share of the momentum in the direction whose sign is taken; the rest is the gradient."""
    b2: Average = 0.99
    """The share of the momentum that each step keeps."""


DECLARATIONS = [
    Declaration(
        name="lion",
        settings=Lion,
        implementation="lrurun.training.optimizers.lion:Lion",
        title="Lion",
        source="Chen et al. 2023",
    )
]
