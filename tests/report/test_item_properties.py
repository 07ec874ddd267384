"""What holds for every verdict with per-item results, whatever the scores are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from msgspec import structs
from numpy.typing import NDArray

from lrurun import items
from lrurun.data.metric import Accuracy, Metric
from lrurun.items import ItemResults
from lrurun.judging import samples, verdicts
from lrurun.judging.samples import Result, Scoring
from lrurun.judging.verdicts import Comparison, Pair, Question

Floats = NDArray[np.float64]
KINDS: Sequence[Any] = ("better", "no-worse", "equal", "above-chance", "at-chance")


class Exponential(Metric, frozen=True, kw_only=True):
    """As perplexity: not linear in the mean over items."""

    def of_mean(self, mean: float) -> float:
        return math.exp(min(mean, 700.0))


class Logarithm(Metric, frozen=True, kw_only=True):
    """As an error in decibel."""

    def of_mean(self, mean: float) -> float:
        return 10 * math.log10(max(mean, 1e-20))


ACCURACY = Accuracy(chance=0.1)
LABELS = Accuracy(name="labels", chance=0.1)
"""Of items with several labels each, which are their weights."""
LOSS = Metric(name="loss", unit="nats", higher_is_better=False, chance=2.3, near_chance=0.1)
METRICS: Sequence[Metric] = (
    ACCURACY,
    LOSS,
    Exponential(name="perplexity", unit="", higher_is_better=False, chance=10.0),
    Logarithm(name="error", unit="dB", higher_is_better=False, chance=0.0),
    LABELS,
)


class Side(NamedTuple):
    """The values of the items of each run, and which runs have diverged or have no per-item results."""

    values: Floats
    diverged: NDArray[np.bool_]
    without: NDArray[np.bool_]


class Case(NamedTuple):
    kind: Any
    margin: float
    metric: Metric
    test_set: items.TestSet
    mine: Side
    other: Side
    count_known: bool
    labels: int | None
    """Those of all items, where they have several."""

    @property
    def scoring(self) -> Scoring:
        count = self.test_set.count if self.count_known else None
        return Scoring(metric=self.metric, chance=self.metric.chance, items=count, steps=self.labels)


def side(random: np.random.Generator, metric: Metric, hard: Floats, labels: Any) -> Side:
    """Runs that are right on items at random, by how hard these are, all alike, all right or all wrong."""
    n = int(random.choice([1, 2, 3, 11, 12, 12, 13, 20]))
    form = random.integers(6)
    if isinstance(metric, Accuracy):
        chances = 1 / (1 + np.exp(-hard - random.normal(0, 1, len(hard)) - random.choice([0, 1, 3])))
        values = random.binomial(labels, chances, (n, len(hard))) / labels
        constants: tuple[float, float] = (0.0, 1.0)
    else:
        values = random.gamma(1.0, np.exp(hard + random.normal(0, 0.3, len(hard))), (n, len(hard)))
        constants = (1e-30, 2.0)
    if form == 1:
        values[:] = values[0]
    elif form == 2:
        values[:] = constants[1]
    elif form == 3:
        values[:] = constants[0]
    elif form == 4:
        values[random.random(n) < 0.5] = constants[0] if isinstance(metric, Accuracy) else 5.0
    lost = np.zeros(n, bool) if random.random() < 0.6 else random.random(n) < random.choice([0.2, 0.6, 1])
    without = random.random(n) < 0.1 if random.random() < 0.2 else np.zeros(n, bool)
    return Side(values, lost, without)


def made(seed: int) -> Case:
    random = np.random.default_rng(seed)
    metric = METRICS[int(random.integers(len(METRICS)))]
    count = int(random.choice([1, 2, 3, 5, 30, 90]))
    weights = groups = None
    if metric is LABELS:
        weights = random.integers(1, int(random.choice([2, 5, 1000])), count, endpoint=True).astype(float)
    elif random.random() < 0.4:
        weights = np.exp(random.normal(0, random.choice([0.3, 3]), count))
    if random.random() < 0.3:
        groups = random.integers(0, max(count // int(random.choice([1, 3, 100])), 1), count)
    hard = random.normal(0, 1.5, count)
    kind = random.choice(KINDS)
    labels = np.ones(count, int) if metric is not LABELS or weights is None else weights.astype(int)
    return Case(
        kind=kind,
        margin=0.0 if kind == "better" else float(random.choice([0.005, 0.05, 0.3])),
        metric=metric,
        test_set=items.TestSet(count=count, weights=weights, groups=groups),
        mine=side(random, metric, hard, labels),
        other=side(random, metric, hard, labels),
        count_known=bool(random.random() < 0.9),
        labels=int(labels.sum()) if metric is LABELS else None,
    )


def results(case: Case, one: Side, unit: float = 1.0) -> list[Result]:
    found = []
    for seed, values in enumerate(one.values):
        test_set = case.test_set
        on_items = ItemResults(
            test_set=test_set, sums=values * unit * (1 if test_set.weights is None else test_set.weights)
        )
        score = None if one.diverged[seed] else case.metric.of_mean(on_items.mean)
        found.append(Result(seed, score, False, None if score is None or one.without[seed] else on_items))
    return found


def judged(case: Case, unit: float = 1.0) -> Comparison:
    """The verdict on the comparison alone; any warning of NumPy is an error."""
    scoring = case.scoring
    if unit != 1:
        scoring = structs.replace(scoring, chance=unit * (scoring.chance or 0.0), metric=structs.replace(case.metric, chance=unit * (scoring.chance or 0.0)))  # fmt: skip  # noqa: E501
    against = case.kind.endswith("chance")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine, other = (samples.sample(results(case, one, unit), scoring) for one in (case.mine, case.other))
        question = Question(kind=case.kind, rung="b", other=None if against else "a", margin=case.margin * unit)
        constant = samples.constant(scoring)
        pair = Pair(question=question, mine=mine, other=constant if against else other, metric=scoring.metric)
        [found] = verdicts.judge([pair])
    return found


CASES = strategies.integers(0, 10**9)
SETTINGS = settings(max_examples=150, derandomize=True, deadline=None, database=None)


def close(found: float | None, expected: float | None, rel: float = 1e-6, tiny: float = 1e-9) -> bool:
    return found is expected if None in (found, expected) else found == pytest.approx(expected, rel=rel, abs=tiny)


@SETTINGS
@given(CASES)
def test_every_number_is_one_and_p_is_never_below_that_of_seeds(seed: int) -> None:
    found = judged(made(seed))
    for name, value in structs.asdict(found).items():
        assert not isinstance(value, float) or math.isfinite(value), name
    for p in (found.p_adjusted, found.p_unadjusted, found.p_on_these_items):
        assert p is None or 0 <= p <= 1
    if found.p_adjusted is not None and found.p_on_these_items is not None:
        assert found.p_adjusted >= found.p_on_these_items
    assert found.item_share is None or 0 <= found.item_share <= 1
    if found.improvement is not None:
        assert found.improvement_low is not None
        assert found.improvement_high is not None
        assert 0 <= found.improvement_low <= found.improvement <= found.improvement_high <= 1
    assert bool(found.verdict_on_these_items) <= (found.verdict == "undecided")


MIRRORED = {"supported": "contradicted", "contradicted": "supported", "undecided": "undecided", "": ""}


@SETTINGS
@given(CASES)
def test_exchanging_two_rungs_mirrors_everything(seed: int) -> None:
    case = made(seed)._replace(kind="better", margin=0.0)
    one, two = judged(case), judged(case._replace(mine=case.other, other=case.mine))
    if one.difference != 0:  # else the direction of a p of 1 has no meaning
        assert two.verdict == MIRRORED[one.verdict]
        assert two.verdict_on_these_items == MIRRORED[one.verdict_on_these_items]
    for name in ("p_adjusted", "p_unadjusted", "p_on_these_items", "item_error", "item_share", "detectable"):
        # p of Student's t has an error of 2e-6 at a billion degrees of freedom, which differ in last bits
        assert close(getattr(two, name), getattr(one, name), rel=1e-5), name
    for name, of_one in (("difference", one.difference), ("low", one.high), ("high", one.low)):
        assert close(getattr(two, name), of_one and -of_one), name
    for name, end in (("improvement", "improvement"), ("improvement_low", "improvement_high")):
        value = getattr(one, name)
        assert close(getattr(two, end), None if value is None else 1 - value), name


def same(one: Comparison, two: Comparison, unit: float = 1.0, rel: float = 1e-6) -> None:
    for name in ("verdict", "verdict_on_these_items", "items_known", "reason"):
        assert getattr(two, name) == getattr(one, name), name
    for name in ("p_adjusted", "p_unadjusted", "p_on_these_items", "item_share", "improvement", "improvement_low"):
        assert close(getattr(two, name), getattr(one, name), rel), name
    for name in ("difference", "low", "high", "item_error"):
        value = getattr(two, name)
        assert close(None if value is None else value / unit, getattr(one, name), rel, 1e-12), name


@SETTINGS
@given(CASES, strategies.sampled_from([2.0**-1000, 2.0**-600, 0.5, 2.0**40, 2.0**600, 2.0**1000]))
def test_the_size_of_scores_changes_nothing(seed: int, unit: float) -> None:
    case = made(seed)
    values = [one._replace(values=one.values + 0.01) for one in (case.mine, case.other)]
    case = case._replace(metric=LOSS, mine=values[0], other=values[1])
    same(judged(case), judged(case, unit), unit)


def rearranged(case: Case, order: Any, test_set: items.TestSet) -> Case:
    def with_items(one: Side) -> Side:
        return one._replace(values=one.values[:, order])

    return case._replace(test_set=test_set, mine=with_items(case.mine), other=with_items(case.other))


def grouped(case: Case) -> Floats:
    return np.arange(case.test_set.count) if case.test_set.groups is None else case.test_set.groups  # type: ignore[return-value]


@SETTINGS
@given(CASES)
def test_the_order_of_items_and_the_size_of_weights_change_nothing(seed: int) -> None:
    case = made(seed)
    order = np.random.default_rng(seed).permutation(case.test_set.count)
    weights = case.test_set.weights
    test_set = items.TestSet(
        count=len(order),
        weights=None if weights is None else weights[order] * 64,
        groups=1000 - 7 * grouped(case)[order].astype(np.int64),
    )
    same(judged(case), judged(rearranged(case, order, test_set)))


@SETTINGS
@given(CASES)
def test_items_that_are_there_twice_tell_no_more_where_they_are_one_group(seed: int) -> None:
    """With the number of sequences as it was, which the step of the score and the error of chance come from."""
    case = made(seed)
    order = np.repeat(np.arange(case.test_set.count), 2)
    weights = case.test_set.weights
    test_set = items.TestSet(
        count=len(order),
        weights=None if weights is None else weights[order],
        groups=grouped(case)[order].astype(np.int64),
    )
    twice = rearranged(case, order, test_set)

    def judge(one: Case) -> Comparison:
        return judged(one._replace(count_known=False))

    same(judge(case), judge(twice))
    without_groups = judge(rearranged(case, order, items.TestSet(count=len(order), weights=test_set.weights)))
    error = judge(case).item_error
    if error and case.test_set.count >= 30 and case.test_set.groups is None and without_groups.item_error:
        assert without_groups.item_error < error
