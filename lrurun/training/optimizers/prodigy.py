"""Prodigy (Mishchenko and Defazio 2023)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from lrurun.training.optimizers.base import Groups, Optimizer, Tree


class Prodigy(Optimizer):
    """Adam with an estimated learning rate and decoupled weight decay (Mishchenko and Defazio 2023, algorithm 4)."""

    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        return self._at(1.0)

    def _at(self, rate: jax.Array | float) -> optax.GradientTransformation:
        settings = self.settings
        return optax.contrib.prodigy(
            learning_rate=rate,
            betas=(settings.b1, settings.b2),
            beta3=settings.beta3,
            eps=settings.eps,
            estim_lr0=settings.estim_lr0,
            estim_lr_coef=settings.estim_lr_coef,
            safeguard_warmup=settings.safeguard_warmup,
        )

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: jax.Array, groups: Groups) -> tuple[Tree, Tree]:
        changes, new = self._at(rate).update(gradient, state, params)
        # as in Adam, but the correction of both moments is a part of the rate, and so of the decay
        correction = (1 - self.settings.b2**new.count) ** 0.5 / (1 - self.settings.b1**new.count)
        decay = groups.decay(jax.tree.map(jnp.zeros_like, params), params)
        decayed = groups.scale(decay, -state.estim_lr * rate * correction)
        # before the first gradient that is not zero, or the first rate, the estimate would be 0 / 0: nothing moves
        begun = optax.tree.sum(jax.tree.map(jnp.abs, new.grad_sum)) != 0
        changes = jax.tree.map(lambda change, decay: jnp.where(begun, change + decay, 0.0), changes, decayed)
        return changes, new._replace(estim_lr=jnp.where(begun, new.estim_lr, state.estim_lr))
