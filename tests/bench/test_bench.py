"""The published forms of `lrurun bench` give the same numbers as ours, and the command says what it measured."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lrurun import bench
from lrurun.bench import LAYERS, PAPER, Result, Shape, forms, interval, loop
from lrurun.config import planning
from lrurun.data import tasks
from lrurun.data.task import Spec
from lrurun.ledger.ledger import Ledger
from lrurun.nn.network import Model
from lrurun.training.compiled import of_member

SMALL = Shape(3, 256, 6, 5)


def outputs_and_gradients(form):
    return form.function(*form.arguments(form.state))


def close(one, two, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * float(jnp.max(jnp.abs(b))))


def laid(x):
    """(B, L, N) as our forms have it: time first, in chunks."""
    chunks = forms.chunk_count(SMALL.length, SMALL.batch * SMALL.state, "auto")
    assert chunks > 1
    return forms.split(jnp.swapaxes(x, 0, 1), chunks)


def test_plain_rnn_is_ours():
    ours, theirs = (outputs_and_gradients(forms.rnn(SMALL, form)) for form in (True, False))
    close(ours, theirs, 1e-4)


@pytest.mark.slow
def test_published_scan_is_ours():
    (x, (lam, v)), (x_theirs, theirs) = (outputs_and_gradients(forms.scan(SMALL, form)) for form in (True, False))
    close(x, (laid(jnp.real(x_theirs)), laid(jnp.imag(x_theirs))), 1e-4)
    lam_theirs, v_theirs = map(jnp.conj, theirs)  # jax gives the conjugates of complex gradients
    close(lam, (jnp.real(lam_theirs), jnp.imag(lam_theirs)), 1e-4)
    close(v, (laid(jnp.real(v_theirs)), laid(jnp.imag(v_theirs))), 1e-4)


def test_published_varying_scan_is_ours():
    ours, theirs = (outputs_and_gradients(forms.scan_varying(SMALL, form)) for form in (True, False))
    close(ours, jax.tree.map(laid, theirs), 1e-4)


@pytest.mark.slow
def test_published_network_is_ours():
    spec = Spec(name="bench", kind="features", features=1, classes=forms.CLASSES, length=SMALL.length, scale=1 / 255)
    model = Model(forms._config(SMALL).model, spec)
    params, stats = jax.jit(model.init)(jax.random.key(3))
    inputs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (3, SMALL.length)), jnp.uint8)
    ours = jax.jit(lambda p: model.apply(p, stats, inputs, train=True)[0])
    theirs = jax.jit(lambda p: forms.published_network(p, inputs, spec.scale))
    close(ours(params), theirs(params), 1e-4)


@pytest.mark.slow
def test_published_step_is_ours():
    """After as many steps on the same batch, the same parameters."""
    one, two = (forms.step(SMALL, form) for form in (True, False))
    assert one.steps == forms.STEPS > 1
    live, seed, index, *rest = one.arguments(one.state)
    same = np.broadcast_to(index[:, :1], index.shape)  # one batch, as theirs
    live, _ = one.function(live, seed, same, *rest)
    state = two.state
    for _ in range(one.steps):
        state = two.function(*two.arguments(state))
    shape = forms._compiled(forms._config(SMALL), SMALL)
    close(shape.layout.tree(of_member(live.params, 0)), state[0], 2e-3)


@pytest.mark.slow
def test_bench_says_what_it_measured(machine):
    document = machine.json("bench", "layer", "--shape", "digits", "--rounds", "3", "--seconds", "0.05")
    assert document["schema_version"] == 1
    assert document["machine"]["copy_gb_s"] > 0.1
    speed, memory = document["results"]
    assert (speed["name"], memory["name"]) == ("layer/digits", "memory-layer/digits")
    assert speed["low"] <= speed["ratio"] <= speed["high"]
    assert speed["against_seconds"] > 0
    assert 0 < speed["of_limit"] < 10
    assert memory["ratio"] == memory["against_bytes"] / memory["bytes"] > 2  # from the compiler: no figure of the day


@pytest.mark.slow
def test_layers_of_other_kinds_have_as_many_complex_states_as_the_lru():
    shape = Shape(2, 16, 6, 15)

    def states(name, ours):
        form = forms.FORMS[name](shape, ours)
        _, params, u = form.arguments(form.state)
        assert jax.eval_shape(form.function, *form.arguments(form.state))[0].shape == u.shape
        return params["C_re"].size if "A_im" in params else params["C_re"].shape[1]

    assert set(LAYERS) < set(forms.FORMS)
    assert [states(name, False) for name in LAYERS] == [15, 15, 15, 6]  # of an RG-LRU, as many as features
    # a whole number of states for each of the six channels: two, as near as can be, and the published 32
    assert [states(name, True) for name in ("layer-s5", "layer-s4d", "layer-s4d-64")] == [15, 12, 6 * 32]


@pytest.mark.rare
def test_bench_runs_the_loop_of_a_worker(machine):
    document = machine.json("bench", "loop", "--rounds", "2", "--seconds", "0.2")
    assert [result["name"] for result in document["results"]] == ["loop/sDigits", "loop/small"]
    for result in document["results"]:
        assert 0 < result["seconds"] < 10
        assert 0 < result["against_seconds"] < 10


@pytest.mark.slow
def test_the_loop_is_a_worker_s_with_a_ledger(tmp_path):
    turn = loop.ours(tmp_path, "small")
    assert 0 < turn(1.0) < 1
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        (run,) = ledger.runs()
        rows = ledger.metrics(run.id, ["train/loss"])["train/loss"]
    assert run.state == "running"
    assert [step for step, _ in rows] == list(range(10, 10 * len(rows) + 1, 10))
    bare = loop.bare("small")
    assert 0 < bare(0.1) < 1


def test_errors_against_double_precision(monkeypatch):
    monkeypatch.setattr(forms, "BACKENDS", ["sequential"])
    monkeypatch.setattr(forms, "published_scan", lambda lam, v: v[:, ::-1] * lam[None, None])
    found = forms.scan_errors()
    assert 1e-7 < max(found["sequential"]) < 1e-4
    assert min(found["published"]) > 0.1  # wrong states have errors as large as states


@pytest.mark.parametrize(("count", "ranks"), [(5, (0, 4)), (6, (0, 5)), (15, (3, 11)), (20, (5, 14)), (1, (0, 0))])
def test_the_interval_of_a_median(count, ranks):
    """By the binomial distribution: the ranks that tables of the sign test's interval give."""
    low, high = interval(range(count))
    assert (low, high) == ranks
    inside = stats.binom(count, 0.5).cdf(high) - stats.binom(count, 0.5).cdf(low) if count >= 6 else 1
    assert inside >= 0.95


def test_bench_refuses_what_it_cannot_measure(machine):
    """Before it measures anything."""
    said = machine.refused("bench", "scan", "--shape", "cifar")
    assert "error: --shape: expected one of digits, scifar, listops, long, sCIFAR, ListOps, Text," in said
    assert "found 'cifar'" in said
    assert "measuring" not in said
    assert "measures whole trainings, which have no --shape" in machine.refused("bench", "loop", "--shape", "digits")
    assert "needs a task" in machine.refused("bench", "claims")
    assert "'npDigits'" in machine.refused("bench", "claims", "--shape", "npDigits")


def test_the_papers_shapes_are_those_of_the_recipes():
    assert list(PAPER) == [name for name in PAPER if name in tasks.TASKS]
    for name, shape in PAPER.items():
        plan = planning.make(name)
        config = plan.rungs[-1].config
        spec, model = plan.task.spec(plan.options, ()), config.model
        found = (config.train.batch * (1 + spec.pair), spec.length, model.width, model.state, model.depth)
        assert found == tuple(shape), name


@pytest.mark.slow
def test_the_rungs_of_a_claim_about_speed_train_as_in_a_worker():
    rung = planning.make("npDigits", profile="smoke").rungs[2]
    form = forms.training(rung.training, rung.execution)
    assert form.steps == rung.execution.steps_per_dispatch
    state, readings = form.function(*form.arguments(form.state))
    assert np.asarray(readings.bad_step)[0] < 0
    assert int(np.asarray(state.step).ravel()[0]) == form.steps


def test_pairs_of_claims_about_speed_are_those_of_all_ladders():
    pairs = bench.speed_pairs()
    assert {pair.ladder for pair in pairs} == {"lru", "ssm", "dlr", "depth", "language"}
    assert bench.SpeedPair("Pathfinder", "ssm", "lru", "s5") in pairs


@pytest.mark.parametrize(
    ("device", "ratios", "verdict"),
    [
        ("NVIDIA A100-SXM4-40GB", (7.0, 8.0, 9.0), "supported"),
        ("NVIDIA A100-SXM4-40GB", (0.9, 1.0, 1.1), "undecided"),
        ("NVIDIA A100-SXM4-40GB", (0.7, 0.8, 0.9), "contradicted"),
        ("cpu", (7.0, 8.0, 9.0), "not judged"),
    ],
)
def test_claims_about_speed_are_judged_on_the_device_of_the_paper(machine, monkeypatch, device, ratios, verdict):
    facts = {"cpu": "c", "cores": 2, "copy_gb_s": 1.0, "product_gflop_s": 1.0, "platform": "p", "jax": "1"}
    pairs = [(1.0, ratio) for ratio in ratios]
    names = ("claims/sCIFAR/lru/gamma-norm/tanh-rnn", "step/digits")
    results = [Result.from_rounds(name, "a dense tanh RNN", pairs) for name in names]
    monkeypatch.setattr(bench, "measure", lambda *_, **__: (facts | {"device": device}, results))
    [claim] = machine.json("bench", "claims", "--shape", "sCIFAR")["claims"]
    assert (claim["task"], claim["verdict"], claim["ratio"]) == ("sCIFAR", verdict, ratios[1])
    assert claim["detail"].startswith(f"{ratios[1]:.1f} times as fast ({ratios[0]:.1f} to {ratios[2]:.1f})")
    assert ("while the claim is about one A100" in claim["detail"]) == (verdict == "not judged")
    assert "by the paper's own numbers: 8.0 times on one A100" in claim["detail"]
    assert f"sCIFAR: {verdict}: The LRU trains faster" in machine.run("bench", "claims", "--shape", "sCIFAR").stdout
