"""The questions of a ladder on a task: the difference of each rung to its base, and each claim."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import structs

from lrurun.config.ladder import Claim, Ladder
from lrurun.data import tasks
from lrurun.errors import UsageError
from lrurun.judging import verdicts
from lrurun.judging.verdicts import Comparison, Pair, Question


def answer(
    ladder: Ladder, task: str, pair: Callable[[Question], Pair], outside: Collection[str] = ()
) -> dict[Question, Comparison]:
    """All questions of a ladder on a task, judged together; `pair` finds the sides of each.

    `outside`: texts of the claims that are not asked, because the task is outside their scope.

    Raises:
        UsageError: a claim names no margin.
    """
    questions = asked(ladder, task, outside)
    return named(questions, verdicts.judge([pair(question) for question in questions]))


def asked(ladder: Ladder, task: str, outside: Collection[str] = ()) -> list[Question]:
    """All questions of a ladder on a task, each once, without the claims whose texts are in `outside`.

    Raises:
        UsageError: a claim names no margin.
    """
    questions = dict.fromkeys(differences(ladder).values())
    for claim in ladder.claims:
        if claim.is_about(task) and claim.text not in outside:
            questions |= dict.fromkeys(of_claim(claim, task))
    return list(questions)


def named(questions: Sequence[Question], judged: Sequence[Comparison]) -> dict[Question, Comparison]:
    """Question -> its comparison, with the rungs that it names, though other rungs may have their runs."""
    return {
        question: structs.replace(
            comparison,
            rung=question.rung,
            other=question.other,
            sides=tuple(
                structs.replace(side, rung=name)
                for side, name in zip(comparison.sides, (question.rung, question.other), strict=True)
            ),
        )
        for question, comparison in zip(questions, judged, strict=True)
    }


def differences(ladder: Ladder) -> dict[str, Question]:
    """Rung -> the question whether it is better than its base."""
    return {rung: difference(rung, base) for rung, base in ladder.bases.items() if base is not None}


def of_claim(claim: Claim, task: str) -> list[Question]:
    """The questions of a claim on a task; beside a margin, also whether the two rungs differ. None of speed.

    Raises:
        UsageError: it names no margin.
    """
    if claim.kind == "faster" or claim.kind == "as-fast":
        return []
    if claim.kind in ("no-worse", "equal", "at-chance") and claim.margin is None:
        raise UsageError(
            f"the claim {claim.text!r} is of kind {claim.kind}, but names no margin",
            hint="add the difference that does not count as one: margin = 0.005",
        )
    metric = metric_of(claim, task)
    margin = claim.margin_on(task)
    questions = [Question(kind=claim.kind, rung=claim.rung, other=claim.than, margin=margin, metric=metric)]
    if claim.kind != "better" and claim.than is not None:
        questions.append(structs.replace(difference(claim.rung, claim.than), metric=metric))
    return questions


def metric_of(claim: Claim, task: str) -> str:
    """The metric of the task that a claim is about; empty: the one that selects the model."""
    if task in tasks.TASKS and tasks.selected_on(task).name == claim.metric:
        return ""
    return claim.metric


def difference(rung: str, base: str) -> Question:
    return Question(kind="better", rung=rung, other=base)
