"""The group-sequential design of `lrurun ladder --decide`: Holm's method at looks after 12 and 20 seeds.

1. **Hypotheses** are the ladder's on the task when the design is recorded. None is added or removed later.
2. **Looks.** Look k uses exactly the seeds 0 to n_k - 1 of both rungs. It applies Holm's method to all hypotheses that
   are not yet rejected, at its share of the level of 5 %. The shares add up to 1 at most (Bonferroni's inequality over
   looks). This holds for p-values of any dependence, so that rungs may be shared.
3. **Rejections** pass their level on from their look, because later corrections are over fewer hypotheses.
4. **Verdicts** stay as they are at the look that decides them. Seeds are added to rungs of undecided questions alone.

Sources: Maurer and Bretz (2013), Multiple testing in group sequential trials using graphical approaches; Ye et al.
(2013), A group sequential Holm procedure with multiple primary endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, cast

from msgspec import Struct, structs

from lrurun.errors import plural
from lrurun.judging import questions, verdicts
from lrurun.judging.statistics import ALPHA
from lrurun.judging.verdicts import (
    NOT_JUDGED,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Hypothesis,
    Kind,
    Pair,
    Question,
)

SHARES: Mapping[int, Mapping[int, float]] = {12: {12: 1.0}, 20: {12: 0.5, 20: 0.5}}
"""Largest number of seeds -> seeds of each look -> its share of a hypothesis's level.

There is no look below twelve seeds: verdicts with fewer do not hold when seeds fail (docs/statistics.md)."""
MAX_SEEDS = max(SHARES)
OUTSIDE = "outside the design, which was recorded without this question"
"""Why a question is not judged that a design does not have."""


class Look(Struct, frozen=True, kw_only=True):
    """A point at which verdicts may be reached."""

    seeds: int
    """The number of seeds of each rung."""
    share: float
    """The share of a hypothesis's current level that the look spends."""


def looks(max_seeds: int) -> tuple[Look, ...]:
    return tuple(Look(seeds=seeds, share=share) for seeds, share in SHARES[max_seeds].items())


class Design(Struct, frozen=True, kw_only=True):
    """A sequential design, which is fixed before the first look."""

    max_seeds: int
    looks: tuple[Look, ...]
    settings: dict[str, str]
    """Rung -> a digest of its settings: with others it is another experiment."""
    questions: tuple[Question, ...]
    finished_before: int
    """Final runs with these settings that were finished when the design was recorded."""


Rule = Literal["seeds", "seeds and items"]
"""What the p-values of a look hold for: new seeds on these test items, as in lrurun 1.0, or new test items too."""


class LookRecord(Struct, frozen=True, kw_only=True):
    """The outcome of a look."""

    design: str
    """A digest of its design."""
    seeds: int
    rule: Rule = "seeds"
    """Records of lrurun 1.0 do not name it. Later looks of their designs use the later rule, whose p-values are at
    least those for these items, so that the error rate of the design holds."""
    hypotheses: int
    """Hypotheses that Holm's method corrected for."""
    runs: tuple[str, ...]
    """Ids of the runs that it used."""
    comparisons: tuple[Comparison, ...]
    """The comparisons of the questions that were undecided before."""


class DesignProgress(Struct, frozen=True, kw_only=True):
    """A design, and the looks that were taken."""

    design: Design
    records: tuple[LookRecord, ...] = ()

    @property
    def answers(self) -> dict[Question, Comparison]:
        """The newest comparison of each question; a decided one is not asked again."""
        return {question_of(comparison): comparison for record in self.records for comparison in record.comparisons}

    @property
    def undecided(self) -> list[Question]:
        decided = {question for question, comparison in self.answers.items() if comparison.is_decided}
        return [question for question in self.design.questions if question not in decided]

    def count(self, first: Mapping[str, str]) -> int:
        """The hypotheses that are not rejected. `first` is, for each rung, the rung that its runs belong to."""

        def both(question: Question) -> tuple[Hypothesis, ...]:
            other = question.other and first[question.other]
            return verdicts.hypotheses(structs.replace(question, rung=first[question.rung], other=other))

        every = {hypothesis for question in self.design.questions for hypothesis in both(question)}
        rejected = {
            both(question)[0 if comparison.verdict == SUPPORTED else -1]
            for question, comparison in self.answers.items()
            if comparison.is_decided
        }
        return len(every - rejected)

    @property
    def next_look(self) -> Look | None:
        """The next look; None after the last one, or where nothing is undecided."""
        return next(iter(self.design.looks[len(self.records) :]), None) if self.undecided else None

    @property
    def next_rungs(self) -> set[str]:
        """The rungs that the next look needs: all before the first one."""
        if not self.records:
            return set(self.design.settings)
        return {name for question in self.undecided for name in question.rungs}

    @property
    def seeds(self) -> dict[str, int]:
        """How many seeds each rung had at the last look that needed it; empty before the first one."""
        named = {
            name: record.seeds
            for record in self.records
            for comparison in record.comparisons
            for name in question_of(comparison).rungs
        }
        return dict.fromkeys(self.design.settings, self.records[0].seeds) | named if self.records else {}


class DesignSummary(Struct, frozen=True, kw_only=True):
    """A design for reports and plans, and how far it is."""

    max_seeds: int
    looks: tuple[Look, ...]
    looks_done: int
    next_look: int | None
    """The seeds of each rung that it needs; None where the design is complete."""
    hypotheses: int
    """The number of hypotheses that are not rejected yet."""
    level: float | None
    """The level at which the next look tests the smallest p of them, not corrected; the following ones as Holm's
    method does."""
    questions: int
    undecided: int
    finished_before: int
    """Final runs with its settings that were finished when the design was recorded."""
    looks_of_seeds: tuple[int, ...] = ()
    """The seeds of looks that decided a question by the rule of lrurun 1.0: for new seeds on these test items alone."""
    removed: int = 0
    """Runs that looks used and that are gone: nobody can check these looks."""


def summary(progress: DesignProgress, first: Mapping[str, str], gone: Collection[str] = ()) -> DesignSummary:
    """`first` is, for each rung, the rung that its runs belong to; `gone` are the ids of runs that were removed."""
    look, count = progress.next_look, progress.count(first)
    return DesignSummary(
        max_seeds=progress.design.max_seeds,
        looks=progress.design.looks,
        looks_done=len(progress.records),
        next_look=look.seeds if look else None,
        hypotheses=count,
        level=ALPHA * look.share / count if look else None,
        questions=len(progress.design.questions),
        undecided=len(progress.undecided),
        finished_before=progress.design.finished_before,
        looks_of_seeds=tuple(
            record.seeds
            for record in progress.records
            if record.rule == "seeds" and any(comparison.is_decided for comparison in record.comparisons)
        ),
        removed=len({run for record in progress.records for run in record.runs} & set(gone)),
    )


def with_gone(removed: int) -> str:
    """What it means for a design that this number of the runs of its looks are gone; "" for none."""
    if not removed:
        return ""
    return (
        f"{plural(removed, 'run')} that looks of the design used {'is' if removed == 1 else 'are'} gone: the verdicts "
        "of these looks stay as they are recorded, and cannot be checked"
    )


def known_before(finished: int) -> str:
    """The consequence for a design if this number of its runs finished before it is recorded; "" for none."""
    if not finished:
        return ""
    return (
        f"{plural(finished, 'run')} finished before the design: its error rate holds only if their results are not the "
        "reason for choosing it"
    )


def take(
    progress: DesignProgress,
    look: Look,
    design: str,
    runs: Sequence[str],
    pair: Callable[[Question], Pair],
    first: Mapping[str, str],
) -> LookRecord:
    """The next look. `pair` finds the sides of a question, from the seeds of the look alone."""
    asked, count = progress.undecided, progress.count(first)
    judged = verdicts.judge([pair(question) for question in asked], share=look.share, count=count)
    return LookRecord(
        design=design,
        seeds=look.seeds,
        rule="seeds and items",
        hypotheses=count,
        runs=tuple(runs),
        comparisons=tuple(
            structs.replace(comparison, look=look.seeds) for comparison in questions.named(asked, judged).values()
        ),
    )


def answer(
    progress: DesignProgress, asked: Sequence[Question], pair: Callable[[Question], Pair]
) -> dict[Question, Comparison]:
    """The comparisons that a report shows: from the looks, and of questions outside the design or before their look."""
    answers = progress.answers
    first = progress.design.looks[0].seeds
    open_ = [question for question in asked if question not in answers]
    pairs = []
    for question in open_:
        sides = pair(question)
        if question not in progress.design.questions:
            verdict, reason = NOT_JUDGED, OUTSIDE
        else:
            verdict, reason = UNDECIDED, f"the first look is at {first} seeds"
        if not sides.same_runs and not sides.set_aside:
            sides = structs.replace(sides, set_aside=verdict, reason=reason)
        pairs.append(sides)
    every = questions.named(open_, verdicts.judge(pairs)) | answers
    return {question: every[question] for question in asked}


def question_of(comparison: Comparison) -> Question:
    """The question that a recorded comparison answers."""
    return Question(
        kind=cast(Kind, comparison.kind),
        rung=comparison.rung,
        other=comparison.other,
        margin=comparison.margin or 0.0,
        metric=comparison.metric,
    )
