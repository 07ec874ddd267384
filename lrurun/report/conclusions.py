"""The conclusions of a report on a ladder, as plain sentences, made from the verdicts of its rows and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lrurun.errors import plural
from lrurun.report import statistics
from lrurun.report.claims import Verdict, p_text
from lrurun.report.scores import ACCURACY, ScoreForm

if TYPE_CHECKING:
    from lrurun.report.ladder_table import LadderRow
    from lrurun.report.sequential import DesignSummary


def conclude(
    rows: Sequence[LadderRow],
    claims: Sequence[Verdict],
    design: DesignSummary | None = None,
    form: ScoreForm = ACCURACY,
    *,
    task: str,
) -> tuple[str, ...]:
    """What helps and hurts, what is undecided, what was not run, and how many claims have which verdict."""
    by_verdict: dict[str, list[LadderRow]] = {}
    for row in rows:
        by_verdict.setdefault(row.verdict, []).append(row)
    better, worse = by_verdict.get("better", []), by_verdict.get("worse", [])
    undecided = by_verdict.get("undecided", [])
    sentences = []
    if better:
        sentences.append(f"What helps: {_list(_decided(row, form) for row in better)}.")
    if worse:
        sentences.append(f"What hurts: {_list(_decided(row, form) for row in worse)}.")
    if undecided and not better and not worse:
        sentences.append(f"No difference between rungs is decided{'' if _is_complete(design) else ' yet'}.")
    if design is not None:
        sentences.append(_state(design))
    sentences += _undecided(undecided, design, form)
    if same := by_verdict.get("same runs"):
        sentences.append(f"Not compared, because the runs are the same: {_list(_pair(row) for row in same)}.")
    if missing := by_verdict.get("not run"):
        sentences.append(f"Not run: {_list(_pair(row) for row in missing)}.")
    if outside := by_verdict.get("not judged"):
        sentences.append(f"Outside the sequential design: {_list(_pair(row) for row in outside)}.")
    if claims:
        sentences.append(_claims(claims, task))
    return tuple(sentences)


def about(rungs: Sequence[str], every: Sequence[str]) -> list[str]:
    """Which of `every` rung the conclusions are about, unless about all."""
    if len(rungs) == len(every):
        return []
    which = f"the first {len(rungs)}" if rungs == every[: len(rungs)] else ", ".join(rungs)
    return [f"These sentences are about {which} of {len(every)} rungs; p and verdicts take all into account."]


def _is_complete(design: DesignSummary | None) -> bool:
    return design is not None and design.next_look is None


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


def _pair(row: LadderRow) -> str:
    return f"{row.rung} against {row.on}"


def _decided(row: LadderRow, form: ScoreForm) -> str:
    difference = row.counted_delta or 0.0
    size, direction = f"{form.full(abs(difference))} {form.unit}", "more" if difference > 0 else "less"
    p = "" if row.p_adjusted is None else p_text(row.p_adjusted)
    return f"{row.rung} scores {size} {direction} than {row.on}{_in_brackets(p + _look(row), row.remark)}"


def _look(row: LadderRow) -> str:
    return "" if row.look is None else f" at {row.look} seeds"


def _in_brackets(*parts: str) -> str:
    found = _list(filter(None, parts))
    return f" ({found})" if found else ""


def _undecided(undecided: Sequence[LadderRow], design: DesignSummary | None, form: ScoreForm) -> list[str]:
    """The differences that are not decided: how many seeds would decide them, which are too small, which have no test.

    The number of seeds is that of a new design where this one is complete.
    """
    untested = [row for row in undecided if row.p_adjusted is None or row.counted_delta is None]
    tested = [row for row in undecided if row not in untested]
    small = [row for row in tested if row.seeds_to_decide is None]
    others = [row for row in tested if row.seeds_to_decide is not None]
    sentences = []
    if others:
        found = _list(
            _pair(row) + _in_brackets(_difference(row, form), row.remark, _seeds(row, design)) for row in others
        )
        assumed = "The estimate takes the observed difference as the true one."
        if len(others) > 1:
            assumed = "The estimates take the observed differences as the true ones."
        sentences.append(f"Undecided: {found}. {assumed}")
    if small:
        found = _list(_pair(row) + _in_brackets(_difference(row, form), row.remark) for row in small)
        observed = "difference is as small as the observed one"
        if len(small) > 1:
            observed = "differences are as small as the observed ones"
        seeds = f"Undecided even with {statistics.MOST_SEEDS} seeds a side"
        sentences.append(f"{seeds}, if the true {observed}: {found}.")
    few = [row for row in untested if _seeds_a_side(row) < 2]
    without = [row for row in untested if row not in few]
    for why, group in (("a test needs at least two seeds a side", few), ("there is no test", without)):
        if group:
            found = _list(_pair(row) + _in_brackets(row.remark) for row in group)
            sentences.append(f"Undecided, because {why}: {found}.")
    return sentences


def _difference(row: LadderRow, form: ScoreForm) -> str:
    return f"{form.difference(row.counted_delta or 0.0)} {form.unit}{_look(row)}"


def _seeds_a_side(row: LadderRow) -> int:
    """The seeds of a difference: those of the side that has fewer."""
    return row.counted_n if row.counted_base_n is None else min(row.counted_n, row.counted_base_n)


def _seeds(row: LadderRow, design: DesignSummary | None) -> str:
    """How many seeds would decide a difference."""
    needed = row.seeds_to_decide or 0
    if _is_complete(design):
        return f"a new design with about {plural(needed, 'seed')} a side would decide"
    more = f"about {plural(max(needed - _seeds_a_side(row), 1), 'more seed')} a side would decide"
    return (
        more if design is None or needed <= design.max_seeds else f"{more}, but this design ends at {design.max_seeds}"
    )


def _claims(claims: Sequence[Verdict], task: str) -> str:
    """How many claims have which verdict, and on how many the paper has other tasks."""
    counts = Counter(claim.verdict for claim in claims if not claim.same_runs)
    found = [f"{count} {verdict}" for verdict, count in counts.most_common()]
    if same := sum(claim.same_runs for claim in claims):
        found.append(f"{same} not comparable (same runs)")
    others, about = sum(claim.stand_in for claim in claims), ""
    if others == len(claims):
        about = f", for whose tasks {task} stands in"
    elif others:
        about = f" ({task} stands in for the tasks of {others} of them)"
    return f"Of {plural(len(claims), 'claim')}{about}: {', '.join(found)}."
