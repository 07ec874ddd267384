"""The network: sizes as published, and outputs against plain NumPy in double precision."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config import DenseRecurrence, DiagonalRecurrence, ModelConfig
from lrurun.model import Model
from lrurun.tasks.base import Spec

LRU = DiagonalRecurrence(normalize=True, r_min=0.5, r_max=0.9)
FEATURES = {"name": "pixels", "kind": "features"}
TOKENS = {"name": "letters", "kind": "tokens"}


def features(**changes):
    return Spec(**{**FEATURES, "features": 1, "classes": 3, "length": 12, "scale": 0.1, **changes})


def tokens(**changes):
    return Spec(**{**TOKENS, "features": 7, "classes": 3, "length": 12, **changes})


def config(**changes):
    return ModelConfig(**{"recurrence": LRU, "depth": 2, "width": 6, "state": 5, **changes})


def initial(model, seed=0):
    """Parameters off their symmetric start: norms that scale and biases that are not zero."""
    params, stats = jax.jit(model.init)(jax.random.key(seed))
    rng = np.random.default_rng(seed)

    def jiggle(path, x):
        moved = path[-1].key in ("bias", "scale")
        return x + jnp.asarray(0.3 * rng.normal(size=x.shape), jnp.float32) if moved else x

    return jax.tree_util.tree_map_with_path(jiggle, params), stats


def batch(spec, size=4, seed=0):
    rng = np.random.default_rng(seed)
    shape = (size, 2, spec.length) if spec.pair else (size, spec.length)
    inputs = rng.integers(0, spec.features if spec.kind == "tokens" else 17, shape).astype(np.uint8)
    lengths = rng.integers(1, spec.length + 1, shape[:-1]).astype(np.int16)
    lengths[0] = spec.length
    return jnp.asarray(inputs), jnp.asarray(lengths)


def junk(inputs, lengths):
    """The same with other values in the padding."""
    padded = np.arange(inputs.shape[-1]) >= np.asarray(lengths)[..., None]
    return jnp.where(padded, (inputs + 3) % 7, inputs).astype(inputs.dtype)


@pytest.mark.parametrize(
    ("sizes", "spec", "count"),
    [
        ({"width": 512, "state": 384}, {**FEATURES, "features": 3, "classes": 10, "length": 1024}, 7_893_770),
        ({"width": 128, "state": 256}, {**TOKENS, "features": 20, "classes": 10, "length": 2048}, 995_466),
        ({"width": 256, "state": 192}, {**TOKENS, "features": 135, "classes": 2, "length": 4096}, 2_012_546),
        (
            {"width": 128, "state": 256},
            {**TOKENS, "features": 98, "classes": 2, "length": 4000, "pair": True},
            1_070_082,
        ),
        (
            {"width": 192, "state": 256, "bidirectional": True},
            {**FEATURES, "features": 1, "classes": 2, "length": 1024},
            2_222_978,
        ),
        (
            {"width": 128, "state": 256, "bidirectional": True, "glu": "half"},
            {**FEATURES, "features": 1, "classes": 2, "length": 16384},
            1_286_146,
        ),
    ],
)
def test_published_sizes(sizes, spec, count):
    model = Model(ModelConfig(recurrence=DiagonalRecurrence(normalize=True), depth=6, **sizes), Spec(**spec))
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    assert model.count(params) == count


def test_init_is_a_function_of_the_key_with_the_scales_of_its_layers():
    model = Model(config(width=48, state=32, depth=2), tokens(features=60, pair=True))
    init = jax.jit(model.init)
    one, two, other = (init(jax.random.key(seed))[0] for seed in (1, 1, 2))
    assert all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(two)))
    first, second = one["blocks"]["0"], one["blocks"]["1"]
    for a, b in (
        (one["encoder"]["kernel"], other["encoder"]["kernel"]),
        (first["gate"]["kernel"], second["gate"]["kernel"]),
    ):
        assert not np.any(np.asarray(a) == np.asarray(b))
    assert not np.array_equal(first["recurrence"]["nu_log"], second["recurrence"]["nu_log"])
    kernels = {"encoder": 60, "hidden": 4 * 48, "head": 48}
    found = {name: (one[name]["kernel"], fan_in) for name, fan_in in kernels.items()}
    found |= {name: (first[name]["kernel"], 48) for name in ("gate", "value")}
    for kernel, fan_in in found.values():
        assert kernel.shape[0] == fan_in
        unit = np.asarray(kernel) * fan_in**0.5
        assert np.var(unit) == pytest.approx(1.0, abs=0.3 if kernel.shape[1] == 3 else 0.1)
        assert np.max(np.abs(unit)) < 2.28
    assert not np.any(one["head"]["bias"])


def test_every_parameter_is_in_the_group_of_its_kind():
    model = Model(config(bidirectional=True), features())
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    groups = model.groups(params)
    assert jax.tree.structure(groups) == jax.tree.structure(params)
    listing = model.listing(params)
    assert len(listing) == len(jax.tree.leaves(params))
    recurrent = {path for path, _, group in listing if group == "recurrent"}
    names = ("nu_log", "theta", "gamma_log", "B_re", "B_im")
    assert recurrent == {f"blocks.{i}.recurrence.{name}" for i in (0, 1) for name in names}
    assert {group for path, _, group in listing if path not in recurrent} == {"regular"}
    assert ("blocks.1.recurrence.C_im_back", (6, 5), "regular") in listing


def reference(model, params, inputs, lengths, momentum=None):
    """Logits in float64, one sequence after another; with `momentum`, also the statistics after one training step."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    spec, settings, new = model.spec, model.config, {}
    inputs, lengths = np.asarray(inputs), np.asarray(lengths)
    if spec.pair:
        inputs, lengths = np.concatenate([inputs[:, 0], inputs[:, 1]]), np.concatenate([lengths[:, 0], lengths[:, 1]])

    def linear(layer, x):
        return x @ layer["kernel"] + layer["bias"]

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    def normalized(layer, xs, name):
        """Each sequence after a norm; its statistics, where they are of the batch, go into `new`."""
        everything = np.concatenate(xs)
        mean, var = (everything.mean(0), everything.var(0)) if momentum is not None else (0.0, 1.0)
        if momentum is not None:
            new[name] = {"mean": (1 - momentum) * mean, "var": (1 - momentum) * var, "weight": 1 - momentum}
        outputs = []
        for x in xs:
            if settings.norm == "layer":
                mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            outputs.append((x - mean) / np.sqrt(var + 1e-5) * layer["scale"] + layer["bias"])
        return outputs

    xs = []
    for row, length in zip(inputs, lengths, strict=True):
        step = np.eye(spec.features)[row] if spec.kind == "tokens" else row[:, None] * spec.scale
        xs.append(linear(p["encoder"], step[:length]))
    for i in range(settings.depth):
        block = p["blocks"][str(i)]
        r, outputs = block["recurrence"], []
        lam = np.exp(-np.exp(r["nu_log"]) + 1j * r["theta"])
        b = np.exp(r["gamma_log"])[:, None] * (r["B_re"] + 1j * r["B_im"])
        before = settings.norm_place == "pre"
        for x, u in zip(xs, normalized(block["norm"], xs, str(i)) if before else xs, strict=True):
            y = r["D"] * u
            for suffix in ("", "_back") if settings.bidirectional else ("",):
                order = range(len(u)) if not suffix else reversed(range(len(u)))
                state, c = np.zeros(len(lam), complex), r[f"C_re{suffix}"] + 1j * r[f"C_im{suffix}"]
                for k in order:
                    state = lam * state + b @ u[k]
                    y[k] += (c @ state).real
            g = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
            gate = 1.0 if settings.glu == "none" else sigmoid(linear(block["gate"], g))
            values = {"full": lambda g=g: linear(block["value"], g), "half2": lambda y=y: y}  # noqa: B023
            outputs.append(x + values.get(settings.glu, lambda g=g: g)() * gate)
        xs = outputs if before else normalized(block["norm"], outputs, str(i))
    if settings.final_norm:
        xs = normalized(p["final"], xs, "final")
    pooled = np.stack([{"mean": x.mean(0), "max": x.max(0), "last": x[-1]}[settings.pooling] for x in xs])
    if spec.pair:
        a, b = np.split(pooled, 2)
        pooled = np.maximum(linear(p["hidden"], np.concatenate([a, b, a - b, a * b], axis=1)), 0)
    return linear(p["head"], pooled), new


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        ({}, features()),
        ({"bidirectional": True, "glu": "half", "norm_momentum": 0.7}, tokens()),
        pytest.param({"norm": "layer", "bidirectional": True}, features(), marks=pytest.mark.slow),
        ({}, tokens(pair=True)),
        ({"glu": "half2", "pooling": "last", "final_norm": True}, features()),
        ({"glu": "none", "pooling": "max", "norm_place": "post", "bidirectional": True}, tokens()),
        pytest.param(
            {"pooling": "last", "norm": "layer", "norm_place": "post"}, tokens(pair=True), marks=pytest.mark.slow
        ),
        pytest.param(
            {"pooling": "max", "norm": "layer", "final_norm": True, "glu": "half2"}, features(), marks=pytest.mark.slow
        ),
    ],
    ids=["pixels", "letters-both-ways", "layer-norm", "pairs", "half2-last-final", "none-max-post", "last-post", "max"],
)
def test_logits_statistics_and_gradients(strict, settings, spec):
    model = Model(config(**settings), spec)
    params, stats = initial(model)
    inputs, lengths = batch(spec)
    batch_norm = model.config.norm == "batch"
    momentum = model.config.norm_momentum if batch_norm else None

    def loss(p):
        logits, seen = model.apply(p, stats, inputs, lengths, train=True)
        return jnp.sum(logits**2), (logits, seen)

    gradient, (logits, seen) = jax.jit(jax.grad(loss, has_aux=True))(params)
    evaluate = jax.jit(lambda stats: model.apply(params, stats, inputs, lengths, train=False))
    wanted, moments = reference(model, params, inputs, lengths, momentum)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    assert jax.tree.structure(seen) == jax.tree.structure(stats)
    for i, moment in moments.items():
        for name, value in moment.items():
            at = seen["final"] if i == "final" else seen["blocks"][i]["norm"]
            np.testing.assert_allclose(at[name], value, rtol=1e-4, atol=1e-5)
    # Before a first step the statistics are mean 0 and variance 1; after one, those of its batch.
    untrained, same = evaluate(stats)
    np.testing.assert_allclose(untrained, reference(model, params, inputs, lengths)[0], rtol=1e-4, atol=1e-4)
    assert all(map(np.array_equal, jax.tree.leaves(same), jax.tree.leaves(stats)))
    np.testing.assert_allclose(evaluate(seen)[0], wanted, rtol=1e-4, atol=1e-4)
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), params)
    ends = []
    for h in (1e-5, -1e-5):
        moved = jax.tree.map(lambda x, d, h=h: np.asarray(x, np.float64) + h * d, params, direction)
        ends.append(np.sum(reference(model, moved, inputs, lengths, momentum)[0] ** 2))
    found = sum(float(np.sum(g * d)) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=2e-3)


@pytest.mark.parametrize(
    ("recurrence", "bidirectional"),
    [pytest.param(LRU, False, marks=pytest.mark.slow), (LRU, True), (DenseRecurrence(activation="tanh"), True)],
    ids=["lru", "lru-both-ways", "tanh-both-ways"],
)
def test_padding_changes_nothing(recurrence, bidirectional):
    spec = tokens()
    inputs, lengths = batch(spec)
    other = junk(inputs, lengths)
    longer = jnp.pad(inputs, ((0, 0), (0, 5)), constant_values=6)
    assert not np.array_equal(inputs, other)
    results = {}
    for parity in ("none", "reference"):
        model = Model(config(recurrence=recurrence, bidirectional=bidirectional, parity=parity), spec)
        params, stats = initial(model)
        apply = jax.jit(lambda s, x, train, m=model, p=params: m.apply(p, s, x, lengths, train=train), static_argnums=2)
        for x in (inputs, other, longer) if parity == "none" else (inputs, other):
            logits, seen = apply(stats, x, True)
            results.setdefault(parity, []).append([logits, *jax.tree.leaves(seen), apply(seen, x, False)[0]])
    first, *rest = results["none"]
    for again in rest:
        for a, b in zip(first, again, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    # The published code counts the padding: its statistics move, and with them everything else.
    first, second = results["reference"]
    assert all(np.max(np.abs(first[i] - second[i])) > 1e-3 for i in (0, -1))
    assert np.max(np.abs(first[0] - results["none"][0][0])) > 1e-3


def test_reference_parity_starts_the_backward_scan_in_the_padding():
    spec = tokens()
    inputs, lengths = batch(spec)
    for bidirectional, moves in ((True, True), (False, False)):
        model = Model(config(norm="layer", bidirectional=bidirectional, parity="reference"), spec)
        params, stats = initial(model)
        apply = jax.jit(lambda x, m=model, p=params, s=stats: m.apply(p, s, x, lengths, train=False)[0])
        assert (np.max(np.abs(apply(inputs) - apply(junk(inputs, lengths)))) > 1e-4) == moves


def test_full_lengths_are_no_lengths():
    spec = features(features=3)
    model = Model(config(), spec)
    params, stats = initial(model)
    inputs = jnp.asarray(np.random.default_rng(0).integers(0, 17, (4, 12, 3)), jnp.uint8)
    apply = jax.jit(lambda n, train: model.apply(params, stats, inputs, n, train=train), static_argnums=1)
    with_lengths, one = apply(jnp.full((4,), 12), True)
    without, two = apply(None, True)
    np.testing.assert_allclose(with_lengths, without, rtol=1e-5, atol=1e-5)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    empty, _ = apply(jnp.array([12, 0, 0, 3]), True)
    assert np.all(np.isfinite(empty))


def test_running_averages_are_bias_corrected():
    spec = features()
    model = Model(config(depth=1, norm_momentum=0.9), spec)
    params, stats = initial(model)
    step = jax.jit(lambda s, x: model.apply(params, s, x, train=True)[1])
    kept = []
    for seed in range(3):
        inputs, _ = batch(spec, seed=seed)
        x = np.asarray(inputs)[..., None] * spec.scale @ np.asarray(params["encoder"]["kernel"], np.float64)
        kept.append((x + np.asarray(params["encoder"]["bias"])).mean((0, 1)))
        stats = step(stats, inputs)
    norm = stats["blocks"]["0"]["norm"]
    weights = np.array([0.1 * 0.81, 0.1 * 0.9, 0.1])
    np.testing.assert_allclose(norm["weight"], weights.sum(), rtol=1e-5)
    np.testing.assert_allclose(norm["mean"] / norm["weight"], np.average(kept, axis=0, weights=weights), rtol=1e-4)


def test_features_are_scaled_less_the_mean_over_the_deviation(strict):
    """As if NumPy had done it before; nothing is done where nothing is given."""
    inputs = np.random.default_rng(0).integers(-300, 300, (4, 12, 3)).astype(np.int16)
    mean, std = (0.5, -2.0, 3.0), (2.0, 0.25, 1.5)
    changed = {"both": ((inputs * 0.1 - mean) / std, mean, std), "mean": (inputs * 0.1 - mean, mean, ())}
    changed |= {"std": (inputs * 0.1 / std, (), std), "neither": (inputs * 0.1, (), ())}
    plain = Model(config(depth=1), features(features=3, scale=1.0))
    params, stats = initial(plain)
    wanted = jax.jit(lambda x: plain.apply(params, stats, x, train=False)[0])
    for values, mean, std in changed.values():
        model = Model(config(depth=1), features(features=3, mean=mean, std=std))
        found = jax.jit(lambda x, m=model: m.apply(params, stats, x, train=False)[0])(inputs)
        np.testing.assert_allclose(found, wanted(values.astype(np.float32)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("recurrence", [LRU, DiagonalRecurrence(), DenseRecurrence(activation="tanh")])
def test_the_smallest_network(strict, recurrence, bidirectional):
    """One step, one state, one feature, one sequence: finite outputs and gradients, with nothing real in it too."""
    spec = features(length=1)
    model = Model(config(recurrence=recurrence, bidirectional=bidirectional, depth=1, width=1, state=1), spec)
    params, stats = initial(model)

    @jax.jit
    def outcome(params, lengths):
        def loss(params):
            logits, _ = model.apply(params, stats, jnp.ones((1, 1), jnp.uint8), lengths, train=True)
            return jnp.sum(jnp.sin(logits)), logits

        return jax.grad(loss, has_aux=True)(params)

    for lengths in (None, jnp.array([1]), jnp.array([0])):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(outcome(params, lengths)))
    _, nothing = outcome(params, jnp.array([0]))
    np.testing.assert_array_equal(nothing[0], params["head"]["bias"])  # the mean over no position is zero


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
    inputs, _ = batch(spec)
    params["head"] = {"kernel": jnp.eye(6, 3), "bias": jnp.zeros(3)}
    logits, _ = jax.jit(lambda p: model.apply(p, stats, inputs, train=True, key=jax.random.key(0)))(params)
    kernel, bias = (np.asarray(params["encoder"][name]) for name in ("kernel", "bias"))
    x = np.asarray(inputs)[..., None] * 0.1 * kernel[0] + bias
    np.testing.assert_allclose(logits, x.mean(1)[:, :3], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pooling", ["max", "last"])
def test_pooling_sees_no_padding_and_nothing_where_nothing_is_true(strict, pooling):
    spec = tokens(length=32)
    model = Model(config(depth=1, pooling=pooling, bidirectional=True), spec, backend="chunked")
    assert model.recurrence.chunks(32, 4) > 1
    params, stats = initial(model)
    inputs, lengths = batch(spec)
    apply = jax.jit(lambda i, n: model.apply(params, stats, i, n, train=False)[0])
    np.testing.assert_array_equal(apply(inputs, lengths), apply(junk(inputs, lengths), lengths))
    nothing = apply(inputs, jnp.zeros_like(lengths))
    np.testing.assert_array_equal(nothing, jnp.broadcast_to(params["head"]["bias"], nothing.shape))
    full = jax.jit(lambda i: model.apply(params, stats, i, train=False)[0])(inputs)
    np.testing.assert_allclose(apply(inputs, jnp.full_like(lengths, 32)), full, rtol=1e-5, atol=1e-6)


def test_a_final_norm_belongs_to_norms_before():
    with pytest.raises(ValueError, match="final_norm = true needs norm_place"):
        config(norm_place="post", final_norm=True)


def test_norms_and_biases_are_a_group_of_their_own_where_they_do_not_decay():
    model = Model(config(final_norm=True), tokens(pair=True))
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    groups = {path: group for path, _, group in model.listing(params, decay_norm_bias=False)}
    undecayed = {path for path, group in groups.items() if group == "undecayed"}
    blocks = {f"blocks.{i}.{name}" for i in (0, 1) for name in ("norm.scale", "norm.bias", "gate.bias", "value.bias")}
    others = {"encoder.bias", "hidden.bias", "head.bias", "final.scale", "final.bias"}
    assert undecayed == blocks | others
    usual = {path: group for path, _, group in model.listing(params)}
    assert {path: usual[path] for path in undecayed} == dict.fromkeys(undecayed, "regular")
    assert {path: group for path, group in groups.items() if path not in undecayed} == {
        path: group for path, group in usual.items() if path not in undecayed
    }


def test_dropout_keeps_the_mean_and_holds_over_time():
    """With only the last factor in play, logits are linear in it: their mean over keys is the undropped output."""
    spec = features(length=3)
    rate = 0.25
    model = Model(config(depth=1, dropout=rate, width=16, glu="half", norm="layer"), spec)
    params, stats = initial(model)
    # The gate ignores its input, so both factors of a feature multiply to (0 or 1 / (1 - rate)^2), whatever the time.
    params["blocks"]["0"]["gate"]["kernel"] = jnp.zeros((16, 16))
    params["head"] = {"kernel": jnp.eye(16, 3), "bias": jnp.zeros(3)}
    inputs, _ = batch(spec, size=2)
    apply = jax.jit(jax.vmap(lambda key: model.apply(params, stats, inputs, train=True, key=key)[0]))
    logits = np.asarray(apply(jax.random.split(jax.random.key(0), 4000)))
    undropped = np.asarray(jax.jit(lambda x: model.apply(params, stats, x, train=False)[0])(inputs))
    dropped = logits.min(0), logits.max(0)
    # Two values alone: a mask of its own at each of 3 times would give 2^3.
    levels = [np.unique(np.round(column, 4)).size for column in logits.reshape(4000, -1).T]
    assert levels == [2] * 6
    share = np.mean(
        np.isclose(logits, np.where(undropped - dropped[0] > dropped[1] - undropped, *dropped), atol=1e-3), axis=0
    )
    spread = np.std(logits, axis=0) / 4000**0.5
    assert np.all(np.abs(logits.mean(0) - undropped) < 5 * spread)
    assert np.all((np.abs(share - (1 - rate) ** 2) < 0.05) | (np.abs(share - (1 - (1 - rate) ** 2)) < 0.05))


def test_dropout_at_each_position():
    """The same network with a mask a position: as many levels as masks of 3 times, and the mean stays."""
    spec = features(length=3)
    model = Model(config(depth=1, dropout=0.25, dropout_mask="position", width=16, glu="half", norm="layer"), spec)
    params, stats = initial(model)
    params["blocks"]["0"]["gate"]["kernel"] = jnp.zeros((16, 16))
    params["head"] = {"kernel": jnp.eye(16, 3), "bias": jnp.zeros(3)}
    inputs, _ = batch(spec, size=2)
    apply = jax.jit(jax.vmap(lambda key: model.apply(params, stats, inputs, train=True, key=key)[0]))
    logits = np.asarray(apply(jax.random.split(jax.random.key(0), 4000)))
    undropped = np.asarray(jax.jit(lambda x: model.apply(params, stats, x, train=False)[0])(inputs))
    levels = [np.unique(np.round(column, 4)).size for column in logits.reshape(4000, -1).T]
    assert max(levels) == 2**3  # fewer where two positions have the same value
    assert min(levels) > 2
    assert np.all(np.abs(logits.mean(0) - undropped) < 5 * np.std(logits, axis=0) / 4000**0.5)


@pytest.mark.parametrize("recurrence", [DiagonalRecurrence(normalize=True), DenseRecurrence(activation="tanh")])
@pytest.mark.parametrize("bidirectional", [pytest.param(False, marks=pytest.mark.slow), True])
def test_products_in_bf16(strict, recurrence, bidirectional):
    """Every product, and none but those, rounds its factors to 8 binary digits: outputs and gradients move by that."""
    spec = features(length=64)
    kinds = ("float32", "tf32", "bf16")
    models = {
        kind: Model(config(recurrence=recurrence, bidirectional=bidirectional, width=32, precision=kind), spec)
        for kind in kinds
    }
    params, stats = initial(models["float32"])
    inputs, _ = batch(spec)

    def outcome(model):
        def loss(params):
            logits, _ = model.apply(params, stats, inputs, train=True)
            return jnp.sum(jnp.sin(logits)), logits

        return jax.jit(jax.grad(loss, has_aux=True))

    found = {kind: outcome(models[kind])(params) for kind in kinds}
    exact, tf32, rounded = (jax.tree.leaves(found[kind]) for kind in kinds)
    for one, two, three in zip(exact, tf32, rounded, strict=True):
        np.testing.assert_array_equal(one, two)  # a CPU has no such format
        scale = np.max(np.abs(one))
        assert three.dtype == jnp.float32
        assert np.max(np.abs(three - one)) < 0.1 * scale + 1e-6
    assert np.max(np.abs(rounded[-1] - exact[-1])) > 1e-5
    factors = list(factors_of_products(jax.make_jaxpr(outcome(models["bf16"]))(params).jaxpr))
    assert {"bfloat16"} in factors
    exact = sum(kinds == {"float32"} for kinds in factors)  # A's, forward and backward, and the gradient of A
    assert exact == (
        3 * models["bf16"].config.depth * (1 + bidirectional) if isinstance(recurrence, DenseRecurrence) else 0
    )
    assert len(factors) == exact + factors.count({"bfloat16"})


def factors_of_products(jaxpr):
    """The dtypes that every product in a program takes."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield {str(variable.aval.dtype) for variable in equation.invars}
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else [parameter]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from factors_of_products(inner)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"dropout": 0.3},
        pytest.param({"dropout": 0.3, "dropout_mask": "position"}, marks=pytest.mark.slow),
    ],
)
def test_remat_gives_the_same_network(strict, changes):
    spec = tokens(length=48)
    models = [Model(config(depth=2, **changes), spec, remat=remat) for remat in (False, True)]
    params, stats = initial(models[0])
    inputs, lengths = batch(spec)

    def outcome(model):
        def loss(params):
            logits, new = model.apply(params, stats, inputs, lengths, train=True, key=jax.random.key(1))
            return jnp.sum(jnp.sin(logits)), (logits, new)

        return jax.jit(jax.grad(loss, has_aux=True))

    plain, again = map(outcome, models)
    for one, two in zip(jax.tree.leaves(plain(params)), jax.tree.leaves(again(params)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert "remat" not in str(jax.make_jaxpr(plain)(params))
    assert str(jax.make_jaxpr(again)(params)).count("remat") >= 2


@pytest.mark.slow
def test_both_modes_of_nnx():
    """The library's coming default has no shared references; the same numbers must come out."""
    program = (
        "import jax, jax.numpy as jnp\n"
        "from lrurun.config import DiagonalRecurrence, ModelConfig\n"
        "from lrurun.model import Model\n"
        "from lrurun.tasks.base import Spec\n"
        "model = Model(ModelConfig(recurrence=DiagonalRecurrence(), depth=1, width=4, state=3, dropout=0.5),\n"
        "              Spec(name='x', kind='tokens', features=5, classes=2, length=4))\n"
        "params, stats = jax.jit(model.init)(jax.random.key(0))\n"
        "step = jax.jit(lambda p, s: model.apply(p, s, jnp.ones((2, 4), int), train=True, key=jax.random.key(1)))\n"
        "logits, stats = step(params, stats)\n"
        "print(logits.tolist(), stats['blocks']['0']['norm']['weight'])\n"
        "model = Model(model.config, model.spec, remat=True)\n"
        "loss = lambda p, s: model.apply(p, s, jnp.ones((2, 4), int), train=True, key=jax.random.key(1))[0].sum()\n"
        "print(jax.jit(jax.grad(loss))(params, stats)['head']['bias'].tolist())\n"
    )
    outputs = []
    for mode in ("true", "false"):
        environment = {**os.environ, "NNX_GRAPH_MODE": mode, "NNX_GRAPH_UPDATES": mode}
        command = [sys.executable, "-W", "error", "-c", program]
        outputs.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=False))
    assert [run.returncode for run in outputs] == [0, 0], outputs[-1].stderr
    assert outputs[0].stdout == outputs[1].stdout


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (features(features=3, length=64), {}),
        pytest.param(features(length=64), {"norm": "layer", "glu": "half"}, marks=pytest.mark.slow),
        (tokens(length=48), {"bidirectional": True, "dropout": 0.4}),
        (tokens(length=32, pair=True), {"bidirectional": True, "parity": "reference"}),
        (tokens(length=48), {"pooling": "last", "final_norm": True}),
        pytest.param(tokens(length=48), {"pooling": "max", "norm_place": "post"}, marks=pytest.mark.slow),
        pytest.param(features(features=3, length=64), {"pooling": "last"}, marks=pytest.mark.slow),
    ],
    ids=["features", "feature", "tokens", "pairs", "last", "max", "last-of-whole"],
)
def test_stretches_side_by_side_give_the_same_network(strict, spec, changes):
    """Outputs, norm statistics and gradients of a sequence laid out in stretches, against one step after another."""
    models = [Model(config(depth=1, **changes), spec, backend=backend) for backend in ("sequential", "chunked")]
    assert models[1].recurrence.chunks(spec.length, 4) >= 4
    params, stats = initial(models[0])
    inputs, lengths = batch(spec)
    if spec.features == 3 and spec.kind == "features":
        inputs, lengths = jnp.stack([inputs, inputs // 2, inputs % 5], axis=-1), None

    def outcome(model):
        def loss(params):
            logits, new = model.apply(params, stats, inputs, lengths, train=True, key=jax.random.key(1))
            return jnp.sum(jnp.sin(logits)), (logits, new)

        gradient, (logits, new) = jax.jit(jax.grad(loss, has_aux=True))(params)
        return gradient, logits, new

    for one, two in zip(*map(jax.tree.leaves, map(outcome, models)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=2e-5)
