"""What all gated and selective recurrences have in common: x_k = a_k x_(k-1) + b_k, with a and b from the input.

A kind defines a, b and the outputs; the scan and the step are the same for all.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from lrurun.nn.axes import Array, Features, Mask, StateNorms, StepFeatures
from lrurun.nn.complex import Complex, zeros
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.scan import chunk_count, linear_scan

Numbers = Any
"""Real numbers, an array, or `Complex` ones."""
_Made = Callable[[Numbers, Array, Array], Array]
PIECE = 2**20
"""Numbers of a piece of the states, where they are larger than the inputs."""
State = tuple[Numbers, Array]
"""x, (B, M), and (B,), 0 before the first step of a sequence and then 1."""


class Gated(Recurrence):
    """A causal recurrence of M real or complex numbers, x, which before the first step is `start`."""

    causal_only: ClassVar[bool] = True

    @property
    def numbers(self) -> int:
        """M: how many numbers x has."""
        return self.state

    @property
    def complex(self) -> bool:
        """Whether they are complex."""
        return False

    @abc.abstractmethod
    def coefficients(self, params: Params, u: Array, seen: Array, first: Array) -> tuple[Numbers, Numbers]:
        """a and b, (..., B, M) each, of inputs `u` (..., B, H).

        `seen` (..., B, H) is what the gates see; `first` (..., B) is true at the first steps of sequences.
        """

    def blocks(self, x: Array, w: Array) -> Array:
        """x (..., I) times a block-diagonal matrix, whose blocks are `w` (n, I / n, O / n): (..., O)."""
        parts = x.reshape(*x.shape[:-1], len(w), -1)
        products = jax.vmap(lambda part, block: self.product(part, block.T), in_axes=(-2, 0), out_axes=-2)(parts, w)
        return products.reshape(*x.shape[:-1], -1)

    @abc.abstractmethod
    def outputs(self, params: Params, x: Numbers, u: Array, seen: Array) -> Array:
        """y (..., B, H) of states `x` (..., B, M) and inputs."""

    def start(self, params: Params) -> Array | None:
        """The state (M,) before the first step; None if it is zero."""
        return None

    def signed(self, a: Array) -> Array:
        """The decay as it is used, in [-1, 1] with `negative`, for `a` in [0, 1]."""
        return 2.0 * a - 1.0 if self.settings.negative else a

    @property
    def mixes_sequences(self) -> bool:
        return bool(self.settings.gates == "shuffled")

    def chunks(self, length: int, batch: int) -> int:
        return chunk_count(length, batch * self.numbers, self.backend)

    def seen(self, u: Array, mask: Array | None = None) -> Array:
        """The inputs of the gates, (..., B, H): `u` itself, or what a control puts in its place."""
        if self.settings.gates == "static":
            return jnp.zeros_like(u)
        if self.settings.gates == "input":
            return u
        # of the next sequence; where that is over, zeros in place of its padding
        return jnp.roll(u if mask is None else jnp.where(mask[..., None], u, 0.0), 1, axis=-2)

    def states(self, params: Params, u: Array, seen: Array, first: Array, before: Array | None) -> Numbers:
        """All states, (T, B, M) or (T, K, B, M), after `before` (B, M), of real numbers; after zero if None."""
        a, b = self.coefficients(params, u, seen, first)
        x: Numbers = linear_scan(a, b, initial=before, backend=self.backend)
        return x

    def _through(self, params: Params, u: Array, seen: Array, made: _Made) -> Array:
        """The values that `made` makes of states and inputs, (T, ...).

        States that are larger than the inputs are computed piece by piece, and again for the gradient.
        """
        length, batch = len(u), u.shape[-2]
        first = jnp.zeros(u.shape[:-1], bool).at[(0,) * (u.ndim - 2)].set(True)
        start = self.start(params)
        before = None if start is None else jnp.broadcast_to(start[None], (batch, start.size))
        steps = max(1, PIECE // (self.numbers * batch))
        if u.ndim == 4 or self.numbers <= self.width or length <= steps:
            return made(self.states(params, u, seen, first, before), u, seen)
        count = -(-length // steps)
        steps = -(-length // count)
        rows = tuple(
            jnp.pad(x, [(0, count * steps - length)] + [(0, 0)] * (x.ndim - 1)).reshape(count, steps, *x.shape[1:])
            for x in (u, seen, first)
        )

        @jax.checkpoint
        def piece(before: Array, row: tuple[Array, ...]) -> tuple[Array, Array]:
            """The last state (B, M) of a piece after `before` (B, M), and its values (steps, B, ...)."""
            u, seen, first = row
            x = self.states(params, u, seen, first, before)
            assert not isinstance(x, Complex)
            return x[-1], made(x, u, seen)

        before = jnp.zeros((batch, self.numbers), u.dtype) if before is None else before
        pieces = jax.lax.scan(piece, before, rows)[1]
        return pieces.reshape(count * steps, *pieces.shape[2:])[:length]

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        return self._through(params, u, self.seen(u, mask), lambda x, u, seen: self.outputs(params, x, u, seen))

    def initial_state(self, batch: int) -> State:
        x = zeros(batch, self.numbers) if self.complex else jnp.zeros((batch, self.numbers), jnp.float32)
        return x, jnp.zeros((batch,), jnp.float32)

    def step(self, params: Params, state: State, u: StepFeatures) -> tuple[State, StepFeatures]:
        self.require_causal()
        x, begun = state
        first, seen, start = begun == 0.0, self.seen(u), self.start(params)
        a, b = self.coefficients(params, u, seen, first)
        if start is not None:
            x = jnp.where(first[..., None], start[None], x)
        x = a * x + b
        return (x, jnp.ones_like(begun)), self.outputs(params, x, u, seen)

    def norms(self, params: Params, u: Features) -> StateNorms:
        def norm(x: Numbers, *_: Array) -> Array:
            """|x| (T, B) of `x` (T, B, M)."""
            parts = jax.tree.leaves(x)
            return jnp.sqrt(sum(jnp.sum(jnp.square(part), axis=-1) for part in parts))

        return self._through(params, u, self.seen(u), norm)


@jax.custom_jvp
def root(x: Array) -> Array:
    """The square root of x in [0, 1], whose derivative is at most 1000, as in the public code of Griffin."""
    return jnp.sqrt(x)


@root.defjvp
def _root_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    y = jnp.sqrt(primals[0])
    return y, tangents[0] * (0.5 / jnp.maximum(y, 5e-4))
