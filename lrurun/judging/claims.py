"""The claims of a paper and the differences of a ladder's rungs to their bases, judged from runs by `verdicts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from msgspec import Struct, structs

from lrurun.config.ladder import Claim, Ladder
from lrurun.data.metric import Metric
from lrurun.judging import published, questions, sequential, verdicts
from lrurun.judging.scores import ScoreForm, form_of
from lrurun.judging.sequential import DesignProgress, LookRecord
from lrurun.judging.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_JUDGED,
    NOT_RUN,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Pair,
    Question,
    Result,
    Sample,
    Scoring,
    Side,
)

SURE = 0.1
"""Mean and chance of improvement disagree where their directions differ and the chance is this far from 1/2 [ours]."""


class RungResults(Struct, frozen=True, kw_only=True):
    """The runs of a rung."""

    rung: str
    """The rung that the runs belong to: another one where both have the same settings."""
    results: tuple[Result, ...]
    problem: str = ""
    """Why nothing is judged with them; empty if they can be judged."""


class Scored(Struct, frozen=True, kw_only=True):
    """The runs of a ladder with the scores of one metric."""

    rungs: Mapping[str, RungResults]
    scoring: Scoring
    items_removed: tuple[str, ...] = ()
    """The runs whose per-item results were removed from the ledger."""


class JudgedClaim(Comparison, frozen=True, kw_only=True):
    """A claim, judged from the runs of the ledger."""

    text: str
    source: str
    detail: str
    stand_in: bool
    """Whether the paper makes the claim on other tasks only."""
    difference_p: float | None = None
    """Adjusted p of the difference, beside a claim with a margin."""
    untuned: tuple[str, ...] = ()
    """The rungs of the claim whose learning rate is the recipe's default."""
    improving: tuple[str, ...] = ()
    """The rungs of the claim that score best at the last step in most seeds."""
    paper: Comparison | None = None
    """The comparison by the paper's own numbers on this task."""
    elsewhere: Mapping[str, str]
    """Task of the claim -> verdict by the paper's own numbers, for a stand-in."""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    """The ratio of training speeds of a claim about them, measured in turns, and its interval."""
    paper_ratio: float | None = None
    """The ratio of the published speeds of a claim about speed."""

    @property
    def shown(self) -> str:
        """The verdict, as reports print it."""
        return NOT_COMPARABLE if self.same_runs else self.verdict

    @property
    def mark(self) -> str:
        """The mark after the verdict on a claim that the paper makes on other tasks only, and where that on these test
        items is another one."""
        stand_in = self.stand_in and self.shown in (SUPPORTED, CONTRADICTED, UNDECIDED)
        marks = [*["stand-in task"] * stand_in, *filter(None, [on_these_items(self.verdict_on_these_items)])]
        return f" ({'; '.join(marks)})" if marks else ""


class Judged(Struct, frozen=True, kw_only=True):
    """All verdicts of a report."""

    differences: dict[str, Comparison]
    """Rung -> the comparison with its base."""
    papers: dict[str, Comparison]
    """Rung -> the comparison with its base by the paper's own numbers, where it has any."""
    claims: tuple[JudgedClaim, ...]
    samples: dict[str, Sample]
    """Rung -> the scores of its runs."""
    hypotheses: int
    """How many hypotheses have results, which Holm's method corrects for."""


def judge(
    ladder: Ladder,
    rungs: Mapping[str, RungResults],
    *,
    task: str,
    scoring: Scoring,
    untuned: Collection[str] = (),
    improving: Collection[str] = (),
    progress: DesignProgress | None = None,
    by_metric: Mapping[str, Scored] = MappingProxyType({}),
    profile: str | None = None,
    outside: Mapping[str, str] = MappingProxyType({}),
) -> Judged:
    """The differences and claims of a ladder on a task, from the runs of its rungs and, with `progress`, from the looks
    of a sequential design. `by_metric` has the scores of other metrics that claims name, `outside` the texts of claims
    that are not judged here, with the reason."""
    scored = {"": Scored(rungs=rungs, scoring=scoring), **by_metric}
    pair = _pairs(scored)
    asked = questions.asked(ladder, task, outside)
    if progress is None:
        comparisons = questions.answer(ladder, task, pair, outside)
    else:
        comparisons = sequential.answer(progress, asked, pair)
    differences = questions.differences(ladder)

    def by_paper(name: str) -> Mapping[Question, Comparison]:
        return published.judge(ladder, name, profile if name == task else None)

    return Judged(
        differences={rung: comparisons[question] for rung, question in differences.items()},
        papers={rung: by_paper(task)[question] for rung, question in differences.items() if question in by_paper(task)},
        claims=tuple(
            judge_speed(ladder, claim, task)
            if claim.is_about_speed
            else _judged(claim, task, comparisons, by_paper, scored, untuned, improving, outside.get(claim.text, ""))
            for claim in ladder.claims
            if claim.is_about(task)
        ),
        samples={name: verdicts.sample(results.results, scoring) for name, results in rungs.items()},
        hypotheses=len({hypothesis for question in asked for hypothesis in pair(question).hypotheses}),
    )


def take_look(
    progress: DesignProgress,
    look: sequential.Look,
    rungs: Mapping[str, RungResults],
    *,
    scoring: Scoring,
    design: str,
    runs: Sequence[str],
    by_metric: Mapping[str, Scored] = MappingProxyType({}),
) -> LookRecord:
    """The next look of a sequential design: exactly the first seeds of each rung count."""
    seeds = list(range(look.seeds))

    def first_seeds(every: Mapping[str, RungResults]) -> dict[str, RungResults]:
        return {
            name: structs.replace(rung, results=tuple(result for result in rung.results if result.seed < look.seeds))
            for name, rung in every.items()
        }

    scored = {"": Scored(rungs=rungs, scoring=scoring), **by_metric}
    scored = {name: structs.replace(metric, rungs=first_seeds(metric.rungs)) for name, metric in scored.items()}
    pair = _pairs(scored)

    def complete(question: Question) -> Pair:
        sides, rung_results = pair(question), scored[question.metric].rungs
        lacking = [
            name
            for name in question.rungs
            if not rung_results[name].problem and sorted(result.seed for result in rung_results[name].results) != seeds
        ]
        reasons = [f"the look at {look.seeds} seeds lacks runs of {' and '.join(lacking)}"] if lacking else []
        reasons += _problems(question, rung_results)
        return structs.replace(sides, set_aside=UNDECIDED, reason="; ".join(reasons)) if reasons else sides

    return sequential.take(progress, look, design, runs, complete, {name: rung.rung for name, rung in rungs.items()})


def _pairs(scored: Mapping[str, Scored]) -> Callable[[Question], Pair]:
    """Finds the sides of a question; `scored` is by metric, "" for the one that selects the model."""
    samples = {
        metric: {name: verdicts.sample(rung.results, results.scoring) for name, rung in results.rungs.items()}
        for metric, results in scored.items()
    }

    @cache
    def pair(question: Question) -> Pair:
        rungs, scoring = scored[question.metric].rungs, scored[question.metric].scoring
        sides = samples[question.metric]
        mine, *other = (rungs[name].rung for name in question.rungs)
        problems = _problems(question, rungs)
        missing = [name for name in question.rungs if not rungs[name].results and not rungs[name].problem]
        reason = "; ".join(problems)
        if missing:
            reason = f"no finished runs of {' and '.join(missing)}"
        elif [mine] == other:
            reason = f"{' and '.join(question.rungs)} are the same runs on this task"
        unknown = Sample(counted=None, finished=None)  # the numbers of a part of the runs would mislead
        return Pair(
            question=structs.replace(question, rung=mine, other=other[0] if other else None),
            mine=unknown if problems else sides[mine],
            other=unknown if problems else sides[other[0]] if other else verdicts.constant(scoring),
            metric=scoring.metric,
            set_aside=NOT_RUN if missing else NOT_JUDGED if problems and [mine] != other else "",
            same_runs=[mine] == other and not missing,
            reason=reason,
        )

    return pair


def _problems(question: Question, rungs: Mapping[str, RungResults]) -> list[str]:
    """Why runs of these rungs cannot be judged, each reason once."""
    return list(dict.fromkeys(rungs[name].problem for name in question.rungs if rungs[name].problem))


def _judged(
    claim: Claim,
    task: str,
    comparisons: Mapping[Question, Comparison],
    by_paper: Callable[[str], Mapping[Question, Comparison]],
    scored: Mapping[str, Scored],
    untuned: Collection[str],
    improving: Collection[str],
    outside: str,
) -> JudgedClaim:
    """Judges a claim. `outside` says why it is not judged here; "" where it is."""
    question, *difference = questions.of_claim(claim, task)
    comparison = verdicts.untested(question, NOT_JUDGED, outside) if outside else comparisons[question]
    scoring = scored[question.metric].scoring
    beside = comparisons[difference[0]].p_adjusted if difference and not outside else None
    not_tuned = tuple(name for name in question.rungs if name in untuned)
    still_improving = tuple(name for name in question.rungs if name in improving)
    paper = by_paper(task).get(question)
    stand_in = bool(claim.tasks) and task not in claim.tasks
    elsewhere = {
        claimed_task: numbers.verdict
        for claimed_task in claim.tasks * stand_in
        if (numbers := by_paper(claimed_task).get(questions.of_claim(claim, claimed_task)[0])) is not None
    }
    details = [outside] if outside else describe(comparison, scoring, beside)
    if question.metric and not outside:
        details[0] = f"{form_of(scoring.metric).title}: {details[0]}"
    if not_tuned and comparison.verdict != NOT_RUN and not outside:
        details.append(f"not tuned: {' and '.join(not_tuned)}")
    if still_improving and comparison.is_tested:
        details.append(f"still improving at the last step: {' and '.join(still_improving)}")
    if paper is not None:
        details.append(f"by the paper's own numbers: {in_short(paper, scoring.metric)}")
    if stand_in and not outside:
        details.append(f"{task} stands in for the paper's tasks of this claim ({', '.join(claim.tasks)})")
    if elsewhere:
        by_task = ", ".join(f"{claimed_task} {verdict}" for claimed_task, verdict in elsewhere.items())
        details.append(f"by the paper's own numbers there: {by_task}")
    return JudgedClaim(
        **structs.asdict(comparison),
        text=claim.text,
        source=claim.source,
        detail="; ".join(details),
        stand_in=stand_in,
        difference_p=beside,
        untuned=not_tuned,
        improving=still_improving,
        paper=paper,
        elsewhere=elsewhere,
    )


class SpeedRatio(Struct, frozen=True, kw_only=True):
    """How many times as fast one rung trains as another, measured in turns on one device."""

    ratio: float
    low: float
    high: float
    """Ends of its interval over the rounds."""
    device: str


def judge_speed(ladder: Ladder, claim: Claim, task: str, measured: SpeedRatio | None = None) -> JudgedClaim:
    """A claim about speed. Speeds of runs depend on what else ran: only a measurement in turns is judged.

    It is judged on the device of the paper alone, since another one may be better at either form.
    """
    paper_ratio, device = published.speed_ratio(ladder, claim, task) or (None, "")
    verdict, details = NOT_RUN, [f"speeds are measured in turns: lrurun bench claims --shape {task}"]
    if measured is not None:
        details = [f"{measured.ratio:.1f} times as fast ({measured.low:.1f} to {measured.high:.1f})"]
        least = 1 - claim.margin_on(task)  # no margin: it must be faster
        verdict = SUPPORTED if measured.low > least else CONTRADICTED if measured.high < least else UNDECIDED
        if device and device not in measured.device:
            verdict = NOT_JUDGED
            details.append(f"on {measured.device}, while the claim is about one {device}")
    if paper_ratio is not None:
        details.append(f"by the paper's own numbers: {paper_ratio:.1f} times on one {device}, no spread is given")
    return JudgedClaim(
        kind=claim.kind,
        rung=claim.rung,
        other=claim.than,
        margin=claim.margin_on(task) or None,
        verdict=verdict,
        text=claim.text,
        source=claim.source,
        detail="; ".join(details),
        stand_in=False,
        elsewhere={},
        ratio=measured.ratio if measured else None,
        ratio_low=measured.low if measured else None,
        ratio_high=measured.high if measured else None,
        paper_ratio=paper_ratio,
    )


# Sentences


def on_these_items(verdict: str) -> str:
    """The verdict on these test items in words, where there is one."""
    return verdict and f"on these items: {verdict}"


def describe(comparison: Comparison, scoring: Scoring, beside: float | None = None) -> list[str]:
    """A comparison in phrases; `beside` is the p of the difference beside a claim with a margin."""
    is_without_runs = comparison.verdict in (NOT_RUN, NOT_JUDGED) and not any(side.n for side in comparison.sides)
    if comparison.verdict == NOT_RUN or comparison.same_runs or is_without_runs:
        return [comparison.reason]
    form = form_beside(form_of(scoring.metric), comparison)
    phrases = [*remarks(comparison, form), _sides(comparison, scoring, form)]
    if comparison.difference is not None:
        phrases.append(f"difference {_difference_text(comparison, form)}")
    if comparison.improvement is not None and not comparison.margin:  # a margin shifts what is tested
        phrases.append(f"chance of improvement {improvement_text(comparison)}")
    if comparison.p_adjusted is not None:
        margin = f"margin {form.full(comparison.margin)}, " if comparison.margin else ""
        phrases.append(margin + p_text(comparison.p_adjusted))
        if comparison.verdict_on_these_items and comparison.p_on_these_items is not None:
            phrases.append(f"on these items {p_text(comparison.p_on_these_items)}")
        if comparison.item_share is not None:
            phrases.append(f"test items are {100 * comparison.item_share:.0f} % of the variance")
    elif comparison.reason:
        phrases.append(comparison.reason)
    if beside is not None:
        phrases.append(f"test of the difference: {p_text(beside)}")
    return phrases


def remarks(comparison: Comparison, form: ScoreForm) -> list[str]:
    """Remarks that change the reading of a verdict: few seeds, seeds that fail, a mean that points the other way."""
    phrases = [failures(comparison), opposite_mean(comparison, form)]
    if comparison.provisional and comparison.is_tested:
        phrases.insert(0, f"provisional ({least_seeds(comparison)} seeds)")
    return [text for text in phrases if text]


def least_seeds(comparison: Comparison) -> int:
    """The tested seeds of the side that has fewer; those of the only side against chance."""
    at_chance = comparison.kind == "at-chance"  # of runs with a score alone
    return min(
        (side.n - side.without_score * at_chance for side in comparison.sides if side.rung is not None), default=0
    )


def failures(comparison: Comparison) -> str:
    """How many seeds learn where any does not, as in "linear-rnn learns in 2 of 12 seeds"; else nothing."""
    failing = [side for side in comparison.sides if side.failures and side.learning is not None]
    if failing and all(side.learning == 0 for side in comparison.sides if side.rung is not None):
        return "neither learns" if len(failing) > 1 else f"{failing[0].rung} does not learn"
    return ", ".join(f"{side.rung} learns in {side.learning} of {side.n} seeds" for side in failing)


def opposite_mean(comparison: Comparison, form: ScoreForm) -> str:
    """Says so where the mean and the typical run disagree in direction; else nothing."""
    if comparison.improvement is None or comparison.difference is None or form.higher_is_better is None:
        return ""
    gain = comparison.difference if form.higher_is_better else -comparison.difference
    sure = comparison.improvement - 0.5
    if gain * sure >= 0 or abs(sure) < SURE:
        return ""
    run, mean = ("better", "worse") if sure > 0 else ("worse", "better")
    pairs = f"in {100 * (0.5 + abs(sure)):.0f} % of pairs"
    return f"a run of {comparison.rung} is {run} than one of {comparison.other} {pairs}, though the mean is {mean}"


def in_short(comparison: Comparison, metric: Metric) -> str:
    """A comparison of published numbers, as in "undecided, -1.1 [-4.0, +1.8], p = 0.21"."""
    if comparison.difference is None:
        return f"{comparison.verdict}: {comparison.reason}"
    form = form_beside(form_of(metric), comparison)
    text = f"{comparison.verdict}, {form.short_difference(comparison.difference)}"
    if comparison.low is not None and comparison.high is not None:
        text += f" [{form.short_difference(comparison.low)}, {form.short_difference(comparison.high)}]"
    return text + (
        f", {p_text(comparison.p_adjusted)}" if comparison.p_adjusted is not None else f": {comparison.reason}"
    )


def look_text(comparison: Comparison | None) -> str:
    """The look that the numbers are from, as " at 12 seeds": the mean of a rung may be of more seeds."""
    return "" if comparison is None or comparison.look is None else f" at {comparison.look} seeds"


def p_text(p: float) -> str:
    """An adjusted p as text, for example "p = 0.012"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def form_beside(form: ScoreForm, comparison: Comparison) -> ScoreForm:
    """The form of a comparison's errors and differences."""
    return form.beside(side.mean for side in comparison.sides)


def _difference_text(comparison: Comparison, form: ScoreForm) -> str:
    text = f"{form.difference(comparison.difference or 0.0)} {form.unit}"
    if comparison.low is None or comparison.high is None:
        return text
    return f"{text} [{form.difference(comparison.low)}, {form.difference(comparison.high)}]"


def improvement_text(comparison: Comparison) -> str:
    """The chance of improvement with its interval as text, for example "97 % [81, 100]"."""
    if comparison.improvement is None:
        return ""
    text = f"{100 * comparison.improvement:.0f} %"
    if comparison.improvement_low is None or comparison.improvement_high is None:
        return text
    return f"{text} [{100 * comparison.improvement_low:.0f}, {100 * comparison.improvement_high:.0f}]"


def _sides(comparison: Comparison, scoring: Scoring, form: ScoreForm) -> str:
    mine, other = comparison.sides
    if other.rung is None:
        return f"{_side(mine, scoring, form)}, chance {_score(scoring.chance, form)}"
    return f"{_side(mine, scoring, form)}, {_side(other, scoring, form)}"


def _side(side: Side, scoring: Scoring, form: ScoreForm) -> str:
    error = "" if side.stderr is None else f" ± {form.size(side.stderr)}"
    lost = f", {side.diverged} diverged" if side.diverged else ""
    lost += f", {side.unscored} without a usable score" if side.unscored else ""
    if lost and scoring.chance is not None:
        lost += f", counted as chance, {_score(scoring.chance, form)}"
    return f"{side.rung} {_score(side.mean, form)}{error} (n={side.n}{lost})"


def _score(score: float | None, form: ScoreForm) -> str:
    return "no score" if score is None else form.full(score)
