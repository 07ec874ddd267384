"""Softmax attention with rotary positions in place of a recurrence, to all steps or to those of chunks nearby."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, Features, Mask, StateNorms, StepFeatures
from lrurun.nn.convolution.powers import powers
from lrurun.nn.recurrences.base import Params, Recurrence
from lrurun.nn.sampling import normals

BASE: Final = 10_000.0
"""Pair i of a head of d numbers turns by BASE^(-2i / d) radians a step (Su et al. 2021, section 3.2.2)."""

SCORES: Final = 2**24
"""Scores in memory at a time, 64 MiB: a batch's scores of all steps by all steps may not fit."""


class Heads(NamedTuple):
    """Queries, keys and values, (B, heads, T, d) each."""

    queries: Array
    keys: Array
    values: Array


def rotate(x: Array, start: int = 0) -> Array:
    """`x` (B, heads, T, d), the pair of its numbers i and i + d/2 turned by its position, from `start` on.

    The paper's pairs are neighbours: the same up to the order of the rows of Q and K.
    """
    length, size = x.shape[-2:]
    rates = jnp.asarray(BASE ** (-np.arange(0, size, 2) / size), x.dtype)
    at = jnp.arange(start, start + length, dtype=jnp.uint32)
    turn = powers(jnp.zeros_like(rates), rates, at)
    cos, sin = turn.real.T[None, None], turn.imag.T[None, None]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def weighted(heads: Heads, seen: Array | None) -> Array:
    """softmax(q k^T / sqrt(d)) v, (B, heads, Q, d), over the keys where `seen` (B, 1, Q, K) is true; always float32.

    The function of jax.nn rounds the products as the device does by default, and has no softmax in double precision.
    """
    scores = jnp.einsum("bhqd,bhkd->bhqk", heads.queries, heads.keys, precision="highest")
    scores = scores / math.sqrt(heads.queries.shape[-1])
    if seen is not None:
        # finite, so that the gradient is too for a query in the padding that sees no key
        scores = jnp.where(seen, scores, jnp.finfo(scores.dtype).min)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), heads.values, precision="highest")


def attend(heads: Heads, real: Array | None, *, causal: bool, chunk: int) -> Array:
    """`weighted` for each step, (B, heads, T, d), over the keys that it sees and where `real` (B, T) is true.

    With `causal` a step sees no later ones. With `chunk`, only those of its own chunk of this length and of the
    chunks beside it. Blocks of queries are computed one after the other, and again for the gradient, so that at most
    about `SCORES` scores are in memory.
    """
    batch, count, length, size = heads.queries.shape
    span = chunk if 0 < chunk < length else length
    chunks = -(-length // span)
    before, after = (span, 0 if causal else span) if chunks > 1 else (0, 0)
    window, rest = before + span + after, chunks * span - length
    pieces = max(1, min(span, -(-span * window * batch * count // SCORES)))
    block = -(-span // pieces)
    # each chunk of queries in `pieces` blocks, the last one filled up
    queries = _padded(heads.queries, 0, rest).reshape(batch, count, chunks, span, size)
    queries = _padded(queries, 0, pieces * block - span, axis=3).reshape(batch, count, chunks * pieces, block, size)
    keys, values = (_padded(x, before, rest + after) for x in heads[1:])
    if real is None and chunks > 1:
        real = jnp.ones((batch, length), bool)
    real = None if real is None else _padded(real, before, rest + after, axis=1)

    def attend_block(queries: Array, number: Array) -> Array:
        """Outputs of one block of queries (B, heads, block, N / heads), in the same shape."""
        start = number // pieces * span  # of the window, in the filled up keys
        cut = partial(jax.lax.dynamic_slice_in_dim, start_index=start, slice_size=window)
        seen = None if real is None else cut(real, axis=1)[:, None, None]
        if causal:
            query = before + number % pieces * block + jnp.arange(block)
            earlier = (jnp.arange(window)[None] <= query[:, None])[None, None]
            seen = earlier if seen is None else seen & earlier
        return weighted(Heads(queries, cut(keys, axis=2), cut(values, axis=2)), seen)

    if chunks * pieces == 1:
        return attend_block(queries[:, :, 0], jnp.int32(0))
    numbers = jnp.arange(chunks * pieces, dtype=jnp.int32)
    recomputed = jax.checkpoint(attend_block)
    blocks = jax.lax.map(lambda arguments: recomputed(*arguments), (jnp.moveaxis(queries, 2, 0), numbers))
    blocks = jnp.moveaxis(blocks, 0, 2).reshape(batch, count, chunks, pieces * block, size)[:, :, :, :span]
    return blocks.reshape(batch, count, chunks * span, size)[:, :, :length]


def _padded(x: Array, before: int, after: int, axis: int = 2) -> Array:
    """`x` with zeros before and after it along `axis`."""
    return jnp.pad(x, [(before, after) if i == axis else (0, 0) for i in range(x.ndim)])


@final
class Attention(Recurrence):
    """y_k = O sum_j a_kj v_j + b_O with a_k = softmax over the steps j that k sees of q_k . k_j / sqrt(d), per head.

    q = R(Q u + b_Q), k = R(K u + b_K), v = V u + b_V, where the rotation R turns each pair of numbers of a head by its
    position. Q, K, V (N, H) and O (H, N), each N(0, 1 / fan-in); b_Q, b_K, b_V (N,) and b_O (H,), initially zero;
    without rotations there is no b_K, which would change nothing. A head has d = N / heads numbers.

    A step sees itself and all earlier ones; in bidirectional layers all steps, with the same parameters. With `chunk`
    it sees, of these, only the steps of its own chunk and of the chunks beside it. There are no recurrent parameters.

    `step` has no state of fixed size: its state is all keys (before R) and values that the next step may see, with
    `chunk` at most 2 chunks of them, and its arrays have another shape after each step. Scores, softmax and sums are
    float32, whatever `precision` is, which is that of the products with Q, K, V and O.
    """

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset()

    @property
    def variances(self) -> Mapping[str, float]:
        return dict.fromkeys("QKV", 1.0 / self.width) | {"O": 1.0 / self.state}

    def init(self, key: Array) -> Params:
        n, h = self.state, self.width
        biases = dict.fromkeys("QKV" if self.settings.positions == "rotary" else "QV", n) | {"O": h}
        zeros = {f"b_{name}": jnp.zeros((size,), jnp.float32) for name, size in biases.items()}
        return zeros | normals(key, dict.fromkeys("QKV", (n, h)) | {"O": (h, n)}, self.variances)

    def _heads(self, params: Params, u: Array) -> Heads:
        """Queries, keys and values of the heads for inputs (T, B, H), before the rotation."""
        shape = (*u.shape[:2], self.settings.heads, -1)

        def project(name: str) -> Array:
            """(B, heads, T, N / heads)."""
            x = self.product(u, params[name])
            if name != "K" or self.settings.positions == "rotary":
                x = x + params[f"b_{name}"][None, None]
            return jnp.transpose(x.reshape(shape), (1, 2, 0, 3))

        return Heads(*map(project, "QKV"))

    def _outputs(self, params: Params, sums: Array) -> Array:
        """(T, B, H) from (B, heads, T, d)."""
        batch, _, length, _ = sums.shape
        together = jnp.transpose(sums, (2, 0, 1, 3)).reshape(length, batch, self.state)
        return self.product(together, params["O"]) + params["b_O"][None, None]

    def _rotated(self, x: Array, start: int = 0) -> Array:
        return rotate(x, start) if self.settings.positions == "rotary" else x

    def scan(self, params: Params, u: Features, mask: Mask | None = None) -> Features:
        queries, keys, values = self._heads(params, u)
        heads = Heads(self._rotated(queries), self._rotated(keys), values)
        # real steps come first, so one that sees only earlier steps sees no padding
        real = mask.T if mask is not None and self.bidirectional else None
        return self._outputs(params, attend(heads, real, causal=not self.bidirectional, chunk=self.settings.chunk))

    def initial_state(self, batch: int) -> tuple[Array, Array]:
        empty = jnp.zeros((batch, self.settings.heads, 0, self.state // self.settings.heads), jnp.float32)
        return empty, empty

    def step(self, params: Params, state: tuple[Array, Array], u: StepFeatures) -> tuple[tuple[Array, Array], Array]:
        self.require_causal()
        queries, *new = self._heads(params, u[None])
        chunk, before = self.settings.chunk, state[0].shape[2]
        first = chunk if chunk and before == 2 * chunk else 0  # a new chunk begins
        keys, values = (jnp.concatenate([x[:, :, first:], y], axis=2) for x, y in zip(state, new, strict=True))
        # only differences of positions matter, so the oldest key may be at 0
        heads = Heads(self._rotated(queries, before - first), self._rotated(keys), values)
        return (keys, values), self._outputs(params, weighted(heads, None))[0]

    def norms(self, params: Params, u: Features) -> StateNorms:
        """The norm (T, B) of all keys and values that `step` has as its state after each input."""
        _, keys, values = self._heads(params, u)
        squares = jnp.moveaxis(jnp.sum(keys * keys + values * values, axis=(1, 3)), 1, 0)
        length, span = len(u), min(self.settings.chunk or len(u), len(u))
        by_chunk = _padded(squares, 0, -length % span, axis=0).reshape(-1, span, u.shape[1])
        previous = jnp.sum(_padded(by_chunk[:-1], 1, 0, axis=0), axis=1, keepdims=True)
        return jnp.sqrt(jnp.cumsum(by_chunk, axis=1) + previous).reshape(-1, u.shape[1])[:length]
