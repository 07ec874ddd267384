"""The conclusions of a report on a ladder, as plain sentences, made from the verdicts of its rows and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lrurun.errors import plural
from lrurun.judging import sequential, verdicts, wording
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.scores import ACCURACY, ScoreForm
from lrurun.report.tables.remarks import Remark, conclusion
from lrurun.report.tables.row_scores import CHANGES

if TYPE_CHECKING:
    from lrurun.judging.sequential import DesignSummary
    from lrurun.judging.verdicts import Comparison
    from lrurun.report.tables.row_scores import LadderRow


def conclude(
    rows: Sequence[LadderRow],
    judged: Sequence[JudgedClaim],
    design: DesignSummary | None = None,
    form: ScoreForm = ACCURACY,
    *,
    task: str,
) -> tuple[Remark, ...]:
    """Sentences on what helps and hurts, what is undecided, what was not run, and how many claims have which
    verdict."""
    by_verdict: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.comparison is not None:
            by_verdict.setdefault(row.verdict, []).append(row.comparison)
    better, worse = by_verdict.get("helps", []), by_verdict.get("hurts", [])
    undecided = by_verdict.get("undecided", [])
    sentences: list[str | Remark] = []
    if better:
        sentences.append(f"Helps: {_list(_decided(comparison, form) for comparison in better)}.")
    if worse:
        sentences.append(f"Hurts: {_list(_decided(comparison, form) for comparison in worse)}.")
    if undecided and not better and not worse:
        is_complete = design is not None and design.next_look is None
        sentences.append(f"No difference between rungs is decided{'' if is_complete else ' yet'}.")
    if design is not None:
        sentences.append(_state(design))
        if design.removed:
            sentences.append(
                Remark(full=f"{sequential.with_gone(design.removed)}.", is_conclusion=True, is_covered=True)
            )
    sentences += _undecided(undecided, form)
    sentences += _warnings(rows)
    if same := by_verdict.get("same runs"):
        sentences.append(f"Not compared, because the runs are the same: {_list(map(_pair, same))}.")
    if missing := [*by_verdict.get("not run", []), *by_verdict.get("base not run", [])]:
        sentences.append(f"Not run: {_list(map(_pair, missing))}.")
    if left_out := by_verdict.get("left out"):
        sentences.append(f"Left out, see the notes: {_list(map(_pair, left_out))}.")
    not_judged = by_verdict.get("not judged", [])
    if outside := [comparison for comparison in not_judged if comparison.reason == sequential.OUTSIDE]:
        sentences.append(f"Outside the sequential design: {_list(map(_pair, outside))}.")
    if wrong := [comparison for comparison in not_judged if comparison not in outside]:
        sentences.append(f"Not judged: {_list(_pair(each) + _in_brackets(each.reason) for each in wrong)}.")
    if judged:
        sentences.append(_claims(judged, task))
    return tuple(map(conclusion, sentences))


def _warnings(rows: Sequence[LadderRow]) -> list[Remark]:
    """The conclusions that say how to read the others, as cautions do."""
    judged = [row.comparison for row in rows if row.comparison and row.verdict in ("helps", "hurts", "undecided")]
    covered = partial(Remark, is_conclusion=True, is_covered=True)
    return [
        *(covered(full=text, topic="provisional") for text in _provisional(judged)),
        *(covered(full=text, topic="improving") for text in _improving(rows)),
    ]


def about(rungs: Sequence[str], every: Sequence[str], hidden: int = 0) -> list[str]:
    """The sentence on which of all rungs, `every`, the conclusions are about; empty if they are about all."""
    if len(rungs) == len(every):
        return []
    names = f"the first {len(rungs)}" if rungs == every[: len(rungs)] else ", ".join(rungs)
    claims = f", without {plural(hidden, 'claim')} about others" if hidden else ""
    return [f"These sentences are about {names} of {len(every)} rungs{claims}; p and verdicts count all with results."]


def _state(design: DesignSummary) -> str:
    """How far a sequential design is."""
    if design.next_look is not None:
        return f"The sequential design is not complete: its next look is at {design.next_look} seeds."
    if not design.undecided:
        return "The sequential design is complete: every difference and claim in it is decided."
    return (
        "The sequential design is complete. What is undecided stays undecided, because seeds that are added now are "
        "outside the design."
    )


def _list(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def _pair(comparison: Comparison) -> str:
    return f"{comparison.rung} against {comparison.other}"


def _in_brackets(*parts: str) -> str:
    text = _list(filter(None, parts))
    return f" ({text})" if text else ""


def _decided(comparison: Comparison, form: ScoreForm) -> str:
    difference = comparison.difference
    p = "" if comparison.p_adjusted is None else wording.p_value(comparison.p_adjusted)
    beside = _in_brackets(p + wording.look(comparison), wording.failures(comparison))
    if opposite := wording.opposite_mean(comparison, form):
        return opposite + beside
    if difference is None:  # diverged runs, where the score of chance is not known
        is_better = comparison.verdict == verdicts.SUPPORTED
        return (
            f"a run of {comparison.rung} is {'better' if is_better else 'worse'} than one of {comparison.other}{beside}"
        )
    size, direction = wording.size_of_difference(comparison, form), "more" if difference > 0 else "less"
    return f"{comparison.rung} scores {size} {direction} than {comparison.other}{beside}"


def _remarks(comparison: Comparison, form: ScoreForm) -> list[str]:
    on_these = CHANGES.get(comparison.verdict_on_these_items, "")
    p = comparison.p_on_these_items
    these = f"on these items: {on_these}" + ("" if p is None else f", {wording.p_value(p)}") if on_these else ""
    return [these, wording.failures(comparison), wording.opposite_mean(comparison, form)]


def _undecided(undecided: Sequence[Comparison], form: ScoreForm) -> list[str]:
    """The differences that are not decided, with the interval in which each lies, and those without a test."""
    tested = [comparison for comparison in undecided if comparison.is_tested]
    few = [comparison for comparison in undecided if not comparison.is_tested and comparison.least_seeds < 2]
    without = [comparison for comparison in undecided if not comparison.is_tested and comparison not in few]
    sentences = []
    if tested:
        listed = _list(
            _pair(comparison)
            + _in_brackets(_range(comparison, form) + wording.look(comparison), *_remarks(comparison, form))
            for comparison in tested
        )
        alone = any(not 0 >= (comparison.low or 0) * (comparison.high or 0) for comparison in tested)
        beside = " Intervals are of each difference alone; p takes all into account." if alone else ""
        sentences.append(f"Undecided: {listed}.{beside}")
    waiting = [comparison for comparison in without if comparison.reason.startswith("the first look")]
    untested = [comparison for comparison in without if comparison not in waiting]
    whys = ["a test needs at least two seeds a side", "there is no test", waiting[0].reason if waiting else ""]
    for why, group in zip(whys, (few, untested, waiting), strict=True):
        if group:
            listed = _list(_pair(comparison) + _in_brackets(*_remarks(comparison, form)) for comparison in group)
            sentences.append(f"Undecided, because {why}: {listed}.")
    return sentences


def _range(comparison: Comparison, form: ScoreForm) -> str:
    """The interval of the difference of the means; of the chance of improvement where the difference has none."""
    return wording.between(comparison, form) or f"chance of improvement {wording.improvement(comparison)}"


def _provisional(judged: Sequence[Comparison]) -> list[str]:
    """A sentence where verdicts rest on few seeds."""
    tested = [comparison for comparison in judged if comparison.is_tested]
    provisional = [comparison for comparison in tested if comparison.provisional]
    if not provisional:
        return []
    subject = "all verdicts"
    if len(provisional) < len(tested):
        subject = _list(f"{_pair(comparison)} ({comparison.least_seeds} seeds)" for comparison in provisional)
    return [
        f"Provisional: {subject}. With fewer than {verdicts.LEAST_SEEDS} seeds a verdict assumes that no seed fails."
    ]


def _improving(rows: Sequence[LadderRow]) -> list[str]:
    """A sentence where rungs might score better with more steps."""
    names = [row.rung for row in rows if row.still_improving]
    if not names:
        return []
    subject = "All rungs are" if len(names) == len(rows) else f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
    return [f"{subject} still improving at the last step in most seeds: verdicts may change with more steps."]


def _claims(judged: Sequence[JudgedClaim], task: str) -> str:
    """How many claims have which verdict, and on how many the paper has other tasks."""
    counted = [claim for claim in judged if claim.verdict != verdicts.NOT_JUDGED]
    not_judged = len(judged) - len(counted)
    left_out = f"{plural(not_judged, 'claim')} not judged here, see below." if not_judged else ""
    if not counted:
        return left_out
    counts = Counter(claim.verdict for claim in counted if not claim.same_runs)
    parts = [f"{count} {verdict}" for verdict, count in counts.most_common()]
    if same := sum(claim.same_runs for claim in counted):
        parts.append(f"{same} not comparable (same runs)")
    stand_ins, beside = sum(claim.stand_in for claim in counted), ""
    if stand_ins == len(counted):
        beside = f", for whose tasks {task} stands in"
    elif stand_ins:
        beside = f" ({task} stands in for the tasks of {stand_ins} of them)"
    tested = [claim for claim in counted if claim.is_tested]
    few = sum(claim.provisional for claim in tested)
    provisional = f"; {'all' if few == len(tested) > 1 else few} provisional" if few else ""
    return f"Of {plural(len(counted), 'claim')}{beside}: {', '.join(parts)}{provisional}. {left_out}".rstrip()
