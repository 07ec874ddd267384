"""A short causal convolution of each feature, as before the recurrences of Griffin and Mamba."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def short(u: Array, kernel: Array, bias: Array, reset: Array | None = None) -> Array:
    """y_k = sum_j kernel_j u_(k-j) + bias, (T, B, H), for `u` (T, B, H), `kernel` (taps, H), `bias` (H,).

    Steps before the first one count as zero; where `reset` (T, B) is true a document starts, and so do the steps
    before it.
    """
    length, taps = len(u), len(kernel)
    segment = None if reset is None else jnp.cumsum(reset, axis=0)
    y = jnp.broadcast_to(bias[None, None], u.shape)
    for j in range(min(taps, length)):
        earlier = u if j == 0 else jnp.pad(u[:-j], ((j, 0), (0, 0), (0, 0)))
        if segment is not None and j:
            is_same = segment[j:] == segment[:-j]
            earlier = jnp.where(jnp.pad(is_same, ((j, 0), (0, 0)))[..., None], earlier, 0.0)
        y = y + kernel[j][None, None] * earlier
    return y


def short_state(batch: int, kernel: Array) -> Array:
    """The state of `short_step` before the first step: the inputs before it, (batch, taps - 1, H), newest first."""
    return jnp.zeros((batch, len(kernel) - 1, kernel.shape[-1]), jnp.float32)


def short_step(state: Array, u: Array, kernel: Array, bias: Array) -> tuple[Array, Array]:
    """The state after the input `u` (B, H), and the output (B, H) there."""
    inputs = jnp.concatenate([u[:, None], state], axis=1)
    return inputs[:, :-1], jnp.sum(inputs * kernel[None], axis=1) + bias[None]
