"""Data and trainings of the study `convolution`: a dense RNN learns a linear target. jax is imported in functions."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np

from lrurun.studies.formulas import generator
from lrurun.studies.study import Array

LENGTH, SEQUENCES, CHUNK = 100, 32, 30
"""Of the kernel and of the sequences; how many of these; updates of one call of the compiled program."""
RANGE = 10.0
"""a and c of the inputs are uniform in [0, 10]: the paper does not say where."""

Model = Literal["linear", "tanh"]


def kernel() -> Array:
    """The target (Orvieto et al. 2023, appendix E.2)."""
    k = np.arange(LENGTH)
    return 0.1 * np.exp(-0.015 * k) * np.cos(0.04 * k) ** 2


def kernel_in_closed_form() -> tuple[float, float, int]:
    """The sum of the target, that of its squares, and the step of its second bump."""
    # geometric series of cos^2 x = (1 + cos 2x) / 2 and cos^4 x = (3 + 4 cos 2x + cos 4x) / 8
    waves = np.exp(np.array([[-0.015], [-0.03]]) + 0.08j * np.arange(3))
    sums = np.real((1 - waves**LENGTH) / (1 - waves))
    bump = round((np.pi - np.arctan(0.1875)) / 0.04)
    return 0.1 * float(sums[0] @ [1, 1, 0]) / 2, 0.01 * float(sums[1] @ [3, 4, 1]) / 8, bump


def data(seed: int) -> tuple[Array, Array]:
    """Inputs and outputs, (LENGTH, SEQUENCES) each."""
    a, c = generator(seed, "data").uniform(0, RANGE, (2, SEQUENCES))
    k = np.arange(LENGTH)[:, None]
    u = np.sin(0.05 * a * k) * np.cos(0.05 * c * k) ** 2
    return u, np.stack([np.convolve(one, kernel())[:LENGTH] for one in u.T], axis=1)


def start(state: int, seed: int) -> tuple[Array, Array, Array]:
    """A (state, state), B and C (state,) by Glorot's initialisation."""
    random = generator(seed, "init")
    glorot = [((state, state), 1 / state), ((state,), 2 / (state + 1)), ((state,), 2 / (state + 1))]
    a, b, c = (random.normal(size=size) * np.sqrt(variance) for size, variance in glorot)
    return a, b, c


@cache
def programs(model: Model) -> Any:
    """Initial state of Adam, `CHUNK` updates, and (loss, gradient) of the linear RNN by states and by kernels."""
    import jax
    import jax.numpy as jnp
    import optax

    def by_states(parameters: Any, u: Any, y: Any) -> Any:
        a, b, c = parameters
        activation = jnp.tanh if model == "tanh" else lambda x: x

        def step(h: Any, inputs: Any) -> Any:
            h = activation(h @ a.T + jnp.outer(inputs, b))
            return h, h

        states = jax.lax.scan(step, jnp.zeros((u.shape[1], len(b))), u)[1]
        return 0.5 * jnp.mean((states @ c - y) ** 2)

    def by_kernels(parameters: Any, u: Any, y: Any) -> Any:
        a, b, c = parameters
        found = jax.lax.scan(lambda h, _: (a @ h, h @ c), b, length=len(u))[1]
        lags = jnp.subtract.outer(jnp.arange(len(u)), jnp.arange(len(u)))
        return 0.5 * jnp.mean((jnp.where(lags >= 0, found[lags], 0.0) @ u - y) ** 2)

    # a linear RNN is its kernel C A^k B: that is LENGTH states instead of LENGTH times SEQUENCES
    loss = by_states if model == "tanh" else by_kernels
    adam = optax.scale_by_adam()

    def run(carry: Any, u: Any, y: Any, rate: Any) -> Any:
        def update(carry: Any, _: None) -> Any:
            now, state = carry
            value, slope = jax.value_and_grad(loss)(now, u, y)
            change, state = adam.update(slope, state)
            return (jax.tree.map(lambda p, d: p - rate * d, now, change), state), value

        return jax.lax.scan(update, carry, length=CHUNK)

    return adam.init, jax.jit(run), jax.jit(jax.value_and_grad(by_states)), jax.jit(jax.value_and_grad(by_kernels))
