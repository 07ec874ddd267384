"""The conclusions of a report on a ladder, as plain sentences, made from the verdicts of its rows and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lrurun.errors import plural
from lrurun.report import statistics
from lrurun.report.claims import Verdict, p_text

if TYPE_CHECKING:
    from lrurun.report.ladder_table import LadderRow


def conclude(rows: Sequence[LadderRow], claims: Sequence[Verdict]) -> tuple[str, ...]:
    """What helps and hurts, what is undecided, what was not run, and how many claims have which verdict."""
    by_name = {row.rung: row for row in rows}
    by_verdict: dict[str, list[LadderRow]] = {}
    for row in rows:
        by_verdict.setdefault(row.verdict, []).append(row)
    better, worse = by_verdict.get("better", []), by_verdict.get("worse", [])
    undecided = by_verdict.get("undecided", [])
    sentences = []
    if better:
        sentences.append(f"What helps: {_list(_decided(row) for row in better)}.")
    if worse:
        sentences.append(f"What hurts: {_list(_decided(row) for row in worse)}.")
    if undecided and not better and not worse:
        sentences.append("No difference between rungs is decided yet.")
    if undecided:
        sentences.append(f"Undecided: {_list(_undecided(row, by_name) for row in undecided)}.")
    if same := by_verdict.get("same runs"):
        sentences.append(f"Not compared, because the runs are the same: {_list(_pair(row) for row in same)}.")
    if missing := by_verdict.get("not run"):
        sentences.append(f"Not run: {_list(_pair(row) for row in missing)}.")
    if outside := by_verdict.get("not judged"):
        sentences.append(f"Outside the sequential design: {_list(_pair(row) for row in outside)}.")
    if claims:
        sentences.append(_claims(claims))
    return tuple(sentences)


def _list(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def _pair(row: LadderRow) -> str:
    return f"{row.rung} against {row.on}"


def _decided(row: LadderRow) -> str:
    difference = row.counted_delta or 0.0
    points, direction = abs(difference) * 100, "more" if difference > 0 else "less"
    p = "" if row.p_adjusted is None else f" ({p_text(row.p_adjusted)})"
    return f"{row.rung} scores {points:.2f} points {direction} than {row.on}{p}{_remark(row)}"


def _remark(row: LadderRow) -> str:
    return ", though neither learns" if row.neither_learns else ""


def _undecided(row: LadderRow, rows: Mapping[str, LadderRow]) -> str:
    """A difference that is not decided, and how many more seeds would decide it."""
    if row.counted_delta is None or row.p_adjusted is None:
        return f"{_pair(row)} (no test yet){_remark(row)}"
    difference = f"{_pair(row)} ({row.counted_delta * 100:+z.2f} points"
    if row.seeds_to_decide is None:
        return f"{difference}; {statistics.MOST_SEEDS} seeds would not decide so small a difference){_remark(row)}"
    more = plural(_more(row, rows), "more seed")
    return f"{difference}; about {more} a side would decide, if it is the true one){_remark(row)}"


def _more(row: LadderRow, rows: Mapping[str, LadderRow]) -> int:
    base = rows.get(row.on or "")
    have = row.look or (min(row.counted_n, base.counted_n) if base else row.counted_n)
    return max((row.seeds_to_decide or 0) - have, 1)


def _claims(claims: Sequence[Verdict]) -> str:
    counts = Counter(claim.verdict for claim in claims)
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"Of {plural(len(claims), 'claim')}: {text}."
