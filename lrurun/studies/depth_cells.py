"""Deep networks of the study `depth` at initialisation: states and gradients. jax is imported in functions."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from lrurun.studies.formulas import generator
from lrurun.studies.study import Array

BLOCKS, BATCH = 4, 8

Model = Literal["cRNN", "LRU", "LSTM"]
Norm = Literal["none", "layer"]
GROUPS = {"lam": "lambda", "nu_log": "nu", "theta_log": "theta", "cell": "cell"}
"""First name of a parameter -> its group; all others are "rest"."""


def inputs(width: int, length: int, rho: float, seed: int) -> Array:
    """Stationary AR(1) features of variance 1, (length + 1, BATCH, width)."""
    x = generator(seed, "inputs").normal(size=(length + 1, BATCH, width))
    for t in range(length):
        x[t + 1] = rho * x[t] + np.sqrt(1 - rho**2) * x[t + 1]
    return x


def start(model: Model, width: int, time: float, seed: int) -> dict[str, Any]:
    """Parameters: time constants between `time` and twice that; entries have variance 1 over the number of inputs."""
    random = generator(seed, "parameters")

    def dense(*shape: int) -> Array:
        return random.normal(size=shape) / np.sqrt(shape[-1])

    def block() -> dict[str, Array]:
        glu = {"value": dense(width, width), "gate": dense(width, width)}
        if model == "LSTM":
            # the gates of input, forgetting and output, and the candidate; chrono initialisation (Tallec and Ollivier)
            bias = np.log(np.maximum(random.uniform(time, 2 * time, width) - 1, 1e-3))
            zero = np.zeros(width)
            biases = np.concatenate([-bias, bias, zero, zero])
            return glu | {"cell w": dense(4 * width, width), "cell u": dense(4 * width, width), "cell bias": biases}
        low = 1 - 1 / time
        ends = low**2, ((1 + low) / 2) ** 2
        nu, theta = -0.5 * np.log(random.uniform(*ends, width)), 2 * np.pi * (1 - random.uniform(size=width))
        b = {"B_re": dense(width, width), "B_im": dense(width, width)}
        glu |= b | {"C_re": dense(width, width), "C_im": dense(width, width)}
        if model == "cRNN":
            return glu | {"lam_re": np.exp(-nu) * np.cos(theta), "lam_im": np.exp(-nu) * np.sin(theta)}
        gamma = 0.5 * np.log(-np.expm1(-2 * nu))
        return glu | {"nu_log": np.log(nu), "theta_log": np.log(theta), "gamma_log": gamma}

    return {
        "encoder": dense(width, width),
        "blocks": [block() for _ in range(BLOCKS)],
        "decoder": dense(width, width),
    }


@cache
def program(model: Model, norm: Norm) -> Any:
    """(parameters, inputs) -> (mean of |h|^2 in the second half, by block), gradient of the loss."""
    import jax
    import jax.numpy as jnp

    from lrurun.nn.recurrences.diagonal import eigenvalues
    from lrurun.nn.scan import linear_scan

    def linear(one: Any, u: Any) -> Any:
        gamma = jnp.exp(one["gamma_log"])[:, None] if model == "LRU" else jnp.ones((1, 1))
        re, im = linear_scan(eigenvalues(one), (u @ (gamma * one["B_re"]).T, u @ (gamma * one["B_im"]).T))
        return re @ one["C_re"].T - im @ one["C_im"].T, re**2 + im**2

    def lstm(one: Any, u: Any) -> Any:
        def step(carry: Any, driven: Any) -> Any:
            h, c = carry
            i, f, o, g = jnp.split(driven + h @ one["cell u"].T, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros(u.shape[1:])
        states = jax.lax.scan(step, (zero, zero), u @ one["cell w"].T + one["cell bias"][None, None])[1]
        return states, states**2

    def scaled(u: Any) -> Any:
        if norm == "none":
            return u
        u = u - jnp.mean(u, axis=-1, keepdims=True)
        return u / jnp.sqrt(jnp.mean(u**2, axis=-1, keepdims=True) + 1e-6)

    def loss(params: Any, x: Any) -> Any:
        z, squares = x[:-1] @ params["encoder"].T, []
        for one in params["blocks"]:
            y, squared = (lstm if model == "LSTM" else linear)(one, scaled(z))
            active = scaled(jax.nn.gelu(y))
            z = z + (active @ one["value"].T) * jax.nn.sigmoid(active @ one["gate"].T)
            squares.append(jnp.mean(squared[len(squared) // 2 :]))
        return 0.5 * jnp.mean(jnp.sum((z @ params["decoder"].T - x[1:]) ** 2, axis=-1)), jnp.stack(squares)

    def run(params: Any, x: Any) -> Any:
        slopes, squares = jax.grad(loss, has_aux=True)(params, x)
        return squares, slopes

    return jax.jit(run)


def by_group(slopes: Any) -> dict[str, float]:
    """Group -> mean over its parameters of the squares of a gradient."""
    found: dict[str, list[Array]] = {}
    for one in (*slopes["blocks"], {name: slopes[name] for name in ("encoder", "decoder")}):
        for name, slope in one.items():
            group = next((group for first, group in GROUPS.items() if name.startswith(first)), "rest")
            found.setdefault(group, []).append(np.ravel(slope))
    return {group: float(np.mean(np.square(np.concatenate(parts)))) for group, parts in found.items()}


def expected(params: dict[str, Any], rho: float, length: int) -> tuple[float, float]:
    """Mean of |h|^2 of the first block in the second half, from a zero state; and the standard error of a sample.

    The standard error is that of the stationary states: sums over lags of |E h_i conj h_j|^2 + |E h_i h_j|^2, because
    states are jointly normal.
    """
    one = params["blocks"][0]
    lam, gamma = (one["lam_re"] + 1j * one["lam_im"], 1.0) if "lam_re" in one else _of_lru(one)
    b = np.reshape(gamma, (-1, 1)) * ((one["B_re"] + 1j * one["B_im"]) @ params["encoder"])
    power, variance, seen, first = np.sum(np.abs(b) ** 2, axis=1), np.zeros(len(lam)), np.zeros(len(lam), complex), []
    for t in range(length):
        # E h_(t+1) conj h_(t+1) of the sum of past inputs, `seen` being E x_(t+1) conj h_t
        variance = np.abs(lam) ** 2 * variance + 1 + 2 * np.real(lam * np.conj(seen))
        seen = rho * (np.conj(lam) * seen + 1)
        if t >= length // 2:
            first.append(float(np.mean(power * variance)))
    steps, total = len(first), 0.0
    for other, products in ((np.conj(lam), b @ b.conj().T), (lam, b @ b.T)):
        a, d = lam[:, None], other[None]
        stationary = (1 - rho**2 * a * d) / ((1 - a * d) * (1 - rho * a) * (1 - rho * d))
        ahead = np.zeros_like(stationary)
        for lag in range(steps):
            total += (1 if lag == 0 else 2) * (steps - lag) * float(np.sum(np.abs(products * stationary) ** 2))
            ahead = rho * ahead + rho / (1 - rho * d) if lag == 0 else rho * ahead
            stationary = a * stationary + ahead
    return float(np.mean(first)), float(np.sqrt(total / BATCH) / (steps * len(lam)))


def _of_lru(one: dict[str, Array]) -> tuple[Array, Array]:
    return np.exp(-np.exp(one["nu_log"]) + 1j * np.exp(one["theta_log"])), np.exp(one["gamma_log"])
