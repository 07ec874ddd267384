"""The statistics of a report: means, Welch's t test, and what a given number of seeds can show.

A result is None where the data do not determine it: a standard error below two values, a test below two values a side
or without spread.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from lrurun import floats
from lrurun.judging import distributions

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 1000
"""A difference that needs more seeds a side than this is called too small to detect."""


class Estimate(Struct, frozen=True, kw_only=True):
    """A mean, and how precisely it is known."""

    mean: float
    variance: float = 0.0
    """The variance of the mean, over the square of `unit`."""
    df: float = math.inf
    """Degrees of freedom of the variance; infinite where it is known."""
    n: int = 0
    """Values that the mean is over; 0 for a constant."""
    unit: float = 1.0
    """See `floats.unit_of`: of scores whose squares overflow or vanish, the variance is known in this unit."""

    @property
    def stderr(self) -> float:
        return math.sqrt(self.variance) * self.unit

    def with_seeds(self, n: int, of_items: float = 0.0, share: float = 1.0) -> Estimate:
        """The same mean with the precision of `n` values; a variance that is known does not change with them.

        `of_items` is the standard error of a part of one value, of whose variance this `share` remains.
        """
        if math.isinf(self.df):
            return self
        of_one = self.variance * self.n
        of_one -= min((of_items / self.unit) ** 2, of_one) * (1 - share)
        return Estimate(mean=self.mean, variance=of_one / n, df=n - 1, n=n, unit=self.unit)


class MeanDifference(Struct, frozen=True, kw_only=True):
    """The difference of two means, with what Welch's test needs."""

    estimate: float
    """The difference, in `unit`s."""
    stderr: float | None
    """Its standard error, in `unit`s; None below two values a side, or where neither side has spread."""
    df: float | None
    """Welch and Satterthwaite's degrees of freedom."""
    unit: float = 1.0
    """The unit of the larger spread. The difference itself may overflow; tests are made in this unit."""

    def widened(self, error: float, df: float) -> MeanDifference:
        """The same difference with a further, independent standard error, of so many degrees of freedom."""
        own = (self.stderr or 0.0) * self.unit
        if own == error == 0:
            return self
        unit = floats.unit_of([own, error])
        stderr = math.hypot(own / unit, error / unit)
        share = (own / unit / stderr) ** 2
        parts = share**2 / (self.df or math.inf) + (1 - share) ** 2 / df
        estimate = self.estimate * (self.unit / unit)
        return MeanDifference(estimate=estimate, stderr=stderr, df=1 / parts if parts else math.inf, unit=unit)

    def p_value(self) -> float | None:
        """Two-sided p of Welch's t test."""
        p = self.p_above(0.0) if self.estimate >= 0 else self.p_below(0.0)
        return None if p is None else min(1.0, 2 * p)

    def p_above(self, bound: float) -> float | None:
        """One-sided p of the true difference being above `bound`: the null hypothesis is that it is at most `bound`."""
        return self._tail(bound / self.unit - self.estimate)

    def p_below(self, bound: float) -> float | None:
        """One-sided p of the true difference being below `bound`."""
        return self._tail(self.estimate - bound / self.unit)

    def _tail(self, distance: float) -> float | None:
        if self.stderr is None or self.df is None:
            return None
        return distributions.t_above(-distance / self.stderr, self.df)

    def detectable(self) -> float | None:
        """The smallest true difference that these seeds show with 80 % power at a two-sided level of 5 %.

        delta = ncp * stderr, where ncp solves P(T' > t) = 0.8 for the noncentral T' with the same degrees of freedom, t
        being the 97.5 % point of the central one. The other tail holds less than one part in a million.
        """
        if self.stderr is None or self.df is None:
            return None
        return _noncentrality(self.df, ALPHA / 2) * self.stderr * self.unit

    def interval(self, level: float) -> tuple[float, float] | None:
        """The two-sided interval."""
        if self.stderr is None or self.df is None:
            return None
        half = distributions.t_limit((1 - level) / 2, self.df) * self.stderr
        return (self.estimate - half) * self.unit, (self.estimate + half) * self.unit


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None for no values. Equal values have exactly that mean."""
    return statistics.mean(values) if values else None


def median(values: Sequence[float]) -> float | None:
    """The middle value; None for no values."""
    return statistics.median(values) if values else None


def stderr(values: Sequence[float]) -> float | None:
    """The standard error of the mean, over n - 1; None below two values. Equal values have exactly none."""
    known = estimate(values)
    return None if known is None else known.stderr


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of independent values; None below two."""
    if len(values) < 2:
        return None
    n, unit = len(values), floats.unit_of(values)
    spread = statistics.variance([value / unit for value in values])
    return Estimate(mean=statistics.mean(values), variance=spread / n, df=n - 1, n=n, unit=unit)


def printed(mean: float, stderr: float, n: int) -> Estimate:
    """A mean over `n` values of which the standard error is known."""
    unit = floats.unit_of([stderr])
    return Estimate(mean=mean, variance=(stderr / unit) ** 2, df=n - 1, n=n, unit=unit)


def difference(mine: float, other: float) -> float:
    """mine - other, infinite if it overflows; 0 where the two differ by what rounding does."""
    exact = mine - other
    return 0.0 if abs(exact) <= _ROUNDING * max(abs(mine), abs(other)) else exact


_ROUNDING = 4 * sys.float_info.epsilon
"""Means of scores that differ relatively by no more are equal: each score and each mean is rounded."""


def between(mine: Estimate, other: Estimate) -> MeanDifference:
    """mine - other, unequal variances."""
    unit = max((side.unit for side in (mine, other) if side.variance), default=1.0)
    estimate = mine.mean / unit - other.mean / unit
    first, second = (side.variance and side.variance * (side.unit / unit) ** 2 for side in (mine, other))
    total = first + second
    if total == 0:
        return MeanDifference(estimate=estimate, stderr=None, df=None, unit=unit)
    share = first / total
    parts = share**2 / mine.df + (1 - share) ** 2 / other.df
    return MeanDifference(estimate=estimate, stderr=math.sqrt(total), df=1 / parts if parts else math.inf, unit=unit)


def _noncentrality(df: float, level: float) -> float:
    """The true difference, in standard errors, that a one-sided test at `level` detects with the required power."""
    return distributions.noncentrality(1 - POWER, distributions.t_limit(level, df), df)


class ItemError(NamedTuple):
    """What the choice of test items contributes to the error of a difference of means."""

    stderr: float
    df: float
    """Its degrees of freedom; infinite where it is a bound."""
    test_items: int
    """The number of test items. The square of the error is inversely proportional to it."""
    of_runs: tuple[float, float] = (0.0, 0.0)
    """Standard errors: the part of the spread of the runs of each side that is from test items too, as runs of one rung
    are right on different ones."""


def to_detect(
    difference: float, mine: Estimate, other: Estimate, level: float, items: ItemError | None, *, least: int
) -> tuple[int, int | None] | None:
    """The seeds a side, at least `least`, and the test items with which Welch's two-sided test at `level` detects a
    true difference with 80 % power.

    Today's items where some number of seeds is enough with them. Else the seeds whose part of the variance is at most
    half of what may remain with any number of items, and the items for the rest. The spreads are taken as observed.
    None above `MOST_SEEDS`; no items without `items`, whose error `mine` and `other` do not have.
    """

    def enough(n: int, count: float, part: float = 1.0) -> bool:
        share = 1.0 if items is None else items.test_items / count
        of_runs = (0.0, 0.0) if items is None else items.of_runs
        sides = (side.with_seeds(n, each, share) for side, each in zip((mine, other), of_runs, strict=True))
        expected = between(*sides)
        if items is not None:
            expected = expected.widened(items.stderr * math.sqrt(share), items.df / share if share else math.inf)
        if not expected.stderr or expected.df is None:
            return True
        return _noncentrality(expected.df, level / 2) * expected.stderr * expected.unit <= difference * math.sqrt(part)

    today = math.inf if items is None else items.test_items
    if enough(MOST_SEEDS, today):
        return _least(lambda n: enough(n, today), least, MOST_SEEDS), None if items is None else items.test_items
    if items is None or not enough(MOST_SEEDS, math.inf, 0.5):
        return None
    seeds = _least(lambda n: enough(n, math.inf, 0.5), least, MOST_SEEDS)
    many = 2 * items.test_items
    while not enough(seeds, many):
        many *= 2
    return seeds, _least(lambda count: enough(seeds, count), many // 2, many)


def _least(is_enough: Callable[[int], bool], least: int, most: int) -> int:
    """The smallest number from `least` to `most` that is enough, as `most` is."""
    few, many = least - 1, most
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if is_enough(middle) else (middle, many)
    return many
