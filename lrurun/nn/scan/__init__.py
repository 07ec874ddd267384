"""The diagonal linear recurrence x_k = lambda x_(k-1) + v_k: its backends, and one gradient for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import jax
import jax.numpy as jnp

from lrurun.nn.pairs import Pair
from lrurun.nn.scan import associative, chunked, sequential

split, join = chunked.split, chunked.join
"""(L, ...) as K consecutive chunks side by side, (L / K, K, ...), and back."""

_Forward = Callable[[Pair, Pair, Pair | None, bool], Pair]
_Backward = Callable[[Pair, Pair, Pair, bool], tuple[Pair, Pair]]

BACKENDS: Final[dict[str, tuple[_Forward, _Backward]]] = {
    "sequential": (sequential.forward, sequential.backward),
    "chunked": (chunked.forward, chunked.backward),
    "associative": (associative.forward, associative.backward),
}
"""Name -> (states of the recurrence, adjoint states and the part of dlambda between steps). All take (T, B, N), except
"chunked", which takes (T, K, B, N)."""


def resolve(backend: str) -> str:
    """The backend that `backend` means on this machine: "auto" is sequential on a CPU and associative elsewhere.

    Raises ValueError for an unknown name.
    """
    if backend == "auto":
        return "sequential" if jax.default_backend() == "cpu" else "associative"
    if backend not in BACKENDS:
        raise ValueError(f"scan backend must be one of auto, {', '.join(BACKENDS)}, found {backend!r}")
    return backend


def chunk_count(length: int, lanes: int, backend: str) -> int:
    """The number of chunks into which a network `split`s its sequences for `backend`; `lanes` is batch times state."""
    if backend == "chunked":
        return chunked.most(length)
    on_cpu = backend == "auto" and jax.default_backend() == "cpu"
    return chunked.count(length, lanes) if on_cpu else 1


def linear_scan(
    lam: Pair, v: Pair, *, reverse: bool = False, initial: Pair | None = None, backend: str = "auto"
) -> Pair:
    """All states of x_k = lam x_(k-1) + v_k (Orvieto et al. 2023, eq. 2, with Bu for v).

    `lam` is a pair of (N,), `v` a pair of (T, B, N), time first, `initial` the state before the first step, a pair of
    (B, N), zero if None. Returns the pair of (T, B, N). With `reverse`, x_k = lam x_(k+1) + v_k, and `initial` is the
    state after the last step. Differentiable once in `lam`, `v` and `initial`; only `lam`, `initial` and the states are
    kept for the gradient, which is the reversed recurrence with the conjugate of `lam`.

    If `v` is a pair of (T, K, B, N), see `split`, so are the states, and the backend is "chunked". That backend splits
    a `v` of (T, B, N) itself and joins the states again, which costs two copies.

    Raises ValueError for an unknown backend and for shapes that do not fit.
    """
    name = resolve(backend)
    for argument, pair, ranks in (("lam", lam, (1,)), ("v", v, (3, 4)), ("initial", initial, (2,))):
        if pair is not None and not (pair[0].shape == pair[1].shape and pair[0].ndim in ranks):
            wanted = " or ".join(map(str, ranks))
            raise ValueError(
                f"{argument} must be two arrays of rank {wanted}, found shapes {pair[0].shape}, {pair[1].shape}"
            )
    shape = v[0].shape
    if 0 in shape[:-2] or lam[0].shape != shape[-1:] or (initial and initial[0].shape != shape[-2:]):
        shapes = f"lam {lam[0].shape}, v {shape}, initial {initial[0].shape if initial else None}"
        raise ValueError(f"shapes must be (N,), (T, B, N) with T > 0 and (B, N), found {shapes}")
    if len(shape) == 4:
        return _scan(lam, v, initial, reverse, "chunked")
    if name != "chunked":
        return _scan(lam, v, initial, reverse, name)
    chunks = chunked.most(shape[0])
    parts = chunked.split(v[0], chunks), chunked.split(v[1], chunks)
    re, im = _scan(lam, parts, initial, reverse, name)
    return chunked.join(re), chunked.join(im)


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
    first = (-1 if reverse else 0,) * (w[0].ndim - 2)  # of the first chunk, if there are several
    w_re, w_im = w[0][first], w[1][first]
    x_re, x_im = initial
    dlam = (
        dlam_re + jnp.sum(w_re * x_re + w_im * x_im, axis=0),
        dlam_im + jnp.sum(w_im * x_re - w_re * x_im, axis=0),
    )
    lam_re, lam_im = lam[0][None], lam[1][None]
    return dlam, w, (lam_re * w_re + lam_im * w_im, lam_re * w_im - lam_im * w_re)


_scan.defvjp(_scan_forward, _scan_backward)
