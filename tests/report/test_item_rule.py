"""The error from test items against other ways to find it, and that verdicts hold for other test items."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import sklearn.datasets
from numpy.typing import NDArray

from benchmarks import error_rates, item_error_rates
from benchmarks.item_error_rates import Case
from lrurun import items
from lrurun.data.metric import Accuracy, Metric, Perplexity
from lrurun.judging import item_errors, samples, verdicts
from lrurun.judging.samples import Result, Scoring
from lrurun.judging.verdicts import Comparison, Pair, Question
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.results import fill

Floats = NDArray[np.float64]
ACCURACY = Accuracy(chance=0.1)
LOSS = Metric(name="loss", unit="nats", higher_is_better=False)
EXPONENTIAL = Perplexity()


def answers(random: np.random.Generator, runs: int, hard: Floats, *, taste: float = 0.6, skill: float = 0.0) -> Floats:
    """(runs, items) whether each run of a rung is right on each item."""
    logits = hard + skill + random.normal(0, taste, len(hard)) + random.normal(0, 0.05, (runs, 1))
    chances = 1 / (1 + np.exp(-logits - random.normal(0, 0.3, (runs, len(hard)))))
    return (random.random(chances.shape) < chances).astype(np.float64)


def sample(values: Floats, metric: Metric = ACCURACY, **about: Any) -> samples.Sample:
    test_set = items.TestSet(count=values.shape[1], **about)
    weights = np.ones(test_set.count) if test_set.weights is None else test_set.weights
    results = [items.ItemResults(test_set=test_set, sums=row * weights) for row in values]
    scored = [Result(k, metric.of_mean(one.mean), False, one) for k, one in enumerate(results)]
    return samples.sample(scored, Scoring(metric=metric, chance=metric.chance, items=test_set.count))


def judged(mine: Floats, other: Floats, kind: Any = "better", margin: float = 0.0) -> Comparison:
    question = Question(kind=kind, rung="b", other="a", margin=margin)
    [found] = verdicts.judge([Pair(question=question, mine=sample(mine), other=sample(other), metric=ACCURACY)])
    return found


# Against other computations


def means(values: Floats, weights: Floats, keep: NDArray[np.bool_]) -> Floats:
    return np.asarray(values[:, keep] @ weights[keep] / weights[keep].sum())


def smoothed_median(mine: Floats, other: Floats, scale: float) -> float:
    apart = mine[:, None] - other[None, :]

    def share(point: float) -> float:
        return float(scipy.stats.logistic.cdf(apart, point, scale).mean()) - 0.5

    return float(scipy.optimize.brentq(share, apart.min() - 9 * scale, apart.max() + 9 * scale, xtol=1e-13))


FORMS: dict[str, tuple[Metric, bool, bool]] = {
    "right or wrong": (ACCURACY, False, False),
    "a loss with weights": (LOSS, True, False),
    "groups": (ACCURACY, False, True),
    "weights and groups": (LOSS, True, True),
    "perplexity": (EXPONENTIAL, True, False),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_the_shift_is_that_of_the_jackknife(form: str, seed: int) -> None:
    """Each item, or group, is left out in turn; the part that falls with the number of runs is subtracted."""
    metric, weighted, in_groups = FORMS[form]
    random = np.random.default_rng(seed)
    count = 240
    hard = random.normal(1, 1.5, count)
    first, second = (answers(random, runs, hard, skill=skill) for runs, skill in ((12, 0.3), (15, 0.0)))
    if metric is not ACCURACY:
        first, second = (
            np.exp(random.normal(-0.3 * hard, 0.4, count)) + 1.5 * (1 - values) for values in (first, second)
        )
    first[:2] = random.gamma(2, 1, (2, count)) + 4 if metric is not ACCURACY else random.random((2, count)) < 0.1
    weights = random.uniform(0.5, 2, count) if weighted else np.ones(count)
    groups = np.sort(random.integers(0, 60, count)) if in_groups else np.arange(count)
    about = {"weights": weights if weighted else None, "groups": groups if in_groups else None}
    sides = [sample(values, metric, **about) for values in (first, second)]
    spreads = [side.items for side in sides]
    assert spreads[0] is not None
    assert spreads[1] is not None
    found = item_errors.median_shift(sides[0].ranked, sides[1].ranked, *spreads)  # type: ignore[arg-type]

    def scores(values: Floats, keep: NDArray[np.bool_]) -> Floats:
        return np.array([metric.oriented(metric.of_mean(mean)) for mean in means(values, weights, keep)])

    left_out = [groups != group for group in np.unique(groups)]
    by_group = [np.array([scores(values, keep) for keep in left_out]) for values in (first, second)]
    times = len(left_out) - 1

    def jackknife(numbers: Floats) -> float:
        return float(times**2 / (times + 1) * np.var(numbers, ddof=1))

    every = np.ones(count, bool)
    pairs = [jackknife(a - b) for a in by_group[0].T for b in by_group[1].T]
    scale = math.sqrt(3 * float(np.median(pairs))) / math.pi
    now = [scores(values, every) for values in (first, second)]
    shift = smoothed_median(now[0], now[1], scale)
    together = jackknife(np.array([smoothed_median(a, b, scale) for a, b in zip(*by_group, strict=True)]))
    weight = scipy.stats.logistic.pdf(now[0][:, None] - now[1][None, :], shift, scale)
    weight /= weight.sum()
    alone = 0.0
    for side, of_runs in zip(by_group, (weight.sum(1), weight.sum(0)), strict=True):
        left = side - (side @ of_runs)[:, None]
        share = float((of_runs**2).sum())
        alone += share / (1 - share) * sum(w * jackknife(run) for w, run in zip(of_runs, left.T, strict=True))
    assert found.value == pytest.approx(shift, abs=0.02 * found.error)
    assert found.error == pytest.approx(math.sqrt(together - alone), rel=0.05)
    assert alone > 0.02 * together


def test_the_error_of_means_is_that_of_two_way_clustering_by_direct_sums() -> None:
    """Cameron, Gelbach and Miller: clusters of items less single cells; clusters of runs are the error of seeds."""
    random = np.random.default_rng(4)
    sides = [answers(random, runs, random.normal(1, 1.5, 60)) for runs in (5, 7)]
    spreads = [sample(values).items for values in sides]
    found = item_errors.mean_shift(0.1, *spreads)  # type: ignore[arg-type]
    count = sides[0].shape[1]
    total = 0.0
    for item in range(count):
        moved = [values[:, item].mean() - values.mean() for values in sides]
        total += (moved[0] - moved[1]) ** 2 / (count * (count - 1))
    for values in sides:
        runs = len(values)
        for run in range(runs):
            for item in range(count):
                alone = values[run, item] - values[run].mean() - values[:, item].mean() + values.mean()
                total -= alone**2 / (runs * (runs - 1) * count * (count - 1))
    assert found.error == pytest.approx(math.sqrt(total), rel=1e-9)


@pytest.mark.parametrize("case", [Case(90, 1.0), Case(300, 0.6, all_fail=0.2), Case(90, 0.6, odd_fail=0.3)])
def test_the_simulated_rule_is_that_of_the_package(case: Case) -> None:
    random = np.random.default_rng(3)
    for _ in range(6):
        right = item_error_rates.answers(case, random, 2, 12)
        p, direction = item_error_rates.p_values(right, [(1, 0)])
        found = judged(*(right[rung].astype(np.float64) for rung in (1, 0)))
        # of 2,000 and of 40,000 permutations
        error = 0.002 + 4 * math.sqrt(p[0, 0] / error_rates.DRAWS)
        assert found.p_on_these_items == pytest.approx(p[0, 0], abs=error)
        assert found.p_unadjusted == pytest.approx(p[1, 0], abs=2 * error)
        assert direction[0] == 0 or (found.difference or 0) * direction[0] >= 0 or (found.p_unadjusted or 0) > 0.2


# Other test items


def wrong_ones(sides: Callable[[int], tuple[Floats, Floats]], count: int) -> tuple[int, int]:
    """How many of so many choices of items are decided, by the rule and on these items."""
    found = [judged(*sides(number)) for number in range(count)]
    on_these = sum(one.verdict != "undecided" or bool(one.verdict_on_these_items) for one in found)
    return sum(one.verdict != "undecided" for one in found), on_these


CHOICES = 400
MOST = CHOICES * (0.05 + 2 * math.sqrt(0.05 * 0.95 / CHOICES))


@pytest.mark.slow
def test_of_equal_rungs_few_choices_of_90_items_decide() -> None:
    """A population of items of which each has one with the tastes of both rungs exchanged: they are equal in it."""
    random = np.random.default_rng(1)
    hard, tastes = random.normal(1, 1.5, 5000), random.normal(0, 1, (2, 5000))
    population = np.concatenate([hard + tastes, hard + tastes[::-1]], axis=1)

    def choose(number: int) -> tuple[Floats, Floats]:
        random = np.random.default_rng(number)
        chosen = population[:, random.choice(population.shape[1], 90, replace=False)]
        first, second = (answers(random, 12, logits, taste=0) for logits in chosen)
        return first, second

    by_rule, on_these = wrong_ones(choose, CHOICES)
    assert by_rule <= MOST
    assert on_these > 0.15 * CHOICES


@pytest.mark.slow
def test_of_equal_classifiers_of_digits_few_choices_of_90_items_decide() -> None:
    """One sees the upper half of a digit best, the other one the lower half. They are equal in the population of all
    digits with and without their parts exchanged: the rungs then use the classifiers in turn."""
    digits = sklearn.datasets.load_digits()
    random = np.random.default_rng(0)
    order = random.permutation(len(digits.target))
    train, pool = order[:500], order[500:]
    blurred = [np.where(np.arange(64) < 32, 1.0, 0.35), np.where(np.arange(64) < 32, 0.35, 1.0)]

    def predictions(part: Floats, seed: int) -> NDArray[np.bool_]:
        """Nearest means of a random half of the training digits."""
        half = np.random.default_rng(seed).choice(train, 250, replace=False)
        centers = np.stack([digits.data[half][digits.target[half] == label].mean(0) for label in range(10)]) * part
        distances = ((digits.data[pool, None] * part - centers) ** 2).sum(-1)
        return np.asarray(distances.argmin(1) == digits.target[pool])

    right = np.array([[predictions(part, 12 * k + seed) for seed in range(12)] for k, part in enumerate(blurred)])

    def choose(number: int) -> tuple[Floats, Floats]:
        random = np.random.default_rng(number)
        chosen, exchanged = random.choice(len(pool), 90, replace=False), random.random(90) < 0.5
        first, second = right[0][:, chosen], right[1][:, chosen]
        return (
            np.where(exchanged, second, first).astype(np.float64),
            np.where(exchanged, first, second).astype(np.float64),
        )

    by_rule, on_these = wrong_ones(choose, CHOICES)
    assert by_rule <= MOST
    assert on_these > 0.1 * CHOICES


def test_a_shift_of_one_logit_on_600_items_is_decided() -> None:
    for number in range(20):
        random = np.random.default_rng(number)
        hard = random.normal(1, 1.5, 600)
        found = judged(answers(random, 12, hard, skill=1.0), answers(random, 12, hard))
        assert (found.verdict, found.items_known) == ("supported", "results")


@pytest.mark.parametrize(("count", "skill"), [(90, 0.0), (300, 0.5), (600, 1.0), (2000, 0.25)])
def test_the_share_of_items_in_the_variance_is_that_of_the_variances_of_means(count: int, skill: float) -> None:
    """Also where one rung is better with all seeds, so that the p of ranks is the least one. No seed fails."""
    shares: list[float] = []
    expected: list[float] = []
    for number in range(12):
        random = np.random.default_rng(number)
        hard = random.normal(1, 1.5, count)
        sides = [answers(random, 12, hard, skill=more) for more in (skill, 0.0)]
        found = judged(sides[0], sides[1])
        assert found.item_share is not None
        of_seeds = sum(float(side.mean(1).var(ddof=1)) / 12 for side in sides)
        left = [side - side.mean(0) - side.mean(1, keepdims=True) + side.mean() for side in sides]
        alone = sum(float((each**2).sum()) / 11 / (count - 1) / count / 12 for each in left)
        of_items = float((sides[0].mean(0) - sides[1].mean(0)).var(ddof=1)) / count - alone
        shares.append(found.item_share)
        expected.append(of_items / (of_items + of_seeds))
        if found.verdict == "supported":
            assert found.improvement_low is not None
            assert found.improvement_low > 0.5
    assert np.median(shares) == pytest.approx(np.median(expected), abs=0.06)
    assert np.abs(np.array(shares) - expected).max() < 0.3


def test_equal_seeds_leave_all_of_the_variance_to_items() -> None:
    """Of 600 items one rung has 100 right that the other has wrong, with every seed."""
    right = np.tile(np.arange(600) < 300, (12, 1)).astype(np.float64)
    better = np.tile(np.arange(600) < 400, (12, 1)).astype(np.float64)
    found = judged(better, right)
    assert (found.verdict, found.item_share, found.improvement) == ("supported", 1.0, 1.0)
    assert found.improvement_low is not None
    assert found.improvement_low > 0.5


@pytest.mark.parametrize(("count", "margin"), [(90, 0.05), (300, 0.02)])
def test_a_margin_is_not_shown_by_equal_answers_on_few_items(count: int, margin: float) -> None:
    """Of items of which a share of `margin` differs, none is seen with a chance of (1 - margin)^count."""
    values = answers(np.random.default_rng(1), 12, np.ones(count))
    side = sample(values)
    assert side.items is not None
    p = item_errors.median_shift(side.ranked, side.ranked, side.items, side.items, -margin).p_above()
    assert 0.5 < p / (1 - margin) ** count < 5
    assert judged(values[:, :20], values[:, :20], "no-worse", margin).verdict == "undecided"


def of_labels(counts: Floats, per_item: int) -> samples.Sample:
    """Runs that are right on so many of the labels of each item."""
    count = counts.shape[1]
    test_set = items.TestSet(count=count, weights=np.full(count, float(per_item)))
    results = [items.ItemResults(test_set=test_set, sums=row) for row in counts]
    scoring = Scoring(metric=ACCURACY, chance=0.1, items=count, steps=count * per_item)
    return samples.sample([Result(k, one.mean, False, one) for k, one in enumerate(results)], scoring)


@pytest.mark.parametrize("per_item", [1000, 1])
def test_the_least_error_is_one_item_only_where_all_its_labels_are_right_or_wrong_together(per_item: int) -> None:
    """20 sequences, on each of which one rung has 3 points more; or of which one has a right label more."""
    random = np.random.default_rng(2)
    if per_item == 1:
        right = np.repeat(np.arange(20.0)[None] < 10, 12, axis=0).astype(np.float64)
        better = np.repeat(np.arange(20.0)[None] < 11, 12, axis=0).astype(np.float64)
    else:
        right = np.round(random.uniform(300, 800, 20) + random.normal(0, 20, (12, 20)))
        better = np.round(right + 30 + random.normal(0, 15, 20) + random.normal(0, 20, (12, 20)))
    sides = [of_labels(counts, per_item) for counts in (better, right)]
    question = Question(kind="better", rung="b", other="a")
    [found] = verdicts.judge([Pair(question=question, mine=sides[0], other=sides[1], metric=ACCURACY)])
    assert found.item_error is not None
    if per_item == 1:
        assert (found.verdict, found.item_error) == ("undecided", pytest.approx(1 / 20))
        return
    paired = scipy.stats.sem((better.mean(0) - right.mean(0)) / per_item)
    assert found.item_error == pytest.approx(paired, rel=0.3)
    assert found.item_error < 0.2 / 20
    assert found.verdict == "supported"
    assert (found.p_unadjusted or 1) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("case", [Case(90, 1.0), Case(300, 0.6, odd_fail=0.2)], ids=["tastes", "failures"])
def test_few_ladders_of_eight_rungs_have_a_wrong_verdict(case: Case) -> None:
    """The whole table is in docs/statistics.md."""
    ladders, random = 150, np.random.default_rng(0)
    every = np.ones((ladders, len(error_rates.PAIRS)), bool)
    found = [
        item_error_rates.p_values(item_error_rates.answers(case, random, error_rates.RUNGS, 12), error_rates.PAIRS)[0]
        for _ in range(ladders)
    ]
    p = np.stack(found, axis=1)
    by_seeds, rule, bound = (float(error_rates.step_down(one, every, 0.05).any(1).mean()) for one in p)
    assert max(rule, bound) < 0.06 + 3 * math.sqrt(0.06 * 0.94 / ladders)
    assert by_seeds > max(2 * rule, 0.08)


# Runs that are not alike

LADDER = ("--ladder", "nonlinearity", "--profile", "smoke")


def fill_ladder(machine: Machine, levels: dict[str, float], seeds: range, count: int | None) -> None:
    """Runs that are right on so many of `count` items; None: nothing is known of single ones."""
    right = {
        rung: (np.arange(count or 300) < level * (count or 300) + np.arange(len(seeds))[:, None]).astype(np.float64)
        for rung, level in levels.items()
    }
    fill(
        machine.ledger,
        "sDigits",
        {rung: values.mean(1).tolist() for rung, values in right.items()},
        ladder="nonlinearity",
        profile="smoke",
        first=seeds.start,
        with_items=count is not None,
        right=right,
    )


def test_runs_that_were_scored_on_unequal_test_items_are_not_compared(machine: Machine) -> None:
    fill_ladder(machine, {"relu-rnn": 0.5, "tanh-rnn": 0.6}, range(3), 300)
    fill_ladder(machine, {"relu-rnn": 0.5}, range(3, 4), 200)
    with Ledger.open(machine.ledger) as ledger:
        [instance] = ledger.ladders()
        runs = ledger.runs(instance.key)
        [other] = [run.id for run in runs if run.seed == 3]
    said = " ".join(machine.refused("report", "sDigits", *LADDER, code=1).split())
    others = ", ".join(sorted(run.id for run in runs if run.id != other))
    unequal = "these runs have different test sets, and are never compared: 300 and 200 items"
    assert f"{unequal}: {others}; {other} " in said
    assert "lrurun mark RUN --exclude WHY" in said
    machine.run("mark", other, "--exclude", "other test items")
    report = machine.json("report", "sDigits", *LADDER)
    assert [row["n"] for row in report["rows"]] == [3, 3, 0]
    assert report["rows"][1]["comparison"]["items_known"] == "results"


def test_where_some_runs_of_a_rung_have_no_results_on_items_their_number_counts(
    machine: Machine, tmp_path: Path
) -> None:
    """As of a rung that was trained before they were recorded, and later went on with more seeds."""
    levels = {"relu-rnn": 0.5, "tanh-rnn": 0.6}
    fill_ladder(machine, levels, range(6), None)
    fill_ladder(machine, levels, range(6, 12), 300)
    never = Machine(tmp_path / "never")
    fill_ladder(never, levels, range(6), None)
    fill_ladder(never, levels, range(6, 12), None)
    found, expected = (one.json("report", "sDigits", *LADDER)["rows"][1]["comparison"] for one in (machine, never))
    assert (found["items_known"], found["provisional"]) == ("number", False)
    assert found["p_adjusted"] > found["p_on_these_items"]
    assert found == expected
