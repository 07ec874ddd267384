"""Kernel form of teachers and students: against layers step by step, closed forms, and made-up results."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from lrurun.studies import kernels, plan
from lrurun.studies.bridge import STUDY as BRIDGE
from lrurun.studies.bridge import Bridge
from lrurun.studies.checks import failed
from lrurun.studies.study import CellResult, Results


@pytest.mark.parametrize("architecture", ["dense", "block-64", "gamma", "lru"])
def test_the_loss_by_the_kernel_is_that_of_the_layer_step_by_step(architecture: kernels.Architecture) -> None:
    inputs = np.random.default_rng(0).standard_normal((1, 2, kernels.LENGTH))
    with jax.enable_x64(True):
        target, parameters = kernels.teacher(0.9, seed=3), kernels.student(architecture, 0.9, seed=3)
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
    for name in ("dense", "block"):
        for initial, least in (("zero", 0.0), ("teacher", 0.99)):
            matrices = kernels.student(name, 0.99, 0, initial=initial)["A"]
            radii = np.abs(np.linalg.eigvals(matrices))
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
    cells = plan.make(BRIDGE, "paper", {}).cells
    for name, logarithms, count in (("dense", (-5, -2.5), 12), ("block", (-5, -2.5), 12), ("lru", (-2.5, -0.5), 5)):
        tried = [cell for cell in cells if cell.architecture == name]
        assert len(tried) == count
        rates = sorted({cell.lr for cell in tried})
        np.testing.assert_allclose(np.log10(rates), np.arange(logarithms[0], logarithms[1] + 0.1, 0.5), atol=1e-3)
    assert len(plan.make(BRIDGE, "ci", {"lr": 0.02}).cells) == 2  # a rate of no grid is one of all


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
