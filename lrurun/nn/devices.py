"""Functions that several devices compute together: the examples of a batch are split over them, in order.

XLA splits most operations by itself. Functions of this module are for operations before which it would collect all
examples on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import jax
from jax import Array
from jax.sharding import AbstractMesh, PartitionSpec

AXIS: Final = "batch"
"""The name of the axis of a mesh over which examples are split."""


def shared_by(mesh: AbstractMesh) -> AbstractContextManager[Any]:
    """A context in which functions are traced for all devices of a mesh together."""
    return jax.sharding.use_abstract_mesh(mesh)


def flat(x: Array) -> Array:
    """(..., B, K), or (K,), as (M, K), rows in the order of the devices that have them; M may be 0. See `unflat`."""
    *rest, batch, width = (1, *x.shape)
    parts = _parts(batch)
    split = x.reshape(math.prod(rest), parts, batch // parts, width)
    return split.swapaxes(0, 1).reshape(math.prod(rest) * batch, width)


def unflat(rows: Array, shape: tuple[int, ...]) -> Array:
    """The inverse of `flat`: rows (M, K) as an array of this shape, but for its last axis, which is K."""
    *rest, batch, _ = (1, *shape)
    parts = _parts(batch)
    split = rows.reshape(parts, math.prod(rest), batch // parts, rows.shape[1])
    return split.swapaxes(0, 1).reshape(*shape[:-1], rows.shape[1])


def on_each(function: Callable[[Array], Array], x: Array, before: int, after: int) -> Array:
    """function(x), by each device for its examples, which are on axis `before` of x and `after` of the result."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or x.shape[before] % mesh.shape[AXIS]:  # the second: no batch, such as a single impulse
        return function(x)
    of_x, of_y = (PartitionSpec(*[None] * axis, AXIS) for axis in (before, after))
    y: Array = jax.shard_map(function, in_specs=of_x, out_specs=of_y)(x)
    return y


def _parts(size: int) -> int:
    """The number of devices that have equal parts of an axis of this size; 1 outside of `shared_by`."""
    return math.gcd(size, jax.sharding.get_abstract_mesh().shape.get(AXIS, 1))
