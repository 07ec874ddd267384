"""Clipping of gradients (Pascanu, Mikolov and Bengio 2013, section 3.2), before weight decay and the optimiser."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lrurun.config.optimizers import OptimConfig
from lrurun.training.layout import Layout, Starts


def clipped(gradient: Array, config: OptimConfig, layout: Layout, starts: Starts) -> Array:
    """The gradient (size,), scaled down where its norm is larger than `config.clip`; see `OptimConfig.clip_by`.

    A zero gradient stays zero. With an infinity or a NaN, everything that the norm is of becomes NaN: parameters are no
    longer finite and the run diverges.

    Args:
        starts: where each parameter begins, as `Layout.starts` returns it.
    """
    if not config.clip:
        return gradient
    if config.clip_by == "global-norm":
        result, _ = optax.clip_by_global_norm(config.clip).update(_with_finite_norm(gradient), optax.EmptyState())
        return result
    arrays = jax.tree.map(_with_finite_norm, layout.arrays(gradient, starts))
    blocks, _ = optax.clip_by_block_rms(config.clip).update(arrays, optax.EmptyState())
    # in memory before it is read, as the gradient itself
    vector: Array = jax.lax.optimization_barrier(layout.vector(blocks))
    return vector


LARGEST = 1e15
"""The largest number of a gradient whose norm is computed: squares of much larger ones overflow float32."""


def _with_finite_norm(array: Array) -> Array:
    """An array, scaled down to `LARGEST` where a number is larger, which is far above all values of `config.clip`.

    Otherwise its norm would be infinite, and what is divided by it zero, in place of a step in its direction.
    """
    most = jnp.max(jnp.abs(array), initial=0.0)
    return jnp.where(most > LARGEST, array / most * LARGEST, array)
