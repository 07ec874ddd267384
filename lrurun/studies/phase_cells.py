"""Data and trainings of the study `phase`: one LRU layer with one input, read at its last step. jax is imported in
functions.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from lrurun.studies.formulas import generator
from lrurun.studies.study import Array

TRAINING, TEST, BATCH, CHUNK = 512, 1024, 64, 10
"""Sequences, sequences of an update, updates of one call of the compiled program."""
SLOWER = 0.25
"""The rate of the recurrent parameters over that of the others."""


def data(length: int, seed: int) -> tuple[Array, Array]:
    """White sequences (TRAINING + TEST, length), and whether their sum with one period of a cosine is positive."""
    u = generator(seed, "data").normal(size=(TRAINING + TEST, length))
    return u, u @ np.cos(2 * np.pi * np.arange(length) / length) > 0


def constant_gain(r_min: float, r_max: float, phase: float) -> float:
    """E of gamma^2 / |1 - lambda|^2, of a ring with phases in (0, `phase`]: |h|^2 of the normalised LRU and input 1.

    In the mean over phases it is Poisson's kernel, whose integral is an arctangent; the other integral is numerical.
    """
    from scipy.integrate import quad

    def over_phases(squared: float) -> float:
        r = np.sqrt(squared)
        return float(2 * np.arctan2((1 + r) * np.sin(phase / 2), (1 - r) * np.cos(phase / 2)) / phase)

    total, _ = quad(over_phases, r_min**2, r_max**2, epsabs=0, epsrel=1e-12)
    return float(total / (r_max**2 - r_min**2))


def gain_by_sums(r_min: float, r_max: float, phase: float) -> float:
    """`constant_gain` without the arctangent, as a sum over a grid of phases and radii."""
    if phase > np.pi:  # where the kernel is that of 2 pi - theta
        half, rest = (part * gain_by_sums(r_min, r_max, part) if part else 0.0 for part in (np.pi, 2 * np.pi - phase))
        return (2 * half - rest) / phase
    (nodes, weights), (s, of_s) = (np.polynomial.legendre.leggauss(count) for count in (60, 400))
    r = np.sqrt(r_min**2 + (r_max**2 - r_min**2) * (nodes[:, None] + 1) / 2)
    # phases (1 - r) sinh s: dense where the integrand is large
    end = np.arcsinh(phase / (1 - r)) / 2
    theta, slope = (1 - r) * np.sinh((s + 1) * end), (1 - r) * np.cosh((s + 1) * end) * end
    kernel = (1 - r**2) / ((1 - r) ** 2 + 4 * r * np.sin(theta / 2) ** 2)
    return float(weights @ (slope * kernel) @ of_s / 2 / phase)


def layer(normalize: bool, state: int, r_min: float = 0.0, r_max: float = 1.0, phase: float = np.pi) -> Any:
    """An LRU with one input; the ring and the largest phase, in radians, are those of its initial parameters."""
    from lrurun.config.recurrences.diagonal import DiagonalRecurrence
    from lrurun.nn import recurrences

    settings = DiagonalRecurrence(normalize=normalize, phase="log", r_min=r_min, r_max=r_max, max_phase=phase)
    return recurrences.build(settings, width=1, state=state)


def scores(outputs: Array, labels: Array) -> tuple[float, float, float]:
    """Logistic loss and accuracy on the training set, accuracy on the test set."""
    right = (outputs > 0) == labels
    loss = np.logaddexp(0, np.where(labels, -outputs, outputs))[:TRAINING]
    return float(np.mean(loss)), float(np.mean(right[:TRAINING])), float(np.mean(right[TRAINING:]))


@cache
def initial(normalize: bool, state: int, r_min: float, r_max: float, phase: float) -> Any:
    """seed -> parameters."""
    import jax
    import jax.numpy as jnp

    lru = layer(normalize, state, r_min, r_max, phase)

    def init(seed: int) -> Any:
        key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), crc32(b"init"))
        found = {name: value.astype(jnp.float64) for name, value in lru.init(key).items() if name != "D"}
        return found | {"bias": jnp.zeros((), jnp.float64)}

    return jax.jit(init)


@cache
def programs(normalize: bool, state: int, length: int) -> Any:
    """Outputs by powers of lambda, outputs by a scan, Adam's initial state, and CHUNK updates."""
    import jax
    import jax.numpy as jnp
    import optax

    from lrurun.nn.recurrences.diagonal import decay_and_phase, eigenvalues
    from lrurun.nn.scan import linear_scan

    lru = layer(normalize, state)

    def read(params: Any, re: Any, im: Any) -> Any:
        """Outputs (B,) of the last states, (N, B) each, before B."""
        _, (b_re, b_im), ((c_re, c_im),), _ = lru.system(params | {"D": jnp.zeros(1)})
        weights = c_re[0] * b_re[:, 0] - c_im[0] * b_im[:, 0], c_re[0] * b_im[:, 0] + c_im[0] * b_re[:, 0]
        return weights[0] @ re - weights[1] @ im + params["bias"]

    def by_powers(params: Any, u: Any) -> Any:
        nu, theta = decay_and_phase(params)
        back = jnp.arange(length - 1, -1, -1.0)
        radius, angle = jnp.exp(-jnp.outer(nu, back)), jnp.outer(theta, back)
        return read(params, radius * jnp.cos(angle) @ u.T, radius * jnp.sin(angle) @ u.T)

    def by_scan(params: Any, u: Any) -> Any:
        v = jnp.broadcast_to(u.T[..., None], (*u.T.shape, state))
        re, im = linear_scan(eigenvalues(params), (v, jnp.zeros_like(v)))
        return read(params, re[-1].T, im[-1].T)

    def loss(params: Any, u: Any, labels: Any) -> Any:
        return jnp.mean(optax.sigmoid_binary_cross_entropy(by_powers(params, u), labels.astype(jnp.float64)))

    adam = optax.scale_by_adam()

    def run(carry: Any, batches: Any, rates: Any) -> Any:
        def update(carry: Any, one: Any) -> Any:
            (params, state), (u, labels, rate) = carry, one
            slope = jax.grad(loss)(params, u, labels)
            change, state = adam.update(slope, state)
            factors = {name: SLOWER if name in lru.recurrent_parameters else 1.0 for name in params}
            return ({name: params[name] - rate * factors[name] * change[name] for name in params}, state), None

        return jax.lax.scan(update, carry, (*batches, rates))[0]

    return jax.jit(by_powers), jax.jit(by_scan), adam.init, jax.jit(run)
