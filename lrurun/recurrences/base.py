"""What a recurrence is: pure functions on a dictionary of real float32 arrays. No model library here."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lrurun.products import Precision, product

Params = dict[str, Array]
"""Name -> real float32 array."""


def normals(key: Array, shapes: Mapping[str, tuple[int, ...]], variances: Mapping[str, float]) -> Params:
    """Independent normal entries with mean 0 and the variance of their name, float32.

    All come from one draw: the generator is slow to compile, and one program of it is enough.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pieces = jnp.split(jax.random.normal(key, (int(ends[-1]),), jnp.float32), ends[:-1])
    return {
        name: piece.reshape(shape) * variances[name] ** 0.5
        for piece, (name, shape) in zip(pieces, shapes.items(), strict=True)
    }


class Recurrence(abc.ABC):
    """A sequence layer from H features to H features through a state of size N.

    Subclasses are final. They are built from their settings alone, hold no arrays, and may be shared between layers.
    Sequences are time-major: (T, B, H), or in `chunks`. A mask is (T, B), true where a position is real; padding
    follows what is real.
    """

    def __init__(
        self,
        settings: Any,
        *,
        width: int,
        state: int,
        bidirectional: bool = False,
        backend: str = "auto",
        precision: Precision = "tf32",
    ) -> None:
        """`settings` is the table of the kind, `width` is H, `state` N; `backend` chooses among the scans.

        `precision` is that of the products with B and C.
        """
        self.settings = settings
        self.width = width
        self.state = state
        self.bidirectional = bidirectional
        self.backend = backend
        self.precision = precision

    @property
    @abc.abstractmethod
    def slow(self) -> frozenset[str]:
        """Names of the parameters of the recurrent group: their own learning rate, and no weight decay."""

    @property
    def variances(self) -> Mapping[str, float]:
        """Name -> declared variance, for the parameters whose initial entries are independent with mean 0."""
        return {}

    def product(self, x: Array, w: Array) -> Array:
        """x (..., K) times the transpose of w (N, K)."""
        return product(x, w.T, self.precision)

    def chunks(self, length: int, batch: int) -> int:
        """How many stretches of a sequence `scan` would like side by side, a divisor of `length`; 1 for most.

        It then takes inputs (T, K, B, H) and a mask (T, K, B), see `lrurun.scan.split`.
        """
        return 1

    @property
    def bounded(self) -> bool:
        """Whether the initial parameters promise finite outputs at any length."""
        return True

    @abc.abstractmethod
    def init(self, key: Array) -> Params:
        """Initial parameters, float32, a pure function of `key`."""

    @abc.abstractmethod
    def scan(self, params: Params, u: Array, mask: Array | None = None) -> Array:
        """Outputs (T, B, H) for inputs `u` (T, B, H), in the fastest form that the kind has.

        With `mask`, outputs at real positions do not depend on padding: the backward direction starts at the last real
        position of each sequence. Without, every position is real.
        """

    @abc.abstractmethod
    def initial_state(self, batch: int) -> Any:
        """The zero state of `batch` sequences, as `step` takes it: arrays of (batch, ...), mostly (batch, N)."""

    @abc.abstractmethod
    def step(self, params: Params, state: Any, u: Array) -> tuple[Any, Array]:
        """The state after, and the output (B, H) for, one input `u` (B, H).

        Raises ValueError where the layer is bidirectional: it would need the future.
        """

    def kernels(self, params: Params, length: int) -> Array | None:
        """What one unit impulse does to each channel, (directions, `length`, H); None where the kind has no such form.

        Kinds whose channels do not mix may be computed as convolutions, see `lrurun.scan.convolution`: the first
        kernel at k is the output k steps after the impulse, the direct path from input to output (D) included at k = 0;
        the second one, of bidirectional layers, at k is the output k + 1 steps before it. So what a backward direction
        does with the current input belongs to the first kernel at k = 0.
        """
        return None

    def norms(self, params: Params, u: Array) -> Array:
        """|x_k| (T, B), the length of the state after each of the inputs `u` (T, B, H).

        That of a bidirectional layer is its forward direction's.
        """
        one_way = type(self)(
            self.settings, width=self.width, state=self.state, backend=self.backend, precision=self.precision
        )

        def body(state: Any, u_k: Array) -> tuple[Any, Array]:
            state, _ = one_way.step(params, state, u_k)
            leaves = jax.tree.leaves(state)
            parts = [jnp.sum(jnp.square(jnp.abs(part)), axis=range(1, part.ndim)) for part in leaves]
            return state, jnp.sqrt(sum(parts[1:], parts[0]))

        return jax.lax.scan(body, one_way.initial_state(u.shape[1]), u)[1]

    def spectrum(self, params: Params) -> np.ndarray | None:
        """The eigenvalues of the map from state to state, complex; None where the kind does not tell them.

        NaN where the parameters are not finite.
        """
        return None

    def require_causal(self) -> None:
        """Raise ValueError where the layer is bidirectional."""
        if self.bidirectional:
            raise ValueError("a bidirectional recurrence has no step: its outputs depend on inputs still to come")
