"""One step after another: the fastest form on a CPU, and the most accurate near |a| = 1."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from lrurun.nn.scan.affine import Affine, Numbers, aligned, take, varies, zeros
from lrurun.nn.scan.in_place import scan_in_place


def states(steps: Affine, start: Numbers | None, *, reverse: bool) -> Numbers:
    """All states (T, ...) from `start` (...), the state before the first step; zero if None."""

    def step(x: Numbers, b_k: Numbers, a_k: Numbers) -> tuple[Numbers, Numbers]:
        """The state (...) after `x` (...)."""
        x = Affine(steps.a if a_k is None else a_k, b_k)(x)
        return x, x

    start = zeros(take(steps.b, 0)) if start is None else start
    return scan_in_place(step, start, steps.b, steps.a if steps.varies else None, reverse=reverse)[1]


def adjoints(
    a: Numbers, x: Numbers, g: Numbers, *, reverse: bool, end: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """The adjoint states w_k = g_k + conj(a_(k+1)) w_(k+1), and sum_k w_k conj(x_(k-1)) if `a` is constant, else None.

    `x` are the states and `g` their cotangents, (T, ...); `end` is conj(a_(k+1)) w_(k+1) at the last step, or
    w_(k+1) if `a` is constant, zero if None. The sum leaves out the first step, whose x_(k-1) is the initial state.
    """
    end = zeros(take(g, 0)) if end is None else end
    if varies(a):
        return _of_varying(a, g, end), None
    adjoint = aligned(a.conj(), end)

    def step(carry: tuple[Numbers, Numbers], g_k: Numbers, x_k: Numbers) -> tuple[Any, Numbers]:
        """The adjoint state (...) of a step, after the next one's; the sum (...) for each number of a batch."""
        w, da = carry
        # this w belongs to the step after this one, so its x_(k-1) is the x of this step: no shifted copy is needed
        da = da + w * x_k.conj()
        w = g_k + adjoint * w
        return (w, da), w

    da = zeros(end * take(x, 0).conj())
    (_, da), w = scan_in_place(step, (end, da), g, x, reverse=not reverse)
    return w, jax.tree.map(lambda array: jnp.sum(array, axis=tuple(range(array.ndim - 1))), da)


def _of_varying(a: Numbers, g: Numbers, end: Numbers) -> Numbers:
    """The adjoint states (T, ...) where `a` (T, ...) varies."""

    # the carry is what is written, and g_k is read once: otherwise XLA:CPU copies all of g at every step
    def step(carry: tuple[Numbers, Numbers], g_k: Numbers, a_k: Numbers) -> tuple[Any, Numbers]:
        w, a_after = carry
        w = g_k + a_after.conj() * w
        return (w, a_k), w

    return scan_in_place(step, (end, unit(end)), g, a, reverse=True)[1]


def unit(like: Numbers) -> Numbers:
    """Ones of the type and the shapes of `like`: the factor of a step that changes nothing."""
    return zeros(like) + 1.0
