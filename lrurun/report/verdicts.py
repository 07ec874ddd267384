"""The rule by which comparisons are judged, from the scores of runs as from the numbers of a paper.

1. **Scores.** A finished run has its test score at the best validation step, a diverged run the score of chance.
   `side` gives the mean of all of them, with Welch's variance and degrees of freedom. Where the seeds of a side differ
   by less than one step of the metric, the variance of its mean is that of the finite test set instead.
2. **Tests.** `p_values` gives those of a question: for "better" that of one two-sided test, for the other kinds those
   of the statement and of its opposite. Each belongs to a hypothesis; equal kind, rungs and margin are one.
3. **Verdicts.** `judge` corrects the p-values of all hypotheses by Holm's method. An adjusted p of at most 5 % decides
   the question: supported or contradicted. If there is none, it is undecided.

Steps 1 and 2 do not know of other comparisons, and step 3 does not know where the p-values come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct

from lrurun.data.metric import Metric
from lrurun.report import statistics
from lrurun.report.statistics import ALPHA, Estimate, MeanDifference

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
NOT_RUN, NOT_JUDGED = "not run", "not judged"
NOT_COMPARABLE = "not comparable"
"""How reports print the verdict on two rungs with the same runs; in JSON it is "undecided", with `same_runs`."""

Kind = Literal["better", "no-worse", "equal", "above-chance", "at-chance"]
_SYMMETRIC = ("better", "equal")
_LEVEL = 0.95
"""Of printed intervals: each is for its comparison alone."""
_ACCIDENTAL = 3
"""A score that is further above chance than this many standard errors of the test set is no accident [ours]: of models
that predict at random, about one in 500 scores better."""


# 1. Scores


class Result(NamedTuple):
    """What a run says about its rung."""

    seed: int
    score: float | None
    """None: it diverged."""


class Scoring(Struct, frozen=True, kw_only=True):
    """How the runs of a task are scored."""

    metric: Metric
    chance: float | None = None
    """The score of a diverged run; None: not known."""
    items: int | None = None
    """Test sequences."""
    steps: int | None = None
    """What the metric counts in them, labels or sequences; None: the sequences."""

    @property
    def best_chance(self) -> float | None:
        """The better one of what the naive predictor of the data scores and what equally likely classes score.

        A model that has learned nothing may also predict another class than the naive predictor does.
        """
        if self.chance is None or self.metric.chance is None:
            return self.chance
        return (max if self.metric.higher_is_better else min)(self.chance, self.metric.chance)

    @property
    def learns_from(self) -> float | None:
        """The score beyond which a seed learns; None where chance is not known or the metric declares no distance.

        It is further from chance than `near_chance`, and than what a test set of this size can show by accident.
        """
        chance, near = self.best_chance, self.metric.near_chance
        if chance is None or near is None:
            return None
        variance = None if self.items is None else self.metric.variance(chance, self.items)
        distance = max(near, _ACCIDENTAL * math.sqrt(variance or 0.0))
        return chance + distance if self.metric.higher_is_better else chance - distance

    def is_better(self, score: float, than: float) -> bool:
        return score > than if self.metric.higher_is_better else score < than


class Side(Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    counted: Estimate | None
    """Over all runs; None below two, or where the score of a diverged run is not known."""
    finished: Estimate | None
    """Over finished runs alone."""
    mean: float | None = None
    """Over all runs, also where there is one."""
    n: int
    """Runs that are counted, diverged ones among them."""
    diverged: int = 0
    scores: Mapping[int, float] = {}
    """Seed -> counted score."""
    missing: str = ""
    """Why `counted` is None."""
    learning: int | None = None
    """Seeds that learn: that score better than `Scoring.learns_from`; None where that is not known."""
    near_chance: bool = False
    """Whether fewer than half of the seeds learn, and the mean of the others is near chance."""

    @property
    def of_test_set(self) -> bool:
        """Whether the seeds show no spread, so that the error of `counted` is that of the test set."""
        return self.counted is not None and self.n > 0 and math.isinf(self.counted.df)


def side(results: Sequence[Result], scoring: Scoring) -> Side:
    """The runs of a rung as one side of comparisons."""
    finished = [one.score for one in results if one.score is not None]
    diverged = len(results) - len(finished)
    known = {one.seed: scoring.chance if one.score is None else one.score for one in results}
    scores = {seed: score for seed, score in known.items() if score is not None}
    unknown = diverged > 0 and scoring.chance is None
    counted = finished + [scoring.chance] * diverged if scoring.chance is not None else finished
    missing = "runs diverged, and chance is not known on this task" if unknown else "n = 1: no test"
    learning, near_chance = _learning(counted, scoring)
    return Side(
        counted=None if unknown else estimate(counted, scoring),
        finished=estimate(finished, scoring),
        mean=None if unknown else statistics.mean(counted),
        n=len(results),
        diverged=diverged,
        scores=scores,
        missing=missing,
        learning=learning,
        near_chance=near_chance,
    )


def _learning(scores: Sequence[float], scoring: Scoring) -> tuple[int | None, bool]:
    """How many seeds learn, and whether they are fewer than half while the others are near chance.

    Few seeds that learn can move the mean of a rung by any amount: that of the others is compared with chance.
    """
    bound, chance, near = scoring.learns_from, scoring.best_chance, scoring.metric.near_chance
    if bound is None or chance is None or near is None:
        return None, False
    others = [score for score in scores if not scoring.is_better(score, bound)]
    learning = len(scores) - len(others)
    mean = statistics.mean(others)
    gain = 0.0 if mean is None else mean - chance if scoring.metric.higher_is_better else chance - mean
    return learning, 2 * learning < len(scores) and gain <= near


def estimate(scores: Sequence[float], scoring: Scoring) -> Estimate | None:
    """The mean of scores; None below two.

    Seeds that differ by less than one step of the metric show no spread, and a variance of 0 would make any difference
    significant. The test set is finite, so that the mean has at least the variance of a score on that many items:
    sequences, as labels of one may depend on each other. The seeds share the items: the variance is not divided by
    their number, and more seeds do not reduce it.
    """
    found = statistics.estimate(scores)
    if found is None or scoring.items is None:
        return found
    step = scoring.metric.step(scoring.steps or scoring.items)
    variance = scoring.metric.variance(found.mean, scoring.items)
    # Scores are recorded in float32: one step less a rounding error is still one step.
    if step is None or variance is None or max(scores) - min(scores) >= step * (1 - 1e-4):
        return found
    return Estimate(mean=found.mean, variance=variance, df=math.inf, n=found.n)


def chance_side(scoring: Scoring) -> Side:
    """Chance as one side of comparisons: a constant."""
    if scoring.chance is None:
        return Side(counted=None, finished=None, n=0, missing="chance is not known on this task")
    constant = Estimate(mean=scoring.chance)
    return Side(counted=constant, finished=constant, mean=scoring.chance, n=0)


# 2. Tests


class Question(Struct, frozen=True, kw_only=True):
    """What a comparison asks: whether `rung` is better than `than`, equal to it, above chance, ..."""

    kind: Kind
    rung: str
    than: str | None = None
    """None: chance."""
    margin: float = 0.0
    metric: str = ""
    """One of the task's other metrics; empty: the one that selects the model."""

    @property
    def pair(self) -> tuple[str | None, ...]:
        """The rungs. Their order does not matter where the hypothesis is the same in both."""
        if self.than is not None and self.kind in _SYMMETRIC:
            return tuple(sorted((self.rung, self.than)))
        return (self.rung, self.than)


class Hypothesis(NamedTuple):
    """What is counted once in the correction."""

    kind: str
    rungs: tuple[str | None, ...]
    margin: float
    opposite: bool
    """Whether it is the opposite of what `kind` states."""
    metric: str


def hypotheses(question: Question) -> tuple[Hypothesis, ...]:
    """The one that supports the question, and the one that contradicts it: the same for "better"."""
    opposites = (False,) if question.kind == "better" else (False, True)
    return tuple(
        Hypothesis(question.kind, question.pair, question.margin, opposite, question.metric) for opposite in opposites
    )


class PValue(NamedTuple):
    """Of one test of a question. If it is small enough, the question has this verdict."""

    hypothesis: Hypothesis
    p: float | None
    """None: there are results, but they allow no test."""
    verdict: str


def p_values(question: Question, mine: Side, other: Side, *, higher_is_better: bool) -> tuple[PValue, ...]:
    """Those of the tests of a question; differences are taken so that above 0 is better."""
    margin = question.margin
    found = _oriented(mine.counted, other.counted, higher_is_better)
    if question.kind == "better":
        verdict = SUPPORTED if found is not None and found.estimate > 0 else CONTRADICTED
        return (_p_value(question, None if found is None else found.p_value(), verdict),)
    supports = contradicts = None
    if question.kind in ("no-worse", "above-chance"):
        bound = -margin if question.kind == "no-worse" else margin
        if found is not None:
            supports, contradicts = found.p_above(bound), found.p_below(bound)
    else:
        # A diverged run is at chance by definition, which is no evidence that trained models stay there.
        support = found if question.than is not None else _oriented(mine.finished, other.finished, higher_is_better)
        supports = None if support is None else _larger(support.p_above(-margin), support.p_below(margin))
        contradicts = None if found is None else _either(found.p_above(margin), found.p_below(-margin))
    return (_p_value(question, supports, SUPPORTED), _p_value(question, contradicts, CONTRADICTED))


def _p_value(question: Question, p: float | None, verdict: str) -> PValue:
    return PValue(hypotheses(question)[-1 if verdict == CONTRADICTED else 0], p, verdict)


def _oriented(mine: Estimate | None, other: Estimate | None, higher_is_better: bool) -> MeanDifference | None:
    if mine is None or other is None:
        return None
    return statistics.between(mine, other) if higher_is_better else statistics.between(other, mine)


def _larger(above: float | None, below: float | None) -> float | None:
    """Of two one-sided tests that must both reject: equivalence."""
    return None if above is None or below is None else max(above, below)


def _either(above: float | None, below: float | None) -> float | None:
    """Of two one-sided tests of which one must reject: the smaller p, doubled."""
    return None if above is None or below is None else min(1.0, 2 * min(above, below))


# 3. Verdicts


class Comparison(Struct, frozen=True, kw_only=True):
    """A question with its two sides."""

    question: Question
    mine: Side
    other: Side
    metric: Metric
    set_aside: str = ""
    """A verdict that needs no test, as "not run". Such a comparison is not counted in the correction."""
    reason: str = ""
    """Of that verdict."""
    same_runs: bool = False
    """Whether both sides are the same runs, which is set aside too."""

    @property
    def p_values(self) -> tuple[PValue, ...]:
        if self.set_aside or self.same_runs:
            return ()
        return p_values(self.question, self.mine, self.other, higher_is_better=self.metric.higher_is_better)


class Judgement(Struct, frozen=True, kw_only=True):
    """The verdict on a comparison, and its numbers. Scores and differences are as the metric has them, not scaled."""

    kind: str
    rung: str
    than: str | None
    margin: float | None
    verdict: str
    difference: float | None = None
    """mean - than_mean, over all counted runs."""
    low: float | None = None
    high: float | None = None
    """Ends of its 95 % interval (Welch), not corrected for other comparisons."""
    p_adjusted: float | None = None
    """Of the statement, or of its opposite where the verdict is "contradicted": after Holm's correction."""
    p_unadjusted: float | None = None
    mean: float | None = None
    stderr: float | None = None
    n: int = 0
    diverged: int = 0
    than_mean: float | None = None
    than_stderr: float | None = None
    than_n: int = 0
    than_diverged: int = 0
    paired_low: float | None = None
    paired_high: float | None = None
    """Ends of the 95 % interval of the differences seed by seed, from five common seeds on."""
    seeds_to_decide: int | None = None
    """Seeds a side that would decide an undecided comparison if the true difference were the observed one."""
    same_runs: bool = False
    """Whether both sides are the same runs."""
    near_chance: bool = False
    """Whether both rungs are near chance: fewer than half of their seeds learn, the others score about chance."""
    neither_learns: bool = False
    """Whether both rungs are near chance and none of their seeds learns."""
    learning: int | None = None
    """Counted seeds of `rung` that learn; None where chance is not known or the metric declares no distance to it."""
    than_learning: int | None = None
    reason: str = ""
    """Why there is no test."""
    look: int | None = None
    """The seeds a side of the look of a sequential design that these numbers are from."""
    metric: str = ""
    """One of the task's other metrics; empty: the one that selects the model."""


def judge(comparisons: Sequence[Comparison], *, share: float = 1.0, count: int | None = None) -> list[Judgement]:
    """The verdicts on the comparisons of one table, in their order.

    Args:
        share: the part of the level that may be spent on them now: less than 1 at a look of a sequential design.
        count: the hypotheses to correct for, if there are more than those with results.
    """
    asked = [one.p_values for one in comparisons]
    unadjusted = {one.hypothesis: one.p for found in asked for one in found}
    others = 0 if count is None else count - len(unadjusted)
    adjusted = correct(unadjusted, share=share, others=others)
    remaining = sum(p > ALPHA for p in adjusted.values()) + others
    return [
        _judgement(one, found, adjusted, ALPHA * share / max(remaining, 1))
        for one, found in zip(comparisons, asked, strict=True)
    ]


_Key = TypeVar("_Key")


def correct(p_values: Mapping[_Key, float | None], *, share: float = 1.0, others: int = 0) -> dict[_Key, float]:
    """Holm's adjusted p of hypotheses where a share of the level may be spent, beside `others` that are not rejected.

    Results without a test (None) count as p = 1: whether there is a test can depend on the outcome.
    """
    spent = [1.0 if p is None else min(1.0, p / share) for p in p_values.values()]
    corrected = statistics.holm([*spent, *[1.0] * others])
    return {key: p for key, p in zip(p_values, corrected, strict=False) if p is not None}


def _judgement(
    comparison: Comparison, found: tuple[PValue, ...], adjusted: Mapping[Hypothesis, float], level: float
) -> Judgement:
    question, mine, other = comparison.question, comparison.mine, comparison.other
    deciding = next((one for one in found if adjusted[one.hypothesis] <= ALPHA), None)
    shown = deciding or next(iter(found), None)
    verdict = deciding.verdict if deciding else comparison.set_aside or UNDECIDED
    low = high = None
    if found and mine.counted is not None and other.counted is not None:
        low, high = statistics.between(mine.counted, other.counted).interval(_LEVEL) or (None, None)
    tested = shown is not None and shown.p is not None
    paired_low, paired_high = _paired(mine, other) or (None, None)
    near_chance = mine.near_chance and other.near_chance
    return Judgement(
        kind=question.kind,
        rung=question.rung,
        than=question.than,
        margin=question.margin if question.kind != "better" else None,
        metric=question.metric,
        verdict=verdict,
        difference=None if mine.mean is None or other.mean is None else mine.mean - other.mean,
        low=low,
        high=high,
        p_adjusted=adjusted[shown.hypothesis] if shown and tested else None,
        p_unadjusted=shown.p if shown else None,
        mean=mine.mean,
        stderr=mine.counted.stderr if mine.counted else None,
        n=mine.n,
        diverged=mine.diverged,
        than_mean=other.mean,
        than_stderr=other.counted.stderr if other.counted and question.than is not None else None,
        than_n=other.n,
        than_diverged=other.diverged,
        paired_low=paired_low,
        paired_high=paired_high,
        seeds_to_decide=_seeds(comparison, level) if verdict == UNDECIDED and tested else None,
        same_runs=comparison.same_runs,
        near_chance=near_chance,
        neither_learns=near_chance and not mine.learning and not other.learning,
        learning=mine.learning,
        than_learning=other.learning,
        reason=comparison.reason if not found else "" if tested else _why_no_test(comparison),
    )


def _why_no_test(comparison: Comparison) -> str:
    for one in (comparison.mine, comparison.other):
        if one.counted is None:
            return one.missing
    if comparison.question.kind == "at-chance" and comparison.mine.finished is None:
        return "diverged runs do not support that a model stays at chance"
    return "no spread: no test"


def _paired(mine: Side, other: Side) -> tuple[float, float] | None:
    """Seeds share initial values and batches, so that their differences may vary less than their scores."""
    common = mine.scores.keys() & other.scores.keys()
    if len(common) < 5:
        return None
    found = statistics.estimate([mine.scores[seed] - other.scores[seed] for seed in sorted(common)])
    return None if found is None else statistics.between(found, Estimate(mean=0.0)).interval(_LEVEL)


def _seeds(comparison: Comparison, level: float) -> int | None:
    """The seeds a side that would decide at the difference seen, at the level that Holm leaves to it now."""
    question, margin = comparison.question, comparison.question.margin
    mine, other = comparison.mine.counted, comparison.other.counted
    found = _oriented(mine, other, comparison.metric.higher_is_better)
    if mine is None or other is None or found is None:
        return None
    size = abs(found.estimate)
    distance, sides = {
        "better": (size, 2),
        "no-worse": (abs(found.estimate + margin), 1),
        "above-chance": (abs(found.estimate - margin), 1),
    }.get(question.kind, (abs(margin - size), 2 if size > margin else 1))
    seeds = statistics.seeds_to_decide(distance, mine, other, level / sides)
    return None if seeds is None else max(seeds, 1 + min(one.n for one in (mine, other) if one.n))
