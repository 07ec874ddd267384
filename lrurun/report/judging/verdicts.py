"""The rule by which comparisons are judged, from the scores of runs as from the numbers of a paper.

1. **Scores.** `sample` takes the scores of a rung's seeds: as ranks, where a run that diverged or finished without a
   usable score is below every other one, and as a mean, where it has the score of chance.
2. **Tests.** `tests` gives the p-values of a question: for "better" that of one two-sided test, for the other kinds
   those of the statement and of its opposite. From `LEAST_SEEDS` a side on they compare ranks (`judging.ranks`), which
   holds when seeds fail; with fewer seeds, and for the means of a paper, they are Welch's. Each belongs to a
   hypothesis; equal kind, rungs and margin are one.
3. **Verdicts.** `judge` corrects the p-values of all hypotheses by Holm's method. An adjusted p of at most 5 % decides
   the question: supported or contradicted. If there is none, it is undecided.

Steps 1 and 2 do not know of other comparisons, and step 3 does not know where the p-values come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from msgspec import Struct, structs

from lrurun.data.metric import Metric
from lrurun.report.judging import ranks, statistics
from lrurun.report.judging.statistics import ALPHA, Estimate, MeanDifference

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
NOT_RUN, NOT_JUDGED = "not run", "not judged"
NOT_COMPARABLE = "not comparable"
"""How reports print the verdict on two rungs with the same runs; in JSON it is "undecided", with `same_runs`."""

LEAST_SEEDS = 12
"""Seeds a side from which on a verdict holds when seeds fail; with fewer it is provisional."""

Kind = Literal["better", "no-worse", "equal", "above-chance", "at-chance"]
_SYMMETRIC = ("better", "equal")
_ACCIDENTAL = 3
"""A score that is further above chance than this many standard errors of the test set is no accident [ours]: of models
that predict at random, about one in 500 scores better."""
_DIGITS = 10
"""Decimals at which shifted scores are compared, significant ones of smaller scores: 0.93 less a margin of 0.03 equals
0.9."""


# 1. Scores


class Result(NamedTuple):
    """The result of a run for its rung."""

    seed: int
    score: float | None
    """The score; None if the run diverged or has no usable one."""
    unscored: bool = False
    """Whether it finished without a usable score."""


class Scoring(Struct, frozen=True, kw_only=True):
    """How the runs of a task are scored."""

    metric: Metric
    chance: float | None = None
    """The score in means of a run without one; None: not known."""
    items: int | None = None
    """Test sequences."""
    steps: int | None = None
    """The number of labels or sequences that the metric counts; None: the sequences."""

    @property
    def step(self) -> float | None:
        """The smallest difference between two scores; None for a continuous score."""
        return None if self.items is None else self.metric.step(self.steps or self.items)

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

    def is_better(self, score: float, other: float) -> bool:
        return score > other if self.metric.higher_is_better else score < other


class Sample(Struct, frozen=True, kw_only=True):
    """One side of a comparison: the scores of a rung's seeds, the mean of a paper, or a constant."""

    counted: Estimate | None
    """The mean over all runs; None below two, or where the score of a run without one is not known."""
    finished: Estimate | None
    """The mean over the runs with a score alone."""
    mean: float | None = None
    """The mean over all runs, also where there is one."""
    n: int = 0
    """Runs, those without a score among them; 0 for a constant."""
    diverged: int = 0
    unscored: int = 0
    """Runs that finished without a usable score."""
    ranked: tuple[float, ...] = ()
    """The scores of all runs as ranks need them: higher is better, whole steps of the metric, -inf for a run without
    one. Empty for a constant and for the mean of a paper."""
    learning: int | None = None
    """Seeds that learn: that score better than `Scoring.learns_from`; None where that is not known."""
    missing: str = ""
    """Why there is no test."""

    @property
    def without_score(self) -> int:
        """Runs that diverged, or finished without a usable score."""
        return self.diverged + self.unscored

    def of_test_set(self, *, finished: bool = False) -> bool:
        """Whether all runs, or the finished ones, show no spread, so that the error is that of the test set."""
        mean = self.finished if finished else self.counted
        return mean is not None and self.n > 0 and math.isinf(mean.df)


def sample(results: Sequence[Result], scoring: Scoring) -> Sample:
    """The runs of a rung as one side of comparisons."""
    scores = [result.score for result in results if result.score is not None]
    without, unscored = len(results) - len(scores), sum(result.unscored for result in results)
    unknown = without > 0 and scoring.chance is None
    counted = scores + [scoring.chance] * without if scoring.chance is not None else scores
    bound = scoring.learns_from
    return Sample(
        counted=None if unknown else estimate(counted, scoring),
        finished=estimate(scores, scoring),
        mean=None if unknown else statistics.mean(counted),
        n=len(results),
        diverged=without - unscored,
        unscored=unscored,
        ranked=(*(_ranked(score, scoring) for score in scores), *[-math.inf] * without),
        learning=None if bound is None else sum(scoring.is_better(score, bound) for score in scores),
        missing=f"runs {'have no usable score' if unscored else 'diverged'}, and chance is not known on this task"
        if unknown
        else "n = 1: no test",
    )


def _ranked(score: float, scoring: Scoring) -> float:
    """Higher is better, in whole steps: scores are recorded in float32, so that equal ones may differ in last bits."""
    step = scoring.step
    return scoring.metric.oriented(score if step is None else round(score / step) * step)


def estimate(scores: Sequence[float], scoring: Scoring) -> Estimate | None:
    """The mean of scores; None below two.

    Seeds that differ by less than one step of the metric show no spread, and a variance of 0 would make any difference
    significant. The test set is finite, so that the mean has at least the variance of a score on that many items:
    sequences, as labels of one may depend on each other. The seeds share the items: the variance is not divided by
    their number, and more seeds do not reduce it.
    """
    observed = statistics.estimate(scores)
    if observed is None or scoring.items is None or scoring.step is None:
        return observed
    variance = scoring.metric.variance(observed.mean, scoring.items)
    # Scores are recorded in float32: one step less a rounding error is still one step.
    if variance is None or max(scores) - min(scores) >= scoring.step * (1 - 1e-4):
        return observed
    return Estimate(mean=observed.mean, variance=variance, df=math.inf, n=observed.n)


def constant(scoring: Scoring) -> Sample:
    """Chance as one side of comparisons: what a model scores at best that has learned nothing."""
    chance = scoring.best_chance
    if chance is None:
        return Sample(counted=None, finished=None, missing="chance is not known on this task")
    mean = Estimate(mean=chance)
    return Sample(counted=mean, finished=mean, mean=chance)


# 2. Tests


class Question(Struct, frozen=True, kw_only=True):
    """The question of a comparison: whether `rung` is better than `other`, equal to it, above chance, ..."""

    kind: Kind
    rung: str
    other: str | None = None
    """The rung that it is compared with; None for chance."""
    margin: float = 0.0
    metric: str = ""
    """One of the task's other metrics; empty: the one that selects the model."""

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.rung,) if self.other is None else (self.rung, self.other)


class Hypothesis(NamedTuple):
    """A hypothesis of the correction, which counts equal ones once."""

    kind: str
    rungs: tuple[str, ...]
    margin: float
    opposite: bool
    """Whether the hypothesis is the opposite of what `kind` states."""
    metric: str


def hypotheses(question: Question) -> tuple[Hypothesis, ...]:
    """The one that supports the question, and the one that contradicts it: the same for "better"."""
    opposites = (False,) if question.kind == "better" else (False, True)
    rungs = tuple(sorted(question.rungs)) if question.kind in _SYMMETRIC else question.rungs
    return tuple(Hypothesis(question.kind, rungs, question.margin, opposite, question.metric) for opposite in opposites)


class Pair(Struct, frozen=True, kw_only=True):
    """A question with its two sides, to be judged."""

    question: Question
    mine: Sample
    other: Sample
    metric: Metric
    set_aside: str = ""
    """A verdict that needs no test, as "not run". Such a pair is not counted in the correction."""
    reason: str = ""
    """The reason of that verdict."""
    same_runs: bool = False
    """Whether both sides are the same runs, which is set aside too."""

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses that the correction counts."""
        return () if self.set_aside or self.same_runs else hypotheses(self.question)

    @property
    def by_ranks(self) -> bool:
        """Whether both sides have the seeds that the rank test needs; a constant has none."""
        sides = [side for side in (self.mine, self.other) if side.n]
        return all(self.seeds(side) >= LEAST_SEEDS for side in sides)

    def seeds(self, side: Sample) -> int:
        """The runs of a side that are tested: one without a score says nothing about whether models stay at chance."""
        return len(side.ranked) - (side.without_score if self.question.kind == "at-chance" else 0)


class Test(NamedTuple):
    """One test of a question. If p is small enough, the question has this verdict."""

    hypothesis: Hypothesis
    p: float | None
    """The p value; None where there are results, but they allow no test."""
    verdict: str


def tests(pair: Pair) -> tuple[Test, ...]:
    """The tests of a question; none for a pair that is set aside."""
    question, margin = pair.question, pair.question.margin
    if not pair.hypotheses:
        return ()
    statement, *opposite = pair.hypotheses
    if question.kind == "better":
        return (_better(pair, statement),)
    if question.kind in ("no-worse", "above-chance"):
        bound = -margin if question.kind == "no-worse" else margin
        supports, contradicts = _tail(pair, bound, above=True), _tail(pair, bound, above=False)
    else:
        # A run without a score is at chance by definition, which is no evidence that trained models stay there.
        finished = question.other is None
        inside = [_tail(pair, bound, above=bound < 0, finished=finished) for bound in (-margin, margin)]
        outside = [_tail(pair, bound, above=bound > 0) for bound in (-margin, margin)]
        # equivalence: both must reject; its opposite: one of two
        supports = None if None in inside else max(p for p in inside if p is not None)
        contradicts = None if None in outside else min(1.0, 2 * min(p for p in outside if p is not None))
    return (Test(statement, supports, SUPPORTED), Test(opposite[0], contradicts, CONTRADICTED))


def _better(pair: Pair, hypothesis: Hypothesis) -> Test:
    """The two-sided test. Where a side spans less than one step, the larger p of ranks and of the test set's error, in
    the direction that the ranks have."""
    mean = _mean_difference(pair)
    p = None if mean is None else mean.p_value()
    above = mean is not None and mean.estimate > 0
    if pair.by_ranks:
        rank_test = ranks.p_values(pair.mine.ranked, pair.other.ranked)
        above, one_sided = rank_test.above < rank_test.below, None
        if mean is not None and _of_test_set(pair):
            one_sided = mean.p_above(0.0) if above else mean.p_below(0.0)
        p = max(rank_test.two_sided, min(1.0, 2 * (one_sided or 0.0)))
    return Test(hypothesis, p, SUPPORTED if above else CONTRADICTED)


def _tail(pair: Pair, bound: float, *, above: bool, finished: bool = False) -> float | None:
    """One-sided p of the rung being better than the other side by more than `bound`, or by less."""
    mean = _mean_difference(pair, finished=finished)
    p = None if mean is None else mean.p_above(bound) if above else mean.p_below(bound)
    if not pair.by_ranks:
        return p
    if pair.question.other is None:
        by_ranks = _beyond_chance(pair, bound, above=above, finished=finished)
    else:
        digits = _digits([*pair.mine.ranked, *pair.other.ranked, bound])
        shifted = tuple(round(score - bound, digits) for score in pair.mine.ranked)
        rank_test = ranks.p_values(shifted, tuple(round(score, digits) for score in pair.other.ranked))
        by_ranks = rank_test.above if above else rank_test.below
    of_test_set = _of_test_set(pair, finished=finished)
    return by_ranks if by_ranks is None or not of_test_set else max(by_ranks, p or 0.0)


def _beyond_chance(pair: Pair, bound: float, *, above: bool, finished: bool) -> float | None:
    """The exact sign test against chance plus `bound`, or below it; a run without a score counts as chance itself."""
    if pair.other.mean is None:
        return None
    chance = pair.metric.oriented(pair.other.mean)
    scores = [score for score in pair.mine.ranked if math.isfinite(score)]
    if not finished:
        scores += [chance] * pair.mine.without_score
    digits = _digits([*scores, chance, bound])
    distances = [round(score - chance - bound, digits) for score in scores]
    return (
        ranks.sign_test(sum(distance > 0 if above else distance < 0 for distance in distances), len(distances))
        if scores
        else None
    )


def _digits(numbers: Sequence[float]) -> int:
    """The decimals at which numbers of this size are compared."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    return _DIGITS if largest == 0 or largest > 1e-3 else _DIGITS - math.floor(math.log10(largest))


def _of_test_set(pair: Pair, *, finished: bool = False) -> bool:
    return pair.mine.of_test_set(finished=finished) or pair.other.of_test_set(finished=finished)


def _mean_difference(pair: Pair, *, finished: bool = False) -> MeanDifference | None:
    """The difference of the means, above 0 where the rung is better."""
    sides = [side.finished if finished else side.counted for side in (pair.mine, pair.other)]
    mine, other = sides if pair.metric.higher_is_better else reversed(sides)
    return None if mine is None or other is None else statistics.between(mine, other)


# 3. Verdicts


class Side(Struct, frozen=True, kw_only=True):
    """One side of a comparison, as reports show it. Scores are as the metric has them, not scaled."""

    rung: str | None
    """The rung; None for chance."""
    n: int = 0
    """Runs that are compared, those without a score among them; 0 for chance."""
    mean: float | None = None
    """The mean over all of them, those without a score with that of chance."""
    stderr: float | None = None
    diverged: int = 0
    unscored: int = 0
    """Runs that finished without a usable score, which rank as diverged ones do."""
    learning: int | None = None
    """Seeds that learn; None where chance is not known or the metric declares no distance to it."""

    @property
    def failures(self) -> int:
        """Seeds that do not learn, as far as that is known."""
        return self.without_score if self.learning is None else self.n - self.learning

    @property
    def without_score(self) -> int:
        """Runs that diverged, or finished without a usable score."""
        return self.diverged + self.unscored


class Comparison(Struct, frozen=True, kw_only=True):
    """A question with its verdict and numbers, from runs or from the numbers of a paper.

    Differences are those of the scores as the metric has them: where lower is better, a better rung has a negative one.
    """

    kind: str
    rung: str
    other: str | None
    """The rung that it is compared with; None for chance."""
    margin: float | None = None
    metric: str = ""
    """One of the task's other metrics; empty: the one that selects the model."""
    verdict: str
    provisional: bool = False
    """Whether a side has fewer than twelve seeds: the verdict then assumes that no seed fails."""
    sides: tuple[Side, ...] = ()
    """The sides of `rung` and of `other`."""
    difference: float | None = None
    """The difference of the means."""
    low: float | None = None
    high: float | None = None
    """Ends of its 95 % interval (Welch), not corrected for other comparisons."""
    improvement: float | None = None
    """The chance that a run of `rung` scores better than one of `other`, ties counting half."""
    improvement_low: float | None = None
    improvement_high: float | None = None
    """Ends of its 95 % interval, not corrected for other comparisons."""
    p_adjusted: float | None = None
    """The p value of the statement, or of its opposite where the verdict is "contradicted", after Holm's correction."""
    p_unadjusted: float | None = None
    detectable: float | None = None
    """The smallest true difference of the means that these seeds show with 80 % power at a level of 5 %, not
    corrected, if the scores are Gaussian with the spreads seen."""
    same_runs: bool = False
    """Whether both sides are the same runs."""
    reason: str = ""
    """Why there is no test."""
    look: int | None = None
    """The seeds a side of the look of a sequential design that these numbers are from."""

    @property
    def is_tested(self) -> bool:
        return self.p_adjusted is not None

    @property
    def is_decided(self) -> bool:
        return self.verdict in (SUPPORTED, CONTRADICTED)


def judge(pairs: Sequence[Pair], *, share: float = 1.0, count: int | None = None) -> list[Comparison]:
    """The verdicts on the comparisons of one table, in their order.

    Args:
        share: the part of the level that may be spent on them now: less than 1 at a look of a sequential design.
        count: the hypotheses to correct for, if there are more than those with results.
    """
    tested = [tests(pair) for pair in pairs]
    unadjusted = {test.hypothesis: test.p for some in tested for test in some}
    adjusted = correct(unadjusted, share=share, rest=0 if count is None else count - len(unadjusted))
    return [_comparison(pair, some, adjusted) for pair, some in zip(pairs, tested, strict=True)]


_Key = TypeVar("_Key")


def correct(p_values: Mapping[_Key, float | None], *, share: float = 1.0, rest: int = 0) -> dict[_Key, float]:
    """Holm's adjusted p of hypotheses where a share of the level may be spent; `rest` more are not rejected.

    Results without a test (None) count as p = 1: whether there is a test can depend on the outcome.
    """
    spent = [1.0 if p is None else min(1.0, p / share) for p in p_values.values()]
    corrected = statistics.holm([*spent, *[1.0] * rest])
    return {key: p for key, p in zip(p_values, corrected, strict=False) if p is not None}


def _comparison(pair: Pair, tested: tuple[Test, ...], adjusted: Mapping[Hypothesis, float]) -> Comparison:
    mine, other = pair.mine, pair.other
    deciding = next((test for test in tested if adjusted[test.hypothesis] <= ALPHA), None)
    leading = deciding or next(iter(tested), None)
    has_p = leading is not None and leading.p is not None
    mean = statistics.between(mine.counted, other.counted) if tested and mine.counted and other.counted else None
    low, high = (mean.interval(ranks.LEVEL) if mean else None) or (None, None)
    comparable = tested and min(len(mine.ranked), len(other.ranked)) >= 2
    improvement = ranks.improvement(mine.ranked, other.ranked) if comparable else (None, None, None)
    return structs.replace(
        untested(
            pair.question,
            deciding.verdict if deciding else pair.set_aside or UNDECIDED,
            pair.reason if not tested else "" if has_p else _why_no_test(pair),
        ),
        provisional=bool(tested) and any(side.ranked and pair.seeds(side) < LEAST_SEEDS for side in (mine, other)),
        sides=(side_of(pair.question.rung, mine), side_of(pair.question.other, other)),
        difference=None if mine.mean is None or other.mean is None else statistics.difference(mine.mean, other.mean),
        low=low,
        high=high,
        improvement=improvement[0],
        improvement_low=improvement[1],
        improvement_high=improvement[2],
        p_adjusted=adjusted[leading.hypothesis] if leading and has_p else None,
        p_unadjusted=leading.p if leading else None,
        detectable=mean.detectable() if mean and pair.question.other is not None else None,
        same_runs=pair.same_runs,
    )


def untested(question: Question, verdict: str, reason: str) -> Comparison:
    """A comparison without numbers."""
    return Comparison(
        kind=question.kind,
        rung=question.rung,
        other=question.other,
        margin=question.margin if question.kind != "better" else None,
        metric=question.metric,
        verdict=verdict,
        reason=reason,
    )


def side_of(name: str | None, side: Sample) -> Side:
    """The numbers of a sample; `name` is its rung, None for chance."""
    return Side(
        rung=name,
        n=side.n,
        mean=side.mean,
        stderr=side.counted.stderr if side.counted and side.n else None,
        diverged=side.diverged,
        unscored=side.unscored,
        learning=side.learning,
    )


def _why_no_test(pair: Pair) -> str:
    for side in (pair.mine, pair.other):
        if side.counted is None:
            return side.missing
    if pair.question.kind == "at-chance" and pair.mine.finished is None:
        runs = "runs without a usable score" if pair.mine.unscored else "diverged runs"
        return f"{runs} do not support that a model stays at chance"
    return "no spread: no test"
