"""Names for the shapes of arrays.

Axes: T time steps, K chunks of a sequence side by side, B batch, H features, D directions, L lags of a kernel. Tests
check the annotations with the import hook of jaxtyping; without it nothing imports jaxtyping, and the names stand for
any array.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import jax
import numpy as np

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Bool, Float

    if TYPE_CHECKING:
        from jax import Array
    else:
        Array = jax.Array | np.ndarray  # host arrays are converted

    Features = Float[Array, "T *K B H"]
    """Inputs and outputs of a layer, time first; K is there only if the recurrence takes chunks."""
    Mask = Bool[Array, "T *K B"]
    """True at real positions."""
    StepFeatures = Float[Array, "B H"]
    """Inputs or outputs at one step."""
    StateNorms = Float[Array, "T B"]
    Kernels = Float[Array, "D L H"]
else:
    Array = Features = Mask = StepFeatures = StateNorms = Kernels = jax.Array


def expand(array: Array, rank: int) -> Array:
    """`array` with as many leading axes of size 1 as it takes to have this rank; with more axes, as it is."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


__all__ = ["Array", "Features", "Kernels", "Mask", "StateNorms", "StepFeatures", "expand"]
