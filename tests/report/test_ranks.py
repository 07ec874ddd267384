"""The rank test, the chance of improvement and the rate of failure against scipy and against counting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies
from numpy.typing import NDArray

from lrurun.judging import ranks
from tests.harness import rule

INF = math.inf


def samples(n: int, m: int, seed: int, *, ties: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Of unequal spreads, with some failing seeds; with ties, in steps."""
    random = np.random.default_rng([n, m, seed])
    found = []
    for size, spread in ((n, 1.0), (m, 3.0)):
        values = random.normal(random.normal(0, 1), spread, size)
        values = np.where(random.random(size) < 0.2, -20 + random.random(size), values)
        found.append(tuple(float(value) for value in (np.round(values) if ties else values)))
    return found[0], found[1]


SETTINGS = settings(max_examples=12, derandomize=True, deadline=None, database=None)
TWO_SAMPLES = strategies.builds(
    samples,
    strategies.sampled_from([5, 12, 20]),
    strategies.sampled_from([7, 12, 20]),
    strategies.integers(0, 1000),
    ties=strategies.booleans(),
)


@SETTINGS
@given(TWO_SAMPLES)
def test_the_chance_of_improvement_is_scipys_and_its_interval_is_by_t(
    two: tuple[tuple[float, ...], tuple[float, ...]],
) -> None:
    mine, other = two
    chance, error, df = rule.brunner_munzel(*rule.counted(mine, other)[:2])
    if error > 0:
        test = scipy.stats.brunnermunzel(other, mine)
        assert (chance - 0.5) / error == pytest.approx(test.statistic, rel=1e-9)
        assert 2 * scipy.stats.t.sf(abs(test.statistic), df) == pytest.approx(test.pvalue, rel=1e-9)
    found = ranks.improvement(mine, other)
    assert found.estimate == pytest.approx(chance, rel=1e-12)
    half = scipy.stats.t.isf(0.025, df) * error if error > 0 else 0
    least = 0.025 ** (1 / min(map(len, two)))
    assert found.low == pytest.approx(max(0, min(chance - half, least)), rel=1e-9)
    assert found.high == pytest.approx(min(1, max(chance + half, 1 - least)), rel=1e-9)
    turned = ranks.improvement(other, mine)
    assert [1 - one for one in turned] == pytest.approx([found.estimate, found.high, found.low], rel=1e-9)


def test_separated_and_equal_samples_have_an_interval_too() -> None:
    low, high = tuple(range(12)), tuple(range(100, 120))
    assert ranks.improvement(high, low) == (1.0, pytest.approx(0.025 ** (1 / 12)), 1.0)
    assert ranks.improvement(low, high) == (0.0, 0.0, pytest.approx(1 - 0.025 ** (1 / 12)))
    assert ranks.improvement((1.0,) * 12, (1.0,) * 12) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize("failing", [0.0, 0.4])
def test_the_interval_holds_the_true_chance_in_about_95_percent_of_samples(failing: float) -> None:
    """93 to 99.9 % of them, in simulations of more."""
    random = np.random.default_rng(1)

    def draw(shift: float, rate: float) -> tuple[float, ...]:
        return tuple(np.where(random.random(12) < rate, -50.0, random.normal(shift, 1, 12)).tolist())

    shift = 1.0
    both = scipy.stats.norm.cdf(shift / math.sqrt(2))
    # the first sample fails at this rate, the second one at half of it
    a, b = failing, failing / 2
    truth = (1 - a) * (1 - b) * both + (1 - a) * b + a * b / 2
    found = [ranks.improvement(draw(shift, a), draw(0.0, b)) for _ in range(400)]
    assert np.mean([one.low <= truth <= one.high for one in found]) > 0.93 - 2 * math.sqrt(0.93 * 0.07 / 400)
    assert np.mean([one.high - one.low for one in found]) < 0.55
    assert all(0 <= one.low <= one.estimate <= one.high <= 1 for one in found)


# p values


SIZES = [(12, 12), (20, 20), (12, 20), (5, 7), (200, 210)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_p_is_that_of_other_permutations(sizes: tuple[int, int], ties: bool) -> None:
    draws = 20_000 if sum(sizes) < 100 else 2_000
    mine, other = samples(*sizes, 0, ties=ties)
    expected = rule.permuted(mine, other, draws=draws)
    for p, theirs in zip(ranks.p_values(mine, other), expected, strict=True):
        # the table is interpolated: W has few values near 0
        assert p == pytest.approx(theirs, rel=0.03, abs=rule.error_of(theirs, draws, ranks.DRAWS))


def statistics_of(chosen: Iterator[NDArray[np.bool_]]) -> rule.Floats:
    """|W| of rows that say which ranks are in the first sample, in ascending order."""
    return np.sort(np.concatenate([abs(rule.statistic(rows.astype(float), (~rows).astype(float))) for rows in chosen]))


def every(n: int) -> Iterator[NDArray[np.bool_]]:
    """All permutations in which the lowest rank is in the first sample: |W| is the same for the exchanged samples."""
    combinations = itertools.combinations(range(1, 2 * n), n - 1)
    while some := list(itertools.islice(combinations, 200_000)):
        rows = np.zeros((len(some), 2 * n), bool)
        rows[:, 0] = True
        np.put_along_axis(rows, np.array(some), True, axis=1)
        yield rows


@pytest.mark.parametrize(
    ("n", "permutations", "accuracy"),
    [
        (20, lambda: iter([rule.drawn(20, 20, 100_000) > 0]), 0.0),
        pytest.param(12, lambda: every(12), 0.03, marks=pytest.mark.slow),
    ],
    ids=["20", "12"],
)
def test_small_p_are_those_of_all_permutations_or_of_many(
    n: int, permutations: Callable[[], Iterator[NDArray[np.bool_]]], accuracy: float
) -> None:
    known = statistics_of(permutations())
    random = np.random.default_rng(n)
    compared = 0
    for shift in np.linspace(0.3, 1.5, 40):
        mine, other = (tuple(random.normal(mean, 1, n).tolist()) for mean in (shift, 0.0))
        w = abs(rule.statistic(*rule.counted(mine, other)[:2]))
        p = 1 - np.searchsorted(known, w) / len(known)
        if 0.0005 < p < 0.1:
            error = {"rel": accuracy} if accuracy else {"abs": rule.error_of(p, len(known))}
            assert ranks.p_values(mine, other).two_sided == pytest.approx(p, **error)
            compared += 1
    assert compared > 10


@SETTINGS
@given(TWO_SAMPLES)
def test_exchanging_the_samples_mirrors_every_p(two: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    mine, other = two
    found, turned = ranks.p_values(mine, other), ranks.p_values(other, mine)
    assert found == (turned.two_sided, turned.below, turned.above)
    assert ranks.p_values(tuple(reversed(mine)), tuple(reversed(other))) == found
    # higher is better: negated, the other one is better
    negated = ranks.p_values(tuple(-one for one in mine), tuple(-one for one in other))
    assert negated.two_sided == pytest.approx(found.two_sided, abs=rule.error_of(found.two_sided, ranks.DRAWS))
    assert found.two_sided == 1 or (negated.above < negated.below) == (found.above > found.below)


@pytest.mark.parametrize(("n", "m"), [(12, 12), (20, 20), (12, 20), (13, 13)])
def test_no_p_is_below_that_of_n_wins_in_a_row(n: int, m: int) -> None:
    for low, high in (
        (tuple(range(n)), tuple(range(100, 100 + m))),
        ((-INF,) * n, tuple(range(m))),
        ((-INF,) * n, (1.0,) * m),
    ):
        found = ranks.p_values(high, low)
        drawn = 1 / (2 * ranks.DRAWS + 1)  # where no table applies, with equal sizes
        assert 2.0 ** (1 - n) <= found.two_sided <= max(2.0 ** (1 - n), drawn)
        assert 2.0**-n <= found.above <= max(2.0**-n, drawn)
        assert found.below > 0.99
    assert ranks.p_values((2.0, 3.0), (0.0, 1.0)).two_sided == 0.5


def test_equal_samples_show_nothing() -> None:
    for mine, other in (
        ((1.0,) * 12, (1.0,) * 12),
        ((1.0,) * 12, (1.0,) * 20),
        ((-INF,) * 12, (-INF,) * 12),
        ((0.0, 1.0) * 6, (1.0, 0.0) * 6),
    ):
        found = ranks.p_values(mine, other)
        assert found.two_sided == 1
        assert found.above == found.below > 0.5


def test_a_diverged_run_is_below_every_other_one_by_any_distance() -> None:
    other = tuple(np.linspace(0, 1, 12).tolist())
    mine = tuple(np.linspace(0.505, 1.505, 12).tolist())
    lost: Any = [(bottom,) * 3 + mine[3:] for bottom in (-INF, -1.0, -1e6)]
    assert len({ranks.p_values(one, other) for one in lost}) == 1
    assert len({ranks.improvement(one, other) for one in lost}) == 1
    assert ranks.p_values(lost[0], other).above > ranks.p_values(mine, other).above


# Counts


def test_the_sign_test_and_the_bound_on_failures_are_scipys() -> None:
    for n in (1, 5, 12, 20):
        for k in range(n + 1):
            expected = scipy.stats.binomtest(k, n, 0.5, alternative="greater").pvalue
            assert ranks.sign_test(k, n) == pytest.approx(expected, rel=1e-9)
            interval = scipy.stats.binomtest(k, n, alternative="less").proportion_ci(0.95, method="exact")
            assert ranks.failure_bound(k, n) == pytest.approx(interval.high, rel=1e-6)
    # five seeds of five learn: up to 45 % may fail
    assert ranks.failure_bound(0, 5) == pytest.approx(0.451, abs=5e-4)
    assert ranks.failure_bound(0, 12) == pytest.approx(0.221, abs=5e-4)
