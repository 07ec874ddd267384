"""The studies in closed form, against numbers that were computed independently of this code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lrurun import studies
from lrurun.errors import UsageError
from lrurun.studies.plan import make
from lrurun.studies.study import CellResult, Results


def run(name: str, seeds: int = 1, **changes: Any) -> Results[Any]:
    """The finished cells of a study with these settings, computed in this process."""
    study = studies.get(name)
    plan = make(study, "ci", changes, range(seeds))
    found = []
    for cell in plan.cells:
        for seed in plan.seeds:
            values = study.simulate(cell, seed)
            assert isinstance(values, dict)
            numbers = {key: float(value) for key, value in values.items() if np.ndim(value) == 0}
            curves = {key: np.asarray(value) for key, value in values.items() if np.ndim(value)}
            found.append(CellResult(cell=cell, seed=seed, run="", diverged=False, values=numbers, curves=curves))
    return Results(found, "ci")


def near(expected: float, digits: float = 1e-8) -> Any:
    return pytest.approx(expected, rel=digits, abs=1e-15)


def mean(results: Results[Any], name: str) -> float:
    return float(np.mean([one[name] for one in results]))


def refused(name: str, **changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        run(name, **changes)
    return str(error.value)


@pytest.mark.parametrize(
    ("size", "square", "real", "radius", "inside"),
    [(50, 0.50569, 6.0, 1.0495, 0.949), (100, 0.50246, 8.7, 1.0671, 0.9595)],
)
def test_disk(size: int, square: float, real: float, radius: float, inside: float) -> None:
    found = run("disk", seeds=20, size=size)
    assert mean(found, "mean square") == near(square, 1e-5)
    assert mean(found, "real eigenvalues") == near(real)
    assert mean(found, "spectral radius") == near(radius, 1e-4)
    assert mean(found, "share in the disk") == near(inside, 1e-6)


def test_disk_refuses_a_single_number() -> None:
    assert "size" in refused("disk", size=1)


def test_number_of_real_eigenvalues_against_matrices() -> None:
    from lrurun.studies.disk import real_count

    matrices = np.random.default_rng(0).standard_normal((4000, 6, 6))
    counts = np.count_nonzero(np.linalg.eigvals(matrices).imag == 0, axis=1)
    assert abs(counts.mean() - real_count(6)) < 4 * counts.std() / np.sqrt(4000)


def test_ring() -> None:
    from lrurun.studies.formulas import ring_radius
    from lrurun.studies.ring import moments

    assert -np.log(ring_radius(np.array([0.1, 0.5, 0.9]), (0.9, 0.999))) == pytest.approx(
        [0.09388814, 0.05046268, 0.01050922], abs=5e-9
    )
    expected = {
        (0.0, 1.0): (0.5, 0.6666667),
        (0.0, 0.99): (0.49005, 0.66),
        (0.9, 0.999): (0.9040005, 0.9503602),
        (0.999, 0.9999): (0.998900505, 0.9994500675),
    }
    for ring, (square, radius) in expected.items():
        assert moments(ring) == (near(square), near(radius, 1e-7))
    found = run("ring", ring=[[0.0, 1.0]])[0]
    assert found["gamma in float32"] == near(9.765625e-4)
    assert found["gamma in float32 by expm1"] == near(9.9999975e-4, 1e-6)
    assert "must be below the outer one" in refused("ring", ring=[[0.9, 0.5]])


def test_the_layers_sample_from_the_same_ring() -> None:
    import jax

    from lrurun.nn.recurrences.diagonal import ring
    from lrurun.studies.formulas import distance_to_uniform

    nu, _ = ring(jax.random.key(0), 4000, 0.5, 0.9, 2 * np.pi)
    shares = (np.exp(-2 * np.asarray(nu, np.float64)) - 0.25) / (0.81 - 0.25)
    assert distance_to_uniform(np.sort(shares)) < 1.63 / np.sqrt(4000)


@pytest.mark.parametrize(("phase", "changes"), [(2.0, [11895, 8840, 1343]), (0.02, [209, 88, 13])])
def test_impulse(phase: float, changes: list[int]) -> None:
    found = run("impulse", phase=phase, steps=16384)[0]
    assert [found[f"sign changes {n}"] for n in (1, 2, 3)] == changes
    assert found["|state| at the end 1"] == near(0.44080618)
    for n in (1, 2, 3):
        step, state = found.curves[f"step {n}"], found.curves[f"state {n}"]
        angle = found[f"phase {n}"] * step
        assert state == pytest.approx(np.exp(-5e-5 * step) * np.cos(angle), abs=1e-9)
        assert np.all(np.diff(step) > 0)


def test_impulse_counts_sign_changes_as_phases_do() -> None:
    from lrurun.studies.impulse import mean_changes

    for phase in (0.02, 0.7, 1.5, 2.0):
        drawn = np.linspace(0, phase, 20001)
        changes = np.minimum(drawn, 2 - drawn)
        assert mean_changes(phase) == (near(changes.mean(), 1e-4), near(changes.std(), 1e-3))
    assert "phase" in refused("impulse", phase=3.0)


def test_leak() -> None:
    pulse, sine = run("leak")
    expected = [0.811807631, 0.568961472, 0.638475341, 0.289822795, 0.272923063]
    assert pulse.curves["direct"] == pytest.approx(expected, abs=1e-9)
    assert pulse.curves["convolved"] == pytest.approx(expected, abs=1e-9)
    assert sine.curves["rectified spectrum"][::8] == pytest.approx([0.318306, 0.25, 0.106107, 0, 0.021225], abs=1e-6)
    # The whole circular convolution, slowly.
    signal = np.sin(2 * np.pi * 8 * np.arange(256) / 256)
    before, gate = np.fft.fft(signal) / 256, np.fft.fft(signal > 0) / 256
    slow = [abs(sum(before[j] * gate[(k - j) % 256] for j in range(256))) for k in range(40)]
    assert run("leak", signal="sine", samples=256)[0].curves["product rule"] == pytest.approx(slow, abs=1e-12)
