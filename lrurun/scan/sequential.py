"""One step after the other: the fastest form on a CPU, and the most accurate near |lambda| = 1."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

_Pair = tuple[Array, Array]


def forward(lam: _Pair, v: _Pair, initial: _Pair | None, reverse: bool) -> _Pair:
    """The states, a pair of (T, B, N), of the recurrence with `lam` (N,) driven by `v` (T, B, N)."""
    lam_re, lam_im = lam[0][None], lam[1][None]

    def body(x: _Pair, v_k: _Pair) -> tuple[_Pair, _Pair]:
        re = lam_re * x[0] - lam_im * x[1] + v_k[0]
        im = lam_re * x[1] + lam_im * x[0] + v_k[1]
        return (re, im), (re, im)

    start = (jnp.zeros_like(v[0][0]), jnp.zeros_like(v[1][0])) if initial is None else initial
    # Unrolling makes XLA:CPU recompute the chain inside its fusions: twice as slow at 4 steps, ten times at 32.
    return jax.lax.scan(body, start, v, reverse=reverse, unroll=1)[1]


def backward(lam: _Pair, x: _Pair, g: _Pair, reverse: bool) -> tuple[_Pair, _Pair]:
    """The adjoint states w_k = g_k + conj(lam) w_(k+1), (T, B, N), and sum_k w_k conj(x_(k-1)), (N,).

    `x` are the states, `g` the cotangents of them. The sum leaves out the first step, whose x_(k-1) is the initial
    state.
    """
    lam_re, lam_im = lam[0][None], lam[1][None]

    def body(carry: tuple[_Pair, _Pair], inputs: tuple[_Pair, _Pair]) -> tuple[tuple[_Pair, _Pair], _Pair]:
        (w_re, w_im), (d_re, d_im) = carry
        (g_re, g_im), (x_re, x_im) = inputs
        # The carried w belongs to the step after this one, so its x_(k-1) is this step's x: no shifted copy is needed.
        d = (d_re + w_re * x_re + w_im * x_im, d_im + w_im * x_re - w_re * x_im)
        w = (g_re + lam_re * w_re + lam_im * w_im, g_im + lam_re * w_im - lam_im * w_re)
        return (w, d), w

    zero = jnp.zeros_like(g[0][0])
    (_, (d_re, d_im)), w = jax.lax.scan(body, ((zero, zero), (zero, zero)), (g, x), reverse=not reverse, unroll=1)
    return w, (jnp.sum(d_re, axis=0), jnp.sum(d_im, axis=0))
