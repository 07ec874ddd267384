"""The sequential design: against another implementation of it, and verdicts that stay as they are at their look."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from msgspec import structs

from lrurun.config.ladder import Claim, Ladder
from lrurun.data.metric import Accuracy
from lrurun.judging import claims, design_record, holm, questions, sequential
from lrurun.judging.claims import RungResults
from lrurun.judging.samples import Result, Scoring
from lrurun.judging.sequential import Design, DesignProgress, LookRecord
from lrurun.judging.verdicts import Question
from tests.harness import rule
from tests.harness.reports import make_rung
from tests.harness.rule import Asked

ITEMS = 300
NAMES = ["one", "two", "three", "four", "five"]
CLAIMS = [("three", "one", "better"), ("four", "three", "no-worse"), ("five", "one", "better")]
LADDER = Ladder(
    name="mini",
    title="",
    source="",
    question="",
    rungs=tuple(make_rung(name) for name in NAMES),
    claims=tuple(
        Claim(text="t", source="s", rung=rung, than=other, kind=kind, margin=0.01 if kind == "no-worse" else None)  # type: ignore[arg-type]
        for rung, other, kind in CLAIMS
    ),
)
QUESTIONS = questions.asked(LADDER, "sDigits")
"""The differences of neighbours, and the claims: "four against three" is both."""
SCORING = Scoring(metric=Accuracy(chance=0.1), chance=0.1, items=ITEMS)
SEEDS_ALONE = structs.replace(SCORING, items=None)
"""Of an unknown number of test items."""

Runs = dict[str, list[float | None]]


def begin(max_seeds: int = 20, asked: list[Question] | None = None) -> DesignProgress:
    design = Design(
        max_seeds=max_seeds,
        looks=sequential.looks(max_seeds),
        settings=dict.fromkeys(NAMES, "x"),
        questions=tuple(asked or QUESTIONS),
        finished_before=0,
    )
    return DesignProgress(design=design)


def results_of(runs: Runs, seeds: int, rungs: set[str]) -> dict[str, RungResults]:
    """The first seeds of the rungs that a look needs; the others have twelve."""
    return {
        name: RungResults(
            rung=name,
            results=tuple(Result(seed, score) for seed, score in enumerate(scores[: seeds if name in rungs else 12])),
        )
        for name, scores in runs.items()
    }


def next_look(progress: DesignProgress, results: dict[str, RungResults], scoring: Scoring = SCORING) -> DesignProgress:
    """The next look. Between looks, everything goes through JSON, as a resumed command reads it."""
    look = progress.next_look
    assert look is not None
    found = claims.take_look(progress, look, results, scoring=scoring, design="d", runs=())
    records = msgspec.json.decode(msgspec.json.encode([*progress.records, found]), type=tuple[LookRecord, ...])
    return DesignProgress(design=progress.design, records=records)


def test_looks_are_at_12_and_20_seeds_and_spend_half_of_the_level_each() -> None:
    looks = {seeds: [(look.seeds, look.share) for look in sequential.looks(seeds)] for seeds in sequential.SHARES}
    assert looks == {12: [(12, 1.0)], 20: [(12, 0.5), (20, 0.5)]}
    assert sequential.MAX_SEEDS == 20
    same = dict(zip(NAMES, NAMES, strict=True))
    # five differences and claims that state "better", of which one is twice, and a margin with its opposite
    assert len(QUESTIONS) == 7
    assert sequential.summary(begin(), same).level == pytest.approx(0.05 * 0.5 / 8)
    assert sequential.summary(begin(12), same).level == pytest.approx(0.05 / 8)


def test_random_paths_of_p_values_give_the_decisions_of_another_implementation() -> None:
    random = np.random.default_rng(1)
    decisions = []
    for _ in range(300):
        path = random.beta(0.3, 6, size=(2, 6)) * random.choice([0.01, 1, 3], size=6)
        remaining, decided = set(range(6)), {}
        expected_open, expected = list(range(6)), {}
        for look, p in enumerate(path):
            adjusted = holm.correct({one: p[one] for one in remaining}, share=0.5)
            decided |= {one: look for one, value in adjusted.items() if value <= 0.05}
            remaining -= decided.keys()
            # Holm: the smallest p first, each at its part of the share, until one is not rejected
            for count, one in enumerate(sorted(expected_open, key=lambda one: p[one])):
                if p[one] > 0.05 * 0.5 / (len(expected_open) - count):
                    break
                expected[one] = look
            expected_open = [one for one in expected_open if one not in expected]
        assert decided == expected
        decisions += decided.values()
    assert 150 < decisions.count(0) < 1200
    assert decisions.count(1) > 60


def test_hypotheses_without_a_p_value_count_as_not_rejected() -> None:
    assert holm.correct({"a": 0.01, "b": None}, rest=1) == {"a": 0.03, "b": 1.0}
    assert holm.correct({"a": 0.01}, share=0.5) == {"a": pytest.approx(0.02)}


def random_runs(random: np.random.Generator, levels: Sequence[float]) -> Runs:
    """Rungs of unequal levels, spreads and rates of failure, and diverged runs, in whole items."""
    runs: Runs = {}
    for name in NAMES:
        level, spread = random.choice(levels), random.choice([0.01, 0.03])
        scores = np.round(random.normal(level, spread, 20) * ITEMS) / ITEMS
        scores = np.where(random.random(20) < random.choice([0, 0.2]), 0.1, scores)
        runs[name] = [None if random.random() < 0.02 else float(score) for score in scores]
    return runs


@pytest.mark.parametrize(
    ("scoring", "levels"),
    [(SEEDS_ALONE, [0.6, 0.625, 0.65]), (SCORING, [0.4, 0.6, 0.9])],
    ids=["seeds", "items"],
)
@pytest.mark.parametrize("max_seeds", sequential.SHARES)
def test_scores_give_the_decisions_of_another_implementation(
    max_seeds: int, scoring: Scoring, levels: Sequence[float]
) -> None:
    random = np.random.default_rng(22)
    asked = [Asked(one.kind, one.rung, one.other, one.margin) for one in QUESTIONS]
    seen = set()
    for _ in range(4):
        runs = random_runs(random, levels)
        progress = begin(max_seeds)
        while (look := progress.next_look) is not None:
            progress = next_look(progress, results_of(runs, look.seeds, progress.next_rungs), scoring)
        task = rule.Task(0.1, scoring.items)
        expected = rule.sequential(asked, runs, task, list(sequential.SHARES[max_seeds].items()))
        if not all(answer.sure for answer, _ in expected.values()):
            continue  # another verdict at the first look would change the second one
        for question, one in zip(QUESTIONS, asked, strict=True):
            found, (answer, look) = progress.answers[question], expected[one]
            assert (found.verdict, found.look) == (answer.verdict, look)
            assert answer.agrees(found.p_adjusted)
            assert found.p_adjusted is not None
            assert (found.p_adjusted <= 0.05) == (found.verdict != "undecided")
            seen.add((found.verdict != "undecided", look))
    assert seen >= {(True, 12), (False, max_seeds)} | ({(True, max_seeds)} if scoring == SEEDS_ALONE else set())


RUNS: Runs = {
    name: (0.5 + 0.3 * (name in ("four", "five")) + 0.01 * np.random.default_rng(seed).standard_normal(20)).tolist()
    for seed, name in enumerate(NAMES)
}
"""Two levels, between three and four."""
JUMP = Question(kind="better", rung="four", other="three")


def test_a_verdict_stays_as_it_is_at_its_look() -> None:
    progress = next_look(begin(), results_of(RUNS, 12, set(NAMES)))
    assert progress.answers[JUMP].verdict == "supported"
    assert JUMP not in progress.undecided
    assert progress.next_look is not None
    assert (progress.next_look.seeds, progress.next_look.share) == (20, 0.5)
    other: Runs = RUNS | {name: [score - 0.6 for score in RUNS[name] if score] for name in ("four", "five")}
    later = next_look(progress, results_of(other, 20, set(NAMES)))
    assert later.answers[JUMP] == progress.answers[JUMP]
    assert len(later.records[-1].comparisons) == len(progress.undecided)


OLD_LOOK = """{
    "design": "d", "seeds": 12, "hypotheses": 2, "runs": [], "comparisons": [
        {"kind": "better", "rung": "four", "other": "three", "verdict": "supported", "p_adjusted": 0.002,
         "p_unadjusted": 0.0005, "look": 12, "sides": [{"rung": "four", "n": 12}, {"rung": "three", "n": 12}]},
        {"kind": "better", "rung": "two", "other": "one", "verdict": "undecided", "p_adjusted": 0.6,
         "p_unadjusted": 0.3, "look": 12, "sides": [{"rung": "two", "n": 12}, {"rung": "one", "n": 12}]}
    ]
}"""
"""A record as lrurun 1.0 wrote it: its verdicts are about the test items at hand."""


def test_a_design_of_the_first_release_goes_on_with_the_present_rule() -> None:
    """Its digest is what it was, so that its looks are found; what they decided stays."""
    asked = [JUMP, Question(kind="better", rung="two", other="one")]
    assert design_record.digest(begin(asked=asked).design) == "4acfdbae6fd6cb3c"
    old = msgspec.json.decode(OLD_LOOK, type=LookRecord)
    progress = structs.replace(begin(asked=asked), records=(old,))
    # on 300 items, one side is 15 of them better with each seed
    runs = RUNS | {name: [level + seed / 3000 for seed in range(20)] for name, level in (("one", 0.8), ("two", 0.85))}
    later = next_look(progress, results_of(runs, 20, progress.next_rungs))
    assert [record.rule for record in later.records] == ["seeds", "seeds and items"]
    assert later.answers[JUMP] == old.comparisons[0]
    found = later.answers[asked[1]]
    assert (found.verdict, found.verdict_on_these_items, found.items_known) == ("undecided", "supported", "number")


def test_seeds_are_added_to_rungs_of_undecided_questions_alone() -> None:
    asked = [JUMP, Question(kind="better", rung="two", other="one")]
    progress = next_look(begin(asked=asked), results_of(RUNS, 12, set(NAMES)))
    assert progress.next_rungs == {"one", "two"}
    assert next_look(progress, results_of(RUNS, 20, {"one", "two"})).seeds == {
        "one": 20,
        "two": 20,
        "three": 12,
        "four": 12,
        "five": 12,
    }


def test_a_rejected_hypothesis_passes_its_level_on_and_an_opposite_does_not() -> None:
    asked = [JUMP, Question(kind="no-worse", rung="four", other="three", margin=0.01)]
    progress = begin(asked=asked)
    same = dict(zip(NAMES, NAMES, strict=True))
    assert progress.count(same) == 3
    progress = next_look(progress, results_of(RUNS, 12, set(NAMES)))
    assert progress.undecided == []
    assert progress.next_look is None
    assert progress.count(same) == 1


def test_a_look_that_lacks_a_seed_decides_nothing_about_that_rung() -> None:
    results = results_of(RUNS, 12, set(NAMES))
    results["four"] = RungResults(rung="four", results=(*results["four"].results[1:], Result(13, 0.8)))
    found = next_look(begin(), results).answers[JUMP]
    assert (found.verdict, found.p_adjusted) == ("undecided", None)
    assert found.reason == "the look at 12 seeds lacks runs of four"
    results["four"] = RungResults(rung="four", results=())
    progress = next_look(begin(), results)
    assert progress.answers[JUMP].verdict == "undecided"
    assert JUMP in progress.undecided


def test_claims_that_came_later_are_outside_the_design() -> None:
    results = results_of(RUNS, 12, set(NAMES))
    progress = begin(asked=QUESTIONS[:-1])
    judged = claims.judge(LADDER, results, task="sDigits", scoring=SCORING, progress=progress)
    assert [one.verdict for one in judged.claims] == ["undecided", "undecided", "not judged"]
    assert "the first look is at 12 seeds" in judged.claims[0].detail
    assert "outside the design" in judged.claims[2].detail
    progress = next_look(progress, results)
    judged = claims.judge(LADDER, results, task="sDigits", scoring=SCORING, progress=progress)
    assert judged.claims[2].verdict == "not judged"
    assert judged.differences["four"].verdict == "supported"
