"""The optimisers: what each makes of gradients. Their settings are in `lrurun.config.optimizers`."""

from lrurun.training.optimizers.base import Optimizer

__all__ = ["Optimizer"]
