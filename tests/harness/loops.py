"""Recurrences in float32 against loops in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def double(params):
    return {name: np.asarray(value, np.float64) for name, value in params.items()}


def check_values_and_gradients(recurrence, init, reference, lengths, *, slopes=True):
    """The scan of padded sequences of these lengths, and its gradients, are those of `reference(params, u)` in float64.

    `init` draws the parameters, which is compiled together with the rest.

    Gradients are compared with differences along a random direction of each parameter and of the inputs; not at all
    without `slopes`.
    """
    rng, steps = np.random.default_rng(0), max(lengths)
    mask = np.arange(steps)[:, None] < np.array(lengths)
    u = np.asarray(rng.normal(size=(steps, len(lengths), recurrence.width)), np.float32)
    weight = np.asarray(rng.normal(size=u.shape) * mask[..., None], np.float32)

    def loss(params, u):
        y = recurrence.scan(params, u, mask)
        return jnp.sum(y * weight), y

    def run(u):
        params = init(jax.random.key(3))
        if slopes:
            return params, *jax.grad(loss, argnums=(0, 1), has_aux=True)(params, u)
        return params, None, recurrence.scan(params, u, mask)

    params, gradients, y = jax.jit(run)(jnp.asarray(u))
    p = double(params) | {"u": u.astype(np.float64)}

    def wanted(moved):
        return reference({name: value for name, value in moved.items() if name != "u"}, moved["u"])

    np.testing.assert_allclose(np.asarray(y)[mask], wanted(p)[mask], rtol=1e-4, atol=2e-5)
    if not slopes:
        return
    assert not np.any(np.asarray(gradients[1])[~mask])
    for name, found in {**gradients[0], "u": gradients[1]}.items():
        direction, h = rng.normal(size=found.shape), 1e-6
        ends = [np.sum(weight * wanted(p | {name: p[name] + sign * h * direction})) for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * h)
        assert float(np.sum(found * direction)) == pytest.approx(expected, rel=1e-3, abs=1e-3), name
