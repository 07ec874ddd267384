"""Schedule-free AdamW (Defazio et al. 2024)."""

from __future__ import annotations

import jax
import optax

from lrurun.training.optimizers.base import Groups, Optimizer, Tree


class ScheduleFreeAdamW(Optimizer):
    """AdamW without momentum, around which `optax.contrib.schedule_free` averages (Defazio et al. 2024, algorithm 1).

    The parameters that train are y, at which gradients are taken and which decay; x, the average, is evaluated.
    """

    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        return optax.scale_by_rms(
            decay=self.settings.b2, eps=self.settings.eps, eps_in_sqrt=False, bias_correction=True
        )

    def init(self, params: Tree) -> Tree:
        return self._around(self.transformation(), 0.0).init(params)

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: jax.Array, groups: Groups) -> tuple[Tree, Tree]:
        scaled = self.transformation()

        def step(gradient: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
            direction, state = scaled.update(gradient, state, params)
            return groups.scale(groups.decay(direction, params), -rate), state

        return self._around(optax.GradientTransformation(scaled.init, step), rate).update(gradient, state, params)

    def _around(
        self, base: optax.GradientTransformation, rate: jax.Array | float
    ) -> optax.GradientTransformationExtraArgs:
        return optax.contrib.schedule_free(
            base, learning_rate=rate, b1=self.settings.b1, weight_lr_power=self.settings.weight_lr_power
        )

    def evaluated(self, params: Tree, state: Tree) -> Tree:
        return optax.contrib.schedule_free_eval_params(state, params)
