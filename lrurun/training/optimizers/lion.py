"""Lion (Chen et al. 2023)."""

from __future__ import annotations

import optax

from lrurun.training.optimizers.base import Optimizer


class Lion(Optimizer):
    """The sign of a momentum, with decoupled weight decay (Chen et al. 2023, algorithm 2)."""

    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        return optax.scale_by_lion(b1=self.settings.b1, b2=self.settings.b2)
