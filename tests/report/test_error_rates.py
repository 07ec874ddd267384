"""The error rates of docs/statistics.md, with fewer ladders: `benchmarks/error_rates.py` has the whole table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import error_rates
from benchmarks.error_rates import Case
from lrurun.judging import ranks

LADDERS = 2_000
MOST = 0.05 + 3 * math.sqrt(0.05 * 0.95 / LADDERS)
"""5 % and three standard errors of the simulation."""


@pytest.mark.parametrize("failures", [0.0, 0.05, 0.45])
def test_few_ladders_have_a_wrong_verdict_where_seeds_fail(failures: float) -> None:
    looks, test = error_rates.DESIGNS["`--decide`"]
    assert 0.02 < error_rates.wrong(Case("", failures=failures), looks, test, LADDERS) < MOST


def test_ladders_with_true_differences_and_very_unequal_spreads_have_somewhat_more() -> None:
    """6.3 % of 10,000 ladders: docs/statistics.md."""
    looks, test = error_rates.DESIGNS["`--decide`"]
    assert error_rates.wrong(Case("", levels="pairs", spread=10.0), looks, test, 1_000) < 0.09


def test_verdicts_by_means_are_often_wrong_where_seeds_fail() -> None:
    looks = [(5, 0.2), (8, 0.3), (12, 0.5)]
    case = Case("", failures=0.05, equal_means=True)
    assert error_rates.wrong(case, looks, error_rates.welch, 200) > 0.8


@pytest.mark.parametrize("case", [Case("", failures=0.2), Case("", steps=1.0, all_fail=0.1, diverge=True)])
@pytest.mark.parametrize("seeds", [12, 20])
def test_the_simulated_test_is_that_of_the_package(case: Case, seeds: int) -> None:
    scores = error_rates.sample(case, np.random.default_rng(seeds), 20, seeds)[:, :2]
    p, direction = error_rates.ranks(scores[:, 1], scores[:, 0])
    for (other, mine), simulated, sign in zip(scores, p, direction, strict=True):
        found = ranks.p_values(tuple(mine), tuple(other))
        # of 2,000 and of 40,000 permutations
        assert found.two_sided == pytest.approx(simulated, abs=0.002 + 4 * math.sqrt(simulated / error_rates.DRAWS))
        assert sign == 0 or (found.above < found.below) == (sign > 0)
