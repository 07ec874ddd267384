"""The rule of verdicts against another implementation of it, and its cases worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from msgspec import structs

from lrurun import items
from lrurun.data.metric import Accuracy, Metric
from lrurun.judging import samples, verdicts, wording
from lrurun.judging.samples import Result, Sample, Scoring
from lrurun.judging.scores import form_of
from lrurun.judging.verdicts import Comparison, Pair, Question
from tests.harness import rule
from tests.harness.rule import Asked

ITEMS = 300
SCORING = Scoring(metric=Accuracy(chance=0.1), chance=0.1)
"""Of an unknown number of test items: verdicts are about seeds alone."""
ON_ITEMS = structs.replace(SCORING, items=ITEMS)
BITS = Scoring(metric=Metric(name="bits", unit="bits", higher_is_better=False, chance=8.0, near_chance=0.5), chance=8.0)
KINDS = ("better", "no-worse", "equal", "above-chance", "at-chance")


def sample(scores: Iterable[float | None], scoring: Scoring = SCORING, values: Any = None) -> Sample:
    """Runs with these scores, None for a diverged one, of seeds 0, 1, ...; `values` of single items are for each."""

    def results(seed: int, score: float | None) -> items.ItemResults | None:
        if values is None or score is None:
            return None
        return items.ItemResults(test_set=items.TestSet(count=len(values[seed])), sums=values[seed])

    return samples.sample([Result(k, score, False, results(k, score)) for k, score in enumerate(scores)], scoring)


def pair(kind: Any, mine: Sample, other: Sample | None = None, margin: float = 0.0, **more: Any) -> Pair:
    scoring = more.pop("scoring", SCORING)
    base = more.pop("base", "a")
    names = {"rung": more.pop("rung", "b"), "other": base if other else None}
    return Pair(
        question=Question(kind=kind, margin=margin, **names),
        mine=mine,
        other=other or samples.constant(scoring),
        metric=scoring.metric,
        **more,
    )


def judged(
    kind: str,
    mine: Sequence[float | None],
    other: Sequence[float | None] | None = None,
    margin: float = 0.0,
    scoring: Scoring = SCORING,
) -> Comparison:
    """The verdict on one comparison alone."""
    sides = [None if one is None else sample(one, scoring) for one in (mine, other)]
    assert sides[0] is not None
    [found] = verdicts.judge([pair(kind, sides[0], sides[1], margin, scoring=scoring)])
    return found


# Another implementation


def random_scores(random: np.random.Generator, seeds: tuple[int, int], task: rule.Task) -> list[float | None]:
    """Of a rung: Gaussian, in steps of one item, without spread, or with seeds that fail; some runs diverge."""
    level, spread = random.choice([0.1, 0.5, 0.9, 0.93, 0.95]), random.choice([0.002, 0.01, 0.05])
    scores = random.normal(level, spread, random.integers(*seeds, endpoint=True))
    form = random.integers(4)
    if form == 1:
        scores = np.round(scores * ITEMS) / ITEMS
    elif form == 2:
        scores = np.full(len(scores), round(level * ITEMS) / ITEMS)
    elif form == 3:
        scores[random.random(len(scores)) < 0.3] = 0.1
    if task.sign < 0:
        scores = (1 - scores) * 8
    return [None if random.random() < 0.1 else float(score) for score in scores]


def random_values(
    random: np.random.Generator, hard: Any, seeds: tuple[int, int], labels: int
) -> tuple[list[float | None], Any]:
    """Of a rung: scores, and the share of the labels of each item that each run has right: alike, at random, or all
    right; some runs fail."""
    n = random.integers(*seeds, endpoint=True)
    logits = hard + random.normal(0, random.choice([0.1, 3]), ITEMS) + random.choice([1, 4])
    luck = random.random((labels, n, ITEMS))
    values = (luck < 1 / (1 + np.exp(-logits - random.normal(0, 0.1, (n, 1))))).mean(0)
    form = random.integers(5)
    if form == 1:
        values[:] = values[0]
    elif form == 2:
        values[:] = 1
    elif form == 3:
        values[random.random(n) < 0.3] = random.random(ITEMS) < 0.1
    return [None if random.random() < 0.1 else float(row.mean()) for row in values], values


def random_ladder(random: np.random.Generator, rungs: Sequence[str], unit: float) -> Iterator[Asked]:
    """Differences to the previous rung, then claims."""
    for base, rung in itertools.pairwise(rungs):
        yield Asked("better", rung, base)
    for _ in range(random.integers(0, 6)):
        kind = str(random.choice(KINDS))
        rung, other = (str(one) for one in random.choice(rungs, 2, replace=False))
        margin = 0.0 if kind == "better" else unit * float(random.choice([0.005, 0.1]))
        yield Asked(kind, rung, None if kind.endswith("chance") else other, margin)


KNOWN = ("unknown", "number", "results", "some results", "results with labels")
"""What is known of the test items."""


@pytest.mark.parametrize("known", KNOWN)
def test_another_implementation_gives_the_same_verdicts(known: str) -> None:
    ladders = 12 if known in ("results", "results with labels") else 8
    random = np.random.default_rng(29 + KNOWN.index(known))
    seen = set()
    unsure = 0
    for number in range(ladders):
        seeds = ((1, 8), (12, 24), (2, 8), (2, 24))[number % 4]
        scoring, task = ON_ITEMS, rule.Task(0.1, ITEMS)
        rungs = list("abcdef")[: random.integers(2, 5)]
        if known == "unknown":
            lower = number % 3 == 2
            scoring, task = (BITS, rule.Task(8.0, None, -1)) if lower else (SCORING, rule.Task(0.1, None))
        runs = {rung: random_scores(random, seeds, task) for rung in rungs}
        if "results" in known:
            labels = 7 if "labels" in known else 1
            scoring, task = structs.replace(scoring, steps=ITEMS * labels), task._replace(labels=labels)
            hard = random.normal(0, 1.5, ITEMS)
            made = {rung: random_values(random, hard, seeds, labels) for rung in rungs}
            runs = {rung: scores for rung, (scores, _) in made.items()}
            with_results = rungs[1:] if known == "some results" else rungs
            task = task._replace(results={rung: made[rung][1] for rung in with_results})
        asked = list(random_ladder(random, rungs, 1 if task.sign > 0 else 8))
        by_rung = {rung: sample(scores, scoring, task.results.get(rung)) for rung, scores in runs.items()}
        found = verdicts.judge(
            [
                pair(
                    one.kind,
                    by_rung[one.rung],
                    by_rung[one.other] if one.other else None,
                    one.margin,
                    rung=one.rung,
                    base=one.other,
                    scoring=scoring,
                )
                for one in asked
            ]
        )
        of_seeds = rule.judge(asked, runs, task._replace(seeds_alone=True))
        for one, comparison, expected, on_these in zip(
            asked, found, rule.judge(asked, runs, task), of_seeds, strict=True
        ):
            unsure += not (expected.sure and on_these.sure)
            if not (expected.sure and on_these.sure):
                continue
            case = (one, runs, comparison, expected, on_these)
            assert comparison.verdict == expected.verdict, case
            assert expected.agrees(comparison.p_adjusted), case
            assert on_these.agrees(comparison.p_on_these_items), case
            decided_on_these = on_these.verdict != "undecided" and expected.verdict == "undecided"
            assert comparison.verdict_on_these_items == (on_these.verdict if decided_on_these else ""), case
            assert comparison.p_adjusted is not None or comparison.reason
            sizes = [len(runs[rung]) for rung in (one.rung, one.other) if rung is not None]
            counted = [score for score in runs[one.rung] if one.kind != "at-chance" or score is not None]
            assert comparison.provisional == (min(len(counted), *sizes) < 12)
            seen |= {comparison.verdict, (one.kind, min(sizes) < 12), decided_on_these}
    assert unsure < 0.2 * 6 * ladders
    assert seen >= {"supported", "contradicted", "undecided", known in ("number", "results")}
    assert {kind for kind in KINDS if (kind, True) in seen or (kind, False) in seen} == set(KINDS)


@pytest.mark.parametrize("n", [2, 3, 11])
def test_below_twelve_seeds_it_is_welchs_test(n: int) -> None:
    random = np.random.default_rng(1)
    mine, other = random.normal(0.9, 0.02, n).tolist(), random.normal(0.88, 0.02, 20).tolist()
    found = judged("better", mine, other)
    test = scipy.stats.ttest_ind(mine, other, equal_var=False)
    assert found.p_adjusted == found.p_unadjusted == pytest.approx(test.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)
    assert found.provisional
    assert judged("better", random.normal(0.9, 0.02, 12).tolist(), other).provisional is False


# By hand, with few seeds

HIGH, LOW = [0.95, 0.96, 0.955], [0.90, 0.91, 0.92]
"""0.955 and 0.91, variances 0.000025 and 0.0001: t = 0.045 / sqrt(0.000125 / 3) = 6.971, 2.941 degrees of freedom."""


def test_better() -> None:
    found = judged("better", HIGH, LOW)
    assert (found.verdict, found.margin, found.provisional) == ("supported", None, True)
    assert [(side.rung, side.n) for side in found.sides] == [("b", 3), ("a", 3)]
    assert found.difference == pytest.approx(0.045)
    assert found.p_adjusted == pytest.approx(0.00646, abs=5e-6)
    assert found.improvement == 1
    assert judged("better", LOW, HIGH).verdict == "contradicted"
    assert judged("better", LOW, LOW).verdict == "undecided"


def test_all_diverged_is_as_bad_as_chance() -> None:
    step = 0.006 * math.sqrt(3)
    mine = [0.976 - step, 0.976, 0.976 + step]
    found = judged("better", mine, [None] * 3, scoring=ON_ITEMS)
    other = found.sides[1]
    assert (found.verdict, other.diverged, other.n, other.learning) == ("supported", 3, 3, 0)
    assert (other.mean, other.stderr) == (pytest.approx(0.1), pytest.approx(0.01732, abs=5e-6))
    assert found.difference == pytest.approx(0.876)
    # Standard errors: 0.006 from seeds; from items, that of a typical run. Runs without a score depend on neither.
    of_items = np.mean([math.sqrt(score * (1 - score) / ITEMS) for score in mine])
    total = 0.006**2 + of_items**2
    half = max(
        scipy.stats.t.isf(0.025, total**2 / (0.006**4 / 2)) * math.sqrt(total), scipy.stats.t.isf(0.025, 2) * 0.006
    )
    assert (found.low, found.high) == pytest.approx((0.876 - half, 0.876 + half))
    # for these items, the mean of equal scores has the error of the test set: sqrt(0.1 * 0.9 / 300) = 0.01732
    assert found.p_on_these_items == pytest.approx(2 * scipy.stats.t.sf(0.876 / 0.01833, 174.2), rel=0.01, abs=1e-12)
    assert judged("better", [None] * 3, [None] * 3).verdict == "undecided"


@pytest.mark.parametrize("seeds", [3, 12])
def test_where_all_runs_of_both_sides_have_diverged_test_items_do_not_matter(seeds: int) -> None:
    found = judged("better", [None] * seeds, [None] * seeds, scoring=ON_ITEMS)
    assert (found.verdict, found.items_known, found.item_error) == ("undecided", "none", None)
    assert judged("better", [None] * seeds, [0.9, *[None] * (seeds - 1)], scoring=ON_ITEMS).items_known == "number"
    assert judged("at-chance", [None] * seeds, margin=0.1, scoring=ON_ITEMS).items_known == "none"


def test_one_survivor_hides_what_chance_alone_would_show() -> None:
    # 0.9, 0.1, 0.1: mean 0.3667, standard error 0.2667
    found = judged("better", [0.9, None, None], LOW)
    mine = found.sides[0]
    assert (found.verdict, mine.diverged, mine.learning, mine.failures) == ("undecided", 2, 1, 2)
    assert (mine.mean, mine.stderr) == (pytest.approx(11 / 30), pytest.approx(0.8 / 3))


def test_seeds_without_spread_have_the_error_of_the_test_set() -> None:
    # Variances 0.8 * 0.2 / 300 and 0.7 * 0.3 / 300, not divided by 3: z = 0.1 / 0.03512 = 2.847
    found = judged("better", [0.8] * 3, [0.7] * 3, scoring=ON_ITEMS)
    assert found.p_adjusted == pytest.approx(0.00441, abs=5e-6)
    # more seeds share the items; twelve wins in a row have an error of their own
    firm = judged("better", [0.8] * 12, [0.7] * 12, scoring=ON_ITEMS)
    z = np.array([scipy.stats.norm.isf(2.0**-12), 0.1 / 0.035119])
    assert firm.p_adjusted == pytest.approx(2 * scipy.stats.norm.sf((z**-2).sum() ** -0.5), rel=1e-3)
    assert firm.item_error == pytest.approx(0.035119, rel=1e-4)
    assert judged("better", [0.8] * 12, [0.79] * 12, scoring=ON_ITEMS).verdict == "undecided"
    # All items correct: one item decides. 1 - 0.99 = 3 items: z = 0.01 / sqrt((1/300)^2 + 0.99 * 0.01 / 300) = 1.5
    assert judged("better", [1.0] * 3, [0.99] * 3, scoring=ON_ITEMS).p_adjusted == pytest.approx(
        2 * scipy.stats.norm.sf(1.50), abs=0.002
    )
    # One item apart is spread.
    assert judged("better", [0.8, 0.8 + 1 / 300, 0.8], [0.7] * 3, scoring=ON_ITEMS).sides[0].stderr == pytest.approx(
        1 / 900
    )
    # Five labels a sequence: a score moves by one of 1,500 labels, and the floor remains that of 300 sequences.
    by_label = structs.replace(ON_ITEMS, steps=5 * ITEMS)
    assert not sample([0.8, 0.8 + 1 / 1500, 0.8], by_label).of_test_set()
    assert sample([0.8] * 3, by_label).counted == sample([0.8] * 3, ON_ITEMS).counted
    assert by_label.learns_from == ON_ITEMS.learns_from
    # Scores without a smallest step have no such floor.
    found = judged("better", [0.8] * 3, [0.7] * 3, scoring=Scoring(metric=Metric(name="r2", unit=""), items=ITEMS))
    assert (found.verdict, found.reason, found.p_adjusted) == ("undecided", "no spread: no test", None)


def test_one_seed_is_no_test_but_counts() -> None:
    found = judged("better", [0.9], [0.8, 0.81])
    assert (found.verdict, found.reason, found.difference) == ("undecided", "n = 1: no test", pytest.approx(0.095))
    assert (found.provisional, found.improvement) == (True, None)
    both = verdicts.judge(
        [pair("better", sample(HIGH), sample(LOW)), pair("better", sample([0.9]), sample(LOW), rung="c", base="b")]
    )
    assert both[0].p_adjusted == pytest.approx(2 * 0.00646, abs=1e-5)


def test_chance_that_is_not_known_leaves_diverged_runs_without_a_mean() -> None:
    unknown = Scoring(metric=Accuracy(), items=ITEMS)
    found = judged("better", [*HIGH, None], LOW, scoring=unknown)
    assert (found.verdict, found.reason) == ("undecided", "runs diverged, and chance is not known on this task")
    assert judged("better", HIGH, LOW, scoring=unknown).verdict == "supported"
    # ranks need no score of a diverged run
    found = judged("better", SPREAD, [*FAR, None], scoring=unknown)
    assert (found.verdict, found.difference, found.sides[1].mean) == ("supported", None, None)


def test_what_is_set_aside_is_not_counted() -> None:
    alone = judged("better", HIGH, LOW)
    found = verdicts.judge(
        [
            pair("better", sample(HIGH), sample(LOW)),
            pair("better", sample([]), sample(LOW), rung="c", set_aside="not run", reason="no finished runs of c"),
            pair("better", sample(LOW), sample(LOW), rung="a", same_runs=True, reason="a and a are the same runs"),
        ]
    )
    assert found[0].p_adjusted == alone.p_adjusted
    assert [(one.verdict, one.p_adjusted) for one in found[1:]] == [("not run", None), ("undecided", None)]
    assert found[2].same_runs


def test_equal_kind_rungs_and_margin_are_one_hypothesis() -> None:
    def p(*pairs: Pair) -> list[float | None]:
        return [one.p_adjusted for one in verdicts.judge(list(pairs))]

    b, a = sample(HIGH), sample(LOW)
    alone = p(pair("better", b, a))
    assert p(pair("better", b, a), pair("better", b, a)) == alone * 2
    mirrored = p(pair("better", b, a), pair("better", a, b, rung="a", base="b"))
    assert mirrored == pytest.approx(alone * 2)
    # A statement with a margin counts twice: it and its opposite.
    assert p(pair("better", b, a), pair("no-worse", b, a, 0.01))[0] == pytest.approx(2 * (alone[0] or 0))
    two_margins = [pair("no-worse", b, a, margin) for margin in (0.01, 0.02)]
    assert p(pair("better", b, a), *two_margins)[0] == pytest.approx(3 * (alone[0] or 0))


@pytest.mark.parametrize(
    ("kind", "mine", "margin", "verdict"),
    [
        ("no-worse", [0.900, 0.902, 0.904], 0.01, "supported"),
        ("no-worse", [0.95, 0.96, 0.955], 0.005, "supported"),
        ("no-worse", [0.80, 0.81, 0.805], 0.005, "contradicted"),
        ("no-worse", [0.89, 0.90, 0.91], 0.005, "undecided"),
        ("equal", [0.900, 0.902, 0.904], 0.01, "supported"),
        ("equal", [0.95, 0.96, 0.955], 0.005, "contradicted"),
        ("equal", [0.80, 0.81, 0.805], 0.005, "contradicted"),
        ("equal", [0.95, 0.96, 0.955], 0.1, "supported"),
        ("equal", [0.89, 0.90, 0.91], 0.005, "undecided"),
    ],
)
def test_margins(kind: str, mine: list[float], margin: float, verdict: str) -> None:
    assert judged(kind, mine, [0.900, 0.902, 0.904], margin).verdict == verdict


@pytest.mark.parametrize(
    ("kind", "mine", "margin", "verdict"),
    [
        ("above-chance", [0.2, 0.21, 0.22], 0.0, "supported"),
        ("above-chance", [0.2, 0.21, 0.22], 0.2, "contradicted"),
        ("above-chance", [0.1, 0.5, None], 0.0, "undecided"),
        ("above-chance", [None, None, None], 0.0, "undecided"),
        ("at-chance", [0.10, 0.11, 0.105], 0.03, "supported"),
        ("at-chance", [0.9, 0.91, 0.92], 0.03, "contradicted"),
        ("at-chance", [0.9, 0.91, 0.905, None], 0.03, "undecided"),
        ("at-chance", [0.10, 0.14, 0.18], 0.03, "undecided"),
        ("at-chance", [0.1, 0.1], 0.04, "undecided"),
        ("at-chance", [None] * 3, 0.03, "undecided"),
        ("at-chance", [0.1, None, None], 0.03, "undecided"),
        ("at-chance", [0.10, 0.11, 0.105, None], 0.03, "supported"),
    ],
)
def test_chance(kind: str, mine: list[float | None], margin: float, verdict: str) -> None:
    found = judged(kind, mine, None, margin)
    assert (found.verdict, found.other, found.improvement) == (verdict, None, None)
    assert found.sides[1] == verdicts.Side(rung=None, mean=0.1)
    if kind == "at-chance" and None in mine and verdict == "undecided" and 0.9 not in mine:
        assert found.reason == "diverged runs do not support that a model stays at chance"


def test_a_model_without_spread_is_at_chance_as_far_as_the_test_set_shows() -> None:
    # sqrt(0.1 * 0.9 / 300) = 0.01732, and z = 0.04 / 0.01732 = 2.31 has p = 0.0105, twice that for two hypotheses;
    # z = 0.03 / 0.01732 = 1.73 has 0.0416.
    found = [judged("at-chance", [0.1, 0.1], None, margin, ON_ITEMS) for margin in (0.04, 0.03)]
    assert [one.verdict for one in found] == ["supported", "undecided"]
    assert [one.p_unadjusted for one in found] == pytest.approx([0.0105, 0.0416], abs=1e-4)


def test_what_a_seed_must_score_to_learn() -> None:
    def scoring(chance: float | None, items: int | None, **metric: Any) -> Scoring:
        return Scoring(metric=Accuracy(**({"chance": 0.1} | metric)), chance=chance, items=items)

    assert scoring(0.1, 300).learns_from == pytest.approx(0.1 + 3 * math.sqrt(0.1 * 0.9 / 300))
    assert scoring(0.1, 10_000).learns_from == pytest.approx(0.13)
    assert scoring(0.1, None).learns_from == pytest.approx(0.13)
    # the naive predictor may score less than equally likely classes, or more
    assert scoring(0.08, None).learns_from == pytest.approx(0.13)
    assert scoring(0.2, None).learns_from == pytest.approx(0.23)
    bits = structs.replace(BITS, chance=7.0)
    assert bits.learns_from == 6.5
    assert [sample([score], bits).learning for score in (6.4, 6.6, 9.0, None)] == [1, 0, 0, 0]
    assert sample([0.153, 0.151, None], ON_ITEMS).learning == 1
    # not where chance is not known, or the metric declares no distance to it
    for unknown in (scoring(None, 300), scoring(0.1, 300, near_chance=None)):
        assert (unknown.learns_from, sample([0.1, 0.1], unknown).learning) == (None, None)


# By hand, with twelve seeds and more

SPREAD = [0.90 + seed / 300 for seed in range(12)]
FAR = [score - 0.1 for score in SPREAD[:11]]


def test_twelve_wins_in_a_row_are_supported_at_the_least_p() -> None:
    found = judged("better", SPREAD, [score - 0.1 for score in SPREAD])
    assert (found.verdict, found.p_unadjusted, found.provisional) == ("supported", 2.0**-11, False)
    assert (found.improvement, found.improvement_high) == (1, 1)
    assert found.improvement_low == pytest.approx(0.025 ** (1 / 12))
    # means are in the interval alone
    shown = scipy.stats.ttest_ind(SPREAD, [score - 0.1 for score in SPREAD], equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(shown), rel=1e-9)


def test_seeds_that_fail_decide_a_mean_but_not_ranks() -> None:
    """Five seeds of twenty fail, and the others are above two thirds of the base: a run of either is as good."""
    base = [0.90 + seed / 3000 for seed in range(20)]
    scoring = structs.replace(SCORING, items=3000)
    # above 12 and 14 of the 20 values of the base, and equal to one: (5 * 12.5 + 10 * 14.5) / 400
    rung: list[float | None] = [None] * 5 + [base[12]] * 5 + [base[14]] * 10
    welch = scipy.stats.ttest_ind([0.1 if one is None else one for one in rung], base, equal_var=False)
    assert welch.pvalue < 0.03
    found = judged("better", rung, base, scoring=scoring)
    assert found.improvement == pytest.approx(207.5 / 400)
    assert found.p_adjusted is not None
    assert found.p_adjusted > 0.7
    assert found.verdict == "undecided"
    assert (found.difference or 0) < -0.1
    # nor is a word said on a mean that disagrees with so little
    assert wording.opposite_mean(found, form_of(scoring.metric)) == ""


def test_a_rung_may_have_the_worse_mean_and_the_better_runs() -> None:
    """Ten of twelve seeds are above the base, two fail: 10 / 12 of pairs."""
    base = [score - 0.06 for score in SPREAD]
    found = judged("better", [0.1, 0.1, *SPREAD[2:]], base)
    assert found.verdict == "supported"
    assert found.difference == pytest.approx(np.mean([0.1, 0.1, *SPREAD[2:]]) - np.mean(base))
    assert (found.difference or 0) < 0
    assert found.improvement == pytest.approx(10 / 12)
    assert wording.failures(found) == "b learns in 10 of 12 seeds"
    form = form_of(SCORING.metric)
    assert wording.opposite_mean(found, form) == (
        "a run of b is better than one of a in 83 % of pairs, though the mean is worse"
    )
    turned = judged("better", base, [0.1, 0.1, *SPREAD[2:]])
    assert turned.verdict == "contradicted"
    assert wording.opposite_mean(turned, form) == (
        "a run of b is worse than one of a in 83 % of pairs, though the mean is better"
    )
    # where both agree, there is nothing to add
    assert wording.opposite_mean(judged("better", SPREAD, base), form) == ""


def test_p_on_these_items_is_that_of_the_opposite_where_they_contradict() -> None:
    found = judged("no-worse", [score - 0.03 for score in SPREAD], SPREAD, 0.01, ON_ITEMS)
    assert (found.verdict, found.verdict_on_these_items) == ("undecided", "contradicted")
    assert found.p_on_these_items is not None
    assert found.p_on_these_items <= 0.05 < 0.5 < (found.p_adjusted or 0)


@pytest.mark.parametrize(("differing", "decided"), [(4, False), (5, False), (12, True)])
def test_few_items_that_all_go_one_way_decide_nothing(differing: int, decided: bool) -> None:
    """Two rungs of which all seeds are alike, and right on the same items but for these."""
    values = np.ones((12, ITEMS))
    values[:, :100] = 0
    better = values.copy()
    better[:, :differing] = 1
    sides = [sample(one.mean(1).tolist(), ON_ITEMS, one) for one in (better, values)]
    [found] = verdicts.judge([pair("better", *sides)])
    assert found.p_on_these_items == 2.0**-11
    assert found.p_unadjusted is not None
    assert found.p_unadjusted >= 2.0 ** (1 - differing)
    assert (found.verdict == "supported") == decided


def test_equal_scores_in_whole_items_tie() -> None:
    """Scores are recorded in float32, whose last bits are no difference."""
    scores = [0.9, 0.91, 0.92] * 4
    noisy = [float(np.float32(score)) for score in scores]
    assert noisy != scores
    found = judged("better", noisy, scores, scoring=ON_ITEMS)
    assert (found.improvement, found.p_unadjusted) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("kind", "shift", "margin", "verdict"),
    [
        ("no-worse", 0.0, 0.05, "supported"),
        ("no-worse", 0.1, 0.01, "supported"),
        ("no-worse", -0.1, 0.05, "contradicted"),
        ("no-worse", 0.0, 0.001, "undecided"),
        ("equal", 0.0, 0.05, "supported"),
        ("equal", 0.1, 0.05, "contradicted"),
        ("equal", -0.1, 0.05, "contradicted"),
        ("equal", 0.0, 0.001, "undecided"),
    ],
)
def test_margins_of_ranks(kind: str, shift: float, margin: float, verdict: str) -> None:
    found = judged(kind, [score + shift for score in SPREAD], SPREAD, margin)
    assert (found.verdict, found.provisional) == (verdict, False)


@pytest.mark.parametrize("kind", ["no-worse", "equal"])
def test_one_failing_seed_of_twelve_does_not_contradict_a_margin(kind: str) -> None:
    """Eleven of twelve runs lose nothing; the mean loses seven points."""
    found = judged(kind, [None, *SPREAD[1:]], SPREAD, 0.05)
    assert found.verdict == "supported"
    assert (found.difference or 0) < -0.05


@pytest.mark.parametrize(
    ("kind", "mine", "margin", "verdict", "p"),
    [
        # eleven of twelve above: 13 / 4096
        ("above-chance", [0.05, *[0.5 + seed / 100 for seed in range(11)]], 0.0, "supported", 2 * 13 / 4096),
        ("above-chance", [None, *[0.5 + seed / 100 for seed in range(11)]], 0.0, "supported", 2 * 13 / 4096),
        ("above-chance", [None] * 4 + [0.5 + seed / 100 for seed in range(8)], 0.0, "undecided", 2 * 794 / 4096),
        ("above-chance", SPREAD, 0.85, "contradicted", 2 / 4096),
        ("at-chance", [0.08 + seed / 300 for seed in range(12)], 0.05, "supported", 2 / 4096),
        ("at-chance", SPREAD, 0.05, "contradicted", 4 / 4096),
        # the diverged ones show nothing
        ("at-chance", [None] * 6 + [0.08 + seed / 300 for seed in range(12)], 0.05, "supported", 2 / 4096),
    ],
)
def test_chance_by_signs(kind: str, mine: list[float | None], margin: float, verdict: str, p: float) -> None:
    found = judged(kind, mine, None, margin)
    assert (found.verdict, found.p_adjusted) == (verdict, pytest.approx(p))


def test_a_model_at_chance_is_shown_by_finished_seeds() -> None:
    """Diverged runs neither make a verdict firm nor give equal scores a spread."""
    # 0.11 six times: standard error sqrt(0.11 * 0.89 / 300) = 0.01806, z = 0.02 / 0.01806 = 1.107
    found = judged("at-chance", [0.11] * 6 + [None] * 6, None, 0.03, ON_ITEMS)
    assert (found.verdict, found.provisional) == ("undecided", True)
    assert found.p_unadjusted == pytest.approx(scipy.stats.norm.sf(1.107), abs=1e-4)
    # with twelve of them the p of signs is 2^-12, and both errors count
    firm = judged("at-chance", [0.11] * 12 + [None] * 6, None, 0.03, ON_ITEMS)
    assert (firm.verdict, firm.verdict_on_these_items, firm.provisional) == ("undecided", "supported", False)
    signs, on_items = scipy.stats.norm.isf([2.0**-12, found.p_unadjusted or 1])
    assert firm.p_unadjusted == pytest.approx(scipy.stats.norm.sf((signs**-2 + on_items**-2) ** -0.5), rel=1e-4)
    # eleven with a spread: Welch's test
    spread = [0.08 + seed / 300 for seed in range(11)]
    few = judged("at-chance", [*spread, None], None, 0.05)
    assert (few.verdict, few.provisional) == ("supported", True)
    above = scipy.stats.ttest_1samp(spread, 0.05, alternative="greater").pvalue
    assert few.p_unadjusted == pytest.approx(above, rel=1e-6)


@pytest.mark.parametrize("seeds", [3, 12])
def test_lower_may_be_better(seeds: int) -> None:
    low, high = ([center + seed / 100 for seed in range(seeds)] for center in (1.0, 2.0))
    found = judged("better", low, high, scoring=BITS)
    assert (found.verdict, found.improvement) == ("supported", 1)
    assert found.difference == pytest.approx(-1)
    assert (found.high or 0) < 0
    assert judged("no-worse", high, low, 0.1, BITS).verdict == "contradicted"
    assert judged("above-chance", low, scoring=BITS).verdict == "supported"
    assert sample([*high, None], BITS).mean == pytest.approx((sum(high) + 8) / (seeds + 1))
    # a diverged run is the worst one also here
    worse = judged("better", [None, *low[1:]], [9.0, *low[1:]], scoring=BITS)
    assert worse.improvement is not None
    assert worse.improvement < 0.5


def test_diverged_runs_rank_below_a_score_below_chance() -> None:
    below = [0.05 + seed / 300 for seed in range(12)]
    lost = [None, None, *[0.06 + seed / 300 for seed in range(10)]]
    assert judged("better", lost, below).improvement == pytest.approx(
        judged("better", [0, 0, *lost[2:]], below).improvement
    )
    # All of them lost are worse than any run, though the mean is better: that of chance.
    found = judged("better", [None] * 12, [score - 0.05 for score in below])
    assert (found.verdict, found.improvement) == ("contradicted", 0)
    assert (found.difference or 0) > 0.05


def test_above_chance_is_above_equally_likely_classes_too() -> None:
    """A naive predictor may be worse than guessing: scores between the two do not show that anything was learned."""
    scoring = Scoring(metric=Accuracy(chance=0.1), chance=0.08, items=300)
    between = [0.085 + seed / 1000 for seed in range(12)]
    found = judged("above-chance", between, scoring=scoring)
    # one test item is 0.33 points: a level of 9 % is not below one of 10 % on 300 others
    assert (found.verdict, found.verdict_on_these_items) == ("undecided", "contradicted")
    assert (found.sides[0].learning, found.sides[1].mean) == (0, 0.1)
    assert judged("above-chance", [score + 0.1 for score in between], scoring=scoring).verdict == "supported"
