"""Complex numbers as pairs (re, im) of real arrays.

Separate real arrays were faster than complex64 on every backend that was measured, and optimisers and checkpoints see
only real arrays.
"""

from __future__ import annotations

import jax.numpy as jnp

from lrurun.nn.axes import Array

Pair = tuple[Array, Array]
"""Real and imaginary part, of one shape."""


def times(a: Pair, b: Pair) -> Pair:
    """The product, entry by entry; ranks must be equal."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def times_add(a: Pair, x: Pair, b: Pair) -> Pair:
    """a x + b, entry by entry, with `a` as `expand` returns it."""
    re, im = expand(a, x[0].ndim)
    return re * x[0] - im * x[1] + b[0], re * x[1] + im * x[0] + b[1]


def expand(a: Pair, rank: int) -> Pair:
    """`a` with as many leading axes of size 1 as it takes to have this rank."""
    shape = (1,) * (rank - a[0].ndim) + a[0].shape
    return a[0].reshape(shape), a[1].reshape(shape)


def polar(nu: Array, theta: Array) -> Pair:
    """exp(-nu + i theta)."""
    radius = jnp.exp(-nu)
    return radius * jnp.cos(theta), radius * jnp.sin(theta)
