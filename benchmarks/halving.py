"""Would fewer tuning runs choose the same learning rate? By simulation on the tuning runs of the map.

`python -m benchmarks.halving` prints the tables behind docs/tuning.md from `docs/kept/02-map.db.xz`, in seconds;
`--ladders lru controls selective` is for all rungs of the map.

The full design of a rung trains all points of its grid with the same three seeds, and
`lrurun.config.tuning.choose_point` chooses. A rule here asks for runs one after another, each when it has seen the ones
before, and chooses. All orders of the seeds are simulated, of three at a time where the ledger has five. Rules were
compared on `CHOOSING`, every other task by the alphabet; what they do on the others, `JUDGING`, is published.

What a choice costs is estimated in three ways, because none is both unbiased and precise:

* Against the full design, on all tuning runs: the mean score at the full design's point minus that at the rule's. The
  full design chose by all of these runs and a rule by a part of them, so this flatters both, the full design more.
* Against two seeds for all points, on seeds that neither has seen. This is unbiased. A rule that trains three seeds of
  a point leaves no such seed, and then there is no estimate.
* Below the best point, which is that with the best mean over all tuning runs, without the rule of ties. It cannot be
  negative, and it is no loss alone: the rule of ties takes a middle point on purpose.

The seeds of a task are the same for all of its rungs, so that rungs are not independent: intervals are over tasks.
Before anything is simulated, the full design as it is written here must choose the rate of all final runs in the
ledger.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from pathlib import Path
from statistics import median_low, stdev
from typing import NamedTuple

import numpy as np

from lrurun.config import planning
from lrurun.floats import mean

SHARD = Path(__file__).parent.parent / "docs/kept/02-map.db.xz"
SEEDS = 3
"""Seeds of the full design."""
DRAWS = 10_000
"""Resamples of the tasks, for intervals."""

CHOOSING = ("Copy", "CumSum", "MQAR", "Parity", "Select", "SelectiveCopy", "Solve", "Sort")
JUDGING = ("CumMax", "InductionHeads", "npDigits", "Reverse", "SelectFixed", "Shift", "SolveFixed")


# Runs


class Result(NamedTuple):
    """What a tuning run has found."""

    score: float
    """The validation score; that of chance for a run that diverged."""
    loss: float | None
    """None for a run that diverged."""


class Rung(NamedTuple):
    """The tuning runs of a rung, and the point that they chose."""

    task: str
    name: str
    chance: float
    points: list[list[Result]]
    """By the learning rate, the smallest first; each with all seeds in their order."""
    chosen: int
    """The point of the final runs."""

    def mean(self, point: int, seeds: Iterable[int] | None = None) -> float:
        """The mean score of a point, over all seeds or some."""
        results = self.points[point]
        return mean([results[seed].score for seed in (range(len(results)) if seeds is None else seeds)])

    @property
    def best(self) -> float:
        """The largest mean score of a point."""
        return max(map(self.mean, range(len(self.points))))


QUERY = """
    select m.rung, m.stage, json_extract(r.config, '$.optim.lr'), r.result
    from runs r join ladder_runs m on m.run = r.number join ladders l on l.id = m.ladder
    where l.name = ? and l.task = ? and l.profile = 'map' order by m.rung, r.seed
"""


def load(ledger: sqlite3.Connection, ladder: str, task: str) -> list[Rung]:
    """The rungs of a ladder that were tuned on a task of the map."""
    metric = planning.make(task, profile="map").task.metric
    runs: dict[str, dict[str, dict[float, list[Result]]]] = defaultdict(lambda: {"tune": {}, "train": {}})
    for rung, stage, rate, result in ledger.execute(QUERY, (ladder, task)):
        measured = json.loads(result)
        score, loss = measured.get(f"val/{metric.name}"), measured.get("val/loss")
        found = Result(metric.chance if score is None else score, None if score is None else loss)
        runs[rung][stage].setdefault(rate, []).append(found)
    rungs = []
    for name, stages in runs.items():
        [rate] = stages["train"]
        points = [stages["tune"][value] for value in sorted(stages["tune"])]
        chosen = sorted(stages["tune"]).index(rate)
        rungs.append(Rung(task, name, metric.chance, points, chosen))
    return rungs


# The choice


def choose(points: dict[int, list[Result]]) -> int:
    """The point that these results choose, as `lrurun.config.tuning.choose_point` does in a grid of one number.

    This is the one with the best mean, then the lower loss; of several seeds, the middle of the points within one
    standard error of it. If all runs diverged, it is the first.

    Args:
        points: results by the place of the point in the grid, as many for each.
    """
    finite = {point: [r for r in results if r.loss is not None] for point, results in points.items()}
    means = {point: mean([r.score for r in results]) for point, results in points.items()}
    known = [point for point in points if finite[point]] or list(points)
    ranked = sorted(known, key=lambda p: (-means[p], mean([r.loss for r in finite[p]] or [0.0])))
    best = ranked[0]
    if len(finite[best]) < 2:
        return best
    error = math.sqrt(2 / len(points[best])) * stdev(r.score for r in finite[best])
    tied = [point for point in ranked if means[point] >= means[best] - error]
    middle = median_low(tied)
    return min(tied, key=lambda point: abs(point - middle))


# Rules


class Trials:
    """The tuning runs of a rung in one order of its seeds, which a rule asks for one after another."""

    def __init__(self, rung: Rung, order: Sequence[int]) -> None:
        self.rung, self.order = rung, order
        self.results: dict[int, list[Result]] = {point: [] for point in range(len(rung.points))}

    def train(self, points: Iterable[int], seeds: int = 1) -> None:
        """Trains points with the next seeds."""
        for point in points:
            for _ in range(seeds):
                self.results[point].append(self.rung.points[point][self.order[len(self.results[point])]])

    def ranked(self, points: Iterable[int]) -> list[int]:
        """Points by their mean score, the best first; among equal ones the lower loss."""
        return sorted(points, key=lambda p: (-self.mean(p), self.loss(p)))

    def mean(self, point: int) -> float:
        return mean([result.score for result in self.results[point]])

    def loss(self, point: int) -> float:
        return mean([math.inf if result.loss is None else result.loss for result in self.results[point]])

    def choose(self, points: Iterable[int]) -> int:
        return choose({point: self.results[point] for point in points})

    @property
    def runs(self) -> int:
        return sum(map(len, self.results.values()))

    @property
    def unseen(self) -> list[int]:
        """The seeds that no point was trained with, beyond the first two."""
        used = max(2, *map(len, self.results.values()))
        return sorted(set(range(len(self.rung.points[0]))) - set(self.order[:used]))


Rule = Callable[[Trials], int]
"""Asks for runs and returns the point that it chooses."""


def full(trials: Trials, seeds: int = SEEDS) -> int:
    """All points with all seeds."""
    trials.train(trials.results, seeds)
    return trials.choose(trials.results)


def halving(trials: Trials, seeds: int) -> int:
    """All points with one seed, the better half with so many more. Half of three are two: one point alone would be
    chosen whatever its other seeds say."""
    trials.train(trials.results)
    better = trials.ranked(trials.results)[: math.ceil(len(trials.results) / 2)]
    trials.train(better, seeds)
    return trials.choose(better)


def race(trials: Trials, share: float, seeds: int = SEEDS) -> int:
    """Seed after seed; the points go on that are worse than the best by at most a share of its distance to chance."""
    left = list(trials.results)
    for _ in range(seeds):
        trials.train(left)
        best = max(map(trials.mean, left))
        going = [point for point in left if trials.mean(point) >= best - share * abs(best - trials.rung.chance)]
        if len(going) == 1:
            return going[0]
        left = going
    return trials.choose(left)


def race_in_range(trials: Trials, share: float, seeds: int = SEEDS) -> int:
    """Seed after seed; the points go on that are worse than the best by at most a share of the range of the scores with
    the first seed."""
    left = list(trials.results)
    margin = 0.0
    for seed in range(seeds):
        trials.train(left)
        scores = [trials.mean(point) for point in left]
        margin = share * (max(scores) - min(scores)) if seed == 0 else margin
        going = [point for point, score in zip(left, scores, strict=True) if score >= max(scores) - margin]
        if len(going) == 1:
            return going[0]
        left = going
    return trials.choose(left)


def leader(trials: Trials, seeds: int) -> int:
    """All points with one seed; then the best one by its mean gets another, until the best one has so many."""
    trials.train(trials.results)
    while True:
        best = trials.ranked(trials.results)[0]
        if len(trials.results[best]) == seeds:
            return best
        trials.train([best])


def _races(seeds: int) -> dict[str, Rule]:
    to_chance = {
        f"race of {seeds} seeds within {100 * share:.0f} % of the distance to chance": lambda trials, s=share: race(
            trials, s, seeds
        )
        for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
    }
    in_range = {
        f"race of {seeds} seeds within {100 * share:.0f} % of the range": lambda trials, s=share: race_in_range(
            trials, s, seeds
        )
        for share in (0.1, 0.2, 0.3, 0.5)
    }
    return to_chance | in_range


RULES: dict[str, Rule] = {
    "full design": full,
    "two seeds for all points": lambda trials: full(trials, 2),
    "one seed, the better half with two more": lambda trials: halving(trials, 2),
    "one seed, the better half with one more": lambda trials: halving(trials, 1),
    **_races(2),
    **_races(3),
    "the best point needs two seeds": lambda trials: leader(trials, 2),
    "the best point needs three seeds": lambda trials: leader(trials, 3),
    "one seed": lambda trials: full(trials, 1),
}


# Estimates


COLUMNS = [
    "rule",
    "same point",
    "runs saved",
    "loses to the full design",
    "to two seeds, unseen",
    "below the best point",
]


class Estimate(NamedTuple):
    """What a rule does on a rung, a mean over all orders of the seeds."""

    same: float
    """How often it chooses the full design's point."""
    runs: float
    """Its runs as a share of the full design's."""
    to_full: float
    """The validation score that it loses to the full design, on all tuning runs."""
    to_two: float
    """The validation score that it loses to two seeds for all points, on seeds that neither has seen; nan without
    any."""
    below: float
    """How much worse its point is than the best one, on all tuning runs."""


def estimate(rung: Rung, rule: Rule) -> Estimate:
    """Plays a rule in all orders of the seeds."""
    rows = []
    for order in permutations(range(len(rung.points[0])), SEEDS):
        trials = Trials(rung, order)
        point, two, unseen = rule(trials), full(Trials(rung, order), 2), trials.unseen
        rows.append((
            float(point == rung.chosen),
            trials.runs / (SEEDS * len(rung.points)),
            rung.mean(rung.chosen) - rung.mean(point),
            rung.mean(two, unseen) - rung.mean(point, unseen) if unseen else math.nan,
            rung.best - rung.mean(point),
        ))  # fmt: skip
    return Estimate(*(float(value) for value in np.mean(rows, axis=0)))


def random_point(rung: Rung) -> Estimate:
    """What a point drawn at random does, without any run."""
    points = range(len(rung.points))
    score, two = mean([rung.mean(point) for point in points]), []
    for order in permutations(range(len(rung.points[0])), SEEDS):
        trials = Trials(rung, order)
        two.append(rung.mean(full(trials, 2), trials.unseen))
    return Estimate(1 / len(points), 0.0, rung.mean(rung.chosen) - score, mean(two) - score, rung.best - score)


def by_task(rungs: Sequence[Rung], one: Callable[[Rung], Estimate], tasks: Sequence[str]) -> np.ndarray:
    """Estimates, a row for each task: the mean over its rungs."""
    return np.array([np.mean([one(rung) for rung in rungs if rung.task == task], axis=0) for task in tasks])


def table(rungs: Sequence[Rung], tasks: Sequence[str]) -> str:
    """A Markdown table of all rules, where tasks count alike.

    Losses are in hundredths of accuracy or R², with intervals of 90 % over tasks.
    """
    rules = {name: (lambda rung, rule=rule: estimate(rung, rule)) for name, rule in RULES.items()}
    rules["a random point"] = random_point
    draws = np.random.default_rng(0).integers(0, len(tasks), (DRAWS, len(tasks)))
    lines = [f"| {' | '.join(COLUMNS)} |", "| --- |" + " ---: |" * (len(COLUMNS) - 1)]
    for name, one in rules.items():
        rows = by_task(rungs, one, tasks)
        same, runs = rows.mean(0)[:2]
        losses = [_with_interval(100 * rows[:, column], draws) for column in range(2, rows.shape[1])]
        lines.append(" | ".join([f"| {name}", f"{100 * same:.0f} %", f"{100 * (1 - runs):.0f} %", *losses]) + " |")
    return "\n".join(lines)


def _with_interval(losses: np.ndarray, draws: np.ndarray) -> str:
    """A mean over tasks, with an interval of 90 % over the tasks that could have been drawn."""
    if np.isnan(losses).any():
        return "–"
    low, high = np.quantile(losses[draws].mean(1), [0.05, 0.95])
    values = [round(float(value), 2) + 0.0 for value in (losses.mean(), low, high)]  # no negative zeros
    return "{:.2f} ({:.2f} to {:.2f})".format(*values)


def _distinct(rungs: Iterable[Rung]) -> list[Rung]:
    """Rungs without those that have the same runs, which ladders share."""
    return list({(rung.task, str(rung.points)): rung for rung in rungs}.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladders", nargs="+", default=["lru"], help="ladders of the map [lru]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "map.db"
        with lzma.open(SHARD) as packed, unpacked.open("wb") as file:
            shutil.copyfileobj(packed, file)
        ledger = sqlite3.connect(unpacked)
        tasks = CHOOSING + JUDGING
        rungs = _distinct(rung for task in tasks for ladder in options.ladders for rung in load(ledger, ladder, task))
        ledger.close()
    wrong = [(r.task, r.name) for r in rungs if choose(dict(enumerate(r.points))) != r.chosen]
    if wrong:
        raise SystemExit(f"the full design does not choose the rate of the final runs: {wrong}")
    sizes = sorted({(len(rung.points), len(rung.points[0])) for rung in rungs})
    print(f"{len(rungs)} rungs with", " or ".join(f"{points} points of {seeds} seeds" for points, seeds in sizes))
    for tasks in (CHOOSING, JUDGING):
        present = [task for task in tasks if any(rung.task == task for rung in rungs)]
        print(f"\n{', '.join(present)}\n\n{table(rungs, present)}")


if __name__ == "__main__":
    main()
