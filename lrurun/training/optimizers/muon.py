"""Muon (Jordan et al. 2024) for matrices, Adam for all else."""

from __future__ import annotations

import math

import jax
import optax
from optax.contrib import MuonDimensionNumbers

from lrurun.training.optimizers.base import Optimizer, Tree


class Muon(Optimizer):
    """Muon for every array with two axes, Adam for the others, with decoupled weight decay for both.

    As `optax.contrib.muon`, except that `nesterov` concerns the matrices alone: Adam stays that of AdamW.
    """

    def transformation(self) -> optax.GradientTransformation:
        settings = self.settings
        orthogonal = optax.contrib.scale_by_muon(
            beta=settings.beta,
            eps=settings.eps,
            ns_steps=settings.ns_steps,
            nesterov=settings.nesterov,
            weight_dimension_numbers=lambda tree: jax.tree.map(lambda _: MuonDimensionNumbers(), tree),
        )
        scaled = optax.stateless_with_tree_map(lambda update, _: self._scale(*update.shape) * update)
        adam = optax.scale_by_adam(b1=settings.adam_b1, b2=settings.adam_b2, eps=settings.eps)
        return optax.partition({"muon": optax.chain(orthogonal, scaled), "adam": adam}, _labels)

    def _scale(self, rows: int, columns: int) -> float:
        if self.settings.consistent_rms:
            return float(self.settings.consistent_rms) * math.sqrt(max(rows, columns))
        return math.sqrt(max(1, columns / rows))


def _labels(params: Tree) -> Tree:
    return jax.tree.map(lambda array: "muon" if array.ndim == 2 else "adam", params)
