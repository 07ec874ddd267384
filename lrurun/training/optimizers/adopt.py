"""ADOPT (Taniguchi et al. 2024)."""

from __future__ import annotations

import optax

from lrurun.training.optimizers.base import Optimizer


class Adopt(Optimizer):
    """ADOPT with clipping and decoupled weight decay (Taniguchi et al. 2024, algorithm 2)."""

    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        settings = self.settings
        return optax.contrib.scale_by_adopt(b1=settings.b1, b2=settings.b2, eps=settings.eps)
