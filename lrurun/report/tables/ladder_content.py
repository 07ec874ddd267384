"""The contents of the report on a ladder: its columns, cells and footnotes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec import structs

from lrurun.console import clean
from lrurun.data import tasks
from lrurun.judging import verdicts, wording
from lrurun.judging.scores import ScoreForm
from lrurun.report.tables import cells, content, grid_table, ladder_remarks, sparkline
from lrurun.report.tables.chosen_table import ChosenReport
from lrurun.report.tables.content import PARAMETERS, RUNG, TITLE
from lrurun.report.tables.ladder_table import LadderReport, further_tests_of
from lrurun.report.tables.row_scores import LadderRow, every_slot
from lrurun.report.tables.swept_table import value_text
from lrurun.table import NOTHING, Column, Table


def content_of(report: LadderReport) -> content.ReportContent:
    """The contents of the report."""
    return content.ReportContent(
        title=report.instance.title(report.title),
        question=report.question,
        above=grid_table.tables(report.grid, report.rows, cells.in_grid(report.score), report.score)
        if report.grid
        else (),
        table=Table(columns=_columns(report), rows=report.rows),
        remarks=ladder_remarks.of_report(report),
        groups=tuple(_group(row, report.score, {other.rung for other in report.rows}) for row in report.rows),
        claims=report.claims,
        label=report.instance.anchor(chosen_by(report)),
        csv=(*csv_columns(report.rows), *(report.by if isinstance(report, ChosenReport) else ())),
        curves=True,
    )


def chosen_by(report: LadderReport) -> str:
    """A part of the label of a table or figure of chosen values; empty for other ladders."""
    return f"chosen-by-{'-'.join(report.by)}" if isinstance(report, ChosenReport) else ""


def _group(row: LadderRow, form: ScoreForm, rungs: Collection[str]) -> content.RunGroup:
    base = content.anchor(row.on) if row.on is not None and row.on in rungs else None
    return content.RunGroup(
        anchor=content.anchor(row.rung),
        title=row.rung,
        runs=row.runs,
        other_runs=tuple(run.id for run in row.other_runs),
        base=base,
        same_as=base if row.same_as_before else None,
        metric=form.result,
        score=form,
    )


_CSV_FIRST = (
    "task ladder profile instance metric rung title n mean stderr on verdict difference low high improvement "
    "improvement_low improvement_high p_adjusted p_unadjusted provisional look detectable compared_n compared_mean "
    "compared_stderr base_n base_mean base_stderr diverged learning failure_bound improving failed "
    "unfinished parameters steps_per_second same_as_before published_value published_stderr "
    "published_source published_note published_metric runs scores code_versions learning_rate "
    "rate_source_kind rate_source_text"
).split()
"""The columns of CSV that keep this order; other fields follow them."""
_NOT_IN_CSV = {
    *("branches", "comparison", "published", "rate_source", "other_runs", "paper", "untuned"),
    *("further_tests", "slots"),
}
"""Fields of a row that are no column: `comparison`, `published`, `rate_source`, `further_tests` and `slots` have
columns for their parts, `branches` follows from `on`, and JSON has the runs that are not counted, the paper's numbers,
and which side of a difference is untuned."""
_CSV_COLUMNS = (
    *_CSV_FIRST,
    *(name for name in LadderRow.__struct_fields__ if name not in {*_CSV_FIRST, *_NOT_IN_CSV}),
    "label",
    *(name for name in content.COMPARED if name not in _CSV_FIRST),
)


def csv_columns(rows: Sequence[LadderRow]) -> tuple[str, ...]:
    """The columns of CSV for these rows."""
    slots = every_slot(row.slots for row in rows)
    return (*_CSV_COLUMNS, *content.further_fields(further_tests_of(rows)), *content.slot_fields(slots))


def has_branches(report: LadderReport) -> bool:
    """Whether the base of a rung is not the previous rung."""
    return any(row.branches for row in report.rows)


# Columns, with priorities: what a narrow table loses first


def scope(comparisons: Iterable[verdicts.Comparison | None]) -> str:
    """What their p values and intervals hold for, where that is more than new seeds."""
    known = {one.items_known in ("results", "number") for one in comparisons if one is not None and one.is_tested}
    if known == {True}:
        return "for new seeds and test items"
    return "for new seeds and, where their error is known, test items" if True in known else ""


BASE = Column(name="base", cell=lambda row: clean(row.on or NOTHING), right=False, priority=10)


def _columns(report: LadderReport) -> tuple[Column, ...]:
    corrected = f"method over all differences and claims with results{', at each look' if report.design else ''}"
    tested = [row.comparison for row in report.rows if row.comparison and row.comparison.is_tested]
    kinds = {False: "of ranks (Brunner and Munzel, by permutation)", True: "of means (Welch)"}
    methods = [kinds[few] for few in (False, True) if few in {comparison.provisional for comparison in tested}]
    few = f"; with fewer than {verdicts.LEAST_SEEDS} seeds, "
    new = f"{text}, " if (text := scope(tested)) else ""
    tests = f"p: two-sided, {new}{few.join(methods) or kinds[False]}, corrected by Holm's {corrected}."
    published, of_models = 9 if any(row.published for row in report.rows) else 0, report.is_of_models
    paper = Column(name="published", cell=lambda row: cells.published(row, report.score), priority=published)
    speed = content.number("steps/s", "steps_per_second", content.three_digits, priority=4, note="Steps/s: median.")
    return (
        RUNG,
        *choice_columns(report),
        *((BASE,) if has_branches(report) else ()),
        TITLE,
        _score_column(report.score),
        *(_further_column(name, report.score) for name in further_tests_of(report.rows)),
        *_slots_column(report),
        *_escape_column(report),
        _difference_column(report),
        *((Column(name="p", cell=p_cell, link=content.runs_of, priority=11, note=tests),) if tested else ()),
        *_learning_column(report),
        *_improvement_column(report),
        *_items_column(report),
        *((PARAMETERS,) if of_models else ()),
        *(() if report.kind == "imported" else (speed,)),
        *((paper,) if of_models else ()),
    )


def choice_columns(report: LadderReport) -> tuple[Column, ...]:
    """The values that were chosen for each rung, where they were."""
    if not isinstance(report, ChosenReport):
        return ()
    values = {choice.rung: choice.values for choice in report.choice}

    def column(path: str) -> Column:
        return Column(name=path, cell=lambda row: value_text(values.get(row.rung, {}).get(path)))

    return tuple(map(column, report.by))


def _score_column(form: ScoreForm) -> Column:
    def lines(row: LadderRow) -> str:
        return "\n".join([cells.score(row, form), *cells.remarks(row)])

    note = f"{form.sentence}: mean ± standard error over n finished seeds."
    narrow = Column(name=form.on_test(form.title), cell=lines, right=False, whole=True, link=content.runs_of, note=note)
    return structs.replace(narrow, cell=lambda row: lines(row).replace("\n", ", "), priority=2, narrower=narrow)


def _further_column(name: str, form: ScoreForm) -> Column:
    heading = f"{form.title} at {clean(name)}"
    return Column(name=heading, cell=lambda row: cells.further_score(row, name, form), link=content.runs_of, priority=7)


def _slots_column(report: LadderReport) -> tuple[Column, ...]:
    """The accuracy by slot as a curve in one line, between its two ends; none where the task has no slots."""
    last = max((slot.slot for row in report.rows for slot in row.slots), default=0)
    if last < 2:
        return ()

    def cell(row: LadderRow) -> str:
        means = [slot.mean for slot in row.slots if slot.mean is not None]
        if not means:
            return NOTHING
        # the two ends fix the levels: 0 and 1 are the same height in all rows
        levels = "".join(sparkline.BLOCKS[min(int(mean * 8), 7)] for mean in sparkline.averages(means, 16))
        return f"{100 * means[0]:.0f} {levels} {100 * means[-1]:.0f}"

    note = f"By slot: test accuracy of the first to the last of {last} labels of a sequence, in per cent."
    return (Column(name="by slot", cell=cell, right=False, whole=True, link=content.runs_of, priority=2, note=note),)


def _escape_column(report: LadderReport) -> tuple[Column, ...]:
    """The step at which the runs left the plateau; none where that is not recorded."""
    if all(row.escaped is None for row in report.rows):
        return ()

    def cell(row: LadderRow) -> str:
        if row.escaped is None:
            return NOTHING
        if row.escape_step is None:
            return "never"
        return f"{row.escape_step:,.0f}" + (f" ({row.escaped} of {row.n})" if row.escaped < row.n else "")

    task = report.instance.task
    bound = tasks.TASKS[task].metric.escape if task in tasks.TASKS else None
    beyond = "" if bound is None else f" of {report.score.with_symbol(report.score.short(bound))}"
    note = (
        f"Escape: the step of the first validation score{beyond} or better, the median of the seeds with one; never: "
        "no seed has one."
    )
    return (Column(name="escape", cell=cell, link=content.runs_of, priority=6, note=note),)


def p_cell(row: LadderRow) -> str:
    p = row.comparison.p_adjusted if row.comparison else None
    return NOTHING if p is None else wording.p_number(p).replace(" ", "")


def _learning_column(report: LadderReport) -> tuple[Column, ...]:
    """How many seeds learn; none where all do, or where that is not known."""

    def cell(row: LadderRow) -> str:
        seeds = row.ranked
        return f"{row.learning} of {seeds}" if row.learning is not None and seeds else NOTHING

    if all(row.learning is None or row.learning == row.ranked for row in report.rows):
        return ()
    return (Column(name="learn", cell=cell, link=content.runs_of, priority=6, note="Learn: seeds better than chance."),)


def _improvement_column(report: LadderReport) -> tuple[Column, ...]:
    """The chance that a run is better than one of the base; none where too few seeds say nothing of it."""

    def cell(row: LadderRow) -> str:
        return NOTHING if row.comparison is None else wording.improvement(row.comparison) or NOTHING

    if all(cell(row) == NOTHING for row in report.rows):
        return ()
    new = f" {text}" if (text := scope(row.comparison for row in report.rows)) else ""
    note = f"Better: the chance that a run scores better than one of the base, with its 95 % interval{new}."
    return (Column(name="better [95 %]", cell=cell, link=content.runs_of, priority=3, note=note),)


def _items_column(report: LadderReport) -> tuple[Column, ...]:
    """The share of test items in the variance of a difference; none where it is not known."""

    def cell(row: LadderRow) -> str:
        share = None if row.comparison is None else row.comparison.item_share
        return NOTHING if share is None else f"{100 * share:.0f} %"

    if all(cell(row) == NOTHING for row in report.rows):
        return ()
    note = "Items: the share of the choice of test items in the variance of the difference; the rest is of the seeds."
    return (Column(name="items", cell=cell, link=content.runs_of, priority=3, note=note),)


def _difference_column(report: LadderReport) -> Column:
    form = report.score
    note = f"Difference: to the {'base' if has_branches(report) else 'previous'} rung, in {form.unit}"

    def alone(row: LadderRow) -> str:
        if row.same_as_before:
            return f"as {clean(row.on or '')}"
        if row.comparison is None or row.comparison.difference is None:
            return NOTHING
        return f"{wording.difference(row.comparison, form)}{wording.look(row.comparison)}"

    def interval(row: LadderRow) -> str:
        comparison = row.comparison
        if comparison is None or comparison.low is None or comparison.high is None or comparison.difference is None:
            return alone(row)
        return f"{wording.difference_with_interval(comparison, form)}{wording.look(comparison)}"

    def short(row: LadderRow) -> str:
        return "same" if row.same_as_before else alone(row)

    narrowest = Column(name="diff.", cell=short, link=content.runs_of, priority=12, note=f"{note}.")
    narrow = structs.replace(narrowest, name="difference", cell=alone, priority=8, narrower=narrowest)
    if all(row.comparison is None or row.comparison.low is None for row in report.rows):
        return narrow
    new = f" {text}" if (text := scope(row.comparison for row in report.rows)) else ""
    with_interval = f"{note}, with its 95 % interval (Welch){new}, not corrected."
    return structs.replace(
        narrow, name="difference [95 %]", cell=interval, priority=7, narrower=narrow, note=with_interval
    )
