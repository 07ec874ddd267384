"""Every p, interval, chance of improvement, error from test items and look of the reports on two ladders, computed by
scipy and by counting.

Scores are made up: with failing seeds, a diverged run, ties, rungs without spread and rungs with few seeds; and the
items on which each run is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
from msgspec import structs

from lrurun.config import planning
from lrurun.judging import questions
from tests.harness import rule
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.rule import Asked

LADDERS = [
    ("controls", "sDigits", False, "results"),
    ("controls", "sDigits", False, "number"),
    pytest.param("language", "npDigits", True, "results", marks=pytest.mark.slow),
]
"""Ladder, task, whether it is decided sequentially, what is known of test items. On sDigits, two rungs of controls have
the same settings."""


def made_up(rungs: list[str], *, sequential: bool) -> dict[str, list[float | None]]:
    """Test scores in steps of the test items, which make ties."""
    random = np.random.default_rng(0)
    runs: dict[str, list[float | None]] = {}
    for number, rung in enumerate(rungs):
        seeds = 20 if sequential or number % 4 == 2 else 12
        scores = random.normal([0.80, 0.94, 0.90, 0.97][number % 4], [0.01, 0.02][number % 2], seeds).clip(0, 1)
        scores = np.where(random.random(seeds) < (0.2 if number % 3 == 1 else 0), 0.1, scores)
        if number == 3:
            scores[:] = 0.97  # no spread
        if number == 6 and not sequential:
            scores = scores[:5]
        runs[rung] = [round(float(score) * 300) / 300 for score in scores]
    runs[rungs[1]][3] = None
    return runs


def made_up_items(runs: dict[str, list[float | None]], items: int) -> dict[str, Any]:
    """Whether each run is right on each item: on as many as its score says, mostly on easy ones, by a rung's taste."""
    random = np.random.default_rng(1)
    difficulty = random.normal(0, 1.5, items)
    right = {}
    for rung, scores in runs.items():
        taste = random.normal(0, 0.5, items)
        order = (difficulty + taste + random.logistic(0, 0.3, (len(scores), items))).argsort(1).argsort(1)
        right[rung] = (order < np.array([[round((score or 0) * items)] for score in scores])).astype(np.float64)
    return right


@pytest.mark.parametrize(("ladder", "task", "sequential", "known"), LADDERS)
def test_every_number_of_a_report_is_that_of_another_computation(
    machine: Machine, ladder: str, task: str, sequential: bool, known: str
) -> None:
    plan = planning.make(task, ladder=ladder)
    first = {rung: base if rung in plan.same_as_base else rung for rung, base in plan.ladder.bases.items()}
    own = [rung for rung in first if first[rung] == rung]
    scores = made_up(own, sequential=sequential)
    items = plan.task.sizes(plan.options)["test"]
    right = made_up_items(scores, items) if known == "results" else {}
    fill(machine.ledger, task, scores, ladder=ladder, right=right, with_items=known == "results")
    settings = rule.Task(plan.task.metric.chance or 0.0, items, results=right)
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
    # where only the number of items is known, p is near 5 % in many comparisons
    assert unsure <= (2 if sequential else len(expected) // (3 if known == "results" else 1) - 1)
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
        first_seeds = {rung: found[: look or None] for rung, found in runs.items()}
        check(one, answer, asked[question], first_seeds, settings)
    assert seen == set(compared)
    for row in report["rows"]:
        check_row(row, runs[row["rung"]], settings)


def check(
    one: dict[str, Any], answer: rule.Answer, asked: Asked, runs: Mapping[str, rule.Scores], task: rule.Task
) -> None:
    """A comparison in JSON against the answer, and its estimates against scipy. `runs` are those of its look."""
    assert one["verdict"] == answer.verdict or not answer.sure
    assert answer.agrees(one["p_adjusted"])
    assert one["p_unadjusted"] == pytest.approx(answer.unadjusted.value, abs=answer.unadjusted.error + 1e-7)
    assert one["p_on_these_items"] <= one["p_adjusted"]
    assert one["items_known"] == ("results" if task.results else "number")
    sides = [runs[rung] for rung in (asked.rung, asked.other or "")]
    assert one["provisional"] == (min(map(len, sides)) < 12)
    counted = [[task.chance if score is None else score for score in scores] for scores in sides]
    means = [rule.moments(scores, task) for scores in sides]
    assert all(means)
    for side, scores, moments in zip(one["sides"], counted, means, strict=True):
        assert side["n"] == len(scores)
        assert side["mean"] == pytest.approx(np.mean(scores))
        assert side["stderr"] == pytest.approx(moments and moments[1] ** 0.5)
    assert one["difference"] == pytest.approx(np.mean(counted[0]) - np.mean(counted[1]))
    on_items = rule.sides_of(asked, runs, task)
    assert on_items is not None
    even = [np.full(len(side.scores), 1 / len(side.scores)) for side in on_items]
    shift = rule.moved(one["difference"], *on_items, *even, 0.0)
    # equal scores have no spread over seeds: what test items move is counted once
    spreads = [(a, f) for _, a, f in (moments or (0, 0, 1) for moments in means) if np.isfinite(f)]
    halves = []
    for some in (spreads, [*spreads, (shift.variance, shift.df)]):
        if total := sum(a for a, _ in some):
            halves.append(scipy.stats.t.isf(0.025, total**2 / sum(a**2 / f for a, f in some)) * total**0.5)
    half = max(halves)
    assert (one["low"], one["high"]) == pytest.approx((one["difference"] - half, one["difference"] + half))
    mine, other = (np.array(rule.ranked(scores, task)) for scores in sides)
    wins = (mine[:, None] > other).mean() + (mine[:, None] == other).mean() / 2
    assert one["improvement"] == pytest.approx(wins)
    if min(map(len, sides)) >= 12:
        shift = rule.typical(*on_items, 0.0)
    assert one["item_error"] == pytest.approx(shift.variance**0.5, rel=1e-5)
    p, _ = rule.better(asked._replace(kind="better", margin=0.0), runs, task)
    check_interval(one, wins, mine, other, p)


def check_interval(one: dict[str, Any], wins: float, mine: Any, other: Any, p: rule.P) -> None:
    """The interval of the chance of improvement: that of seeds alone, wider by the share of items; it contains 1/2 if
    the test of a difference for new seeds and items does not decide, and from twelve seeds on items make it do so only
    then."""
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
    grown = 1 / max(1 - one["item_share"], 1e-12) ** 0.5
    wide = (max(0.0, wins - grown * (wins - ends[0])), min(1.0, wins + grown * (ends[1] - wins)))
    low, high = one["improvement_low"], one["improvement_high"]
    assert low <= ends[0] + 1e-9
    assert high >= ends[1] - 1e-9
    p_value = 1.0 if p.value is None else p.value
    if p_value - p.error > 0.05 or min(len(mine), len(other)) < 12:
        assert low <= wide[0] + 1e-9
        assert high >= wide[1] - 1e-9
    if p_value - p.error > 0.05:
        assert low <= 0.5 + 1e-9
        assert high >= 0.5 - 1e-9
    elif p_value + p.error <= 0.05 and min(len(mine), len(other)) >= 12:
        # by the standard error with which the test would just have this p
        half = abs(wins - 0.5) * scipy.stats.norm.isf(0.025) / scipy.stats.norm.isf(max(p_value - p.error, 1e-9) / 2)
        if wins > 0.5:
            assert min(ends[0], 0.5) <= low <= wins - half + 1e-9
            assert high >= wide[1] - 1e-9
        else:
            assert max(ends[1], 0.5) >= high >= wins + half - 1e-9
            assert low <= wide[0] + 1e-9


def check_row(row: dict[str, Any], scores: rule.Scores, task: rule.Task) -> None:
    finished = [score for score in scores if score is not None]
    bound = task.chance + max(0.03, 3 * (task.chance * (1 - task.chance) / (task.items or 1)) ** 0.5)
    learning = sum(score > bound for score in finished)
    assert (row["n"], row["diverged"], row["learning"]) == (len(finished), len(scores) - len(finished), learning)
    assert row["mean"] == pytest.approx(np.mean(finished))
    assert row["stderr"] == pytest.approx(scipy.stats.sem(finished), abs=1e-12)
    failing = scipy.stats.binomtest(len(scores) - learning, len(scores), alternative="less").proportion_ci(0.95).high
    assert row["failure_bound"] == pytest.approx(failing)
