"""The Switch feed-forward layer against its definition, position by position in plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.attention import AttentionRecurrence
from lrurun.config.recurrences.dlr import DLRRecurrence
from lrurun.config.schema import ModelConfig
from lrurun.nn.network import Model
from lrurun.nn.network.switch import Switch
from tests.harness.networks import config, tokens
from tests.nn.test_model import gelu

LENGTHS = [11, 7, 4, 1]
WEIGHTS = {
    name: np.random.default_rng(i).normal(size=shape)
    for i, (name, shape) in enumerate({"router": (5, 3), "enter": (3, 5, 20), "leave": (3, 20, 5)}.items())
}


def slow(weights, x, share):
    """One sequence (l, H), and by how many experts each position is taken."""
    y, taken = np.zeros_like(x), np.zeros(len(x), int)
    logits = x @ weights["router"]
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    experts = p.shape[1]
    for e in range(experts):
        room = min(len(x), -(-share * len(x) // experts))
        for place in sorted(range(len(x)), key=lambda k, e=e: (-p[k, e], k))[:room]:
            y[place] += p[place, e] * gelu(x[place] @ weights["enter"][e]) @ weights["leave"][e]
            taken[place] += 1
    return y, taken


def layer(weights):
    arrays = {name: jnp.asarray(array, jnp.float32) for name, array in weights.items()}
    return Switch(**arrays, precision="float32")


def padded(seed=2, length=11, fill=9.0):
    """(T, B, 5) with `fill` behind each sequence, and the mask; the sequences do not depend on `length`."""
    x = np.full((length, len(LENGTHS), 5), fill)
    for i, real in enumerate(LENGTHS):
        x[:real, i] = np.random.default_rng((seed, i)).normal(size=(real, 5))
    return x, np.arange(length)[:, None] < LENGTHS


@pytest.mark.parametrize("train", [True, False])
def test_each_expert_processes_the_positions_that_its_router_prefers(train):
    x, mask = padded()
    y = layer(WEIGHTS)(jnp.asarray(x, jnp.float32), jnp.asarray(mask), train)
    counts = []
    for i, real in enumerate(LENGTHS):
        wanted, taken = slow(WEIGHTS, x[:real, i], 1 if train else 2)
        np.testing.assert_allclose(y[:real, i], wanted, rtol=1e-4, atol=1e-5)
        counts += taken.tolist()
    assert not np.any(np.asarray(y)[~mask])
    assert {*counts} >= ({0, 1, 2} if train else {1, 2, 3})


def test_padding_and_other_sequences_change_nothing():
    apply = jax.jit(lambda x, mask: layer(WEIGHTS)(x, mask, True))
    first = np.asarray(apply(*padded()))
    other, longer = np.asarray(apply(*padded(fill=-3.0))), np.asarray(apply(*padded(length=16)))
    alone = np.asarray(apply(*(part[:, 1:2] for part in padded())))
    full = np.asarray(layer(WEIGHTS)(jnp.asarray(padded()[0][:, :1], jnp.float32), None, True))
    for again, rows in ((other, slice(None)), (longer[:11], slice(None)), (alone, slice(1, 2)), (full, slice(0, 1))):
        np.testing.assert_allclose(again, first[:, rows], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_gradients_reach_every_weight_and_the_inputs(strict):
    x, mask = padded()
    arrays = {**WEIGHTS, "x": x}

    def loss(tree):
        weights = {name: tree[name] for name in WEIGHTS}
        return jnp.sum(Switch(**weights, precision="float32")(tree["x"], jnp.asarray(mask), True) ** 2)

    gradient = jax.grad(loss)(jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), arrays))
    assert not np.any(np.asarray(gradient["x"])[~mask])
    for name, array in arrays.items():
        direction, ends = np.random.default_rng(1).normal(size=array.shape), []
        for h in (1e-6, -1e-6):
            moved = {**arrays, name: array + h * direction}
            parts = [slow(moved, moved["x"][:real, i], 1)[0] for i, real in enumerate(LENGTHS)]
            ends.append(sum(np.sum(part**2) for part in parts))
        found = float(np.sum(np.asarray(gradient[name]) * direction))
        assert found == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3)
        assert abs(found) > 1e-2


@pytest.mark.slow
def test_evaluation_has_room_for_twice_as_many_positions():
    model = Model(config(glu="switch", experts=4, norm="layer", depth=1), tokens())
    params, stats = jax.jit(model.init)(jax.random.key(0))
    inputs = jnp.asarray(np.random.default_rng(0).integers(0, 7, (4, 12)))
    scores = [model.apply(params, stats, inputs, train=train)[0] for train in (True, False)]
    assert np.max(np.abs(scores[0] - scores[1])) > 1e-3
    names = {path: group for path, _, group in model.listing(params)}
    assert {names[f"blocks.0.switch.{name}"] for name in WEIGHTS} == {"regular"}


@pytest.mark.parametrize(
    ("recurrence", "published"),
    [(DLRRecurrence(), 312e6), (AttentionRecurrence(heads=8), 318e6)],
    ids=["dlr", "attention"],
)
def test_models_of_language_have_the_published_numbers_of_parameters(recurrence, published):
    """But for embeddings, of which the paper's have 128 numbers, and are also the head."""
    sizes = {"depth": 16, "width": 384, "state": 512, "norm": "layer", "final_norm": True, "glu": "switch"}
    model = Model(ModelConfig(recurrence=recurrence, **sizes), tokens(features=32_128, classes=32_128))
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    inside = model.count(params) - model.count({name: params[name] for name in ("encoder", "head")})
    assert inside + 32_128 * 128 == pytest.approx(published, abs=1e6)
