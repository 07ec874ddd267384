"""A map of tasks by rungs: what each change did on each task, as a sign, a number and a colour."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable

from msgspec import Struct, structs

from lrurun.judging import wording
from lrurun.report.tables import all_tasks, content
from lrurun.report.tables.all_tasks import AllTasksReport, AllTasksRow, TaskCell, TaskColumn
from lrurun.table import NOTHING, Column, Table

SIGNS = dict(zip(all_tasks.COMPARED, "▲▼·=", strict=True))
"""The verdict on a change -> its sign; other verdicts have none."""
COUNTS = "number of tasks"
"""The name of the row or column that counts verdicts."""
DECIDED = ("helps", "hurts")
HIDDEN = {verdict: f"({SIGNS[verdict]})" for verdict in DECIDED}
"""The verdict on these test items, where that for others is undecided -> its sign."""
STRENGTHS = 4
"""How many strengths a colour of a page has."""


class MapCell(Struct, frozen=True, kw_only=True):
    """A rung on a task."""

    anchor: str
    text: str
    """Sign and difference, which is called the mean's where the typical run has the other direction; without a
    difference to a base, the score; empty where there is nothing."""
    short: str = ""
    """The text for a narrow cell: the sign above a number of two digits."""
    verdict: str
    benefit: float | None
    """The difference as a share of the largest in its metric, positive where the change helps or, if that is
    undecided, where the mean is better; None without one."""

    @property
    def style(self) -> str:
        """The style of the cell on a page: "better" or "worse" with a strength, or "undecided"."""
        if self.benefit is None or not self.text:
            return ""
        if self.verdict not in DECIDED:
            return "undecided"
        strength = min(int(STRENGTHS * abs(self.benefit)) + 1, STRENGTHS)
        return f"{'better' if self.verdict == 'helps' else 'worse'} s{strength}"


def _legend(*, hidden: bool) -> str:
    """What the signs mean; signs of verdicts on these test items where there are any."""
    more = f", {' '.join(HIDDEN.values())} undecided, but helps or hurts on these test items" if hidden else ""
    return (
        f"Difference to the base of each rung: ▲ helps, ▼ hurts, · undecided{more}, = the same runs; "
        "without a base to compare with: the score."
    )


class TaskMap(Struct, frozen=True, kw_only=True):
    """The map of tasks, each with its profile, by rungs. What there is more of goes down; after several tasks, the
    verdicts on each rung are counted."""

    legend: str
    of_rows: str
    """What the rows are: "rung" or "task"."""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[MapCell, ...], ...]
    """By rows."""


def make(report: AllTasksReport) -> TaskMap:
    """The map of a report on all tasks."""
    largest: dict[str, float] = defaultdict(float)
    for row in report.rows:
        for cell in row.cells:
            if (size := _difference(cell)) is not None and math.isfinite(size):
                largest[cell.metric] = max(largest[cell.metric], abs(size))
    tasks = [column.name + column.score.direction for column in report.columns]
    rungs = tuple(row.rung for row in report.rows)
    by_task = [
        tuple(_cell(column, row.cells[k], largest) for row in report.rows) for k, column in enumerate(report.columns)
    ]
    if len(tasks) > 1:
        tasks.append(COUNTS)
        by_task.append(tuple(map(_counts, report.rows)))
    legend = _legend(hidden=any(cell.on_these_items for row in report.rows for cell in row.cells))
    if len(report.columns) > len(rungs):
        return TaskMap(legend=legend, of_rows="task", rows=tuple(tasks), columns=rungs, cells=tuple(by_task))
    by_rung = tuple(zip(*by_task, strict=True))
    return TaskMap(legend=legend, of_rows="rung", rows=rungs, columns=tuple(tasks), cells=by_rung)


def _counts(row: AllTasksRow) -> MapCell:
    """How many tasks have each verdict on a rung."""
    counts = Counter(cell.verdict for cell in row.cells)
    text = " ".join(f"{sign}{counts[verdict]}" for verdict, sign in SIGNS.items() if counts[verdict])
    decided = [f"{SIGNS[verdict]}{counts[verdict]}" for verdict in DECIDED if counts[verdict]]
    return MapCell(anchor="", text=text, short="\n".join(decided) or text, verdict="", benefit=None)


def _difference(cell: TaskCell) -> float | None:
    return None if cell.comparison is None or cell.same_as_before else cell.comparison.difference


def _cell(column: TaskColumn, cell: TaskCell, largest: dict[str, float]) -> MapCell:
    form, size = column.score, _difference(cell)
    gain = None if size is None else -size if form.higher_is_better is False else size
    direction = {"helps": 1.0, "hurts": -1.0}.get(cell.verdict, 0.0)  # by ranks, which a mean may contradict
    if size is None and not cell.same_as_before and cell.mean is not None:
        text = form.with_symbol(form.short(cell.mean))
        short = _two_digits(form.scale * cell.mean, form.decimals, sign="")
    else:
        number = ""
        if size is not None and cell.comparison is not None:
            number = wording.difference(cell.comparison, form, short=True)
        opposite = gain is not None and direction * gain < 0
        sign = HIDDEN.get(cell.on_these_items) or SIGNS.get(cell.verdict, "")
        text = f"{sign} {'mean ' if opposite else ''}{number}".strip()
        digits = "" if size is None else _two_digits(form.scale * size, form.decimals, sign="+")
        short = f"{sign}\n{f'({digits})' if opposite else digits}".strip("\n")
    share = None
    if gain is not None:
        part = 1.0 if math.isinf(gain) else abs(gain) / (largest[cell.metric] or 1.0)
        share = math.copysign(part, direction or gain)
    return MapCell(
        anchor=all_tasks.anchor(column, cell.rung), text=text, short=short, verdict=cell.verdict, benefit=share
    )


def _two_digits(value: float, decimals: int, *, sign: str) -> str:
    """About two digits of a number, as in "+81", "+8.5" and "+.34"."""
    if abs(value) >= 1000:
        return f"{value:{sign}.0e}" if math.isfinite(value) else f"{value:{sign}}"
    kept = 0 if abs(value) >= 9.95 else 1 if abs(value) >= 0.995 or decimals < 2 else 2
    text = f"{value:{sign}z.{kept}f}"
    return text.replace("0.", ".", 1) if kept == 2 else text


def content_of(report: AllTasksReport) -> content.ReportContent:
    """The map as the only table of the contents of a report."""
    whole = answer_of(report)
    return structs.replace(
        whole, label=structs.replace(report.instance, task="all").anchor("map"), foot=whole.foot[:-1]
    )


def answer_of(report: AllTasksReport) -> content.ReportContent:
    """The first layer of a report on all tasks: the map as text."""
    drawn, whole = make(report), all_tasks.content_of(report)

    def cell(k: int) -> Callable[[tuple[str, tuple[MapCell, ...]]], str]:
        return lambda row: row[1][k].text or NOTHING

    first = Column(name=drawn.of_rows, cell=lambda row: row[0], right=False)
    columns = [Column(name=_heading(name), cell=cell(k), right=False) for k, name in enumerate(drawn.columns)]
    return content.ReportContent(
        title=whole.title,
        table=Table(columns=(first, *columns), rows=tuple(zip(drawn.rows, drawn.cells, strict=True))),
        foot=(
            *whole.conclusions(),
            drawn.legend,
            *([f"Caution: {'; '.join(whole.cautions)}."] if whole.cautions else []),
            *(f"Note: {note}" for note in report.notes),
            "Scores, intervals, rates and published values: --details",
        ),
    )


def _heading(name: str) -> str:
    """The name of a column on several lines: a task above its profile, a rung broken after hyphens."""
    return name.replace(", ", "\n").replace("-", "-\n")
