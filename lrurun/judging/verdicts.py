"""The rule by which comparisons are judged, from the scores of runs as from the numbers of a paper.

1. **Scores.** `samples.sample` takes the scores of a rung's seeds: as ranks, where a run that diverged or finished
   without a usable score is below every other one, and as a mean, where it has the score of chance. `rounding` makes
   equal scores ties.
2. **Tests.** `tests` gives the p-values of a question: one of a two-sided test for "better", for the other questions
   one of the statement and one of its opposite. From `LEAST_SEEDS` a side on they compare ranks (`ranks`), which holds
   when seeds fail; with fewer seeds, and for the means of a paper, they are Welch's. Both are widened by what the
   choice of test items moves (`item_errors`). Each belongs to a hypothesis; equal kind, rungs and margin are one.
3. **Verdicts.** `judge` corrects the p-values of all hypotheses by Holm's method (`holm`). An adjusted p of at most 5 %
   decides the question: supported or contradicted. If there is none, it is undecided.

Steps 1 and 2 do not know of other comparisons, and step 3 does not know where the p-values come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from lrurun.data.metric import Metric
from lrurun.judging import holm, item_errors, ranks, rounding, statistics
from lrurun.judging.item_errors import ItemSpread, Shift
from lrurun.judging.samples import Sample
from lrurun.judging.statistics import ALPHA, MeanDifference

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
NOT_RUN, NOT_JUDGED = "not run", "not judged"
JUDGED = (SUPPORTED, CONTRADICTED, UNDECIDED)
"""The verdicts that a judgement ends in."""
OPEN = (NOT_RUN, NOT_JUDGED)
"""What stands in place of a verdict without a judgement."""
NOT_COMPARABLE = "not comparable"
"""How reports print the verdict on two rungs with the same runs; in JSON it is "undecided", with `same_runs`."""

LEAST_SEEDS = 12
"""Seeds a side from which on a verdict holds when seeds fail; with fewer it is provisional."""

Kind = Literal["better", "no-worse", "equal", "above-chance", "at-chance"]
_SYMMETRIC = ("better", "equal")


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
    p_of_seeds: float | None
    """The p value for these test items: of new seeds alone."""
    shift: Shift | None = None
    """The median difference of two runs, if this two-sided test compares ranks and the error of items is known."""


class _P(NamedTuple):
    """A p value for new seeds and new test items, and for new seeds alone; None where results allow no test."""

    p: float | None
    of_seeds: float | None

    def doubled(self) -> _P:
        """Twice the p, at most 1: for one of two directions."""
        return _P(*(None if p is None else min(1.0, 2 * p) for p in self))


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
        supports = _P(*(_of_all(max, p_values) for p_values in zip(*inside, strict=True)))
        contradicts = _P(*(_of_all(min, p_values) for p_values in zip(*outside, strict=True))).doubled()
    return (
        Test(statement, supports.p, SUPPORTED, supports.of_seeds),
        Test(opposite[0], contradicts.p, CONTRADICTED, contradicts.of_seeds),
    )


def _of_all(choose: Callable[[list[float]], float], p_values: Sequence[float | None]) -> float | None:
    known = [p for p in p_values if p is not None]
    return choose(known) if len(known) == len(p_values) else None


def _better(pair: Pair, hypothesis: Hypothesis) -> Test:
    """The two-sided test."""
    if not pair.by_ranks:
        mean, both = _mean_difference(pair), _with_items(pair)
        p_of_seeds = None if mean is None else mean.p_value()
        p = None if both is None else _largest(both.difference.p_value(), min(1.0, 2 * both.least_p), p_of_seeds or 0.0)
        return Test(hypothesis, p, SUPPORTED if mean and mean.estimate > 0 else CONTRADICTED, p_of_seeds)
    rank_test = ranks.p_values(pair.mine.ranked, pair.other.ranked)
    above, p_of_seeds = rank_test.above < rank_test.below, rank_test.two_sided
    shift, p = _median_shift(pair), p_of_seeds
    if shift is not None:
        agrees = (shift.value > 0) == above  # else the ranks are nearly even
        p = item_errors.combined(p_of_seeds, shift.p_not_zero() if agrees else 1.0, two_sided=True)
    return Test(hypothesis, p, SUPPORTED if above else CONTRADICTED, p_of_seeds, shift)


def _largest(*p_values: float | None) -> float | None:
    return _of_all(max, p_values)


def _tail(pair: Pair, bound: float, *, above: bool, finished: bool = False) -> _P:
    """One-sided p of the rung being better than the other side by more than `bound`, or by less."""
    if not pair.by_ranks:
        mean, both = _mean_difference(pair, finished=finished), _with_items(pair, bound, finished=finished)

        def p_of(difference: MeanDifference) -> float | None:
            return difference.p_above(bound) if above else difference.p_below(bound)

        p_of_seeds = None if mean is None else p_of(mean)
        return _P(
            None if both is None else _largest(p_of(both.difference), both.least_p, p_of_seeds or 0.0), p_of_seeds
        )
    if pair.question.other is None:
        p_of_seeds = _beyond_chance(pair, bound, above=above, finished=finished)
    else:
        digits = rounding.decimals([*pair.mine.ranked, *pair.other.ranked, bound])
        shifted = tuple(round(score - bound, digits) for score in pair.mine.ranked)
        rank_test = ranks.p_values(shifted, tuple(round(score, digits) for score in pair.other.ranked))
        p_of_seeds = rank_test.above if above else rank_test.below
    shift = _median_shift(pair, bound, finished=finished)
    if shift is None or p_of_seeds is None:
        return _P(p_of_seeds, p_of_seeds)
    p_of_items = (shift if above else shift.opposite).p_above()
    return _P(item_errors.combined(p_of_seeds, p_of_items, two_sided=False), p_of_seeds)


def _beyond_chance(pair: Pair, bound: float, *, above: bool, finished: bool) -> float | None:
    """The exact sign test against chance plus `bound`, or below it; a run without a score counts as chance itself."""
    if pair.other.mean is None:
        return None
    chance = pair.metric.oriented(pair.other.mean)
    scores = _against_chance(pair, finished=finished)
    digits = rounding.decimals([*scores, chance, bound])
    distances = [round(score - chance - bound, digits) for score in scores]
    return (
        ranks.sign_test(sum(distance > 0 if above else distance < 0 for distance in distances), len(distances))
        if scores
        else None
    )


def _against_chance(pair: Pair, *, finished: bool) -> list[float]:
    """The scores that are compared with chance; a run without one counts as chance itself."""
    scores = [score for score in pair.mine.ranked if math.isfinite(score)]
    return scores if finished else scores + [pair.metric.oriented(pair.other.mean or 0.0)] * pair.mine.without_score


# 2a. What the choice of test items moves


def _spreads(pair: Pair, *, finished: bool = False) -> tuple[ItemSpread, ItemSpread] | None:
    """How the scores of both sides depend on the choice of items; chance and runs without a score do not.
    None where that is not known."""
    mine, other = pair.mine.items, pair.other.items
    if pair.other.is_constant and mine is not None:
        other = item_errors.of_constant(mine, max(pair.other.n, 1))
    elif pair.mine.is_constant and other is not None:
        mine = item_errors.of_constant(other, pair.mine.n)
    if mine is None or other is None:
        return None
    return mine.first(len(mine.errors) - pair.mine.without_score) if finished else mine, other


def _median_shift(pair: Pair, bound: float = 0.0, *, finished: bool = False) -> Shift | None:
    """The median difference of two runs less `bound`, above 0 where the rung is better; None where the error from the
    choice of items is not known."""
    spreads = _spreads(pair, finished=finished)
    if spreads is None:
        return None
    if pair.question.other is not None:
        return item_errors.median_shift(pair.mine.ranked, pair.other.ranked, *spreads, bound)
    if pair.other.mean is None:
        return None
    scores = _against_chance(pair, finished=finished)
    return (
        item_errors.median_shift(scores, [pair.metric.oriented(pair.other.mean)], *spreads, bound) if scores else None
    )


def _mean_difference(pair: Pair, *, finished: bool = False, spread: bool = True) -> MeanDifference | None:
    """The difference of the means, above 0 where the rung is better.

    Without `spread`, sides whose error is the one of the test set have none: it is counted elsewhere.
    """
    sides = []
    for side in (pair.mine, pair.other):
        mean = side.finished if finished else side.counted
        if mean is not None and not spread and side.of_test_set(finished=finished):
            mean = structs.replace(mean, variance=0.0)
        sides.append(mean)
    mine, other = sides if pair.metric.higher_is_better else reversed(sides)
    return None if mine is None or other is None else statistics.between(mine, other)


class _WithItems(NamedTuple):
    """A difference of means with the error of seeds and items."""

    difference: MeanDifference
    of_seeds: MeanDifference
    """With the error of seeds alone."""
    least_p: float = 0.0
    """The least one-sided p that so few items allow on which the sides differ."""

    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval. It contains the interval of seeds alone, which few seeds may make wider: items add degrees
        of freedom."""
        intervals = [difference.interval(ranks.LEVEL) for difference in self[:2]]
        known = [interval for interval in intervals if interval is not None]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    def detectable(self) -> float | None:
        """The smallest true difference that is shown with 80 % power, see `MeanDifference.detectable`."""
        sizes = [difference.detectable() for difference in self[:2]]
        return max((size for size in sizes if size is not None), default=None)


def _with_items(pair: Pair, bound: float = 0.0, *, finished: bool = False) -> _WithItems | None:
    """The difference of the means; `bound` is what it is compared with."""
    spreads, mean = _spreads(pair, finished=finished), _mean_difference(pair, finished=finished)
    if mean is None or spreads is None:
        return None if mean is None else _WithItems(mean, mean)
    alone = _mean_difference(pair, finished=finished, spread=False)
    assert alone is not None
    shift = item_errors.mean_shift(alone.estimate * alone.unit, *spreads, bound)
    return _WithItems(alone.widened(shift.error, shift.df), alone, shift.least_p)


# 3. Verdicts


class Side(Struct, frozen=True, kw_only=True):
    """One side of a comparison, as reports show it. Scores are as the metric has them, not scaled."""

    rung: str | None
    """The rung; None for chance."""
    n: int = 0
    """Runs that are compared, those without a score among them; 0 for chance."""
    mean: float | None = None
    """The mean over all of them; a run without a score has the score of chance."""
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


Items = Literal["", "results", "number", "unknown", "none"]
"""What a comparison knows of the test items: the results on each of them; their number, which bounds the error of a
share; neither, so that the verdict is about these items. "none": there are no scores on test items, as of the
step of an escape, or of rungs of which all runs have diverged. Empty: it was not tested, or before this was known."""


class Comparison(Struct, frozen=True, kw_only=True):
    """A question with its verdict and numbers, from runs or from the numbers of a paper.

    Differences are of scores as the metric has them: where lower is better, a better rung has a negative one.
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
    """Ends of its 95 % interval (Welch), for new seeds and test items where `item_error` is known, else for new seeds;
    not corrected for other comparisons."""
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
    verdict_on_these_items: str = ""
    """The verdict for new seeds on these test items, where it is decided and that for other items is not."""
    p_on_these_items: float | None = None
    """The adjusted p for new seeds on these test items: of the statement, or of its opposite where that is what they
    contradict."""
    items_known: Items = ""
    item_error: float | None = None
    """The standard error of the difference of two typical runs from the choice of test items."""
    item_share: float | None = None
    """The share of test items in the variance of that difference; the rest is from seeds."""

    @property
    def is_tested(self) -> bool:
        return self.p_adjusted is not None

    @property
    def is_decided(self) -> bool:
        return self.verdict in (SUPPORTED, CONTRADICTED)

    @property
    def least_seeds(self) -> int:
        """The tested seeds of the side that has fewer; of the only side, against chance."""
        at_chance = self.kind == "at-chance"  # of runs with a score alone
        return min((side.n - side.without_score * at_chance for side in self.sides if side.rung is not None), default=0)


def judge(pairs: Sequence[Pair], *, share: float = 1.0, count: int | None = None) -> list[Comparison]:
    """The verdicts on the comparisons of one table, in their order.

    Args:
        share: the part of the level that may be spent on them now: less than 1 at a look of a sequential design.
        count: the hypotheses to correct for, if there are more than those with results.
    """
    tested = [tests(pair) for pair in pairs]
    unadjusted = {test.hypothesis: test.p for pair_tests in tested for test in pair_tests}
    rest = 0 if count is None else count - len(unadjusted)
    adjusted = holm.correct(unadjusted, share=share, rest=rest)
    p_of_seeds = {test.hypothesis: test.p_of_seeds for pair_tests in tested for test in pair_tests}
    of_seeds = holm.correct(p_of_seeds, share=share, rest=rest)
    return [_comparison(pair, pair_tests, adjusted, of_seeds) for pair, pair_tests in zip(pairs, tested, strict=True)]


def _comparison(
    pair: Pair, tested: tuple[Test, ...], adjusted: Mapping[Hypothesis, float], of_seeds: Mapping[Hypothesis, float]
) -> Comparison:
    mine, other = pair.mine, pair.other
    deciding = next((test for test in tested if adjusted[test.hypothesis] <= ALPHA), None)
    on_these = None if deciding else next((test for test in tested if of_seeds[test.hypothesis] <= ALPHA), None)
    leading = deciding or next(iter(tested), None)
    leading_on_these = on_these or leading
    has_p = leading is not None and leading.p is not None
    both = _with_items(pair) if tested else None
    interval = both.interval() if both else None
    if interval is not None and not pair.metric.higher_is_better:
        interval = -interval[1], -interval[0]
    low, high = interval or (None, None)
    has_improvement = bool(tested) and min(len(mine.ranked), len(other.ranked)) >= 2
    better = _two_sided(pair, tested) if has_improvement else None
    error = _item_part(pair, better) if tested else None
    improvement = None if better is None else _improvement(pair, error, better)
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
        improvement=improvement and improvement.estimate,
        improvement_low=improvement and improvement.low,
        improvement_high=improvement and improvement.high,
        p_adjusted=adjusted[leading.hypothesis] if leading and has_p else None,
        p_unadjusted=leading.p if leading else None,
        detectable=both.detectable() if both and pair.question.other is not None else None,
        same_runs=pair.same_runs,
        verdict_on_these_items=on_these.verdict if on_these else "",
        p_on_these_items=of_seeds[leading_on_these.hypothesis]
        if leading_on_these and leading_on_these.p_of_seeds is not None
        else None,
        items_known=_items(pair) if tested else "",
        item_error=error.size if error else None,
        item_share=error.share if error else None,
    )


def _items(pair: Pair) -> Items:
    if not pair.metric.of_test_items or (pair.mine.is_constant and pair.other.is_constant):
        return "none"
    spreads = _spreads(pair)
    if spreads is None:
        return "unknown"
    return "results" if all(side.influences is not None for side in spreads) else "number"


class _ItemPart(NamedTuple):
    """The standard error of a difference from the choice of test items, and its share in the variance."""

    size: float
    share: float | None


def _two_sided(pair: Pair, tested: Sequence[Test]) -> Test:
    """The test of whether one side is better: one of those that are made, or made beside them."""
    [better] = hypotheses(structs.replace(pair.question, kind="better"))
    return next((test for test in tested if test.hypothesis == better), None) or _better(pair, better)


def _item_part(pair: Pair, better: Test | None) -> _ItemPart | None:
    """The error of the difference of two typical runs; with few seeds, of the means."""
    if not pair.by_ranks:
        spreads, mean = _spreads(pair), _mean_difference(pair, spread=False)
        if spreads is None or mean is None:
            return None
        error = item_errors.mean_shift(mean.estimate * mean.unit, *spreads).error
        return _ItemPart(error, _share(error, (mean.stderr or 0.0) * mean.unit))
    shift = _median_shift(pair) if better is None else better.shift
    if shift is None:
        return None
    of_seeds = shift.of_seeds
    if of_seeds is None and pair.question.other is not None and math.isfinite(shift.value):
        # without an error from items there is no smoothed density
        z = item_errors.z_value(ranks.p_values(pair.mine.ranked, pair.other.ranked).two_sided / 2)
        of_seeds = abs(shift.value / z) if abs(z) > _EVEN else None
    return _ItemPart(shift.error, None if of_seeds is None else _share(shift.error, of_seeds))


def _share(of_items: float, of_seeds: float) -> float | None:
    """The share of the first error in the variance; None where both are 0."""
    both = math.hypot(of_items, of_seeds)
    return (of_items / both) ** 2 if both > 0 else None


_EVEN = 0.5
"""A z value below which the ranks of two sides are nearly even."""


def _improvement(pair: Pair, error: _ItemPart | None, better: Test) -> ranks.Improvement:
    """The chance of improvement with an interval that holds for other test items, too, where their error is known.

    Its half width grows as the standard error does. Where ranks are not even, it contains 1/2 if the test of this
    comparison alone does not decide, and from twelve seeds on items make it contain 1/2 only then: the error of seeds
    that are alike grows without bound.
    """
    on_these = ranks.improvement(pair.mine.ranked, pair.other.ranked)
    if error is None:
        return on_these
    estimate, low, high = on_these
    if error.share is not None:
        grown = 1 / math.sqrt(max(1 - error.share, 1e-12))
        low, high = estimate - grown * (estimate - low), estimate + grown * (high - estimate)
    z = item_errors.z_value((1.0 if better.p is None else better.p) / 2)
    half = abs(estimate - 0.5) * item_errors.z_value((1 - ranks.LEVEL) / 2) / z if z > 0 else abs(estimate - 0.5)
    low, high = min(low, estimate - half), max(high, estimate + half)
    if pair.by_ranks and 0.5 < estimate - half:
        low = max(low, min(on_these.low, estimate - half))
    elif pair.by_ranks and estimate + half < 0.5:
        high = min(high, max(on_these.high, estimate + half))
    return ranks.Improvement(estimate, max(0.0, low), min(1.0, high))


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
