"""Logarithmic depth for accelerators: solve every second step with lambda squared, then fill in the other half.

Because lambda does not depend on time, each level needs only one power (N,) besides the states; the general associative
scan computes a product for every step.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from lrurun.nn.pairs import Pair, times, times_add


def interleave(even: Array, odd: Array) -> Array:
    count = odd.shape[0]
    pairs = jnp.stack([even[:count], odd], axis=1).reshape(2 * count, *odd.shape[1:])
    return pairs if even.shape[0] == count else jnp.concatenate([pairs, even[count:]])


def _solve(lam: Pair, v: Pair) -> Pair:
    length = v[0].shape[0]
    if length == 1:
        return v
    even, odd = (v[0][0::2], v[1][0::2]), (v[0][1::2], v[1][1::2])
    half = length // 2
    at_odd = _solve(times(lam, lam), times_add(lam, (even[0][:half], even[1][:half]), odd))
    before = (length - 1) // 2
    rest = times_add(lam, (at_odd[0][:before], at_odd[1][:before]), (even[0][1:], even[1][1:]))
    at_even = [jnp.concatenate([e[:1], r]) for e, r in zip(even, rest, strict=True)]
    return interleave(at_even[0], at_odd[0]), interleave(at_even[1], at_odd[1])


def forward(lam: Pair, v: Pair, initial: Pair | None, reverse: bool) -> Pair:
    """The states, a pair of (T, B, N), of the recurrence with `lam` (N,) driven by `v` (T, B, N)."""
    if reverse:
        v = (jnp.flip(v[0], 0), jnp.flip(v[1], 0))
    if initial is not None:
        first = times_add(lam, (initial[0][None], initial[1][None]), (v[0][:1], v[1][:1]))
        v = (jnp.concatenate([first[0], v[0][1:]]), jnp.concatenate([first[1], v[1][1:]]))
    re, im = _solve(lam, v)
    return (jnp.flip(re, 0), jnp.flip(im, 0)) if reverse else (re, im)


def backward(lam: Pair, x: Pair, g: Pair, reverse: bool) -> tuple[Pair, Pair]:
    """The adjoint states w_k = g_k + conj(lam) w_(k+1), (T, B, N), and sum_k w_k conj(x_(k-1)), (N,).

    `x` are the states, `g` the cotangents of them. The sum leaves out the first step, whose x_(k-1) is the initial
    state.
    """
    w_re, w_im = forward((lam[0], -lam[1]), g, None, not reverse)
    now, before = (slice(None, -1), slice(1, None)) if reverse else (slice(1, None), slice(None, -1))
    a_re, a_im, b_re, b_im = w_re[now], w_im[now], x[0][before], x[1][before]
    d_re = jnp.sum(a_re * b_re + a_im * b_im, axis=(0, 1))
    d_im = jnp.sum(a_im * b_re - a_re * b_im, axis=(0, 1))
    return (w_re, w_im), (d_re, d_im)
