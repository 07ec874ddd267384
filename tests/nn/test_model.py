"""The network: sizes as published, and outputs against plain NumPy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.lru import LRURecurrence
from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn.network import Model
from tests.harness.networks import FEATURES, LRU, TOKENS, batch, config, features, initial, junk, tokens


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
    model = Model(ModelConfig(recurrence=LRURecurrence(normalize=True), depth=6, **sizes), Spec(**spec))
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


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def with_expert(block, xs, before, normalized):
    """A Switch layer of one expert, which takes every position."""
    layer, norm = block["switch"], block["second_norm"]
    inputs = normalized(norm, xs, "") if before else xs
    outputs = [x + gelu(u @ layer["enter"][0]) @ layer["leave"][0] for x, u in zip(xs, inputs, strict=True)]
    return outputs if before else normalized(norm, outputs, "")


def with_feed_forward(block, xs, before, linear, normalized):
    """The layers after a recurrence, in the order of their numbers."""
    for number, layer in block.get("feed", {}).items():
        norm, name = block["feed_norm"][number], f"feed {number}"
        inputs = normalized(norm, xs, name) if before else xs
        outputs = [x + linear(layer["leave"], gelu(linear(layer["enter"], u))) for x, u in zip(xs, inputs, strict=True)]
        xs = outputs if before else normalized(norm, outputs, name)
    return xs


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
            g = gelu(y)
            gate = 1.0 if settings.glu in ("linear", "none", "switch") else sigmoid(linear(block["gate"], g))
            mapped = lambda g=g: linear(block["value"], g)  # noqa: B023, E731
            values = {"full": mapped, "linear": mapped, **dict.fromkeys(("half2", "switch"), lambda y=y: y)}
            outputs.append(x + values.get(settings.glu, lambda g=g: g)() * gate)
        xs = outputs if before else normalized(block["norm"], outputs, str(i))
        xs = with_expert(block, xs, before, normalized) if settings.glu == "switch" else xs
        xs = with_feed_forward(block, xs, before, linear, normalized)
    if settings.final_norm:
        xs = normalized(p["final"], xs, "final")
    pooled = np.stack([{"mean": x.mean(0), "max": x.max(0), "last": x[-1]}[settings.pooling] for x in xs])
    if spec.pair:
        a, b = np.split(pooled, 2)
        hidden = linear(p["hidden"], np.concatenate([a, b, a - b, a * b], axis=1))
        pooled = np.maximum(hidden, 0) if settings.head_activation == "relu" else gelu(hidden)
    return linear(p["head"], pooled), new


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        ({}, features()),
        ({"bidirectional": True, "glu": "half", "norm_momentum": 0.7}, tokens()),
        pytest.param({"norm": "layer", "bidirectional": True}, features(), marks=pytest.mark.slow),
        pytest.param({}, tokens(pair=True), marks=pytest.mark.slow),
        ({"glu": "half2", "pooling": "last", "final_norm": True, "depth": 1}, features()),
        ({"glu": "none", "pooling": "max", "norm_place": "post", "bidirectional": True, "depth": 1}, tokens()),
        pytest.param(
            {"pooling": "last", "norm": "layer", "norm_place": "post"}, tokens(pair=True), marks=pytest.mark.slow
        ),
        ({"head_activation": "gelu", "depth": 1}, tokens(pair=True)),
        ({"glu": "linear", "norm": "layer", "norm_place": "post", "depth": 1}, features()),
        ({"glu": "switch", "experts": 1, "norm": "layer", "depth": 1}, features()),
        ({"feed_forward": 2, "glu": "linear", "norm": "layer", "norm_place": "post", "depth": 1}, features()),
        pytest.param({"feed_forward": 1, "feed_forward_ratio": 3, "norm": "layer"}, tokens(), marks=pytest.mark.slow),
        pytest.param(
            {"glu": "switch", "experts": 1, "norm": "layer", "norm_place": "post"}, tokens(), marks=pytest.mark.slow
        ),
        pytest.param(
            {"pooling": "max", "norm": "layer", "final_norm": True, "glu": "half2"}, features(), marks=pytest.mark.slow
        ),
    ],
    ids="pixels both-ways layers pairs half2-last none-max-post last-post pairs-gelu linear switch feed-forward "
    "feed-forward-pre post max".split(),
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
    [
        pytest.param(LRU, False, marks=pytest.mark.slow),
        (LRU, True),
        pytest.param(RNNRecurrence(activation="tanh"), True, marks=pytest.mark.slow),
    ],
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


@pytest.mark.slow
def test_reference_parity_starts_the_backward_scan_in_the_padding():
    spec = tokens()
    inputs, lengths = batch(spec)
    for bidirectional, moves in ((True, True), (False, False)):
        model = Model(config(norm="layer", bidirectional=bidirectional, parity="reference"), spec)
        params, stats = initial(model)
        apply = jax.jit(lambda x, m=model, p=params, s=stats: m.apply(p, s, x, lengths, train=False)[0])
        assert (np.max(np.abs(apply(inputs) - apply(junk(inputs, lengths)))) > 1e-4) == moves


@pytest.mark.slow
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


@pytest.mark.parametrize("bidirectional", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("recurrence", [LRU, LRURecurrence(), RNNRecurrence(activation="tanh")])
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


@pytest.mark.slow
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
