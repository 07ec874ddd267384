"""The simulation of tuning with fewer runs, of which docs/tuning.md has the results."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import halving
from benchmarks.halving import Result, Rung, Trials
from lrurun.config.tuning import choose_point
from tests.harness.plans import RECIPE, changed, make, rungs, write_documents

RATES = [0.001, 0.002, 0.004, 0.008]


def rung(*scores: list[float], chosen: int = 0) -> Rung:
    """A rung with these scores of the seeds of each point; losses are equal."""
    return Rung("task", "rung", 0.0, [[Result(score, 1.0) for score in seeds] for seeds in scores], chosen)


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_the_choice_is_that_of_tuning(seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_documents(tmp_path, monkeypatch)
    grid = '[tune.grid]\n"optim.lr" = [0.01, 0.02]\n'
    plan = make(changed(RECIPE, grid, f'[tune]\nseeds = {seeds}\n[tune.grid]\n"optim.lr" = {RATES}\n'), tune=True)
    metric, draws = plan.task.metric, random.Random(seeds)
    assert metric.chance is not None
    compared = 0
    for _ in range(300):
        # few different scores, so that many are equal
        points = [
            [
                Result(metric.chance, None) if draws.random() < 0.2 else Result(draws.randint(0, 6) / 6, draws.random())
                for _ in range(seeds)
            ]
            for _ in RATES
        ]
        recorded = [
            {} if result.loss is None else {f"val/{metric.name}": result.score, "val/loss": result.loss}
            for results in points
            for result in results
        ]
        chosen = choose_point(plan, rungs(plan)["ring"], recorded)
        if chosen is not None:
            compared += 1
            assert RATES[halving.choose(dict(enumerate(points)))] == chosen["optim.lr"]
    assert compared > 200


def test_rules_see_only_what_they_ask_for() -> None:
    # the first seed of the order prefers the last point, all seeds together prefer the first one
    scores = rung([0.6, 0.9, 0.9], [0.1, 0.1, 0.1], [0.7, 0.2, 0.2])
    played = {}
    for name in (
        "full design",
        "one seed",
        "one seed, the better half with one more",
        "the best point needs two seeds",
    ):
        trials = Trials(scores, (0, 1, 2))
        played[name] = (halving.RULES[name](trials), trials.runs)
    assert played == {
        "full design": (0, 9),
        "one seed": (2, 3),
        "one seed, the better half with one more": (0, 5),
        "the best point needs two seeds": (0, 5),
    }


def test_a_race_ends_when_one_point_is_left() -> None:
    scores = rung([0.5, 0.5, 0.5], [0.97, 0.5, 0.99], [1.0, 0.9, 0.9])
    for share, runs in ((0.01, 3), (0.05, 5), (0.6, 9)):
        trials = Trials(scores, (0, 1, 2))
        assert halving.race(trials, share) == 2
        assert trials.runs == runs, share


def test_estimates_are_means_over_all_orders() -> None:
    scores = rung([0.6, 0.9, 0.9], [0.1, 0.1, 0.1], [0.7, 0.2, 0.2])
    one = halving.estimate(scores, halving.RULES["one seed"])
    # a third of the orders begins with seed 0, by which the last point is chosen
    assert one.same == pytest.approx(2 / 3)
    assert one.runs == pytest.approx(1 / 3)
    assert one.to_full == pytest.approx((0.8 - 1.1 / 3) / 3)
    assert one.below == pytest.approx(one.to_full)
    # with seed 0 first, two seeds choose the first point; the unseen seed is one of 0.9 against 0.2
    assert one.to_two == pytest.approx(0.7 / 3)
