"""The network: sizes as published, outputs against plain NumPy in double precision, padding, norms of states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lrurun.config.recurrences.attention import AttentionSettings
from lrurun.config.recurrences.block_diagonal import BlockDiagonalSettings
from lrurun.config.recurrences.dlr import DLRSettings
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.recurrences.rotrnn import RotRNNSettings
from lrurun.config.recurrences.s4 import S4Settings
from lrurun.config.recurrences.s4d import S4DSettings
from lrurun.config.recurrences.s5 import S5Settings
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn.network import Model
from tests.harness.networks import LRU, batch, config, features, initial, junk, tokens

TWO_WAY = {"bidirectional": True}
SPEECH = {"depth": 6, "width": 96, "glu": "half"}
LANGUAGE = {"depth": 1, "width": 384, "state": 512, "norm": "layer", "final_norm": True, "glu": "switch"}
REST = 6 * (96**2 + 96 + 2 * 96) + (96 + 96) + (96 * 35 + 35)
"""All of a network for speech but its recurrences: maps, norms, encoder and head."""
SIZES = {
    # of the LRU, in the order of the paper: sCIFAR, ListOps, Text, Retrieval, Pathfinder, Path-X
    "lru-1": (LRU, {"width": 512, "state": 384}, features(features=3, classes=10, length=1024), 7_893_770),
    "lru-2": (LRU, {"width": 128, "state": 256}, tokens(features=20, classes=10, length=2048), 995_466),
    "lru-3": (LRU, {"width": 256, "state": 192}, tokens(features=135, classes=2, length=4096), 2_012_546),
    "lru-4": (LRU, {"width": 128, "state": 256}, tokens(features=98, classes=2, length=4000, pair=True), 1_070_082),
    "lru-5": (LRU, {"width": 192, "state": 256} | TWO_WAY, features(classes=2, length=1024), 2_222_978),
    "lru-6": (
        *(LRU, {"width": 128, "state": 256, "glu": "half"} | TWO_WAY),
        *(features(classes=2, length=16384), 1_286_146),
    ),
    # an S5 has as many as an LRU of half its state: (3P + 6PH + H + H^2 + H + 2H) a block, with P = 64, H = 96
    "lru-speech": (LRU, {**SPEECH, "state": 64} | TWO_WAY, None, 6 * (3 * 64 + 6 * 64 * 96 + 96) + REST),
    "s5": (S5Settings(blocks=16), {**SPEECH, "state": 128} | TWO_WAY, None, 6 * (3 * 64 + 6 * 64 * 96 + 96) + REST),
    # A, B and C of N / 2 complex numbers a channel, its Delta and D; S4 has P too
    "s4d": (S4DSettings(), {**SPEECH, "state": 64}, None, 6 * (96 * 3 * 64 + 2 * 96) + REST),
    "s4d-1": (S4DSettings(n_ssm=1), {**SPEECH, "state": 64}, None, 6 * (2 * 64 + 96 * 64 + 2 * 96) + REST),
    "s4": (S4Settings(), {**SPEECH, "state": 64}, None, 6 * (96 * 4 * 64 + 2 * 96) + REST),
    "s4-1": (S4Settings(n_ssm=1), {**SPEECH, "state": 64}, None, 6 * (3 * 64 + 96 * 64 + 2 * 96) + REST),
    # 284K in RotRNN's Table 2
    "rotrnn": (RotRNNSettings(heads=64), {**SPEECH, "state": 128} | TWO_WAY, None, 284_675),
    "rotrnn-32": (RotRNNSettings(heads=32), {**SPEECH, "state": 128} | TWO_WAY, None, 286_019),
}


@pytest.mark.parametrize("name", SIZES)
def test_published_sizes(name):
    recurrence, sizes, spec, count = SIZES[name]
    spec = spec or features(classes=35, length=16)
    depth = 2 if name == "lru-1" else 1  # of six equal ones
    model = Model(ModelConfig(**{"recurrence": recurrence} | sizes | {"depth": depth}), spec)
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    assert len(params["blocks"]) == depth
    assert model.count(params) + (6 - depth) * model.count(params["blocks"]["0"]) == count


def test_published_sizes_to_a_few_digits():
    """Gupta et al. 2023, tables 1 and 2: thousands of attention, and millions in models of language; but for
    embeddings, of which the paper's have 128 numbers, and are also the head. And 32 blocks of Zucchet and Orvieto."""
    for blocks, published in ((1, 83), (2, 166)):
        sizes = {"depth": blocks, "width": 128, "state": 128, "glu": "half", "norm": "layer"}
        model = Model(ModelConfig(recurrence=AttentionSettings(), **sizes), features(features=3, classes=1))
        assert model.count(jax.eval_shape(model.init, jax.random.key(0))[0]) // 1000 == published
    for recurrence, published in ((DLRSettings(), 312e6), (AttentionSettings(heads=8), 318e6)):
        config, spec = ModelConfig(recurrence=recurrence, **LANGUAGE), tokens(features=32_128, classes=32_128)
        model = Model(config, spec)
        params, _ = jax.eval_shape(model.init, jax.random.key(0))  # of one block and what is around the sixteen
        inside = model.count({name: x for name, x in params.items() if name not in ("encoder", "head")})
        inside += 15 * model.count(params["blocks"]["0"])
        assert inside + 32_128 * 128 == pytest.approx(published, abs=1e6)
    model = Model(ModelConfig(recurrence=BlockDiagonalSettings(), depth=1, width=1, state=64), features())
    params, _ = jax.eval_shape(model.init, jax.random.key(0))
    assert model.count(params["blocks"]["0"]["recurrence"]) == 257


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


def test_a_final_norm_needs_norms_before_blocks():
    with pytest.raises(ValueError, match="final_norm = true needs norm_place"):
        config(norm_place="post", final_norm=True)


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


NETWORKS = {
    "batch norm, both ways": ({"bidirectional": True, "glu": "half", "norm_momentum": 0.7}, tokens()),
    "last, final norm": ({"glu": "half2", "pooling": "last", "final_norm": True, "depth": 1}, features()),
    "pairs, max, post": (
        {"glu": "none", "pooling": "max", "norm_place": "post", "head_activation": "gelu", "depth": 1},
        tokens(pair=True),
    ),
    "pairs, relu": ({"depth": 1}, tokens(pair=True)),
    "switch": ({"glu": "switch", "experts": 1, "norm": "layer", "depth": 1}, features()),
    "feed-forward, post": (
        {"feed_forward": 2, "glu": "linear", "norm": "layer", "norm_place": "post", "depth": 1},
        features(),
    ),
    "feed-forward, pre": ({"feed_forward": 1, "feed_forward_ratio": 3, "norm": "layer", "depth": 1}, tokens()),
    "switch, post": ({"glu": "switch", "experts": 1, "norm": "layer", "norm_place": "post", "depth": 1}, tokens()),
}


SLOW = ("switch, post", "feed-forward, pre", "pairs, relu")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in NETWORKS]
)
def test_logits_statistics_and_gradients(strict, name):
    settings, spec = NETWORKS[name]
    model = Model(config(**settings), spec)
    inputs, lengths = batch(spec)
    batch_norm = model.config.norm == "batch"
    momentum = model.config.norm_momentum if batch_norm else None

    @jax.jit
    def run():
        params, stats = initial(model)
        evaluate = jax.jit(lambda stats: model.apply(params, stats, inputs, lengths, train=False))

        def loss(p):
            logits, seen = model.apply(p, stats, inputs, lengths, train=True)
            return jnp.sum(logits**2), (logits, seen)

        gradient, (logits, seen) = jax.grad(loss, has_aux=True)(params)
        return params, stats, gradient, logits, seen, evaluate(stats), evaluate(seen)[0]

    params, stats, gradient, logits, seen, (untrained, same), evaluated = jax.device_get(run())
    wanted, moments = reference(model, params, inputs, lengths, momentum)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    assert jax.tree.structure(seen) == jax.tree.structure(stats)
    for i, moment in moments.items():
        for name, value in moment.items():
            at = seen["final"] if i == "final" else seen["blocks"][i]["norm"]
            np.testing.assert_allclose(at[name], value, rtol=1e-4, atol=1e-5)
    # Before a first step the statistics are mean 0 and variance 1; after one, those of its batch.
    np.testing.assert_allclose(untrained, reference(model, params, inputs, lengths)[0], rtol=1e-4, atol=1e-4)
    assert all(map(np.array_equal, jax.tree.leaves(same), jax.tree.leaves(stats)))
    np.testing.assert_allclose(evaluated, wanted, rtol=1e-4, atol=1e-4)
    rng = np.random.default_rng(0)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), params)
    ends = []
    for h in (1e-5, -1e-5):
        moved = jax.tree.map(lambda x, d, h=h: np.asarray(x, np.float64) + h * d, params, direction)
        ends.append(np.sum(reference(model, moved, inputs, lengths, momentum)[0] ** 2))
    found = sum(float(np.sum(g * d)) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=2e-3)


def test_padding_changes_nothing():
    """But in the published code, which counts it: its statistics move, and its backward scan starts there."""
    spec = tokens()
    inputs, lengths = batch(spec)
    other = junk(inputs, lengths)
    longer = np.pad(inputs, ((0, 0), (0, 5)), constant_values=6)
    assert not np.array_equal(inputs, other)
    results = {}
    for parity in ("none", "reference"):
        model = Model(config(bidirectional=True, parity=parity, depth=1), spec)

        @jax.jit
        def run(inputs, other, longer, model=model, parity=parity):
            params, stats = initial(model)
            apply = jax.jit(lambda s, x: model.apply(params, s, x, lengths, train=True))
            evaluate = jax.jit(lambda s, x: model.apply(params, s, x, lengths, train=False)[0])
            found = []
            for x in (inputs, other, longer) if parity == "none" else (inputs, other):
                logits, seen = apply(stats, x)
                again = [evaluate(seen, x)] if x is not longer else []
                found.append([logits, *jax.tree.leaves(seen), *again])
            return found

        results[parity] = jax.device_get(run(inputs, other, longer))
    first, *rest = results["none"]
    for again in rest:
        for a, b in zip(first, again, strict=False):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    first, second = results["reference"]
    assert all(np.max(np.abs(first[i] - second[i])) > 1e-3 for i in (0, -1))
    assert np.max(np.abs(first[0] - results["none"][0][0])) > 1e-3


@pytest.mark.slow
def test_the_backward_scan_of_the_published_code_starts_in_the_padding():
    spec = tokens()
    inputs, lengths = batch(spec)
    for bidirectional, moves in ((True, True), (False, False)):
        model = Model(config(norm="layer", bidirectional=bidirectional, parity="reference", depth=1), spec)
        params, stats = initial(model)
        apply = jax.jit(lambda x, m=model, p=params, s=stats: m.apply(p, s, x, lengths, train=False)[0])
        assert (np.max(np.abs(apply(inputs) - apply(junk(inputs, lengths)))) > 1e-4) == moves


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_full_lengths_are_no_lengths_and_empty_sequences_give_the_bias(strict, pooling):
    train, spec = pooling == "mean", tokens()  # of batch norm, the statistics too
    model = Model(config(depth=1, pooling=pooling, bidirectional=train), spec)
    inputs, lengths = map(np.asarray, batch(spec))
    some = lengths * np.array([1, 0, 0, 1], lengths.dtype)
    cases = (inputs, lengths), (junk(inputs, lengths), lengths), (inputs, 0 * lengths), (inputs, some)

    @jax.jit
    def run(cases, without):
        params, stats = initial(model)
        apply = jax.jit(lambda x, n: model.apply(params, stats, x, n, train=train))
        full = apply(without, jnp.full_like(lengths, 12))
        return params["head"]["bias"], full, apply(without, None), *(apply(*case)[0] for case in cases)

    bias, full, without, real, other, nothing, finite = run(cases, inputs)
    np.testing.assert_allclose(real, other, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(full), jax.tree.leaves(without), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(nothing, np.broadcast_to(bias, nothing.shape))
    assert np.all(np.isfinite(finite))


def test_running_averages_are_bias_corrected():
    spec = features()
    model = Model(config(depth=1, norm_momentum=0.9), spec)

    @jax.jit
    def run(batches):
        params, stats = initial(model)
        step = jax.jit(lambda s, x: model.apply(params, s, x, train=True)[1])
        for inputs in batches:
            stats = step(stats, inputs)
        return params, stats

    params, stats = jax.device_get(run([batch(spec, seed=seed)[0] for seed in range(3)]))
    kept = []
    for seed in range(3):
        inputs, _ = batch(spec, seed=seed)
        x = np.asarray(inputs)[..., None] * spec.scale @ np.asarray(params["encoder"]["kernel"], np.float64)
        kept.append((x + params["encoder"]["bias"]).mean((0, 1)))
    norm = stats["blocks"]["0"]["norm"]
    weights = np.array([0.1 * 0.81, 0.1 * 0.9, 0.1])
    np.testing.assert_allclose(norm["weight"], weights.sum(), rtol=1e-5)
    np.testing.assert_allclose(norm["mean"] / norm["weight"], np.average(kept, axis=0, weights=weights), rtol=1e-4)


def test_features_are_scaled_less_the_mean_over_the_deviation(strict):
    """As if NumPy had done it before; nothing is done where nothing is given."""
    inputs = np.random.default_rng(0).integers(-300, 300, (4, 12, 3)).astype(np.int16)
    mean, std = (0.5, -2.0, 3.0), (2.0, 0.25, 1.5)
    changed = {"both": ((inputs * 0.1 - mean) / std, mean, std), "neither": (inputs * 0.1, (), ())}
    plain = Model(config(depth=1), features(features=3, scale=1.0))

    @jax.jit
    def run(inputs, values):
        params, stats = initial(plain)
        wanted = jax.jit(lambda x: plain.apply(params, stats, x, train=False)[0])
        found = []
        for _, mean, std in changed.values():
            model = Model(config(depth=1), features(features=3, mean=mean, std=std))
            found.append(model.apply(params, stats, inputs, train=False)[0])
        return found, [wanted(x) for x in values]

    for found, wanted in zip(*run(inputs, [x[0].astype(np.float32) for x in changed.values()]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "recurrence",
    [pytest.param(LRU, id="lru"), pytest.param(RNNSettings(activation="tanh"), id="dense")],
)
@pytest.mark.slow
def test_the_smallest_network(strict, recurrence):
    """One step, one state, one feature, one sequence: finite outputs and gradients, with nothing real in it too."""
    model = Model(config(recurrence=recurrence, bidirectional=True, depth=1, width=1, state=1), features(length=1))

    @jax.jit
    def outcome(lengths):
        params, stats = initial(model)

        def loss(params):
            logits, _ = model.apply(params, stats, jnp.ones((1, 1), jnp.uint8), lengths, train=True)
            return jnp.sum(jnp.sin(logits)), logits

        return jax.grad(loss, has_aux=True)(params), params["head"]["bias"]

    for length in (1, 0):
        found, bias = outcome(np.array([length], np.int32))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    np.testing.assert_array_equal(found[1][0], bias)  # the mean over no position is zero


STATES = {
    "tanh": RNNSettings(activation="tanh"),
    "normalised": LRUSettings(r_min=0.9, r_max=0.999, normalize=True, phase="log", max_phase=0.3),
}


def states(kind, params, u):
    """(B, T, N), complex where the recurrence is, of inputs (B, T, H), from the published formulas."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    if kind == "tanh":
        x, found = np.zeros((len(u), len(p["A"]))), []
        for k in range(u.shape[1]):
            x = np.tanh(x @ p["A"].T + u[:, k] @ p["B"].T)
            found.append(x)
        return np.stack(found, 1)
    theta = np.exp(p["theta_log"]) if "theta_log" in p else p["theta"]
    lam = np.exp(-np.exp(p["nu_log"]) + 1j * theta)
    b = (p["B_re"] + 1j * p["B_im"]) * np.exp(p.get("gamma_log", np.zeros(len(lam))))[:, None]
    x, found = np.zeros((len(u), len(lam)), complex), []
    for k in range(u.shape[1]):
        x = lam * x + u[:, k] @ b.T
        found.append(x)
    return np.stack(found, 1)


@pytest.mark.parametrize(
    ("kind", "shape"), [pytest.param("tanh", "pairs", marks=pytest.mark.slow), ("normalised", "both ways")]
)
def test_norms_of_states_are_those_of_a_loop_in_float64(kind, shape, strict):
    pair = shape == "pairs"
    model = Model(
        ModelConfig(recurrence=STATES[kind], depth=2, width=6, state=5, bidirectional=shape == "both ways"),
        Spec(name="toy", kind="features", features=1, classes=2, length=24, scale=0.25, pair=pair),
        remat=pair,
    )
    draw = np.random.RandomState(0)
    inputs = draw.randint(0, 9, (4, 2, 24) if pair else (8, 24)).astype(np.uint8)
    lengths = draw.randint(1, 25, inputs.shape[:-1]).astype(np.int32)
    counted = np.arange(len(inputs)) != 1

    @jax.jit
    def run(counted):
        params, stats = model.init(jax.random.key(1))
        # a closed gate hands the encoder's outputs on to the second layer as they are
        params["blocks"]["0"]["gate"]["bias"] = jnp.full(6, -1e4, jnp.float32)
        arrays = params, stats, jnp.asarray(inputs), jnp.asarray(lengths)
        return params, model.evaluate(*arrays, counted), model.apply(*arrays, train=False)[0]

    params, (logits, found), applied = jax.device_get(run(counted))
    np.testing.assert_allclose(logits, applied, rtol=1e-5)
    assert not run(np.zeros_like(counted))[1][1].any()

    rows = inputs.reshape(8, 24)
    ends = np.where(np.repeat(counted, 8 // len(counted)), lengths.reshape(8), 0)
    kernel = np.asarray(params["encoder"]["kernel"], np.float64)
    u = rows[..., None] * 0.25 @ kernel / np.sqrt(1 + 1e-5)
    for layer in range(2):
        x = states(kind, params["blocks"][str(layer)]["recurrence"], u)
        norms = np.sqrt((np.abs(x) ** 2).sum(-1))
        expected = np.mean(np.concatenate([norms[row, :end] for row, end in enumerate(ends)]))
        assert float(found[layer]) == pytest.approx(expected, rel=2e-6)
