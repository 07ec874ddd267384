"""Clipping of gradients (Pascanu, Mikolov and Bengio 2013, section 3.2), before weight decay and the optimiser."""

from __future__ import annotations

import jax
import optax
from jax import Array

from lrurun.config.optimizers import OptimConfig
from lrurun.training.layout import Layout, Starts


def clipped(gradient: Array, config: OptimConfig, layout: Layout, starts: Starts) -> Array:
    """The gradient (size,), scaled down where its norm is larger than `config.clip`; see `OptimConfig.clip_by`.

    A zero gradient stays zero. With an infinity, the norm is infinite: infinite numbers become NaN and the others zero;
    with a NaN, everything that the norm is of becomes NaN. Either way, the parameters are no longer finite and the run
    diverges.

    Args:
        starts: where each parameter begins, as `Layout.starts` returns it.
    """
    if not config.clip:
        return gradient
    if config.clip_by == "global-norm":
        result, _ = optax.clip_by_global_norm(config.clip).update(gradient, optax.EmptyState())
        return result
    blocks, _ = optax.clip_by_block_rms(config.clip).update(layout.arrays(gradient, starts), optax.EmptyState())
    # in memory before it is read, as the gradient itself
    vector: Array = jax.lax.optimization_barrier(layout.vector(blocks))
    return vector
