"""How often a ladder has a wrong verdict where rungs share their test items, and what is found: by simulation.

`python -m benchmarks.item_error_rates` prints the tables of docs/statistics.md (about an hour and a half on one core);
`--ladders N` simulates fewer. The rule is written again here, for the ten comparisons of a ladder at once.

The logit of a right answer is that of the item, plus the taste of the rung for this item, plus that of the seed, and of
the seed for this item. A seed that fails is right on 10 % of the items, whichever they are. A verdict is wrong where
the rungs have a chance of improvement of 1/2 over each other, for new seeds and new items.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri, stdtr

from benchmarks.error_rates import ALPHA, PAIRS, RUNGS, ranks, step_down

Floats = NDArray[np.float64]
MEAN, SPREAD = 1.0, 1.5
"""Of the logits of items."""
SEED, CELL = 0.05, 0.3
"""Spread of the logits of seeds, and of a seed on an item."""
FAILED = 0.1
"""The share of items that a failed seed gets right."""
RULES = ("seeds", "items", "bound")
"""The p of ranks over seeds alone, the rule with per-item results, and the rule with the number of items alone."""
LOOKS = (12, 20)


class Case(NamedTuple):
    """How the answers of a ladder arise."""

    items: int
    taste: float
    """Spread of the logits of a rung's tastes."""
    all_fail: float = 0.0
    """The rate at which seeds of all rungs fail."""
    odd_fail: float = 0.0
    """The rate at which seeds of every other rung fail; its other seeds are so much better that the chance is 1/2."""
    shift: float = 0.0
    """The logits by which every other rung is better."""

    @property
    def name(self) -> str:
        fails = f"{self.all_fail:.0%} of all" if self.all_fail else f"{self.odd_fail:.0%} of every other rung's"
        return f"| {self.items:,} | {self.taste:g} | {fails if self.all_fail or self.odd_fail else 'none'} |"


def answers(case: Case, random: np.random.Generator, rungs: int, seeds: int) -> NDArray[np.float32]:
    """Right (1) or wrong (0): rung, seed, item."""
    shape = (rungs, seeds, case.items)
    odd = (np.arange(rungs) % 2 == 1)[:, None, None]
    logits = random.normal(MEAN, SPREAD, case.items) + case.taste * random.standard_normal((rungs, 1, case.items))
    logits = logits + np.where(odd, case.shift + calibrated(case), 0.0)
    logits = logits + SEED * random.standard_normal((rungs, seeds, 1))
    chances = expit(logits.astype(np.float32) + np.float32(CELL) * random.standard_normal(shape, dtype=np.float32))
    rate = np.where(odd, case.all_fail + case.odd_fail, case.all_fail)
    chances[np.broadcast_to(random.random((rungs, seeds, 1)) < rate, shape)] = FAILED
    return (random.random(shape, dtype=np.float32) < chances).astype(np.float32)


@cache
def calibrated(case: Case) -> float:
    """The logits by which the good seeds of a rung that fails are better, so that the chance of improvement is 1/2."""
    if not case.odd_fail:
        return 0.0
    if case.odd_fail >= 0.5:
        return 3.0
    random = np.random.default_rng(1)
    draws = max(400, min(3000, 10**6 // case.items))
    shape = (draws, case.items)
    logits = random.normal(MEAN, SPREAD, shape).astype(np.float32)
    scatter = np.hypot(case.taste, CELL)
    both = [
        logits
        + np.float32(scatter) * random.standard_normal(shape, dtype=np.float32)
        + SEED * random.standard_normal((draws, 1))
        for _ in range(2)
    ]
    uniform = [random.random(shape, dtype=np.float32) for _ in range(2)]
    base = (uniform[0] < expit(both[0])).mean(1)
    low, high = 0.0, 4.0
    for _ in range(16):
        middle = (low + high) / 2
        other = (uniform[1] < expit(both[1] + middle)).mean(1)
        chance = (1 - case.odd_fail) * np.heaviside(other - base, 0.5).mean()
        low, high = (middle, high) if chance < 0.5 else (low, middle)
    return (low + high) / 2


def p_values(right: NDArray[np.float32], pairs: Sequence[tuple[int, int]]) -> tuple[Floats, Floats]:
    """p of the three rules (rule, pair), and the directions (pair)."""
    _, seeds, items = right.shape
    scores = right.mean(-1, dtype=np.float64)
    mine, other = np.array(pairs).T
    whole = np.round(scores * items)
    p_seeds, direction = ranks(whole[mine], whole[other])
    centred = right - scores[..., None].astype(np.float32)
    flat = centred.reshape(-1, items)
    every = (flat @ flat.T).astype(np.float64).reshape(len(right), seeds, len(right), seeds) / (items * (items - 1))
    own, crossed = (
        np.stack([every[i, :, j] for i, j in zip(a, b, strict=True)]) for a, b in ((mine, mine), (mine, other))
    )
    others = np.stack([every[j, :, j] for j in other])
    distances = scores[mine][:, :, None] - scores[other][:, None, :]
    diagonal, other_diagonal = (np.einsum("kii->ki", part) for part in (own, others))
    spread = np.median(diagonal[:, :, None] + other_diagonal[:, None, :] - 2 * crossed, axis=(1, 2))
    shift, first, second = smoothed(distances, spread)
    variance = (
        np.einsum("ki,kij,kj->k", first, own, first)
        + np.einsum("ki,kij,kj->k", second, others, second)
        - 2 * np.einsum("ki,kij,kj->k", first, crossed, second)
        - cells(first, own)
        - cells(second, others)
    )
    variance = np.maximum(variance, items**-2.0)
    differences = np.einsum("ki,kin->kn", first, right[mine]) - np.einsum("ki,kin->kn", second, right[other])
    differing = np.abs(differences).sum(1) ** 2 / np.maximum((differences**2).sum(1), 1e-30)
    p_items = np.maximum(2 * stdtr(items - 1, -np.abs(shift) / np.sqrt(variance)), 2 * 2.0**-differing)
    binomial = np.sqrt(np.maximum(scores * (1 - scores), 1 / items) / items)
    bounds = binomial[mine][:, :, None] ** 2 + binomial[other][:, None, :] ** 2
    bound_shift, first, second = smoothed(distances, np.median(bounds, axis=(1, 2)))
    bound = (first * binomial[mine]).sum(1) ** 2 + (second * binomial[other]).sum(1) ** 2
    p_bound = 2 * ndtr(-np.abs(bound_shift) / np.sqrt(bound))
    even = (shift > 0) != (direction > 0)
    p = np.stack([p_seeds, combined(p_seeds, np.where(even, 1.0, p_items)), combined(p_seeds, p_bound)])
    return p, direction


def smoothed(distances: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """The median of the differences of pairs of runs, each smoothed by a logistic distribution of this variance, and
    the weights of the runs of both sides in it."""
    width = np.sqrt(3 * variance)[:, None, None] / np.pi
    low, high = distances.min((1, 2)) - 20 * width[:, 0, 0], distances.max((1, 2)) + 20 * width[:, 0, 0]
    for _ in range(30):
        middle = (low + high) / 2
        above = np.tanh((distances - middle[:, None, None]) / (2 * width)).sum((1, 2)) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    shift = (low + high) / 2
    away = np.abs(distances - shift[:, None, None]) / width
    weights = np.exp(away.min((1, 2), keepdims=True) - away) / (1 + np.exp(-away)) ** 2
    weights /= weights.sum((1, 2), keepdims=True)
    return shift, weights.sum(2), weights.sum(1)


def cells(weights: Floats, own: Floats) -> Floats:
    """The variance from items that the runs of a rung do not share."""
    concentration = (weights**2).sum(1)
    left = (weights * np.einsum("kii->ki", own)).sum(1) - np.einsum("ki,kij,kj->k", weights, own, weights)
    return concentration / np.maximum(1 - concentration, 1e-9) * np.maximum(left, 0.0)


def combined(p_seeds: Floats, p_items: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        first, second = (-ndtri(np.minimum(p, 1.0) / 2) for p in (p_seeds, p_items))
        p = 2 * ndtr(-1 / np.sqrt(first**-2.0 + second**-2.0))
    return np.maximum(p, np.maximum(p_seeds, np.minimum(p_items, 1.0)))


def simulate(case: Case, ladders: int) -> Iterator[tuple[Floats, Floats]]:
    """p at 12 and at 20 seeds (look, rule, pair) and directions (look, pair) of each ladder."""
    random = np.random.default_rng(0)
    for _ in range(ladders):
        right = answers(case, random, RUNGS, LOOKS[-1])
        p, direction = zip(*(p_values(right[:, :seeds], PAIRS) for seeds in LOOKS), strict=True)
        yield np.stack(p), np.stack(direction)


def wrong(case: Case, ladders: int) -> list[float]:
    """The share of ladders with a wrong verdict: by seeds alone with 12 and 20, by the rule with 12, 20 and `--decide`,
    with the number of items alone; then the same of single comparisons, by seeds alone and by the rule."""
    p = np.stack([p for p, _ in simulate(case, ladders)])  # ladder, look, rule, pair
    nothing = np.ones((ladders, len(PAIRS)), bool)

    def any_wrong(rule: str, looks: Sequence[tuple[int, float]]) -> float:
        open_ = nothing.copy()
        for look, share in looks:
            open_ &= ~step_down(p[:, look, RULES.index(rule)], open_, ALPHA * share)
        return float((~open_).any(1).mean())

    twelve, twenty, decide = [(0, 1.0)], [(1, 1.0)], [(0, 0.5), (1, 0.5)]
    of_ladders = [
        *(any_wrong("seeds", looks) for looks in (twelve, twenty)),
        *(any_wrong("items", looks) for looks in (twelve, twenty, decide)),
        any_wrong("bound", twenty),
    ]
    return of_ladders + [float((p[:, look, rule] <= ALPHA).mean()) for rule in (0, 1) for look in (0, 1)]


def found(case: Case, count: int) -> list[float]:
    """The share of single comparisons that are decided rightly with 12 seeds, by each rule, at 5 % and at 0.5 %."""
    random, decided = np.random.default_rng(0), []
    for _ in range(count):
        p, direction = p_values(answers(case, random, 2, 12), [(1, 0)])
        decided.append(
            np.concatenate([(p[:, 0] <= level) & (direction[0] > 0) for level in (ALPHA, ALPHA / len(PAIRS))])
        )
    return [float(share) for share in np.mean(decided, axis=0)]


FAILURES = (
    {},
    {"all_fail": 0.2},
    {"odd_fail": 0.1},
    {"odd_fail": 0.2},
    {"odd_fail": 0.3},
    {"odd_fail": 0.4},
    {"odd_fail": 0.5},
)
CASES = [
    *(Case(items, taste) for items in (30, 90, 300, 2000, 10_000) for taste in (0.0, 0.6, 1.0)),
    *(Case(items, taste, **fails) for items in (90, 300, 2000) for taste in (0.0, 1.0) for fails in FAILURES[1:]),
    *(Case(items, 1.0, odd_fail=0.4) for items in (30, 10_000)),
]
POWERS = [
    *(Case(items, 0.6, shift=0.5) for items in (30, 90, 300, 2000)),
    *(Case(items, 1.0, shift=0.5) for items in (90, 300)),
    *(Case(items, 0.6, all_fail=0.1, shift=0.5) for items in (90, 300, 2000)),
    *(Case(items, 0.6, shift=0.25) for items in (300, 600, 2000)),
    Case(600, 0.6, shift=1.0),
]


def _line(case: Case, rates: Sequence[float], name: str = "") -> str:
    return case.name + name + " " + " | ".join(f"{100 * rate:.1f}" for rate in rates) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladders", type=int, default=1000, help="simulated ladders of each case [1000]")
    ladders = parser.parse_args().ladders
    print("power, 12 seeds: at 5 % and at 0.5 %, by seeds, items, bound")
    for case in POWERS:
        print(_line(case, found(case, ladders), f" {case.shift:g} |"), flush=True)
    print("wrong: ladders by seeds 12, 20; rule 12, 20, decide; bound 20; single by seeds 12, 20; rule 12, 20")
    for case in CASES:
        print(_line(case, wrong(case, ladders // 4 if case.items > 2000 else ladders)), flush=True)


if __name__ == "__main__":
    main()
