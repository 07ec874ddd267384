"""Kernel form of teachers and students: against networks step by step in NumPy, closed forms, and made-up results."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from lrurun.studies import kernels
from lrurun.studies.adam import STUDY as ADAM
from lrurun.studies.bridge import STUDY as BRIDGE
from lrurun.studies.bridge import Bridge
from lrurun.studies.checks import failed
from lrurun.studies.study import CellResult, Results
from lrurun.studies.teacher import STUDY as TEACHER
from lrurun.studies.teacher import Teacher

START = {"expected": 1.0, "expected by covariance": 1.0, "sampled": 1.0, "stderr": 1.0, "gradient error": 0.0}


def outputs(architecture: str, parameters: dict, inputs: np.ndarray) -> np.ndarray:
    """Of a student, one sequence after the other and step by step."""
    p = parameters
    if "A" in p:
        blocks, n, _ = p["A"].shape
        matrix = np.zeros((blocks * n, blocks * n))
        for number, block in enumerate(p["A"]):
            matrix[number * n : (number + 1) * n, number * n : (number + 1) * n] = block
        entry, output = p["B"].ravel(), p["C"].ravel()
    else:
        matrix = np.diag(p["re"] + 1j * p["im"] if "re" in p else np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"])))
        entry, output = (p["B re"] + 1j * p["B im"]) * np.exp(p.get("gamma", 0.0)), p["C re"] + 1j * p["C im"]
    found = np.zeros(inputs.shape)
    for sequence, row in zip(inputs, found, strict=True):
        state = np.zeros(len(matrix), matrix.dtype)
        for step, x in enumerate(sequence):
            state = matrix @ state + entry * x
            row[step] = (output @ state).real + p["D"] * x
    return found


@pytest.mark.parametrize("architecture", ["block-64", "complex", "gamma", "lru"])
def test_the_loss_by_the_kernel_is_that_of_the_network(architecture: kernels.Architecture) -> None:
    target, parameters = kernels.teacher(0.9, seed=3), kernels.student(architecture, 0.9, seed=3)
    inputs = np.random.default_rng(0).standard_normal((1, 2, kernels.LENGTH))
    with jax.enable_x64(True):
        difference = np.asarray(kernels.kernel_of(architecture, parameters)) - target
        by_kernel = 0.5 * difference @ kernels.lagged_products(inputs)[0] @ difference
    wanted = np.array([np.convolve(x, target)[: kernels.LENGTH] for x in inputs[0]])
    direct = 0.5 * np.mean((outputs(architecture, parameters, inputs[0]) - wanted) ** 2)
    assert by_kernel == pytest.approx(direct, rel=1e-10)


def test_students_have_as_many_parameters_as_the_papers() -> None:
    counts = {
        name: sum(np.size(value) for value in kernels.student(name, 0.99, 0).values()) for name in kernels.ARCHITECTURES
    }
    assert counts == {"dense": 4225, "block": 257, "block-64": 513, "complex": 385, "gamma": 449, "lru": 449}


def test_students_start_on_their_rings() -> None:
    for name in ("dense", "block"):
        eigenvalues = np.linalg.eigvals(kernels.student(name, 0.99, 0)["A"])
        assert np.all(np.abs(eigenvalues) < 1)
        assert np.min(np.abs(eigenvalues)) < 0.5
    complex_, lru = (kernels.student(name, 0.99, 0) for name in ("complex", "lru"))
    eigenvalues = complex_["re"] + 1j * complex_["im"]
    np.testing.assert_allclose(np.exp(-np.exp(lru["nu"]) + 1j * np.exp(lru["theta"])), eigenvalues, rtol=1e-12)
    np.testing.assert_allclose(np.exp(2 * lru["gamma"]), 1 - np.abs(eigenvalues) ** 2, rtol=1e-9)
    assert np.all((np.abs(eigenvalues) >= 0.99) & (np.abs(eigenvalues) < 1))


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


def students(cell: type, losses: dict[tuple[str, float, float], list[float]]) -> Results:
    """(architecture, nu, multiple of the rate) -> loss of each seed, as a study has them."""
    found = []
    for (name, nu, rate), of_seeds in losses.items():
        for seed, loss in enumerate(of_seeds):
            at = cell(architecture=name, nu=nu, rate=rate)
            values = {**START, "loss": loss, "baseline": 1.0}
            found.append(CellResult(cell=at, seed=seed, run="", diverged=loss != loss, values=values, curves={}))
    return Results(found, "laptop")


def names_of_failed(study, results: Results) -> list[str]:
    return [check.name for check in failed(study.checks(results))]


def test_the_gap_must_open_with_memory() -> None:
    few, many = [1e-3, 1.2e-3, 0.9e-3], [1.0, 3.0, 2.0]
    opens = {("dense", 0.32, 1.0): few, ("dense", 0.99, 1.0): many, ("lru", 0.32, 1.0): few, ("lru", 0.99, 1.0): few}
    assert names_of_failed(TEACHER, students(Teacher, opens)) == []
    closes = {("dense", 0.32, 1.0): many, ("dense", 0.99, 1.0): few, ("lru", 0.32, 1.0): few, ("lru", 0.99, 1.0): few}
    [name] = names_of_failed(TEACHER, students(Teacher, closes))
    assert name.startswith("log(dense / LRU) rises")
    lost = {**opens, ("dense", 0.99, 1.0): [1.0, math.nan, 2.0]}
    assert names_of_failed(TEACHER, students(Teacher, lost)) == [name]
    assert "dense diverged" in TEACHER.answer(students(Teacher, lost))


def test_a_rate_at_which_a_seed_diverged_is_not_the_best() -> None:
    losses = {
        ("dense", 0.99, 1.0): [1.0, 1.2, 3.0],
        ("dense", 0.99, 3.2): [1e-9, math.nan, 1e-9],
        ("block", 0.99, 1.0): [2e-2, 1e-2, 3e-2],
        ("complex", 0.99, 1.0): [1e-3, 1.1e-3, 0.9e-3],
    }
    results = students(Bridge, losses)
    assert kernels.by_seed(results, "dense", nu=0.99) == {0: 1.0, 1: 1.2, 2: 3.0}
    medians = "block over complex, ratio of medians, nu=0.99"  # these means and medians agree
    assert names_of_failed(BRIDGE, results) == [medians]
    assert "dense 1.7 (1.2), blocks 0.02 (0.02), complex 0.001 (0.001)" in BRIDGE.answer(results)
    worse = {**losses, ("block", 0.99, 1.0): [2.0, 3.0, 7.0]}
    assert names_of_failed(BRIDGE, students(Bridge, worse)) == ["dense > block, nu=0.99", medians]


def test_steps_of_a_cell_that_diverged_decide_nothing() -> None:
    def results(theta: list[float]) -> Results:
        values = {**START, "formula error": 0.0, "largest published": 1e-3, "nu median": 0.2}
        return Results(
            [
                CellResult(
                    cell=ADAM.settings(architecture="lru"),
                    seed=seed,
                    run="",
                    diverged=step != step,
                    values={**values, "theta median": step},
                    curves={},
                )
                for seed, step in enumerate(theta)
            ],
            "laptop",
        )

    assert names_of_failed(ADAM, results([1e-3, 2e-3, 3e-3])) == []
    assert len(names_of_failed(ADAM, results([1e-1, 2e-1, 3e-1]))) == 1
    assert len(names_of_failed(ADAM, results([1e-3, 1.1e-3, 0.9e-3, math.nan]))) == 1
