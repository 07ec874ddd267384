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

from lrurun.data.metric import Accuracy, Metric
from lrurun.report import verdicts
from lrurun.report.verdicts import Comparison, Judgement, Question, Result, Scoring, Side

ITEMS = 300
SCORING = Scoring(metric=Accuracy(chance=0.1), chance=0.1, items=ITEMS)
KINDS = ("better", "no-worse", "equal", "above-chance", "at-chance")


def side(scores: Iterable[float | None], scoring: Scoring = SCORING) -> Side:
    """Runs with these scores, None for a diverged one, of seeds 0, 1, ..."""
    return verdicts.side([Result(seed, score) for seed, score in enumerate(scores)], scoring)


def compare(kind: Any, mine: Side, other: Side | None = None, margin: float = 0.0, **more: Any) -> Comparison:
    scoring = more.pop("scoring", SCORING)
    than = more.pop("than", "a")
    names = {"rung": more.pop("rung", "b"), "than": than if other else None}
    return Comparison(
        question=Question(kind=kind, margin=margin, **names),
        mine=mine,
        other=other or verdicts.chance_side(scoring),
        metric=scoring.metric,
        **more,
    )


def judged(
    kind: str, mine: Sequence[float | None], other: Sequence[float | None] | None = None, margin: float = 0.0
) -> Judgement:
    """The verdict on one comparison alone."""
    [found] = verdicts.judge([compare(kind, side(mine), side(other) if other is not None else None, margin)])
    return found


# Another implementation


def moments(scores: Sequence[float | None], *, finished: bool = False) -> tuple[float, float, float] | None:
    """Mean, variance of the mean, and its degrees of freedom."""
    values = np.array([0.1 if score is None else score for score in scores if score is not None or not finished])
    if len(values) < 2:
        return None
    mean = values.mean()
    if np.ptp(values) < 0.9999 / ITEMS:
        return mean, max(mean * (1 - mean), 1 / ITEMS) / ITEMS, math.inf
    return mean, values.var(ddof=1) / len(values), len(values) - 1


def one_sided(mine: Any, other: Any, bound: float) -> float:
    """p of mine - other > bound."""
    (m1, v1, f1), (m2, v2, f2) = mine, other
    df = (v1 + v2) ** 2 / (v1**2 / f1 + v2**2 / f2) if math.isfinite(min(f1, f2)) else math.inf
    return float(scipy.stats.t.sf((m1 - m2 - bound) / math.sqrt(v1 + v2), df))


def expected_p(kind: str, mine: Any, other: Any, margin: float) -> tuple[float, float]:
    """p of the statement and of its opposite; for "better" of either direction."""
    a, b = moments(mine), (0.1, 0.0, math.inf) if other is None else moments(other)
    if a is None or b is None:
        return 1.0, 1.0

    def above(bound: float, one: Any = a) -> float:
        return one_sided(one, b, bound)

    if kind == "better":
        return min(1.0, 2 * above(0)), min(1.0, 2 * (1 - above(0)))
    if kind in ("no-worse", "above-chance"):
        bound = margin if kind == "above-chance" else -margin
        return above(bound), 1 - above(bound)
    one = moments(mine, finished=True) if kind == "at-chance" else a
    inside = 1.0 if one is None else max(above(-margin, one), 1 - above(margin, one))
    return inside, min(1.0, 2 * min(above(margin), 1 - above(-margin)))


def independent(ladder: Sequence[tuple[str, str, str | None, float]], runs: dict[str, Any]) -> list[tuple[str, float]]:
    """The verdict on every question and the adjusted p of its statement."""
    p_values: dict[Any, float] = {}
    keys = []
    for kind, rung, than, margin in ladder:
        supported, contradicted = expected_p(kind, runs[rung], None if than is None else runs[than], margin)
        pair = frozenset((rung, than)) if kind in ("better", "equal") else (rung, than)
        if kind == "better":
            keys.append(((kind, pair), (kind, pair), supported < contradicted))
            p_values[(kind, pair)] = min(supported, contradicted)
        else:
            keys.append(((kind, pair, margin, True), (kind, pair, margin, False), None))
            p_values[(kind, pair, margin, True)], p_values[(kind, pair, margin, False)] = supported, contradicted
    order = sorted(p_values, key=lambda key: p_values[key])
    adjusted = {
        key: max(min(1.0, (len(order) - k) * p_values[order[k]]) for k in range(order.index(key) + 1)) for key in order
    }
    found = []
    for supports, contradicts, up in keys:
        verdict = "undecided"
        if adjusted[supports] <= 0.05:
            verdict = "contradicted" if up is False else "supported"
        elif adjusted[contradicts] <= 0.05:
            verdict = "contradicted"
        found.append((verdict, adjusted[contradicts if verdict == "contradicted" else supports]))
    return found


def random_scores(random: np.random.Generator) -> list[float | None]:
    """Of a rung: Gaussian, in steps of one item, without spread, or collapsed; some runs diverge."""
    level, spread = random.choice([0.1, 0.5, 0.9, 0.93, 0.95]), random.choice([0.002, 0.01, 0.05])
    scores = random.normal(level, spread, random.integers(1, 7))
    form = random.integers(4)
    if form == 1:
        scores = np.round(scores * ITEMS) / ITEMS
    elif form == 2:
        scores = np.full(len(scores), round(level * ITEMS) / ITEMS)
    elif form == 3:
        scores[random.random(len(scores)) < 0.3] = 0.1
    return [None if random.random() < 0.1 else float(score) for score in scores]


def random_ladder(random: np.random.Generator, rungs: Sequence[str]) -> Iterator[tuple[str, str, str | None, float]]:
    """Differences to the previous rung, then claims."""
    for before, rung in itertools.pairwise(rungs):
        yield ("better", rung, before, 0.0)
    for _ in range(random.integers(0, 6)):
        kind = str(random.choice(KINDS))
        rung, than = (str(one) for one in random.choice(rungs, 2, replace=False))
        margin = 0.0 if kind == "better" else float(random.choice([0.005, 0.05]))
        yield (kind, rung, None if kind.endswith("chance") else than, margin)


@pytest.mark.parametrize("ladders", [400, pytest.param(5000, marks=pytest.mark.slow)])
def test_another_implementation_gives_the_same_verdicts(ladders: int) -> None:
    random = np.random.default_rng(ladders)
    seen: dict[tuple[str, str], int] = {}
    for _ in range(ladders):
        rungs = list("abcdef")[: random.integers(2, 7)]
        runs = {rung: random_scores(random) for rung in rungs}
        asked = list(random_ladder(random, rungs))
        sides = {rung: side(scores) for rung, scores in runs.items()}
        found = verdicts.judge(
            [
                compare(kind, sides[rung], sides[than] if than else None, margin, rung=rung, than=than)
                for kind, rung, than, margin in asked
            ]
        )
        for one, (verdict, p) in zip(found, independent(asked, runs), strict=True):
            assert one.verdict == verdict
            if one.p_adjusted is not None:
                assert one.p_adjusted == pytest.approx(p, rel=1e-6, abs=1e-12)
                assert (one.p_adjusted <= 0.05) == (one.verdict != "undecided")
            else:
                assert one.reason
            seen[one.kind, one.verdict] = seen.get((one.kind, one.verdict), 0) + 1
    assert set(seen) == {(kind, v) for kind in KINDS for v in ("supported", "contradicted", "undecided")}


def test_without_a_floor_and_other_comparisons_it_is_welchs_test() -> None:
    random = np.random.default_rng(1)
    for n in (2, 3, 5):
        mine, other = list(random.normal(0.9, 0.02, n)), list(random.normal(0.88, 0.02, 3))
        found = judged("better", mine, other)
        test = scipy.stats.ttest_ind(mine, other, equal_var=False)
        assert found.p_adjusted == found.p_unadjusted == pytest.approx(test.pvalue, rel=1e-9)
        assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)


# By hand

HIGH, LOW = [0.95, 0.96, 0.955], [0.90, 0.91, 0.92]
"""0.955 and 0.91, variances 0.000025 and 0.0001: t = 0.045 / sqrt(0.000125 / 3) = 6.971, 2.941 degrees of freedom."""


def test_better() -> None:
    found = judged("better", HIGH, LOW)
    assert (found.verdict, found.n, found.than_n, found.margin) == ("supported", 3, 3, None)
    assert found.difference == pytest.approx(0.045)
    assert found.p_adjusted == pytest.approx(0.00646, abs=5e-6)
    assert judged("better", LOW, HIGH).verdict == "contradicted"
    assert judged("better", LOW, LOW).verdict == "undecided"


def test_all_diverged_is_as_bad_as_chance() -> None:
    # Standard errors 0.006 and sqrt(0.1 * 0.9 / 300) = 0.01732: t = 0.876 / 0.01833 = 47.8, 174.2 degrees of freedom
    step = 0.006 * math.sqrt(3)
    found = judged("better", [0.976 - step, 0.976, 0.976 + step], [None] * 3)
    assert (found.verdict, found.than_diverged, found.than_n) == ("supported", 3, 3)
    assert (found.than_mean, found.than_stderr) == (pytest.approx(0.1), pytest.approx(0.01732, abs=5e-6))
    assert found.difference == pytest.approx(0.876)
    assert (found.high or 0) - (found.low or 0) == pytest.approx(
        2 * scipy.stats.t.isf(0.025, 174.2) * 0.01833, rel=1e-3
    )
    assert judged("better", [None] * 3, [None] * 3).verdict == "undecided"


def test_one_survivor_hides_what_chance_alone_would_show() -> None:
    # 0.9, 0.1, 0.1: mean 0.3667, standard error 0.2667
    found = judged("better", [0.9, None, None], LOW)
    assert (found.verdict, found.diverged) == ("undecided", 2)
    assert (found.mean, found.stderr) == (pytest.approx(11 / 30), pytest.approx(0.8 / 3))


def test_seeds_without_spread_have_the_error_of_the_test_set() -> None:
    # Variances 0.8 * 0.2 / 300 and 0.7 * 0.3 / 300, not divided by 3: z = 0.1 / 0.03512 = 2.847
    found = judged("better", [0.8] * 3, [0.7] * 3)
    assert found.p_adjusted == pytest.approx(0.00441, abs=5e-6)
    assert judged("better", [0.8] * 12, [0.7] * 12).p_adjusted == found.p_adjusted
    # All items correct: one item decides. 1 - 0.99 = 3 items: z = 0.01 / sqrt((1/300)^2 + 0.99 * 0.01 / 300) = 1.5
    assert judged("better", [1.0] * 3, [0.99] * 3).p_adjusted == pytest.approx(2 * scipy.stats.norm.sf(1.50), abs=0.002)
    # One item apart is spread.
    one_item = judged("better", [0.8, 0.8 + 1 / 300, 0.8], [0.7] * 3)
    assert one_item.stderr == pytest.approx(1 / 900)
    # Five labels a sequence: a score moves by one of 1,500 labels, and the floor remains that of 300 sequences.
    by_label = structs.replace(SCORING, steps=5 * ITEMS)
    assert not side([0.8, 0.8 + 1 / 1500, 0.8], by_label).of_test_set
    assert side([0.8] * 3, by_label).counted == side([0.8] * 3).counted
    assert by_label.learns_from == SCORING.learns_from
    # Scores without a smallest step have no such floor.
    continuous = Scoring(metric=Metric(name="r2", unit=""), items=ITEMS)
    flat = [side([value] * 3, continuous) for value in (0.8, 0.7)]
    [found] = verdicts.judge([compare("better", *flat, scoring=continuous)])
    assert (found.verdict, found.reason, found.p_adjusted) == ("undecided", "no spread: no test", None)


def test_one_seed_is_no_test_but_counts() -> None:
    found = judged("better", [0.9], [0.8, 0.81])
    assert (found.verdict, found.reason, found.difference) == ("undecided", "n = 1: no test", pytest.approx(0.095))
    both = verdicts.judge(
        [compare("better", side(HIGH), side(LOW)), compare("better", side([0.9]), side(LOW), rung="c", than="b")]
    )
    assert both[0].p_adjusted == pytest.approx(2 * 0.00646, abs=1e-5)


def test_chance_that_is_not_known_leaves_diverged_runs_undecided() -> None:
    unknown = Scoring(metric=Accuracy(), items=ITEMS)
    [found] = verdicts.judge([compare("better", side([*HIGH, None], unknown), side(LOW, unknown), scoring=unknown)])
    assert (found.verdict, found.reason) == ("undecided", "runs diverged, and chance is not known on this task")
    [found] = verdicts.judge([compare("better", side(HIGH, unknown), side(LOW, unknown), scoring=unknown)])
    assert found.verdict == "supported"


def test_what_is_set_aside_is_not_counted() -> None:
    alone = judged("better", HIGH, LOW)
    found = verdicts.judge(
        [
            compare("better", side(HIGH), side(LOW)),
            compare("better", side([]), side(LOW), rung="c", set_aside="not run", reason="no finished runs of c"),
            compare("better", side(LOW), side(LOW), rung="a", same_runs=True, reason="a and a are the same runs"),
        ]
    )
    assert found[0].p_adjusted == alone.p_adjusted
    assert [(one.verdict, one.p_adjusted) for one in found[1:]] == [("not run", None), ("undecided", None)]
    assert found[2].same_runs


def test_equal_kind_rungs_and_margin_are_one_hypothesis() -> None:
    def p(*comparisons: Comparison) -> list[float | None]:
        return [one.p_adjusted for one in verdicts.judge(list(comparisons))]

    b, a = side(HIGH), side(LOW)
    alone = p(compare("better", b, a))
    assert p(compare("better", b, a), compare("better", b, a)) == alone * 2
    mirrored = p(compare("better", b, a), compare("better", a, b, rung="a", than="b"))
    assert mirrored == pytest.approx(alone * 2)
    # A statement with a margin counts twice: it and its opposite.
    assert p(compare("better", b, a), compare("no-worse", b, a, 0.01))[0] == pytest.approx(2 * (alone[0] or 0))
    two_margins = [compare("no-worse", b, a, margin) for margin in (0.01, 0.02)]
    assert p(compare("better", b, a), *two_margins)[0] == pytest.approx(3 * (alone[0] or 0))


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
        # Without spread: sqrt(0.1 * 0.9 / 300) = 0.01732, and z = 0.04 / 0.01732 = 2.31 has p = 0.0105, twice that for
        # two hypotheses; z = 0.03 / 0.01732 = 1.73 has 0.0416.
        ("at-chance", [0.1, 0.1], 0.04, "supported"),
        ("at-chance", [0.1, 0.1], 0.03, "undecided"),
        ("at-chance", [None] * 3, 0.03, "undecided"),
        ("at-chance", [0.1, None, None], 0.03, "undecided"),
        ("at-chance", [0.10, 0.11, 0.105, None], 0.03, "supported"),
    ],
)
def test_chance(kind: str, mine: list[float | None], margin: float, verdict: str) -> None:
    found = judged(kind, mine, None, margin)
    assert (found.verdict, found.than, found.than_mean, found.than_stderr) == (verdict, None, 0.1, None)
    if kind == "at-chance" and None in mine and verdict == "undecided" and 0.9 not in mine:
        assert found.reason == "diverged runs do not support that a model stays at chance"


# Of 300 items at a chance of 10 %, a seed learns above 10 + 3 * 1.73 = 15.2 %.
_FEW = [0.32, 0.29, *[0.08] * 10]


@pytest.mark.parametrize(
    ("mine", "other", "near", "learning"),
    [
        ([0.10, 0.11], [0.12, 0.13], True, (0, 0)),
        ([None, None], [0.10, 0.12], True, (0, 0)),  # diverged runs are at chance
        ([0.05, 0.07], [0.10, 0.10], True, (0, 0)),  # worse than chance is not learned
        ([0.09, 0.15], [0.10, 0.10], True, (0, 0)),  # a test set of this size shows that by accident
        ([0.13, 0.14], [0.10, 0.11], False, (0, 0)),  # but not in every seed
        (_FEW, [0.09] * 12, True, (2, 0)),  # the mean is within 3 points
        (_FEW[:5], [0.09] * 5, True, (2, 0)),  # it is not, of the same seeds
        (_FEW, _FEW, True, (2, 2)),
        ([0.32, *[0.14] * 11], [0.09] * 12, False, (1, 0)),
        ([0.32, 0.10], [0.10, 0.10], False, (1, 0)),
        ([0.90, 0.91], [0.10, 0.10], False, (2, 0)),
    ],
)
def test_a_pair_near_chance_is_remarked(
    mine: list[float | None], other: list[float | None], near: bool, learning: tuple[int, int]
) -> None:
    found = judged("better", mine, other)
    assert (found.near_chance, (found.learning, found.than_learning)) == (near, learning)
    assert found.neither_learns == (near and learning == (0, 0))
    turned = judged("better", other, mine)
    assert (turned.near_chance, turned.neither_learns) == (found.near_chance, found.neither_learns)


def test_what_a_seed_must_score_to_learn() -> None:
    def scoring(chance: float | None, items: int | None, **metric: Any) -> Scoring:
        return Scoring(metric=Accuracy(**({"chance": 0.1} | metric)), chance=chance, items=items)

    assert scoring(0.1, 300).learns_from == pytest.approx(0.1 + 3 * math.sqrt(0.1 * 0.9 / 300))
    assert scoring(0.1, 10_000).learns_from == pytest.approx(0.13)
    assert scoring(0.1, None).learns_from == pytest.approx(0.13)
    # the naive predictor may score less than equally likely classes, or more
    assert scoring(0.08, None).learns_from == pytest.approx(0.13)
    assert scoring(0.2, None).learns_from == pytest.approx(0.23)
    bits = Scoring(metric=Metric(name="b", unit="", higher_is_better=False, near_chance=0.5, chance=8.0), chance=7.0)
    assert bits.learns_from == 6.5
    assert [verdicts.side([Result(0, score)], bits).learning for score in (6.4, 6.6, 9.0)] == [1, 0, 0]
    assert [verdicts.side([Result(0, score)], bits).near_chance for score in (6.4, 6.6, 9.0)] == [False, True, True]
    # not where chance is the other side, is not known, or the metric declares no distance to it
    assert not judged("at-chance", [0.1, 0.11], None, 0.03).near_chance
    for unknown in (scoring(None, 300), scoring(0.1, 300, near_chance=None)):
        found = side([0.1, 0.1], unknown)
        assert (unknown.learns_from, found.learning, found.near_chance) == (None, None, False)


def test_lower_may_be_better() -> None:
    bits = Scoring(metric=Metric(name="bits", unit="bits", higher_is_better=False, chance=8.0), chance=8.0)
    low, high = side([1.0, 1.1, 1.05], bits), side([2.0, 2.1, 2.2, None], bits)
    same = side([2.01, 2.1, 2.2], bits)
    found = verdicts.judge(
        [
            compare("better", low, same, scoring=bits, rung="low", than="same"),
            compare("no-worse", same, low, 0.1, scoring=bits, rung="same", than="low"),
            compare("above-chance", low, scoring=bits, rung="low"),
        ]
    )
    assert [one.verdict for one in found] == ["supported", "contradicted", "supported"]
    assert (found[0].difference or 0) < 0
    assert high.mean == pytest.approx((2.0 + 2.1 + 2.2 + 8.0) / 4)


def test_undecided_says_how_many_seeds_would_decide_at_the_level_that_remains() -> None:
    mine, other = [0.90, 0.92, 0.94], [0.89, 0.91, 0.90]
    alone = judged("better", mine, other).seeds_to_decide
    assert alone is not None
    others = [compare("better", side(mine), side(other), rung=name) for name in "cdefg"]
    among = verdicts.judge([compare("better", side(mine), side(other)), *others])[0].seeds_to_decide
    assert among is not None
    assert 3 < alone < among
    assert judged("better", mine, mine).seeds_to_decide is None
    assert judged("better", HIGH, LOW).seeds_to_decide is None
    # What the test set does not resolve, more seeds do not decide.
    assert judged("better", [0.8] * 3, [0.79] * 3).seeds_to_decide is None


def test_five_common_seeds_give_a_paired_interval() -> None:
    random = np.random.default_rng(2)
    shared = random.normal(0.9, 0.05, 5)
    mine, other = shared + 0.01 + random.normal(0, 0.001, 5), shared
    found = judged("better", list(mine), list(other))
    test = scipy.stats.ttest_rel(mine, other).confidence_interval(0.95)
    assert (found.paired_low, found.paired_high) == pytest.approx(tuple(test), rel=1e-9)
    assert found.verdict == "undecided", "it is information, not the test"
    assert judged("better", list(mine[:4]), list(other)).paired_low is None
