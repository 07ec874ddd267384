"""The studies of curvature: against numbers that were computed apart from them, and against autodiff."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import numpy as np
import pytest

from lrurun import studies
from lrurun.studies.mathematics import kernels
from lrurun.studies.mathematics.coordinates import FORMS, basin, curvature
from lrurun.studies.mathematics.hessians import (
    block,
    correlated,
    diagonal_parameters,
    flattened,
    sensitivities,
    spectrum,
)

TURN = np.pi / 100


def cell(study: str, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """The numbers of one cell, in float64."""
    found = studies.get(study)
    with jax.enable_x64(True):
        values = found.simulate(found.settings(**settings), seed)
        if not isinstance(values, Generator):
            return values
        while True:
            try:
                next(values)
            except StopIteration as end:
                result: dict[str, Any] = end.value
                return result


# Polar ν, polar θ, exponential ν, exponential θ, optimal ν, optimal cross, raw polar ν, raw polar θ.
CURVATURES = {
    0.36: (1.3199645, 0.19323773, 0.17855523, 1.9071799e-4, 1.0022244, -0.0471638, 1.7130421, 0.22201026),
    0.84: (11.537837, 13.885456, 0.24748207, 0.013704396, 1.0648582, -0.254673, 66.844206, 47.165272),
    0.99: (2525.1888, 4900.6237, 0.24999158, 4.8367218, 20.541822, -4.42061, 251262.63, 246262.50),
    0.999: (250250.19, 499000.62, 0.24999992, 492.49388, 1972.9470, -44.4066, 2.5012513e8, 2.4962512e8),
}


@pytest.mark.parametrize("radius", CURVATURES)
def test_curvatures_of_one_eigenvalue(radius: float) -> None:
    found = {form: curvature(radius, TURN, form, normalised=True) for form in FORMS}
    raw = curvature(radius, TURN, "polar", normalised=False)
    numbers = [
        *np.diag(found["polar"]),
        *np.diag(found["exponential"]),
        found["optimal"][0, 0],
        found["optimal"][0, 1],
        *np.diag(raw),
    ]
    np.testing.assert_allclose(numbers, CURVATURES[radius], rtol=4e-6)
    np.testing.assert_allclose(found["optimal-stop"], np.eye(2), atol=1e-12)


def test_basin_is_where_the_loss_is_half() -> None:
    for radius, error in {0.36: np.pi, 0.68: 1.240687, 0.99: 0.020304}.items():
        assert basin(radius) == pytest.approx(error, abs=1e-6)
    found = cell("parametrise", form="optimal", radius=0.99, points=3)
    assert found["basin"] == pytest.approx(0.020304, abs=1e-6)
    theory = curvature(0.99, TURN, "optimal", normalised=True)  # by formulas; the cell's is by autodiff
    np.testing.assert_allclose([found["magnitude"], found["cross"], found["angle"]], theory[np.triu_indices(2)])


ANGLES = {"polar": (0.785398, 1279), "exponential": (-0.241564, 2549), "optimal": (54.98137, 4000)}


@pytest.mark.parametrize("form", ANGLES)
def test_adam_learns_the_angle(form: str) -> None:
    found = cell("angle", form=form, updates=4000)
    start, updates = ANGLES[form]
    assert found["start of w"] == pytest.approx(2.64665, abs=1e-5)
    assert found["start of v"] == pytest.approx(start, abs=1e-5)
    assert found["first loss"] == pytest.approx(49.7141996, rel=1e-9)
    assert found["updates"] == updates


EIGENVALUES = np.array([0.9 * np.exp(0.5j), 0.8 * np.exp(-1.2j), 0.95 * np.exp(0.1j)])
B = np.array([1 + 0.5j, -0.3 + 0.8j, 0.6 - 0.2j])
C = np.array([0.7 - 0.4j, 0.2 + 0.9j, -0.5 + 0.3j])
BLOCKS = {
    (0.0, "re-im"): (106.280254, 1.94876111, -1.22987187, 136.883178, 515.376979, 153.094234),
    (0.0, "polar"): (106.573884, 2.23638116, 0.388203258, 125.915115, 477.341153, 147.328008),
    (0.0, "exponential"): (0.958278152, 0.0378565079, 0.0441733990, 1.25915115, 34.8287758, 21.8983337),
    (0.5, "re-im"): (213.378317, 2.56429968, -2.20833681, 401.446826, 1269.57243, 449.240851),
    (0.5, "exponential"): (1.93360177, 0.0513034875, 0.0387214726, 3.69512249, 59.8409261, 44.1351626),
    (0.9, "re-im"): (97.8028781, 0.372425909, 0.180236029, 1479.69466, 3094.14577, 1665.83069),
    (0.9, "polar"): (104.425275, -1.09500377, 0.438171444, 1374.05084, 2926.04864, 1566.90970),
    (0.9, "exponential"): (0.938958550, -0.0185357575, 0.0498592469, 13.7405084, 40.0406938, 20.1657333),
}
"""(rho, coordinates) -> entries 00, 01, 04, 55, trace, and largest eigenvalue."""


@pytest.mark.parametrize(("rho", "coordinates"), BLOCKS)
def test_blocks_of_the_hessian(rho: float, coordinates: Any) -> None:
    found = block(EIGENVALUES, B, C, rho, coordinates)
    numbers = found[0, 0], found[0, 1], found[0, 4], found[5, 5], np.trace(found), spectrum(found).top
    np.testing.assert_allclose(numbers, BLOCKS[rho, coordinates], rtol=1e-8)


@pytest.mark.parametrize(("coordinates", "rho"), [("polar", 0.5), ("exponential", 0.9)])
def test_blocks_are_those_of_autodiff(coordinates: Any, rho: float) -> None:
    lags, nu, theta = np.arange(500), np.abs(EIGENVALUES), np.angle(EIGENVALUES)
    first, second = EIGENVALUES.real, EIGENVALUES.imag
    if coordinates != "re-im":
        first, second = nu, theta
    if coordinates == "exponential":
        first, second = np.log(-np.log(nu)), np.log(np.abs(theta))

    def kernel(at: Any) -> Any:
        one, two = at[:3], at[3:]
        if coordinates == "re-im":
            logarithm = jax.numpy.log(one + 1j * two)
        elif coordinates == "polar":
            logarithm = jax.numpy.log(one) + 1j * two
        else:
            logarithm = -jax.numpy.exp(one) + 1j * np.sign(theta) * jax.numpy.exp(two)
        return jax.numpy.real(jax.numpy.exp(lags[:, None] * logarithm[None]) @ (B * C))

    with jax.enable_x64(True):
        at = jax.numpy.asarray(np.concatenate([first, second]))
        target, correlation = kernel(at), rho ** np.abs(np.subtract.outer(lags, lags))

        def loss(where: Any) -> Any:
            return 0.5 * (kernel(where) - target) @ correlation @ (kernel(where) - target)

        found = jax.jit(jax.hessian(loss))(at)
    np.testing.assert_allclose(found, block(EIGENVALUES, B, C, rho, coordinates), rtol=1e-9, atol=1e-10)


def test_equation_130_is_the_transpose_of_129() -> None:
    # as printed it is -1.401106 here
    assert block(EIGENVALUES, B, C, 0.0, "polar")[3, 1] == pytest.approx(0.2068196, rel=1e-6)


def test_statistics_of_a_spectrum() -> None:
    vectors = np.array([[1.0, 0, 0, 0], [0, 1, 1, 0], [0, 1, -1, 0], [0, 0, 0, 1]])
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    found = spectrum(vectors.T @ np.diag([8.0, 3.0, 1.0, 5.0]) @ vectors)
    assert (found.top, found.participation) == pytest.approx((8, 1.5))
    assert found.share == pytest.approx(np.sqrt(2 / 99))
    assert found.scaled == pytest.approx(1.5)
    flat = np.eye(12)  # the two smallest of twelve are spread over two directions, and not among the largest ten
    flat[:2, :2] = [[0.6, 0.8], [-0.8, 0.6]]
    assert spectrum(flat.T @ np.diag(np.arange(1.0, 13.0)) @ flat).participation == pytest.approx(1.0)
    assert len(spectrum(np.diag([1e-13, 2e-13, 1.0, 2.0])).vectors) == 2  # of rank 2, but for rounding


@pytest.mark.slow
def test_the_hessian_of_one_system() -> None:
    found = cell("hessian", network="complex-single", length=50)
    assert found["linearised error"] < 1e-12
    assert found["block error"] < 1e-11
    assert len(found["eigenvalues"]) == 13
    assert len(found["eigenvectors"]) == 9 * 13


# θ0 / π, rho -> mean share off the diagonal, participation ratio and scaled top eigenvalue of 50 systems.
CONCENTRATED = {
    ("complex", 0.01, 0.0): (0.700, 5.40, 7.20),
    ("complex", 0.1, 0.99): (0.293, 1.92, 2.24),
    ("lru", 0.1, 0.0): (0.090, 1.15, 2.23),
}


@pytest.mark.parametrize(("architecture", "angle", "rho"), CONCENTRATED)
def test_concentrated_angles(architecture: str, angle: float, rho: float) -> None:
    found = cell("concentration", architecture=architecture, angle=angle, rho=rho)
    numbers = found["share"], found["participation"], found["scaled"]
    assert numbers == pytest.approx(CONCENTRATED[architecture, angle, rho], abs=6e-3)
    assert numbers[0] == pytest.approx(np.mean(found["share of systems"]))
    assert found["sum error"] < 1e-12


def test_the_sum_over_lags_is_the_reference_block() -> None:
    eigenvalues = np.array([0.99 * np.exp(0.3j), 0.992 * np.exp(0.1j), 0.994 * np.exp(-0.2j)])
    b, c = np.array([1, 0.5j, -1 + 0.5j]), np.array([0.3, 1 + 1j, 0.2 - 0.4j])
    with jax.enable_x64(True):
        flat, shapes = flattened(diagonal_parameters("complex", eigenvalues, b, c, 0.0))
        slopes = np.asarray(sensitivities("complex", shapes, 4000)(flat))[:, :6]
    for found in (block(eigenvalues, b, c, 0.0, "re-im"), correlated(slopes, 0.0)):
        numbers = np.trace(found), found[0, 0], found[0, 1], found[0, 3]
        np.testing.assert_allclose(numbers, (557963.846445, 11306.5447362, -5.00097195, 0.324281116), rtol=3e-9)


@pytest.mark.slow
def test_training_of_a_concentrated_teacher() -> None:
    found = cell("concentration", part="training", angle=0.01, updates=5)
    responses = kernels.teacher_kernel(0.99, 0, TURN), kernels.teacher_kernel(0.99, 0)
    assert found["baseline"] == pytest.approx(kernels.expected_loss(responses[0]))
    assert found["baseline"] != pytest.approx(kernels.expected_loss(responses[1]))
    assert found["gradient error"] < 1e-12
