"""The network around a recurrence: the only package that knows Flax."""

from lrurun.nn.network.layers import EPSILON
from lrurun.nn.network.model import Model

__all__ = ["EPSILON", "Model"]
