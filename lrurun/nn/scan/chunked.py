"""Chunks of a sequence side by side, (T, K, B, N): K chunks of T steps, each the continuation of the previous one.

Three passes: each chunk as one step, the composition of its own; from these, chunk by chunk, the true initial state of
each; then all chunks step by step from there. One loop of T steps does the work of K T, which is faster where batch
times state is too small to fill a machine. Powers of a constant transition by squaring cost some accuracy. Nothing is
divided by a product of transitions, which underflows soon: after 103 steps of 0.43.
"""

from __future__ import annotations

import jax

from lrurun.nn.scan import sequential
from lrurun.nn.scan.affine import Affine, Numbers, take, varies, zeros
from lrurun.nn.scan.sequential import unit

FEW = 512
"""From this many numbers a step on, one chunk is as fast."""
LANES = 4096
"""This many numbers a step, over all chunks, are enough."""
STEPS = 64
"""Steps of the shortest chunk that is worth its three passes."""


def count(length: int, lanes: int) -> int:
    """The fastest number of chunks on a CPU for `length` steps of `lanes` numbers (batch times state): a power of two.

    It divides `length`. Measured, forward and backward on two cores: 1.3 to 2.4 times as fast on 1,024 steps and more
    of up to 256 numbers, 0.7 to 1.1 times with 512 numbers and more.
    """
    chunks = 1
    while lanes < FEW and chunks * lanes < LANES and length % (2 * chunks) == 0 and length // (2 * chunks) >= STEPS:
        chunks *= 2
    return chunks


def most(length: int) -> int:
    """The largest power of two that divides `length` and is at most its square root."""
    chunks = 1
    while length % (2 * chunks) == 0 and (2 * chunks) ** 2 <= length:
        chunks *= 2
    return chunks


def split(numbers: Numbers, chunks: int) -> Numbers:
    """(L, ...) as (L / chunks, chunks, ...)."""
    return jax.tree.map(lambda x: x.reshape(chunks, x.shape[0] // chunks, *x.shape[1:]).swapaxes(0, 1), numbers)


def join(numbers: Numbers) -> Numbers:
    """(T, K, ...) as (K * T, ...): the inverse of `split`."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), numbers)


def states(steps: Affine, start: Numbers | None, *, reverse: bool) -> Numbers:
    """All states (T, K, B, N) from `start` (B, N), the state before the first step of the first chunk; zero if None."""
    return sequential.states(steps, _starts(steps, start, reverse=reverse), reverse=reverse)


def adjoints(a: Numbers, x: Numbers, g: Numbers, *, reverse: bool) -> tuple[Numbers, Numbers]:
    """As in `sequential`: the adjoint states, and for a constant `a` the sum of w_k conj(x_(k-1))."""
    ends = _ends(a.conj(), g) if varies(a) else _starts(Affine(a.conj(), g), None, reverse=not reverse)
    return sequential.adjoints(a, x, g, reverse=reverse, end=ends)


def _starts(steps: Affine, start: Numbers | None, *, reverse: bool) -> Numbers:
    """The state before every chunk, (K, B, N); with `reverse`, the one after it."""
    zero = zeros(take(steps.b, 0))
    if not steps.varies:

        def from_zero(x: Numbers, b_k: Numbers) -> tuple[Numbers, None]:
            """The states (K, B, N) of all chunks after one more step."""
            return Affine(steps.a, b_k)(x), None

        end = jax.lax.scan(from_zero, zero, steps.b, reverse=reverse, unroll=1)[0]
        return _chained(Affine(_power(steps.a, steps.length), end), start, reverse=reverse)

    def compose(chunks: Affine, step: Affine) -> tuple[Affine, None]:
        """The maps (K, B, N) of all chunks up to and with one more step."""
        return step.after(chunks), None

    chunks = jax.lax.scan(compose, Affine(unit(zero), zero), steps, unroll=1)[0]
    return _chained(chunks, start, reverse=False)


def _ends(a: Numbers, g: Numbers) -> Numbers:
    """a w at the first step after each chunk, (K, B, N), for the adjoint states w of a transition that varies."""

    def compose(chunks: Affine, row: tuple[Numbers, Numbers]) -> tuple[Affine, None]:
        """The maps (K, B, N) of all chunks from one more, earlier step on."""
        a_k, g_k = row
        return Affine(a_k * chunks.a, a_k * (g_k + chunks.b)), None

    zero = zeros(take(g, 0))
    chunks = jax.lax.scan(compose, Affine(unit(zero), zero), (a, g), reverse=True, unroll=1)[0]
    return _chained(chunks, None, reverse=True)


def _chained(chunks: Affine, start: Numbers | None, *, reverse: bool) -> Numbers:
    """The state (K, B, N) before each of the steps `chunks`, one after another."""
    start = zeros(take(chunks.b, 0)) if start is None else start
    if chunks.varies:
        return jax.lax.scan(lambda x, chunk: (chunk(x), x), start, chunks, reverse=reverse, unroll=1)[1]
    following = jax.lax.scan(lambda x, b: (Affine(chunks.a, b)(x), x), start, chunks.b, reverse=reverse, unroll=1)
    return following[1]


def _power(a: Numbers, exponent: int) -> Numbers:
    """a^exponent for an exponent of at least 1, by squaring."""
    if exponent == 1:
        return a
    even = _power(a * a, exponent // 2)
    return even * a if exponent % 2 else even
