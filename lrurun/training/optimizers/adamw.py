"""AdamW (Loshchilov and Hutter 2019) and Adam (Kingma and Ba 2015)."""

from __future__ import annotations

import optax

from lrurun.training.optimizers.base import Optimizer


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2)."""

    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        settings = self.settings
        return optax.scale_by_adam(b1=settings.b1, b2=settings.b2, eps=settings.eps)


class Adam(AdamW):
    """Adam with an L2 penalty (Kingma and Ba 2015, algorithm 1)."""

    decay_in_gradient = True
