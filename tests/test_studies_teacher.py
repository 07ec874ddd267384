"""Kernel form of teachers and students: against networks step by step in NumPy, closed forms, and made-up results."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

from lrurun.studies import kernels
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
