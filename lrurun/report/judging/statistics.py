"""The statistics of a report: means, Welch's t test, Holm's correction, and what a given number of seeds can show.

A result is None where the data do not determine it: a standard error below two values, a test below two values a side
or without spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from msgspec import Struct

from lrurun.report.judging import distributions

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 1000
"""A difference that needs more seeds a side than this is called too small to detect."""


class Estimate(Struct, frozen=True, kw_only=True):
    """A mean, and how precisely it is known."""

    mean: float
    variance: float = 0.0
    """The variance of the mean."""
    df: float = math.inf
    """Degrees of freedom of the variance; infinite where it is known."""
    n: int = 0
    """Values that the mean is over; 0 for a constant."""

    @property
    def stderr(self) -> float:
        return math.sqrt(self.variance)

    def with_seeds(self, n: int) -> Estimate:
        """The same mean with the precision of `n` values; a variance that is known does not change with them."""
        if math.isinf(self.df):
            return self
        return Estimate(mean=self.mean, variance=self.variance * self.n / n, df=n - 1, n=n)


class MeanDifference(Struct, frozen=True, kw_only=True):
    """The difference of two means, with what Welch's test needs."""

    estimate: float
    stderr: float | None
    """The standard error; None below two values a side, or where neither side has spread."""
    df: float | None
    """Welch and Satterthwaite's degrees of freedom."""

    def p_value(self) -> float | None:
        """Two-sided p of Welch's t test."""
        p = self.p_above(0.0) if self.estimate >= 0 else self.p_below(0.0)
        return None if p is None else min(1.0, 2 * p)

    def p_above(self, bound: float) -> float | None:
        """One-sided p of the true difference being above `bound`: the null hypothesis is that it is at most `bound`."""
        return self._tail(bound - self.estimate)

    def p_below(self, bound: float) -> float | None:
        """One-sided p of the true difference being below `bound`."""
        return self._tail(self.estimate - bound)

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
        return _noncentrality(self.df, ALPHA / 2) * self.stderr

    def interval(self, level: float) -> tuple[float, float] | None:
        """The two-sided interval."""
        if self.stderr is None or self.df is None:
            return None
        half = distributions.t_limit((1 - level) / 2, self.df) * self.stderr
        return self.estimate - half, self.estimate + half


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None for no values. Equal values have exactly that mean."""
    return statistics.mean(values) if values else None


def median(values: Sequence[float]) -> float | None:
    """The middle value; None for no values."""
    return statistics.median(values) if values else None


def variance(values: Sequence[float]) -> float | None:
    """The unbiased variance; None below two values. Equal values have exactly none."""
    return statistics.variance(values) if len(values) > 1 else None


def stderr(values: Sequence[float]) -> float | None:
    """The standard error of the mean, over n - 1; None below two values."""
    spread = variance(values)
    return None if spread is None else math.sqrt(spread / len(values))


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of independent values; None below two."""
    spread = variance(values)
    if spread is None:
        return None
    n = len(values)
    return Estimate(mean=statistics.mean(values), variance=spread / n, df=n - 1, n=n)


def between(mine: Estimate, other: Estimate) -> MeanDifference:
    """mine - other, unequal variances."""
    total = mine.variance + other.variance
    if total == 0:
        return MeanDifference(estimate=mine.mean - other.mean, stderr=None, df=None)
    share = mine.variance / total
    parts = share**2 / mine.df + (1 - share) ** 2 / other.df
    return MeanDifference(estimate=mine.mean - other.mean, stderr=math.sqrt(total), df=1 / parts if parts else math.inf)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, in the order given; None stands for no test and is not counted."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    floor = 0.0
    for rank, (p, index) in enumerate(tested):
        floor = max(floor, min(1.0, (len(tested) - rank) * p))
        corrected[index] = floor
    return corrected


def _noncentrality(df: float, level: float) -> float:
    """The true difference, in standard errors, that a one-sided test at `level` detects with the required power."""
    return distributions.noncentrality(1 - POWER, distributions.t_limit(level, df), df)


def seeds_to_detect(difference: float, mine: Estimate, other: Estimate, level: float) -> int | None:
    """The seeds a side with which Welch's two-sided test at `level` detects a true difference with 80 % power.

    The spreads of both sides are taken as observed. None above `MOST_SEEDS`.
    """

    def enough(n: int) -> bool:
        expected = between(mine.with_seeds(n), other.with_seeds(n))
        if expected.stderr is None or expected.df is None:
            return True
        return _noncentrality(expected.df, level / 2) * expected.stderr <= difference

    if not enough(MOST_SEEDS):
        return None
    few, many = 1, MOST_SEEDS
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many
