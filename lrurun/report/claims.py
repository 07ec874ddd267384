"""The claims of a paper and the differences of a ladder's rungs to their bases, judged from runs by `verdicts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, structs

from lrurun.config import documents
from lrurun.data.metric import Metric
from lrurun.report import published, questions, sequential, statistics, verdicts
from lrurun.report.scores import ScoreForm, form_of
from lrurun.report.sequential import LookRecord, Progress
from lrurun.report.verdicts import (
    CONTRADICTED,
    NOT_COMPARABLE,
    NOT_JUDGED,
    NOT_RUN,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Judgement,
    Question,
    Result,
    Scoring,
    Side,
)


class RungResults(Struct, frozen=True, kw_only=True):
    """The runs of a rung."""

    of: str
    """The rung that they belong to: another one where both have the same settings."""
    results: tuple[Result, ...]


class Scored(Struct, frozen=True, kw_only=True):
    """The runs of a ladder with the scores of one metric."""

    rungs: Mapping[str, RungResults]
    scoring: Scoring


class Verdict(Judgement, frozen=True, kw_only=True):
    """A claim, judged from the runs of the ledger."""

    text: str
    source: str
    detail: str
    stand_in: bool
    """Whether the paper makes the claim on other tasks only."""
    difference_p: float | None = None
    """Adjusted p of the difference, beside a claim with a margin."""
    untuned: tuple[str, ...] = ()
    """Those of its rungs whose learning rate is the recipe's default."""
    paper: Judgement | None = None
    """By the paper's own numbers on this task."""
    elsewhere: Mapping[str, str]
    """For a stand-in, task of the claim -> verdict by the paper's own numbers."""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    """For "faster": how many times as fast the rung trains, measured in turns, and the interval of that."""
    paper_ratio: float | None = None
    """For "faster": the same of the published speeds."""

    @property
    def shown(self) -> str:
        """The verdict, as reports print it."""
        return NOT_COMPARABLE if self.same_runs else self.verdict

    @property
    def mark(self) -> str:
        """What reports print after the verdict on a claim that the paper makes on other tasks only."""
        return " (stand-in task)" if self.stand_in and self.shown in (SUPPORTED, CONTRADICTED, UNDECIDED) else ""


class Judged(Struct, frozen=True, kw_only=True):
    """All verdicts of a report."""

    differences: dict[str, Judgement]
    """Rung -> its difference to its base."""
    papers: dict[str, Judgement]
    """The same by the paper's own numbers, where it has any."""
    claims: tuple[Verdict, ...]
    sides: dict[str, Side]
    """Rung -> its counted runs."""


def judge(
    ladder: documents.Ladder,
    rungs: Mapping[str, RungResults],
    *,
    task: str,
    scoring: Scoring,
    untuned: Collection[str] = (),
    progress: Progress | None = None,
    others: Mapping[str, Scored] = MappingProxyType({}),
    profile: str | None = None,
) -> Judged:
    """The differences and claims of a ladder on a task, from the runs of its rungs and, with `progress`, from the looks
    of a sequential design. `others` has the scores of other metrics that claims name."""
    scored = {"": Scored(rungs=rungs, scoring=scoring), **others}
    sides = {name: verdicts.side(one.results, scoring) for name, one in rungs.items()}
    compare = _comparer(scored)
    if progress is None:
        found = questions.answer(ladder, task, compare)
    else:
        found = sequential.answer(progress, questions.asked(ladder, task), compare)
    complete = progress is not None and progress.next_look is None
    differences = questions.differences(ladder)
    named = {task, *(name for claim in ladder.claims for name in claim.tasks)}
    on_tasks = {name: published.judge(ladder, name, profile if name == task else None) for name in named}
    about = [claim for claim in ladder.claims if claim.is_about(task)]
    return Judged(
        differences={rung: found[question] for rung, question in differences.items()},
        papers={rung: on_tasks[task][question] for rung, question in differences.items() if question in on_tasks[task]},
        claims=tuple(
            judge_speed(ladder, claim, task)
            if claim.kind == "faster"
            else _verdict(claim, task, found, on_tasks, scored, untuned, complete=complete)
            for claim in about
        ),
        sides=sides,
    )


def take_look(
    progress: Progress,
    look: sequential.Look,
    rungs: Mapping[str, RungResults],
    *,
    scoring: Scoring,
    design: str,
    runs: Sequence[str],
    others: Mapping[str, Scored] = MappingProxyType({}),
) -> LookRecord:
    """The next look of a sequential design: exactly the first seeds of each rung count."""
    seeds = list(range(look.seeds))

    def first_seeds(of: Mapping[str, RungResults]) -> dict[str, RungResults]:
        return {
            name: structs.replace(one, results=tuple(result for result in one.results if result.seed < look.seeds))
            for name, one in of.items()
        }

    scored = {"": Scored(rungs=rungs, scoring=scoring), **others}
    scored = {name: structs.replace(one, rungs=first_seeds(one.rungs)) for name, one in scored.items()}
    compare = _comparer(scored)

    def complete(question: Question) -> Comparison:
        found = compare(question)
        names = [name for name in (question.rung, question.than) if name is not None]
        known = scored[question.metric].rungs
        lacking = [name for name in names if sorted(one.seed for one in known[name].results) != seeds]
        if not lacking:
            return found
        reason = f"the look at {look.seeds} seeds lacks runs of {' and '.join(lacking)}"
        return structs.replace(found, set_aside=UNDECIDED, reason=reason)

    return sequential.take(progress, look, design, runs, complete, {name: one.of for name, one in rungs.items()})


def _comparer(scored: Mapping[str, Scored]) -> Callable[[Question], Comparison]:
    """Finds the sides of a question; `scored` is by metric, "" for the one that selects the model."""
    all_sides = {
        metric: {name: verdicts.side(one.results, each.scoring) for name, one in each.rungs.items()}
        for metric, each in scored.items()
    }

    def compare(question: Question) -> Comparison:
        rungs, scoring = scored[question.metric].rungs, scored[question.metric].scoring
        sides = all_sides[question.metric]
        names = [name for name in (question.rung, question.than) if name is not None]
        mine, *other = (rungs[name].of for name in names)
        missing = [name for name in names if not rungs[name].results]
        reason = ""
        if missing:
            reason = f"no finished runs of {' and '.join(missing)}"
        elif [mine] == other:
            reason = f"{' and '.join(names)} are the same runs on this task"
        return Comparison(
            question=structs.replace(question, rung=mine, than=other[0] if other else None),
            mine=sides[mine],
            other=sides[other[0]] if other else verdicts.chance_side(scoring),
            metric=scoring.metric,
            set_aside=NOT_RUN if missing else "",
            same_runs=[mine] == other and not missing,
            reason=reason,
        )

    return compare


def _verdict(
    claim: documents.Claim,
    task: str,
    found: Mapping[Question, Judgement],
    papers: Mapping[str, Mapping[Question, Judgement]],
    scored: Mapping[str, Scored],
    untuned: Collection[str],
    *,
    complete: bool,
) -> Verdict:
    """`complete`: whether it is from a sequential design that has no look left."""
    question, *difference = questions.of_claim(claim, task)
    judged, scoring = found[question], scored[question.metric].scoring
    beside = found[difference[0]].p_adjusted if difference else None
    guessed = tuple(name for name in (claim.rung, claim.than) if name is not None and name in untuned)
    paper = papers[task].get(question)
    stand_in = bool(claim.tasks) and task not in claim.tasks
    elsewhere = {
        other: one.verdict
        for other in claim.tasks * stand_in
        if (one := papers[other].get(questions.of_claim(claim, other)[0])) is not None
    }
    details = describe(judged, scoring, beside, complete=complete)
    if question.metric:
        details[0] = f"{form_of(scoring.metric).title}: {details[0]}"
    if guessed and judged.verdict != NOT_RUN:
        details.append(f"not tuned: the learning rate of {' and '.join(guessed)}")
    if paper is not None:
        details.append(f"by the paper's own numbers: {in_short(paper, scoring.metric)}")
    if stand_in:
        details.append(f"{task} stands in for the paper's tasks of this claim ({', '.join(claim.tasks)})")
    if elsewhere:
        by_task = ", ".join(f"{other} {verdict}" for other, verdict in elsewhere.items())
        details.append(f"by the paper's own numbers there: {by_task}")
    return Verdict(
        **structs.asdict(judged),
        text=claim.text,
        source=claim.source,
        detail="; ".join(details),
        stand_in=stand_in,
        difference_p=beside,
        untuned=guessed,
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


def judge_speed(
    ladder: documents.Ladder, claim: documents.Claim, task: str, measured: SpeedRatio | None = None
) -> Verdict:
    """A claim about speed. Speeds of runs depend on what else ran: only a measurement in turns is judged.

    It is judged on the device of the paper alone, since another one may be better at either form.
    """
    paper_ratio, device = published.speed_ratio(ladder, claim, task) or (None, "")
    verdict, details = NOT_RUN, [f"speeds are measured in turns: lrurun bench step-rnn --shape {task}"]
    if measured is not None:
        details = [f"{measured.ratio:.1f} times as fast ({measured.low:.1f} to {measured.high:.1f})"]
        verdict = SUPPORTED if measured.low > 1 else CONTRADICTED if measured.high < 1 else UNDECIDED
        if device and device not in measured.device:
            verdict = NOT_JUDGED
            details.append(f"on {measured.device}, while the claim is about one {device}")
    if paper_ratio is not None:
        details.append(f"by the paper's own numbers: {paper_ratio:.1f} times on one {device}, no spread is given")
    return Verdict(
        kind=claim.kind,
        rung=claim.rung,
        than=claim.than,
        margin=None,
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


def describe(judged: Judgement, scoring: Scoring, beside: float | None = None, *, complete: bool = False) -> list[str]:
    """A judgement in phrases; `beside` is the p of the difference beside a claim with a margin.

    Where the sequential design that it is from is complete, more seeds belong to a new one.
    """
    if judged.verdict == NOT_RUN or judged.same_runs:
        return [judged.reason]
    form = form_of(scoring.metric)
    found = [_sides(judged, scoring)]
    if remark := chance_remark(judged):
        found.insert(0, remark)
    if judged.difference is not None:
        found.append(f"difference {_difference_text(judged, form)}")
    if judged.p_adjusted is not None:
        margin = f"margin {form.full(judged.margin)}, " if judged.margin else ""
        found.append(margin + p_text(judged.p_adjusted))
    elif judged.reason:
        found.append(judged.reason)
    if beside is not None:
        found.append(f"test of the difference: {p_text(beside)}")
    if judged.paired_low is not None and judged.paired_high is not None:
        found.append(f"paired by seed [{form.difference(judged.paired_low)}, {form.difference(judged.paired_high)}]")
    if judged.verdict == UNDECIDED and judged.p_adjusted is not None:
        found.append(_outlook(judged, complete))
    return found


def chance_remark(judged: Judgement) -> str:
    """What a pair of rungs near chance has learned, as in "only 2 of 12 seeds of linear-rnn learn"; else nothing."""
    if judged.neither_learns or not judged.near_chance:
        return "neither learns" if judged.neither_learns else ""
    sides = [(judged.learning, judged.n, judged.rung), (judged.than_learning, judged.than_n, judged.than)]
    found = [f"{learning} of {n} seeds of {rung}" for learning, n, rung in sides if learning]
    verb = "learns" if (judged.learning or 0) + (judged.than_learning or 0) == 1 else "learn"
    return f"only {' and '.join(found)} {verb}"


def _outlook(judged: Judgement, complete: bool) -> str:
    if judged.seeds_to_decide is not None:
        seeds = f"{'a new design with ' if complete else ''}about {judged.seeds_to_decide} seeds a side"
        return f"{seeds} would decide, if the true difference is the observed one"
    close = "too close to the margin" if judged.margin else "the difference is too small"
    return f"{close} to decide with {statistics.MOST_SEEDS} seeds a side"


def in_short(judged: Judgement, metric: Metric) -> str:
    """A judgement of published numbers, as in "undecided, -1.1 [-4.0, +1.8], p = 0.21"."""
    if judged.difference is None:
        return f"{judged.verdict}: {judged.reason}"
    form = form_of(metric)
    text = f"{judged.verdict}, {form.short_difference(judged.difference)}"
    if judged.low is not None and judged.high is not None:
        text += f" [{form.short_difference(judged.low)}, {form.short_difference(judged.high)}]"
    return text + (f", {p_text(judged.p_adjusted)}" if judged.p_adjusted is not None else f": {judged.reason}")


def p_text(p: float) -> str:
    """As in "p = 0.012"; for adjusted values."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _difference_text(judged: Judgement, form: ScoreForm) -> str:
    text = f"{form.difference(judged.difference or 0.0)} {form.unit}"
    if judged.low is None or judged.high is None:
        return text
    return f"{text} [{form.difference(judged.low)}, {form.difference(judged.high)}]"


def _sides(judged: Judgement, scoring: Scoring) -> str:
    mine = _side(judged.rung, judged.mean, judged.stderr, judged.n, judged.diverged, scoring)
    if judged.than is None:
        return f"{mine}, chance {_number(scoring.chance, scoring)}"
    other = _side(judged.than, judged.than_mean, judged.than_stderr, judged.than_n, judged.than_diverged, scoring)
    return f"{mine}, {other}"


def _side(name: str, mean: float | None, stderr: float | None, n: int, diverged: int, scoring: Scoring) -> str:
    error = "" if stderr is None else f" ± {_number(stderr, scoring)}"
    lost = f", {diverged} diverged" if diverged else ""
    if diverged and scoring.chance is not None:
        lost += f", counted as chance, {_number(scoring.chance, scoring)}"
    return f"{name} {_number(mean, scoring)}{error} (n={n}{lost})"


def _number(score: float | None, scoring: Scoring) -> str:
    return "no score" if score is None else form_of(scoring.metric).full(score)
