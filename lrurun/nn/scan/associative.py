"""Logarithmic depth, for accelerators: solve every second step, whose transition is that of two, then fill in the rest.

Where the transition does not depend on time, each level needs only one power of it besides the states. The general
associative scan of jax computes a product for every step, and the products of all steps so far.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.nn.scan.affine import Affine, Numbers, chain, flip, take, varies, zeros

EVEN, ODD = slice(0, None, 2), slice(1, None, 2)
FIRST, LATER, EARLIER = slice(1), slice(1, None), slice(-1)


def states(steps: Affine, start: Numbers | None, *, reverse: bool) -> Numbers:
    """All states (T, ...) from `start` (...), the state before the first step; zero if None."""
    if reverse:
        steps = Affine(flip(steps.a) if steps.varies else steps.a, flip(steps.b))
    if start is not None:
        first = steps.at(FIRST)(jax.tree.map(lambda array: array[None], start))
        steps = Affine(steps.a, chain(first, take(steps.b, LATER)))
    x = _solved(steps)
    return flip(x) if reverse else x


def _solved(steps: Affine) -> Numbers:
    """All states (T, ...) from zero."""
    length = steps.length
    if length == 1:
        return steps.b
    even, odd = steps.at(EVEN), steps.at(ODD)
    at_odd = _solved(odd.after(even.at(slice(length // 2))))
    at_even = chain(take(even.b, FIRST), even.at(LATER)(take(at_odd, slice((length - 1) // 2))))
    return jax.tree.map(_interleaved, at_even, at_odd)


def _interleaved(even: Array, odd: Array) -> Array:
    """(T, ...) with rows of `even` (T - T // 2, ...) and of `odd` (T // 2, ...) in turn."""
    count = odd.shape[0]
    pairs = jnp.stack([even[:count], odd], axis=1).reshape(2 * count, *odd.shape[1:])
    return pairs if even.shape[0] == count else jnp.concatenate([pairs, even[count:]])


def adjoints(a: Numbers, x: Numbers, g: Numbers, *, reverse: bool) -> tuple[Numbers, Numbers]:
    """As in `sequential`: the adjoint states, and for a constant `a` the sum of w_k conj(x_(k-1))."""
    if varies(a):
        after = chain(take(a, LATER), zeros(take(a, FIRST)))
        return states(Affine(after.conj(), g), None, reverse=True), None
    w = states(Affine(a.conj(), g), None, reverse=not reverse)
    now, before = (EARLIER, LATER) if reverse else (LATER, EARLIER)
    terms = take(w, now) * take(x, before).conj()
    return w, jax.tree.map(lambda array: jnp.sum(array, axis=tuple(range(array.ndim - 1))), terms)
