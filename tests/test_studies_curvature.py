"""The studies of curvature: against numbers that were computed apart from them, and against autodiff."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import numpy as np
import pytest

from lrurun import studies
from lrurun.studies.coordinates import FORMS, basin, curvature

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


def test_curvature_is_that_of_autodiff() -> None:
    found = cell("parametrise", form="optimal", radius=0.92, points=3)
    theory = curvature(0.92, TURN, "optimal", normalised=True)
    np.testing.assert_allclose([found["magnitude"], found["cross"], found["angle"]], theory[np.triu_indices(2)])


def test_basin_is_where_the_loss_is_half() -> None:
    for radius, error in {0.36: np.pi, 0.68: 1.240687, 0.99: 0.020304}.items():
        assert basin(radius) == pytest.approx(error, abs=1e-6)
        assert cell("parametrise", radius=radius, points=3)["basin"] == pytest.approx(error, abs=1e-6)


ANGLES = {"polar": (0.785398, 1279), "exponential": (-0.241564, 2549), "optimal": (54.98137, 4000)}


@pytest.mark.parametrize("form", ANGLES)
def test_adam_learns_the_angle(form: str) -> None:
    found = cell("angle", form=form, updates=4000)
    start, updates = ANGLES[form]
    assert found["start of w"] == pytest.approx(2.64665, abs=1e-5)
    assert found["start of v"] == pytest.approx(start, abs=1e-5)
    assert found["first loss"] == pytest.approx(49.7141996, rel=1e-9)
    assert found["updates"] == updates
