"""How far a difference would move with another choice of test items, and the p that takes this into account.

All runs are scored on the same items, so that their ranks say nothing about others. A difference is here the **shift**:
the median of the differences between a run of one side and a run of the other, by which a side must be shifted for a
chance of improvement of 1/2. Its variance from the choice of items comes from the per-item results, that from
the choice of seeds from the p of the rank test.

Both are combined as z values: 1 / z^2 = 1 / z_seeds^2 + 1 / z_items^2, where z is the shift over its error. Where items
do not matter, p is the p of the ranks, and it is never smaller.

Sources: Brunner and Munzel (2000) for seeds; Hodges and Lehmann (1963) for the shift; Cameron, Gelbach and Miller
(2011) for errors that are clustered in two ways, here by runs and by items; MacKinnon and White (1985) for items of
unequal weight; Owen and Eckles (2012) on crossed effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct, structs

from lrurun import floats
from lrurun.judging import distributions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_LOGISTIC = math.sqrt(3) / math.pi
"""The scale of a logistic distribution of variance 1."""
ROUNDING = 1e-12
"""Numbers whose difference is a smaller part of them than this are equal."""
_MANY = 50
"""The number of items that differ from which on they are not few: 2^-50 is no bound that matters."""


class ItemSpread(Struct, frozen=True, kw_only=True):
    """How the scores of a rung's runs depend on the choice of test items; higher scores are better.

    A run without a usable score does not depend on it.
    """

    errors: Array
    """(runs,) the standard error of the score of each run from the choice of items."""
    influences: Array | None = None
    """(runs, groups) the contribution of each item, or group of items, to the score of each run, less its share of the
    score; None where the per-item results are not known, so that the errors are bounds."""
    shares: Array | None = None
    """(groups,) the share of each of them in the weight of all."""
    step: float = 0.0
    """The least error: the change of a score by one item where each is right or wrong, by one label where an item has
    several; 0 where scores are continuous."""
    concentration: float = 0.0
    """The sum of the squared shares of what is right or wrong as a whole: groups of items, or labels; 0 for none."""

    def first(self, runs: int) -> ItemSpread:
        """The spread of the first runs alone."""
        influences = None if self.influences is None else self.influences[:runs]
        return structs.replace(self, errors=self.errors[:runs], influences=influences)


def of_results(
    influences: Array, shares: Array, *, step: float = 0.0, concentration: float = 0.0, without: int = 0
) -> ItemSpread:
    """The spread of runs with per-item results, and of `without` more that have no score."""
    unit = floats.unit_of([float(np.abs(influences).max(initial=0.0))])
    errors = unit * np.sqrt(np.square(_unbiased(influences / unit, shares)).sum(1))
    errors = np.maximum(errors, step)  # also of runs that are right on all items
    return ItemSpread(
        errors=np.concatenate([errors, np.zeros(without)]),
        influences=np.concatenate([influences, np.zeros((without, len(shares)))]),
        shares=shares,
        step=step,
        concentration=concentration,
    )


def of_constant(beside: ItemSpread, runs: int = 1) -> ItemSpread:
    """The spread of a constant, or of runs of which none has a score, beside other runs: there is none."""
    influences = None if beside.influences is None else np.zeros((runs, beside.influences.shape[1]))
    return structs.replace(beside, errors=np.zeros(runs), influences=influences)


class Shift(NamedTuple):
    """A difference of two sides, above 0 where the first one is better, and its error from the choice of items."""

    value: float
    error: float
    df: float
    """Degrees of freedom of the error; infinite where it is a bound."""
    differing: float
    """The effective number of items on which the two sides differ, in sum by the value."""
    of_seeds: float | None = None
    """Its error from the choice of seeds, where it is a smoothed median."""

    @property
    def least_p(self) -> float:
        """The least one-sided p: 2^-k if the sides differ on k items, which may all have gone one way by chance."""
        return 2.0**-self.differing if self.differing < _MANY else 0.0

    @property
    def opposite(self) -> Shift:
        """The shift of the second side."""
        return self._replace(value=-self.value)

    def p_above(self) -> float:
        """One-sided p of the shift being above 0 for other items, with these seeds."""
        if self.error > 0 and math.isfinite(self.value):
            tail = distributions.t_above(self.value / self.error, self.df)
        else:
            tail = 0.5 if self.value == 0 else float(self.value < 0)
        return max(tail, self.least_p)

    def p_not_zero(self) -> float:
        """Two-sided p of the shift being another one than 0."""
        return min(1.0, 2 * self._replace(value=abs(self.value)).p_above())


def combined(p_seeds: float, p_items: float, *, two_sided: bool) -> float:
    """p for other seeds and other items, from that for other seeds and that for other items; at least the larger."""
    sides = 2 if two_sided else 1
    z_seeds, z_items = (z_value(p / sides) for p in (p_seeds, p_items))
    if min(z_seeds, z_items) <= 0 or math.isinf(z_items):
        return max(p_seeds, p_items)
    z = 1 / math.hypot(1 / z_seeds, 1 / z_items)
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
    both = _Both(mine, other)
    with np.errstate(invalid="ignore", over="ignore"):
        first, second = (np.asarray(side, np.float64) for side in (scores, other_scores))
        distances = (first[:, None] - second[None, :] - bound) / both.unit
    distances[np.isnan(distances)] = 0.0  # two runs without a score
    width = _LOGISTIC * both.error_of_two
    value, of_seeds = _center(distances, width), None
    if math.isfinite(value) and width > 0:
        # the density of a logistic distribution, scaled to be 1 at the nearest difference
        away = np.abs(distances - value) / width
        weights = np.exp(away.min() - away) / (1 + np.exp(-away)) ** 2
        above = np.asarray((1 + np.tanh((distances - value) / (2 * width))) / 2, np.float64)
        of_seeds = _error_of_seeds(above, float((weights * np.exp(-away.min())).mean()) / width)
    elif math.isfinite(value):
        nearest = np.abs(distances - value)
        weights = (nearest <= nearest.min()).astype(np.float64)
    else:
        weights = np.ones(distances.shape)
    weights /= weights.sum()
    shift = both.shift(value, weights.sum(1), weights.sum(0), bound)
    return shift._replace(of_seeds=None if of_seeds is None else of_seeds * both.unit)


def _error_of_seeds(above: Array, density: float) -> float | None:
    """The standard error of a smoothed median from the choice of seeds; None where it is not known.

    Args:
        above: (runs, other runs) how far each difference is above the median, from 0 to 1.
        density: the density of the smoothed differences at the median.
    """
    if min(above.shape) < 2 or density == 0:
        return None
    variance = sum(float(np.var(above.mean(axis), ddof=1)) / above.shape[1 - axis] for axis in (0, 1))
    return math.sqrt(variance) / density


def mean_shift(difference: float, mine: ItemSpread, other: ItemSpread, bound: float = 0.0) -> Shift:
    """A difference of means over all runs, less `bound`, with its error from the choice of items."""
    both = _Both(mine, other)
    first, second = (np.full(len(side.errors), 1 / len(side.errors)) for side in (mine, other))
    return both.shift((difference - bound) / both.unit, first, second, bound)


def _center(distances: Array, width: float) -> float:
    """The median of numbers, each smoothed by a logistic distribution of this scale."""
    above, below = int((distances == math.inf).sum()), int((distances == -math.inf).sum())
    if 2 * max(above, below) >= distances.size:
        return 0.0 if above == below else math.inf if above > below else -math.inf
    median = float(np.median(distances))

    def above_less_below(point: float) -> float:
        return float(np.tanh((distances - point) / (2 * width)).sum())

    if width == 0 or (math.isfinite(median) and abs(above_less_below(median)) < _PRECISION):
        return median  # also where it is between two groups of runs, and every point there has as many on both sides
    finite = distances[np.isfinite(distances)]
    reach = 2 * width * math.log(2 * distances.size)
    low, high = float(finite.min()) - reach, float(finite.max()) + reach
    while high - low > _PRECISION * width and low < (middle := low / 2 + high / 2) < high:
        low, high = (middle, high) if above_less_below(middle) > 0 else (low, middle)
    return low / 2 + high / 2


_PRECISION = 1e-9
"""The precision of the shift, in widths of the smoothing, and of the balance on its sides, in runs."""


class _Both:
    """Two sides, and the covariances of the scores of their runs from the choice of items."""

    def __init__(self, mine: ItemSpread, other: ItemSpread) -> None:
        self._sides = mine, other
        self.unit = floats.unit_of(float(side.errors.max(initial=0.0)) for side in self._sides)
        """All that follows is in this unit, so that squares neither overflow nor vanish."""
        self._influences: Array | None = None
        """(runs of both sides, groups); None where the per-item results are not known."""
        if mine.influences is not None and other.influences is not None and mine.shares is not None:
            self._shares = mine.shares
            self._influences = np.concatenate([mine.influences, other.influences]) / self.unit
            corrected = _unbiased(self._influences, self._shares)
            self._covariances = corrected @ corrected.T

    @property
    def error_of_two(self) -> float:
        """The error of the difference of two typical runs, one of each side."""
        first, second = (np.square(side.errors / self.unit) for side in self._sides)
        if self._influences is None:
            spread = first[:, None] + second[None, :]
        else:
            own, n = np.diag(self._covariances), len(first)
            spread = own[:n, None] + own[None, n:] - 2 * self._covariances[:n, n:]
        return math.sqrt(max(float(np.median(spread)), 0.0))

    def shift(self, value: float, first: Array, second: Array, bound: float) -> Shift:
        """A difference, less `bound`, that depends on the runs with the weights `first` (runs,) and `second` (other
        runs,), which add up to 1 each."""
        if self._influences is None:
            # the runs of a side share the items, and may be right on the same ones
            ends = (float(w @ side.errors) / self.unit for w, side in zip((first, second), self._sides, strict=True))
            return Shift(value * self.unit, math.hypot(*ends) * self.unit, math.inf, math.inf)
        n, pairs = len(first), self._covariances
        both = np.concatenate([first, -second])
        of_cells = _of_cells(first, pairs[:n, :n]) + _of_cells(second, pairs[n:, n:])
        variance = float(both @ pairs @ both) - of_cells
        if variance <= ROUNDING * float(both**2 @ np.diag(pairs)):
            variance = 0.0
        variance = max(variance, self._least_variance(bound))
        items = 1 / float(np.square(self._shares).sum())
        each = both @ self._influences + (self._shares * value if math.isfinite(value) else 0.0)
        largest = float(np.abs(each).max())
        differing = (
            float(np.abs(each / largest).sum()) ** 2 / float(np.square(each / largest).sum()) if largest else math.inf
        )
        return Shift(value * self.unit, math.sqrt(variance) * self.unit, max(items - 1, 1.0), differing)

    def _least_variance(self, bound: float) -> float:
        """The variance that one item makes where items are right or wrong, or one label of an item; of a difference as
        large as `bound`, the variance where so many of them differ."""
        step, concentration = (min(getattr(side, name) for side in self._sides) for name in ("step", "concentration"))
        if step == 0:
            return 0.0
        size = min(abs(bound), 0.5)
        return float(max(step**2, size * (1 - size) * concentration) / self.unit**2)


def _unbiased(influences: Array, shares: Array) -> Array:
    """Influences of which the squares add up to the variance: each item has moved the mean towards itself."""
    return influences / np.sqrt(np.where(shares < 1, 1 - shares, 1.0))


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
