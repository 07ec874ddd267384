"""The studies of networks, against slow computations and the digits of their specification."""

import jax
import numpy as np
import pytest

from lrurun.config import plan as planning
from lrurun.config.schema import ModelConfig
from lrurun.studies import convolution, depth, norms, phase
from lrurun.studies import plan as study_planning
from lrurun.studies.formulas import state_variance
from lrurun.studies.study import CellResult, Results


def finished(cell):
    """What a simulation returns."""
    while True:
        try:
            next(cell)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(("model", "activation"), [("linear", np.asarray), ("tanh", np.tanh)])
def test_an_rnn_has_the_loss_of_a_loop_over_its_states(model, activation):
    u, y = convolution.data(3)
    (a, b, c), error = convolution.start(10, 3), 0.0
    for inputs, targets in zip(u.T, y.T, strict=True):
        h = np.zeros(10)
        for now, target in zip(inputs, targets, strict=True):
            h = activation(a @ h + b * now)
            error += (h @ c - target) ** 2
    _, _, by_layer, by_other = convolution.programs(model, 10)
    with jax.enable_x64(True):
        for loss in (by_layer, by_other):
            assert loss((a, b, c), u, y)[0] == pytest.approx(0.5 * error / u.size, rel=1e-10)


def test_targets_are_a_convolution_with_the_kernel_of_the_paper():
    h = convolution.kernel()
    assert [h.sum(), (h**2).sum(), h[39], h[74]] == pytest.approx([2.88500835, 0.148524760, 6.4934e-6, 0.0318810], 1e-5)
    u, y = convolution.data(0)
    assert y[50, 7] == pytest.approx(sum(h[lag] * u[50 - lag, 7] for lag in range(51)))


def test_a_model_that_diverged_at_each_rate_has_lost_that_seed():
    losses = {"linear": [1.0, np.nan, 1.0, np.nan, 2.0], "tanh": [2.0, 1.0, np.nan, np.nan, 1.0]}
    found = [
        CellResult(
            cell=convolution.Convolution(model=model, lr=lr),
            seed=seed,
            run="",
            diverged=bool(np.isnan(loss)),
            values={"final loss": loss, "first loss": float(seed)},
            curves={},
        )
        for model, of_seeds in losses.items()
        for seed, loss in enumerate(of_seeds)
        for lr in (1e-3, 1e-2)
    ]
    answer = convolution.STUDY.answer(Results(found, "laptop"))
    assert "in 2 of 4 seeds (tanh / linear: 1 in the geometric mean, without 2 seeds" in answer


def test_an_output_is_that_of_a_loop_over_the_states():
    with jax.enable_x64(True):
        params = phase.initial(phase.layer(True, 5, 0.9, 0.99, 1.0), 2)
        u = np.random.default_rng(1).normal(size=(3, 40))
        found = [phase.programs(True, 5, 40)[form](params, u) for form in (0, 1)]
    of = {name: np.asarray(value) for name, value in params.items()}
    lam = np.exp(-np.exp(of["nu_log"]) + 1j * np.exp(of["theta_log"]))
    b = np.exp(of["gamma_log"]) * (of["B_re"] + 1j * of["B_im"])[:, 0]
    states = np.zeros((3, 5), complex)
    for now in u.T:
        states = lam * states + now[:, None] * b
    outputs = (states @ (of["C_re"] + 1j * of["C_im"])[0]).real + of["bias"]
    assert found[0] == pytest.approx(outputs, rel=1e-9)
    assert found[1] == pytest.approx(outputs, rel=1e-9)


def test_a_head_of_the_rotrnn_has_norm_1_only_after_its_memory():
    with jax.enable_x64(True):
        found = norms.white(0.99, 50, 0)
    at = dict(zip(found["step"], found["trace"], strict=True))
    assert [at[t] for t in (1, 10, 100, 400)] == pytest.approx([0.0199, 0.18209306, 0.86602033, 0.99967778], 1e-6)
    assert np.sqrt(np.mean(np.square((found["mean"] - found["trace"]) / found["stderr"]))) < 2.5


@pytest.mark.slow
def test_a_rotrnn_is_an_lru():
    with jax.enable_x64(True):
        assert max(norms.mapped(6, 12, 3, 1).values()) < 1e-12


def test_networks_are_trained_as_in_the_recipe():
    plan = planning.make("ListOps", ladder="rotrnn")
    cells = study_planning.make(norms.STUDY, "paper", {}).cells
    for model, name in (("LRU", "lru"), ("RotRNN", "rotrnn")):
        [training] = [rung.training for rung in plan.rungs if rung.name == name]
        [cell] = [cell for cell in cells if (cell.task, cell.model, cell.depth) == ("ListOps", model, 6)]
        recurrence = norms.recurrence(model, cell.heads)
        config = ModelConfig(recurrence=recurrence, depth=6, width=cell.width, state=cell.state)
        assert config == training.model
        assert norms.optimiser(model, cell.rate) == training.optim
        assert (cell.updates, cell.batch) == (training.train.steps, training.train.batch)


@pytest.mark.slow
def test_a_training_records_the_norms_of_all_layers():
    training = norms.train(norms.Shape("marked", "LRU", 2, 8, 16, 4), rate=3, updates=20, size=4, seed=0)
    values = finished(training)
    assert list(values["updates"]) == [0, 10, 20]
    # the first layer sees an embedding of nearly independent tokens, after batch norm
    assert values["norm, layer 1"][0] == pytest.approx(1.0, abs=0.15)
    assert values["norm, layer 2"][-1] > 0
    assert values["last norm"] == pytest.approx(np.sqrt(values["norm, layer 1"][-1] * values["norm, layer 2"][-1]))


def test_the_class_of_a_sequence_is_its_marked_digit():
    one = norms.batch("marked", 200, np.random.default_rng(0))
    marked = one.inputs > 10
    assert np.all(marked.sum(axis=1) == 1)
    assert np.array_equal(one.inputs[marked] - 11, one.labels)
    assert one.inputs.min() >= 1


@pytest.mark.slow
def test_the_expected_state_of_a_block_and_its_error():
    with jax.enable_x64(True):
        params = depth.start("cRNN", 4, 2.0, 0)
    one = params["blocks"]["0"]["recurrence"]
    lam, b = one["lam_re"] + 1j * one["lam_im"], (one["B_re"] + 1j * one["B_im"]) @ params["encoder"]["kernel"].T
    mean, stderr = depth.expected(params, 0.9, 100)
    assert mean == pytest.approx(np.mean(np.sum(np.abs(b) ** 2, axis=1) * state_variance(lam, 0.9)), rel=1e-9)
    found = []
    for seed in range(150):
        h, squares = np.zeros((depth.BATCH, 4), complex), []
        for x in depth.inputs(4, 100, 0.9, seed)[:-1]:
            h = lam * h + x @ b.T
            squares.append(np.mean(np.abs(h) ** 2))
        found.append(np.mean(squares[50:]))
    assert np.mean(found) == pytest.approx(mean, abs=4 * stderr / np.sqrt(150))
    assert np.std(found) == pytest.approx(stderr, rel=0.3)


@pytest.mark.slow
def test_the_states_of_a_block_are_those_of_a_loop():
    with jax.enable_x64(True):
        params, x = depth.start("LSTM", 3, 5.0, 1), depth.inputs(3, 8, 0.5, 1)
        squares, slopes, _ = depth.program("LSTM", "none", 3, 8)[0](params, x)
    one, h, c, found = params["blocks"]["0"]["recurrence"], np.zeros((8, 3)), np.zeros((8, 3)), []
    for u in x[:-1] @ params["encoder"]["kernel"]:
        i, f, g, o = np.split(u @ one["B"].T + h @ one["A"].T + one["b"], 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        found.append(np.mean(h**2))
    assert squares[0] == pytest.approx(np.mean(found[4:]), rel=1e-9)
    blocks = slopes["blocks"].values()
    maps = [slopes["encoder"], slopes["head"], *(block[name] for block in blocks for name in ("value", "gate"))]
    rest = [np.ravel(part) for weights in maps for part in weights.values()]
    rest += [np.ravel(block["recurrence"][name]) for block in blocks for name in ("C", "D")]
    assert depth.by_group("LSTM", slopes)["rest"] == pytest.approx(np.mean(np.concatenate(rest) ** 2), rel=1e-9)


@pytest.mark.slow
def test_squares_of_gradients_are_averaged_over_batches():
    cell = depth.Depth(model="LRU", width=4, length=8, sequences=16)
    with jax.enable_x64(True):
        params = depth.start("LRU", 4, cell.time, 0)
        run, _ = depth.program("LRU", "none", 4, 8)
        slopes = [run(params, depth.inputs(4, 8, cell.rho, 0, batch))[1] for batch in (0, 1)]
        values = finished(depth.STUDY.simulate(cell, 0))
    found = [depth.by_group("LRU", slope)["theta"] for slope in slopes]
    assert values["gradient of theta"] == pytest.approx(np.mean(found), rel=1e-9)
    assert found[0] != found[1]
