"""The first layer of a report on a ladder: the answer on one screen. What it leaves out is in `ladder_content`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from lrurun.console import clean
from lrurun.errors import plural
from lrurun.instances.import_record import ImportRecord
from lrurun.instances.requests import LadderRequest
from lrurun.judging import sequential, verdicts, wording
from lrurun.judging.verdicts import Comparison
from lrurun.report.tables import axes, cells, content, ladder_remarks, next_step
from lrurun.report.tables.content import RUNG
from lrurun.report.tables.ladder_content import (
    BASE,
    choice_columns,
    has_branches,
    p_cell,
    scope,
)
from lrurun.report.tables.ladder_remarks import FEW
from lrurun.report.tables.ladder_table import BASE_NOT_RUN, LEFT_OUT, LadderReport
from lrurun.report.tables.remarks import cautions_of
from lrurun.report.tables.row_scores import LadderRow
from lrurun.table import NOTHING, Column, Table

_PLOT_WIDTHS = (10, 12, 16, 20, 24, 28, 32)
"""Characters of the dot plot, without its ends: the widest that the table has room for."""
_WORDS = -_PLOT_WIDTHS.index(20)
"""The priority of longer words: the plot becomes narrower than this only where there is no room for short ones."""


def content_of(
    report: LadderReport, request: LadderRequest | str | None = None, firm: str = ""
) -> content.ReportContent:
    """What the first layer shows, with commands that show more of what was requested: a text is the name of an instance
    that no request finds, because its documents have changed. It cannot be trained further.

    `firm`: the command that makes verdicts firm, or repeats firm ones, with what it costs, where that is known.
    """
    return content.ReportContent(
        title=_title(report),
        table=Table(columns=_columns(report), rows=report.rows),
        foot=("", *_sentences(report, request, firm), next_step.more(report, request)),
    )


def _title(report: LadderReport) -> str:
    kinds = dict.fromkeys(row.rate_source.kind for row in report.rows if row.rate_source is not None)
    kinds.pop("default", None)  # a caution below the table
    kinds.pop("elsewhere", None)
    rates = " or ".join(cells.RATES[kind] for kind in kinds)
    if "tuned" in kinds and report.tuning is not None:
        items = "" if report.tuning.items is None else f", {report.tuning.items:,} items"
        rates += f" ({plural(report.tuning.seeds, 'seed')}{items})"
    parts = [
        *structs.replace(report.instance, tune=False).parts(),  # the learning rates say that they were tuned
        f"ladder {report.instance.ladder}",
        _seeds(report),
        *([f"look {design.looks_done} of {len(design.looks)}"] if (design := report.design) else []),
        *([f"{'learning rates' if report.is_of_models else 'settings'} {rates}"] if rates else []),
        *([_imported(report.imported)] if report.imported is not None else []),
        *(["not the published data"] if report.instance.data.get("published") == "no" else []),
    ]
    return report.instance.named(" · ".join(parts))


_LONGEST_PLACE = 40
"""The most characters of the source of imported runs; of a longer one, only the last part of its path is shown."""


def _imported(record: ImportRecord) -> str:
    """Where imported runs are from, as in "imported from runs.csv (csv)"."""
    trackers = ", ".join(dict.fromkeys(source.tracker for source in record.sources))
    places = [source.place for source in record.sources]
    if len(places) > 1:
        return f"imported from {len(places)} sources ({trackers})"
    place = places[0] if len(places[0]) <= _LONGEST_PLACE else re.split(r"[/\\]", places[0].rstrip("/\\"))[-1]
    return f"imported from {clean(place)} ({trackers})"


def _seeds(report: LadderReport) -> str:
    counts = {row.ranked for row in report.rows}
    if not any(counts):
        return "no results yet"
    least = f"{min(counts)} to " if len(counts) > 1 else ""
    return f"{least}{plural(max(counts), 'seed')} a rung"


# The table


def _columns(report: LadderReport) -> tuple[Column, ...]:
    form = report.score
    error = any(row.stderr is not None for row in report.rows)

    def seeds(row: LadderRow) -> str:
        return f"{row.ranked}"

    def learning(row: LadderRow) -> str:
        count = row.ranked
        return "" if row.learning in (None, count) else f"{row.learning}/{count}"

    base = "its base" if has_branches(report) else "the rung before"
    columns = [
        RUNG,
        *choice_columns(report),
        *([BASE] if has_branches(report) else []),
        Column(
            name=form.on_test(form.title),
            cell=lambda row: score(row, report),
            note="±: the standard error over seeds." if error else "",
        ),
        *_plot(report),
        _change(report),
    ]
    if any(difference(row, report) for row in report.rows):
        columns.append(
            Column(
                name=form.unit if len(form.unit) <= len("difference") else "difference",
                cell=lambda row: difference(row, report),
                priority=12,
                note=f"Change: to {base}, in {form.unit}{form.direction}.",
            )
        )
    if any(p_cell(row) != NOTHING for row in report.rows):
        by_ranks = not any(row.comparison.provisional for row in report.rows if row.comparison)
        undecided = "from 0.05 on undecided, which is not the same as no effect"
        new = f"{text}, " if (text := scope(row.comparison for row in report.rows)) else ""
        columns.append(
            Column(
                name="p",
                cell=lambda row: p_cell(row) if row.comparison else "",
                priority=11,
                note=f"p: {new}{'by ranks, ' * by_ranks}corrected for all comparisons; {undecided}.",
            )
        )
    if len({seeds(row) for row in report.rows}) > 1:
        columns.insert(1, Column(name="seeds", cell=seeds, priority=9))
    if any(learning(row) for row in report.rows):
        columns.append(Column(name="learn", cell=learning, priority=8, note="Learn: seeds better than chance."))
    if _is_of_fewer_seeds(report):
        columns.append(_LOOK)
    return tuple(columns)


def _change(report: LadderReport) -> Column:
    """The verdicts on the changes; those on these items beside them as far as there is room."""
    column = Column(name="change", cell=lambda row: row.verdict, right=False)
    if not any(row.on_these_items for row in report.rows):
        return column

    def in_brackets(row: LadderRow) -> str:
        return f"{row.verdict} ({row.on_these_items})" if row.on_these_items else row.verdict

    note = "In brackets: the verdict on these test items."
    narrow = structs.replace(column, cell=in_brackets, priority=10, narrower=column, note=note)
    return structs.replace(narrow, cell=cells.verdict, priority=_WORDS, narrower=narrow, note="")


def score(row: LadderRow, report: LadderReport) -> str:
    """The mean of a rung with its error, in as many digits as the numbers of the report need."""
    form, long = report.score.beside([row.mean]), needs_decimals(report)
    if row.mean is None:
        return next(iter(cells.uncounted(row)), NOTHING)
    return form.with_symbol(wording.with_error(row.mean, row.stderr, form, short=not long))


def difference(row: LadderRow, report: LadderReport) -> str:
    """The difference of a rung to its base, in as many digits; empty where there is none."""
    if row.comparison is None or row.same_as_before:
        return ""
    return wording.difference(row.comparison, report.score, short=not needs_decimals(report))


def _is_of_fewer_seeds(report: LadderReport) -> bool:
    """Whether a change is judged by fewer seeds than the means beside it are over."""
    seeds = {row.rung: row.ranked for row in report.rows}
    return any(
        row.comparison.look < max(seeds[row.rung], seeds.get(row.on or "", 0))
        for row in report.rows
        if row.comparison is not None and row.comparison.look is not None
    )


_LOOK = Column(
    name="look",
    cell=lambda row: "" if row.comparison is None else f"{row.comparison.look or ''}",
    priority=7,
    note="Look: the change and its p use only so many first seeds, the means use all.",
)


def needs_decimals(report: LadderReport) -> bool:
    """Whether the short form of scores would print an error or a difference as zero."""
    differences = (row.comparison.difference for row in report.rows if row.comparison is not None)
    numbers = [number for number in (*(row.stderr for row in report.rows), *differences) if number]
    return any(map(report.score.needs_decimals, numbers))


def _plot(report: LadderReport) -> tuple[Column, ...]:
    """The scores of all seeds on one axis, and their means, as characters; the narrower forms of the column."""
    symbol = report.score.symbol
    axis = axes.of((score for row in report.rows for score in row.scores), report.score.scale)
    if axis is None:
        return ()

    def form(width: int, narrower: Column | None) -> Column:
        def cell(row: LadderRow) -> str:
            line = [" "] * width
            means = [] if row.mean is None else [(row.mean, "●")]
            for score, mark in [*((score, "○") for score in row.scores), *means]:
                line[round(axis.position(score) * (width - 1))] = mark
            return f"|{''.join(line)}|"

        first, last = f"{axis.labelled[0][1]} {symbol}".rstrip(), axis.labelled[-1][1]
        return Column(
            name=first + last.rjust(width + 2 - len(first)),
            cell=cell,
            right=False,
            priority=-_PLOT_WIDTHS.index(width),
            narrower=narrower,
            note="○: seeds; ●: the mean.",
            is_plot=True,
        )

    column = None
    for width in _PLOT_WIDTHS:
        column = form(width, column)
    assert column is not None
    return (column,)


# The sentences below it


def _sentences(report: LadderReport, request: LadderRequest | str | None, firm: str) -> list[str]:
    sentences = [_outcome(report.rows), _looks(report)]
    if report.claims:
        sentences.append(_claims(report, request))
    remarks = ladder_remarks.of_report(report)
    if cautions := cautions_of(remarks):
        sentences.append(f"Caution: {'; '.join(caution.text for caution in cautions)}.")
    sentences += next_step.sentence(report, request, firm).splitlines()
    sentences += [remark.brief for remark in remarks]
    return [sentence for sentence in sentences if sentence]


_CHANGES = {
    "helps": "Helps",
    "hurts": "Hurts",
    "undecided": "Undecided",
    "same runs": "Same runs as before",
    "not run": "Not run",
    BASE_NOT_RUN: "Base not run",
    LEFT_OUT: "Left out",
    "not judged": "Not judged",
    "outside": "Outside the sequential design",
}
"""The verdict on a change -> how a sentence on the rungs with it begins."""


def _outcome(rows: Sequence[LadderRow]) -> str:
    """The verdicts in words, for example "Helps: diagonal. Undecided: the other 6 (intervals: --details)."."""
    rungs: dict[str, list[str]] = {}
    intervals = False
    for row in rows:
        if row.comparison is not None:
            is_outside = row.verdict == verdicts.NOT_JUDGED and row.comparison.reason == sequential.OUTSIDE
            rungs.setdefault("outside" if is_outside else row.verdict, []).append(clean(row.rung))
            intervals |= row.verdict == verdicts.UNDECIDED and row.comparison.low is not None
    parts = []
    for verdict in (verdict for verdict in _CHANGES if verdict in rungs):
        names = ", ".join(rungs[verdict])
        if verdict == "undecided":
            count = len(rungs[verdict])
            if count > FEW and rungs.keys() <= {"helps", "hurts", "undecided"}:
                names = f"the other {count}" if len(rungs) > 1 else f"all {count} changes"
            names += " (intervals: --details)" if intervals else ""
        parts.append(f"{_CHANGES[verdict]}: {names}.")
    hidden = {word: [clean(row.rung) for row in rows if row.on_these_items == word] for word in ("helps", "hurts")}
    on_these = [f"{word} ({', '.join(names)})" for word, names in hidden.items() if names]
    return " ".join([*parts, *([f"On these test items: {', '.join(on_these)}."] if on_these else [])])


def _looks(report: LadderReport) -> str:
    """A sentence on a design that is complete."""
    if report.design is not None and report.design.next_look is None and report.design.undecided:
        return "The sequential design is complete: what is undecided stays undecided."
    return ""


def _claims(report: LadderReport, request: LadderRequest | str | None) -> str:
    """How many claims have which verdict, on which rungs those that are decided are, and where they all are."""
    decided = (verdicts.SUPPORTED, verdicts.CONTRADICTED)
    order = (*decided, verdicts.UNDECIDED)
    counts = Counter(claim.shown for claim in report.claims)
    parts = []
    for verdict in dict.fromkeys((*order, *counts)):
        if not counts[verdict] and verdict not in decided:
            continue
        rungs = list(dict.fromkeys(clean(claim.rung) for claim in report.claims if claim.shown == verdict))
        names = f" ({', '.join(rungs)})" if verdict in decided and 0 < len(rungs) <= FEW else ""
        if verdict == verdicts.UNDECIDED and (on_these := Counter(map(_on_these_items, report.claims))):
            counted = [f"{on_these[word]} {word}" for word in decided if on_these[word]]
            names = f" (on these test items: {', '.join(counted)})" if counted else ""
        parts.append(f"{counts[verdict]} {verdict}{names}")
    judged = [claim for claim in report.claims if claim.shown in order]
    stand_ins = sum(claim.stand_in for claim in judged)
    about = "made about other tasks"  # than this one, which stands in for them
    stand_in = (f", {about}" if stand_ins == len(judged) else f" ({stand_ins} of them {about})") if stand_ins else ""
    matches = [re.match(r"(.+?\b(?:19|20)\d\d)\b", claim.source) for claim in report.claims]
    papers = {match[1] if match else "" for match in matches}
    paper = papers.pop() if len(papers) == 1 else ""
    subject = f"Claims of {clean(paper)}" if paper else "Claims"
    where = next_step.command(report, request, "claims")
    return f"{subject}{stand_in}: {', '.join(parts)} ({where})."


def _on_these_items(comparison: Comparison) -> str:
    return comparison.verdict_on_these_items
