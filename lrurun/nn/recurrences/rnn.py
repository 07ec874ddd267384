"""The recurrent neural network with a dense real matrix, linear or with an activation: the first rungs of the ladder.

x_k = sigma(A x_(k-1) + B u_k),    y_k = C x_k + D u_k    (Orvieto et al. 2023, eq. 1; sigma = tanh or the identity)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Mask, StepFeatures
from lrurun.nn.devices import flat
from lrurun.nn.products import product
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.sampling import TRUNCATED, inner_normals, normals, truncated
from lrurun.nn.scan.in_place import scan_in_place

_ACTIVATIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "tanh": jnp.tanh,
    "relu": lambda x: jnp.maximum(x, 0.0),
    "identity": lambda x: x,
}

# The derivative as a function of the activation's value: nothing else is kept for the gradient.
_SLOPES: Final[dict[str, Callable[[Array], Array]]] = {
    "tanh": lambda y: 1.0 - y * y,
    "relu": lambda y: (y > 0.0).astype(y.dtype),
    "identity": jnp.ones_like,
}


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def dense_scan(a: Array, v: Array, activation: str, reverse: bool) -> Array:
    """States (T, B, N) of x_k = activation(a x_(k-1) + v_k) from zero, for `a` (N, N) and `v` (T, B, N).

    With `reverse`, x_k depends on x_(k+1). Differentiable once in `a` and `v`; the gradient of `a` is one matrix
    product after the loop instead of one at every step.
    """
    act = _ACTIVATIONS[activation]

    def step(x: Array, v_k: Array, _: None) -> tuple[Array, Array]:
        """The state (B, N) after `x` (B, N) and the input `v_k` (B, N), twice."""
        x = act(product(x, a.T, "float32") + v_k)
        return x, x

    return scan_in_place(step, jnp.zeros_like(v[0]), v, None, reverse=reverse)[1]


def _forward(a: Array, v: Array, activation: str, reverse: bool) -> tuple[Array, tuple[Array, Array]]:
    x = dense_scan(a, v, activation, reverse)
    return x, (a, x)


def _backward(activation: str, reverse: bool, kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    a, x = kept
    slope = _SLOPES[activation]

    def step(delta: Array, g_k: Array, x_k: Array) -> tuple[Array, Array]:
        """The gradient (B, N) of v_k, from the one of the step after it, twice."""
        delta = slope(x_k) * (g_k + product(delta, a, "float32"))
        return delta, delta

    delta = scan_in_place(step, jnp.zeros_like(g[0]), g, x, reverse=not reverse)[1]
    now, before = (delta[:-1], x[1:]) if reverse else (delta[1:], x[:-1])
    return product(flat(now).T, flat(before), "float32"), delta


dense_scan.defvjp(_forward, _backward)


def remapped(a: Array, r_min: float = 0.0, max_phase: float = math.pi) -> Array:
    """A matrix like `a`, with |lambda| as r_min + (1 - r_min) tanh |lambda| and phases times max_phase / pi.

    Zucchet and Orvieto (2024), eq. 133: the real part of V f(Lambda) V^-1, with the eigenvectors of `a`.
    """
    values, vectors = jnp.linalg.eig(a)
    size = jnp.maximum(jnp.abs(values), 1e-12)
    moved = values * (r_min + (1.0 - r_min) * jnp.tanh(size)) / size
    if max_phase != math.pi:
        moved = jnp.abs(moved) * jnp.exp(1j * jnp.angle(values) * (max_phase / math.pi))
    return jnp.real(jnp.matmul(vectors * moved[None, :], jnp.linalg.inv(vectors), precision="highest"))


def scaled(a: Array, radius: float) -> Array:
    """The matrix `a` times the number with which its spectral radius is `radius`."""
    return a * (radius / jnp.max(jnp.abs(jnp.linalg.eigvals(a))))


@final
class RNN(Recurrence):
    """x_k = activation(A x_(k-1) + B u_k), y_k = C x_k + D u_k (Orvieto et al. 2023, eq. 1).

    A (N, N), B (N, H), C (H, N), and D (H,), elementwise. A, B and C are sampled from N(0, 1 / fan-in) (section 3.1), D
    from N(0, 1). With `draw = "truncated"`, the normal of A is truncated at two standard deviations and not rescaled,
    as by the default initialiser of the paper's framework, Haiku: standard deviation 0.8796 / sqrt(N), spectral radius
    about 0.9; with "remapped", its eigenvalues are moved into the unit circle, see `remapped`. With a
    `radius`, A is then multiplied by a number, so that its largest eigenvalue has this magnitude. Bidirectional layers
    share A and B, add C_back (H, N) for the other direction, and use D once.
    """

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({"A", "B"})

    @property
    def variances(self) -> Mapping[str, float]:
        of_c = {f"C{way}": 1.0 / self.state for way in self.directions}
        spread = TRUNCATED if self.settings.draw == "truncated" else 1.0
        changed = self.settings.draw == "remapped" or self.settings.radius
        of_a = {} if changed else {"A": spread**2 / self.state}
        return {**of_a, "B": 1.0 / self.width, **of_c, "D": 1.0}

    @property
    def bounded(self) -> bool:
        # As drawn, the spectral radius of A is 1, or 0.88 if truncated, only in the limit of large N. For small N it
        # may be well above 1, and without saturation the state then grows without bound.
        return bool(self.settings.activation == "tanh")

    @property
    def init_on_cpu(self) -> bool:
        # jax has no eigenvalues of such matrices on a TPU
        return bool(self.settings.draw == "remapped" or self.settings.radius)

    def init(self, key: Array) -> Params:
        n, h = self.state, self.width
        shapes = {"A": (n, n), "B": (n, h), **{f"C{way}": (h, n) for way in self.directions}, "D": (h,)}
        draw, radius = self.settings.draw, self.settings.radius
        sample = normals if draw == "normal" and not radius else inner_normals
        params = sample(key, shapes, {**self.variances, "A": 1.0 / n if draw == "normal" else 1.0})
        a = params["A"]
        if draw == "truncated":
            a = truncated(a) * n**-0.5
        elif draw == "remapped":
            a = remapped(a * n**-0.5)
        return params | {"A": scaled(a, radius) if radius else a}

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        A, B, C, D = (params[name] for name in "ABCD")
        activation = self.settings.activation
        seen = u if mask is None or not self.bidirectional else jnp.where(mask[..., None], u, 0.0)
        v = self.product(seen, B)
        y = self.product(dense_scan(A, v, activation, False), C) + D[None, None] * u
        if self.bidirectional:
            # zero input keeps a zero state at zero, so the backward direction starts at the last real position
            y = y + self.product(dense_scan(A, v, activation, True), params["C_back"])
        return y

    def spectrum(self, params: Params) -> np.ndarray:
        a = np.asarray(params["A"], np.float64)
        # of the matrix, without the activation
        return np.linalg.eigvals(a).astype(complex) if np.isfinite(a).all() else np.full(len(a), complex(np.nan))

    def initial_state(self, batch: int) -> Array:
        return jnp.zeros((batch, self.state), jnp.float32)

    def step(self, params: Params, state: Array, u: StepFeatures) -> tuple[Array, StepFeatures]:
        self.require_causal()
        A, B, C, D = (params[name] for name in "ABCD")
        x = _ACTIVATIONS[self.settings.activation](product(state, A.T, "float32") + self.product(u, B))
        return x, self.product(x, C) + D[None] * u
