"""The studies of networks, of teachers and of students: against loops over their steps, closed forms and the digits of
their specification."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from lrurun.config import planning
from lrurun.config.schema import ModelConfig
from lrurun.studies import convolution, depth, norms, phase
from lrurun.studies.bridge import STUDY as BRIDGE
from lrurun.studies.bridge import Bridge
from lrurun.studies.machinery.checks import failed
from lrurun.studies.machinery.planning import make
from lrurun.studies.machinery.study import CellResult, Results
from lrurun.studies.mathematics import kernels
from lrurun.studies.mathematics.formulas import state_variance


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
    _, _, by_layer, by_other = convolution.compiled(model, 10)
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
        found = [phase.compiled(True, 5, 40)[form](params, u) for form in (0, 1)]
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
    cells = make(norms.STUDY, "paper", {}).cells
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
        squares, slopes, _ = depth.compiled("LSTM", "none", 3, 8)[0](params, x)
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
        run, _ = depth.compiled("LRU", "none", 4, 8)
        slopes = [run(params, depth.inputs(4, 8, cell.rho, 0, batch))[1] for batch in (0, 1)]
        values = finished(depth.STUDY.simulate(cell, 0))
    found = [depth.by_group("LRU", slope)["theta"] for slope in slopes]
    assert values["gradient of theta"] == pytest.approx(np.mean(found), rel=1e-9)
    assert found[0] != found[1]


@pytest.mark.parametrize("architecture", ["dense", "block-64", "lru"])
def test_the_loss_by_the_kernel_is_that_of_the_layer_step_by_step(architecture: kernels.Architecture) -> None:
    inputs = np.random.default_rng(0).standard_normal((1, 2, kernels.LENGTH))
    with jax.enable_x64(True):
        target, parameters = kernels.teacher_kernel(0.9, seed=3), kernels.student(architecture, 0.9, seed=3)
        kernel = np.asarray(kernels.kernel_of(architecture, parameters))
        np.testing.assert_allclose(kernel, kernels.formula(parameters), rtol=0, atol=1e-12 * np.abs(kernel).max())
        difference = kernel - target
        by_kernel = 0.5 * difference @ kernels.lagged_products(inputs)[0] @ difference
        layer = kernels.layer(architecture)
        state = jax.tree.map(lambda zero: zero.astype(float), layer.initial_state(2))
        outputs = jax.lax.scan(lambda h, x: layer.step(parameters, h, x), state, inputs[0].T[..., None])[1]
    wanted = np.array([np.convolve(x, target)[: kernels.LENGTH] for x in inputs[0]])
    direct = 0.5 * np.mean((np.asarray(outputs)[..., 0].T - wanted) ** 2)
    assert by_kernel == pytest.approx(direct, rel=1e-10)


def test_students_have_as_many_parameters_as_the_papers() -> None:
    counts = {}
    for name in kernels.ARCHITECTURES:
        shapes = jax.eval_shape(kernels.layer(name).init, jax.random.key(0))
        counts[name] = sum(shape.size for shape in shapes.values())
    assert counts == {"dense": 4225, "block": 257, "block-64": 513, "complex": 385, "gamma": 449, "lru": 449}


def test_students_start_on_their_rings() -> None:
    for name, initial, least in (("dense", "zero", 0.0), ("block", "teacher", 0.99)):
        radii = np.abs(np.linalg.eigvals(kernels.student(name, 0.99, 0, initial=initial)["A"]))
        assert least - 1e-6 <= np.min(radii) < least + 0.5 * (1 - least)
        assert np.max(radii) < 1
    dense = kernels.student("dense", 0.99, 0, angle=0.1)["A"]
    assert np.max(np.abs(np.angle(np.linalg.eigvals(dense)))) <= 0.1 + 1e-3
    complex_, lru = (kernels.student(name, 0.99, 0) for name in ("complex", "lru"))
    eigenvalues = kernels.eigenvalues(complex_)
    np.testing.assert_allclose(kernels.eigenvalues(lru), eigenvalues, atol=1e-6)  # float32
    np.testing.assert_allclose(np.exp(2 * lru["gamma_log"]), 1 - np.abs(eigenvalues) ** 2, atol=1e-6)
    assert np.all((np.abs(eigenvalues) >= 0.99 - 1e-6) & (np.abs(eigenvalues) < 1))
    np.testing.assert_array_equal(complex_["B_re"], lru["B_re"])


def test_each_architecture_is_trained_at_its_published_rates() -> None:
    """Tables 1 and 2: logarithms of the rates in steps of a half, and two initialisations of real students."""
    cells = make(BRIDGE, "paper", {}).cells
    for name, logarithms, count in (("dense", (-5, -2.5), 12), ("block", (-5, -2.5), 12), ("lru", (-2.5, -0.5), 5)):
        tried = [cell for cell in cells if cell.architecture == name]
        assert len(tried) == count
        rates = sorted({cell.lr for cell in tried})
        np.testing.assert_allclose(np.log10(rates), np.arange(logarithms[0], logarithms[1] + 0.1, 0.5), atol=1e-3)
    assert len(make(BRIDGE, "ci", {"lr": 0.02}).cells) == 2  # a rate of no grid is one of all


def test_the_expected_loss_and_its_spread_are_those_of_a_sum_of_squares() -> None:
    """A kernel with lag 0 alone makes the loss of a sequence c² / 2 times a mean of squares of normals."""
    difference = np.zeros(kernels.LENGTH)
    difference[0] = 3.0
    assert kernels.expected_loss(difference) == pytest.approx(4.5, rel=1e-12)
    assert kernels.loss_spread(difference) == pytest.approx((4.5, 4.5 * math.sqrt(2 / kernels.LENGTH)), rel=1e-12)
    difference = np.zeros(kernels.LENGTH)
    difference[-1] = 3.0  # reaches the last step alone
    assert kernels.expected_loss(difference) == pytest.approx(4.5 / kernels.LENGTH, rel=1e-12)


@pytest.mark.slow
def test_a_training_whose_loss_explodes_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> tuple[list[int], dict]:
        training, reached = kernels.train("complex", 0.99, 1e-3, 0, updates=70), []
        with jax.enable_x64(True):
            while True:
                try:
                    reached.append(next(training))
                except StopIteration as end:
                    return reached, end.value.values

    reached, values = trained()
    assert reached == [50, 70]
    assert values["update"].tolist() == [0, 50, 70]
    assert values["loss"] == values["losses"][-1] < values["losses"][0]
    monkeypatch.setattr(kernels, "DIVERGED", 1e-9)
    reached, values = trained()
    assert reached == []
    assert math.isnan(values["loss"])
    assert math.isnan(values["batches"])
    assert values["losses"].tolist() == [values["expected"]]


def test_adams_steps_for_a_constant_gradient_and_for_none() -> None:
    size = {"a": np.array([2.0, -0.5])}
    zero = {"a": np.zeros(2)}
    many = 10**5  # the corrections of the bias are 1 then
    with jax.enable_x64(True):
        constant = kernels.effective(kernels.Trained({}, zero, size, {"a": size["a"] ** 2}), 1e-3, many)
        none = kernels.effective(kernels.Trained({}, zero, zero, zero), 1e-3, many)
    np.testing.assert_allclose(constant[0]["a"], [5e-4, 2e-3], rtol=1e-6)
    first, second = (0.9 * g + 0.1 for g in (2.0, -0.5)), (0.999 * g**2 + 0.001 for g in (2.0, -0.5))
    np.testing.assert_allclose(constant[1]["a"], [1e-3 * m / math.sqrt(v) for m, v in zip(first, second, strict=True)])
    np.testing.assert_allclose(none[1]["a"], 1e-3 * math.sqrt(10), rtol=1e-6)  # the published measure is capped here
    assert constant[2] < 1e-9


@pytest.mark.parametrize("name", ["kernel error", "gradient error", "gamma error", "radius deviation", "sampled"])
def test_a_nan_fails_its_check(name: str) -> None:
    right = dict.fromkeys(("kernel error", "gradient error", "gamma error", "radius deviation"), 0.0)
    right |= {"expected": 1.0, "expected by covariance": 1.0, "sampled": 1.0, "stderr": 0.1}
    cells = [
        CellResult(cell=Bridge(), seed=seed, run="", diverged=False, values=values, curves={})
        for seed, values in enumerate((right, {**right, name: math.nan}))
    ]
    assert failed(kernels.start_checks(Results(cells[:1], "ci"))) == []
    assert len(failed(kernels.start_checks(Results(cells, "ci")))) == 1


def students(losses: dict[tuple[str, float, str], list[float]]) -> Results:
    """(architecture, rate, initial matrix) -> loss of each seed, as `bridge` has them."""
    found = []
    for (name, lr, initial), of_seeds in losses.items():
        for seed, loss in enumerate(of_seeds):
            at = Bridge(architecture=name, lr=lr, initial=initial)
            values = {"loss": loss, "baseline": 1.0}
            found.append(CellResult(cell=at, seed=seed, run="", diverged=loss != loss, values=values, curves={}))
    return Results(found, "laptop")


def test_a_rate_at_which_a_seed_diverged_is_not_the_best() -> None:
    losses = {
        ("dense", 1e-4, "zero"): [1.0, 1.2, 3.0],
        ("dense", 1e-4, "teacher"): [2.0, 1.2, 3.0],
        ("dense", 1e-3, "zero"): [1e-9, math.nan, 1e-9],
        ("block", 1e-4, "zero"): [5e-2, 1e-2, 3e-2],
        ("block", 1e-4, "teacher"): [2e-2, 1e-2, 3e-2],
        ("complex", 1e-2, "zero"): [math.nan, 1.1e-3, 0.9e-3],
    }
    results = students(losses)
    assert kernels.by_seed(results, "dense", nu=0.99) == {0: 1.0, 1: 1.2, 2: 3.0}
    assert kernels.by_seed(results, "block", nu=0.99) == {0: 2e-2, 1: 1e-2, 2: 3e-2}
    assert "dense 1.7 (1.2), blocks 0.02 (0.02), complex diverged" in BRIDGE.answer(results)
    assert [claim.evidence(results) for claim in BRIDGE.claims][2:] == [None] * 5
    [evidence, *_] = [claim.evidence(results) for claim in BRIDGE.claims]
    assert evidence is not None
    assert evidence.verdict == "undecided"  # three seeds
