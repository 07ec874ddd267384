"""The linear recurrence x_k = a_k x_(k-1) + b_k: three forms of its scan, and one gradient for all of them.

`affine.py` has the step and its composition; `sequential.py`, `chunked.py` and `associative.py` the forms.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Final

import jax
import jax.numpy as jnp

from lrurun.nn.axes import Array
from lrurun.nn.complex import Complex, Packed
from lrurun.nn.scan import associative, chunked, sequential
from lrurun.nn.scan.affine import Affine, Numbers, aligned, chain, take, varies, zeros

split, join = chunked.split, chunked.join
"""(L, ...) as K consecutive chunks side by side, (L / K, K, ...), and back."""

BACKENDS: Final[dict[str, ModuleType]] = {
    "sequential": sequential,
    "chunked": chunked,
    "associative": associative,
}
"""Name -> module with the states of the recurrence and its adjoint states. All take (T, B, N), except "chunked", which
takes (T, K, B, N)."""


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
    a: Numbers,
    b: Numbers,
    *,
    initial: Numbers | None = None,
    reverse: bool = False,
    reset: Array | None = None,
    backend: str = "auto",
) -> Numbers:
    """All states of x_k = a_k x_(k-1) + b_k (Orvieto et al. 2023, eq. 7, with lambda for a).

    Numbers are `Complex`, real arrays, or others as `affine.Numbers` describes; the last axis of `Packed` numbers is
    2N. `b` is (T, B, N), time first; `a` is (N,), the same at every step, or (T, B, N); `initial`, the state before the
    first step, is (B, N), zero if None.
    Returns (T, B, N). With `reverse`, for a constant `a`, x_k = a x_(k+1) + b_k, and `initial` is the state after the
    last step. Where `reset` (T, B) is true the state before is forgotten: an `a` that varies counts as 0 there.

    Differentiable once in `a`, `b` and `initial`; only `a`, `initial` and the states x are kept for the gradient, which
    is the reversed recurrence: with the gradients g of x, b has the gradients w_k = g_k + conj(a_(k+1)) w_(k+1), and
    a_k has w_k conj(x_(k-1)).

    If `b` is (T, K, B, N), see `split`, so are the states, and the backend is "chunked". That backend splits arrays
    (T, B, N) itself and joins the states again, which costs copies.

    Raises ValueError for an unknown backend and for shapes that do not fit.
    """
    name = resolve(backend)
    _check(a, b, initial, reverse, reset)
    rank = jax.tree.leaves(b)[0].ndim
    if reset is not None:
        a = jax.tree.map(lambda array: jnp.where(reset[..., None], jnp.zeros_like(array), array), a)
    if rank == 4:
        return _scan(a, b, initial, reverse, "chunked")
    if name != "chunked":
        return _scan(a, b, initial, reverse, name)
    chunks = chunked.most(len(jax.tree.leaves(b)[0]))
    return join(_scan(split(a, chunks) if varies(a) else a, split(b, chunks), initial, reverse, name))


def _check(a: Numbers, b: Numbers, initial: Numbers | None, reverse: bool, reset: Array | None) -> None:
    of_a, of_b, of_initial = (
        sorted({array.shape for array in jax.tree.leaves(numbers)}) for numbers in (a, b, initial)
    )
    shape = of_b[0]
    if len(of_b) > 1 or len(shape) not in (3, 4) or 0 in shape[:-2]:
        raise ValueError(f"b must be (T, B, N) with T > 0, found {of_b}")
    if any(isinstance(a, kind) is not isinstance(b, kind) for kind in (Complex, Packed)):
        raise ValueError("a and b must be both real or both Complex or Packed: of reals x make Complex(x, 0.0 * x)")
    if of_a not in ([shape], [shape[-1:]]):
        raise ValueError(f"a must be {shape[-1:]}, or {shape} as b, found {of_a}")
    if of_initial not in ([], [shape[-2:]]):
        raise ValueError(f"initial must be {shape[-2:]}, found {of_initial}")
    if reverse and varies(a):
        raise ValueError("reverse needs an a that is the same at every step: flip a, b and the states instead")
    if reset is not None and (not varies(a) or reset.shape != shape[:-1]):
        raise ValueError(f"reset must be {shape[:-1]} and needs an a that varies, found {reset.shape}, a {of_a}")


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _scan(a: Numbers, b: Numbers, initial: Numbers | None, reverse: bool, backend: str) -> Numbers:
    return BACKENDS[backend].states(Affine(a, b), initial, reverse=reverse)


_Kept = tuple[Numbers, Numbers, Numbers | None]


def _scan_forward(
    a: Numbers, b: Numbers, initial: Numbers | None, reverse: bool, backend: str
) -> tuple[Numbers, _Kept]:
    x = _scan(a, b, initial, reverse, backend)
    return x, (a, x, initial)


def _scan_backward(reverse: bool, backend: str, kept: _Kept, g: Numbers) -> tuple[Numbers, Numbers, Numbers | None]:
    a, x, initial = kept
    w, da = BACKENDS[backend].adjoints(a, x, g, reverse=reverse)
    chunks = jax.tree.leaves(w)[0].ndim - 3
    at_first = (-1 if reverse else 0,) * (1 + chunks)  # of the first chunk, if there are several
    first = take(w, at_first)
    if varies(a):
        da = w * _before(x, initial).conj()
        return da, w, None if initial is None else take(a, at_first).conj() * first
    if initial is None:
        return da, w, None
    da = da + jax.tree.map(lambda array: jnp.sum(array, axis=0), first * initial.conj())
    return da, w, aligned(a.conj(), first) * first


_scan.defvjp(_scan_forward, _scan_backward)


def _before(x: Numbers, initial: Numbers | None) -> Numbers:
    """The state before every step, of states `x` (T, B, N) or (T, K, B, N)."""
    rank = jax.tree.leaves(x)[0].ndim
    first = take(x, (slice(1), ..., slice(1), slice(None), slice(None)) if rank == 4 else slice(1))
    first = zeros(first) if initial is None else jax.tree.map(lambda i, f: i.reshape(f.shape), initial, first)
    if rank == 4:  # the first step of a chunk follows the last one of the chunk before it
        first = chain(first, take(x, (slice(-1, None), slice(-1))), axis=1)
    return chain(first, take(x, slice(-1)))
