"""GRU and LSTM against plain NumPy in double precision, chrono initialisation against its law, and a ladder of both."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from lrurun.config.recurrences.gru_lstm import GRURecurrence, LSTMRecurrence
from lrurun.nn import recurrences
from tests.harness.loops import double
from tests.harness.machine import Machine

WIDTH, STATE = 5, 4
KINDS = {"gru": GRURecurrence, "lstm": LSTMRecurrence}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(p, h, u):
    """One step: Cho et al. 2014, equations 5 to 8, with the reset gate after the product and a bias for it."""
    u_n, u_r, u_z = np.split(p["A"], 3)
    w_r, w_z, w_n = np.split(p["B"], 3)
    b_u, b_r, b_z, b_n = np.split(p["b"], 4)
    r = sigmoid(w_r @ u + u_r @ h + b_r)
    z = sigmoid(w_z @ u + u_z @ h + b_z)
    n = np.tanh(w_n @ u + b_n + r * (u_n @ h + b_u))
    return (1 - z) * n + z * h, None


def lstm(p, h, u, c):
    """One step: Gers et al. 2000, with tanh for both squashing functions and without peepholes."""
    arguments = p["A"] @ h + p["B"] @ u + p["b"]
    i, f, g, o = np.split(arguments, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def reference(kind, p, u, lengths, bidirectional):
    """Outputs of each sequence by itself, without its padding; zero in the padding."""
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = p["D"] * u[:length, i]
        orders = {"C": range(length), "C_back": reversed(range(length))} if bidirectional else {"C": range(length)}
        for readout, order in orders.items():
            h = c = np.zeros(STATE)
            for k in order:
                h, c = gru(p, h, u[k, i]) if kind == "gru" else lstm(p, h, u[k, i], c)
                y[k, i] += p[readout] @ h
    return y


def built(kind, *, bidirectional=False, width=WIDTH, state=STATE, **settings):
    return recurrences.build(KINDS[kind](**settings), width=width, state=state, bidirectional=bidirectional)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_the_papers_equations(strict, kind, bidirectional):
    recurrence = built(kind, bidirectional=bidirectional)
    params, rng = double(jax.jit(recurrence.init)(jax.random.key(3))), np.random.default_rng(0)
    params["b"] = rng.normal(size=params["b"].shape)  # zero biases would hide a state that starts in the padding
    lengths, steps = [11, 6, 1], 11
    mask = np.arange(steps)[:, None] < np.array(lengths)
    arrays = params | {"u": rng.normal(size=(steps, 3, WIDTH))}
    weight = rng.normal(size=arrays["u"].shape) * mask[..., None]

    def wanted(arrays):
        rest = {name: array for name, array in arrays.items() if name != "u"}
        return reference(kind, rest, arrays["u"], lengths, bidirectional)

    def loss(arrays):
        rest = {name: array for name, array in arrays.items() if name != "u"}
        y = recurrence.scan(rest, arrays["u"], mask)
        return jnp.sum(y * weight), y

    with jax.enable_x64(True):
        found, y = jax.jit(jax.grad(loss, has_aux=True))({name: jnp.asarray(a) for name, a in arrays.items()})
    np.testing.assert_allclose(np.asarray(y)[mask], wanted(arrays)[mask], atol=1e-12)
    assert not np.any(np.asarray(found["u"])[~mask])
    for name, gradient in found.items():
        direction, h = rng.normal(size=gradient.shape), 1e-5
        ends = [np.sum(weight * wanted(arrays | {name: arrays[name] + s * h * direction})) for s in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * h)
        assert float(np.sum(np.asarray(gradient) * direction)) == pytest.approx(slope, rel=1e-6, abs=1e-7), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_forgets_at_its_time_constant(kind):
    """Without inputs and products, a factor 1 - 1/T at every step."""
    recurrence = built(kind, t_min=50.0, t_max=50.0)
    params = recurrence.init(jax.random.key(0))
    params = params | {name: jnp.zeros_like(params[name]) for name in ("A", "B")}
    state = tuple(part + 1.0 for part in recurrence.initial_state(1))
    for _ in range(20):
        state, _ = recurrence.step(params, state, jnp.ones((1, WIDTH)))
    np.testing.assert_allclose(state[-1], (1 - 1 / 50) ** 20, rtol=1e-5)


def initial_biases(kind, state, **settings):
    """The four parts of the initial biases, and where the forget gate's is."""
    params = built(kind, state=state, **settings).init(jax.random.key(1))
    return np.split(double(params)["b"], 4), {"gru": 2, "lstm": 1}[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ends", "wanted"), [({"t_max": 100.0}, (2, 100)), ({"t_min": 30.0, "t_max": 60.0}, (30, 60))])
def test_chrono_initialisation_samples_time_constants_uniformly(kind, ends, wanted):
    parts, forget = initial_biases(kind, 400, **ends)
    law = scipy.stats.uniform(wanted[0], wanted[1] - wanted[0])
    assert scipy.stats.kstest(1 + np.exp(parts[forget]), law.cdf).pvalue > 0.01
    if kind == "lstm":
        np.testing.assert_array_equal(parts[0], -parts[1])  # the input gate is 1/T
    others = parts[3:] if kind == "gru" else parts[2:]
    assert not np.any(np.concatenate([*others, *(parts[:2] if kind == "gru" else [])]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_constant_of_one_step_has_a_finite_bias(kind):
    parts, forget = initial_biases(kind, 3, t_min=1.0, t_max=1.0)
    np.testing.assert_allclose(parts[forget], math.log(1e-3), rtol=1e-6)


@pytest.mark.parametrize(("kind", "usual"), [("gru", 0.0), ("lstm", 1.0)])
def test_initial_parameters_without_chrono_initialisation(kind, usual):
    parts, forget = initial_biases(kind, STATE)
    assert [set(part) for part in parts] == [{usual if k == forget else 0.0} for k in range(4)]
    params = double(built(kind).init(jax.random.key(1)))
    blocks = params["A"].reshape(-1, STATE, STATE)
    assert len(blocks) == {"gru": 3, "lstm": 4}[kind]
    for block in blocks:
        np.testing.assert_allclose(block @ block.T, np.eye(STATE), atol=1e-5)
    assert abs(np.sum(blocks[0] * blocks[1])) < STATE * 0.99  # different ones


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_groups(kind):
    recurrence = built(kind, bidirectional=True)
    shapes = {name: leaf.shape for name, leaf in jax.eval_shape(recurrence.init, jax.random.key(0)).items()}
    rows = {"gru": 3, "lstm": 4}[kind] * STATE
    cell = {"A": (rows, STATE), "B": (rows, WIDTH), "b": (4 * STATE,)}
    assert shapes == {**cell, "C": (WIDTH, STATE), "C_back": (WIDTH, STATE), "D": (WIDTH,)}
    assert recurrence.recurrent_parameters == set(cell)


LADDER = """
name = "cells"
title = "gated cells"
source = "ours"

[[rung]]
name = "gru"
title = "GRU"
change = { "model.recurrence.kind" = "gru", "model.recurrence.t_max" = 64 }

[[rung]]
name = "lstm"
title = "LSTM"
change = { "model.recurrence.kind" = "lstm" }
"""


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (["t_min=3"], "t_min needs t_max, the longest time constant, found t_min = 3.0, t_max = 0"),
        (["t_min=3", "t_max=2"], "t_max must be at least t_min, found t_min = 3.0, t_max = 2.0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(machine: Machine, changes, rule):
    (machine.folder / "cells.toml").write_text(LADDER.replace(', "model.recurrence.t_max" = 64', ""))
    options = [part for change in changes for part in ("--set", f"model.recurrence.{change}")]
    done = machine.run("plan", "sDigits", "--profile", "smoke", "--ladder", "cells.toml", *options, code=2)
    assert rule in done.stderr


@pytest.mark.rare
def test_a_ladder_of_both_cells_is_trained(machine: Machine):
    (machine.folder / "cells.toml").write_text(LADDER)
    machine.run("ladder", "sDigits", "--ladder", "cells.toml", "--profile", "smoke")
    runs = machine.json("runs")["runs"]
    assert {(run["rung"], run["state"]) for run in runs} == {("gru", "done"), ("lstm", "done")}
