"""S6, minGRU, minLSTM and HGRN against plain NumPy in double precision, their initialisation, and what they refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from lrurun.config.recurrences import KINDS
from lrurun.config.recurrences.hgrn import HGRNRecurrence
from lrurun.config.recurrences.min_gru import MinGRURecurrence, MinLSTMRecurrence
from lrurun.config.recurrences.rg_lru import RGLRURecurrence
from lrurun.config.recurrences.s6 import S6Recurrence
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from lrurun.nn.recurrences import gated
from tests.harness.loops import check_values_and_gradients, double

WIDTH = 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def s6(settings):
    """Mamba, algorithm 2, and the public code's selective_scan_ref; Mamba-2 with heads."""

    def of(p, u):
        y = np.zeros(u.shape)
        for i in range(u.shape[1]):
            x = 0.0
            for k, u_k in enumerate(u[:, i]):
                low = p["W_r"] @ u_k if "W_r" in p else u_k
                delta = softplus(p["b_dt"] + (p["W_dt"] @ low if "W_dt" in p else 0))
                a = -np.exp(p["A_log"])
                if settings.heads:
                    delta, a = (np.repeat(z, WIDTH // settings.heads) for z in (delta, a))
                    a = a[:, None]
                b = p["W_B"] @ u_k if "W_B" in p else p["B"]
                c = p["W_C"] @ u_k if "W_C" in p else p["C"]
                decay = np.exp(delta[:, None] * a)
                drive = (decay - 1) / a if settings.discretization == "zoh" else delta[:, None]
                x = (2 * decay - 1 if settings.negative else decay) * x + drive * b * u_k[:, None]
                y[k, i] = (x * c).sum(-1)
                if "D" in p:
                    y[k, i] += np.repeat(p["D"], WIDTH // len(p["D"])) * u_k
        return y

    return of


def g(x):
    return np.where(x >= 0, x + 0.5, sigmoid(x))


def minimal(settings):
    """Feng et al. 2024, equations of sections 3.1.3 and 3.2.4 with g of appendix B; Qin et al. 2023 without phases."""
    kind = settings.__struct_config__.tag
    put = g if getattr(settings, "candidate", "") == "positive" else lambda x: x

    def of(p, u):
        def linear(name, x):
            return p[f"W_{name}"] @ x + p[f"b_{name}"]

        y = np.zeros(u.shape)
        for i in range(u.shape[1]):
            h = put(p["h0"]) if "h0" in p else 0.0
            for k, u_k in enumerate(u[:, i]):
                candidate = linear("h", u_k) if "W_h" in p else u_k
                if kind == "minlstm":
                    keep, new = sigmoid(linear("f", u_k)), sigmoid(linear("i", u_k))
                    keep, new = (keep / (keep + new), new / (keep + new)) if settings.normalised else (keep, new)
                else:
                    new = sigmoid(linear("z", u_k)) if kind == "mingru" else sigmoid(-linear("z", u_k))
                    keep = 1 - new
                candidate = candidate * sigmoid(candidate) if kind == "hgrn" else put(candidate)
                h = (2 * keep - 1 if settings.negative else keep) * h + new * candidate
                y[k, i] = p["C"] @ h + p["b_C"] if "C" in p else h
        return y

    return of


CONSTANT = {"b": "constant", "c": "constant"}
FORMS = {
    "s6": (S6Recurrence(), s6),
    "s6, constant": (S6Recurrence(delta="constant", discretization="zoh", skip=False, **CONSTANT), s6),
    "s6, selective Delta": (S6Recurrence(delta="dense", discretization="zoh", **CONSTANT), s6),
    "s6, heads, negative": (S6Recurrence(delta="dense", heads=2, negative=True), s6),
    "mingru": (MinGRURecurrence(), minimal),
    "mingru, in log space": (MinGRURecurrence(form="log-space"), minimal),
    "mingru, linear": (MinGRURecurrence(candidate="linear", negative=True, readout=False), minimal),
    "mingru, input": (MinGRURecurrence(candidate="input", initial="zero", readout=False), minimal),
    "minlstm": (MinLSTMRecurrence(forget_bias=0.5), minimal),
    "minlstm, normalised": (MinLSTMRecurrence(form="log-space", normalised=True, initial="zero"), minimal),
    "hgrn": (HGRNRecurrence(), minimal),
}
QUICK = ("s6", "mingru, in log space", "minlstm")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in FORMS])
def test_values_and_gradients_are_those_of_the_equations(strict, name):
    settings, reference = FORMS[name]
    built = recurrences.build(settings, width=WIDTH, state=WIDTH)
    params = jax.jit(built.init)(jax.random.key(1))
    shift = np.linspace(-0.5, 0.5, WIDTH, dtype=np.float32)
    params |= {key: value + shift for key, value in params.items() if key.startswith("b_") and key != "b_dt"}
    check_values_and_gradients(built, params, reference(settings), [9, 4, 1])


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        (MinGRURecurrence(), 3 * WIDTH),
        (MinGRURecurrence(form="log-space"), 3 * WIDTH),
        (MinGRURecurrence(form="log-space", initial="zero"), 3 * WIDTH),
        (HGRNRecurrence(), 3 * WIDTH),
        (RGLRURecurrence(mixing="dense", gate_blocks=4), 3 * WIDTH),
    ],
    ids=["mingru", "in log space", "from zero", "hgrn", "rg-lru"],
)
def test_large_states_in_pieces_start_as_they_do_whole(monkeypatch, settings, state):
    """Seven steps in pieces of three: the state before the first step, and what differs there, are those of step 0."""
    built = recurrences.build(settings, width=WIDTH, state=state)
    params = jax.jit(built.init)(jax.random.key(0))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2, WIDTH)), jnp.float32)
    run = jax.value_and_grad(lambda p, u: jnp.sum(jnp.sin(built.scan(p, u))), argnums=(0, 1))
    whole = run(params, u), built.norms(params, u)
    monkeypatch.setattr(gated, "PIECE", 3 * 2 * state)
    pieces = run(params, u), built.norms(params, u)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5), whole, pieces)


@pytest.mark.slow
def test_large_states_are_computed_in_pieces_with_the_same_results(monkeypatch):
    """Seven steps in pieces of three: values, gradients and norms, and no more than a piece of states in memory."""
    built = recurrences.build(S6Recurrence(), width=WIDTH, state=16)
    params = jax.jit(built.init)(jax.random.key(0))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(7, 2, WIDTH)), jnp.float32)
    run = jax.value_and_grad(lambda p, u: jnp.sum(jnp.sin(built.scan(p, u))), argnums=(0, 1))
    whole = run(params, u), built.norms(params, u)
    monkeypatch.setattr(gated, "PIECE", 3 * 2 * WIDTH * 16)
    pieces = run(params, u), built.norms(params, u)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5), whole, pieces)
    shapes = {v.aval.shape for e in jax.make_jaxpr(built.scan)(params, u).eqns for v in e.outvars}
    assert (7, 2, WIDTH * 16) not in shapes


def test_initial_time_constants_and_decays_of_s6():
    params = double(jax.jit(recurrences.build(S6Recurrence(), width=4000, state=3).init)(jax.random.key(0)))
    delta = softplus(params["b_dt"])
    quantiles = np.quantile(np.log(delta), [0, 0.5, 1])
    np.testing.assert_allclose(quantiles, np.log([0.001, 0.01, 0.1]), atol=0.1)
    np.testing.assert_allclose(np.exp(params["A_log"][7]), [1, 2, 3], rtol=1e-6)
    heads = recurrences.build(S6Recurrence(heads=500), width=500, state=3)
    decays = np.exp(double(jax.jit(heads.init)(jax.random.key(0)))["A_log"])
    np.testing.assert_allclose([decays.min(), decays.mean(), decays.max()], [1, 8.5, 16], atol=0.5)


@pytest.mark.slow
def test_bounds_of_hgrn_rise_from_layer_to_layer():
    """g = l / L at first, and a decay below its bound is impossible: large negative inputs cannot erase."""
    config = ModelConfig(recurrence=HGRNRecurrence(), depth=4, width=3, state=3)
    model = Model(config, Spec(name="any", kind="features", features=1, classes=2, length=5))
    params, stats = model.init(jax.random.key(0))
    layers = [params["blocks"][str(i)]["recurrence"] for i in range(4)]
    bounds = [more["bound"] for more in model.recurrence.across(layers)]
    np.testing.assert_allclose(bounds, np.repeat([[0], [0.25], [0.5], [0.75]], 3, axis=1), atol=1e-6)
    inputs = jnp.ones((2, 5), jnp.int32)

    def loss(params):
        return jnp.sum(model.apply(params, stats, inputs, train=True)[0][:, 0])

    slopes = jax.grad(loss)(params)["blocks"]
    assert all(np.any(slopes[str(i)]["recurrence"]["Gamma"] != 0) for i in range(4))
    alone = jax.jit(lambda p: model.recurrence.scan(p, jnp.ones((5, 2, 3))))
    assert not np.allclose(alone(layers[3]), alone(layers[3] | {"bound": bounds[3]}))


@pytest.mark.parametrize(
    ("kind", "settings", "sizes", "said"),
    [
        ("s6", {"heads": 3}, {}, "heads must divide width, found heads = 3, width = 4"),
        ("s6", {"gates": "static"}, {}, 'needs b = "constant"'),
        ("s6", {"delta": "dense", "rank": 2}, {}, 'rank needs delta = "low-rank"'),
        ("mingru", {"form": "log-space", "negative": True}, {}, "negative = true"),
        ("minlstm", {"form": "log-space", "candidate": "linear"}, {}, 'candidate = "linear"'),
        ("mingru", {"candidate": "input"}, {"state": 5}, "found state = 5, width = 4"),
        ("hgrn", {"readout": False}, {"state": 5}, "readout = false needs state = width"),
        ("mingru", {}, {"bidirectional": True}, 'kind = "mingru", which is causal only'),
    ],
)
def test_refuses_settings_that_do_not_fit(kind, settings, sizes, said):
    def make():
        built = msgspec.convert({"kind": kind, **settings}, KINDS[kind].settings)
        built.fits(**{"width": WIDTH, "state": WIDTH, "bidirectional": False, **sizes})

    with pytest.raises((ValueError, msgspec.ValidationError)) as found:
        make()
    assert said in str(found.value)
