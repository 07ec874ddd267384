"""Convolutions of long sequences with equally long kernels, channel by channel, by the fast Fourier transform."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.nn.devices import on_each


def fast(length: int) -> int:
    """The smallest number >= `length` without prime factors above 5, a size at which transforms are fast."""
    best = 1 << (length - 1).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            twos = 1 << (-(-length // threes) - 1).bit_length()
            best = min(best, threes * twos)
            threes *= 3
        fives *= 5
    return best


def convolve(u: Array, kernels: Array) -> Array:
    """y_t = sum_k kernels[0, k] u_(t-k) + sum_k kernels[1, k] u_(t+1+k), the second sum only with two kernels.

    `u` is (T, B, H), time first, zero before and after; `kernels` (1 or 2, K, H) with K at most T. The second kernel
    starts at the next input: in S4 and DLR the current one belongs to the first kernel. Returns (T, B, H).
    Differentiable once in both. The transforms are kept for the gradient, each twice as large as its array. Float32 in
    and out (float64 if both are), with an error of a few roundings of the largest |y|. It does not decrease where y
    does, unlike the error of a recurrence, and an input changes earlier outputs by as much.

    Raises ValueError for shapes that do not fit.
    """
    if u.ndim != 3 or kernels.ndim != 3 or len(kernels) not in (1, 2) or u.shape[2] != kernels.shape[2]:
        raise ValueError(f"shapes must be (T, B, H) and (1 or 2, K, H), found {u.shape} and {kernels.shape}")
    if not 1 <= kernels.shape[1] <= len(u):
        raise ValueError(f"a kernel must have 1 to {len(u)} entries, as many as there are steps, found {kernels.shape}")
    # one circular kernel: lags -1, -2, ... of the second kernel are at its end, with enough zeros in between
    size = fast(u.shape[0] + kernels.shape[1])
    circle = jnp.pad(kernels[0], ((0, size - kernels.shape[1]), (0, 0)))
    if len(kernels) == 2:
        circle = circle + jnp.pad(kernels[1][::-1], ((size - kernels.shape[1], 0), (0, 0)))
    return _circular(u, circle, size)


def _transform(x: Array, size: int) -> Array:
    """The transform over time of (T, ..., H), zero padded, time last: (..., H, size // 2 + 1)."""
    return jnp.fft.rfft(jnp.moveaxis(x, 0, -1), size)


def _sequence(transform: Array, size: int, length: int) -> Array:
    """The first `length` steps of the inverse transform, time first."""
    return jnp.moveaxis(jnp.fft.irfft(transform, size)[..., :length], -1, 0)


def _transforms(x: Array, size: int) -> Array:
    """`_transform` of (T, B, H): XLA would collect all examples for it."""
    return on_each(partial(_transform, size=size), x, 1, 0)


def _sequences(transform: Array, size: int, length: int) -> Array:
    """`_sequence` of (B, H, size // 2 + 1)."""
    return on_each(partial(_sequence, size=size, length=length), transform, 0, 1)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _circular(u: Array, circle: Array, size: int) -> Array:
    """The first T steps of the circular convolution of `u` (T, B, H) with `circle` (size, H)."""
    return _forward(u, circle, size)[0]


def _forward(u: Array, circle: Array, size: int) -> tuple[Array, tuple[Array, Array]]:
    of_u, of_circle = _transforms(u, size), _transform(circle, size)
    return _sequences(of_u * of_circle[None], size, len(u)), (of_u, of_circle)


def _backward(size: int, kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    # correlations; jax itself would transpose a real transform by a complex one, which is twice the work
    of_u, of_circle = kept
    of_g = _transforms(g, size)
    du = _sequences(of_g * jnp.conj(of_circle)[None], size, len(g))
    return du, _sequence(jnp.einsum("bhf,bhf->hf", of_g, jnp.conj(of_u), precision="highest"), size, size)


_circular.defvjp(_forward, _backward)
