"""The recurrence x_k = a_k x_(k-1) + b_k, whose factor a depends on time: gated and selective recurrences.

Numbers are real, one array, or complex, a pair (re, im). `lrurun.nn.scan.linear_scan` is faster where a does not
depend on time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.nn.pairs import Pair
from lrurun.nn.scan import chunked, resolve
from lrurun.nn.scan.in_place import scan_in_place

_Numbers = tuple[Array, ...]
"""(x,) of real numbers or (re, im), arrays of one shape."""


def _times(a: _Numbers, x: _Numbers) -> _Numbers:
    if len(a) == 1:
        return (a[0] * x[0],)
    return a[0] * x[0] - a[1] * x[1], a[0] * x[1] + a[1] * x[0]


def _add(a: _Numbers, b: _Numbers) -> _Numbers:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _conjugate(a: _Numbers) -> _Numbers:
    return a if len(a) == 1 else (a[0], -a[1])


def _zero(like: _Numbers) -> _Numbers:
    return tuple(jnp.zeros_like(part[0]) for part in like)


def varying_scan(
    a: Array | Pair,
    b: Array | Pair,
    *,
    initial: Array | Pair | None = None,
    reset: Array | None = None,
    backend: str = "auto",
) -> Array | Pair:
    """All states of x_k = a_k x_(k-1) + b_k, as real arrays or as pairs, like `a` and `b`.

    `a` and `b` are (T, B, N), time first; `initial`, the state before the first step, is (B, N), zero if None; where
    `reset` (T, B) is true, the state before is forgotten: a_k counts as 0. Differentiable once in `a`, `b` and
    `initial`; only `a`, `initial` and the states x are kept for the gradient: with the gradients g of x, those of b are
    d_k = g_k + conj(a_(k+1)) d_(k+1), those of a are d_k conj(x_(k-1)).

    As in `lrurun.nn.scan.linear_scan`, arrays (T, K, B, N), see `split`, are K chunks side by side, and the backend
    "chunked" splits arrays (T, B, N) itself. It multiplies the factors of a chunk, and never divides by a product,
    which underflows soon: after 103 steps of 0.43.

    Raises ValueError for an unknown backend, shapes that do not fit, and a real number with a complex one.
    """
    name = resolve(backend)
    one_array = not isinstance(b, tuple)
    a_, b_ = _numbers(a), _numbers(b)
    start = None if initial is None else _numbers(initial)
    _check(a_, b_, start, reset)
    if reset is not None:
        a_ = tuple(jnp.where(reset[..., None], jnp.zeros_like(part), part) for part in a_)
    chunks = chunked.most(len(b_[0])) if name == "chunked" and b_[0].ndim == 3 else 0
    if chunks:
        a_, b_ = tuple(chunked.split(part, chunks) for part in a_), tuple(chunked.split(part, chunks) for part in b_)
    x = _scan(a_, b_, start, "chunked" if b_[0].ndim == 4 else name)
    x = tuple(chunked.join(part) for part in x) if chunks else x
    return x[0] if one_array else (x[0], x[1])


def _numbers(x: Array | Pair) -> _Numbers:
    return x if isinstance(x, tuple) else (x,)


def _check(a: _Numbers, b: _Numbers, initial: _Numbers | None, reset: Array | None) -> None:
    shapes = {part.shape for part in (*a, *b)}
    shape = b[0].shape
    fits = len(shapes) == 1 and len(shape) in (3, 4) and 0 not in shape[:-2] and len(a) == len(b)
    if initial is not None:
        fits = fits and len(initial) == len(b) and {part.shape for part in initial} == {shape[-2:]}
    if reset is not None:
        fits = fits and reset.shape == shape[:-1]
    if not fits:
        start = None if initial is None else [part.shape for part in initial]
        raise ValueError(
            "a and b must both be real or both complex, (T, B, N) with T > 0, initial (B, N), reset (T, B), "
            f"found shapes {[part.shape for part in a]}, {[part.shape for part in b]}, {start}, "
            f"{None if reset is None else reset.shape}"
        )


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _scan(a: _Numbers, b: _Numbers, initial: _Numbers | None, backend: str) -> _Numbers:
    if backend == "associative":
        return _associative(a, b, initial)
    return _forward(a, b, _starts(a, b, initial) if backend == "chunked" else initial)


_Residuals = tuple[_Numbers, _Numbers, _Numbers | None]


def _scan_forward(a: _Numbers, b: _Numbers, initial: _Numbers | None, backend: str) -> tuple[_Numbers, _Residuals]:
    x = _scan(a, b, initial, backend)
    return x, (a, x, initial)


def _scan_backward(backend: str, kept: _Residuals, g: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers | None]:
    a, x, initial = kept
    a = _conjugate(a)
    if backend == "associative":
        d = _associative_adjoint(a, g)
    else:
        d = _adjoint(a, g, _ends(a, g) if backend == "chunked" else _zero(g))
    da = _times(d, _conjugate(_before(x, initial)))
    first = (0,) * (g[0].ndim - 2)  # of the first chunk, if there are several
    d_initial = None if initial is None else _times(tuple(p[first] for p in a), tuple(p[first] for p in d))
    return da, d, d_initial


_scan.defvjp(_scan_forward, _scan_backward)


def _before(x: _Numbers, initial: _Numbers | None) -> _Numbers:
    """The state before every step, of states `x` (T, B, N) or (T, K, B, N)."""
    shifted = []
    for i, part in enumerate(x):
        first = jnp.zeros_like(part[:1, ..., :1, :, :]) if part.ndim == 4 else jnp.zeros_like(part[:1])
        if initial is not None:
            first = initial[i].reshape(first.shape)
        if part.ndim == 4:  # the first step of a chunk follows the last one of the chunk before it
            first = jnp.concatenate([first, part[-1:, :-1]], axis=1)
        shifted.append(jnp.concatenate([first, part[:-1]]))
    return tuple(shifted)


# One step after another, and chunks side by side.


def _forward(a: _Numbers, b: _Numbers, initial: _Numbers | None) -> _Numbers:
    def step(x: _Numbers, b_k: _Numbers, a_k: _Numbers) -> tuple[_Numbers, _Numbers]:
        x = _add(_times(a_k, x), b_k)
        return x, x

    return scan_in_place(step, _zero(b) if initial is None else initial, b, a, reverse=False)[1]


def _adjoint(a: _Numbers, g: _Numbers, final: _Numbers) -> _Numbers:
    """d_k = g_k + a_(k+1) d_(k+1), where `final` is a d of the step after the last one."""

    # the carry is what is written, and g_k is read once: otherwise XLA:CPU copies all of g at every step
    def step(carry: tuple[_Numbers, _Numbers], g_k: _Numbers, a_k: _Numbers) -> tuple[Any, _Numbers]:
        a_after, d_after = carry
        d = _add(g_k, _times(a_after, d_after))
        return (a_k, d), d

    return scan_in_place(step, (_unit(g), final), g, a, reverse=True)[1]


def _starts(a: _Numbers, b: _Numbers, initial: _Numbers | None) -> _Numbers:
    """The state before each chunk, (K, B, N): its last state from zero, then from the true one, chunk after chunk."""

    def step(
        carry: tuple[_Numbers, _Numbers], row: tuple[_Numbers, _Numbers]
    ) -> tuple[tuple[_Numbers, _Numbers], None]:
        (x, product), (a_k, b_k) = carry, row
        return (_add(_times(a_k, x), b_k), _times(a_k, product)), None

    (end, product), _ = jax.lax.scan(step, (_zero(b), _unit(b)), (a, b), unroll=1)
    return _chained(product, end, _zero(end) if initial is None else initial, reverse=False)


def _ends(a: _Numbers, g: _Numbers) -> _Numbers:
    """`final` of `_adjoint` for each chunk, (K, B, N)."""

    def step(
        carry: tuple[_Numbers, _Numbers], row: tuple[_Numbers, _Numbers]
    ) -> tuple[tuple[_Numbers, _Numbers], None]:
        (after, product), (a_k, g_k) = carry, row
        return (_times(a_k, _add(g_k, after)), _times(a_k, product)), None

    (first, product), _ = jax.lax.scan(step, (_zero(g), _unit(g)), (a, g), reverse=True, unroll=1)
    return _chained(product, first, _zero(first), reverse=True)


def _unit(like: _Numbers) -> _Numbers:
    real, *imaginary = _zero(like)
    return (real + 1.0, *imaginary)


def _chained(product: _Numbers, end: _Numbers, start: _Numbers, *, reverse: bool) -> _Numbers:
    """The state that each chunk starts from, where one that starts from x ends in product x + end."""

    def step(x: _Numbers, row: tuple[_Numbers, _Numbers]) -> tuple[_Numbers, _Numbers]:
        return _add(_times(row[0], x), row[1]), x

    return jax.lax.scan(step, start, (product, end), reverse=reverse, unroll=1)[1]


# Logarithmic depth, for accelerators.


def _associative(a: _Numbers, b: _Numbers, initial: _Numbers | None, *, reverse: bool = False) -> _Numbers:
    if initial is not None:
        first = _add(_times(tuple(p[:1] for p in a), tuple(p[None] for p in initial)), tuple(p[:1] for p in b))
        b = tuple(jnp.concatenate([start, part[1:]]) for start, part in zip(first, b, strict=True))

    def after(earlier: tuple[_Numbers, _Numbers], later: tuple[_Numbers, _Numbers]) -> tuple[_Numbers, _Numbers]:
        return _times(later[0], earlier[0]), _add(_times(later[0], earlier[1]), later[1])

    states: _Numbers = jax.lax.associative_scan(after, (a, b), reverse=reverse)[1]
    return states


def _associative_adjoint(a: _Numbers, g: _Numbers) -> _Numbers:
    shifted = tuple(jnp.concatenate([part[1:], jnp.zeros_like(part[:1])]) for part in a)
    return _associative(shifted, g, None, reverse=True)
