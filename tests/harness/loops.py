"""Recurrences in float32 against loops in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def double(params):
    return {name: np.asarray(value, np.float64) for name, value in params.items()}


def problem(width, lengths):
    """Inputs of sequences of these lengths, where they are no padding, and weights of a sum over the outputs."""
    rng, steps = np.random.default_rng(0), max(lengths)
    mask = np.arange(steps)[:, None] < np.array(lengths)
    u = np.asarray(rng.normal(size=(steps, len(lengths), width)), np.float32)
    return u, mask, np.asarray(rng.normal(size=u.shape) * mask[..., None], np.float32)


def values_and_gradients(recurrence, init, lengths, *, slopes=True):
    """To be traced: parameters, which `init` draws, the scan of the problem's inputs, and gradients or None."""
    u, mask, weight = problem(recurrence.width, lengths)

    def loss(params, u):
        y = recurrence.scan(params, u, mask)
        return jnp.sum(y * weight), y

    params = init(jax.random.key(3, impl="unsafe_rbg"))  # which is compiled faster
    if slopes:
        gradients, y = jax.grad(loss, argnums=(0, 1), has_aux=True)(params, jnp.asarray(u))
        return params, y, gradients
    return params, recurrence.scan(params, jnp.asarray(u), mask), None


def check_values_and_gradients(found, reference, width, lengths):
    """What `values_and_gradients` found is what `reference(params, u)` gives in float64.

    Gradients are compared with differences along a random direction of each parameter and of the inputs.
    """
    (params, y, gradients), (u, mask, weight) = found, problem(width, lengths)
    p, rng = double(params) | {"u": u.astype(np.float64)}, np.random.default_rng(1)

    def wanted(moved):
        return reference({name: value for name, value in moved.items() if name != "u"}, moved["u"])

    np.testing.assert_allclose(np.asarray(y)[mask], wanted(p)[mask], rtol=1e-4, atol=2e-5)
    if gradients is None:
        return
    assert not np.any(np.asarray(gradients[1])[~mask])
    for name, slope in double({**gradients[0], "u": gradients[1]}).items():
        direction, h = rng.normal(size=slope.shape), 1e-6
        ends = [np.sum(weight * wanted(p | {name: p[name] + sign * h * direction})) for sign in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * h)
        assert np.sum(slope * direction) == pytest.approx(expected, rel=1e-3, abs=1e-3), name
