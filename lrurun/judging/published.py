"""The paper's own numbers under the rule for runs, so that an undecided claim does not look like a failed reproduction.

A printed standard error over n seeds is taken as the spread of a side; a printed 0.0 counts as 0.05, half of the last
digit of accuracies. Numbers without a spread are shown, but not judged, and "not above chance" is no number.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from lrurun.config.ladder import Claim, Ladder, Published
from lrurun.data import tasks
from lrurun.data.metric import Metric
from lrurun.judging import questions, statistics, wording
from lrurun.judging.item_errors import ItemSpread
from lrurun.judging.samples import Sample, Scoring, constant
from lrurun.judging.scores import form_of
from lrurun.judging.verdicts import NOT_JUDGED, Comparison, Pair, Question


def rows_for(ladder: Ladder, task: str, profile: str | None) -> dict[str, tuple[Published, ...]]:
    """Rung -> its published scores on a task: those for this profile, or, if no rung has any, for the plain recipe."""
    printed_for = profile if profile and names_profile(ladder, task, profile) else ""
    return {
        rung.name: tuple(score for score in rung.published.get(task, ()) if score.profile == printed_for)
        for rung in ladder.rungs
    }


def names_profile(ladder: Ladder, task: str, profile: str) -> bool:
    """Whether the paper has scores on this task at the sizes of a profile, as of the profile length-512."""
    return any(score.profile == profile for rung in ladder.rungs for score in rung.published.get(task, ()))


_JUDGED: dict[tuple[bytes, str, str | None], dict[Question, Comparison]] = {}
"""Text of a ladder, task, profile -> the judged questions: the numbers of a paper are judged once, not in every
report."""


def judge(ladder: Ladder, task: str, profile: str | None = None) -> dict[Question, Comparison]:
    """The questions of a ladder on a task for which the paper has numbers, judged from these."""
    key = (msgspec.json.encode(ladder), task, profile)
    if key not in _JUDGED:
        _JUDGED[key] = _judge(ladder, task, profile)
    return _JUDGED[key]


def _judge(ladder: Ladder, task: str, profile: str | None) -> dict[Question, Comparison]:
    rows = {name: scores for name, scores in rows_for(ladder, task, profile).items() if scores}
    if not rows or task not in tasks.TASKS:
        return {}
    metric = tasks.selected_on(task)
    of_profile = bool(profile) and names_profile(ladder, task, profile or "")
    test_items = None if of_profile else tasks.test_items(task)

    def chance() -> Sample:
        # imports the task only where its chance is not known without it
        known = tasks.TASKS[task].metric if metric.chance is None else metric
        return constant(Scoring(metric=known, chance=known.chance))

    def pair(question: Question) -> Pair:
        mine, other = (None, None) if question.metric else _chosen(rows, question)
        against_chance = question.other is None and mine is not None
        sides = (
            _sample(mine, metric, test_items),
            chance() if against_chance else _sample(other, metric, test_items),
        )
        return Pair(
            question=question,
            mine=sides[0],
            other=sides[1],
            metric=metric,
            set_aside=NOT_JUDGED if None in (side.counted for side in sides) else "",
            reason=_reason(question, mine, other, metric),
        )

    comparisons = questions.answer(ladder, task, pair)
    # Published rows are of the metric that selects the model, or of a variant of it.
    return {
        question: comparison
        for question, comparison in comparisons.items()
        if not question.metric and _chosen(rows, question)[0] is not None
    }


def _chosen(rows: dict[str, tuple[Published, ...]], question: Question) -> tuple[Published | None, Published | None]:
    """The published scores of both rungs from one paper, with spreads if it has such."""
    mine, other = rows.get(question.rung, ()), rows.get(question.other or "", ())
    if question.other is None:
        return (min(mine, key=lambda score: score.stderr is None), None) if mine else (None, None)
    pairs = [(score, base) for score in mine for base in other if _compared_by(score) == _compared_by(base)]
    return min(pairs, key=lambda pair: sum(score.stderr is None for score in pair), default=(None, None))


def _compared_by(score: Published) -> tuple[str, str, str]:
    """The paper, the metric and the profile of a score: scores that share them can be compared."""
    return score.source.partition(",")[0], score.metric, score.profile


def _sample(score: Published | None, metric: Metric, test_items: int | None) -> Sample:
    if score is None or score.value is None:
        return Sample(counted=None, finished=None)
    if score.stderr is None or score.n is None:
        return Sample(counted=None, finished=None, mean=score.value, n=score.n or 0)
    spread = score.stderr or 0.5 * 10**-metric.decimals / metric.scale
    estimate = statistics.printed(score.value, spread, score.n)
    bound = None if test_items is None else metric.variance(score.value, test_items)
    spread_of_items = None if bound is None else ItemSpread(errors=np.array([math.sqrt(bound)]))
    return Sample(counted=estimate, finished=estimate, mean=score.value, n=score.n, items=spread_of_items)


def _reason(question: Question, mine: Published | None, other: Published | None, metric: Metric) -> str:
    """Why the numbers are not judged."""
    sides = [(question.rung, mine), (question.other, other)]
    rows = [(name, score) for name, score in sides if score is not None]
    if any(score.value is None for _, score in rows):
        return "as reported, " + "; ".join(f"{name} {_reported(score, metric)}" for name, score in rows)
    if any(score.stderr is None for _, score in rows):
        return "no spread is given"
    return "the number of seeds is not given"


def _reported(score: Published, metric: Metric) -> str:
    if score.value is None:
        return "not above chance"
    return wording.with_error(score.value, score.stderr, form_of(metric), short=True)


def speed_ratio(ladder: Ladder, claim: Claim, task: str) -> tuple[float, str] | None:
    """The published speed of a claim's rung over the speed of the other rung on one device, and the device."""
    for mine in ladder.speeds:
        for other in ladder.speeds:
            same = (mine.source, mine.device) == (other.source, other.device)
            if same and (mine.rung, other.rung) == (claim.rung, claim.than):
                if task in mine.speeds and task in other.speeds:
                    return mine.speeds[task] / other.speeds[task], mine.device
    return None
