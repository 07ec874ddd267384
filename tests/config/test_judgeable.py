"""Every claim of a packaged ladder can be supported and contradicted by results that its task can have."""

from __future__ import annotations

from typing import Any

import pytest

from lrurun import data as tasks
from lrurun import paths
from lrurun.config import plan as planning
from lrurun.config.ladder import Claim, Ladder, load_ladder
from lrurun.config.schema import fingerprint
from lrurun.data.metric import Metric, named
from lrurun.report.judging import claims, questions
from lrurun.report.judging.claims import RungResults, Scored, SpeedRatio
from lrurun.report.judging.verdicts import CONTRADICTED, SUPPORTED, Result, Scoring

SEEDS = 12
STAND_IN = "npDigits"
"""The task of claims whose own tasks only their papers have."""
LADDERS = {name: load_ladder(name) for name in paths.names("ablations")}
CLAIMS = [(name, claim) for name, ladder in LADDERS.items() for claim in ladder.claims]


def results(rung: str, score: float) -> RungResults:
    """Runs with a little spread around a score."""
    spread = [1e-4 * (seed - (SEEDS - 1) / 2) for seed in range(SEEDS)]
    return RungResults(rung=rung, results=tuple(Result(seed, score + spread[seed]) for seed in range(SEEDS)))


def scores(claim: Claim, margin: float, metric: Metric) -> tuple[tuple[float, float], ...]:
    """Scores of the claim's rung and of the other one: for the claim, then against it in each direction.

    Scores of the other one are not used by claims on chance; a model that learns nothing scores about chance, not less.
    """
    sign = 1 if metric.higher_is_better else -1
    gap = sign * max(0.1, 3 * margin)
    other, chance = 0.7, metric.chance or 0.0
    match claim.kind:
        case "better":
            return (other + gap, other), (other - gap, other)
        case "no-worse":
            return (other, other), (other - gap, other)
        case "equal":
            return (other, other), (other - gap, other), (other + gap, other)
        case "above-chance":
            return (chance + sign * (margin + 0.02), other), (chance, other)
        case _:
            return (chance, other), (chance + sign * (margin + 0.1), other)


def judge(ladder: Ladder, claim: Claim, task: str, mine: float, other: float) -> str:
    """The verdict on a claim of runs with these scores; other rungs have none."""
    known = tasks.TASKS[task]
    runs = {rung.name: RungResults(rung=rung.name, results=()) for rung in ladder.rungs}
    runs |= {claim.rung: results(claim.rung, mine)}
    runs |= {claim.than: results(claim.than, other)} if claim.than else {}
    other_metric = named(questions.metric_of(claim, task), known.metrics)
    judged = claims.judge(
        Ladder(name=ladder.name, title="", source="", rungs=ladder.rungs, claims=(claim,)),
        runs,
        task=task,
        scoring=Scoring(metric=known.metric, chance=known.metric.chance),
        by_metric={
            metric.name: Scored(rungs=runs, scoring=Scoring(metric=metric, chance=metric.chance))
            for metric in (other_metric,)
            if metric is not None
        },
    )
    [only] = judged.claims
    return only.verdict


def task_of(claim: Claim) -> str:
    return next((task for task in claim.tasks if task in tasks.TASKS), STAND_IN)


@pytest.mark.parametrize(("name", "claim"), [pair for pair in CLAIMS if not pair[1].is_about_speed])
def test_a_claim_on_scores_can_be_supported_and_contradicted(name: str, claim: Claim) -> None:
    task = task_of(claim)
    metric = named(claim.metric, tasks.TASKS[task].metrics) if claim.metric else None
    supporting, *opposing = scores(claim, claim.margin_on(task), metric or tasks.TASKS[task].metric)
    assert judge(LADDERS[name], claim, task, *supporting) == SUPPORTED
    assert {judge(LADDERS[name], claim, task, *against) for against in opposing} == {CONTRADICTED}


@pytest.mark.parametrize(("name", "claim"), [pair for pair in CLAIMS if pair[1].is_about_speed])
def test_a_claim_on_speed_can_be_supported_and_contradicted(name: str, claim: Claim) -> None:
    [task, *_] = claim.tasks
    verdicts = [
        claims.judge_speed(
            LADDERS[name],
            claim,
            task,
            SpeedRatio(ratio=ratio, low=ratio - 0.05, high=ratio + 0.05, device="NVIDIA A100 and RTX 3090"),
        ).verdict
        for ratio in (1.2, 0.7)
    ]
    assert verdicts == [SUPPORTED, CONTRADICTED]


def test_no_two_claims_compare_the_same_models_on_the_same_task() -> None:
    """In one ladder or in two, whatever the rungs are called there."""
    seen: dict[tuple[Any, ...], str] = {}
    twice = []
    for name, claim in CLAIMS:
        for task in claim.tasks or LADDERS[name].recipes:
            if task not in tasks.TASKS:
                continue
            configs = {rung.name: fingerprint(rung.training) for rung in planning.make(task, ladder=name).rungs}
            models = configs[claim.rung], configs.get(claim.than or "")
            key = (task, claim.kind, claim.metric, *models)
            if key in seen:
                twice.append((task, seen[key], f"{name}: {claim.text}"))
            seen[key] = f"{name}: {claim.text}"
    assert len(seen) > 150
    assert twice == []
