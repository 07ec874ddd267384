"""The studies in closed form, against numbers that were computed independently of this code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from lrurun import studies
from lrurun.errors import UsageError
from lrurun.studies.machinery.execution import in_process
from lrurun.studies.machinery.planning import make
from lrurun.studies.machinery.study import Results


def run(name: str, seeds: int = 1, **changes: Any) -> Results[Any]:
    """The finished cells of a study with these settings, computed in this process."""
    return in_process(make(studies.get(name), "ci", changes, range(seeds)))


def near(expected: float, digits: float = 1e-8) -> Any:
    return pytest.approx(expected, rel=digits, abs=1e-15)


def mean(results: Results[Any], name: str) -> float:
    return float(np.mean([one[name] for one in results]))


def refused(name: str, **changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        run(name, **changes)
    return str(error.value)


def test_disk_is_that_of_matrices_drawn_by_numpy() -> None:
    size = 30
    drawn = np.random.default_rng(0).standard_normal((200, size, size)) / np.sqrt(size)
    eigenvalues = np.linalg.eigvals(drawn)
    angles = np.sort(np.abs(np.angle(eigenvalues)) / np.pi, axis=1)
    expected = {
        "mean entry squared": np.mean(drawn**2, axis=(1, 2)),
        "mean square": np.mean(np.abs(eigenvalues) ** 2, axis=1),
        "real eigenvalues": np.count_nonzero(eigenvalues.imag == 0, axis=1),
        "spectral radius": np.max(np.abs(eigenvalues), axis=1),
        "share in the disk": np.mean(np.abs(eigenvalues) <= 1, axis=1),
        "distance of the angles": np.array([kstest(row, "uniform").statistic for row in angles]),
    }
    found = run("disk", seeds=20, size=size)
    for name, samples in expected.items():
        stderr = samples.std() * np.sqrt(1 / len(found) + 1 / len(samples))
        assert abs(mean(found, name) - samples.mean()) < 4 * stderr, name
    assert "size" in refused("disk", size=1)


def test_number_of_real_eigenvalues_against_matrices() -> None:
    from lrurun.studies.disk import asymptotic_real_count, real_count

    matrices = np.random.default_rng(0).standard_normal((4000, 6, 6))
    counts = np.count_nonzero(np.linalg.eigvals(matrices).imag == 0, axis=1)
    assert abs(counts.mean() - real_count(6)) < 4 * counts.std() / np.sqrt(4000)
    assert real_count(2) == near(np.sqrt(2))
    assert asymptotic_real_count(200) == near(real_count(200), 1e-5)


def test_moments_of_a_ring() -> None:
    from lrurun.studies.ring import moments

    expected = {
        (0.0, 1.0): (0.5, 0.6666667),
        (0.0, 0.99): (0.49005, 0.66),
        (0.9, 0.999): (0.9040005, 0.9503602),
        (0.999, 0.9999): (0.998900505, 0.9994500675),
    }
    for ring, (square, radius) in expected.items():
        assert moments(ring) == (near(square), near(radius, 1e-7))
    assert "must be below the outer one" in refused("ring", ring=[[0.9, 0.5]])


@pytest.mark.slow
def test_gamma_of_a_ring() -> None:
    found = run("ring", ring=[[0.0, 1.0]], samples=100)[0]
    assert found["gamma in float32"] == near(9.765625e-4)
    assert found["gamma of the layer"] == near(9.9999975e-4, 1e-6)


def test_impulse() -> None:
    found = run("impulse", phase=0.02, steps=4096)[0]
    assert found["|state| at the end 1"] == near(0.81485100, 1e-6)
    for n in (1, 2, 3):
        step, state = found.curves[f"step {n}"], found.curves[f"state {n}"]
        angle = found[f"phase {n}"] * step
        assert state == pytest.approx(np.exp(-5e-5 * step) * np.cos(angle), abs=1e-6)
        assert np.all(np.diff(step) > 0)
        assert found[f"sign changes {n}"] == pytest.approx(found[f"phase {n}"] / np.pi * 4095, abs=1)


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
    assert len(sine.curves["rectified"]) == len(sine.curves["time"]) == sine.cell.samples // 4
    # The whole circular convolution, slowly.
    signal = np.sin(2 * np.pi * 8 * np.arange(256) / 256)
    before, gate = np.fft.fft(signal) / 256, np.fft.fft(signal > 0) / 256
    slow = [abs(sum(before[j] * gate[(k - j) % 256] for j in range(256))) for k in range(40)]
    assert run("leak", signal="sine", samples=256)[0].curves["product rule"] == pytest.approx(slow, abs=1e-12)


def test_gain() -> None:
    from lrurun.studies.gain import Gain, variance
    from lrurun.studies.mathematics.formulas import ring_gain, slice_gain

    gains = {
        (0.0, 0.9): (2.05028544, 4.847),
        (0.0, 0.99): (3.99656724, 50.09),
        (0.0, 0.999): (6.22755711, 500.2),
        (0.5, 0.9): (2.45187345, 5.767),
        (0.9, 0.99): (13.2645758, 119.3),
        (0.9, 0.999): (24.2252808, 1152),
        (0.99, 0.999): (128.376777, 3714),
        (0.999, 0.9999): (1279.66769, 117280),
    }
    for ring, (expected, deviation) in gains.items():
        assert ring_gain(ring) == near(expected)
        assert np.sqrt(variance(Gain(ring=ring, input="constant"))) == near(deviation, 1e-3)
    assert np.sqrt(variance(Gain(ring=(0.9, 0.99)))) == near(18.971, 1e-4)
    for ring, steps, expected in (
        ((0.9, 0.999), 100, 17.7457622),
        ((0.9, 0.999), 1000, 23.9658924),
        ((0.999, 0.9999), 1000, 627.400584),
        ((0.999, 0.9999), 16384, 1274.55417),
    ):
        assert ring_gain(ring, steps) == near(expected)
    # Sums over 20,000 radii of integrals over the phase.
    assert slice_gain((0.9, 0.999), np.pi / 10) == near(231.8021, 2e-6)
    assert slice_gain((0.9, 0.999), np.pi / 50) == near(990.2115, 2e-6)
    assert slice_gain((0.9, 0.999), np.pi) == near(24.2252808)
    assert "outer radius below 1" in refused("gain", ring=[[0.5, 1.0]])


@pytest.mark.slow
def test_gain_of_white_inputs_has_the_variance_of_the_formula() -> None:
    from lrurun.studies.gain import Gain, variance

    cell = Gain(ring=(0.0, 0.9), units=4_000, steps=200)
    [found] = run("gain", ring=[[0.0, 0.9]], input="white", units=4_000, steps=200)
    assert abs(found["gain"] - 2.05028544) < 4 * np.sqrt(variance(cell) / cell.units)
    means = [one["gain"] for one in run("gain", seeds=150, ring=[[0.0, 0.9]], input="white", units=50, steps=60)]
    assert 50 * np.var(means) == near(variance(cell), 0.35)


def test_landscape() -> None:
    expected = {0.0: 18.5828952, 0.9: 337.684784, 1.0: 4050.0}
    for rho, loss in expected.items():
        assert run("landscape", gap=0.01, rho=rho)[0]["loss at 0.9"] == near(loss)
    found = run("landscape", points=41)
    at_zero = [0.0744485294, 0.430059524, 1.19836957, 2.75520833, 5.87755102, 12.1262626, 24.6256281]
    assert [one.curves["loss"][0] for one in found][::-1] == pytest.approx(at_zero, rel=1e-8)
    assert [one["curvature by radius"] for one in found][:2] == pytest.approx([251262.63, 31568.877], rel=1e-5)
    assert [one["curvature by angle"] for one in found][:2] == pytest.approx([246262.50, 30318.750], rel=1e-5)


def test_loss_of_two_complex_eigenvalues() -> None:
    from lrurun.studies.mathematics.formulas import loss

    student, teacher = 0.9 * np.exp(0.2j), 0.95 * np.exp(0.1j)
    assert loss(student, teacher, 0.0) == near(2.71135139)
    assert loss(student, teacher, 0.9) == near(22.6867082)


def test_closed_forms_refuse_eigenvalues_on_the_circle() -> None:
    from lrurun.studies.mathematics.formulas import sensitivity, state_variance

    with pytest.raises(UsageError, match=r"\|lambda\| < 1"):
        sensitivity(1.0, 0.5)
    with pytest.raises(UsageError, match="rho"):
        state_variance(0.5, 1.1)


def test_energy_is_the_double_sum() -> None:
    from lrurun.studies.mathematics.formulas import energy

    parts = np.random.default_rng(0).standard_normal((2, 2, 30))
    first, second = parts[0] + 1j * parts[1]
    for rho in (0.0, 0.7, 1.0):
        slow = sum(first[n] * np.conj(second[m]) * rho ** abs(n - m) for n in range(30) for m in range(30))
        assert energy(first, second, rho) == pytest.approx(slow, rel=1e-12)


def test_remedy() -> None:
    expected = {
        0.0: ([1, 1, 1], [0.495008, 0.499500, 0.499950]),
        0.9: ([17.348624, 18.821606, 18.982016], [9.333875, 9.489663, 9.499041]),
        0.99: ([99.502513, 180.983621, 197.039410], [73.879372, 98.585755, 99.480393]),
        1.0: ([199, 1999, 19999], [197.008342, 1997.000841, 19997.000083]),
    }
    for one in run("remedy"):
        for name, numbers in zip(("state", "gradient"), expected[one.cell.rho], strict=True):
            assert [one[f"{name} at {at}"] for at in (0.99, 0.999, 0.9999)] == pytest.approx(numbers, rel=2e-6)


def test_similarity() -> None:
    found = {one.cell.rho: one for one in run("similarity", side=21)}
    expected = {
        0.0: (251262.626, 0.510048983, 4.20090150),
        0.9: (88908.9545, 2.91946089, 129.588222),
        0.99: (8627.46938, 2.97123138, 4310.79394),
        1.0: (2.97235874, 2.97235874, 17240.5300),
    }
    for rho, numbers in expected.items():
        assert [found[rho][name] for name in ("its conjugate", "itself", "0.99")] == pytest.approx(numbers, rel=1e-8)
    assert [found[rho]["its conjugate as printed"] for rho in (0.9, 0.99)] == pytest.approx([46796, 4337], rel=1e-4)
    angles = [found[rho]["angle of the largest"] for rho in (0.0, 0.9, 0.99, 0.999, 1.0)]
    assert angles == pytest.approx([-0.25, -0.24995, -0.24995, 0, 0], abs=1e-5)
    largest = [found[rho]["largest"] for rho in (0.9, 0.99, 0.999)]
    assert largest == pytest.approx([88917.36, 8628.315, 14260.506], rel=1e-7)


@pytest.mark.slow
def test_reals() -> None:
    found = {(one.cell.eigenvalues, one.cell.modes): one["residual"] for one in run("reals", modes=[64, 256])}
    assert found["complex", 64] == near(0.750240, 1e-5)
    assert found["complex", 256] < 1e-20
    # Two lags are equal modulo 192, so the formula 1 - N / L of divisors does not hold.
    assert run("reals", modes=192)[0]["residual"] == near(0.5, 1e-3)
    assert found["real", 64] == near(0.954143, 1e-2)  # of decays that are spaced evenly, not sampled
    assert found["real", 256] == near(0.955316, 1e-2)


def test_smallest_weights_against_a_linear_system() -> None:
    from lrurun.studies.reals import chebyshev, weight

    assert [weight(np.linspace(0, 1, n)) for n in (4, 8, 12, 16)] == pytest.approx(
        [36, 20915.4, 14638405, 1.097e10], rel=1e-3
    )
    nodes = chebyshev(6)
    weights = np.linalg.solve(np.vander(nodes, increasing=True).T, np.eye(6)[5])
    assert weight(nodes) == near(np.abs(weights).sum()) == near(2.0**9)
    for seed in range(20):
        other = np.sort(np.random.default_rng(seed).random(6))
        assert weight(other) > weight(nodes)
