"""The gated cells GRU and LSTM with chrono initialisation: nonlinear, so computed one step after another.

The time constant T of a forget gate sigma(b) is that of the decay sigma(b) = 1 - 1/T, so b = log(T - 1). Chrono
initialisation (Tallec and Ollivier 2018) samples T uniformly, and lets in 1/T of each new value.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar, Final, final

import jax
import jax.numpy as jnp
from jax.nn import sigmoid
from jax.nn.initializers import orthogonal

from lrurun.nn.axes import Array, Features, Mask, StepFeatures
from lrurun.nn.products import product
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.sampling import normals

State = tuple[Array, ...]
"""Arrays (B, N): h, which products and the output read, then what only the cell itself reads."""

SHUT: Final = 1e9
"""An argument at which a gate is exactly 0 or 1."""
SHORTEST: Final = 1e-3
"""Least T - 1: T = 1 would be a bias of minus infinity."""


class Cell(Recurrence):
    """A cell of N units whose output is y_k = C h_k + D u_k, as that of `RNN`, so that a rung changes the cell alone.

    The gates have 4 arguments per unit: b (4N,), plus A h (M, N) in the first M of them, plus B u (M, H) in the last M.
    Each block (N, N) of A is a random orthogonal matrix; B and C are sampled from N(0, 1 / fan-in), D from N(0, 1).
    Bidirectional layers share A, B and b, add C_back (H, N) for the other direction, and use D once.
    """

    parts: ClassVar[int]
    """Number of arrays in a state."""
    blocks: ClassVar[int]
    """M / N."""
    forget: ClassVar[int]
    """The index of the forget gate among the four arguments."""
    input: ClassVar[int | None]
    """The index of the input gate, or None if it is 1 - the forget gate."""
    usual: ClassVar[float]
    """Bias of the forget gate without chrono initialisation."""

    @staticmethod
    @abc.abstractmethod
    def update(state: State, arguments: Array) -> State:
        """The next state from the present one and the arguments of the gates, (B, 4N), elementwise in N."""

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        # with A and B, as in `RNN`, all of the cell; decay of b would shorten the time constants
        return frozenset({"A", "B", "b"})

    @property
    def variances(self) -> Mapping[str, float]:
        return {"B": 1.0 / self.width, **{f"C{way}": 1.0 / self.state for way in self.directions}, "D": 1.0}

    def init(self, key: Array) -> Params:
        n, h, m = self.state, self.width, self.blocks * self.state
        key_a, key_b, key_normal = jax.random.split(key, 3)
        a = jax.vmap(lambda k: orthogonal()(k, (n, n), jnp.float32))(jax.random.split(key_a, self.blocks))
        shapes = {"B": (m, h), **{f"C{way}": (h, n) for way in self.directions}, "D": (h,)}
        b = self._biases(key_b).reshape(-1)
        return {"A": a.reshape(m, n), "b": b, **normals(key_normal, shapes, self.variances)}

    def _biases(self, key: Array) -> Array:
        b, settings = jnp.zeros((4, self.state), jnp.float32), self.settings
        if not settings.t_max:
            return b.at[self.forget].set(self.usual)
        t = settings.t_min + (settings.t_max - settings.t_min) * jax.random.uniform(key, (self.state,), jnp.float32)
        keep = jnp.log(jnp.maximum(t - 1.0, SHORTEST))
        b = b.at[self.forget].set(keep)
        return b if self.input is None else b.at[self.input].set(-keep)

    def _driven(self, params: Params, u: Array) -> Array:
        """The part of the arguments of the gates that inputs (T, B, H) and biases give, (T, B, 4N)."""
        v = self.product(u, params["B"])
        return jnp.pad(v, ((0, 0), (0, 0), (4 * self.state - v.shape[-1], 0))) + params["b"][None, None]

    def _next(self, a: Array, state: State, v: Array) -> State:
        """The state after `state`, for `v` (B, 4N) from the input."""
        from_state = jnp.pad(product(state[0], a.T, "float32"), ((0, 0), (0, v.shape[-1] - len(a))))
        return self.update(state, from_state + v)

    def _states(self, a: Array, v: Array, reverse: bool) -> Array:
        """h (T, B, N) from a zero state, for `v` (T, B, 4N); with `reverse`, from the last step to the first.

        By plain autodiff. A custom gradient as in `dense_scan` took half the memory, but was 0.8 to 1.1 times as fast
        on two cores; with `scan_in_place`, which copied its rows at every step here, 40 times slower.
        """

        def step(state: State, v_k: Array) -> tuple[State, Array]:
            """The next state and h (B, N), for one row `v_k` of `v`."""
            state = self._next(a, state, v_k)
            return state, state[0]

        start = tuple(part.astype(v.dtype) for part in self.initial_state(v.shape[1]))
        return jax.lax.scan(step, start, v, reverse=reverse)[1]

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        a, v = params["A"], self._driven(params, u)
        if mask is not None and self.bidirectional:
            # a zero state remains zero in padding, so the backward direction starts at the last real position
            where, value = (self.forget, SHUT) if self.input is None else (self.input, -SHUT)
            shut = jnp.zeros((4, self.state), v.dtype).at[where].set(value).reshape(-1)
            v = jnp.where(mask[..., None], v, shut[None, None])
        y = self.product(self._states(a, v, False), params["C"]) + params["D"][None, None] * u
        return y + self.product(self._states(a, v, True), params["C_back"]) if self.bidirectional else y

    def initial_state(self, batch: int) -> State:
        return tuple(jnp.zeros((batch, self.state), jnp.float32) for _ in range(self.parts))

    def step(self, params: Params, state: State, u: StepFeatures) -> tuple[State, StepFeatures]:
        self.require_causal()
        state = self._next(params["A"], state, self._driven(params, u[None])[0])
        return state, self.product(state[0], params["C"]) + params["D"][None] * u


@final
class GRU(Cell):
    """The gated recurrent unit of N numbers (Cho et al. 2014).

    h' = z h + (1 - z) tanh(x + r s) with gates r and z, where s is linear in h, and x in the input. The reset gate r
    follows the product with h, as in cuDNN, PyTorch and Flax, so a step has one product instead of two; in the paper
    it precedes it. z is the forget gate, 1 - z the input gate.
    """

    parts, blocks = 1, 3
    forget, input, usual = 2, None, 0.0

    @staticmethod
    def update(state: State, arguments: Array) -> State:
        (h,) = state
        of_state, r, z, of_input = jnp.split(arguments, 4, axis=-1)
        keep = sigmoid(z)
        return (keep * h + (1.0 - keep) * jnp.tanh(of_input + sigmoid(r) * of_state),)


@final
class LSTM(Cell):
    """The LSTM of N units, with two numbers each, h and c (Hochreiter and Schmidhuber 1997).

    c' = f c + i tanh(g), h' = o tanh(c') with gates i, f, o. It has a forget gate, whose bias starts at 1 (Gers et al.
    2000; Jozefowicz et al. 2015), and no peephole connections.
    """

    parts, blocks = 2, 4
    forget, input, usual = 1, 0, 1.0

    @staticmethod
    def update(state: State, arguments: Array) -> State:
        i, f, g, o = jnp.split(arguments, 4, axis=-1)
        c = sigmoid(f) * state[1] + sigmoid(i) * jnp.tanh(g)
        return sigmoid(o) * jnp.tanh(c), c
