"""Stochastic gradient descent."""

from __future__ import annotations

import optax

from lrurun.training.optimizers.base import Optimizer


class SGD(Optimizer):
    """Gradient descent with an L2 penalty, and with a momentum or without (Sutskever et al. 2013)."""

    on_vector = True
    decay_in_gradient = True

    def transformation(self) -> optax.GradientTransformation:
        settings = self.settings
        if not settings.momentum:
            return optax.identity()
        return optax.trace(decay=settings.momentum, nesterov=settings.nesterov)
