"""Student's t, the noncentral t and the beta distribution, in plain Python.

Importing scipy.special takes longer than all else that a report does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from statistics import NormalDist

_TINY = sys.float_info.min
_EPSILON = sys.float_info.epsilon
_ITERATIONS = 10_000
"""A continued fraction needs some ten terms, with very unequal parameters some hundred."""


def t_above(t: float, df: float) -> float:
    """P(T > t) of Student's distribution; of the normal distribution for infinite `df`."""
    if math.isinf(df):
        return math.erfc(t / math.sqrt(2)) / 2
    square = t * t
    if math.isinf(square):
        return float(t < 0)
    tail = _beta(df / 2, 0.5, df / (df + square), square / (df + square)) / 2
    return tail if t >= 0 else 1 - tail


@lru_cache(4096)  # comparisons of as many seeds ask again
def t_limit(tail: float, df: float) -> float:
    """The t > 0 with P(T > t) = `tail`, which is below 1/2."""
    normal = -NormalDist().inv_cdf(tail)
    if math.isinf(df):
        return normal
    above = cache(lambda t: t_above(t, df))  # the ends of the bracket are asked for twice
    return _root(lambda t: math.log(tail / above(t)), *_bracket(lambda t: above(t) > tail, normal))


def beta_limit(share: float, a: float, b: float) -> float:
    """The x below which a beta distribution has this share."""
    return _root(lambda x: _beta(a, b, x, 1 - x) - share, 0.0, 1.0)


@lru_cache(4096)
def noncentrality(share: float, t: float, df: float) -> float:
    """The noncentrality > 0 with which the noncentral t distribution has this share below `t` > 0.

    T' = (Z + noncentrality) / S, where S^2 is chi-squared over `df`: P(T' < t) is the mean of
    P(Z < t S - noncentrality), by the trapezoidal rule over log S.
    """
    if math.isinf(df):
        return t - NormalDist().inv_cdf(share)
    step = min(0.15, 0.4 / math.sqrt(2 * df), 0.5 / t)  # no longer than what is integrated changes over
    points = []
    for direction in (-step, step):
        log_s = direction / 2
        while (weight := df * (log_s + (1 - math.exp(2 * log_s)) / 2)) > -40:
            points.append((t * math.exp(log_s), math.exp(weight)))
            log_s += direction
    total = sum(weight for _, weight in points)

    @cache  # `_root` begins at ends that `_bracket` has tried
    def below(shift: float) -> float:
        return sum(weight * math.erfc((shift - ts) / math.sqrt(2)) for ts, weight in points) / (2 * total)

    return _root(lambda shift: share - below(shift), *_bracket(lambda shift: below(shift) > share, t))


def _beta(a: float, b: float, x: float, rest: float) -> float:
    """The share of a beta distribution below `x`, with `rest` = 1 - x: the continued fraction, by Lentz's method."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, rest, x)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    front = math.exp(scale) / a
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _ITERATIONS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        factor = 1.0
        for term in (even, odd):
            d, c = 1 / _not_zero(1 + term * d), _not_zero(1 + term / c)
            factor *= c * d
        value *= factor
        if abs(factor - 1) <= 2 * _EPSILON:
            break
    return front * value


def _not_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY


def _bracket(is_below: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Ends between which a root is, in powers of two of `start`; `is_below`: whether a number is below the root."""
    high = start
    while is_below(high):
        high *= 2
    return (high / 2 if high > start else 0.0), high


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Where the function is 0, by Ridders' method: `low` and `high` are on both sides of it."""
    at_low, at_high = increasing(low), increasing(high)
    root = math.nan
    while True:
        middle = (low + high) / 2
        at_middle = increasing(middle)
        if at_middle == 0 or not low < middle < high:
            return middle
        new = middle - (middle - low) * at_middle / math.sqrt(at_middle * at_middle - at_low * at_high)
        if abs(new - root) <= 4 * _EPSILON * abs(new):
            return new
        root, at_new = new, increasing(new)
        for point, value in ((middle, at_middle), (new, at_new)):
            if low <= point <= high:
                low, at_low, high, at_high = (point, value, high, at_high) if value < 0 else (low, at_low, point, value)
        if at_new == 0:
            return new
