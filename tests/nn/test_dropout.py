"""Dropout: which values are dropped and how often, and that the mean stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.nn.network import Model
from tests.harness.networks import batch, config, features, initial


@pytest.mark.slow
def test_dropout():
    spec = features()
    model = Model(config(dropout=0.5, width=32), spec)
    params, stats = initial(model)
    inputs, _ = batch(spec)
    apply = jax.jit(lambda key, train: model.apply(params, stats, inputs, train=train, key=key)[0], static_argnums=1)
    one, two = jax.random.key(1), jax.random.key(2)
    np.testing.assert_array_equal(apply(one, True), apply(one, True))
    assert np.max(np.abs(apply(one, True) - apply(two, True))) > 1e-3
    np.testing.assert_array_equal(apply(one, False), apply(two, False))
    with pytest.raises(ValueError, match=r"dropout = 0\.5 needs a key"):
        model.apply(params, stats, inputs, train=True)
    # No noise where nothing is dropped: the same key in a network without dropout changes nothing.
    plain = Model(config(width=32), spec)
    plain_apply = jax.jit(lambda key: plain.apply(params, stats, inputs, train=True, key=key)[0])
    with_key, without = plain_apply(one), plain_apply(None)
    np.testing.assert_array_equal(with_key, without)


def test_the_second_dropout_is_none_without_a_gate():
    """x + dropout(GELU(y)): with the rate so high that all but everything drops, what is left is the input."""
    spec = features(length=3)
    model = Model(config(depth=1, dropout=1 - 1e-6, glu="none", norm="layer"), spec)
    assert {path.split(".")[2] for path, *_ in model.listing(initial(model)[0]) if "blocks" in path} == {
        "norm",
        "recurrence",
    }
    params, stats = initial(model)
    logits, x = only_inputs(model, params, stats)
    np.testing.assert_allclose(logits, x, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", ["sequence", "position"])
def test_feed_forward_layers_have_a_dropout_each(mask):
    settings = {"feed_forward": 2, "dropout_mask": mask, "glu": "none", "norm": "layer", "depth": 1}
    logits, x = only_inputs(model := Model(config(dropout=1 - 1e-6, **settings), features(length=3)), *initial(model))
    np.testing.assert_allclose(logits, x, rtol=1e-5, atol=1e-5)


def only_inputs(model, params, stats):
    """Logits of a training step that are pooled features, and what these are where everything else is dropped."""
    inputs, _ = batch(model.spec)
    params["head"] = {"kernel": jnp.eye(6, 3), "bias": jnp.zeros(3)}
    logits, _ = jax.jit(lambda p: model.apply(p, stats, inputs, train=True, key=jax.random.key(0)))(params)
    kernel, bias = (np.asarray(params["encoder"][name]) for name in ("kernel", "bias"))
    x = np.asarray(inputs)[..., None] * 0.1 * kernel[0] + bias
    return logits, x.mean(1)[:, :3]


def last_dropped(**changes):
    """Logits for 4000 keys, and undropped ones, of a network in which only the last dropout is in play.

    The gate ignores its input, so both factors of a feature multiply to (0 or 1 / (1 - rate)^2), whatever the time.
    """
    model = Model(config(depth=1, width=16, glu="half", norm="layer", **changes), features(length=3))
    params, stats = initial(model)
    params["blocks"]["0"]["gate"]["kernel"] = jnp.zeros((16, 16))
    params["head"] = {"kernel": jnp.eye(16, 3), "bias": jnp.zeros(3)}
    inputs, _ = batch(model.spec, size=2)
    apply = jax.jit(jax.vmap(lambda key: model.apply(params, stats, inputs, train=True, key=key)[0]))
    logits = np.asarray(apply(jax.random.split(jax.random.key(0), 4000)))
    undropped = np.asarray(jax.jit(lambda x: model.apply(params, stats, x, train=False)[0])(inputs))
    assert np.all(np.abs(logits.mean(0) - undropped) < 5 * np.std(logits, axis=0) / 4000**0.5)
    return logits, undropped, [np.unique(np.round(column, 4)).size for column in logits.reshape(4000, -1).T]


def test_dropout_keeps_the_mean_and_holds_over_time():
    """With only the last factor in play, logits are linear in it: their mean over keys is the undropped output."""
    rate = 0.25
    logits, undropped, levels = last_dropped(dropout=rate)
    dropped = logits.min(0), logits.max(0)
    # Two values alone: a mask of its own at each of 3 times would give 2^3.
    assert levels == [2] * 6
    share = np.mean(
        np.isclose(logits, np.where(undropped - dropped[0] > dropped[1] - undropped, *dropped), atol=1e-3), axis=0
    )
    assert np.all((np.abs(share - (1 - rate) ** 2) < 0.05) | (np.abs(share - (1 - (1 - rate) ** 2)) < 0.05))


def test_dropout_at_each_position():
    """The same network with a mask a position: as many levels as masks of 3 times, and the mean stays."""
    _, _, levels = last_dropped(dropout=0.25, dropout_mask="position")
    assert max(levels) == 2**3  # fewer where two positions have the same value
    assert min(levels) > 2
