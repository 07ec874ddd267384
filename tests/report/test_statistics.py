"""Statistics of reports against scipy.stats and against other ways to compute the same thing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies

from lrurun.judging import distributions, holm, statistics


def samples(sizes: tuple[int, int], seed: int = 0) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(seed)
    return list(random.normal(0.9, 0.02, sizes[0])), list(random.normal(0.88, 0.005, sizes[1]))


def difference(values: list[float], others: list[float]) -> statistics.MeanDifference:
    mine, other = statistics.estimate(values), statistics.estimate(others)
    assert mine is not None
    assert other is not None
    return statistics.between(mine, other)


SETTINGS = settings(max_examples=25, derandomize=True, deadline=None, database=None)


@SETTINGS
@given(strategies.tuples(strategies.integers(2, 12), strategies.integers(2, 12)), strategies.integers(0, 1000))
def test_welch_agrees_with_scipy(sizes: tuple[int, int], seed: int) -> None:
    mine, other = samples(sizes, seed)
    found = difference(mine, other)
    expected = scipy.stats.ttest_ind(mine, other, equal_var=False)
    assert found.estimate == pytest.approx(np.mean(mine) - np.mean(other), rel=1e-12)
    assert found.df == pytest.approx(expected.df, rel=1e-9)
    assert found.p_value() == pytest.approx(expected.pvalue, rel=1e-9)
    for level in (0.9, 0.95):
        assert found.interval(level) == pytest.approx(tuple(expected.confidence_interval(level)), rel=1e-9)


def test_mean_median_and_standard_error() -> None:
    for n in (2, 3, 10):
        values = list(np.random.default_rng(n).normal(size=n))
        assert statistics.mean(values) == pytest.approx(np.mean(values), rel=1e-12)
        assert statistics.median(values) == pytest.approx(np.median(values), rel=1e-12)
        assert statistics.stderr(values) == pytest.approx(scipy.stats.sem(values), rel=1e-12)
    assert statistics.mean([0.5]) == 0.5
    assert statistics.stderr([0.5]) is None
    assert statistics.mean([]) is statistics.median([]) is statistics.stderr([]) is statistics.estimate([]) is None
    assert statistics.estimate([0.5]) is None


def test_no_test_without_spread() -> None:
    found = difference([0.1] * 3, [0.7] * 3)
    assert found.estimate == pytest.approx(-0.6)
    assert found.p_value() is found.interval(0.95) is None
    # One side with spread is enough: the test of one sample against a known mean.
    one = difference([0.125] * 3, [0.6, 0.7, 0.8])
    assert one.df == pytest.approx(2)
    assert one.p_value() == pytest.approx(scipy.stats.ttest_1samp([0.6, 0.7, 0.8], 0.125).pvalue)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.97, 291 / 300])
def test_equal_values_have_no_spread_at_all(value: float) -> None:
    for n in range(2, 12):
        assert statistics.mean([value] * n) == value
        assert statistics.stderr([value] * n) == 0


@SETTINGS
@given(strategies.lists(strategies.none() | strategies.floats(0, 1), max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values: list[float | None]) -> None:
    """What has no p-value is no hypothesis."""
    known = [place for place, p in enumerate(p_values) if p is not None]
    subsets = [chosen for size in range(1, len(known) + 1) for chosen in itertools.combinations(known, size)]
    expected = [
        None if p is None else max(
            min(1.0, len(chosen) * min(p_values[i] or 0.0 for i in chosen)) for chosen in subsets if place in chosen
        )
        for place, p in enumerate(p_values)
    ]  # fmt: skip
    found = holm.step_down(p_values)
    assert [one is None for one in found] == [one is None for one in expected]
    assert [one or 0.0 for one in found] == pytest.approx([one or 0.0 for one in expected], rel=1e-12)


def power(delta: float, spread: float, n: int, *, alpha: float) -> float:
    """Of the two-sided t test of two samples of equal spread."""
    shift, df = delta / (spread * math.sqrt(2 / n)), 2 * n - 2
    limit = scipy.stats.t.isf(alpha / 2, df)
    return float(scipy.stats.nct.sf(limit, df, shift) + scipy.stats.nct.cdf(-limit, df, shift))


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_detectable_difference_is_found_four_times_in_five(n: int) -> None:
    # With equal spreads Welch's degrees of freedom are 2n - 2.
    one = statistics.Estimate(mean=0.0, variance=0.013**2 / n, df=n - 1, n=n)
    found = statistics.between(one, one).detectable()
    assert found is not None
    assert power(found, 0.013, n, alpha=0.05) == pytest.approx(0.8, abs=1e-5)
    known = statistics.Estimate(mean=0.0, variance=0.01**2)
    by_hand = (scipy.stats.norm.isf(0.025) + scipy.stats.norm.isf(0.2)) * 0.01
    assert statistics.between(known, statistics.Estimate(mean=0.0)).detectable() == pytest.approx(by_hand)
    assert statistics.MeanDifference(estimate=1.0, stderr=None, df=None).detectable() is None


@pytest.mark.parametrize("level", [0.05, 0.05 / 14])
@pytest.mark.parametrize("difference", [0.05, 0.02, 0.01, 0.0075])
def test_seeds_to_detect_is_the_first_number_with_the_power(difference: float, level: float) -> None:
    one = statistics.Estimate(mean=0.0, variance=0.013**2 / 3, df=2, n=3)
    found = statistics.to_detect(difference, one, one, level, None, least=2)
    assert found is not None
    n, items = found
    assert items is None
    assert power(difference, 0.013, n, alpha=level) >= 0.8 - 1e-6
    assert n == 2 or power(difference, 0.013, n - 1, alpha=level) < 0.8


def test_what_more_seeds_do_not_show() -> None:
    one = statistics.Estimate(mean=0.0, variance=0.013**2 / 3, df=2, n=3)
    assert statistics.to_detect(0.001, one, one, 0.05, None, least=2) is None
    # a variance that is known does not change with seeds
    known, none = statistics.Estimate(mean=0.0, variance=0.01**2), statistics.Estimate(mean=0.0)
    wanted = (scipy.stats.norm.isf(0.025) + scipy.stats.norm.isf(0.2)) * 0.01
    assert statistics.to_detect(wanted * 1.001, known, none, 0.05, None, least=2) == (2, None)
    assert statistics.to_detect(wanted * 0.999, known, none, 0.05, None, least=2) is None


def test_one_sided_p_values_are_the_tails() -> None:
    mine, other = samples((3, 5))
    found = difference(mine, other)
    raised = [value + 0.01 for value in mine]
    above = scipy.stats.ttest_ind(raised, other, equal_var=False, alternative="greater").pvalue
    assert found.p_above(-0.01) == pytest.approx(above, rel=1e-9)
    assert found.p_below(-0.01) == pytest.approx(1 - above, rel=1e-9)


@pytest.mark.parametrize("df", [1.0, 1.5, 3.0, 22.0, 800.0, math.inf])
def test_the_distributions_are_those_of_scipy(df: float) -> None:
    theirs = scipy.stats.norm() if math.isinf(df) else scipy.stats.t(df)
    for t in (-50.0, -2.0, -1e-3, 0.0, 1e-3, 0.5, 3.0, 50.0):
        assert distributions.t_above(t, df) == pytest.approx(theirs.sf(t), rel=1e-11)
    for tail in (0.4, 0.025, 0.05 / 26):
        limit = distributions.t_limit(tail, df)
        assert limit == pytest.approx(theirs.isf(tail), rel=1e-11)
        shift = distributions.noncentrality(0.2, limit, df)
        below = scipy.stats.norm.cdf(limit - shift) if math.isinf(df) else scipy.stats.nct.cdf(limit, df, shift)
        assert below == pytest.approx(0.2, abs=1e-9)
    for failures, n in ((0, 2), (3, 12), (299, 300)):
        limit = distributions.beta_limit(0.95, failures + 1, n - failures)
        assert limit == pytest.approx(scipy.stats.beta.ppf(0.95, failures + 1, n - failures), rel=1e-11)
