"""How often a ladder has a wrong verdict, and how often a true difference is found: by simulation.

`python -m benchmarks.error_rates` prints the tables of docs/statistics.md (about half an hour on one core);
`--ladders N` simulates fewer. The rule is written again here, for arrays of many ladders.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr

ALPHA = 0.05
ITEMS = 300
"""Test items, where scores are multiples of one."""
RUNGS = 8
PAIRS = [(rung, rung - 1) for rung in range(1, RUNGS)] + [(2, 0), (5, 3), (7, 0)]
"""The differences of neighbours, and three claims that share their rungs."""
DRAWS = 2_000
"""Permutations where scores tie; the package draws ten times as many."""
TABLE = Path(__file__).parent.parent / "lrurun/judging/brunner_munzel.json"

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Looks = Sequence[tuple[int, float]]
"""Seeds a side, and the share of the level that is spent there."""
Test = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Two-sided p and direction, of samples (..., n) each."""


# Tests


def welch(mine: Floats, other: Floats) -> tuple[Floats, Floats]:
    n = mine.shape[-1]
    first, second = mine.var(-1, ddof=1) / n, other.var(-1, ddof=1) / n
    difference, total = mine.mean(-1) - other.mean(-1), first + second
    with np.errstate(divide="ignore", invalid="ignore"):  # without spread there is no test
        df = total**2 / ((first**2 + second**2) / (n - 1))
        p = 2 * stdtr(df, -np.abs(difference) / np.sqrt(total))
    return np.where(total > 0, p, 1.0), difference


def ranks(mine: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Brunner and Munzel's statistic with its permutation distribution; without ties that is a table."""
    n = mine.shape[-1]
    wins = np.heaviside(mine[..., :, None] - other[..., None, :], 0.5)
    estimate = wins.mean((-1, -2))
    w = _statistic(estimate, wins.mean(-1).var(-1, ddof=1) / n + wins.mean(-2).var(-1, ddof=1) / n)
    table = _table(n)
    p = np.exp(np.interp(np.abs(w), table["w"], np.log(table["p"])))
    pooled = np.sort(np.concatenate([mine, other], -1), -1)
    for index in np.argwhere((pooled[..., 1:] == pooled[..., :-1]).any(-1)):
        place = tuple(index)
        extreme = np.abs(_permuted(pooled[place], n)) >= abs(w[place]) - 1e-9
        p[place] = (extreme.sum() + 1) / (DRAWS + 1)
    return np.maximum(p, 2.0 ** (1 - n)), estimate - 0.5


def signs(mine: Floats, other: Floats) -> tuple[Floats, Floats]:
    """The exact sign test over seeds."""
    n = mine.shape[-1]
    wins = (mine > other).sum(-1)
    chances = np.cumsum([_choose(n, k) / 2**n for k in range(n + 1)])
    return np.minimum(1.0, 2 * chances[np.minimum(wins, n - wins)]), wins - n / 2


def _choose(n: int, k: int) -> int:
    return int(np.prod([(n - i) / (i + 1) for i in range(k)]).round())


def _statistic(estimate: Floats, variance: Floats) -> Floats:
    distance = np.where(np.abs(estimate - 0.5) < 1e-9, 0.0, estimate - 0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distance == 0, 0.0, distance / np.sqrt(np.where(variance < 1e-18, 0.0, variance)))


def _permuted(pooled: Floats, n: int) -> Floats:
    chosen = _draws(n)
    below = np.heaviside(pooled[:, None] - pooled[None, :], 0.5)
    counts = chosen @ below.T
    wins, losses = (below.sum(1) - counts) * chosen / n, counts * (1 - chosen) / n
    variance = sum((n * (one**2).sum(1) - one.sum(1) ** 2) / (n * (n - 1)) / n for one in (wins, losses))
    return _statistic(wins.sum(1) / n, np.asarray(variance))


@cache
def _draws(n: int) -> Floats:
    return (np.random.default_rng(n).random((DRAWS, 2 * n)).argsort(1) < n).astype(np.float64)


@cache
def _table(n: int) -> dict[str, Floats]:
    return {name: np.array(values) for name, values in json.loads(TABLE.read_text())[str(n)].items()}


# Ladders


class Case(NamedTuple):
    """How the scores of a ladder arise. Rungs of one level have a chance of improvement of 1/2 over each other."""

    name: str
    spread: float = 1.0
    """Of every other rung, in standard deviations of the others."""
    failures: float = 0.0
    """The rate at which seeds of every other rung fail; its other seeds score so much better that the chance is 1/2."""
    equal_means: bool = False
    """Whether they score so much better that the means are equal instead."""
    all_fail: float = 0.0
    """The rate at which seeds of all rungs fail."""
    diverge: bool = False
    """Whether failing seeds diverge; else they score 40 standard deviations less."""
    levels: str = "equal"
    """"equal" rungs, or "halves", "pairs" of equal rungs with large differences between them."""
    steps: float = 0.0
    """Scores are multiples of this many standard deviations."""


def _levels(case: Case) -> Floats:
    rungs = np.arange(RUNGS)
    return 30.0 * {"equal": 0 * rungs, "halves": rungs // 4, "pairs": rungs // 2 % 2}[case.levels]


def sample(case: Case, random: np.random.Generator, ladders: int, seeds: int) -> Floats:
    """Scores: ladder, rung, seed."""
    odd = (np.arange(RUNGS) % 2 == 1)[:, None]
    q = case.failures
    gain = np.hypot(1, case.spread) * ndtri(min(0.5 / (1 - q), 1 - 1e-9)) if q else 0.0
    if case.equal_means:
        gain = 40.0 * q / (1 - q)
    shape = (ladders, RUNGS, seeds)
    scores = random.standard_normal(shape) * np.where(odd, case.spread, 1.0) + np.where(odd, gain, 0.0)
    failed = random.random(shape) < np.where(odd, q, 0.0) + case.all_fail
    lost = np.full(shape, -1e6) if case.diverge else random.standard_normal(shape) - 40.0
    scores = np.where(failed, lost, scores) + _levels(case)[:, None]
    return np.round(scores / case.steps) * case.steps if case.steps else scores


def step_down(p: Floats, open_: Flags, level: float) -> Flags:
    """Which open hypotheses Holm's method rejects at a level."""
    p = np.where(open_, p, np.inf)
    order = np.argsort(p, axis=1)
    left = open_.sum(1, keepdims=True) - np.arange(p.shape[1])
    passed = np.logical_and.accumulate(
        (np.take_along_axis(p, order, 1) <= level / np.maximum(left, 1)) & (left > 0), axis=1
    )
    rejected = np.zeros_like(open_)
    np.put_along_axis(rejected, order, passed, axis=1)
    return rejected


def decide(scores: Floats, looks: Looks, test: Test) -> tuple[NDArray[np.int64], Floats]:
    """For each pair the seeds of the look that decides it (0: none), and the direction there."""
    when = np.zeros((scores.shape[0], len(PAIRS)), np.int64)
    sign = np.zeros(when.shape)
    mine, other = np.array(PAIRS).T
    for seeds, share in looks:
        p, direction = test(scores[:, mine, :seeds], scores[:, other, :seeds])
        rejected = step_down(p, when == 0, ALPHA * share)
        when[rejected] = seeds
        sign[rejected] = np.sign(direction[rejected])
    return when, sign


def wrong(case: Case, looks: Looks, test: Test, ladders: int, seed: int = 0) -> float:
    """The share of ladders with at least one wrong verdict."""
    random, count = np.random.default_rng(seed), 0
    levels = _levels(case)
    truth = np.array([np.sign(levels[mine] - levels[other]) for mine, other in PAIRS])
    for some in _parts(ladders):
        when, sign = decide(sample(case, random, some, looks[-1][0]), looks, test)
        count += int(((when > 0) & (sign != truth)).any(1).sum())
    return count / ladders


def wrong_alone(case: Case, seeds: int, test: Test, ladders: int, seed: int = 0) -> float:
    """The share of single comparisons of two rungs with a wrong verdict, without a ladder around them."""
    random, count = np.random.default_rng(seed), 0
    for some in _parts(ladders):
        scores = sample(case, random, some, seeds)
        count += int((test(scores[:, 1], scores[:, 0])[0] <= ALPHA).sum())
    return count / ladders


def _parts(ladders: int, size: int = 500) -> list[int]:
    return [size] * (ladders // size) + [ladders % size] * bool(ladders % size)


def found(effect: float, case: Case, looks: Looks, test: Test, count: int, seed: int = 0) -> float:
    """The share of comparisons that are decided rightly, at the level that Holm's method leaves to ten hypotheses."""
    random = np.random.default_rng(seed)
    scores = sample(case, random, count, looks[-1][0])[:, :2]
    decided = np.zeros(count, bool)
    for seeds, share in looks:
        p, direction = test(scores[:, 0, :seeds] + effect, scores[:, 1, :seeds])
        decided |= (p <= ALPHA * share / len(PAIRS)) & (direction > 0)
    return float(decided.mean())


# Tables


DESIGNS: dict[str, tuple[Looks, Test]] = {
    "12 seeds": ([(12, 1.0)], ranks),
    "20 seeds": ([(20, 1.0)], ranks),
    "`--decide`": ([(12, 0.5), (20, 0.5)], ranks),
    "3 seeds": ([(3, 1.0)], welch),
    "5 seeds": ([(5, 1.0)], welch),
    "8 seeds": ([(8, 1.0)], welch),
    "12 seeds, by means": ([(12, 1.0)], welch),
}
"""The first three are firm, the next three provisional. The last one is what firm verdicts would be by Welch's test."""
FAILURES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.5)
STEPS = 1 / 3
"""As with a standard deviation of one point on 300 test items."""
CASES = [
    Case("Gaussian, equal spreads"),
    *(Case(f"Gaussian, spreads 1 to {ratio}", spread=float(ratio)) for ratio in (4, 10)),
    Case("true differences between pairs of rungs", levels="pairs"),
    *(Case(f"true differences between pairs, spreads 1 to {r}", levels="pairs", spread=float(r)) for r in (4, 10)),
    Case("true differences between halves, spreads 1 to 10", levels="halves", spread=10.0),
    Case("steps of a third of a standard deviation", steps=STEPS),
    Case("steps of one standard deviation, spreads 1 to 4", steps=1.0, spread=4.0),
    *(Case(f"every seed fails with {q:.0%}", all_fail=q) for q in (0.1, 0.25, 0.5)),
    Case("every seed diverges with 25%", all_fail=0.25, diverge=True),
    *(Case(f"every other rung fails with {q:.0%}", failures=q) for q in FAILURES),
    *(Case(f"the same, {q:.0%}, spreads 1 to 4", failures=q, spread=4.0) for q in (0.1, 0.3, 0.45)),
    Case("the same, 20%, steps", failures=0.2, steps=STEPS),
]
EFFECTS = {
    "1 standard deviation": (1.0, Case("")),
    "1.5 standard deviations": (1.5, Case("")),
    "2 standard deviations": (2.0, Case("")),
    "2, spreads 1 to 4": (2.0, Case("", spread=4.0)),
    "2, every seed fails with 10%": (2.0, Case("", all_fail=0.1)),
    "3, every seed fails with 25%": (3.0, Case("", all_fail=0.25)),
}
POWERS: dict[str, tuple[Looks, Test]] = {
    "ranks, 12": ([(12, 1.0)], ranks),
    "means, 12": ([(12, 1.0)], welch),
    "signs, 12": ([(12, 1.0)], signs),
    "ranks, 20": ([(20, 1.0)], ranks),
    "means, 20": ([(20, 1.0)], welch),
    "signs, 20": ([(20, 1.0)], signs),
    "ranks, `--decide`": ([(12, 0.5), (20, 0.5)], ranks),
    "means, looks at 5, 8, 12": ([(5, 0.2), (8, 0.3), (12, 0.5)], welch),
}


def _line(name: str, rates: Sequence[float]) -> str:
    return f"| {name} | " + " | ".join(f"{100 * rate:.1f}" for rate in rates) + " |"


def _head(first: str, names: Sequence[str]) -> str:
    return f"| {first} | " + " | ".join(names) + " |\n| --- |" + " ---: |" * len(names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladders", type=int, default=10_000, help="simulated ladders of each case [10000]")
    ladders = parser.parse_args().ladders
    print(_head("scores", list(DESIGNS)))
    for case in CASES:
        count = ladders // 5 if case.steps or case.diverge else ladders
        print(_line(case.name, [wrong(case, looks, test, count) for looks, test in DESIGNS.values()]), flush=True)
    old = {"5, 8 and 12 seeds": [(5, 0.2), (8, 0.3), (12, 0.5)], "3 seeds": [(3, 1.0)]}
    print("\n" + _head("all means are equal, verdicts by means", list(old)))
    for q in (0.02, 0.05, 0.1, 0.2):
        case = Case(f"every other rung fails with {q:.0%}", failures=q, equal_means=True)
        print(_line(case.name, [wrong(case, looks, welch, ladders) for looks in old.values()]), flush=True)
    print("\n" + _head("one comparison", ["12 seeds", "20 seeds"]))
    for case in [CASES[0], CASES[1], *(Case(f"one rung fails with {q:.0%}", failures=q) for q in FAILURES)]:
        print(_line(case.name, [wrong_alone(case, seeds, ranks, ladders) for seeds in (12, 20)]), flush=True)
    print("\n" + _head("true difference", list(POWERS)))
    for name, (effect, case) in EFFECTS.items():
        print(_line(name, [found(effect, case, looks, test, ladders) for looks, test in POWERS.values()]), flush=True)


if __name__ == "__main__":
    main()
