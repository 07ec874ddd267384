"""RotRNN, and the diagonal recurrences between it and the LRU, against plain NumPy and SciPy in double precision."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.linalg
import scipy.stats

from lrurun.config import plan as planning
from lrurun.config.recurrences.lru import LRURecurrence
from lrurun.config.recurrences.rotrnn import RotRNNRecurrence
from lrurun.config.schema import ModelConfig, OptimConfig
from lrurun.data.task import Spec
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from lrurun.nn.recurrences import rotrnn
from lrurun.nn.scan import split
from lrurun.training import optimizer
from tests.harness.loops import double

WIDTH, STATE = 5, 12


def rotation(m):
    """P of one head, by SciPy."""
    return scipy.linalg.expm(m - m.T)


def matrices(settings, p):
    """The real N x N matrix of the recurrence, and xi B (N, H), head below head."""
    a, b = [], []
    for theta, gamma_log, m, of_b, xi in zip(
        p["theta"], p["gamma_log"], p["M"], p["B"], p.get("xi_log", p["gamma_log"]), strict=True
    ):
        gamma = math.exp(-math.exp(gamma_log))
        planes = [[[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]] for t in theta]
        rotated = rotation(m)
        a.append(gamma * rotated @ scipy.linalg.block_diag(*planes) @ rotated.T)
        trace = np.trace(of_b.T @ of_b)
        normalizers = {"trace": math.sqrt((1 - gamma**2) / trace), "gamma": math.exp(xi), "none": 1.0}
        normalizers["naive"] = 1 / math.sqrt(gamma**2 + trace)
        b.append(normalizers[settings.normalizer] * of_b)
        if settings.normalizer == "naive":  # of the whole right side of equation 6
            a[-1] = normalizers["naive"] * a[-1]
    return scipy.linalg.block_diag(*a), np.concatenate(b)


def reference(settings, p, u, lengths, bidirectional):
    """Outputs of each sequence by itself from its own inputs, step by step; zero in the padding."""
    a, b = matrices(settings, p)
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = p["D"] * u[:length, i]
        for c, order in (("C", range(length)), ("C_back", reversed(range(length)))):
            x = np.zeros(len(a))
            for k in order if c == "C" or bidirectional else ():
                x = a @ x + b @ u[k, i]
                y[k, i] += p[c] @ x
    return y


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "bidirectional"),
    [
        (RotRNNRecurrence(), False),
        (RotRNNRecurrence(heads=3), True),
        (RotRNNRecurrence(heads=6, normalizer="gamma", draw="ring"), True),
        (RotRNNRecurrence(heads=2, normalizer="none", max_phase=0.3), False),
        (RotRNNRecurrence(heads=3, normalizer="naive"), True),
    ],
)
def test_the_scan_is_the_real_recursion_of_the_paper(strict, settings, bidirectional):
    recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = jax.jit(recurrence.init)(jax.random.key(1))
    rng = np.random.default_rng(0)
    lengths = [20, 9, 1]
    mask = np.arange(20)[:, None] < np.array(lengths)
    u = np.asarray(rng.normal(size=(20, 3, WIDTH)), np.float32)
    wanted = reference(settings, double(params), u.astype(np.float64), lengths, bidirectional)
    scan = jax.jit(recurrence.scan)
    y = np.asarray(scan(params, u, mask))
    np.testing.assert_allclose(y[mask], wanted[mask], atol=1e-5)
    with jax.enable_x64(True):
        exact = np.asarray(jax.jit(recurrence.scan)(double(params), u.astype(np.float64), mask))
    np.testing.assert_allclose(exact[mask], wanted[mask], atol=1e-12)


def test_it_takes_chunks_side_by_side():
    recurrence = recurrences.build(RotRNNRecurrence(heads=3), width=WIDTH, state=STATE, bidirectional=True)
    params = jax.jit(recurrence.init)(jax.random.key(1))
    u = jax.random.normal(jax.random.key(2), (32, 2, WIDTH), jnp.float32)
    scan = jax.jit(recurrence.scan)
    np.testing.assert_allclose(scan(params, split(u, 4)), split(scan(params, u), 4), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("bidirectional", [False, True])
def test_it_is_a_diagonal_recurrence_with_p_folded_into_b_and_c(bidirectional):
    settings = RotRNNRecurrence(heads=3)
    recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = jax.jit(recurrence.init)(jax.random.key(2))
    p = double(params)
    gamma = np.exp(-np.exp(p["gamma_log"]))
    p_matrix = scipy.linalg.block_diag(*(rotation(m) for m in p["M"]))
    inward = p_matrix.T @ matrices(settings, p)[1]
    folded = {
        "nu_log": p["gamma_log"],
        "theta": p["theta"].ravel(),
        "B_re": inward[0::2],
        "B_im": inward[1::2],
        "D": p["D"],
    }
    for way in ("", "_back") if bidirectional else ("",):
        outward = p[f"C{way}"] @ p_matrix
        folded |= {f"C_re{way}": outward[:, 0::2] / 2, f"C_im{way}": -outward[:, 1::2] / 2}
    other = recurrences.build(
        LRURecurrence(conjugate=True, heads=3), width=WIDTH, state=STATE, bidirectional=bidirectional
    )
    shapes = {name: leaf.shape for name, leaf in jax.eval_shape(other.init, jax.random.key(0)).items()}
    assert {name: value.shape for name, value in folded.items()} == shapes
    u = np.random.default_rng(1).normal(size=(200, 2, WIDTH))
    single = {name: jnp.asarray(value, jnp.float32) for name, value in folded.items()}
    u32 = jnp.asarray(u, jnp.float32)
    np.testing.assert_allclose(jax.jit(recurrence.scan)(params, u32), jax.jit(other.scan)(single, u32), atol=1e-5)
    with jax.enable_x64(True):
        one, two = jax.jit(recurrence.scan)(p, u), jax.jit(other.scan)(folded, u)
        np.testing.assert_allclose(one, two, atol=1e-12)
    lam = np.concatenate([np.repeat(gamma, 2) * np.exp(s * 1j * p["theta"].ravel()) for s in (1, -1)])
    np.testing.assert_allclose(recurrence.spectrum(params), lam, rtol=1e-6)
    np.testing.assert_allclose(other.spectrum(single), lam, rtol=1e-6)
    real = np.linalg.eigvals(matrices(settings, p)[0])
    np.testing.assert_allclose(np.sort_complex(recurrence.spectrum(params)), np.sort_complex(real), atol=1e-6)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_p_is_a_rotation(n):
    m = np.random.default_rng(n).normal(size=(3, n, n))
    p = np.asarray(jax.jit(rotrnn.rotations)(jnp.asarray(m, jnp.float32)), np.float64)
    np.testing.assert_allclose(p @ p.swapaxes(1, 2), np.broadcast_to(np.eye(n), p.shape), atol=2e-5)
    np.testing.assert_allclose(np.linalg.det(p), 1.0, atol=1e-4)
    np.testing.assert_allclose(p, [rotation(one.astype(np.float32).astype(np.float64)) for one in m], atol=5e-5)


@pytest.mark.slow
def test_the_trace_normaliser_keeps_the_norm_of_the_state():
    """E|x_t|^2 = 1 - gamma^(2t) in each head, for white input and a zero start (RotRNN paper, lemma 3 and eq. 11)."""
    gamma = np.array([0.1, 0.5, 0.9, 0.99, 0.999, 0.9999])
    heads, size, batch, steps = gamma.size, 4, 2000, 200
    recurrence = recurrences.build(RotRNNRecurrence(heads=heads), width=6, state=heads * size)
    params = jax.jit(recurrence.init)(jax.random.key(0)) | {
        "gamma_log": jnp.asarray(np.log(-np.log(gamma)), jnp.float32)
    }
    u = jnp.asarray(np.random.default_rng(0).normal(size=(steps, batch, 6)), jnp.float32)

    @jax.jit
    def states(u):
        def body(x, u_k):
            x, _ = recurrence.step(params, x, u_k)
            return x, x.abs2().reshape(batch, heads, size // 2).sum(-1)

        return jax.lax.scan(body, recurrence.initial_state(batch), u)[1]

    found = np.asarray(states(u), np.float64)
    for t in (1, 2, 10, 200):
        wanted = 1 - gamma ** (2 * t)
        # |x|^2 is at most as spread as chi-squared of one degree of freedom
        np.testing.assert_allclose(found[t - 1].mean(axis=0) / wanted, 1.0, atol=5 * math.sqrt(2 / batch))
    norms = np.asarray(jax.jit(recurrence.norms)(params, u[:10]))
    np.testing.assert_allclose(norms, np.sqrt(found[:10].sum(-1)), rtol=1e-5)


@pytest.mark.slow
def test_the_naive_normaliser_keeps_the_norm_and_forgets_by_more_than_gamma():
    """E|x|^2 = 1 in the long run (lemma 3), and an input fades by alpha gamma a step (eq. 10)."""
    heads, batch, steps = 3, 4000, 60
    recurrence = recurrences.build(RotRNNRecurrence(heads=heads, normalizer="naive"), width=6, state=4 * heads)
    params = jax.jit(recurrence.init)(jax.random.key(0))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(steps, batch, 6)), jnp.float32)
    step = jax.jit(lambda x, u_k: recurrence.step(params, x, u_k)[0])
    x = recurrence.initial_state(batch)
    for u_k in u:
        x = step(x, u_k)
    norms = np.asarray(x.abs2(), np.float64).reshape(batch, heads, 2).sum(-1)
    np.testing.assert_allclose(norms.mean(axis=0), 1.0, atol=5 * math.sqrt(2 / batch))
    p = double(params)
    gamma = np.exp(-np.exp(p["gamma_log"]))
    fading = gamma / np.sqrt(gamma**2 + np.sum(p["B"] ** 2, axis=(1, 2)))
    np.testing.assert_allclose(np.abs(recurrence.spectrum(params)), np.tile(np.repeat(fading, 2), 2), rtol=1e-6)
    assert np.all(fading < 0.8)
    assert np.all(gamma > 0.9)


def test_the_trace_normaliser_keeps_its_digits_near_gamma_one():
    nu = np.logspace(-9, 0, 50)
    recurrence = recurrences.build(RotRNNRecurrence(heads=50), width=3, state=100)
    params = jax.jit(recurrence.init)(jax.random.key(0)) | {"gamma_log": jnp.asarray(np.log(nu), jnp.float32)}
    p = double(params)
    wanted = np.sqrt(-np.expm1(-2 * np.exp(p["gamma_log"])) / np.sum(p["B"] ** 2, axis=(1, 2)))
    np.testing.assert_allclose(recurrence._normalizer(params), wanted, rtol=3e-6)


def test_initial_values():
    heads = 3000
    for draw in ("log", "ring"):
        recurrence = recurrences.build(
            RotRNNRecurrence(heads=heads, r_min=0.5, r_max=0.999, max_phase=0.3, draw=draw, normalizer="gamma"),
            width=2,
            state=4 * heads,
        )
        p = double(jax.jit(recurrence.init)(jax.random.key(3)))
        gamma = np.exp(-np.exp(p["gamma_log"]))
        if draw == "log":
            low, high = math.log(-math.log(0.999)), math.log(-math.log(0.5))
            share = (p["gamma_log"] - low) / (high - low)
        else:
            share = (gamma**2 - 0.25) / (0.999**2 - 0.25)
        assert scipy.stats.kstest(share, "uniform").pvalue > 0.01, draw
        assert gamma.min() > 0.5 - 1e-6
        assert gamma.max() < 0.999 + 1e-6
        assert scipy.stats.kstest(p["theta"].ravel() / 0.3, "uniform").pvalue > 0.01
        assert p["theta"].min() > 0
        np.testing.assert_allclose(np.exp(2 * p["xi_log"]), 1 - gamma**2, rtol=1e-4)


@pytest.mark.parametrize(("heads", "parameters"), [(64, 284_675), (32, 286_019)])
def test_as_many_parameters_as_published_for_speech_commands(heads, parameters):
    """284K in the paper's Table 2: 6 blocks of 96 features, 128 real numbers of state, both directions, half a GLU."""
    config = ModelConfig(
        recurrence=RotRNNRecurrence(heads=heads), depth=6, width=96, state=128, glu="half", bidirectional=True
    )
    model = Model(config, Spec(name="any", kind="features", features=1, classes=35, length=8))
    assert model.count(jax.eval_shape(model.init, jax.random.key(0))[0]) == parameters


def test_parameters_and_groups():
    def names(settings, bidirectional):
        recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
        shapes = {name: leaf.shape for name, leaf in jax.eval_shape(recurrence.init, jax.random.key(0)).items()}
        return shapes, recurrence.recurrent_parameters

    inner = {"theta": (3, 2), "gamma_log": (3,), "M": (3, 4, 4), "B": (3, 4, WIDTH)}
    outer = {"C": (WIDTH, STATE), "D": (WIDTH,)}
    assert names(RotRNNRecurrence(heads=3), False) == (inner | outer, set(inner))
    more = {"xi_log": (3,)}
    assert names(RotRNNRecurrence(heads=3, normalizer="gamma"), True) == (
        inner | more | outer | {"C_back": (WIDTH, STATE)},
        set(inner | more),
    )
    # the groups of the public code, where theta and M train with the rest
    assert names(RotRNNRecurrence(heads=3, slow_rotations=False), False) == (inner | outer, {"gamma_log", "B"})
    halves = {"nu_log": (3,), "theta": (6,), "gamma_log": (3,), "B_re": (6, WIDTH), "B_im": (6, WIDTH)}
    shapes, recurrent = names(LRURecurrence(conjugate=True, heads=3, normalize=True), False)
    assert shapes == halves | {"C_re": (WIDTH, 6), "C_im": (WIDTH, 6), "D": (WIDTH,)}
    assert recurrent == set(halves)


@pytest.mark.slow
def test_outside_the_recurrent_group_rotations_train_as_in_the_public_code():
    """Two steps of optax: Adam for leaves called B and gamma_log, AdamW for all others (s5/train_helpers.py)."""
    settings = RotRNNRecurrence(heads=2, slow_rotations=False)
    spec = Spec(name="any", kind="features", features=2, classes=3, length=4)
    model = Model(ModelConfig(recurrence=settings, depth=1, width=4, state=8), spec)
    ours, _ = jax.jit(model.init)(jax.random.key(0))
    config, groups = OptimConfig(lr=0.02, recurrent_factor=0.1, weight_decay=0.3), model.groups(ours)
    labels = jax.tree_util.tree_map_with_path(
        lambda path, _: "ssm" if path[-1].key in ("B", "gamma_log") else "regular", ours
    )
    published = optax.multi_transform(
        {"ssm": optax.adam(0.002), "regular": optax.adamw(0.02, weight_decay=0.3)}, labels
    )
    theirs, state, memory = ours, optimizer.init(ours), published.init(ours)

    @jax.jit
    def both(step, ours, state, theirs, memory):
        grads = jax.tree.map(lambda x: jnp.cos(x + step), theirs)
        updates, memory = published.update(grads, memory, theirs)
        return (
            *optimizer.update(config, groups, grads, state, ours, jnp.float32(0.02)),
            *(optax.apply_updates(theirs, updates), memory),
        )

    for step in (0.0, 1.0):
        ours, state, theirs, memory = both(step, ours, state, theirs, memory)
    jax.tree.map(lambda found, wanted: np.testing.assert_allclose(found, wanted, atol=1e-6), ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("parametrization", ["cartesian", "stable-exponential"])
def test_conjugate_pairs_are_the_whole_real_system(parametrization):
    settings = {"parametrization": parametrization, "normalize": True, "r_max": 0.99}
    half = recurrences.build(LRURecurrence(conjugate=True, **settings), width=WIDTH, state=STATE, bidirectional=True)
    whole = recurrences.build(LRURecurrence(**settings), width=WIDTH, state=STATE, bidirectional=True)
    params = jax.jit(half.init)(jax.random.key(0))
    doubled = {
        name: jnp.concatenate(
            [x, -x if name in ("lam_im", "theta", "B_im") or name.startswith("C_im") else x],
            axis=1 if name.startswith("C") else 0,
        )
        for name, x in params.items()
        if name != "D"
    } | {"D": params["D"]}
    u = jax.random.normal(jax.random.key(1), (50, 2, WIDTH), jnp.float32)
    wanted = jax.jit(whole.scan)(doubled, u)
    np.testing.assert_allclose(jax.jit(half.scan)(params, u), wanted, atol=1e-5)
    np.testing.assert_allclose(jax.jit(half.norms)(params, u), jax.jit(whole.norms)(doubled, u), rtol=1e-5)
    np.testing.assert_allclose(half.spectrum(params), whole.spectrum(doubled), rtol=1e-6)


def test_pairs_leave_the_initial_variance_of_the_output_as_it_was():
    width, state = 64, 128
    u = jax.random.normal(jax.random.key(1), (100, 32, width), jnp.float32)
    spread = {}
    for conjugate in (False, True):
        settings = LRURecurrence(conjugate=conjugate, normalize=True, r_min=0.5, r_max=0.9)
        recurrence = recurrences.build(settings, width=width, state=state)
        params = jax.jit(recurrence.init)(jax.random.key(0)) | {"D": jnp.zeros(width, jnp.float32)}
        spread[conjugate] = float(jnp.var(jax.jit(recurrence.scan)(params, u)[50:]))
    assert spread[True] == pytest.approx(spread[False], rel=0.1)


@pytest.mark.slow
def test_heads_share_their_decay_and_its_normalisation():
    shared = recurrences.build(LRURecurrence(heads=3, normalize=True), width=WIDTH, state=STATE)
    alone = recurrences.build(LRURecurrence(normalize=True), width=WIDTH, state=STATE)
    params = jax.jit(shared.init)(jax.random.key(0))
    spread = params | {name: jnp.repeat(params[name], 4) for name in ("nu_log", "gamma_log")}
    u = jax.random.normal(jax.random.key(1), (50, 2, WIDTH), jnp.float32)
    np.testing.assert_allclose(jax.jit(shared.scan)(params, u), jax.jit(alone.scan)(spread, u), atol=1e-6)
    gradient, each = (jax.jit(jax.grad(lambda p, of=of: jnp.sum(of.scan(p, u) ** 2)))(p)["nu_log"]
                      for of, p in ((shared, params), (alone, spread)))  # fmt: skip
    np.testing.assert_allclose(gradient, np.asarray(each).reshape(3, 4).sum(1), rtol=1e-4)


CHAIN = """
name = "rotations"
title = "from the LRU to RotRNN"
source = "ours"

[[rung]]
name = "lru"
title = "LRU"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.normalize" = true, "model.recurrence.r_min" = 0.9, "model.recurrence.r_max" = 0.999, "optim.lr" = 0.01 }

[[rung]]
name = "pairs"
title = "conjugate pairs"
change = { "model.recurrence.conjugate" = true }

[[rung]]
name = "heads"
title = "a decay a head"
change = { "model.recurrence.heads" = 4 }

[[rung]]
name = "rotation"
title = "real, with a rotation a head"
change = { "model.recurrence.kind" = "rotrnn", "model.recurrence.heads" = 4, "model.recurrence.draw" = "ring", "model.recurrence.normalizer" = "gamma" }

[[rung]]
name = "trace"
title = "normalised by the trace"
change = { "model.recurrence.normalizer" = "trace" }
"""  # noqa: E501


@pytest.fixture
def chain(tmp_path):
    path = tmp_path / "rotations.toml"
    path.write_text(CHAIN)
    return str(path)


def test_from_the_lru_to_rotrnn_one_change_a_rung(chain):
    made = {rung.name: rung for rung in planning.make("sDigits", ladder=chain).rungs}

    def moved(name):
        differences = made[name].differences  # learning rates belong to a rung, not to the model
        return {m.path.removeprefix("model.recurrence."): m.after for m in differences if m.path.startswith("model.")}

    assert moved("pairs") == {"conjugate": True}
    assert moved("heads") == {"heads": 4}
    # what the other kind does not have goes; radii, phases and heads have one name in both, and stay
    gone = dict.fromkeys(("parametrization", "phase", "normalize", "train_gamma", "conjugate"))
    new = {"kind": "rotrnn", "draw": "ring", "normalizer": "gamma", "slow_rotations": True}
    assert moved("rotation") == gone | new
    assert moved("trace") == {"normalizer": "trace"}


@pytest.mark.slow
def test_along_the_chain_the_eigenvalues_start_alike():
    state = 400
    rungs = (
        LRURecurrence(normalize=True, r_min=0.5, r_max=0.9, max_phase=1.0),
        LRURecurrence(normalize=True, r_min=0.5, r_max=0.9, max_phase=1.0, conjugate=True),
        LRURecurrence(normalize=True, r_min=0.5, r_max=0.9, max_phase=1.0, conjugate=True, heads=200),
        RotRNNRecurrence(r_min=0.5, r_max=0.9, max_phase=1.0, heads=200, draw="ring", normalizer="gamma"),
    )
    for settings in rungs:
        recurrence = recurrences.build(settings, width=2, state=state)
        lam = recurrence.spectrum(jax.jit(recurrence.init)(jax.random.key(7)))
        assert len(lam) == state
        lam = lam[:200]
        assert scipy.stats.kstest((np.abs(lam) ** 2 - 0.25) / 0.56, "uniform").pvalue > 0.01
        assert scipy.stats.kstest(np.angle(lam), "uniform").pvalue > 0.01


@pytest.mark.parametrize(
    ("kind", "sets", "message"),
    [
        ("heads", ["model.state=7"], "conjugate pairs need an even state, found state = 7"),
        (
            "heads",
            ["model.recurrence.heads=5"],
            "heads must divide state into whole pairs, found heads = 5, state = 32",
        ),
        (
            "heads",
            ["model.recurrence.conjugate=false", "model.recurrence.heads=5"],
            "heads must divide state, found heads = 5, state = 32",
        ),
        (
            "rotation",
            ["model.recurrence.heads=32"],
            "heads must divide state into planes, an even part each, found heads = 32, state = 32",
        ),
        ("rotation", ["model.recurrence.r_min=1.0"], "r_min must not be larger than r_max, found r_min = 1.0, "),
        (
            "heads",
            ["model.recurrence.normalize=false", "model.recurrence.train_gamma=false"],
            'train_gamma = false needs normalize = true and parametrization = "stable-exponential", found normalize = '
            'false, parametrization = "stable-exponential"',
        ),
        (
            "heads",
            ["model.recurrence.parametrization=exponential"],
            'heads need parametrization = "stable-exponential", found parametrization = "exponential", heads = 4',
        ),
    ],
)
def test_what_does_not_fit_is_told_before_anything_runs(tmp_path, kind, sets, message):
    head, *rungs = CHAIN.split("[[rung]]")
    if kind == "heads":
        alone = rungs[0].replace(
            '"optim.lr"', '"model.recurrence.conjugate" = true, "model.recurrence.heads" = 4, "optim.lr"'
        )
    else:
        alone = rungs[3]
    path = tmp_path / "one.toml"
    path.write_text(f"{head}[[rung]]{alone}")
    planning.make("sDigits", ladder=str(path), sets=["model.state=32"])
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", ladder=str(path), sets=["model.state=32", *sets])
    assert message in caught.value.message
    assert caught.value.hint
