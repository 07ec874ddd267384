"""LAMB (You et al. 2020)."""

from __future__ import annotations

import jax
import optax

from lrurun.training.optimizers.base import Groups, Optimizer, Tree


class Lamb(Optimizer):
    """Adam and weight decay, scaled to the norm of each array of parameters (You et al. 2020, algorithm 2)."""

    def transformation(self) -> optax.GradientTransformation:
        settings = self.settings
        return optax.scale_by_adam(b1=settings.b1, b2=settings.b2, eps=settings.eps)

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: jax.Array, groups: Groups) -> tuple[Tree, Tree]:
        direction, state = self.transformation().update(gradient, state, params)
        # the trust ratio is that of the whole step: the decay comes before it
        ratio = optax.scale_by_trust_ratio()
        direction, _ = ratio.update(groups.decay(direction, params), ratio.init(params), params)
        return groups.scale(direction, -rate), state
