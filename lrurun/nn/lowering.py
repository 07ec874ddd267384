"""Whether accelerators have the operations of a function, found on any machine: lowering it needs no device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp

from lrurun.nn.recurrences import Params, Recurrence

PLATFORMS: Final = ("cuda", "tpu")
BACKEND: Final = "associative"
"""What the backend "auto" of scans means there."""


def problem(function: Callable[..., Any], *arguments: Any) -> str:
    """The first operation of a function that one of `PLATFORMS` does not have; "" if they have all.

    Args:
        function: may be jitted already.
        arguments: arrays, or their shapes.
    """
    jitted: Any = function if hasattr(function, "trace") else jax.jit(function)
    traced = jitted.trace(*arguments)
    try:
        traced.lower(lowering_platforms=PLATFORMS)
    except NotImplementedError as error:
        return str(error).splitlines()[0]
    return ""


def problems(recurrence: Recurrence, steps: int, batch: int) -> dict[str, str]:
    """`problem` of the scan with its gradient, of norms, and of `init` unless it is computed on the CPU."""

    def loss(params: Params, u: jax.Array, mask: jax.Array) -> jax.Array:
        """() for `u` (T, B, H) and `mask` (T, B)."""
        return jnp.sum(jnp.square(recurrence.scan(params, u, mask)))

    key = jax.random.key(0)
    params = jax.eval_shape(recurrence.init, key)
    u = jax.ShapeDtypeStruct((steps, batch, recurrence.width), jnp.float32)
    mask = jax.ShapeDtypeStruct((steps, batch), jnp.bool_)
    texts = {
        "init": "" if recurrence.init_on_cpu else problem(recurrence.init, key),
        "scan": problem(jax.value_and_grad(loss, argnums=(0, 1)), params, u, mask),
        "norms": problem(recurrence.norms, params, u),  # takes all steps, in one direction
    }
    return {name: text for name, text in texts.items() if text}
