"""Tables for a paper: of a ladder's rungs, of its claims, of tasks by rungs; without words of lrurun's own.

What changes the reading of a table is in its caption. `formats.latex` sets them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct, structs

from lrurun.config.sweeps import in_words
from lrurun.console import clean
from lrurun.errors import plural
from lrurun.judging import wording
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.judging.scores import ScoreForm
from lrurun.judging.verdicts import JUDGED, LEAST_SEEDS, Comparison
from lrurun.ledger.values import RemovedRun
from lrurun.report.tables import answer, cells, claims_table, ladder_content
from lrurun.report.tables.all_tasks import AllTasksReport, AllTasksRow, TaskColumn
from lrurun.report.tables.chosen_table import ChosenReport
from lrurun.report.tables.ladder_table import SELECTED_ON_TEST, LadderReport
from lrurun.report.tables.row_scores import LadderRow, with_fewest_lost
from lrurun.table import NOTHING, Column, Table

MARKS = {"helps": "↑", "hurts": "↓", "same runs": "="}
"""The verdict on a change -> its mark; other verdicts have none."""
_HANGING = {"helps": "⇡", "hurts": "⇣", "same runs": "⁼"}
"""The same beside a number of a map, which it does not move."""

MOST_NAMED = 3
"""Papers whose claims a table has are named up to this number."""


class PaperTable(Struct, frozen=True, kw_only=True):
    """A table with its caption."""

    columns: tuple[Column, ...]
    """A column without a name is set close to the one before it."""
    rows: tuple[Any, ...]
    title: str
    """The beginning of the caption, which a text of the user's replaces."""
    legend: tuple[str, ...]
    """The sentences of the caption that explain the table, and what changes its reading."""
    label: str
    wrapped: str = ""
    """The name of the column whose cells are sentences, in several lines."""
    narrower: PaperTable | None = None
    """The table with shorter cells, for a page that this one does not fit."""


# The rungs of a ladder


def ablation(report: LadderReport, names: Sequence[str] = (), chosen: Table | None = None) -> PaperTable:
    """The scores of rungs, and what each change did; or a table of `chosen` columns with these names of CSV."""
    shown = set(names) or {"mean", "stderr", "verdict", "difference", "on"}
    legend = [
        *(_scores(report, with_n="n" not in shown) if shown & {"mean", "stderr"} else []),
        *(_changes(report, shown) if shown & {"difference", "verdict", "p_adjusted"} else []),
        *(_bold(report, same=bool(shown & {"verdict", "p_adjusted"})) if "mean" in shown else []),
        *(_opposite((row.comparison for row in report.rows), lambda _: report.score) if "verdict" in shown else []),
        *_lost(report.rows),
        *_beside(report),
        *_chosen(report),
    ]
    title = report.title_of_ladder if isinstance(report, ChosenReport) else report.title
    return PaperTable(
        columns=_of_rungs(report) if chosen is None else chosen.columns,
        rows=report.rows if chosen is None else chosen.rows,
        title=f"{_capital(title)}, on {report.instance.task}.",
        legend=tuple(legend),
        label=report.instance.anchor(ladder_content.chosen_by(report)),
    )


def _chosen(report: LadderReport) -> list[str]:
    """How settings were chosen for each rung, where a sweep was."""
    if not isinstance(report, ChosenReport):
        return []
    chosen = [choice for choice in report.choice if choice.seeds]
    if not chosen:
        return []
    values = _spanned([choice.among for choice in chosen], "value" if len(report.by) == 1 else "combination")
    seeds = _spanned([len(choice.seeds) for choice in chosen], "seed")
    if len({tuple(choice.seeds) for choice in chosen}) == 1:
        seeds += f" ({', '.join(map(str, chosen[0].seeds))})"
    settings = _capital(" and ".join(map(in_words, report.by)))
    how = f"chosen on validation among {values} with {seeds}, which no score or test here uses"
    return [f"{settings} of each variant: {how}."]


def _spanned(counts: Sequence[int], noun: str) -> str:
    """A number of things, or the range of several, as in "3 seeds" and "2 to 4 seeds"."""
    low, high = min(counts), max(counts)
    return plural(high, noun) if low == high else f"{low} to {plural(high, noun)}"


def with_results(report: LadderReport, *, or_published: bool = False) -> LadderReport:
    """The report without the rungs that were not run: a reader of a paper does not miss them.

    `or_published`: those that have published values stay.
    """
    rows = tuple(
        row for row in report.rows if row.mean is not None or cells.uncounted(row) or (or_published and row.published)
    )
    return structs.replace(report, rows=rows) if rows else report


def _of_rungs(report: LadderReport) -> tuple[Column, ...]:
    form = report.score
    seeds = Column(name="Seeds", cell=lambda row: f"{row.ranked}")
    base = Column(name="Base", cell=lambda row: clean(row.on or NOTHING), right=False)
    several = len({row.ranked for row in report.rows if row.ranked}) > 1
    bold = marked(report)
    return (
        Column(name="Variant", cell=lambda row: clean(row.rung), right=False),
        *((base,) if ladder_content.has_branches(report) else ()),
        *((seeds,) if several else ()),
        Column(name=heading(form), cell=lambda row: score(row, report), marked=lambda row: row.rung in bold),
        Column(name="Change", cell=lambda row: _change(row, report)),
        Column(name="", cell=lambda row: MARKS.get(row.verdict, ""), right=False),
    )


def heading(form: ScoreForm) -> str:
    """The heading of a column of scores, as in "Accuracy (%)"."""
    return _capital(form.title) + (f" ({form.symbol})" if form.symbol else "")


def score(row: LadderRow, report: LadderReport) -> str:
    """The mean of a rung with its error, without a symbol."""
    if row.mean is None:
        return next(iter(cells.uncounted(row)), NOTHING)
    form = report.score.beside([row.mean])
    return wording.with_error(row.mean, row.stderr, form, short=not answer.needs_decimals(report))


def marked(report: LadderReport) -> set[str]:
    """The rungs whose scores are in bold: no other one is decided to be better; without any test, the best one."""
    of_best = best_rows(report.rows, report.score)
    unbeaten = report.unbeaten
    names = set(unbeaten.rungs) if unbeaten is not None and unbeaten.is_tested else of_best
    return names & {row.rung for row in report.rows if row.mean is not None}


def best_rows(rows: Sequence[LadderRow], form: ScoreForm) -> set[str]:
    """The rungs with the best mean, of those that lost the fewest seeds."""
    candidates = with_fewest_lost(rows)
    best = form.best(row.mean for row in candidates if row.mean is not None)
    return {row.rung for row in candidates if row.mean == best and best is not None}


def _change(row: LadderRow, report: LadderReport) -> str:
    if row.comparison is None:
        return ""
    return answer.difference(row, report) or ("" if row.verdict in MARKS else NOTHING)


def _scores(report: LadderReport, *, with_n: bool) -> list[str]:
    form = report.score
    return [f"{form.sentence}: mean ± standard error{_over(report.rows) if with_n else ' over seeds'}."]


def _over(rows: Iterable[LadderRow]) -> str:
    """The number of seeds of all rows, as in " over 12 seeds"."""
    counts = [row.ranked for row in rows if row.ranked]
    return f" over {_spanned(counts, 'seed')}" if counts else ""


def _changes(report: LadderReport, shown: set[str]) -> list[str]:
    compared = [row.comparison for row in report.rows if row.comparison is not None]
    if not compared:
        return []
    to = "the base" if ladder_content.has_branches(report) else "the row above"
    if len(report.rows) == 1 or any(row.on not in {other.rung for other in report.rows} for row in report.rows[1:]):
        to = "the variant before"  # which another table may show
    sentences = []
    if "difference" in shown:
        sentences = [f"Change: difference to {to}, in {report.score.unit}."]
    elif "verdict" in shown:
        sentences = [f"Arrows: the change to {to}."]
    if shown & {"low", "high"}:
        interval = "its 95 % interval" if "difference" in shown else f"the 95 % interval of the difference to {to}"
        sentences.append(f"From, to: {interval}, not corrected.")
    corrected = f"over {plural(report.hypotheses, 'comparison')}"
    if "verdict" in shown:
        return [*sentences, *_legend(report.rows, corrected, _looks(report))]
    tested = [comparison for comparison in compared if comparison.is_tested]
    if "p_adjusted" in shown and tested:
        sentences.append(f"p: two-sided {test_of(tested)}, corrected by Holm's method {corrected}{_looks(report)}.")
    return sentences


def _looks(report: LadderReport) -> str:
    if report.design is None:
        return ""
    return (
        f", in a group-sequential design with looks at {' and '.join(str(k.seeds) for k in report.design.looks)} seeds"
    )


def _legend(rows: Sequence[LadderRow], corrected: str, looks: str = "") -> list[str]:
    """What the marks mean, by which test."""
    tested = [row.comparison for row in rows if row.comparison is not None and row.comparison.is_tested]
    if not tested:
        return ["No difference is tested: a test needs two seeds."]
    same = "; = the same runs" if any(row.verdict == "same runs" for row in rows) else ""
    return [
        f"↑ better, ↓ worse, no arrow undecided{same}: two-sided {test_of(tested)} at 5 %, "
        f"corrected by Holm's method {corrected}{looks}."
    ]


def test_of(tested: Sequence[Comparison]) -> str:
    """The tests of these comparisons, and what they hold for."""
    few = {comparison.provisional for comparison in tested}
    ranks, welch = "Brunner-Munzel permutation test", "Welch test"
    name = f"{ranks} ({welch} below {LEAST_SEEDS} seeds)" if len(few) > 1 else welch if True in few else ranks
    scope = ladder_content.scope(tested)
    return f"{name} {scope}" if scope else name


def _bold(report: LadderReport, *, same: bool) -> list[str]:
    """What bold means, by the `same` test as marks or by one that is named here."""
    unbeaten = report.unbeaten
    if unbeaten is None or not unbeaten.is_tested:
        return ["Bold: the best mean."]
    compared = [row.comparison for row in report.rows if row.comparison is not None and row.comparison.is_tested]
    test = (
        "the same test" if same and compared else f"a two-sided {test_of(compared)}" if compared else "a two-sided test"
    )
    sentence = f"Bold: no other variant is better, by {test} corrected over {plural(unbeaten.pairs, 'pair')}."
    return [sentence if unbeaten.can_decide else f"{sentence[:-1]}, of which so few seeds decide none."]


def _opposite(comparisons: Iterable[Comparison | None], form_of: Callable[[Comparison], ScoreForm]) -> list[str]:
    """A sentence where a mark and the means beside it point in opposite directions."""
    decided = [each for each in comparisons if each is not None and each.is_decided and not each.same_runs]
    if not any(wording.opposite_mean(each, form_of(each)) for each in decided):
        return []
    return ["The test compares runs: where some fail, an arrow and the means may point in opposite directions."]


def _lost(rows: Iterable[LadderRow]) -> list[str]:
    """The runs that means do not have."""
    lost = [f"{clean(row.rung)} ({', '.join(found)})" for row in rows if (found := cells.uncounted(row))]
    return [f"Not in the means: {'; '.join(lost)}."] if lost else []


def _beside(report: LadderReport) -> list[str]:
    """What changes the reading of all scores."""
    sentences = []
    if any(row.test_selected for row in report.rows) or any(note in SELECTED_ON_TEST for note in report.notes):
        sentences.append("Models were selected on the test split.")
    if report.instance.data.get("published") == "no":
        sentences.append("These are not the published data.")
    sentences += [
        f"The value {value.values} was tried and deleted{f': {clean(value.why)}'.rstrip('.') if value.why else ''}."
        for value in report.forgotten_values
    ]
    return [*sentences, *_removed(report)]


def _removed(report: LadderReport) -> list[str]:
    """The runs that the scores do not have because somebody removed them, with the reasons."""
    every = [(run.kind, run) for run in report.removed_runs] + [("again", run) for run in report.trained_again]
    groups: dict[tuple[str, str, str], list[RemovedRun]] = {}
    for kind, run in every:
        groups.setdefault((kind, run.stage, clean(run.why or "")), []).append(run)
    sentences = []
    for (kind, stage, why), runs in groups.items():
        many = len({run.run for run in runs})
        noun = plural(many, "tuning run" if stage == "tune" else "run")
        rungs = ", ".join(dict.fromkeys(clean(run.rung) for run in runs))
        what = _REMOVED[kind].format(were="was" if many == 1 else "were", are="is" if many == 1 else "are")
        sentences.append(f"{noun} of {rungs} {what}{f': {why}'.rstrip('.') if why else ''}.")
    return sentences


_REMOVED = {
    "forgotten": "{were} deleted and {are} not counted",
    "left out": "{are} not in the record of this table",
    "again": "{were} deleted and repeated",
}
"""What happened to runs -> in a sentence of a caption."""


def _capital(text: str) -> str:
    """A heading or the beginning of a sentence."""
    return text[:1].upper() + text[1:]


# Claims


def claims(report: LadderReport, *, plain: bool) -> PaperTable:
    """The claims on a ladder, with their verdicts by its runs; unless it is `plain`, with what qualifies each and with
    the verdicts by the papers' own numbers."""
    table = of_claims(report.claims, label=report.instance.anchor("claims"), plain=plain)
    title = f"{_capital(report.title)}, on {report.instance.task}: claims with their verdicts."
    form = report.score
    legend = [_over(report.rows).replace(" over ", "Judged from ") + " a variant." if _over(report.rows) else ""]
    tested = [claim for claim in report.claims if claim.is_tested]
    if tested:
        legend += [
            f"Difference of means, in {form.unit}{_INTERVALS}.",
            f"Verdicts: {test_of(tested)} at 5 %; p is corrected by Holm's method over "
            f"{plural(report.hypotheses, 'comparison')}{_looks(report)}.",
        ]
    if any(claim.stand_in and claim.verdict in JUDGED for claim in report.claims):
        legend.append("The claims were made about other tasks.")
    return _with_caption(table, title, [*filter(None, legend), *table.legend[-1:], *_beside(report)])


def _with_caption(table: PaperTable, title: str, legend: Sequence[str]) -> PaperTable:
    without = [sentence.replace(_INTERVALS, "") for sentence in legend]
    narrower = table.narrower and _with_caption(table.narrower, title, without)
    return structs.replace(table, title=title, legend=tuple(legend), narrower=narrower)


def with_removed(table: PaperTable, removed: Iterable[tuple[str, int, str | None]]) -> PaperTable:
    """The table with sentences on removed runs: of each removal the kind, the number and the reason."""
    sentences = []
    for kind, many, why in removed:
        what = _REMOVED[kind].format(were="was" if many == 1 else "were", are="is" if many == 1 else "are")
        sentences.append(f"{plural(many, 'run')} {what}{f': {clean(why)}'.rstrip('.') if why else ''}.")
    return _with_caption(table, table.title, [*table.legend, *sentences])


def judged(every: Sequence[JudgedClaim], *, by_runs: bool) -> list[JudgedClaim]:
    """The claims that are judged: by runs or studies; without any, by the papers' own numbers."""
    ours = [claim for claim in every if by_runs and claim.ours.verdict in JUDGED]
    return ours or [structs.replace(claim, here=None) for claim in every if claim.verdict in JUDGED and not by_runs]


def of_claims(judged: Sequence[JudgedClaim], *, label: str, plain: bool) -> PaperTable:
    """Claims with their verdicts, one a row; of several tasks, with the task."""
    matches = (re.match(r"(.+?\b(?:19|20)\d\d)\b", claim.source) for claim in judged)
    papers = list(dict.fromkeys(clean(match[1]) for match in matches if match))
    forms = {id(claim): claims_table.form_of(claim) for claim in judged}

    def difference(claim: JudgedClaim) -> str:
        return wording.difference_with_interval(claim.ours, forms[id(claim)], short=True) or NOTHING

    def alone(claim: JudgedClaim) -> str:
        return wording.difference(claim.ours, forms[id(claim)], short=True) or NOTHING

    def p(claim: JudgedClaim) -> str:
        value = claim.ours.p_adjusted
        return NOTHING if value is None else wording.p_number(value).replace(" ", "")

    def by_paper(claim: JudgedClaim) -> str:
        if claim.here is not None:
            return claim.verdict
        return NOTHING if claim.paper is None else claim.paper.verdict

    has_paper = any(by_paper(claim) != NOTHING for claim in judged)
    task = Column(name="Task", cell=lambda claim: clean(claim.task), right=False)
    table = PaperTable(
        columns=(
            Column(name="Claim", cell=lambda claim: clean(claim.text), right=False),
            *((task,) if len({claim.task for claim in judged}) > 1 else ()),
            Column(name="Difference", cell=difference),
            Column(name="p", cell=p),
            Column(name="Verdict", cell=lambda claim: claim.shown + claim.mark * (not plain), right=False),
            *(() if plain or not has_paper else (Column(name="By the paper", cell=by_paper, right=False),)),
        ),
        rows=tuple(judged),
        title="Claims with their verdicts.",
        legend=(*_judges(judged), *([f"Claims of {'; '.join(papers)}."] if 0 < len(papers) <= MOST_NAMED else [])),
        label=label,
        wrapped="Claim",
    )
    narrow = tuple(
        structs.replace(column, cell=alone) if column.name == "Difference" else column for column in table.columns
    )
    table = structs.replace(table, narrower=structs.replace(table, columns=narrow))
    return _with_caption(table, table.title, table.legend)


_INTERVALS = "; in brackets, its 95 % interval"
"""What a caption says of differences that have intervals."""


_PAGE = 36
"""Lines that a page has room for, beside the caption."""


def pages(table: PaperTable, letters: int) -> list[PaperTable]:
    """A long table in parts that fit a page each; all but the first say so, and have labels with numbers.

    `letters`: about how many a line of a sentence has.
    """
    if not table.wrapped:
        return [table]
    [sentences] = [column for column in table.columns if column.name == table.wrapped]
    parts: list[list[int]] = [[]]
    room = float(_PAGE)
    for number, row in enumerate(table.rows):
        lines = -(-len(sentences.cell(row)) // letters)
        if parts[-1] and room < lines:
            parts.append([])
            room = float(_PAGE)
        parts[-1].append(number)
        room -= lines + 0.3  # and the gap

    def part(whole: PaperTable, number: int, rows: list[int]) -> PaperTable:
        narrower = whole.narrower and part(whole.narrower, number, rows)
        whole = structs.replace(whole, rows=tuple(whole.rows[k] for k in rows), narrower=narrower)
        if number == 1:
            return whole
        title = f"{whole.title.rstrip('.')} (continued)."
        return structs.replace(whole, title=title, legend=(), label=f"{whole.label}-{number}")

    return [part(table, number, rows) for number, rows in enumerate(parts, 1)]


def _judges(judged: Sequence[JudgedClaim]) -> list[str]:
    """What the verdicts on claims of several ladders are from, and what changes their reading."""
    tested = [claim.ours for claim in judged if claim.ours.is_tested]
    sentences = [f"Difference of means{_INTERVALS}."] if tested else []
    if tested and any(claim.here is not None for claim in judged):
        sentences.append(
            f"Verdicts: {test_of(tested)} at 5 %, corrected by Holm's method over the comparisons of a task."
        )
    elif tested:
        sentences.append("Verdicts from the printed means and errors: Welch test at 5 %, corrected by Holm's method.")
    ours = [claim.here for claim in judged if claim.here is not None]
    stand_ins = sum(claim.stand_in for claim in ours)
    if stand_ins:
        every = "The" if stand_ins == len(ours) else f"{stand_ins} of the {len(ours)}"
        were = "claim was" if len(ours) == 1 else "claims was" if stand_ins == 1 else "claims were"
        sentences.append(f"{every} {were} made about other tasks, data or sizes.")
    return sentences


# Tasks by rungs


def task_map(report: AllTasksReport) -> PaperTable:
    """The scores of rungs on all tasks, with the verdicts on their changes. What there is more of goes down."""
    return _map(report, with_errors=True, narrower=_map(report, with_errors=False))


def _map(report: AllTasksReport, *, with_errors: bool, narrower: PaperTable | None = None) -> PaperTable:
    names = [_of_task(column, with_unit=len(set(_units(report))) > 1) for column in report.columns]

    def cell(column: TaskColumn, row: AllTasksRow, k: int) -> str:
        own, form = row.cells[k], column.score
        if own.mean is None:
            return NOTHING
        stderr = own.stderr if with_errors else None
        mark = _HANGING.get(own.verdict, "")
        return wording.with_error(own.mean, stderr, form.beside([own.mean]), short=True) + mark

    best = [best_rows([row.cells[k] for row in report.rows], column.score) for k, column in enumerate(report.columns)]

    def is_marked(k: int, row: AllTasksRow) -> bool:
        unbeaten, own = report.columns[k].unbeaten, row.cells[k]
        if own.mean is None:
            return False
        return own.unbeaten if unbeaten is not None and unbeaten.is_tested else own.rung in best[k]

    every = [own for row in report.rows for own in row.cells]
    numbers = "mean ± standard error" if with_errors else "mean"
    unit = f", {units.pop()}" if len(units := set(_units(report))) == 1 else ""
    legend = [
        f"Test scores{unit}: {numbers}{_over(every)}.",
        *_legend(every, "over the comparisons of a task"),
    ]
    tested = [column.unbeaten for column in report.columns if column.unbeaten is not None and column.unbeaten.is_tested]
    if tested:
        most = max(unbeaten.pairs for unbeaten in tested)
        legend.append(f"Bold: no other variant is better on that task, by the same test corrected over {most} pairs.")
    forms = {
        id(row.cells[k].comparison): column.score for row in report.rows for k, column in enumerate(report.columns)
    }
    legend += _opposite((own.comparison for own in every), lambda comparison: forms[id(comparison)])
    legend.insert(
        1, "Arrows: the change to the variant before it" + (", or to its base." if _branches(report) else ".")
    )
    if selected := [column.name for column in report.columns if column.test_selected]:
        legend.append(f"Models selected on the test split: {'; '.join(selected)}.")
    if lower := [column.name for column in report.columns if column.score.higher_is_better is False]:
        legend.append(f"Lower is better: {'; '.join(lower)}.")
    # a rung with the runs of its base has lost nothing more
    lost = sum(own.ranked - own.n + own.infinite + own.missing for own in every if not own.same_as_before)
    if lost:
        legend.append(f"Means leave out {plural(lost, 'seed')} without a score.")
    if other := [column.name for column in report.columns if column.instance.data.get("published") == "no"]:
        legend.append(f"Not the published data: {'; '.join(other)}.")
    rungs = [clean(row.rung) for row in report.rows]

    def of_rung(rung: str, row: AllTasksRow) -> Column:
        return Column(
            name=rung.replace("-", "-\n"),
            cell=lambda k: cell(report.columns[k], row, k),
            marked=lambda k: is_marked(k, row),
        )

    def of_task(k: int) -> Column:
        return Column(
            name=names[k].replace(", ", "\n"),
            cell=lambda row: cell(report.columns[k], row, k),
            marked=lambda row: is_marked(k, row),
        )

    if len(report.columns) > len(rungs):
        first = Column(name="Task", cell=lambda k: names[k], right=False)
        columns = tuple(map(of_rung, rungs, report.rows))
        rows: tuple[Any, ...] = tuple(range(len(names)))
    else:
        first = Column(name="Variant", cell=lambda row: clean(row.rung), right=False)
        columns = tuple(map(of_task, range(len(names))))
        rows = report.rows
    return PaperTable(
        columns=(first, *columns),
        rows=rows,
        title=f"{_capital(report.title)}: {plural(len(names), 'task')}.",
        legend=tuple(legend),
        label=structs.replace(report.instance, task="all").anchor("map"),
        narrower=narrower,
    )


def _units(report: AllTasksReport) -> list[str]:
    return [
        column.score.title + (f" in {column.score.symbol}" if column.score.symbol else "") for column in report.columns
    ]


def _of_task(column: TaskColumn, *, with_unit: bool) -> str:
    """The name of a task and its profile where there are several, with the metric where tasks have several."""
    name = column.name.removesuffix(", not the published data").removesuffix(", selected on test")
    return f"{clean(name)} ({column.score.heading})" if with_unit else clean(name)


def _branches(report: AllTasksReport) -> bool:
    return any(own.branches for row in report.rows for own in row.cells)
