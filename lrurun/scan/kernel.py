"""One pass over memory on an NVIDIA GPU: a Mosaic GPU kernel that reads v once and writes x once.

A lane is one state of one sequence. A block has 128 lanes, one a thread, and walks through time with the states in
registers, while the copy engine brings the next steps into shared memory. Lanes too few to fill a GPU are cut into
chunks of time as in `chunked`, at the price of a second read of v. Blocks that wait for the ends of others would save
that read, but only where lanes are few, and waiting cannot be tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import Array

_Pair = tuple[Array, Array]

WIDTH: Final = 128
"""Lanes of a block: as many as a warpgroup has threads."""
TILE: Final = 8
"""Steps of one copy."""
STAGES: Final = 6
"""Copies under way at once: two blocks of the backward kernel, 96 KiB each, fit into a multiprocessor of a Hopper."""

LANES = 8192
"""From so many lanes, a block for every second multiprocessor of a Hopper, one chunk. By arithmetic, not measured: a
block keeps enough bytes under way for about two multiprocessors' share of the memory's speed."""
STEPS = 64
"""The shortest chunk, a power of two and at least TILE."""

INTERPRET: Any = None
"""What `plgpu.kernel` takes as `interpret`: how tests run the kernels without a GPU."""


def supported() -> bool:
    """Whether the default device is an NVIDIA GPU of the Hopper generation or newer."""
    major = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")[0]
    return major.isdigit() and int(major) >= 9


def chunk_steps(length: int, lanes: int) -> int:
    """Steps of a chunk: all of `length`, or a power of two that makes chunks times `lanes` at least twice LANES."""
    steps = STEPS
    while steps < length and (lanes >= LANES or 4 * steps * LANES <= length * lanes):
        steps *= 2
    return min(steps, length)


def _run(
    lam: _Pair, start: _Pair, v: _Pair, reverse: bool, steps: int, x: _Pair | None = None, ends: bool = False
) -> tuple[Array, ...]:
    """The states, a pair of (T, L), of K chunks of `steps` steps, each from its `start`; the last may be shorter.

    `lam` is a pair of (L,), `v` one of (T, L), T and L whole tiles and blocks, `start` one of (K, L), in the order of
    the recurrence. With `x`, a pair of (T, L), also the sums over each chunk of the state before a step times the
    conjugate of `x` there, a pair of (K, L). With `ends`, the last state of each of the first K chunks, (K, L), alone.

    Raises ValueError without a GPU that is `supported`.
    """
    if not (INTERPRET or supported()):
        raise ValueError(
            "scan backend 'pallas' needs an NVIDIA GPU of the Hopper generation or newer as default device, found "
            f"{jax.devices()[0].device_kind}: set execution.scan_backend to auto"
        )
    # Here, because it takes a while and some builds of jax lack it.
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import mosaic_gpu as plgpu

    tiles, per_chunk = v[0].shape[0] // TILE, steps // TILE
    chunks, lanes = start[0].shape
    inputs = v if x is None else v + x
    sums = x is not None

    def body(lam_re: Any, lam_im: Any, start_re: Any, start_im: Any, *refs: Any) -> None:
        streams, outs = refs[: len(inputs)], refs[len(inputs) :]
        chunk, block = jax.lax.axis_index("chunk"), jax.lax.axis_index("block")
        lane = pl.ds(block * WIDTH, WIDTH)
        a, b = lam_re[lane], lam_im[lane]

        def place(i: Array) -> Array:
            """Where in time tile `i` of this chunk is."""
            i = chunk * per_chunk + i
            return tiles - 1 - i if reverse else i

        def tile(indices: tuple[Array], *rest: Any) -> tuple[Array, Array, Array, Array]:
            *buffers, (re, im, d_re, d_im) = rest
            v_re, v_im, *x_t = [[buffer[t] for t in range(TILE)] for buffer in buffers]
            plgpu.commit_smem()  # every thread has read: the next copy may overwrite the buffers
            first = place(indices[0]) * TILE
            for t in reversed(range(TILE)) if reverse else range(TILE):
                if sums:
                    x_re, x_im = x_t[0][t], x_t[1][t]
                    d_re, d_im = d_re + re * x_re + im * x_im, d_im + im * x_re - re * x_im
                # Summed in this order, a step waits for two multiply-adds of the step before.
                re, im = v_re[t] - b * im + a * re, v_im[t] + b * re + a * im
                if not ends:
                    outs[0][first + t, lane] = re
                    outs[1][first + t, lane] = im
            return re, im, d_re, d_im

        spec = plgpu.BlockSpec((TILE, WIDTH), lambda i: (place(i), block))
        zero = a - a  # a constant would not be laid out over threads as what the loop carries
        pipeline = plgpu.emit_pipeline(
            tile,
            grid=(jax.lax.min(per_chunk, tiles - chunk * per_chunk),),
            in_specs=[spec] * len(inputs),
            max_concurrent_steps=STAGES,
            init_carry=(start_re[chunk, lane], start_im[chunk, lane], zero, zero),
        )
        re, im, d_re, d_im = pipeline(*streams)
        if ends or sums:
            outs[-2][chunk, lane], outs[-1][chunk, lane] = (re, im) if ends else (d_re, d_im)

    states, of_chunks = (jax.ShapeDtypeStruct(z.shape, jnp.float32) for z in (v[0], start[0]))
    kernel = plgpu.kernel(
        body,
        out_type=(states, states) * (not ends) + (of_chunks, of_chunks) * (ends or sums),
        grid=(lanes // WIDTH, chunks),
        grid_names=("block", "chunk"),
        # Threads touch no lane but their own, so that a barrier before and after each store is not needed.
        compiler_params=plgpu.CompilerParams(unsafe_no_auto_barriers=True),
        interpret=INTERPRET,
    )
    return tuple(kernel(*lam, *start, *inputs))


def _both(function: Callable[[Array], Array], z: _Pair) -> _Pair:
    return function(z[0]), function(z[1])


def _flat(z: Array) -> Array:
    """(..., B, N) as (..., L), with zeros up to whole blocks."""
    z = z.reshape(*z.shape[:-2], -1)
    lanes = -z.shape[-1] % WIDTH
    return jnp.pad(z, [(0, 0)] * (z.ndim - 1) + [(0, lanes)]) if lanes else z


def _whole(z: Array, reverse: bool) -> Array:
    """(T, L) with zeros after the last step, in the order of the recurrence, up to whole tiles."""
    steps = -z.shape[0] % TILE
    return jnp.pad(z, ((steps, 0) if reverse else (0, steps), (0, 0))) if steps else z


def _starts(lam: _Pair, first: _Pair, v: _Pair, reverse: bool, steps: int) -> _Pair:
    """The state before every chunk, a pair of (K, L), where `first` is the one before the first chunk, (1, L)."""
    before = (v[0].shape[0] - 1) // steps  # chunks that another one follows
    if before == 0:
        return first
    zero = jnp.zeros((before, v[0].shape[1]), jnp.float32)
    ends_re, ends_im = _run(lam, (zero, zero), v, reverse, steps, ends=True)
    power = lam
    for _ in range(steps.bit_length() - 1):
        power = power[0] * power[0] - power[1] * power[1], 2.0 * power[0] * power[1]
    # From chunk to chunk it is the same recurrence, and a chunk is a step.
    ends = _whole(ends_re, False), _whole(ends_im, False)
    re, im = _run(power, first, ends, False, ends[0].shape[0])
    return jnp.concatenate([first[0], re[:before]]), jnp.concatenate([first[1], im[:before]])


def _scan(
    lam: _Pair, v: _Pair, initial: _Pair | None, reverse: bool, x: _Pair | None = None
) -> tuple[_Pair, list[Array]]:
    """The states, a pair of (T, B, N), and with `x`, a pair of (T, B, N), the two sums of `_run`, (N,)."""
    length, batch, states = v[0].shape

    def padded(z: Array) -> Array:
        return _whole(_flat(z), reverse)

    def trimmed(z: Array) -> Array:
        z = z[-length:] if reverse else z[:length]
        return z[:, : batch * states].reshape(length, batch, states)

    wide = _both(lambda z: _flat(jnp.broadcast_to(z[None], (batch, states))), lam)
    zero = jnp.zeros((batch, states), jnp.float32)
    first = _both(lambda z: _flat(z[None]), initial or (zero, zero))
    v = _both(padded, v)
    steps = chunk_steps(*v[0].shape)
    start = _starts(wide, first, v, reverse, steps)
    re, im, *sums = _run(wide, start, v, reverse, steps, x and _both(padded, x))
    return (trimmed(re), trimmed(im)), [jnp.sum(d[:, : batch * states].reshape(-1, states), axis=0) for d in sums]


def forward(lam: _Pair, v: _Pair, initial: _Pair | None, reverse: bool) -> _Pair:
    """The states, a pair of (T, B, N), of the recurrence with `lam` (N,) driven by `v` (T, B, N).

    Raises ValueError without a GPU that is `supported`.
    """
    return _scan(lam, v, initial, reverse)[0]


def backward(lam: _Pair, x: _Pair, g: _Pair, reverse: bool) -> tuple[_Pair, _Pair]:
    """Adjoint states, a pair of (T, B, N), and the part of dlambda between steps, as in `sequential`.

    Raises ValueError without a GPU that is `supported`.
    """
    w, (d_re, d_im) = _scan((lam[0], -lam[1]), g, None, not reverse, x)
    return w, (d_re, d_im)
