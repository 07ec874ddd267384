"""The step x_k = a x_(k-1) + b that all forms of the scan repeat and compose."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lrurun.nn.axes import expand

Numbers = Any
"""Real arrays, `Complex` or `Packed` numbers, or others with `*`, `+` and `conj()`, the conjugate transpose: one number
or block for each position of the state. Time is the first axis."""


class Affine(NamedTuple):
    """The step x -> a x + b, or the steps of a sequence.

    Of a sequence, `b` is (T, ..., N), and `a` either (T, ..., N) or (N,), the same at every step.
    """

    a: Numbers
    b: Numbers

    def __call__(self, x: Numbers) -> Numbers:
        """The state after `x`."""
        return aligned(self.a, x) * x + self.b

    def after(self, earlier: Affine) -> Affine:
        """The composition: this step after an earlier one."""
        return Affine(self.a * earlier.a, aligned(self.a, earlier.b) * earlier.b + self.b)

    @property
    def varies(self) -> bool:
        """Whether `a` depends on time."""
        return varies(self.a)

    @property
    def length(self) -> int:
        """T."""
        return len(jax.tree.leaves(self.b)[0])

    def at(self, rows: slice) -> Affine:
        """The steps of these rows."""
        return Affine(take(self.a, rows) if self.varies else self.a, take(self.b, rows))


def aligned(a: Numbers, x: Numbers) -> Numbers:
    """`a` with as many leading axes of size 1 as it takes to multiply each row of `x`."""
    rank = jax.tree.leaves(x)[0].ndim
    return jax.tree.map(lambda array: expand(array, rank), a)


def varies(a: Numbers) -> bool:
    """Whether `a` has an axis of time."""
    return jax.tree.leaves(a)[0].ndim > 1


def take(numbers: Numbers, rows: Any) -> Numbers:
    """The same rows, by an index or a slice, of all arrays in `numbers`."""
    return jax.tree.map(lambda array: array[rows], numbers)


def chain(*parts: Numbers, axis: int = 0) -> Numbers:
    """Numbers one after another."""
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays, axis), *parts)


def flip(numbers: Numbers) -> Numbers:
    """Numbers in the reverse order of time."""
    return jax.tree.map(lambda array: jnp.flip(array, 0), numbers)


def zeros(like: Numbers) -> Numbers:
    """Zeros of the shapes of `like`."""
    return jax.tree.map(jnp.zeros_like, like)
