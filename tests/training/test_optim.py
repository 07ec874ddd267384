"""The schedule against optax's, one step of AdamW against its formula."""

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest

from lrurun.config.schema import OptimConfig
from lrurun.training import optimizer

CONFIG = OptimConfig(lr=0.02, recurrent_factor=0.25, weight_decay=0.3, b1=0.8, b2=0.95, eps=1e-6)


def test_schedule_ends_and_peak():
    rates = optimizer.rates(OptimConfig(lr=4e-3, recurrent_factor=0.5, weight_decay=0.05), 1000)
    assert rates.shape == (1000,)
    assert rates.dtype == np.float32
    assert rates[0] == np.float32(1e-7)
    assert rates[100] == np.float32(4e-3) == rates.max()
    assert np.all(np.diff(rates[:101]) > 0)
    assert np.all(np.diff(rates[100:]) < 0)
    assert 1e-7 < rates[-1] < 1e-5


def test_a_constant_schedule_is_the_peak_after_the_warm_up():
    config = OptimConfig(lr=4e-3, recurrent_factor=0.5, weight_decay=0.05, warmup=0.1, schedule="constant")
    rates = optimizer.rates(config, 100)
    cosine = optimizer.rates(msgspec.structs.replace(config, schedule="cosine"), 100)
    np.testing.assert_array_equal(rates[:11], cosine[:11])
    assert set(rates[10:]) == {np.float32(4e-3)}
    assert set(optimizer.rates(msgspec.structs.replace(config, warmup=0.0), 3)) == {np.float32(4e-3)}


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("steps", [1, 7, 300])
def test_schedule_against_optax(warmup, steps):
    config = OptimConfig(lr=4e-3, recurrent_factor=0.5, weight_decay=0.05, warmup=warmup, floor=1e-5)
    warm = round(warmup * steps)
    falling = optax.cosine_decay_schedule(config.lr, steps - warm, alpha=config.floor / config.lr)
    schedule = falling
    if warm:
        schedule = optax.join_schedules([optax.linear_schedule(config.floor, config.lr, warm), falling], [warm])
    wanted = schedule(jnp.arange(steps))
    np.testing.assert_allclose(optimizer.rates(config, steps), wanted, rtol=1e-4, atol=1e-9)


def test_steps_against_numpy():
    rng = np.random.default_rng(0)
    params = {"slow": {"A": rng.normal(size=(3, 4))}, "fast": rng.normal(size=5), "other": rng.normal(size=(2, 2))}
    groups = {"slow": {"A": "recurrent"}, "fast": "regular", "other": "undecayed"}
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params)
    update = jax.jit(lambda g, s, p, r: optimizer.update(CONFIG, groups, g, s, p, r))
    state = optimizer.init(params)
    wanted = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    first, second = (jax.tree.map(np.zeros_like, wanted) for _ in range(2))
    for step in range(1, 6):
        grads = jax.tree.map(lambda x: rng.normal(size=x.shape) * 10.0 ** rng.integers(-3, 3), wanted)
        rate = 0.01 * step
        first = jax.tree.map(lambda m, g: 0.8 * m + 0.2 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, grads)

        def moved(group, p, m, v, step=step, rate=rate):
            direction = (m / (1 - 0.8**step)) / (np.sqrt(v / (1 - 0.95**step)) + 1e-6)
            factors = {"recurrent": (0.25, 0.0), "regular": (1.0, 0.3), "undecayed": (1.0, 0.0)}
            return p - rate * (factors[group][0] * direction + factors[group][1] * p)

        wanted = jax.tree.map(moved, groups, wanted, first, second)
        params, state = update(
            jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), grads), state, params, jnp.float32(rate)
        )
    for found, value in zip(jax.tree.leaves(params), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=1e-6)


def test_no_gradient_moves_only_what_decays():
    params = {"slow": jnp.ones(3), "fast": jnp.ones(3)}
    groups = {"slow": "recurrent", "fast": "regular"}
    zero = jax.tree.map(jnp.zeros_like, params)
    moved, _ = optimizer.update(CONFIG, groups, zero, optimizer.init(params), params, jnp.float32(0.1))
    np.testing.assert_array_equal(moved["slow"], params["slow"])
    np.testing.assert_allclose(moved["fast"], 1.0 - 0.1 * 0.3, rtol=1e-6)
