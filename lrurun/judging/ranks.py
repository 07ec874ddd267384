"""Tests that hold when seeds fail: whether a run of one rung scores better than a run of another one.

The chance of improvement of A over B is P(A > B) + P(A = B) / 2 over seeds. It is tested against 1/2 by the statistic
of Brunner and Munzel (2000), W = (estimate - 1/2) / standard error, with its permutation distribution (Neubert and
Brunner 2007). It keeps its level nearly also where the two sides differ in spread, shape and rate of failure: the
table of error rates in docs/statistics.md says how nearly.

A score may be infinite: a diverged run has -inf, the lowest rank. Scores are higher where they are better.
"""

from __future__ import annotations

import json
import math
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lrurun.judging import distributions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

DRAWS = 20_000
"""Permutations that are drawn where no table applies."""
MANY = 200
"""From so many values on each side on, p comes from Student's t, with one degree of freedom less than the smaller side
has values: drawing permutations of thousands of values takes minutes. At W = 3.29 and 200 values a side, t gives
0.00118 and 200,000 permutations 0.00120."""
_TABLE = Path(__file__).with_name("brunner_munzel.json")
"""P(|W| >= w) without ties for 12 and 20 values a side, written by `benchmarks/rank_table.py`."""
LEVEL = 0.95
"""The level of intervals and bounds: each is for its comparison alone."""


class Improvement(NamedTuple):
    """The chance of improvement of one sample over another one."""

    estimate: float
    low: float
    high: float
    """Ends of its 95 % interval."""


class PValues(NamedTuple):
    """The p values of the rank test. The null hypothesis is a chance of improvement of 1/2."""

    two_sided: float
    above: float
    """One-sided: the chance is above 1/2."""
    below: float


@lru_cache(maxsize=4096)
def improvement(scores: tuple[float, ...], other_scores: tuple[float, ...]) -> Improvement:
    """The chance of improvement of the first sample over the second, of at least two values each.

    Its interval is by t, within 0 and 1. It never excludes what n wins in a row are consistent with, n being the
    smaller sample. Samples of one constant give no information: 0 to 1.
    """
    estimate, error, freedom = _estimate(np.asarray(scores, np.float64), np.asarray(other_scores, np.float64))
    if error == 0 and 0 < estimate < 1:
        return Improvement(estimate, 0.0, 1.0)
    tail = (1 - LEVEL) / 2
    half = distributions.t_limit(tail, freedom) * error if error else 0.0
    bound = tail ** (1 / min(len(scores), len(other_scores)))
    return Improvement(estimate, max(0.0, min(estimate - half, bound)), min(1.0, max(estimate + half, 1 - bound)))


@lru_cache(maxsize=4096)
def p_values(scores: tuple[float, ...], other_scores: tuple[float, ...]) -> PValues:
    """The rank test of two samples of at least two values each; exchanging them mirrors every number.

    No p is below 2^(1 - n), n being the smaller sample (one-sided, 2^-n): a sample that is above the other one with all
    of its values may come from a rung that fails half of the time.
    """
    mine, other = np.sort(np.asarray(scores, np.float64)), np.sort(np.asarray(other_scores, np.float64))
    if (len(other), other.tolist()) < (len(mine), mine.tolist()):  # both orders see the same permutations
        two_sided, above, below = p_values(other_scores, scores)
        return PValues(two_sided, below, above)
    n, m = len(mine), len(other)
    pooled = np.sort(np.concatenate([mine, other]))
    estimate, error, _ = _estimate(mine, other)
    w = float(_statistic(np.array([estimate]), np.array([error]))[0])
    if n == m and n in _tables() and (pooled[1:] > pooled[:-1]).all():
        two_sided = _from_table(n, abs(w))
        above, below = (two_sided / 2, 1 - two_sided / 2) if w > 0 else (1 - two_sided / 2, two_sided / 2)
    elif n >= MANY:
        w = min(max(w, -_SEPARATED), _SEPARATED)
        above, below = (distributions.t_above(side, n - 1) for side in (w, -w))
        two_sided = 2 * min(above, below)
    else:
        drawn = _permuted(pooled, n, m)
        two_sided = _share(np.abs(drawn) >= abs(w) - _EQUAL)
        above, below = _share(drawn >= w - _EQUAL), _share(drawn <= w + _EQUAL)
    return PValues(max(two_sided, least_p(n)), max(above, least_p(n) / 2), max(below, least_p(n) / 2))


def least_p(n: int) -> float:
    """The least two-sided p of samples of which the smaller one has `n` values."""
    return 2.0 ** (1 - n)


_EQUAL = 1e-9
"""Two statistics that differ by less are equal."""
_SEPARATED = 1e6
"""The largest |W| for which t is computed: it is infinite for samples that do not overlap."""


def _wins(mine: Array, other: Array) -> Array:
    """Entry i, j: 1 where value i is above value j of the other sample, a half where they are equal."""
    return np.asarray((mine[:, None] > other[None, :]) + 0.5 * (mine[:, None] == other[None, :]), np.float64)


def _estimate(mine: Array, other: Array) -> tuple[float, float, float]:
    """The chance of improvement, its standard error, and the degrees of freedom of the error."""
    n, m = len(mine), len(other)
    wins = _wins(mine, other)
    # variances of the mean over one side, where the other one is fixed
    first = np.var(wins.mean(1), ddof=1) / n
    second = np.var(wins.mean(0), ddof=1) / m
    total = float(first + second)
    if total < _EQUAL**2:
        return float(wins.mean()), 0.0, math.inf
    freedom = total**2 / (first**2 / (n - 1) + second**2 / (m - 1))
    return float(wins.mean()), math.sqrt(total), float(freedom)


def _statistic(estimates: Array, errors: Array) -> Array:
    """W; infinite for separated samples, 0 where all values are equal."""
    distance = np.where(np.abs(estimates - 0.5) < _EQUAL, 0.0, estimates - 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(distance == 0, 0.0, distance / errors))


def _permuted(pooled: Array, n: int, m: int) -> Array:
    """(draws,) W of the drawn permutations of the sorted pooled values (n + m,). Sides of equal size have each draw in
    both directions."""
    starts = np.unique(pooled, return_index=True)[1]
    return _permuted_ties(tuple(starts.tolist()), n, m)


@lru_cache(maxsize=4)
def _permuted_ties(starts: tuple[int, ...], n: int, m: int) -> Array:
    """(draws,) W of the drawn permutations of sorted values, of which equal ones reach from one of `starts` to the
    next: nothing else of the values counts."""
    bounds = np.array([*starts, n + m])
    draws = _draws(n, m)
    w = np.concatenate([_drawn(chunk, bounds, n, m) for chunk in np.array_split(draws, -(-draws.size // _CHUNK))])
    return np.concatenate([w, -w]) if n == m else w


_CHUNK = 100_000
"""Numbers of draws that are permuted at once: they fit into the cache of a processor."""


def _drawn(counted: NDArray[np.uint8], bounds: NDArray[np.int64], n: int, m: int) -> Array:
    """(draws,) W of the draws `counted` (draws, n + m + 1) of sorted values, of which equal ones reach from one of
    `bounds` to the next. All sums are whole numbers, and exact."""
    has_ties = len(bounds) <= n + m
    at_bounds = (counted[:, bounds] if has_ties else counted).astype(np.float64)
    before, after = at_bounds[:, :-1], at_bounds[:, 1:]
    own = after - before
    twice_below = after + before  # values of the first sample below each one, its equals counted half, twice
    twice_won = (bounds[1:] + bounds[:-1]) - twice_below  # what each value of the first sample wins
    others = np.diff(bounds) - own
    won = np.einsum("ij,ij->i", own, twice_won) / 2
    won_squares = np.einsum("ij,ij,ij->i", own, twice_won, twice_won) / 4
    lost_squares = np.einsum("ij,ij,ij->i", others, twice_below, twice_below) / 4
    first = _variance(won, won_squares, n) / (n * m**2)
    second = _variance(n * m - won, lost_squares, m) / (m * n**2)
    return _statistic(won / (n * m), np.sqrt(first + second))


def _variance(total: Array, squares: Array, n: int) -> Array:
    """The variance of n values, from their sum and the sum of their squares. These are exact: no spread has exactly
    none."""
    return np.asarray((n * squares - total**2) / (n * (n - 1)))


@lru_cache(maxsize=4)
def _draws(n: int, m: int) -> NDArray[np.uint8]:
    """(draws, n + m + 1) how many of the values before each one are in the first sample, of n < 256; with a fixed
    seed."""
    is_first = np.random.default_rng([n, m]).random((DRAWS, n + m)).argsort(axis=1) < n
    counted = np.zeros((DRAWS, n + m + 1), np.uint8)
    np.cumsum(is_first, axis=1, out=counted[:, 1:])
    return counted


def _share(extreme: NDArray[np.bool_]) -> float:
    """p from permutations: (b + 1) / (B + 1), as the sample itself is one of them."""
    return (int(extreme.sum()) + 1) / (len(extreme) + 1)


@cache
def _tables() -> dict[int, Any]:
    return {int(n): table for n, table in json.loads(_TABLE.read_text()).items()}


def _from_table(n: int, w: float) -> float:
    """P(|W| >= w) without ties, log-linear between the points of the table."""
    table = _tables()[n]
    return float(np.exp(np.interp(w, table["w"], np.log(table["p"]))))


def sign_test(above: int, n: int) -> float:
    """One-sided p of the median being above a constant that `above` of `n` values exceed: exact."""
    return float(sum(math.comb(n, k) for k in range(above, n + 1)) / 2**n)


def failure_bound(failures: int, n: int) -> float:
    """The 95 % upper bound of the rate at which seeds fail (Clopper and Pearson, one-sided)."""
    if failures >= n:
        return 1.0
    return distributions.beta_limit(LEVEL, failures + 1, n - failures)
