"""The claims of a paper and the differences of a ladder's rungs to their bases, judged from runs by `verdicts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations
from types import MappingProxyType

from msgspec import Struct, structs

from lrurun.config.ladder import Claim, Ladder
from lrurun.data import tasks
from lrurun.judging import published, questions, ranks, samples, sequential, verdicts, wording
from lrurun.judging.judged_claim import JudgedClaim, without_numbers
from lrurun.judging.rung_runs import RungRuns
from lrurun.judging.samples import Sample, Scoring
from lrurun.judging.scores import form_of
from lrurun.judging.sequential import DesignProgress, LookRecord
from lrurun.judging.statistics import ALPHA
from lrurun.judging.verdicts import (
    CONTRADICTED,
    NOT_JUDGED,
    NOT_RUN,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Pair,
    Question,
)


class Scored(Struct, frozen=True, kw_only=True):
    """The runs of a ladder with the scores of one metric."""

    rungs: Mapping[str, RungRuns]
    scoring: Scoring
    items_removed: tuple[str, ...] = ()
    """The runs whose per-item results were removed from the ledger."""


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
    rungs: Mapping[str, RungRuns],
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
            else _judged(
                ladder, claim, task, comparisons, by_paper, scored, untuned, improving, outside.get(claim.text, "")
            )
            for claim in ladder.claims
            if claim.is_about(task)
        ),
        samples={name: samples.sample(results.results, scoring) for name, results in rungs.items()},
        hypotheses=len({hypothesis for question in asked for hypothesis in pair(question).hypotheses}),
    )


class Unbeaten(Struct, frozen=True, kw_only=True):
    """The rungs that no other one is decided to be better than, which tables for papers print in bold.

    Every pair of rungs is tested as their differences are, with Holm's correction over all pairs. Comparisons with the
    best one alone would not hold: which rung is the best is seen in the same scores, and of eight equal rungs with
    twelve seeds a table in ten would call one worse.
    """

    rungs: tuple[str, ...]
    pairs: int
    """The pairs that are corrected for."""
    is_tested: bool
    """Whether any pair has a test."""
    provisional: bool
    """Whether any test is of fewer than twelve seeds."""
    can_decide: bool
    """Whether so many seeds can decide any of so many pairs."""


def unbeaten(rungs: Mapping[str, RungRuns], *, scoring: Scoring, progress: DesignProgress | None = None) -> Unbeaten:
    """The rungs that no other one is decided to be better than; a rung without results is none of them.

    Of a sequential design, each pair is tested with the seeds of the last look that both rungs have, and with the
    share of the level that a look may spend, so that adding seeds after a look does not matter.
    """
    own = {name: runs.rung for name, runs in rungs.items() if runs.results and not runs.problem}
    looks = [None, *progress.design.looks] if progress else [None]
    at_looks = {
        look: {name: structs.replace(runs, look=look and look.seeds) for name, runs in rungs.items()} for look in looks
    }
    pair_of = {look: _pairs({"": Scored(rungs=at_looks[look], scoring=scoring)}) for look in looks}

    def pair(rung: str, other: str) -> Pair:
        question = questions.difference(rung, other)
        if progress is None:
            return pair_of[None](question)
        for look in reversed(progress.design.looks):
            if all(len(at_looks[look][name].results) == look.seeds for name in (rung, other)):
                return pair_of[look](question)
        return structs.replace(pair_of[None](question), set_aside=NOT_JUDGED)

    names = sorted(set(own.values()), key=list(rungs).index)
    pairs = [pair(*both) for both in combinations(names, 2)]
    share = min(look.share for look in progress.design.looks) if progress else 1.0
    beaten = set()
    judged = verdicts.judge(pairs, share=share, count=len(pairs))
    for comparison in judged:
        if comparison.is_decided:
            beaten.add(comparison.other if comparison.verdict == SUPPORTED else comparison.rung)
    tested = [comparison for comparison in judged if comparison.is_tested]
    firm = [comparison.least_seeds for comparison in tested if not comparison.provisional]
    least_p = ranks.least_p(max(firm)) if firm and len(firm) == len(tested) else 0.0
    return Unbeaten(
        rungs=tuple(name for name, rung in own.items() if rung not in beaten),
        pairs=len(pairs),
        is_tested=bool(tested),
        provisional=len(firm) < len(tested),
        can_decide=len(pairs) * least_p / share <= ALPHA,
    )


def take_look(
    progress: DesignProgress,
    look: sequential.Look,
    rungs: Mapping[str, RungRuns],
    *,
    scoring: Scoring,
    design: str,
    runs: Sequence[str],
    by_metric: Mapping[str, Scored] = MappingProxyType({}),
) -> LookRecord:
    """The next look of a sequential design: exactly the first seeds of each rung count."""
    seeds = list(range(look.seeds))

    scored = {"": Scored(rungs=rungs, scoring=scoring), **by_metric}
    for name, results in scored.items():
        first = {rung: structs.replace(runs, look=look.seeds) for rung, runs in results.rungs.items()}
        scored[name] = structs.replace(results, rungs=first)
    pair = _pairs(scored)

    def complete(question: Question) -> Pair:
        sides, rung_runs = pair(question), scored[question.metric].rungs
        lacking = [
            name
            for name in question.rungs
            if not rung_runs[name].problem and sorted(result.seed for result in rung_runs[name].results) != seeds
        ]
        reasons = [f"the look at {look.seeds} seeds lacks runs of {' and '.join(lacking)}"] if lacking else []
        reasons += _problems(question, rung_runs)
        return structs.replace(sides, set_aside=UNDECIDED, reason="; ".join(reasons)) if reasons else sides

    return sequential.take(progress, look, design, runs, complete, {name: rung.rung for name, rung in rungs.items()})


def _pairs(scored: Mapping[str, Scored]) -> Callable[[Question], Pair]:
    """Finds the sides of a question; `scored` is by metric, "" for the one that selects the model."""
    sides_of = {
        metric: {name: samples.sample(rung.results, results.scoring) for name, rung in results.rungs.items()}
        for metric, results in scored.items()
    }

    @cache
    def pair(question: Question) -> Pair:
        rungs, scoring = scored[question.metric].rungs, scored[question.metric].scoring
        sides = sides_of[question.metric]
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
            other=unknown if problems else sides[other[0]] if other else samples.constant(scoring),
            metric=scoring.metric,
            set_aside=NOT_RUN if missing else NOT_JUDGED if problems and [mine] != other else "",
            same_runs=[mine] == other and not missing,
            reason=reason,
        )

    return pair


def _problems(question: Question, rungs: Mapping[str, RungRuns]) -> list[str]:
    """Why runs of these rungs cannot be judged, each reason once."""
    return list(dict.fromkeys(rungs[name].problem for name in question.rungs if rungs[name].problem))


def _judged(
    ladder: Ladder,
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
    details = [outside] if outside else wording.describe(comparison, scoring, beside)
    if question.metric and not outside:
        details[0] = f"{form_of(scoring.metric).title}: {details[0]}"
    if not_tuned and comparison.verdict != NOT_RUN and not outside:
        details.append(f"not tuned: {' and '.join(not_tuned)}")
    if still_improving and comparison.is_tested:
        details.append(f"still improving at the last step: {' and '.join(still_improving)}")
    if paper is not None:
        details.append(f"by the paper's own numbers: {wording.in_short(paper, scoring.metric)}")
    if stand_in and not outside:
        details.append(f"{task} stands in for the paper's tasks of this claim ({', '.join(claim.tasks)})")
    if elsewhere:
        by_task = ", ".join(f"{claimed_task} {verdict}" for claimed_task, verdict in elsewhere.items())
        details.append(f"by the paper's own numbers there: {by_task}")
    return JudgedClaim(
        **structs.asdict(comparison),
        by="runs",
        ladder=ladder.name,
        task=task,
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
    judged = without_numbers(claim, ladder.name, task, by="bench", verdict=verdict, detail="; ".join(details))
    return structs.replace(
        judged,
        ratio=measured.ratio if measured else None,
        ratio_low=measured.low if measured else None,
        ratio_high=measured.high if measured else None,
        paper_ratio=paper_ratio,
    )


def by_papers(
    ladders: Iterable[Ladder],
    task: str | None = None,
    profiles: Mapping[str, str | None] = MappingProxyType({}),
) -> list[JudgedClaim]:
    """The claims of ladders by their papers' own numbers, on the registered tasks that they name: on one, or on all.

    Args:
        profiles: task -> the profile whose numbers judge, if the paper has such; else the plain recipe's numbers do.
    """
    return [
        _by_paper(ladder, claim, on_task, published.judge(ladder, on_task, profiles.get(on_task)))
        for ladder in ladders
        for on_task in (tasks.TASKS if task is None else [task])
        for claim in ladder.claims
        if on_task in claim.tasks
    ]


def _by_paper(ladder: Ladder, claim: Claim, task: str, comparisons: Mapping[Question, Comparison]) -> JudgedClaim:
    nothing = without_numbers(claim, ladder.name, task, by="paper", verdict=NOT_JUDGED, reason="no numbers")
    if claim.is_about_speed:
        ratio, device = published.speed_ratio(ladder, claim, task) or (None, "")
        reason = nothing.reason if ratio is None else f"{ratio:.1f} times on one {device}, no spread is given"
        return structs.replace(nothing, reason=reason, paper_ratio=ratio)
    question, *difference = questions.of_claim(claim, task)
    beside = comparisons.get(difference[0]) if difference else None
    numbers = structs.asdict(comparisons[question]) if question in comparisons else {}
    return structs.replace(nothing, **numbers, difference_p=None if beside is None else beside.p_adjusted)
