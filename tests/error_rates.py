"""Error rates of verdicts by simulation, with an implementation of the rule of its own: numpy arrays of many ladders.

`python -m tests.error_rates` prints the table of docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

ALPHA = 0.05
ITEMS = 300
CHANCE = 0.1
RUNGS = 8
PAIRS = [(rung, rung - 1) for rung in range(1, RUNGS)] + [(2, 0), (5, 3), (7, 0)]
"""The differences of neighbours, and three claims that share their rungs."""
DESIGNS = {
    "--decide": ((5, 0.2), (8, 0.3), (12, 0.5)),
    "--decide --max-seeds 8": ((5, 0.35), (8, 0.55)),
    "--decide --max-seeds 5": ((5, 0.8),),
    "3 seeds": ((3, 1.0),),
}

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Case(NamedTuple):
    """A way in which scores arise."""

    scores: str
    """"gaussian", "steps" (of one test item), "collapsed" or "diverged" seeds."""
    means: str
    """"null": all rungs are equal. "partial": two halves of equal rungs. "pairs": pairs of equal rungs."""
    ratio: float
    """Of the spreads of every other rung."""

    @property
    def text(self) -> str:
        return f"{self.scores}, {self.means}, spreads 1 to {self.ratio:g}"


CASES = [
    Case(scores, means, ratio)
    for scores in ("gaussian", "steps", "collapsed", "diverged")
    for means in ("null", "partial", "pairs")
    for ratio in (1.0, 4.0, 10.0)
]


def means_of(case: Case) -> Floats:
    """The means of the rungs. Effects are of tens of standard deviations, so that true differences are found."""
    level = {"null": np.zeros(RUNGS), "partial": np.arange(RUNGS) // 4, "pairs": np.arange(RUNGS) // 2 % 2}[case.means]
    return 0.4 + 0.3 * level


def sample(case: Case, rng: np.random.Generator, ladders: int, seeds: int) -> Floats:
    """Scores: ladder, rung, seed. Rungs of equal mean have equal expected scores, whatever their spread."""
    spread = np.where(np.arange(RUNGS) % 2, case.ratio, 1.0) * (0.001 if case.scores == "steps" else 0.004)
    scores = means_of(case)[:, None] + spread[:, None] * rng.standard_normal((ladders, RUNGS, seeds))
    if case.scores == "gaussian":
        return scores
    scores = np.round(scores * ITEMS) / ITEMS
    lost = rng.random(scores.shape) < 0.25
    if case.scores == "collapsed":
        near = CHANCE + 0.01 * rng.standard_normal(scores.shape)
        return np.where(lost, np.round(near * ITEMS) / ITEMS, scores)
    return np.where(lost, CHANCE, scores) if case.scores == "diverged" else scores


def p_values(scores: Floats, items: int | None) -> tuple[Floats, Floats]:
    """Two-sided p of Welch's test of each pair, and the differences."""
    n = scores.shape[-1]
    mean, variance = scores.mean(-1), scores.var(-1, ddof=1) / n
    inverse_df = np.full(mean.shape, 1 / (n - 1))
    if items is not None:
        flat = np.ptp(scores, axis=-1) < (1 - 1e-4) / items
        variance = np.where(flat, np.maximum(mean * (1 - mean), 1 / items) / items, variance)
        inverse_df = np.where(flat, 0.0, inverse_df)
    mine, other = np.array(PAIRS).T
    total = variance[:, mine] + variance[:, other]
    share = variance[:, mine] / total
    inverse = share**2 * inverse_df[:, mine] + (1 - share) ** 2 * inverse_df[:, other]
    with np.errstate(divide="ignore"):
        df = np.minimum(1 / inverse, 1e12)
    difference = mean[:, mine] - mean[:, other]
    return 2 * stdtr(df, -np.abs(difference) / np.sqrt(total)), difference


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


def decide(scores: Floats, looks: Sequence[tuple[int, float]], items: int | None) -> tuple[NDArray[np.int64], Floats]:
    """For each pair the seeds of the look that decides it (0: none), and the sign of the difference there."""
    when = np.zeros((scores.shape[0], len(PAIRS)), np.int64)
    sign = np.zeros(when.shape)
    for seeds, share in looks:
        p, difference = p_values(scores[..., :seeds], items)
        rejected = step_down(p, when == 0, ALPHA * share)
        when[rejected] = seeds
        sign[rejected] = np.sign(difference[rejected])
    return when, sign


def error_rate(case: Case, looks: Sequence[tuple[int, float]], ladders: int, seed: int = 0) -> tuple[float, float]:
    """The share of ladders with a false verdict, and the share of true differences that are found."""
    rng = np.random.default_rng(seed)
    scores = sample(case, rng, ladders, looks[-1][0])
    when, sign = decide(scores, looks, None if case.scores == "gaussian" else ITEMS)
    means = means_of(case)
    truth = np.array([np.sign(means[mine] - means[other]) for mine, other in PAIRS])
    false = (when > 0) & (sign != truth)
    found = ((when > 0) & (sign == truth))[:, truth != 0]
    return float(false.any(1).mean()), float(found.mean()) if found.size else float("nan")


def rows(ladders: int) -> Iterator[list[str]]:
    """For each kind of scores and ratio of spreads, the largest rate over the means."""
    groups: dict[tuple[str, float], list[Case]] = {}
    for case in CASES:
        groups.setdefault((case.scores, case.ratio), []).append(case)
    for (scores, ratio), cases in groups.items():
        rates = [max(error_rate(case, looks, ladders)[0] for case in cases) for looks in DESIGNS.values()]
        yield [scores, f"1 to {ratio:g}", *(f"{rate * 100:.1f} %" for rate in rates)]


if __name__ == "__main__":
    print("| scores | spreads | " + " | ".join(DESIGNS) + " |")
    print("| --- | --- |" + " ---: |" * len(DESIGNS))
    for row in rows(100_000):
        print(f"| {' | '.join(row)} |")
