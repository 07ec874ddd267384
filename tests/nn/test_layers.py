"""Layers of a block beside its recurrence: short convolution, branch, Switch, dropout; against plain NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.recurrences.rg_lru import RGLRUSettings
from lrurun.nn.convolution.short import short, short_state, short_step
from lrurun.nn.network import EPSILON, Model
from lrurun.nn.network.layers import BatchNorm
from lrurun.nn.network.switch import Switch
from lrurun.training import optimizer
from tests.harness.networks import batch, config, features, initial, tokens
from tests.nn.test_model import gelu


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def convolved(u, kernel, bias, starts=()):
    y = np.zeros(u.shape)
    for k in range(len(u)):
        first = max(s for s in (0, *starts) if s <= k)
        for j in range(min(len(kernel), k - first + 1)):
            y[k] += kernel[j] * u[k - j]
    return y + bias


@pytest.mark.parametrize("taps", [1, 4, 9])
def test_the_short_convolution_and_its_step(taps):
    u, kernel, bias = normal(7, 2, 3), normal(taps, 3), normal(3)

    @jax.jit
    def run(u):
        stepped = jax.lax.scan(lambda x, u_k: short_step(x, u_k, kernel, bias), short_state(2, kernel), u)
        return short(u, kernel, bias), stepped[1]

    for found in run(u):
        np.testing.assert_allclose(found, convolved(u, kernel, bias), atol=1e-5)


def test_the_short_convolution_starts_again_where_a_document_starts():
    u, kernel, bias = normal(9, 2, 3), normal(4, 3), normal(3)
    reset = np.zeros((9, 2), bool)
    reset[[0, 3, 5], 1] = True
    y = np.asarray(jax.jit(short)(u, kernel, bias, reset))
    np.testing.assert_allclose(y[:, 0], convolved(u[:, 0], kernel, bias), atol=1e-5)
    np.testing.assert_allclose(y[:, 1], convolved(u[:, 1], kernel, bias, (3, 5)), atol=1e-5)


MIXING = {"conv": 4, "conv_activation": "silu", "branch": "gelu", "expand": 2, "glu": "none", "norm": "layer"}


def reference(params, model, ids, activation):
    """Logits of one block: x + outward(act(branch(norm(x))) recurrence(silu(conv(inward(norm(x)))))), and a mean."""
    x = params["encoder"]["kernel"][ids.T] + params["encoder"]["bias"]
    p = params["blocks"]["0"]
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * p["norm"]["scale"] + p["norm"]["bias"]

    def linear(name, z):
        return z @ p[name]["kernel"] + p[name]["bias"]

    v = convolved(linear("inward", normed), p["conv"]["kernel"], p["conv"]["bias"])
    v = np.asarray(v / (1 + np.exp(-v)), np.float32)
    branch = linear("branch", normed).astype(np.float32)
    states, activated = jax.jit(lambda p, v, x: (model.recurrence.scan(p, v), activation(x)))(
        p["recurrence"], v, branch
    )
    gated = np.asarray(activated) * np.asarray(states)
    x = x + linear("outward", gated)
    return x.mean(0) @ params["head"]["kernel"] + params["head"]["bias"]


@pytest.mark.parametrize("branch", ["gelu", pytest.param("silu", marks=pytest.mark.slow)])
def test_a_block_with_a_branch_and_a_convolution(branch):
    sizes = {"width": 4, "state": 8, "depth": 1, "recurrence": RGLRUSettings(gate_blocks=2)}
    model = Model(config(**MIXING | sizes | {"branch": branch}), tokens())
    ids = np.random.default_rng(1).integers(0, 7, (3, 12))

    @jax.jit
    def run():
        params, stats = initial(model)
        return params, model.apply(params, stats, ids, train=False)[0]

    params, logits = run()
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    np.testing.assert_allclose(logits, reference(params, model, ids, getattr(jax.nn, branch)), atol=1e-4)


def test_a_switch_layer_follows_a_branch():
    model = Model(config(branch="silu", glu="switch", experts=1), tokens())
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    assert {"inward", "branch", "outward", "second_norm", "switch"} <= params["blocks"]["0"].keys()
    assert "conv" not in params["blocks"]["0"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frame": "none", "conv": 4}, 'conv and branch need frame = "blocks"'),
        ({"conv_activation": "silu"}, "conv_activation needs conv"),
        ({"expand": 2}, "expand needs a branch"),
        ({"branch": "gelu"}, 'it needs glu = "none" or "switch", found branch = "gelu", glu = "full"'),
        ({"branch": "gelu", "glu": "none", "recurrence": RGLRUSettings(), "expand": 2, "state": 6}, "width = 12"),
    ],
)
def test_refuses_what_does_not_fit(changes, said):
    with pytest.raises(ValueError, match=said):
        config(**changes)


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
    y = jax.jit(layer(WEIGHTS), static_argnums=2)(jnp.asarray(x, jnp.float32), jnp.asarray(mask), train)
    counts = []
    for i, real in enumerate(LENGTHS):
        wanted, taken = slow(WEIGHTS, x[:real, i], 1 if train else 2)
        np.testing.assert_allclose(y[:real, i], wanted, rtol=1e-4, atol=1e-5)
        counts += taken.tolist()
    assert not np.any(np.asarray(y)[~mask])
    assert {*counts} >= ({0, 1, 2} if train else {1, 2, 3})


def test_padding_and_other_sequences_change_nothing_for_experts():
    apply = jax.jit(lambda x, mask: layer(WEIGHTS)(x, mask, True))
    first = np.asarray(apply(*padded()))
    other, longer = np.asarray(apply(*padded(fill=-3.0))), np.asarray(apply(*padded(length=16)))
    full = np.asarray(apply(padded()[0][:, :1], None))
    for again, rows in ((other, slice(None)), (longer[:11], slice(None)), (full, slice(0, 1))):
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
    apply = jax.jit(lambda train: model.apply(params, stats, inputs, train=train)[0], static_argnums=0)
    scores = [apply(train) for train in (True, False)]
    assert np.max(np.abs(scores[0] - scores[1])) > 1e-3
    optim = AdamW(lr=1e-3, recurrent_factor=0.5, weight_decay=0.05)
    names = {path: group for path, _, group in optimizer.listing(optim, model.recurrence, params)}
    assert {names[f"blocks.0.switch.{name}"] for name in WEIGHTS} == {"regular"}


@pytest.mark.slow
def test_dropout():
    spec = features()
    model = Model(config(dropout=0.5, width=32, depth=1), spec)
    params, stats = initial(model)
    inputs, _ = batch(spec)
    apply = jax.jit(lambda key, train: model.apply(params, stats, inputs, train=train, key=key)[0], static_argnums=1)
    one, two = jax.random.key(1), jax.random.key(2)
    np.testing.assert_array_equal(apply(one, True), apply(one, True))
    assert np.max(np.abs(apply(one, True) - apply(two, True))) > 1e-3
    np.testing.assert_array_equal(apply(one, False), apply(two, False))
    with pytest.raises(ValueError, match=r"dropout = 0\.5 needs a key"):
        model.apply(params, stats, inputs, train=True)


@pytest.mark.parametrize("mask", ["sequence", pytest.param("position", marks=pytest.mark.slow)])
def test_feed_forward_layers_have_a_dropout_each(mask):
    """With the rate so high that all but everything drops, what is left is the input."""
    settings = {"feed_forward": 2, "dropout_mask": mask, "glu": "none", "norm": "layer", "depth": 1}
    logits, x = only_inputs(model := Model(config(dropout=1 - 1e-6, **settings), features(length=3)), *initial(model))
    np.testing.assert_allclose(logits, x, rtol=1e-5, atol=1e-5)


def only_inputs(model, params, stats):
    """Logits of a training step that are pooled features, and what these are where everything else is dropped."""
    inputs, _ = batch(model.spec)
    params["head"] = {"kernel": np.eye(6, 3, dtype=np.float32), "bias": np.zeros(3, np.float32)}
    logits, _ = jax.jit(lambda p: model.apply(p, stats, inputs, train=True, key=jax.random.key(0)))(params)
    kernel, bias = (np.asarray(params["encoder"][name]) for name in ("kernel", "bias"))
    x = np.asarray(inputs)[..., None] * 0.1 * kernel[0] + bias
    return logits, x.mean(1)[:, :3]


def last_dropped(**changes):
    """Logits for 2000 keys, and undropped ones, of a network in which only the last dropout is in play.

    The gate ignores its input, so both factors of a feature multiply to (0 or 1 / (1 - rate)^2), whatever the time.
    """
    model = Model(config(depth=1, width=16, glu="half", norm="layer", **changes), features(length=3))
    params, stats = initial(model)
    params["blocks"]["0"]["gate"]["kernel"] = np.zeros((16, 16), np.float32)
    params["head"] = {"kernel": np.eye(16, 3, dtype=np.float32), "bias": np.zeros(3, np.float32)}
    inputs, _ = batch(model.spec, size=2)

    @jax.jit
    def run(params):
        apply = jax.vmap(lambda key: model.apply(params, stats, inputs, train=True, key=key)[0])
        keys = jax.random.split(jax.random.key(0), 2000)
        return apply(keys), model.apply(params, stats, inputs, train=False)[0]

    logits, undropped = jax.device_get(run(params))
    assert np.all(np.abs(logits.mean(0) - undropped) < 5 * np.std(logits, axis=0) / 2000**0.5)
    return logits, undropped, [np.unique(np.round(column, 4)).size for column in logits.reshape(2000, -1).T]


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


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_of_batch_norm(masked):
    """Of outputs and statistics, against finite differences of the definition in double precision."""
    random = np.random.default_rng(0)
    x, g = random.normal(3.0, 2.0, (5, 2, 3)), random.normal(size=(5, 2, 3))
    scale, bias, of_mean, of_var = random.normal(size=(4, 3))
    mask = np.arange(5)[:, None] < np.array([5, 2]) if masked else None

    def total(x, scale, bias):
        real = x[mask] if masked else x.reshape(-1, 3)
        mean, var = real.mean(0), real.var(0)
        y = (x - mean) / np.sqrt(var + EPSILON) * scale + bias
        return np.sum(y * g) + 0.25 * np.sum(mean * of_mean + var * of_var)

    def ours(x, scale, bias):
        norm = BatchNorm(3, momentum=0.75)
        norm.scale[...], norm.bias[...] = scale, bias
        y = norm(x, None if mask is None else jnp.asarray(mask), True)
        return jnp.sum(y * g) + jnp.sum(norm.mean[...] * of_mean + norm.var[...] * of_var)

    arguments = (x, scale, bias)
    found = jax.jit(jax.grad(ours, argnums=(0, 1, 2)))(*(jnp.asarray(array, jnp.float32) for array in arguments))
    for i, argument in enumerate(arguments):
        wanted = np.zeros(argument.shape)
        for index in np.ndindex(argument.shape):
            sides = []
            for change in (1e-5, -1e-5):
                moved = argument.copy()
                moved[index] += change
                sides.append(total(*arguments[:i], moved, *arguments[i + 1 :]))
            wanted[index] = (sides[0] - sides[1]) / 2e-5
        np.testing.assert_allclose(found[i], wanted, rtol=1e-4, atol=2e-5)
