"""The sequential design: against another implementation, frozen verdicts, and error rates by simulation."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from lrurun.config.documents import Claim, Ladder
from lrurun.data.metric import Accuracy
from lrurun.report import claims, questions, sequential, verdicts
from lrurun.report.claims import RungResults
from lrurun.report.sequential import Design, LookRecord, Progress
from lrurun.report.verdicts import Question, Result, Scoring
from tests import error_rates
from tests.reports import make_rung

NAMES = [f"rung{number}" for number in range(error_rates.RUNGS)]
LADDER = Ladder(
    name="mini",
    title="",
    source="",
    question="",
    rungs=tuple(make_rung(name) for name in NAMES),
    claims=tuple(
        Claim(text="t", source="s", rung=NAMES[mine], than=NAMES[other])
        for mine, other in error_rates.PAIRS[error_rates.RUNGS - 1 :]
    ),
)
QUESTIONS = [Question(kind="better", rung=NAMES[mine], than=NAMES[other]) for mine, other in error_rates.PAIRS]
SCORING = Scoring(metric=Accuracy(chance=error_rates.CHANCE), chance=error_rates.CHANCE, items=error_rates.ITEMS)


def begin(max_seeds: int = 12, asked: list[Question] | None = None) -> Progress:
    design = Design(
        max_seeds=max_seeds,
        looks=sequential.looks(max_seeds),
        settings=dict.fromkeys(NAMES, "x"),
        questions=tuple(asked or QUESTIONS),
        finished_before=0,
    )
    return Progress(design=design)


def results_of(scores: np.ndarray, seeds: int, rungs: set[str]) -> dict[str, RungResults]:
    """The first seeds of the rungs that a look needs; the others have five."""
    return {
        name: RungResults(
            of=name,
            results=tuple(
                # a diverged run has no score
                Result(seed, None if score == error_rates.CHANCE else float(score))
                for seed, score in enumerate(row[: seeds if name in rungs else 5])
            ),
        )
        for name, row in zip(NAMES, scores, strict=True)
    }


def next_look(progress: Progress, results: dict[str, RungResults]) -> Progress:
    """The next look. Between looks, everything goes through JSON, as a resumed command reads it."""
    look = progress.next_look
    assert look is not None
    found = claims.take_look(progress, look, results, scoring=SCORING, design="d", runs=())
    records = msgspec.json.decode(msgspec.json.encode([*progress.records, found]), type=tuple[LookRecord, ...])
    return Progress(design=progress.design, records=records)


def run(scores: np.ndarray, max_seeds: int) -> Progress:
    progress = begin(max_seeds)
    while (look := progress.next_look) is not None:
        progress = next_look(progress, results_of(scores, look.seeds, progress.next_rungs))
    return progress


@pytest.mark.parametrize(
    "shares", [tuple(shares.values()) for shares in sequential.SHARES.values()], ids=map(str, sequential.SHARES)
)
def test_random_paths_of_p_values_give_the_decisions_of_another_implementation(shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(1)
    paths = rng.beta(0.3, 6, size=(1000, len(shares), 6)) * rng.choice([0.01, 1, 3], size=(1000, 1, 6))
    open_ = np.ones((1000, 6), bool)
    when = np.full((1000, 6), -1)
    for look, share in enumerate(shares):
        rejected = error_rates.step_down(paths[:, look], open_, error_rates.ALPHA * share)
        when[rejected], open_ = look, open_ & ~rejected
    assert 0.1 < (when >= 0).mean() < 0.9
    for path, expected in zip(paths, when, strict=True):
        remaining, decided = set(range(6)), {}
        for look, share in enumerate(shares):
            adjusted = verdicts.correct({one: path[look][one] for one in remaining}, share=share)
            decided |= {one: look for one, p in adjusted.items() if p <= 0.05}
            remaining -= decided.keys()
        assert [decided.get(one, -1) for one in range(6)] == list(expected)


def test_hypotheses_without_a_p_value_count_as_not_rejected() -> None:
    assert verdicts.correct({"a": 0.01, "b": None}, others=1) == {"a": 0.03, "b": 1.0}
    assert verdicts.correct({"a": 0.01}, share=0.2) == {"a": pytest.approx(0.05)}


@pytest.mark.parametrize("max_seeds", sequential.SHARES)
@pytest.mark.parametrize("case", error_rates.CASES[::4], ids=lambda case: case.text)
def test_scores_give_the_decisions_of_another_implementation(case: error_rates.Case, max_seeds: int) -> None:
    rng = np.random.default_rng(max_seeds)
    looks = tuple(sequential.SHARES[max_seeds].items())
    scores = error_rates.sample(case, rng, 6, max_seeds)
    scores += np.where(rng.random((6, error_rates.RUNGS, 1)) < 0.5, 0.01, 0) * (scores != error_rates.CHANCE)
    when, sign = error_rates.decide(scores, looks, error_rates.ITEMS)
    for number, one in enumerate(scores):
        answers = run(one, max_seeds).answers
        found = [answers[question] for question in QUESTIONS]
        verdict = {1.0: "supported", -1.0: "contradicted", 0.0: "undecided"}
        assert [judged.verdict for judged in found] == [verdict[value] for value in sign[number]]
        for judged, look in zip(found, when[number], strict=True):
            assert look in (0, judged.look)
            assert judged.p_adjusted is not None
            assert (judged.p_adjusted <= 0.05) == (look > 0)


def test_the_simulated_designs_are_those_of_the_program() -> None:
    designs = [dict(looks) for name, looks in error_rates.DESIGNS.items() if name.startswith("--decide")]
    assert designs == [dict(sequential.SHARES[seeds]) for seeds in (12, 8, 5)]


SCORES = 0.5 + 0.01 * np.random.default_rng(0).standard_normal((error_rates.RUNGS, 12))
SCORES[4:] += 0.3


def test_a_verdict_stays_as_it_is_at_its_look() -> None:
    progress = next_look(begin(), results_of(SCORES, 5, set(NAMES)))
    question = QUESTIONS[3]
    assert progress.answers[question].verdict == "supported"
    assert question not in progress.undecided
    assert progress.next_look is not None
    assert (progress.next_look.seeds, progress.next_look.share) == (8, 0.3)
    other = SCORES.copy()
    other[4:] -= 0.6
    later = next_look(progress, results_of(other, 8, set(NAMES)))
    assert later.answers[question] == progress.answers[question]
    assert len(later.records[-1].judgements) == len(progress.undecided)


def test_a_rejected_hypothesis_passes_its_level_on_and_an_opposite_does_not() -> None:
    asked = [QUESTIONS[3], Question(kind="no-worse", rung=NAMES[4], than=NAMES[3], margin=0.01)]
    progress = begin(asked=asked)
    same = dict(zip(NAMES, NAMES, strict=True))
    assert progress.count(same) == 3
    progress = next_look(progress, results_of(SCORES, 5, set(NAMES)))
    assert progress.undecided == []
    assert progress.next_look is None
    assert progress.count(same) == 1


def test_a_look_that_lacks_a_seed_decides_nothing_about_that_rung() -> None:
    results = results_of(SCORES, 5, set(NAMES))
    results[NAMES[4]] = RungResults(of=NAMES[4], results=(*results[NAMES[4]].results[1:], Result(7, 0.8)))
    judged = next_look(begin(), results).answers[QUESTIONS[3]]
    assert (judged.verdict, judged.p_adjusted) == ("undecided", None)
    assert judged.reason == f"the look at 5 seeds lacks runs of {NAMES[4]}"
    results[NAMES[4]] = RungResults(of=NAMES[4], results=())
    progress = next_look(begin(), results)
    assert progress.answers[QUESTIONS[3]].verdict == "undecided"
    assert QUESTIONS[3] in progress.undecided


def test_claims_that_came_later_are_outside_the_design() -> None:
    results = results_of(SCORES, 5, set(NAMES))
    progress = begin(asked=QUESTIONS[:-1])
    judged = claims.judge(LADDER, results, task="sDigits", scoring=SCORING, progress=progress)
    assert [one.verdict for one in judged.claims] == ["undecided", "undecided", "not judged"]
    assert "the first look is at 5 seeds" in judged.claims[0].detail
    assert "outside the design" in judged.claims[2].detail
    progress = next_look(progress, results)
    judged = claims.judge(LADDER, results, task="sDigits", scoring=SCORING, progress=progress)
    assert judged.claims[2].verdict == "not judged"
    assert judged.differences[NAMES[4]].verdict == "supported"
    assert questions.asked(LADDER, "sDigits") == QUESTIONS


@pytest.mark.slow
@pytest.mark.parametrize("design", [name for name in error_rates.DESIGNS if name.startswith("--decide")])
@pytest.mark.parametrize(
    "case", [case for case in error_rates.CASES if case.scores == "gaussian"], ids=lambda c: c.text
)
def test_gaussian_scores_have_false_verdicts_on_at_most_5_percent_of_ladders(
    case: error_rates.Case, design: str
) -> None:
    rate, found = error_rates.error_rate(case, error_rates.DESIGNS[design], 50_000)
    assert rate <= 0.053
    assert not found < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("scores", ["steps", "collapsed", "diverged"])
def test_decisions_on_other_scores_keep_the_level_too(scores: str) -> None:
    cases = [case for case in error_rates.CASES if case.scores == scores]
    rates = [error_rates.error_rate(case, error_rates.DESIGNS["--decide"], 10_000)[0] for case in cases]
    assert max(rates) <= 0.05
