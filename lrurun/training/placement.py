"""The devices that train one run: its batches are split over them, everything else is on each of them."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lrurun.errors import LrurunError, plural
from lrurun.nn.devices import AXIS


class Placement:
    """Where arrays are: the first devices of this process, one or more.

    Attributes:
        names: of the devices.
        everywhere: of parameters, states and results: a copy on each device.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.names = [str(device) for device in mesh.devices]
        self.everywhere = NamedSharding(mesh, PartitionSpec())

    def batch(self, axis: int = 0) -> NamedSharding:
        """The sharding of arrays with examples on axis `axis`: each device has an equal part, in order."""
        return NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))


@cache
def placement(count: int) -> Placement:
    """The first `count` local devices.

    Raises:
        LrurunError: there are fewer.
    """
    devices = jax.local_devices()
    if len(devices) < count:
        raise LrurunError(
            f"execution.devices = {count}: this process has {plural(len(devices), 'device')} "
            f"({devices[0].device_kind})",
            f"use at most {len(devices)}: --set execution.devices={len(devices)}",
        )
    return Placement(Mesh(np.array(devices[:count]), (AXIS,), axis_types=(AxisType.Auto,)))
