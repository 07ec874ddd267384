"""The first layer of a report on a ladder: the answer on one screen. What it leaves out is in `ladder_content`."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from lrurun import paths, plugins
from lrurun.config.instance import items_command
from lrurun.config.resolve import RATE
from lrurun.config.schema import SETTINGS
from lrurun.console import clean
from lrurun.errors import plural
from lrurun.instances.requests import LadderRequest
from lrurun.judging import sequential, verdicts, wording
from lrurun.judging.sequential import MAX_SEEDS, known_before
from lrurun.judging.verdicts import Comparison
from lrurun.report.tables import axes, cells, content
from lrurun.report.tables.content import RUNG
from lrurun.report.tables.ladder_content import (
    BASE,
    LARGE_ITEM_SHARE,
    detect_foot,
    has_branches,
    p_cell,
    scope,
    with_difference,
)
from lrurun.report.tables.ladder_table import BASE_NOT_RUN, LEFT_OUT, PAPER_PROTOCOL, LadderReport
from lrurun.report.tables.row_scores import LadderRow
from lrurun.table import NOTHING, Column, Table

_PLOT_WIDTHS = (10, 12, 16, 20, 24, 28, 32)
"""Characters of the dot plot, without its ends: the widest that the table has room for."""
_WORDS = -_PLOT_WIDTHS.index(20)
"""The priority of longer words: the plot becomes narrower than this only where there is no room for short ones."""
_FEW = 3
"""The largest number of rungs that are named in a sentence that need not name them all."""


def content_of(
    report: LadderReport, request: LadderRequest | str | None = None, firm: str = ""
) -> content.ReportContent:
    """What the first layer shows, with commands that show more of what was requested: a text is the name of an instance
    that no request finds, because its documents have changed. It cannot be trained further, and `lrurun claims` does
    not know it.

    `firm`: the command that makes verdicts firm, or repeats firm ones, with what it costs, where that is known.
    """
    return content.ReportContent(
        title=_title(report),
        table=Table(columns=_columns(report), rows=report.rows),
        foot=("", *_sentences(report, request, firm), _more(report, request)),
    )


def _title(report: LadderReport) -> str:
    kinds = dict.fromkeys(row.rate_source.kind for row in report.rows if row.rate_source is not None)
    kinds.pop("default", None)  # a caution below the table
    rates = " or ".join(cells.RATES[kind] for kind in kinds)
    if "tuned" in kinds and report.tuning is not None:
        items = "" if report.tuning.items is None else f", {report.tuning.items:,} items"
        rates += f" ({plural(report.tuning.seeds, 'seed')}{items})"
    parts = [
        *structs.replace(report.instance, tune=False).parts(),  # the learning rates say that they were tuned
        f"ladder {report.instance.ladder}",
        _seeds(report),
        *([f"look {design.looks_done} of {len(design.looks)}"] if (design := report.design) else []),
        *([f"{'settings' if report.kind == 'program' else 'learning rates'} {rates}"] if rates else []),
        *(["not the published data"] if report.instance.data.get("published") == "no" else []),
    ]
    return " · ".join(parts)


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
        *([BASE] if has_branches(report) else []),
        Column(
            name=f"test {form.title}",
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
    form, long = report.score.beside([row.mean]), _needs_decimals(report)
    if row.mean is None:
        return next(iter(cells.uncounted(row)), NOTHING)
    return form.with_symbol(wording.with_error(row.mean, row.stderr, form, short=not long))


def difference(row: LadderRow, report: LadderReport) -> str:
    """The difference of a rung to its base, in as many digits; empty where there is none."""
    if row.comparison is None or row.same_as_before:
        return ""
    return wording.difference(row.comparison, report.score, short=not _needs_decimals(report))


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


def _needs_decimals(report: LadderReport) -> bool:
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
                line[round(axis.place(score) * (width - 1))] = mark
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
    if warnings := cautions(report):
        sentences.append(f"Caution: {'; '.join(caution.text for caution in warnings)}.")
    sentences.append(_next(report, request, firm))
    sentences += detect_foot(report)
    sentences += [f"Note: {note.text}" for note in report.notes if note != PAPER_PROTOCOL]
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
            if count > _FEW and rungs.keys() <= {"helps", "hurts", "undecided"}:
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
        names = f" ({', '.join(rungs)})" if verdict in decided and 0 < len(rungs) <= _FEW else ""
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
    where = "" if isinstance(request, str) else f" ({_command(report, request, 'claims')})"
    return f"{subject}{stand_in}: {', '.join(parts)}{where}."


def _on_these_items(comparison: Comparison) -> str:
    return comparison.verdict_on_these_items


_UNCOUNTED = {
    "diverged": "diverged",
    "unscored": "finished without a usable score",
    "infinite": "with an infinite score, an error of the metric",
    "failed": "failed",
    "unfinished": "unfinished",
}
"""The field of a row with a number of runs that its mean is not over -> in a caution, after "2 runs"."""
SELECTED_ON_TEST = "models selected on the test split"


class Caution(Struct, frozen=True, kw_only=True):
    """What changes the reading of an answer, in a few words."""

    what: str
    where: str = ""
    """The rungs that it is about, as in "all but tanh-rnn"."""
    advice: str = ""
    runs: int | None = None
    """How many runs it is about, if it is about single ones."""

    @property
    def text(self) -> str:
        """The caution as it is printed, for example "2 runs diverged (tanh-rnn)"."""
        runs = "" if self.runs is None else f"{plural(self.runs, 'run')} "
        where, advice = self.where and f" ({self.where})", self.advice and f": {self.advice}"
        return f"{runs}{self.what}{where}{advice}"


def cautions(report: LadderReport) -> list[Caution]:
    """Warnings that change the reading of the answer, in a few words each."""
    rows = report.rows
    differing = with_difference(rows)
    compared = [row for row in rows if row.comparison is not None and row.comparison.is_tested]
    few = [row for row in compared if row.comparison is not None and row.comparison.provisional]
    improving = [row for row in rows if row.still_improving]
    opposite = [row for row in compared if row.comparison and wording.opposite_mean(row.comparison, report.score)]
    if report.instance.tune:
        without = {rung for row in differing for rung in row.untuned}
        untuned = _about(
            "not tuned, because no tuning run finished", [row for row in rows if row.rung in without], rows
        )
    else:
        what = "not tuned, see --tune" if report.can_tune else "not tuned"
        untuned = _about(what, [row for row in differing if row.untuned], differing)
    value, more = "value" if report.kind == "program" else "rate", longer(report)
    smoke = "profile smoke shows that everything runs, its scores mean nothing"
    warnings = [
        Caution(what=smoke) if report.instance.profile == "smoke" else None,
        untuned,
        _about(
            "the same score as before with every seed",
            _unchanged(report),
            differing,
            "does the program use the setting?",
        ),
        _about(f"provisional, fewer than {verdicts.LEAST_SEEDS} seeds", few, compared),
        _about(f"best {value} at the edge of those tried", [row for row in rows if _is_at_edge(row, report)], rows),
        _about("still improving at the last step", improving, rows, f"longer with --set {more}" if more else ""),
        _about("the typical run and the mean disagree", opposite, compared),
        _about(SELECTED_ON_TEST, [row for row in rows if row.test_selected], rows),
    ]
    warnings += _item_cautions(report)
    untested: dict[str, list[LadderRow]] = {}
    for row in rows:
        if row.verdict == verdicts.UNDECIDED and row.comparison is not None and not row.comparison.is_tested:
            untested.setdefault(row.comparison.reason, []).append(row)
    warnings += [_about(reason, open_, [row for row in rows if row.comparison]) for reason, open_ in untested.items()]
    for state, what in _UNCOUNTED.items():
        counts = {clean(row.rung): getattr(row, state) for row in rows if not row.same_as_before}
        total = sum(counts.values())
        names = ", ".join(rung for rung, count in counts.items() if count)
        warnings.append(Caution(what=what, where=names, runs=total) if total else None)
    for kind, versions in (
        ("code", {version for row in rows for version in row.code_versions}),
        ("numerics", {version for row in rows for version in row.numerics}),
    ):
        warnings.append(Caution(what=f"runs of {len(versions)} {kind} versions") if len(versions) > 1 else None)
    if report.design is not None:
        if older := report.design.looks_of_seeds:
            at = " and ".join(map(str, older))
            what = f"the verdicts of the look at {at} seeds, recorded by lrurun 1.0, hold for these test items alone"
            warnings.append(Caution(what=what))
        before, look = known_before(report.design.finished_before), report.design.next_look
        warnings.append(Caution(what=before) if before else None)
        warnings.append(Caution(what=f"the next look is at {look} seeds") if look else None)
    return [caution for caution in warnings if caution is not None]


# Simulated (benchmarks/item_error_rates.py), more than 6 % of ladders have a wrong verdict only where every other rung
# fails with 30 to 40 % and the others never, each rung has strong tastes for items (1 logit), a test set has 300 items
# or 2,000, and there are 20 seeds or looks up to 20: 6.2 to 7.5 %. With 12 seeds it is at most 5.5 %. What is observed
# of such rungs is scattered around this, so that the shares below are smaller than the simulated ones.
HARD_SEEDS = 20
"""Seeds a side from which on the rule errs more often on comparisons with the next two properties."""
OFTEN = 0.25
"""A side that fails in this share of seeds, beside one that never does, often fails [ours]."""
STRONG_ITEM_SHARE = 0.3
"""From this share of test items in the variance on, which items are drawn decides much [ours]."""


def _item_cautions(report: LadderReport) -> list[Caution | None]:
    """How far verdicts hold for other test items, and how much these alone move a score."""
    changes = [row.comparison for row in report.rows if row.comparison is not None]
    compared = [each for each in (*changes, *report.claims) if each.is_tested]
    hidden = [each for each in compared if each.verdict_on_these_items]
    limited = [each for each in compared if not each.metric and (each in hidden or _is_limited_by_items(each))]
    names = {name for each in limited for name in (each.rung, each.other)}
    error = max((row.score_item_error or 0.0 for row in report.rows if row.rung in names), default=0.0)
    moved = f"{report.test_items or 0:,} test items move a score by ± {_size(error, report)}"
    if all((each.item_share or 0.0) >= LARGE_ITEM_SHARE for each in limited):
        moved += ", and more seeds help little"
    how = _how_to_record(report)
    return [
        _about(
            "verdicts hold for these test items alone",
            [each for each in compared if each.items_known == "unknown"],
            compared,
            how,
        ),
        _about(
            "undecided because of the test set", limited if error > (report.test_step or 0.0) else [], compared, moved
        ),
        _about(
            "per-item results are not known",
            [each for each in hidden if each.items_known == "number"],
            compared,
            how,
        ),
        _about(
            "a side often fails and test items matter: such verdicts are wrong more often than in 5 %",
            [each for each in compared if each.is_decided and _is_hard(each)],
            compared,
        ),
    ]


def _is_limited_by_items(comparison: Comparison) -> bool:
    """Whether the choice of test items makes most of the error of an undecided difference that is no smaller."""
    difference, error = comparison.difference, comparison.item_error
    return (
        comparison.verdict == verdicts.UNDECIDED
        and (comparison.item_share or 0.0) >= LARGE_ITEM_SHARE
        and difference is not None
        and error is not None
        and abs(difference) >= error
    )


def _size(error: float, report: LadderReport) -> str:
    form = report.score
    return f"{(form.size if form.needs_decimals(error) else form.short_size)(error)} {form.unit}"


def _how_to_record(report: LadderReport) -> str:
    """How per-item results are recorded."""
    if not report.has_items:
        return f"{report.score.title} is no mean over them"
    if report.kind != "program":
        return clean(items_command(report.instance.short_name))
    share = "" if report.test_items is not None or report.score.unit != "points" else ", or test_items in [program]"
    return f"if the score is a mean over items, use run.log_items{share}"


def _is_hard(comparison: Comparison) -> bool:
    """Whether one side often fails, the other never, and test items matter much: there the rule errs more often."""
    failing = [side.failures / side.n for side in comparison.sides if side.n]
    return (
        len(failing) == 2
        and min(side.n for side in comparison.sides) >= HARD_SEEDS
        and min(failing) == 0
        and max(failing) >= OFTEN
        and (comparison.item_share or 0.0) >= STRONG_ITEM_SHARE
    )


def _unchanged(report: LadderReport) -> list[LadderRow]:
    """The rungs of a user's program whose change has changed no score."""
    if report.kind != "program":
        return []
    by_rung = {row.rung: row for row in report.rows}
    return [
        row
        for row in with_difference(report.rows)
        if row.on in by_rung and row.scores == by_rung[row.on].scores and len(set(row.scores)) > 1
    ]


def longer(report: LadderReport) -> str:
    """The value of `--set` for twice the steps of the rungs that are still improving; empty without one."""
    steps = max((2 * row.steps for row in report.rows if row.still_improving and row.steps), default=None)
    return "" if steps is None or report.steps_path is None else f"{report.steps_path}={steps}"


def _is_at_edge(row: LadderRow, report: LadderReport) -> bool:
    """Whether the learning rate that tuning chose for a rung is the smallest or the largest that it tried; of a user's
    program, any setting."""
    paths = () if report.tuning is None else report.tuning.at_edge.get(row.rung, ())
    return RATE in paths or any(path.startswith(SETTINGS) for path in paths)


def _about(
    what: str,
    rows: Sequence[LadderRow] | Sequence[Comparison],
    every: Sequence[LadderRow] | Sequence[Comparison],
    advice: str = "",
) -> Caution | None:
    """A caution about these rungs of all in `every`, for example "not tuned (all rungs)"; None without any.

    More than three rungs are not named: those that are left out are, or there are more than three of them too.
    """
    if not rows:
        return None
    names = list(dict.fromkeys(clean(row.rung) for row in rows))
    rest = list(dict.fromkeys(name for row in every if (name := clean(row.rung)) not in names))
    if not rest:
        where = "all rungs"
    elif len(names) <= _FEW:
        where = ", ".join(names)
    else:
        where = f"all but {', '.join(rest)}" if len(rest) <= _FEW else f"{len(names)} rungs"
    return Caution(what=what, where=where, advice=advice)


def proposal(report: LadderReport) -> Literal["", "firm", "look", "repetition"]:
    """The next step: seeds that make verdicts firm, the next look of the design, or a repetition with fresh seeds.

    Seeds are never added because of a result: only a design that provides for it adds them.
    """
    if report.instance.profile == "smoke":
        return ""
    undecided = any(row.verdict == verdicts.UNDECIDED and row.comparison for row in report.rows)
    seeds = max((row.ranked for row in report.rows), default=0)
    if report.design is None and seeds < verdicts.LEAST_SEEDS:
        return "firm" if undecided or any(row.verdict in ("helps", "hurts") for row in report.rows) else ""
    if not undecided:
        return ""
    if report.design is not None and report.design.next_look is not None:
        return "look"
    open_ = [row.comparison for row in report.rows if row.verdict == verdicts.UNDECIDED and row.comparison]
    if not longer(report) and all((each.item_share or 0.0) >= LARGE_ITEM_SHARE for each in open_):
        return ""  # more seeds would help little
    return "" if report.fresh_seeds is None else "repetition"


def _next(report: LadderReport, request: LadderRequest | str | None, firm: str) -> str:
    """The command of the next step, and its purpose."""
    step = proposal(report)
    if isinstance(request, str) or not step:
        return ""
    if step == "firm":
        command = firm or _request(report, request).with_seeds(str(verdicts.LEAST_SEEDS))
        return f"Next: {command} makes verdicts firm, which takes {verdicts.LEAST_SEEDS} seeds whatever these say."
    if step == "look":
        return f"Next: {_command(report, request, 'ladder', '--decide')} takes the next look."
    more = longer(report)
    again = _request(report, request).repeated(report.fresh_seeds or "", more)
    runs = MAX_SEEDS * sum(not row.same_as_before for row in report.rows)
    command = firm or (again.fresh() if report.instance.tune else f"{again.fresh()} ({runs} runs)")
    what = "asks again with fresh seeds" if not more else "trains twice as long, with fresh seeds"
    return f"Next: {command} {what}, in a ledger of its own: adding seeds here because of the result would mislead."


def _more(report: LadderReport, request: LadderRequest | str | None) -> str:
    details, drawn = ("report", "--details"), ("plot", "--out", "ladder.pdf")
    commands = [_command(report, request, *words) for words in (details, drawn)]
    commands.append(clean(shlex.join(["lrurun", "ui", *paths.place_options()])))
    return f"More: {' · '.join(commands)}"


def _request(report: LadderReport, request: LadderRequest | None) -> LadderRequest:
    """The request that was made, or one for the instance of the report."""
    instance = report.instance
    return request or LadderRequest(
        task=instance.task,
        ladder=instance.ladder,
        profile=instance.profile,
        tune=instance.tune,
        sets=instance.set,
    )


def _command(report: LadderReport, request: LadderRequest | str | None, name: str, *more: str) -> str:
    """A command about the instance, as it was requested; claims have no instance."""
    if isinstance(request, str):
        words = ["lrurun", name, "--instance", request, *more]
        return clean(shlex.join([*words, *paths.place_options(), *plugins.load_options()]))
    request = _request(report, request)
    if name == "claims":
        request = structs.replace(request, task=report.instance.task, profile=None, tune=False, sets={})
    return clean(request.command(*more, *plugins.load_options(), name=name))
