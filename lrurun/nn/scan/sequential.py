"""One step after another: the fastest form on a CPU, and the most accurate near |lambda| = 1."""

from __future__ import annotations

import jax.numpy as jnp

from lrurun.nn.pairs import Pair, expand, times_add
from lrurun.nn.scan.in_place import scan_in_place

_Carry = tuple[Pair, Pair]


def forward(lam: Pair, v: Pair, initial: Pair | None, reverse: bool) -> Pair:
    """The states, a pair of (T, ..., N), of the recurrence with `lam` (N,) driven by `v` (T, ..., N)."""

    def step(x: Pair, v_k: Pair, _: None) -> tuple[Pair, Pair]:
        x = times_add(lam, x, v_k)
        return x, x

    start = (jnp.zeros_like(v[0][0]), jnp.zeros_like(v[1][0])) if initial is None else initial
    return scan_in_place(step, start, v, None, reverse=reverse)[1]


def backward(lam: Pair, x: Pair, g: Pair, reverse: bool, final: Pair | None = None) -> tuple[Pair, Pair]:
    """The adjoint states w_k = g_k + conj(lam) w_(k+1), (T, ..., N), and sum_k w_k conj(x_(k-1)), (N,).

    `x` are the states, `g` the cotangents of them, `final` the adjoint state after the last step, zero if None. The sum
    leaves out the first step, whose x_(k-1) is the initial state.
    """
    lam_re, lam_im = expand(lam, g[0].ndim - 1)

    def step(carry: _Carry, g_k: Pair, x_k: Pair) -> tuple[_Carry, Pair]:
        (w_re, w_im), (d_re, d_im) = carry
        (g_re, g_im), (x_re, x_im) = g_k, x_k
        # the carried w belongs to the step after this one, so its x_(k-1) is this step's x: no shifted copy is needed
        d = (d_re + w_re * x_re + w_im * x_im, d_im + w_im * x_re - w_re * x_im)
        w = (g_re + lam_re * w_re + lam_im * w_im, g_im + lam_re * w_im - lam_im * w_re)
        return (w, d), w

    zero = jnp.zeros_like(g[0][0])
    start = (zero, zero) if final is None else final
    (_, (d_re, d_im)), w = scan_in_place(step, (start, (zero, zero)), g, x, reverse=not reverse)
    leading = tuple(range(d_re.ndim - 1))
    return w, (jnp.sum(d_re, axis=leading), jnp.sum(d_im, axis=leading))
