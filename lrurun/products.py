"""Dense products, and how exactly they are computed.

The recurrences themselves, lambda, its powers and all states, are float32 whatever is said here.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

Precision = Literal["tf32", "float32", "bf16"]


def product(x: Array, w: Array, precision: Precision) -> Array:
    """x (..., K) times w (K, N), float32 in and out, sums in float32.

    With "tf32" a device that has this format may round the factors to its 10 binary digits, as NVIDIA's do under JAX by
    default; others compute in float32. With "bf16" the factors are rounded to 7 digits on every device, those of both
    gradients too, and it is the rounded ones that are kept for them.
    """
    if precision == "bf16":
        return _rounded(x, w)
    return jnp.matmul(x, w, precision="highest" if precision == "float32" else "tensorfloat32")


@jax.custom_vjp
def _rounded(x: Array, w: Array) -> Array:
    return _rounded_forward(x, w)[0]


def _short(x: Array) -> Array:
    return x.astype(jnp.bfloat16)


def _rounded_forward(x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    x, w = _short(x), _short(w)
    return jnp.matmul(x, w, preferred_element_type=jnp.float32), (x, w)


def _rounded_backward(kept: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    (x, w), g = kept, _short(g)
    dx = jnp.matmul(g, w.T, preferred_element_type=jnp.float32)
    flat_x, flat_g = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    return dx, jnp.matmul(flat_x.T, flat_g, preferred_element_type=jnp.float32)


_rounded.defvjp(_rounded_forward, _rounded_backward)
