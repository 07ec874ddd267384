"""Pooling over the real positions of sequences of different lengths."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp

from lrurun.nn.axes import Array, Features, Mask


def pool(x: Features, mask: Mask | None, pooling: Literal["mean", "last", "max"]) -> Array:
    """Mean or maximum of `x` (T, B, H), or in chunks (T, K, B, H), over the positions where the mask is true: (B, H).

    Zero where there are none. For pooling = "last" the mask is true only at the last position, see `last_positions`.
    Without a mask all positions are real.
    """
    times = tuple(range(x.ndim - 2))
    if pooling == "last":
        # of chunks side by side, the last step of the last one
        return x[(-1,) * len(times)] if mask is None else jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=times)
    if pooling == "max":
        seen = x if mask is None else jnp.where(mask[..., None], x, jnp.finfo(x.dtype).min)
        # by its index: the gradient of `max` compares x with it, and a fused program may round x differently there
        index = jnp.argmax(seen.reshape(-1, *x.shape[-2:]), axis=0)  # (B, H)
        largest = jnp.take_along_axis(x.reshape(-1, *x.shape[-2:]), index[None], axis=0)[0]
        return largest if mask is None else jnp.where(jnp.any(mask, axis=times)[:, None], largest, 0.0)
    if mask is None:
        return jnp.mean(x, axis=times)
    count = jnp.maximum(jnp.sum(mask, axis=times, dtype=x.dtype), 1.0)  # (B,)
    return jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=times) / count[:, None]


def real_positions(lengths: Array, steps: int) -> Mask:
    """(T, B) bool, true at the first `lengths` (B,) of T = `steps` positions."""
    return jnp.arange(steps)[:, None] < lengths.astype(jnp.int32)[None, :]


def last_positions(lengths: Array, steps: int) -> Mask:
    """(T, B) bool, true at the last real position of each sequence."""
    return jnp.arange(steps)[:, None] == lengths.astype(jnp.int32)[None, :] - 1
