"""The statistics of a report: means, Welch's t, Holm, and what a handful of seeds can show.

Everything is None where the data cannot say: a standard error below two values, a test below two values a side or
without spread. scipy.special is imported when a test is due, because it costs a quarter of a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 100
"""Beyond this many seeds a side a difference is called too small to decide."""


class Difference(Struct, frozen=True, kw_only=True):
    """The difference of two means, with what Welch's test needs to know."""

    estimate: float
    stderr: float | None
    """None below two values a side, or where neither side has spread."""
    df: float | None
    """Welch and Satterthwaite's degrees of freedom."""

    def p_value(self) -> float | None:
        """Two-sided p of Welch's t test."""
        if self.stderr is None or self.df is None:
            return None
        from scipy.special import stdtr

        return float(2 * stdtr(self.df, -abs(self.estimate / self.stderr)))

    def interval(self, level: float) -> tuple[float, float] | None:
        """The two-sided interval; each end of the 90 % interval is a one-sided 95 % bound."""
        if self.stderr is None or self.df is None:
            return None
        from scipy.special import stdtrit

        half = float(stdtrit(self.df, 0.5 + level / 2)) * self.stderr
        return self.estimate - half, self.estimate + half


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None of nothing."""
    if not values:
        return None
    # Shifted by the first value, so that equal values have exactly that mean and exactly no spread.
    return values[0] + math.fsum(value - values[0] for value in values) / len(values)


def median(values: Sequence[float]) -> float | None:
    """The middle value; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def variance(values: Sequence[float]) -> float | None:
    """The unbiased variance; None below two values."""
    center = mean(values)
    if center is None or len(values) < 2:
        return None
    return math.fsum((value - center) ** 2 for value in values) / (len(values) - 1)


def stderr(values: Sequence[float]) -> float | None:
    """The standard error of the mean, over n - 1; None below two values."""
    spread = variance(values)
    return None if spread is None else math.sqrt(spread / len(values))


def difference(values: Sequence[float], than: Sequence[float]) -> Difference | None:
    """mean(values) - mean(than), unequal variances; None where a side is empty."""
    mine, other = mean(values), mean(than)
    if mine is None or other is None:
        return None
    mine_spread, other_spread = variance(values), variance(than)
    if mine_spread is None or other_spread is None or mine_spread + other_spread == 0:
        return Difference(estimate=mine - other, stderr=None, df=None)
    mine_part, other_part = mine_spread / len(values), other_spread / len(than)
    total = mine_part + other_part
    share = mine_part / total
    df = 1 / (share**2 / (len(values) - 1) + (1 - share) ** 2 / (len(than) - 1))
    return Difference(estimate=mine - other, stderr=math.sqrt(total), df=df)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, in the order given; None is no test and counts for none."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    floor = 0.0
    for rank, (p, index) in enumerate(tested):
        floor = max(floor, min(1.0, (len(tested) - rank) * p))
        corrected[index] = floor
    return corrected


def pooled_spread(samples: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation within samples: sqrt(sum (n_i - 1) s_i^2 / sum (n_i - 1)); None without spread."""
    known = [(len(values) - 1, spread) for values in samples if (spread := variance(values)) is not None]
    freedom = sum(weight for weight, _ in known)
    if not freedom:
        return None
    pooled = math.sqrt(math.fsum(weight * spread for weight, spread in known) / freedom)
    return pooled or None


def _noncentrality(df: float, quantile: float) -> float:
    """How many standard errors a true difference must measure for t to pass `quantile` with the wanted power."""
    from scipy.special import nctdtrinc, stdtrit

    return float(nctdtrinc(df, 1 - POWER, float(stdtrit(df, quantile))))


def detectable(spread: float, n: int) -> float:
    """The smallest true difference that n seeds a side show with 80 % power at a two-sided 5 %.

    delta = ncp * spread * sqrt(2 / n), where ncp solves P(T' > t) = 0.8 for the noncentral T' with 2n - 2 degrees of
    freedom and noncentrality ncp, t being the 97.5 % point of the central one. The other tail is left out: with this
    power it holds less than one part in a million.
    """
    return _noncentrality(2 * n - 2, 1 - ALPHA / 2) * spread * math.sqrt(2 / n)


def seeds_to_decide(distance: float, spread: float) -> int | None:
    """How many seeds a side bring a one-sided 5 % test of a true `distance` to 80 % power; None above `MOST_SEEDS`."""
    for n in range(2, MOST_SEEDS + 1):
        if _noncentrality(2 * n - 2, 1 - ALPHA) * spread * math.sqrt(2 / n) <= distance:
            return n
    return None
