"""Another implementation of the rule of verdicts, by scipy and by counting, to which tests compare that of the program.

Its p of the rank test are from draws of its own, so that each comes with the error that both draws leave.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

ALPHA = 0.05
LEAST_SEEDS = 12
DRAWS = 5_000
THEIR_DRAWS = 20_000
SIGMAS = 4

Floats = NDArray[np.float64]
Scores = Sequence[float | None]
"""Those of a rung's seeds; None for a diverged run."""


class Task(NamedTuple):
    """How scores are to be read. `items` is None for a continuous metric."""

    chance: float
    items: int | None
    sign: int = 1
    """-1 where lower is better."""


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
        return self.low - 1e-9 <= p <= self.high + 1e-9


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
    unit = task.items or 1

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
    return task.items is not None and len(values) > 1 and float(np.ptp(values)) < 0.9999 / task.items


def welch(mine: Any, other: Any, bound: float, task: Task) -> float | None:
    """p of the difference being above the bound."""
    if mine is None or other is None or mine[1] + other[1] == 0:
        return None
    (m1, v1, f1), (m2, v2, f2) = mine, other
    parts = v1**2 / f1 + v2**2 / f2
    df = (v1 + v2) ** 2 / parts if parts else math.inf
    return float(scipy.stats.t.sf((task.sign * (m1 - m2) - bound) / math.sqrt(v1 + v2), df))


def tail(
    mine: Scores,
    other: Scores | None,
    bound: float,
    task: Task,
    *,
    above: bool,
    finished: bool = False,
    at_chance: bool = False,
) -> P:
    """One-sided p of the difference being above the bound, or below it."""
    theirs = (task.chance, 0.0, math.inf) if other is None else moments(other, task)
    p = welch(moments(mine, task, finished=finished), theirs, bound, task)
    p = p if p is None or above else 1 - p
    seeds = len(mine) - (0 if not at_chance else sum(score is None for score in mine))
    if min(seeds, LEAST_SEEDS if other is None else len(other)) < LEAST_SEEDS:
        return P(p)
    if other is None:
        known = [task.chance if one is None else one for one in mine if one is not None or not finished]
        beyond = [round(task.sign * (one - task.chance) - bound, 9) for one in known]
        wins = sum(one > 0 if above else one < 0 for one in beyond)
        found = P(scipy.stats.binomtest(wins, len(known), 0.5, "greater").pvalue) if known else P(None)
    else:
        found = drawn_p(ranked(mine, task, bound), ranked(other, task))[1 if above else 2]
    tested = [one for one in mine if one is not None] if finished else mine
    return larger(found, p) if of_test_set(tested, other, task) else found


@cache
def drawn_p(mine: tuple[float, ...], other: tuple[float, ...]) -> tuple[P, P, P]:
    two_sided, above, below = (P(p, error_of(p, DRAWS, THEIR_DRAWS)) for p in permuted(mine, other))
    return two_sided, above, below


def of_test_set(mine: Scores, other: Scores | None, task: Task) -> bool:
    sides = [mine] if other is None else [mine, other]
    return any(is_flat([task.chance if one is None else one for one in side], task) for side in sides)


def larger(found: P, p: float | None) -> P:
    return found if found.value is None or p is None or p < found.value else P(p, found.error)


def tests(asked: Asked, runs: dict[str, Any], task: Task) -> list[tuple[Any, P, str]]:
    """Of each hypothesis: its key, p, and the verdict if it is small."""
    kind, margin = asked.kind, asked.margin
    mine, other = runs[asked.rung], None if asked.other is None else runs[asked.other]
    both: Any = (asked.rung, asked.other)
    if kind == "better":
        upper = welch(moments(mine, task), moments(other, task), 0.0, task)
        lower = None if upper is None else 1 - upper
        up = (upper or 0) < (lower or 0)
        found = P(None if upper is None or lower is None else min(1.0, 2 * min(upper, lower)))
        if min(len(mine), len(other)) >= LEAST_SEEDS:
            found, above, below = drawn_p(ranked(mine, task), ranked(other, task))
            up = (above.value or 0) < (below.value or 0)
            one_sided = upper if up else lower
            if one_sided is not None and of_test_set(mine, other, task):
                found = larger(found, min(1.0, 2 * one_sided))
        return [((kind, frozenset(both)), found, "supported" if up else "contradicted")]
    if kind in ("no-worse", "above-chance"):
        bound = margin if kind == "above-chance" else -margin
        supports, contradicts = (tail(mine, other, bound, task, above=up) for up in (True, False))
    else:
        finished = other is None
        more = {"at_chance": finished}
        inside = [
            tail(mine, other, bound, task, above=bound < 0, finished=finished, **more) for bound in (-margin, margin)
        ]
        outside = [tail(mine, other, bound, task, above=bound > 0, **more) for bound in (-margin, margin)]
        supports = P(None) if None in (p.value for p in inside) else max(inside, key=lambda p: p.value or 0)
        contradicts = P(None) if None in (p.value for p in outside) else min(outside, key=lambda p: p.value or 0)
        if contradicts.value is not None:
            contradicts = P(min(1.0, 2 * contradicts.value), 2 * contradicts.error)
    pair = frozenset(both) if kind == "equal" else both
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
