"""How far a difference would move with another choice of test items, and the p that takes this into account.

All runs are scored on the same items, so that their ranks say nothing about others. A difference is here the **shift**:
the median of the differences between a run of one side and a run of the other, by which a side must be shifted for a
chance of improvement of 1/2. Its variance from the choice of items comes from the results on single items, that from
the choice of seeds from the p of the rank test.

Both are combined as z values: 1 / z^2 = 1 / z_seeds^2 + 1 / z_items^2, where z is the shift over its error. Where items
do not matter, p is that of the ranks, and it is never smaller.

Sources: Brunner and Munzel (2000) for seeds; Hodges and Lehmann (1963) for the shift; Cameron, Gelbach and Miller
(2011) for errors that are clustered in two ways, here by runs and by items; Owen and Eckles (2012) on crossed effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun.report.judging import distributions

Array = NDArray[np.float64]

_ITERATIONS = 50
"""Halvings of an interval that holds the shift."""
_LOGISTIC = math.sqrt(3) / math.pi
"""The scale of a logistic distribution of variance 1."""
_MANY = 50
"""So many items that differ are not few: 2^-50 is no bound that matters."""


class ItemSpread(Struct, frozen=True, kw_only=True):
    """How the scores of a rung's runs depend on the choice of test items; higher scores are better.

    A run without a usable score does not depend on it.
    """

    variances: Array
    """(runs,) the variance of the score of each run from the choice of items."""
    influences: Array | None = None
    """(runs, groups) the contribution of each item, or group of items, to the score of each run, less its mean over
    them; None where the results of single items are not known, so that the variances are bounds."""
    least: float = 0.0
    """The least variance of a difference: that of one item, where the metric counts them."""

    def first(self, runs: int) -> ItemSpread:
        """That of the first runs alone."""
        influences = None if self.influences is None else self.influences[:runs]
        return ItemSpread(variances=self.variances[:runs], influences=influences, least=self.least)


def constant_beside(spread: ItemSpread) -> ItemSpread:
    """The spread of a constant that is compared with runs: it has none."""
    influences = None if spread.influences is None else np.zeros((1, spread.influences.shape[1]))
    return ItemSpread(variances=np.zeros(1), influences=influences)


class Shift(NamedTuple):
    """A difference of two sides, above 0 where the first one is better, and its error from the choice of items."""

    value: float
    variance: float
    df: float
    """Degrees of freedom of the variance; infinite where it is a bound."""
    differing: float
    """The effective number of items on which the two sides differ."""
    density: float = 0.0
    """The density of the differences of two runs at the shift, where it is a median."""

    @property
    def least_p(self) -> float:
        """The least one-sided p: 2^-k if the sides differ on k items, which may all have gone one way by chance."""
        return 2.0**-self.differing if self.differing < _MANY else 0.0

    def p_above(self, *, two_sided: bool = False) -> float:
        """p of the shift being above 0 for other items, with these seeds; of it being no 0 where it is two-sided."""
        value = abs(self.value) if two_sided else self.value
        sides = 2 if two_sided else 1
        if self.variance > 0 and math.isfinite(value):
            tail = distributions.t_above(value / math.sqrt(self.variance), self.df)
        else:
            tail = 0.5 if value == 0 else float(value < 0)
        return min(1.0, sides * max(tail, self.least_p))


def combined(p_seeds: float, p_items: float, *, two_sided: bool) -> float:
    """p for other seeds and other items, from that for other seeds and that for other items; at least the larger."""
    sides = 2 if two_sided else 1
    z_values = [z_value(p / sides) for p in (p_seeds, p_items)]
    if min(z_values) <= 0:
        return max(p_seeds, p_items)
    if math.isinf(z_values[1]):
        return p_seeds
    z = 1 / math.hypot(*(1 / z for z in z_values))
    return max(p_seeds, p_items, sides * NormalDist().cdf(-z))


def z_value(tail: float) -> float:
    """The normal deviate with this upper tail; infinite for 0."""
    return -NormalDist().inv_cdf(tail) if 0 < tail < 1 else math.inf if tail <= 0 else -math.inf


def median_shift(
    scores: Sequence[float], other_scores: Sequence[float], mine: ItemSpread, other: ItemSpread, bound: float = 0.0
) -> Shift:
    """The median difference of a run of one side and a run of the other, less `bound`.

    The median is smoothed as far as the choice of items moves a difference of two runs: runs near it count, runs that
    failed far away do not. Scores are as ranks need them: higher is better, -inf without one.
    """
    first, second = np.asarray(scores, np.float64), np.asarray(other_scores, np.float64)
    with np.errstate(invalid="ignore"):
        distances = first[:, None] - second[None, :] - bound
    distances[np.isnan(distances)] = 0.0  # two runs without a score
    pairs = _covariance(mine, other)
    if pairs is None:
        spread = mine.variances[:, None] + other.variances[None, :]
    else:
        n = len(first)
        own = np.diag(pairs)
        spread = own[:n, None] + own[None, n:] - 2 * pairs[:n, n:]
    width, density = math.sqrt(max(float(spread.mean()), 0.0)) * _LOGISTIC, 0.0
    value = _center(distances, width)
    if not math.isfinite(value) or width == 0:
        nearest = np.abs(distances - value) if math.isfinite(value) else np.zeros(distances.shape)
        weights = (nearest <= nearest.min()).astype(np.float64)
    else:
        away = (
            np.abs(distances - value) / width
        )  # the density of a logistic distribution, scaled to be 1 at the nearest
        weights = np.exp(away.min() - away) / (1 + np.exp(-away)) ** 2
        density = float((weights * np.exp(-away.min())).mean()) / width
    weights /= weights.sum()
    return _shift(value, weights.sum(1), weights.sum(0), mine, other, pairs, bound)._replace(density=density)


def mean_shift(difference: float, mine: ItemSpread, other: ItemSpread) -> Shift:
    """A difference of means over all runs, with its error from the choice of items."""
    first, second = (np.full(len(side.variances), 1 / len(side.variances)) for side in (mine, other))
    return _shift(difference, first, second, mine, other, _covariance(mine, other), 0.0)


def _center(distances: Array, width: float) -> float:
    """The median of numbers, each smoothed by a logistic distribution of this scale."""
    if width == 0:
        return float(np.median(distances))
    finite = distances[np.isfinite(distances)]
    above, below = (distances == math.inf).sum(), (distances == -math.inf).sum()
    if 2 * max(above, below) >= distances.size:
        return 0.0 if above == below else math.inf if above > below else -math.inf
    low, high = float(finite.min()), float(finite.max())
    reach = 2 * width * math.log(2 * distances.size)
    low, high = low - reach, high + reach
    for _ in range(_ITERATIONS):
        middle = (low + high) / 2
        if np.tanh((distances - middle) / (2 * width)).sum() > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _covariance(mine: ItemSpread, other: ItemSpread) -> Array | None:
    """The covariances of the scores of all runs of both sides from the choice of items; None where they are not
    known."""
    if mine.influences is None or other.influences is None:
        return None
    both = np.concatenate([mine.influences, other.influences])
    groups = both.shape[1]
    return np.asarray(both @ both.T * (groups / max(groups - 1, 1)), np.float64)


def _shift(
    value: float, first: Array, second: Array, mine: ItemSpread, other: ItemSpread, pairs: Array | None, bound: float
) -> Shift:
    """A difference that depends on the runs with these weights, of which those of a side add up to 1."""
    if pairs is None:
        # the runs of a side share the items, and may be right on the same ones
        variance = sum(float(w @ np.sqrt(side.variances)) ** 2 for w, side in ((first, mine), (second, other)))
        return Shift(value, variance, math.inf, math.inf)
    assert mine.influences is not None
    assert other.influences is not None
    n, groups = len(first), mine.influences.shape[1]
    both = np.concatenate([first, -second])
    of_items = float(both @ pairs @ both)
    of_cells = _of_cells(first, pairs[:n, :n]) + _of_cells(second, pairs[n:, n:])
    moves = first @ mine.influences - second @ other.influences
    each = moves + (value + bound) / groups if math.isfinite(value) else moves
    squares = float((each**2).sum())
    differing = float(np.abs(each).sum()) ** 2 / squares if squares > 0 else math.inf
    least = max(mine.least, other.least)
    return Shift(value, max(of_items - of_cells, least), max(groups - 1, 1), differing)


def _of_cells(weights: Array, pairs: Array) -> float:
    """The part of the variance from items that a rung's runs do not share: the rank test has it already.

    Runs of one rung may be right on different items, which makes their scores differ. This part falls with the number
    of runs; it is estimated from what is left of each run's results without their mean over the runs.
    """
    concentration = float((weights**2).sum())
    if concentration > 1 - 1e-9:
        return 0.0
    left = float(weights @ np.diag(pairs) - weights @ pairs @ weights)
    return concentration / (1 - concentration) * max(left, 0.0)
