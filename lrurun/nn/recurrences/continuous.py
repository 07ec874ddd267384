"""Continuous-time systems x' = A x + B u with a complex diagonal A: initialisation and discretisation."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array
from lrurun.nn.complex import Complex

Discretization = Literal["zoh", "bilinear", "euler"]


class Normal(NamedTuple):
    """The normal part of HiPPO-LegS in its eigenvectors, float64."""

    frequencies: np.ndarray
    """(n,) imaginary parts of the eigenvalues, ascending; all real parts are -1/2."""
    vectors: np.ndarray
    """(n, n) complex, unitary, one per column, with the phases that make `inputs` positive."""
    inputs: np.ndarray
    """(n,) HiPPO's input vector, sqrt(2k + 1), in these eigenvectors."""


@cache
def hippo(size: int) -> Normal:
    """The eigenvectors of the matrix of HiPPO-LegS made normal (Gu et al. 2022; Smith et al. 2023, section 3.3).

    With A_kl = -sqrt(2k + 1) sqrt(2l + 1) below the diagonal, -(k + 1) on it and 0 above, and p_k = sqrt(k + 1/2),
    A + p p^T is -1/2 times the identity and a skew-symmetric matrix. Computed on the host, in double precision.
    """
    k = np.arange(size)
    p = np.sqrt(k + 0.5)
    below = np.tril(np.outer(p, p), -1)
    # A + p p^T has -2 p_k p_l + p_k p_l below the diagonal, p_k p_l above it.
    frequencies, vectors = np.linalg.eigh(-1j * (below.T - below))
    inputs = vectors.conj().T @ (math.sqrt(2.0) * p)
    # the phase of a column is arbitrary, and the library does not document which one it returns
    vectors = vectors * (inputs / np.abs(inputs))[None]
    return Normal(frequencies, vectors, np.abs(inputs))


def discretize(a: Complex, dt: Array, how: Discretization) -> tuple[Array, Array, Complex]:
    """nu = -log |lambda|, theta in radians, and the factor of B, of the recurrence that takes steps of `dt`.

    `a` are the eigenvalues of A. "zoh": lambda = exp(dt a), B (lambda - 1) / a, for inputs that are constant in
    between; "bilinear": lambda = (1 + dt a / 2) / (1 - dt a / 2), B dt / (1 - dt a / 2); "euler": the lambda of
    "zoh" and B dt, the first order of its factor (Orvieto et al. 2023, section 4). "zoh" and "bilinear" are accurate
    for small dt a. All arrays have one shape.
    """
    re, im = dt * a.real, dt * a.imag
    if how == "bilinear":
        # 1 / (1 - z / 2) = (1 - conj(z) / 2) / |1 - z / 2|^2
        real = 1.0 - 0.5 * re
        square = real * real + 0.25 * im * im
        nu = -0.5 * jnp.log1p(2.0 * re / square)
        theta = jnp.arctan2(im, 1.0 - 0.25 * (re * re + im * im))
        return nu, theta, Complex(dt * real / square, 0.5 * dt * im / square)
    if how == "euler":
        return -re, im, Complex(dt + jnp.zeros_like(re), jnp.zeros_like(im))
    # exp(z) - 1 without cancellation, divided by z; by its series where that would be 0 / 0.
    grown = jnp.expm1(re)
    half = jnp.sin(0.5 * im)
    top_re, top_im = grown * jnp.cos(im) - 2.0 * half * half, (grown + 1.0) * jnp.sin(im)
    square = re * re + im * im
    tiny = square < 1e-12
    bottom = jnp.where(tiny, 1.0, square)
    factor_re = jnp.where(tiny, 1.0 + 0.5 * re, (top_re * re + top_im * im) / bottom)
    factor_im = jnp.where(tiny, 0.5 * im, (top_im * re - top_re * im) / bottom)
    return -re, im, Complex(dt * factor_re, dt * factor_im)


def log_steps(key: Array, count: int, dt_min: float, dt_max: float) -> Array:
    """(count,) logarithms of step sizes, uniform from log `dt_min` to log `dt_max`."""
    low, high = math.log(dt_min), math.log(dt_max)
    return low + (high - low) * jax.random.uniform(key, (count,), jnp.float32)
