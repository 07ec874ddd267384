"""Initial parameters sampled from normal and truncated normal distributions.

The arrays of a layer are sampled together, because the generator is slow to compile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array

_CUT: Final = 2.0
_WITHIN: Final = math.erf(_CUT / math.sqrt(2.0))
"""The probability that a standard normal lies within the cut."""

TRUNCATED: Final = math.sqrt(1.0 - 2.0 * _CUT * math.exp(-_CUT * _CUT / 2.0) / math.sqrt(2.0 * math.pi) / _WITHIN)
"""The standard deviation of a standard normal that is truncated at two: 0.8796."""

Shapes = Mapping[str, tuple[int, ...]]


def normals(key: Array, shapes: Shapes, variances: Mapping[str, float]) -> dict[str, Array]:
    """Independent normal entries with mean 0 and the variance of their name, float32."""
    pool = jax.random.normal(key, (_size(shapes),), jnp.float32)
    return {name: array * variances[name] ** 0.5 for name, array in _split(pool, shapes).items()}


def truncated_normals(key: Array, shapes: Shapes) -> dict[str, Array]:
    """Independent normal entries, truncated at two standard deviations and rescaled to variance 1, float32."""
    return _split(jax.random.truncated_normal(key, -_CUT, _CUT, (_size(shapes),), jnp.float32) / TRUNCATED, shapes)


def truncated(z: Array) -> Array:
    """Standard normals `z` as standard normals truncated at two standard deviations, each at its own quantile.

    Not rescaled to unit variance: their standard deviation is `TRUNCATED`.
    """
    root = math.sqrt(2.0)
    return jnp.clip(root * jax.lax.erf_inv(_WITHIN * jax.lax.erf(z / root)), -_CUT, _CUT)


def _size(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _split(pool: Array, shapes: Shapes) -> dict[str, Array]:
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
    return {
        name: piece.reshape(shape) for piece, (name, shape) in zip(jnp.split(pool, ends), shapes.items(), strict=True)
    }
