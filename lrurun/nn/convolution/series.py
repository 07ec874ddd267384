"""Reciprocals of power series with as many terms as a sequence has steps."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.nn.convolution import fast


def _circular(a: Array, b: Array, size: int) -> Array:
    """(..., size): the circular product of two series of at most `size` terms."""
    return jnp.fft.irfft(jnp.fft.rfft(a, size) * jnp.fft.rfft(b, size), size)


def _product(a: Array, b: Array) -> Array:
    """The first L terms of the product of two series of L terms, (..., L)."""
    length = a.shape[-1]
    return _circular(a, b, fast(2 * length))[..., :length]


@jax.custom_vjp
def reciprocal(a: Array) -> Array:
    """The first L terms of 1 / (1 + z a(z)), for a (..., L): g_0 = 1, g_k = -sum_(j < k) a_(k-1-j) g_j.

    They do not depend on the last term of `a`. Differentiable once. In float32 and float64 the error is a few roundings
    of |a| |g|, the norms of the sequences, if g belongs to a stable system; in an unstable one rounding errors grow.

    Computed by Newton's iteration g <- g (2 - (1 + z a) g), which doubles the number of correct terms.
    """
    length = a.shape[-1]
    sizes = [length]
    while sizes[-1] > 1:
        sizes.append((sizes[-1] + 1) // 2)
    series = jnp.concatenate([jnp.ones_like(a[..., :1]), a[..., :-1]], -1)
    inverse = series[..., :1]
    for known, size in zip(sizes[:0:-1], sizes[-2::-1], strict=True):
        # the known terms of (1 + z a) g are 1, 0, 0, ..., so the circular product may wrap around onto them
        circle = fast(size)
        rest = _circular(series[..., :size], inverse, circle)[..., known:size]
        inverse = jnp.concatenate([inverse, -_circular(rest, inverse, circle)[..., : size - known]], -1)
    return inverse


def _forward(a: Array) -> tuple[Array, Array]:
    inverse = reciprocal(a)
    return inverse, inverse


def _backward(inverse: Array, g: Array) -> tuple[Array]:
    # d(1 / w) = -z da / w^2, and the transpose of a product of series is one with the sequence reversed.
    later = _product(_product(inverse, inverse), g[..., ::-1])
    return (-jnp.pad(later[..., :-1], [(0, 0)] * (g.ndim - 1) + [(1, 0)])[..., ::-1],)


reciprocal.defvjp(_forward, _backward)
