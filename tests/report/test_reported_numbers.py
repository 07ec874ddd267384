"""Every p, interval, chance of improvement and look of the reports on two ladders, computed by scipy and by counting.

Scores are made up: with failing seeds, a diverged run, ties, rungs without spread and rungs with few seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
from msgspec import structs

from lrurun.config import plan as planning
from lrurun.report.judging import questions
from tests.harness import rule
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.rule import Asked

LADDERS = [("controls", "sDigits", False), pytest.param("language", "npDigits", True, marks=pytest.mark.slow)]
"""Ladder, task, whether it is decided sequentially. On sDigits, two rungs of controls have the same settings."""


def made_up(rungs: list[str], *, sequential: bool) -> dict[str, list[float | None]]:
    """Test scores in steps of the test items, which make ties."""
    random = np.random.default_rng(0)
    runs: dict[str, list[float | None]] = {}
    for number, rung in enumerate(rungs):
        seeds = 20 if sequential or number % 4 == 2 else 12
        scores = random.normal([0.90, 0.94, 0.93, 0.97][number % 4], [0.01, 0.02][number % 2], seeds).clip(0, 1)
        scores = np.where(random.random(seeds) < (0.2 if number % 3 == 1 else 0), 0.1, scores)
        if number == 3:
            scores[:] = 0.97  # no spread
        if number == 6 and not sequential:
            scores = scores[:5]
        runs[rung] = [round(float(score) * 300) / 300 for score in scores]
    runs[rungs[1]][3] = None
    return runs


@pytest.mark.parametrize(("ladder", "task", "sequential"), LADDERS)
def test_every_number_of_a_report_is_that_of_another_computation(
    machine: Machine, ladder: str, task: str, sequential: bool
) -> None:
    plan = planning.make(task, ladder=ladder)
    first = {rung: base if rung in plan.same_as_base else rung for rung, base in plan.ladder.bases.items()}
    own = [rung for rung in first if first[rung] == rung]
    scores = made_up(own, sequential=sequential)
    fill(machine.ledger, task, scores, ladder=ladder, with_items=False)
    items = plan.task.sizes(plan.options)["test"]
    settings = rule.Task(plan.task.metric.chance or 0.0, items)
    runs: dict[str, Any] = {rung: scores[found or rung] for rung, found in first.items()}
    asked = {
        question: Asked(
            question.kind, first[question.rung] or "", question.other and first[question.other], question.margin
        )
        for question in questions.asked(plan.ladder, task, plan.outside_scope)
    }
    compared = {question: one for question, one in asked.items() if one.rung != one.other}
    if sequential:
        machine.run("ladder", task, "--ladder", ladder, "--decide")
        expected = rule.sequential(list(compared.values()), runs, settings, [(12, 0.5), (20, 0.5)])
    else:
        together = rule.judge(list(compared.values()), runs, settings)
        expected = {one: (answer, 0) for one, answer in zip(compared.values(), together, strict=True)}
    unsure = sum(not answer.sure for answer, _ in expected.values())
    assert unsure <= (1 if sequential else len(expected) // 3)
    report = machine.json("report", task, "--ladder", ladder)
    found = [row["comparison"] for row in report["rows"] if row["comparison"]]
    found += [claim for claim in report["claims"] if claim["verdict"] != "not judged" and claim["kind"] != "faster"]
    seen = set()
    for one in found:
        question = next(
            question
            for question in asked
            if (question.kind, question.rung, question.other, question.margin)
            == (one["kind"], one["rung"], one["other"], one["margin"] or 0.0)
        )
        if one["same_runs"]:
            assert question not in compared
            assert (one["p_adjusted"], one["improvement"], one["low"]) == (None, None, None)
            continue
        answer, look = expected[asked[question]]
        seen.add(question)
        if one.get("difference_p") is not None:  # beside a margin
            beside = structs.replace(question, kind="better", margin=0.0)
            assert expected[asked[beside]][0].agrees(one["difference_p"])
            seen.add(beside)
        assert one["look"] == (look or None)
        check(one, answer, [runs[rung][: look or None] for rung in (one["rung"], one["other"])], settings)
    assert seen == set(compared)
    for row in report["rows"]:
        check_row(row, runs[row["rung"]], settings)


def check(one: dict[str, Any], answer: rule.Answer, sides: list[rule.Scores], task: rule.Task) -> None:
    """A comparison in JSON against the answer, and its estimates against scipy."""
    assert one["verdict"] == answer.verdict or not answer.sure
    assert answer.agrees(one["p_adjusted"])
    assert one["p_unadjusted"] == pytest.approx(answer.unadjusted.value, abs=answer.unadjusted.error + 1e-9)
    assert one["provisional"] == (min(map(len, sides)) < 12)
    counted = [[task.chance if score is None else score for score in scores] for scores in sides]
    means = [rule.moments(scores, task) for scores in sides]
    assert all(means)
    for side, scores, moments in zip(one["sides"], counted, means, strict=True):
        assert side["n"] == len(scores)
        assert side["mean"] == pytest.approx(np.mean(scores))
        assert side["stderr"] == pytest.approx(moments and moments[1] ** 0.5)
    assert one["difference"] == pytest.approx(np.mean(counted[0]) - np.mean(counted[1]))
    # Only the number of test items is known: the binomial error of each side; its runs may be right on the same items.
    spreads = [(a, f) for _, a, f in (moments or (0, 0, 1) for moments in means) if np.isfinite(f)]
    of_seeds, items = sum(a for a, _ in spreads), task.items or 1
    errors = [
        [0 if score is None else (score * (1 - score) / items) ** 0.5 for score in side_scores] for side_scores in sides
    ]
    total = of_seeds + sum(np.mean(of_side) ** 2 for of_side in errors)
    half = scipy.stats.t.isf(0.025, total**2 / sum(a**2 / f for a, f in spreads)) * total**0.5
    assert (one["low"], one["high"]) == pytest.approx((one["difference"] - half, one["difference"] + half))
    if len(spreads) == 2:
        test = scipy.stats.ttest_ind(*counted, equal_var=False).confidence_interval(0.95)
        assert one["low"] < test.low < test.high < one["high"], "wider than that of the seeds alone"
    mine, other = (np.array(rule.ranked(scores, task)) for scores in sides)
    wins = (mine[:, None] > other).mean() + (mine[:, None] == other).mean() / 2
    assert one["improvement"] == pytest.approx(wins)
    low, high = 0.0, 1.0
    if 0 < wins < 1:
        found = scipy.stats.brunnermunzel(other, mine)
        error = (wins - 0.5) / found.statistic
        df = rule.brunner_munzel(*rule.counted(mine, other)[:2])[2]
        width = scipy.stats.t.isf(0.025, df) * error
        low, high = wins - width, wins + width
    elif wins in (0, 1):
        low = high = wins
    least = 0.025 ** (1 / min(len(mine), len(other)))
    ends = (max(0.0, min(low, least)), min(1.0, max(high, 1 - least)))
    # that of the seeds alone, which the choice of test items widens
    assert one["improvement_low"] <= ends[0] + 1e-9 <= wins + 2e-9 <= ends[1] + 2e-9 <= one["improvement_high"] + 3e-9


def check_row(row: dict[str, Any], scores: rule.Scores, task: rule.Task) -> None:
    finished = [score for score in scores if score is not None]
    bound = task.chance + max(0.03, 3 * (task.chance * (1 - task.chance) / (task.items or 1)) ** 0.5)
    learning = sum(score > bound for score in finished)
    assert (row["n"], row["diverged"], row["learning"]) == (len(finished), len(scores) - len(finished), learning)
    assert row["mean"] == pytest.approx(np.mean(finished))
    assert row["stderr"] == pytest.approx(scipy.stats.sem(finished), abs=1e-12)
    failing = scipy.stats.binomtest(len(scores) - learning, len(scores), alternative="less").proportion_ci(0.95).high
    assert row["failure_bound"] == pytest.approx(failing)
