"""The diagonal linear recurrence x_k = lambda x_(k-1) + v_k, its backends and its one gradient.

Complex numbers are pairs (re, im) of float32 arrays throughout: separate real arrays are faster than complex64 on every
backend that was measured, and no optimizer or checkpoint ever meets a complex leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.scan import associative, sequential

Pair = tuple[Array, Array]
"""Real and imaginary part, of one shape."""

_Forward = Callable[[Pair, Pair, Pair | None, bool], Pair]
_Backward = Callable[[Pair, Pair, Pair, bool], tuple[Pair, Pair]]

BACKENDS: Final[dict[str, tuple[_Forward, _Backward]]] = {
    "sequential": (sequential.forward, sequential.backward),
    "associative": (associative.forward, associative.backward),
}
"""Name -> (states of the recurrence, adjoint states and the part of dlambda between steps)."""


def resolve(backend: str) -> str:
    """The backend that `backend` stands for on this machine: "auto" is sequential on CPU and associative elsewhere.

    Raises ValueError for an unknown name.
    """
    if backend == "auto":
        return "sequential" if jax.default_backend() == "cpu" else "associative"
    if backend not in BACKENDS:
        raise ValueError(f"scan backend must be one of auto, {', '.join(BACKENDS)}, found {backend!r}")
    return backend


def linear_scan(
    lam: Pair, v: Pair, *, reverse: bool = False, initial: Pair | None = None, backend: str = "auto"
) -> Pair:
    """All states of x_k = lam x_(k-1) + v_k (Orvieto et al. 2023, eq. 2, with Bu for v).

    `lam` is a pair of (N,), `v` a pair of (T, B, N), time first, `initial` the state before the first step, a pair of
    (B, N), zero if None. Returns the pair of (T, B, N). With `reverse`, x_k = lam x_(k+1) + v_k, and `initial` is the
    state after the last step. Differentiable once in `lam`, `v` and `initial`; only `lam`, `initial` and the states are
    kept for the gradient, which is the reversed recurrence with the conjugate of `lam`.

    Raises ValueError for an unknown backend and for shapes that do not fit.
    """
    name = resolve(backend)
    for what, pair, rank in (("lam", lam, 1), ("v", v, 3), ("initial", initial, 2)):
        if pair is not None and not (pair[0].shape == pair[1].shape and pair[0].ndim == rank):
            raise ValueError(f"{what} must be two arrays of rank {rank}, found shapes {pair[0].shape}, {pair[1].shape}")
    if v[0].shape[0] == 0 or lam[0].shape != v[0].shape[2:] or (initial and initial[0].shape != v[0].shape[1:]):
        shapes = f"lam {lam[0].shape}, v {v[0].shape}, initial {initial[0].shape if initial else None}"
        raise ValueError(f"shapes must be (N,), (T, B, N) with T > 0 and (B, N), found {shapes}")
    return _scan(lam, v, initial, reverse, name)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _scan(lam: Pair, v: Pair, initial: Pair | None, reverse: bool, backend: str) -> Pair:
    return BACKENDS[backend][0](lam, v, initial, reverse)


_Residuals = tuple[Pair, Pair, Pair | None]


def _scan_forward(lam: Pair, v: Pair, initial: Pair | None, reverse: bool, backend: str) -> tuple[Pair, _Residuals]:
    x = _scan(lam, v, initial, reverse, backend)
    return x, (lam, x, initial)


def _scan_backward(reverse: bool, backend: str, kept: _Residuals, g: Pair) -> tuple[Pair, Pair, Pair | None]:
    lam, x, initial = kept
    w, (dlam_re, dlam_im) = BACKENDS[backend][1](lam, x, g, reverse)
    if initial is None:
        return (dlam_re, dlam_im), w, None
    first = -1 if reverse else 0
    w_re, w_im = w[0][first], w[1][first]
    x_re, x_im = initial
    dlam = (
        dlam_re + jnp.sum(w_re * x_re + w_im * x_im, axis=0),
        dlam_im + jnp.sum(w_im * x_re - w_re * x_im, axis=0),
    )
    lam_re, lam_im = lam[0][None], lam[1][None]
    return dlam, w, (lam_re * w_re + lam_im * w_im, lam_re * w_im - lam_im * w_re)


_scan.defvjp(_scan_forward, _scan_backward)
