"""Another implementation of the rule of verdicts, by scipy and by counting, to which tests compare that of the program.

Its p of the rank test are from draws of its own, so that each comes with the error that both draws leave. The errors
from test items are variances of sums that are formed for each item.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from numpy.typing import NDArray

ALPHA = 0.05
LEAST_SEEDS = 12
DRAWS = 5_000
THEIR_DRAWS = 20_000
SIGMAS = 4
MANY = 50
"""From so many items on which two sides differ, their number limits no p."""

Floats = NDArray[np.float64]
Scores = Sequence[float | None]
"""Those of a rung's seeds; None for a diverged run."""


class Task(NamedTuple):
    """How scores are to be read. `items` is None for a continuous metric."""

    chance: float
    items: int | None
    sign: int = 1
    """-1 where lower is better."""
    results: Mapping[Any, Floats] = {}
    """Rung -> (runs, items) the share of each item that each run has right; for those of which this is known."""
    labels: int = 1
    """Those of each item, which are right or wrong; an item then has their mean."""
    seeds_alone: bool = False
    """Whether verdicts are about these test items."""


class Asked(NamedTuple):
    """A question; `other` is None for chance."""

    kind: str
    rung: str
    other: str | None = None
    margin: float = 0.0


class P(NamedTuple):
    """A p-value, and how far from it another implementation may be; None without a test."""

    value: float | None
    error: float = 0.0


class Answer(NamedTuple):
    """The verdict, and the ends between which the adjusted p of its hypothesis is; None without a test."""

    verdict: str
    unadjusted: P
    low: float | None
    high: float | None
    sure: bool
    """Whether errors of draws leave the verdict as it is."""

    def agrees(self, p: float | None) -> bool:
        if p is None or self.low is None or self.high is None:
            return p is self.low is None
        return self.low - 1e-7 <= p <= self.high + 1e-7


# Ranks


def places(first: Floats, second: Floats, n: int, m: int) -> tuple[Floats, Floats]:
    """For each distinct value, the share of each sample below it, equal ones counting half; counts by value."""
    return (np.cumsum(first, -1) - first / 2) / n, (np.cumsum(second, -1) - second / 2) / m


def brunner_munzel(first: Floats, second: Floats) -> tuple[Floats, Floats, Floats]:
    """The chance of improvement of the first sample, its standard error, and the degrees of freedom of that.

    Rows hold how often each distinct value, in ascending order, is in a sample.
    """
    n, m = first.sum(-1).max(), second.sum(-1).max()
    below_first, below_second = places(first, second, n, m)
    chance = (first * below_second).sum(-1) / n
    a = ((first * below_second**2).sum(-1) - n * chance**2).clip(0) / (n - 1) / n
    b = ((second * below_first**2).sum(-1) - m * (1 - chance) ** 2).clip(0) / (m - 1) / m
    with np.errstate(invalid="ignore", divide="ignore"):
        return chance, np.sqrt(a + b), (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))


def statistic(first: Floats, second: Floats) -> Floats:
    """W: infinite for separated samples, 0 for equal ones. Rounded, so that equal ones are equal."""
    chance, error, _ = brunner_munzel(first, second)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.round(np.where(abs(chance - 0.5) < 1e-9, 0.0, (chance - 0.5) / np.where(error < 1e-6, 0, error)), 6)


@cache
def drawn(n: int, m: int, draws: int) -> Floats:
    """Which values are in the first sample, in each draw."""
    random = np.random.default_rng(1000 * n + m)
    return random.permuted(np.tile(np.arange(n + m) < n, (draws, 1)), axis=1).astype(float)


def counted(mine: Sequence[float], other: Sequence[float]) -> tuple[Floats, Floats, Floats]:
    """Counts by distinct value of each sample, and which of them each pooled value has."""
    values, codes = np.unique([*mine, *other], return_inverse=True)
    which = np.eye(len(values))[codes]
    return which[: len(mine)].sum(0), which[len(mine) :].sum(0), which


def permuted(mine: Sequence[float], other: Sequence[float], draws: int = DRAWS) -> tuple[float, float, float]:
    """p of a chance of improvement that is not 1/2, above it, and below it."""
    n, m = len(mine), len(other)
    a, b, which = counted(mine, other)
    w = statistic(a, b)
    chosen = drawn(n, m, draws)
    found = statistic(chosen @ which, (1 - chosen) @ which)

    def share(extreme: NDArray[np.bool_], floor: float) -> float:
        return max(float((extreme.sum() + 1) / (len(found) + 1)), floor)

    least = 2.0 ** -min(n, m)
    return share(abs(found) >= abs(w), 2 * least), share(found >= w, least), share(found <= w, least)


def error_of(p: float, *draws: int) -> float:
    """What these draws may leave between two estimates of p."""
    return SIGMAS * math.sqrt(sum(1 / count for count in draws) * p * (1 - p)) + 2 / min(draws)


# Questions


def ranked(scores: Scores, task: Task, bound: float = 0.0) -> tuple[float, ...]:
    """In whole items, higher is better, less the bound; a diverged run is the last."""
    unit = (task.items or 1) * task.labels

    def rank(score: float) -> float:
        whole = round(score * unit) if task.items else score
        return round(task.sign * whole - bound * unit, 6 if task.items else 10)

    return tuple(-math.inf if score is None else rank(score) for score in scores)


def moments(scores: Scores, task: Task, *, finished: bool = False) -> tuple[float, float, float] | None:
    """Mean, variance of the mean, its degrees of freedom. Diverged runs score chance, unless `finished` alone count."""
    values = np.array([task.chance if one is None else one for one in scores if one is not None or not finished])
    if len(values) < 2:
        return None
    if is_flat(values, task):
        mean = float(values.mean())
        return mean, max(mean * (1 - mean), 1 / (task.items or 1)) / (task.items or 1), math.inf
    variance = float(values.var(ddof=1)) if np.ptp(values) else 0.0  # that of equal values is exact
    return float(values.mean()), variance / len(values), len(values) - 1


def is_flat(values: Any, task: Task) -> bool:
    return task.items is not None and len(values) > 1 and float(np.ptp(values)) < 0.9999 / task.items / task.labels


def welch(mine: Any, other: Any, bound: float, task: Task) -> float | None:
    """p of the difference being above the bound."""
    if mine is None or other is None or mine[1] + other[1] == 0:
        return None
    (m1, v1, f1), (m2, v2, f2) = mine, other
    parts = v1**2 / f1 + v2**2 / f2
    df = (v1 + v2) ** 2 / parts if parts else math.inf
    return float(scipy.stats.t.sf((task.sign * (m1 - m2) - bound) / math.sqrt(v1 + v2), df))


# Test items


class Runs(NamedTuple):
    """The runs of a rung, or chance; where lower is better, scores are negated."""

    scores: Floats
    """-inf for diverged runs."""
    values: Floats | None
    """(runs, items), 0 for diverged ones."""
    variances: Floats
    """(runs,) of the scores, by binomials."""
    labels: int = 1
    """Those of each item."""

    @property
    def answers(self) -> int:
        """How many are right or wrong: items where all labels of each are alike, else labels."""
        assert self.values is not None
        return self.values.shape[1] * (1 if np.isin(self.values, (0.0, 1.0)).all() else self.labels)


def runs_of(scores: Scores, rung: str, task: Task) -> Runs:
    assert task.items is not None
    known = np.array([0.0 if score is None else score for score in scores])
    lost = np.array([score is None for score in scores])
    values = task.results.get(rung)
    variances = np.where(lost, 0, np.maximum(known * (1 - known), 1 / task.items) / task.items)
    ranks = np.where(lost, -np.inf, task.sign * known)
    return Runs(
        ranks, None if values is None else np.where(lost[:, None], 0, values[: len(lost)]), variances, task.labels
    )


def chance(task: Task) -> Runs:
    return Runs(np.array([task.sign * task.chance]), np.zeros((1, task.items or 0)), np.zeros(1))


def of_mean(values: Floats) -> float:
    """The variance of a mean over items."""
    return float(np.var(values, ddof=1)) / len(values)


def alone(side: Runs) -> Floats:
    """The variances of the scores of runs, where the items of the other side are not known."""
    if side.values is None:
        return side.variances
    known = np.array([max(of_mean(row), side.answers**-2.0) for row in side.values])
    return np.where(side.variances > 0, known, 0)


def of_runs_alone(values: Floats, weights: Floats) -> float:
    """The part of the variance from items that falls with the number of runs."""
    together = float((weights**2).sum())
    if together > 1 - 1e-9:
        return 0.0
    left = values - weights @ values
    return together / (1 - together) * sum(w * of_mean(row) for w, row in zip(weights, left, strict=True))


class Moved(NamedTuple):
    """A difference, its variance from the choice of items, its degrees of freedom, the least p of one side."""

    value: float
    variance: float
    df: float
    least: float = 0.0

    def p_above(self) -> float:
        if math.isinf(self.value):
            return max(float(self.value < 0), self.least)
        return max(float(scipy.stats.t.sf(self.value / math.sqrt(self.variance), self.df)), self.least)


def moved(value: float, mine: Runs, other: Runs, first: Floats, second: Floats, bound: float) -> Moved:
    """The difference of the weighted means of the sides, if its value less the bound is this."""
    if mine.values is None or other.values is None:
        ends = [(w * np.sqrt(alone(side))).sum() ** 2 for w, side in ((first, mine), (second, other))]
        return Moved(value, float(sum(ends)), math.inf)
    items = mine.values.shape[1]
    by_item = first @ mine.values - second @ other.values
    variance = of_mean(by_item) - of_runs_alone(mine.values, first) - of_runs_alone(other.values, second)
    size = min(abs(bound), 0.5)
    differences = by_item - by_item.mean() + (value if math.isfinite(value) else 0.0)
    squares = float((differences**2).sum())
    differing = float(np.abs(differences).sum()) ** 2 / squares if squares > 1e-20 else math.inf
    least = 0.5**differing if differing < MANY else 0.0
    answers = max(mine.answers, other.answers)
    return Moved(value, max(variance, answers**-2.0, size * (1 - size) / answers), items - 1, least)


def typical(mine: Runs, other: Runs, bound: float) -> Moved:
    """The median of the differences of two runs less the bound, smoothed by their error from items."""
    with np.errstate(invalid="ignore"):
        apart = mine.scores[:, None] - other.scores[None, :] - bound
    apart = np.where(np.isnan(apart), 0, apart)
    if mine.values is None or other.values is None:
        spread = alone(mine)[:, None] + alone(other)
    else:
        spread = np.array([[of_mean(one - two) for two in other.values] for one in mine.values])
    scale = math.sqrt(3 * float(np.median(spread))) / math.pi
    middle = float(np.median(apart))
    density = np.ones_like(apart)
    if math.isfinite(middle) and np.mean(np.isfinite(apart)) > 0.5:
        value = middle
        if scale > 0:

            def share(point: float) -> float:
                return float(scipy.stats.logistic.cdf(apart, point, scale).mean()) - 0.5

            finite = apart[np.isfinite(apart)]
            if abs(share(middle)) > 1e-12:
                value = scipy.optimize.brentq(share, finite.min() - 99 * scale, finite.max() + 99 * scale, xtol=1e-14)
        distance = np.abs(apart - value)
        density = np.where(distance <= distance.min() + 1e-12, 1.0, 0.0)
        if scale > 0:
            density = np.exp(scipy.stats.logistic.logpdf(distance / scale) - scipy.stats.logistic.logpdf(distance.min() / scale))  # fmt: skip  # noqa: E501
    else:
        value = middle
    density = density / density.sum()
    return moved(value, mine, other, density.sum(1), density.sum(0), bound)


def both(p: P, of_items: float, sides: int, least: float) -> P:
    """p for other seeds and other items; p for other seeds is at least `least`."""

    def combined(value: float) -> float:
        if of_items <= 0:
            return value
        z = scipy.stats.norm.isf([min(1.0, value) / sides, of_items / sides])
        if z.min() <= 0:
            return max(value, of_items)
        return max(value, of_items, sides * float(scipy.stats.norm.sf((z**-2.0).sum() ** -0.5)))

    if p.value is None:
        return p
    ends = [combined(max(p.value + direction * p.error, least)) for direction in (-1, 0, 1)]
    return P(ends[1], max(ends[2] - ends[1], ends[1] - ends[0]) + 1e-6)


def sides_of(asked: Asked, runs: Mapping[str, Any], task: Task, *, finished: bool = False) -> tuple[Runs, Runs] | None:
    """Both sides where test items count; against chance, diverged runs score it."""
    if task.items is None or task.seeds_alone:
        return None
    mine = runs_of(runs[asked.rung], asked.rung, task)
    if asked.other is not None:
        return mine, runs_of(runs[asked.other], asked.other, task)
    lost = np.isinf(mine.scores)
    mine = mine._replace(scores=np.where(lost, task.sign * task.chance, mine.scores))
    if finished:
        values = None if mine.values is None else mine.values[~lost]
        mine = mine._replace(scores=mine.scores[~lost], values=values, variances=mine.variances[~lost])
    return mine, chance(task)


def welch_on_items(
    mine: Any, other: Any, sides: tuple[Runs, Runs], bound: float, task: Task, *, above: bool
) -> float | None:
    """One-sided p of Welch's test with the error from items beside that from seeds: these are (mean, variance, df)."""
    if mine is None or other is None:
        return None
    (m1, v1, f1), (m2, v2, f2) = ((m, 0.0 if math.isinf(df) else v, df) for m, v, df in (mine, other))
    value = task.sign * (m1 - m2) - bound
    found = moved(value, *sides, *(np.full(len(side.scores), 1 / len(side.scores)) for side in sides), bound)
    parts = v1**2 / f1 + v2**2 / f2 + found.variance**2 / found.df
    total = v1 + v2 + found.variance
    p = float(
        scipy.stats.t.sf((value if above else -value) / math.sqrt(total), total**2 / parts if parts else math.inf)
    )
    return max(p, found.least)


# Tests of a question


def tail(asked: Asked, runs: Mapping[str, Any], bound: float, task: Task, *, above: bool, finished: bool = False) -> P:
    """One-sided p of the difference being above the bound, or below it."""
    mine = runs[asked.rung]
    other = None if asked.other is None else runs[asked.other]
    theirs = (task.chance, 0.0, math.inf) if other is None else moments(other, task)
    ours = moments(mine, task, finished=finished)
    seeds = len(mine) - (sum(score is None for score in mine) if asked.kind == "at-chance" else 0)
    sides = sides_of(asked, runs, task, finished=finished)
    if min(seeds, LEAST_SEEDS if other is None else len(other)) < LEAST_SEEDS:
        p = welch(ours, theirs, bound, task)
        p = p if p is None or above else 1 - p
        if sides is None:
            return P(p)
        on_items = welch_on_items(ours, theirs, sides, bound, task, above=above)
        return P(on_items if on_items is None else max(on_items, p or 0.0))
    if other is None:
        known = [task.chance if one is None else one for one in mine if one is not None or not finished]
        beyond = [round(task.sign * (one - task.chance) - bound, 9) for one in known]
        wins = sum(one > 0 if above else one < 0 for one in beyond)
        found = P(scipy.stats.binomtest(wins, len(known), 0.5, "greater").pvalue) if known else P(None)
    else:
        found = drawn_p(ranked(mine, task, bound), ranked(other, task))[1 if above else 2]
    if sides is None or found.value is None:
        return found
    shift = typical(*sides, bound)
    least = 2.0 ** -min(len(sides[0].scores), math.inf if other is None else len(other))
    return both(found, (shift if above else shift._replace(value=-shift.value)).p_above(), 1, least)


@cache
def drawn_p(mine: tuple[float, ...], other: tuple[float, ...]) -> tuple[P, P, P]:
    two_sided, above, below = (P(p, error_of(p, DRAWS, THEIR_DRAWS)) for p in permuted(mine, other))
    return two_sided, above, below


def better(asked: Asked, runs: Mapping[str, Any], task: Task) -> tuple[P, bool]:
    """The two-sided p, and whether it is for the rung."""
    mine, other = runs[asked.rung], runs[asked.other]
    sides = sides_of(asked, runs, task)
    if min(len(mine), len(other)) < LEAST_SEEDS:
        ours, theirs = moments(mine, task), moments(other, task)
        upper = welch(ours, theirs, 0.0, task)
        one_sided = [upper, None if upper is None else 1 - upper]
        if sides is not None:
            on_items = [welch_on_items(ours, theirs, sides, 0.0, task, above=above) for above in (True, False)]
            one_sided = [a if a is None else max(a, b or 0.0) for a, b in zip(on_items, one_sided, strict=True)]
        up = ours is not None and theirs is not None and task.sign * (ours[0] - theirs[0]) > 0
        p = one_sided[0 if up else 1]
        return P(None if p is None else min(1.0, 2 * p)), up
    found, above, below = drawn_p(ranked(mine, task), ranked(other, task))
    up = (above.value or 0) < (below.value or 0)
    if sides is None:
        return found, up
    shift = typical(*sides, 0.0)
    one_sided_p = (shift if up else shift._replace(value=-shift.value)).p_above()
    return both(found, min(1.0, 2 * one_sided_p), 2, 2.0 ** (1 - min(len(mine), len(other)))), up


def tests(asked: Asked, runs: dict[str, Any], task: Task) -> list[tuple[Any, P, str]]:
    """Of each hypothesis: its key, p, and the verdict if it is small."""
    kind, margin = asked.kind, asked.margin
    rungs: Any = (asked.rung, asked.other)
    if kind == "better":
        found, up = better(asked, runs, task)
        return [((kind, frozenset(rungs)), found, "supported" if up else "contradicted")]
    if kind in ("no-worse", "above-chance"):
        bound = margin if kind == "above-chance" else -margin
        supports, contradicts = (tail(asked, runs, bound, task, above=up) for up in (True, False))
    else:
        finished = asked.other is None
        inside = [tail(asked, runs, bound, task, above=bound < 0, finished=finished) for bound in (-margin, margin)]
        outside = [tail(asked, runs, bound, task, above=bound > 0) for bound in (-margin, margin)]
        supports = P(None) if None in (p.value for p in inside) else max(inside, key=lambda p: p.value or 0)
        contradicts = P(None) if None in (p.value for p in outside) else min(outside, key=lambda p: p.value or 0)
        if contradicts.value is not None:
            contradicts = P(min(1.0, 2 * contradicts.value), 2 * contradicts.error)
    pair = frozenset(rungs) if kind == "equal" else rungs
    return [((kind, pair, margin, 1), supports, "supported"), ((kind, pair, margin, -1), contradicts, "contradicted")]


# Verdicts


def holm(p_values: dict[Any, float], others: int = 0) -> dict[Any, float]:
    order = sorted(p_values, key=lambda key: p_values[key])
    total = len(order) + others
    steps = [min(1.0, (total - k) * p_values[key]) for k, key in enumerate(order)]
    return {key: max(steps[: k + 1]) for k, key in enumerate(order)}


def judge(
    asked: Sequence[Asked], runs: dict[str, Any], task: Task, *, share: float = 1.0, count: int | None = None
) -> list[Answer]:
    """The verdicts on these questions together; `count` hypotheses are corrected for, if more than theirs."""
    every = [tests(one, runs, task) for one in asked]
    p = {key: found for some in every for key, found, _ in some}
    others = 0 if count is None else count - len(p)

    def corrected(direction: int) -> dict[Any, float]:
        ends = {key: 1.0 if one.value is None else one.value + direction * one.error for key, one in p.items()}
        return holm({key: min(1.0, max(0.0, end) / share) for key, end in ends.items()}, others)

    low, middle, high = corrected(-1), corrected(0), corrected(1)
    answers = []
    for some in every:
        deciding = next((one for one in some if middle[one[0]] <= ALPHA), None)
        key, found, verdict = deciding or some[0]
        answers.append(
            Answer(
                verdict=verdict if deciding else "undecided",
                unadjusted=found,
                low=None if found.value is None else low[key],
                high=None if found.value is None else high[key],
                sure=all((low[one[0]] <= ALPHA) == (high[one[0]] <= ALPHA) for one in some),
            )
        )
    return answers


def sequential(
    asked: Sequence[Asked], runs: dict[str, Any], task: Task, looks: Sequence[tuple[int, float]]
) -> dict[Asked, tuple[Answer, int]]:
    """The answer to each question, and the seeds of the look that it is from: the one that decides, or the last."""
    remaining = {key for one in asked for key, _, _ in tests(one, runs, task)}
    open_, answers = list(dict.fromkeys(asked)), dict[Asked, tuple[Answer, int]]()
    for seeds, share in looks:
        first = {rung: scores[:seeds] for rung, scores in runs.items()}
        for one, answer in zip(open_, judge(open_, first, task, share=share, count=len(remaining)), strict=True):
            answers[one] = answer, seeds
        for one in open_:
            remaining -= {key for key, _, verdict in tests(one, first, task) if verdict == answers[one][0].verdict}
        open_ = [one for one in open_ if answers[one][0].verdict == "undecided"]
    return answers
