"""Initial parameters sampled from normal and truncated normal distributions.

The arrays of a layer are sampled together, because the generator is slow to compile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Final

import jax
import jax.numpy as jnp

from lrurun.nn.axes import Array
from lrurun.nn.draws import shared

_CUT: Final = 2.0
_VECTOR: Final = 16
"""The largest number of entries that a processor computes at once."""
_WITHIN: Final = math.erf(_CUT / math.sqrt(2.0))
"""The probability that a standard normal lies within the cut."""

TRUNCATED: Final = math.sqrt(1.0 - 2.0 * _CUT * math.exp(-_CUT * _CUT / 2.0) / math.sqrt(2.0 * math.pi) / _WITHIN)
"""The standard deviation of a standard normal that is truncated at two: 0.8796."""

Shapes = Mapping[str, tuple[int, ...]]


def normals(key: Array, shapes: Shapes, variances: Mapping[str, float]) -> dict[str, Array]:
    """Independent normal entries with mean 0 and the variance of their name, float32."""
    return _pieces(_normal, key, shapes, {name: variances[name] ** 0.5 for name in shapes})


def inner_normals(key: Array, shapes: Shapes, variances: Mapping[str, float] | None = None) -> dict[str, Array]:
    """As `normals`, with variance 1 without `variances`, of which the program that calls this computes more.

    They are part of it: XLA may compute them once for each use, and round them otherwise there.
    """
    scales = dict.fromkeys(shapes, 1.0) if variances is None else {name: variances[name] ** 0.5 for name in shapes}
    return _split(_normal(key, sum(map(math.prod, shapes.values()))), shapes, scales)


def truncated_normals(
    key: Array, shapes: Shapes, scales: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Array]:
    """Independent normal entries, truncated at two standard deviations and rescaled to variance 1, float32.

    Those with a scale are multiplied by it.
    """
    return _pieces(_truncated_normal, key, shapes, {name: scales.get(name, 1.0) for name in shapes})


def truncated(z: Array) -> Array:
    """Standard normals `z` as standard normals truncated at two standard deviations, each at its own quantile.

    Not rescaled to unit variance: their standard deviation is `TRUNCATED`.
    """
    root = math.sqrt(2.0)
    return jnp.clip(root * jax.lax.erf_inv(_WITHIN * jax.lax.erf(z / root)), -_CUT, _CUT)


def _normal(key: Array, count: int) -> Array:
    return jax.random.normal(key, (count,), jnp.float32)


def _truncated_normal(key: Array, count: int) -> Array:
    return jax.random.truncated_normal(key, -_CUT, _CUT, (count,), jnp.float32) / TRUNCATED


@dataclass(frozen=True)
class _Pieces:
    """The arrays that XLA makes of the entries of one sample."""

    distribution: Callable[[Array, int], Array]
    shapes: tuple[tuple[int, ...], ...]
    scales: tuple[float, ...]

    def __call__(self, key: Array) -> list[Array]:
        """Arrays whose rows are no whole number of vectors, scaled; between them all other entries, as (n, _VECTOR).

        XLA may round the last entries of a row otherwise than its vectors, so that an array of the first kind keeps its
        shape and its scale here. For the same reason there are at least two arrays: then XLA computes the logarithm in
        the sample first and by itself, as it does in a program that has all arrays of a model.
        """
        sizes = [math.prod(shape) for shape in self.shapes]
        pool, start, arrays = self.distribution(key, sum(sizes)), 0, []
        for whole, group in groupby(zip(self.shapes, sizes, self.scales, strict=True), lambda one: _is_whole(one[0])):
            if whole:
                size = sum(size for _, size, _ in group)
                arrays.append(pool[start : start + size].reshape(-1, _VECTOR))
                start += size
            else:
                for shape, size, scale in group:
                    arrays.append(pool[start : start + size].reshape(shape) * scale)
                    start += size
        return arrays if len(arrays) > 1 else [*arrays, pool[:_VECTOR]]


def _pieces(
    distribution: Callable[[Array, int], Array], key: Array, shapes: Shapes, scales: Mapping[str, float]
) -> dict[str, Array]:
    """Arrays of `shapes` from one sample, multiplied by `scales`."""
    if len(shapes) == 1 or not isinstance(key, jax.core.Tracer):
        # of one shape in the program that scales it, where XLA makes one constant of two; outside programs, where it
        # does not, one operation after the other
        pool = distribution(key, sum(map(math.prod, shapes.values())))
        return _split(pool, shapes, scales)
    made = iter(shared(_Pieces(distribution, tuple(shapes.values()), tuple(scales[name] for name in shapes)), key))
    arrays: dict[str, Array] = {}
    for whole, group in groupby(shapes.items(), lambda one: _is_whole(one[1])):
        if whole:
            arrays |= _split(next(made).ravel(), dict(group), scales)
        else:
            arrays |= {name: next(made) for name, _ in group}
    return arrays


def _is_whole(shape: tuple[int, ...]) -> bool:
    """Whether the rows of an array are whole numbers of vectors, whose entries XLA rounds alike in every program."""
    return bool(shape) and not shape[-1] % _VECTOR


def _split(pool: Array, shapes: Shapes, scales: Mapping[str, float]) -> dict[str, Array]:
    """Arrays of `shapes` from the entries of `pool`, one after the other, multiplied by `scales`."""
    arrays, start = {}, 0
    for name, shape in shapes.items():
        arrays[name] = pool[start : start + math.prod(shape)].reshape(shape) * scales[name]
        start += math.prod(shape)
    return arrays
