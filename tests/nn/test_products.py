"""Dense products, and the loop that replaces its inputs, against float64 and `jax.lax.scan`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.nn.products import Precision, product
from lrurun.nn.scan.in_place import scan_in_place


@pytest.mark.parametrize("shape", [(7,), (5, 3), (6, 4, 2), (0, 3)], ids=str)
@pytest.mark.parametrize("flatten", [True, False])
@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-5), ("tf32", 1e-2), ("bf16", 5e-2)])
def test_products_and_gradients(shape: tuple[int, ...], flatten: bool, precision: Precision, error: float) -> None:
    random = np.random.RandomState(0)
    x, w, g = (random.standard_normal(size) for size in ((*shape, 8), (8, 5), (*shape, 5)))
    small = [jnp.asarray(array, jnp.float32) for array in (x, w)]
    y, back = jax.vjp(lambda x, w: product(x, w, precision, flatten=flatten), *small)
    found = y, *back(jnp.asarray(g, jnp.float32))
    wanted = x @ w, g @ w.T, np.einsum("mk,mn->kn", x.reshape(np.prod(shape, dtype=int), 8), g.reshape(-1, 5))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == jnp.float32
        np.testing.assert_allclose(one, other, atol=error * 8)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 6])
def test_the_loop_in_place_is_a_scan(length: int, reverse: bool) -> None:
    random = np.random.RandomState(1)
    rows = [jnp.asarray(random.standard_normal((length, 3)), jnp.float32) for _ in range(2)]
    factor = jnp.asarray(random.standard_normal((length, 3)), jnp.float32)

    def step(carry: jax.Array, rows: list[jax.Array], factor: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        carry = 0.5 * carry * factor + rows[0]
        return carry, [carry + rows[1], carry - rows[1]]

    found = jax.jit(lambda rows: scan_in_place(step, jnp.ones(3), rows, factor, reverse=reverse))(rows)
    wanted = jax.lax.scan(lambda c, at: step(c, *at), jnp.ones(3), (rows, factor), reverse=reverse)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, wanted)
