"""Muon for matrices, Adam for all else."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class Muon(OptimConfig, frozen=True, kw_only=True):
    """Momentum made nearly orthogonal, for every array with two axes (Jordan et al. 2024); Adam for the others.

    Newton-Schulz iterations make it so. Defaults of optax, and the scale of Liu et al. (2025), with which one learning
    rate, and one weight decay, are right for both.
    """

    name: Literal["muon"]
    beta: Average = 0.95
    """The share of a matrix's momentum that each step keeps."""
    nesterov: bool = True
    """Whether the gradient is added to the momentum once more before it is made orthogonal."""
    ns_steps: Annotated[int, Meta(ge=1, le=100)] = 5
    """The number of Newton-Schulz iterations, which bring singular values to about 0.7 to 1.2."""
    consistent_rms: Annotated[float, Meta(ge=0, le=100)] = 0.2
    """The root mean square of the numbers of a matrix's direction if all its singular values were 1: it is scaled by
    consistent_rms sqrt(max(rows, columns)) (Liu et al. 2025, eq. 4). 0: it is scaled by sqrt(max(1, columns / rows)),
    with inputs in rows, as in the code of Jordan et al.; its learning rates are about 0.02."""
    adam_b1: Average = 0.9
    adam_b2: Average = 0.999
    eps: Epsilon = 1e-8
    """Added to the norm of a matrix, and to Adam's root of the second moment."""


DECLARATIONS = [
    Declaration(
        name="muon",
        settings=Muon,
        implementation="lrurun.training.optimizers.muon:Muon",
        title="Muon for matrices and Adam for other parameters",
        source="Jordan et al. 2024; Liu et al. 2025",
        variants={"without Nesterov, scaled by its shape": {"nesterov": False, "consistent_rms": 0.0}},
    )
]
