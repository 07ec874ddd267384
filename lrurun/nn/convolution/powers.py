"""lambda^l = exp((-nu + i theta) l) for l up to 2^31, and the convolution kernels that are sums of such powers.

In float32 the error of the product l theta reaches 0.24 radians at l = 2^20. So here the phase is a fixed-point number
of turns with 64 binary digits after the point: in the integer product with l, whole turns drop out by overflow, and the
rest is exact to about 10^-6 radians.
"""

from __future__ import annotations

import math
from typing import Final

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.nn.complex import Complex
from lrurun.nn.products import product

ENTRIES: Final = 2**22
"""Powers in memory at a time, from which a block of a kernel is computed."""
LONGEST: Final = 1024
"""Lags of a block at most: with more, the powers take longer than the product with the weights saves."""

LARGEST: Final = 2.0**19
"""Phases of this size or more, in radians a step, give NaN: float32 has four binary digits after the point there."""

# A phase is split into multiples of 2^-12 and of 2^-36 radians: both are whole numbers, below 2^31 and 2^24.
_COARSE, _FINE = 12, 36
_TURNS_COARSE: Final = round(2 ** (64 - _COARSE) / (2 * math.pi))
"""2^-12 radians in units of 2^-64 turns."""
_TURNS_FINE: Final = round(2 ** (64 - _FINE) / (2 * math.pi))


def _high(a: Array, b: Array) -> Array:
    """The upper 32 of the 64 binary digits of the product a b, uint32."""
    half, low = jnp.uint32(16), jnp.uint32(0xFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = (a0 * b0 >> half) + (a1 * b0 & low) + (a0 * b1 & low)
    return a1 * b1 + (a1 * b0 >> half) + (a0 * b1 >> half) + (middle >> half)


def _turns(phase: Array) -> tuple[Array, Array]:
    """|phase| in turns modulo 1, the first and the second 32 binary digits after the point, uint32.

    Error below 10^-12 turns for float32 phases of up to 2^10 radians; they must be below `LARGEST`.
    """
    size = jnp.abs(phase)
    coarse = jnp.floor(size * 2.0**_COARSE)
    fine = jnp.round((size - coarse * 2.0**-_COARSE) * 2.0**_FINE).astype(jnp.uint32)
    count = coarse.astype(jnp.uint32)
    high, low = (jnp.uint32(_TURNS_COARSE >> shift & 0xFFFFFFFF) for shift in (32, 0))
    factor = jnp.uint32(_TURNS_FINE)
    lower = count * low
    added = lower + fine * factor
    carry = (added < lower).astype(jnp.uint32)
    return count * high + _high(count, low) + _high(fine, factor) + carry, added


@jax.custom_jvp
def angle(phase: Array, exponents: Array) -> Array:
    """phase exponents modulo 2 pi, in [-pi, pi], of arrays that broadcast; `exponents` are uint32 below 2^31.

    Float32, with an error below 10^-5 radians for exponents up to 2^20 and phases up to 2^10 radians; NaN where the
    phase is not finite, or at least `LARGEST`. Float64 phases are simply multiplied. The gradient is that of the
    product.
    """
    if phase.dtype == jnp.float64:
        angles = phase * exponents.astype(phase.dtype)
        return angles - 2 * math.pi * jnp.round(angles / (2 * math.pi))
    high, low = _turns(phase)
    rest = (high * exponents + _high(low, exponents)).astype(jnp.int32).astype(jnp.float32)
    turned = jnp.sign(phase) * rest * (2 * math.pi / 2**32)
    return jnp.where(jnp.abs(phase) < LARGEST, turned, jnp.nan)


@angle.defjvp
def _angle_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    phase, exponents = primals
    return angle(phase, exponents), tangents[0] * exponents.astype(phase.dtype)


def powers(nu: Array, theta: Array, exponents: Array) -> Complex:
    """exp((-nu + i theta) l), (..., L), for `nu` and `theta` (...) and l in `exponents` (L,), uint32.

    Differentiable in `nu` and `theta`.
    """
    steps = exponents.reshape((1,) * nu.ndim + (-1,))
    size = jnp.exp(-nu[..., None] * steps.astype(nu.dtype))
    turned = angle(theta[..., None], steps)
    return Complex(size * jnp.cos(turned), size * jnp.sin(turned))


def _every(stride: int, length: int) -> Array:
    """0, stride, 2 stride, ... below `length`."""
    return jnp.arange(0, length, stride, dtype=jnp.uint32)


def stride_of(length: int) -> int:
    """The power of two that splits `length` steps into k = stride i + j with about as many i as j."""
    return 1 << ((length - 1).bit_length() + 1) // 2


def real_sums(weights: Complex, nu: Array, theta: Array, length: int) -> Array:
    """sum_n Re(w_n lambda_n^k), (D, H, length), for `weights` (D, H, N) and `nu`, `theta` (H, N) as in `powers`.

    The table of all powers, H N length numbers, is never computed: lambda^(stride i + j) is a product of two powers
    from tables of about sqrt(length) entries, so that each sum is an entry of a matrix product, always in float32. That
    takes 2 D H N sqrt(length) numbers of memory; where it is too much, use `kernel`.
    """
    stride = stride_of(length)
    low, high = powers(nu, theta, _every(1, min(stride, length))), powers(nu, theta, _every(stride, length))
    weighted = weights[..., None] * high
    # Re(ab) as one real product over twice as many terms
    left, right = jnp.concatenate([weighted.real, -weighted.imag], 2), jnp.concatenate([low.real, low.imag], 1)
    sums = jnp.einsum("dhni,hnj->dhij", left, right, precision="highest")
    return sums.reshape(*sums.shape[:2], -1)[..., :length]


def kernel(weights: Complex, nu: Array, theta: Array, length: int) -> Complex:
    """sum_n W_hn lambda_n^l for l < `length`, (H, length), with `weights` W (H, N) and lambda as for `powers`.

    `nu` and `theta` are (N,), or (H, N) if each channel has its own eigenvalues. Only one block of the powers is in
    memory at a time: with l = j K + k, the powers of k are kept, and W lambda^(jK) replaces W. Blocks are computed
    again for the gradient, so that only the result grows with `length`.
    """
    block = min(1 << (length - 1).bit_length(), LONGEST)
    while block > 16 and block * nu.size > ENTRIES:
        block //= 2
    within = powers(nu, theta, _every(1, min(block, length)))
    if length <= block:
        return _summed(weights, within)

    @jax.checkpoint
    def block_sums(start: Array, weights: Complex, nu: Array, theta: Array, within: Complex) -> Complex:
        """The sums (H, block) from the exponent `start` () on."""
        return _summed(weights * powers(nu, theta, start[None])[..., 0], within)

    starts = _every(block, length)
    blocks = jax.lax.scan(lambda _, start: (None, block_sums(start, weights, nu, theta, within)), None, starts)[1]
    kernels: Complex = jax.tree.map(lambda part: part.swapaxes(0, 1).reshape(len(part[0]), -1)[:, :length], blocks)
    return kernels


def _summed(weights: Complex, within: Complex) -> Complex:
    """sum_n W_hn P_nk or, if each channel has its own powers, sum_n W_hn P_hnk; (H, K)."""
    w_re, w_im, p_re, p_im = weights.real, weights.imag, within.real, within.imag
    if within.ndim == 2:
        # one product: (w_re, -w_im) and (w_im, w_re) times (p_re, p_im)
        left = jnp.concatenate([jnp.concatenate([w_re, -w_im], 1), jnp.concatenate([w_im, w_re], 1)])
        return Complex(*jnp.split(product(left, jnp.concatenate([p_re, p_im]), "float32"), 2))

    def sums(w: Array, p: Array) -> Array:
        """(H, K) of `w` (H, N) and `p` (H, N, K)."""
        return jnp.einsum("hn,hnk->hk", w, p, precision="highest")

    return Complex(sums(w_re, p_re) - sums(w_im, p_im), sums(w_re, p_im) + sums(w_im, p_re))
