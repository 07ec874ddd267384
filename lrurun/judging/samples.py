"""The scores of a rung's runs as one side of comparisons: their mean, their ranks, how they depend on test items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from lrurun.data.metric import Metric
from lrurun.items import ItemResults, TestSet
from lrurun.judging import item_errors, rounding, statistics
from lrurun.judging.item_errors import ItemSpread
from lrurun.judging.rung_runs import Result
from lrurun.judging.statistics import Estimate

if TYPE_CHECKING:
    from lrurun.judging.item_errors import Array

_ACCIDENTAL = 3
"""A score that is further above chance than this many standard errors of the test set is no accident [ours]: of models
that predict at random, about one in 500 scores better."""


class Scoring(Struct, frozen=True, kw_only=True):
    """How the runs of a task are scored."""

    metric: Metric
    chance: float | None = None
    """The score in means of a run without one; None: not known."""
    items: int | None = None
    """Test sequences."""
    steps: int | None = None
    """The number of labels or sequences that the metric counts; None: the sequences."""
    is_counted: bool = True
    """Whether scores change by whole steps, where the metric has one."""

    @property
    def step(self) -> float | None:
        """The smallest difference between two scores; None for a continuous score."""
        return None if self.items is None or not self.is_counted else self.metric.step(self.steps or self.items)

    @property
    def best_chance(self) -> float | None:
        """The better one of what the naive predictor of the data scores and what equally likely classes score.

        A model that has learned nothing may also predict another class than the naive predictor does.
        """
        if self.chance is None or self.metric.chance is None:
            return self.chance
        return (max if self.metric.higher_is_better else min)(self.chance, self.metric.chance)

    @property
    def learns_from(self) -> float | None:
        """The score beyond which a seed learns; None where chance is not known or the metric declares no distance.

        It is further from chance than `near_chance`, and than what a test set of this size can show by accident.
        """
        chance, near = self.best_chance, self.metric.near_chance
        if chance is None or near is None:
            return None
        variance = None if self.items is None else self.metric.variance(chance, self.items)
        distance = max(near, _ACCIDENTAL * math.sqrt(variance or 0.0))
        return chance + distance if self.metric.higher_is_better else chance - distance

    def is_better(self, score: float, other: float) -> bool:
        return score > other if self.metric.higher_is_better else score < other


class Sample(Struct, frozen=True, kw_only=True):
    """One side of a comparison: the scores of a rung's seeds, the mean of a paper, or a constant."""

    counted: Estimate | None
    """The mean over all runs; None below two, or where the score of a run without one is not known."""
    finished: Estimate | None
    """The mean over the runs with a score alone."""
    mean: float | None = None
    """The mean over all runs, also where there is one."""
    n: int = 0
    """Runs, those without a score among them; 0 for a constant."""
    diverged: int = 0
    unscored: int = 0
    """Runs that finished without a usable score."""
    ranked: tuple[float, ...] = ()
    """The scores of all runs as ranks need them: higher is better, whole steps of the metric, -inf for a run without
    one. Empty for a constant and for the mean of a paper."""
    learning: int | None = None
    """Seeds that learn: that score better than `Scoring.learns_from`; None where that is not known."""
    missing: str = ""
    """Why there is no test."""
    items: ItemSpread | None = None
    """How these scores depend on the choice of test items, in the order of `ranked`; None where that is not known."""

    @property
    def without_score(self) -> int:
        """Runs that diverged, or finished without a usable score."""
        return self.diverged + self.unscored

    @property
    def is_constant(self) -> bool:
        """Whether it is chance, or no run has a score, so that test items do not matter."""
        return self.n == self.without_score

    def of_test_set(self, *, finished: bool = False) -> bool:
        """Whether all runs, or the finished ones, show no spread, so that the error is the one of the test set."""
        mean = self.finished if finished else self.counted
        return mean is not None and self.n > 0 and math.isinf(mean.df)


def sample(results: Sequence[Result], scoring: Scoring) -> Sample:
    """The runs of a rung as one side of comparisons."""
    scores = [result.score for result in results if result.score is not None]
    without, unscored = len(results) - len(scores), sum(result.unscored for result in results)
    unknown = without > 0 and scoring.chance is None
    counted = scores + [scoring.chance] * without if scoring.chance is not None else scores
    bound = scoring.learns_from
    return Sample(
        counted=None if unknown else estimate(counted, scoring),
        finished=estimate(scores, scoring),
        mean=None if unknown else statistics.mean(counted),
        n=len(results),
        diverged=without - unscored,
        unscored=unscored,
        ranked=(*(_rankable(score, scoring) for score in scores), *[-math.inf] * without),
        learning=None if bound is None else sum(scoring.is_better(score, bound) for score in scores),
        missing=f"runs {'have no usable score' if unscored else 'diverged'}, and chance is not known on this task"
        if unknown
        else "n = 1: no test",
        items=item_spread([result for result in results if result.score is not None], without, scoring),
    )


def item_spread(results: Sequence[Result], without: int, scoring: Scoring) -> ItemSpread | None:
    """How the scores of runs, and of `without` more runs that have no score, depend on the choice of test items.

    This comes from their per-item results, else from the number of items where the metric gives a variance, as a
    share does; None where nothing is known.
    """
    known = [result.items for result in results if result.items is not None]
    if not results:
        return None
    if len(known) == len(results):
        influences = np.stack([_influences(items, scoring.metric) for items in known])
        if np.isfinite(influences).all():
            shares = _item_shares(known[0].test_set)
            group_shares = _by_group(shares, known[0].test_set)
            step, concentration = _least_errors(known, shares, group_shares, scoring)
            return item_errors.of_results(
                influences, group_shares, step=step, concentration=concentration, without=without
            )
    if scoring.items is None:
        return None
    bounds = [scoring.metric.variance(result.score, scoring.items) for result in results if result.score is not None]
    if None in bounds:
        return None
    return ItemSpread(errors=np.array([*(math.sqrt(bound or 0.0) for bound in bounds), *[0.0] * without]))


def _least_errors(
    results: Sequence[ItemResults], shares: Array, group_shares: Array, scoring: Scoring
) -> tuple[float, float]:
    """`step` and `concentration` of an `ItemSpread`: of items if each is right or wrong in all runs, else of the labels
    that the metric counts. `shares` (items,), `group_shares` (groups,)."""
    if scoring.items is None or scoring.metric.step(scoring.items) is None:
        return 0.0, 0.0
    weighted = shares > 0
    weights = results[0].test_set.weights
    values = np.stack([items.sums[weighted] for items in results]) / (1.0 if weights is None else weights[weighted])
    if np.isin(values, (0.0, 1.0)).all():
        return float(np.square(shares).sum()), float(np.square(group_shares).sum())
    return scoring.step or 0.0, scoring.step or 0.0


def _item_shares(test_set: TestSet) -> Array:
    """(items,) the share of each item in the weight of all."""
    weights = np.ones(test_set.count) if test_set.weights is None else test_set.weights
    return np.asarray(weights / weights.sum(), np.float64)


def _influences(results: ItemResults, metric: Metric) -> Array:
    """(groups,) the contribution of each item, or group of them, to the score of a run, less its share of the whole."""
    test_set = results.test_set
    weights = np.ones(test_set.count) if test_set.weights is None else test_set.weights
    with np.errstate(over="ignore", invalid="ignore"):
        mean = results.mean
        left = _by_group(results.sums - mean * weights, test_set)
        left[np.abs(left) <= item_errors.ROUNDING * _by_group(np.abs(results.sums), test_set)] = 0.0
        return np.asarray(left / weights.sum() * _slope(metric, mean), np.float64)


def _by_group(numbers: Array, test_set: TestSet) -> Array:
    """(groups,) the sums of `numbers` (items,) over the items of each group."""
    if test_set.groups is None:
        return numbers
    return np.asarray(np.bincount(np.unique(test_set.groups, return_inverse=True)[1], numbers), np.float64)


def _slope(metric: Metric, mean: float) -> float:
    """The change of a score, higher being better, with the mean over items of which it is made."""
    step = 1e-6 * (abs(mean) or 1.0)
    low, high = (metric.oriented(metric.of_mean(mean + side)) for side in (-step, step))
    return (high - low) / (2 * step)


def _rankable(score: float, scoring: Scoring) -> float:
    """The score as ranks need it: higher is better, in whole steps of the metric."""
    return scoring.metric.oriented(rounding.to_steps(score, scoring.step))


def estimate(scores: Sequence[float], scoring: Scoring) -> Estimate | None:
    """The mean of scores; None below two.

    Seeds that differ by less than one step of the metric show no spread, and a variance of 0 would make any difference
    significant. The test set is finite, so that the mean has at least the variance of a score on that many items:
    sequences, as labels of one may depend on each other. The seeds share the items: the variance is not divided by
    their number, and more seeds do not reduce it.
    """
    observed = statistics.estimate(scores)
    if observed is None or scoring.items is None or scoring.step is None:
        return observed
    variance = scoring.metric.variance(observed.mean, scoring.items)
    # Scores are recorded in float32: one step less a rounding error is still one step.
    if variance is None or max(scores) - min(scores) >= scoring.step * (1 - 1e-4):
        return observed
    return Estimate(mean=observed.mean, variance=variance, df=math.inf, n=observed.n)


def constant(scoring: Scoring) -> Sample:
    """Chance as one side of comparisons: what a model scores at best that has learned nothing."""
    chance = scoring.best_chance
    if chance is None:
        return Sample(counted=None, finished=None, missing="chance is not known on this task")
    mean = Estimate(mean=chance)
    return Sample(counted=mean, finished=mean, mean=chance)
