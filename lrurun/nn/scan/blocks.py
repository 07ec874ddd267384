"""The recurrence x_k = A x_(k-1) + v_k with a real block-diagonal A, whose blocks have size 2."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.nn.pairs import Pair
from lrurun.nn.scan.associative import interleave
from lrurun.nn.scan.in_place import scan_in_place


def times_add(a: Array, x: Pair, v: Pair) -> Pair:
    """A x + v for the blocks `a` (M, 2, 2): the first and the second number of each block, (..., M) each."""
    rows = a.transpose(1, 2, 0).reshape(2, 2, *[1] * (x[0].ndim - 1), -1)
    return rows[0, 0] * x[0] + rows[0, 1] * x[1] + v[0], rows[1, 0] * x[0] + rows[1, 1] * x[1] + v[1]


def _solve(a: Array, v: Pair) -> Pair:
    """The states in logarithmic depth, as `lrurun.nn.scan.associative` for one complex number in place of a block."""
    length = v[0].shape[0]
    if length == 1:
        return v
    even, odd = (v[0][0::2], v[1][0::2]), (v[0][1::2], v[1][1::2])
    half, before = length // 2, (length - 1) // 2
    square = jnp.einsum("mij,mjk->mik", a, a, precision="highest")
    at_odd = _solve(square, times_add(a, (even[0][:half], even[1][:half]), odd))
    rest = times_add(a, (at_odd[0][:before], at_odd[1][:before]), (even[0][1:], even[1][1:]))
    at_even = [jnp.concatenate([e[:1], r]) for e, r in zip(even, rest, strict=True)]
    return interleave(at_even[0], at_odd[0]), interleave(at_even[1], at_odd[1])


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def block_scan(a: Array, v: Pair, reverse: bool, backend: str) -> Pair:
    """States, a pair of (T, B, M), of x_k = A x_(k-1) + v_k from zero, with blocks `a` (M, 2, 2); else `linear_scan`.

    The backend is "associative", or any other name for one step after another.
    """
    if backend == "associative":
        x = _solve(a, (jnp.flip(v[0], 0), jnp.flip(v[1], 0)) if reverse else v)
        return (jnp.flip(x[0], 0), jnp.flip(x[1], 0)) if reverse else x

    def step(x: Pair, v_k: Pair, _: None) -> tuple[Pair, Pair]:
        x = times_add(a, x, v_k)
        return x, x

    return scan_in_place(step, (jnp.zeros_like(v[0][0]), jnp.zeros_like(v[1][0])), v, None, reverse=reverse)[1]


def _forward(a: Array, v: Pair, reverse: bool, backend: str) -> tuple[Pair, tuple[Array, Pair]]:
    x = block_scan(a, v, reverse, backend)
    return x, (a, x)


def _backward(reverse: bool, backend: str, kept: tuple[Array, Pair], g: Pair) -> tuple[Array, Pair]:
    a, x = kept
    w = block_scan(a.swapaxes(1, 2), g, not reverse, backend)
    now, before = (slice(None, -1), slice(1, None)) if reverse else (slice(1, None), slice(None, -1))
    da = [[jnp.sum(of_row[now] * of_column[before], axis=(0, 1)) for of_column in x] for of_row in w]
    return jnp.stack([jnp.stack(row) for row in da]).transpose(2, 0, 1), w


block_scan.defvjp(_forward, _backward)
