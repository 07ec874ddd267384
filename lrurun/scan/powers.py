"""Powers of complex numbers whose phases stay exact, however long the sequence, and sums of them.

In float32 the phase of lambda^k, computed as k theta, is wrong by k theta 6e-8 radians: a quarter of a radian after 2^20
steps. Here whole turns are taken off exactly before anything is rounded.
"""

from __future__ import annotations

import math
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Pair = tuple[Array, Array]

MOST = 4096
"""The largest count of powers, so that a step's number has 12 binary digits."""


def _short(x: Array) -> Array:
    """`x` cut to its first 12 binary digits. The rest, x less this, has 12 too: products of such are exact."""
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, jnp.uint32) & np.uint32(0xFFFFF000), x.dtype)


def _cut(x: float) -> np.float32:
    """The same of a constant."""
    return np.asarray(np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32)[()]


_TURN: Final = 1.0 / (2.0 * math.pi)
_FIRST: Final = _cut(_TURN)
_SECOND: Final = _cut(_TURN - float(_FIRST))
_REST: Final = np.float32(_TURN - float(_FIRST) - float(_SECOND))


def _fraction(x: Array) -> Array:
    """`x` less the nearest whole number, without a rounding."""
    return x - jnp.round(x)


def _angles(theta: Array, count: int, stride: int) -> Array:
    """k stride theta for k = 0 ... count - 1, less whole turns: radians on a new last axis."""
    k = jnp.arange(count, dtype=theta.dtype)
    k = k.reshape((1,) * theta.ndim + (-1,))
    moved = theta[..., None]
    if theta.dtype == jnp.float64:
        return moved * (k * stride)
    fixed = jax.lax.stop_gradient(moved)
    high = _short(fixed)
    low = fixed - high
    # theta / 2 pi, in turns, as a sum: three exact products, and what is too small for its rounding to matter.
    turns = low * _SECOND + fixed * _REST
    total = _fraction(turns * (k * stride))
    for term in (high * _FIRST, high * _SECOND, low * _FIRST):
        term = _fraction(term)
        first = _short(term)
        for part in (first, term - first):
            total = _fraction(total + _fraction(stride * _fraction(k * part)))
    angle = 2.0 * math.pi * total
    # Adds zero, and the derivative.
    return angle + (k * stride) * (moved - fixed)


def powers(nu: Array, theta: Array, count: int, stride: int = 1) -> Pair:
    """exp((-nu + i theta) stride k) for k = 0 ... count - 1, on a new last axis.

    `nu` is -log |lambda|, `theta` in radians. Each is taken for what it is in float32; the results are then within 1e-6
    of the exact powers up to k stride = 2^20, for |theta| up to 200 and |lambda| up to 1. Differentiable in both.

    Raises ValueError unless `count` is at most 4,096 and `stride` a power of two: what keeps the phases exact.
    """
    if not 1 <= count <= MOST or stride < 1 or stride & (stride - 1):
        raise ValueError(f"count must be 1 to {MOST} and stride a power of two, found {count} and {stride}")
    steps = (jnp.arange(count, dtype=nu.dtype) * stride).reshape((1,) * nu.ndim + (-1,))
    radius, angle = jnp.exp(-nu[..., None] * steps), _angles(theta, count, stride)
    return radius * jnp.cos(angle), radius * jnp.sin(angle)


def stride_of(length: int) -> int:
    """The power of two that splits `length` steps about evenly: k = stride i + j with few i and few j."""
    return 1 << ((length - 1).bit_length() + 1) // 2


def real_sums(weights: Pair, nu: Array, theta: Array, length: int) -> Array:
    """sum_n Re(w_n lambda_n^k), (D, H, length), for `weights` (D, H, N) and `nu`, `theta` (H, N) as in `powers`.

    The table of all powers, H N length numbers, is never made: lambda^(stride i + j) is a product of two powers from
    tables of about sqrt(length), so that each sum is an entry of a matrix product, in float32 always.

    Raises ValueError for more than 2^24 steps.
    """
    stride = stride_of(length)
    low_re, low_im = powers(nu, theta, min(stride, length))
    high_re, high_im = powers(nu, theta, -(-length // stride), stride)
    w_re, w_im = (part[..., None] for part in weights)
    # Re(ab) as one real product over twice as many terms.
    left = jnp.concatenate([w_re * high_re[None] - w_im * high_im[None], -w_re * high_im[None] - w_im * high_re[None]], 2)
    right = jnp.concatenate([low_re, low_im], 1)
    sums = jnp.einsum("dhni,hnj->dhij", left, right, precision="highest")
    return sums.reshape(*sums.shape[:2], -1)[..., :length]
