"""A report as a table for terminals and pipes."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from lrurun.console import PIPE_WIDTH, clean, plain
from lrurun.report.content import KEPT, NOTHING, Column, ReportContent, Table, narrowed, sentence
from lrurun.report.judging import verdicts

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_GAP = 2
"""Blanks between columns."""
_STACKED = 6
"""A terminal too narrow for any table shows the columns from this priority on, a line each."""

_STYLES = {
    "helps": "green",
    "hurts": "red",
    verdicts.SUPPORTED: "green",
    verdicts.CONTRADICTED: "red",
    verdicts.UNDECIDED: "yellow",
    verdicts.NOT_RUN: "dim",
    verdicts.NOT_JUDGED: "dim",
    verdicts.NOT_COMPARABLE: "dim",
}


def render(content: ReportContent, *, width: int, color: bool, ascii: bool = False) -> str:
    """The report with lines of at most `width`, in `ascii` where the terminal has no other characters."""
    from rich.console import Console
    from rich.text import Text

    text = io.StringIO()
    # In a pipe the width does not matter: wider tables are printed whole.
    piped = width >= PIPE_WIDTH
    main = _in_ascii(content.table) if ascii else content.table
    fitting = main if piped and all(column.cut is None for column in main.columns) else _fitting(main, width)
    above = [_in_ascii(table) if ascii else table for table in content.above]
    tables = [*_above(above, width), *([fitting] if fitting else [])]
    width = max(width, *map(_natural_width, tables), 0)
    console = Console(
        file=text,
        width=width,
        force_terminal=color,
        force_interactive=False,
        color_system="standard" if color else None,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )

    def line(label: str = "", style: str = "", rest: str = "", indent: int = 0) -> None:
        whole = plain(label + rest) if ascii else label + rest
        for one in [whole] if piped else _wrap(whole, width - indent):
            styled = Text(" " * indent + one)
            if style:
                styled.stylize(style, indent, indent + len(label))
            console.print(styled, soft_wrap=True)
            # The label is on the first line.
            style = style if not rest else ""

    line(clean(content.title), "bold")
    for one in filter(None, (content.question, *content.conclusions)):
        line(clean(one))
    for table in tables:
        line()
        console.print(_drawn(table), soft_wrap=True)
    if not fitting:
        line()
        first, *others = narrowed(main.columns, _STACKED)
        for row in main.rows:
            line(first.cell(row), "bold")
            for column in others:
                if (cell := _cell(column, row)) not in ("", NOTHING):
                    line(f"{column.name}: {cell}".replace("\n", ", "), indent=2)
    shown = fitting.columns if fitting else narrowed(main.columns, _STACKED)
    notes = (*_omitted(main, shown), *content.notes(shown))
    for one in ("", *notes) if notes else ():
        line(clean(one))
    if content.claims:
        line()
        line("Claims", "bold")
        for claim in content.claims:
            about = f"{claim.mark}: {clean(sentence(claim.text))} ({clean(claim.source)})"
            line(claim.shown, _STYLES[claim.shown], about)
            line(clean(sentence(claim.detail)), indent=4)
    # Rich pads cells with blanks, which are removed at the ends of lines.
    lines = "\n".join(one.rstrip() for one in text.getvalue().splitlines()).rstrip("\n")
    return plain(lines) if ascii else lines


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width`, broken between words, never inside "92.67 ± 0.19 (n=3)", "[+1.3, +2.9]", "p = 0.1"."""
    whole = r" ± | [=<] (?=\d)| (?=%|\(n=)|(?<=\d), (?=[+-]?[\d.]+\])"
    bound = re.sub(whole, lambda found: found[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(bound, max(width, 16), break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines] or [""]


def _in_ascii(table: Table) -> Table:
    """The table with cells and headings whose width does not change when they are printed in ASCII."""

    def plainer(column: Column) -> Column:
        narrower = None if column.narrower is None else plainer(column.narrower)
        cell = column.cell
        return structs.replace(column, name=plain(column.name), cell=lambda row: plain(cell(row)), narrower=narrower)

    return Table(columns=tuple(map(plainer, table.columns)), rows=table.rows)


def _omitted(table: Table, shown: Sequence[Column]) -> list[str]:
    """A sentence that names the columns that the width has no room for, if any."""
    names = {column.name for column in shown}
    omitted = [
        column.name.replace("\n", ", ") for column in table.columns if column.name not in names and not column.is_plot
    ]
    return [f"Not shown at this width: {', '.join(omitted)}."] if omitted else []


def _above(tables: Iterable[Table], width: int) -> list[Table]:
    """The first form of the table above that fits."""
    fitting = (table for table in tables if width >= PIPE_WIDTH or _natural_width(table) <= width)
    return [table for table, _ in zip(fitting, range(1), strict=False)]


def _fitting(table: Table, width: int) -> Table | None:
    """The table with as many of its columns as `width` has room for; None where it is too narrow for any."""
    while (excess := _natural_width(table) - width) > 0:
        if (cut := _cut(table, excess)) is not None:
            return cut
        lowest = min(column.priority for column in table.columns)
        if lowest >= KEPT:
            return None
        table = Table(columns=narrowed(table.columns, lowest + 1), rows=table.rows)
    return table


def _cut(table: Table, excess: int) -> Table | None:
    """The table with one column narrower by `excess`, if one may be."""
    for k, column in enumerate(table.columns):
        room = _column_width(table, column) - excess
        if column.cut is not None and room >= column.cut:
            columns = (*table.columns[:k], _shorter(column, room), *table.columns[k + 1 :])
            return Table(columns=columns, rows=table.rows)
    return None


def _shorter(column: Column, width: int) -> Column:
    def cell(row: Any) -> str:
        text = column.cell(row)
        return text if len(text) <= width else f"{text[: width - 3].rstrip()}..."

    return structs.replace(column, cell=cell)


def _natural_width(table: Table) -> int:
    return sum(_column_width(table, column) for column in table.columns) + _GAP * (len(table.columns) - 1)


def _column_width(table: Table, column: Column) -> int:
    from rich.cells import cell_len

    cells = [column.name, *(_cell(column, row) for row in table.rows)]
    return max(cell_len(line) for cell in cells for line in cell.split("\n"))


def _cell(column: Column, row: Any) -> str:
    first, *others = column.cell(row).split("\n")
    return "\n".join([f"{first} *" if column.is_marked(row) else first, *others])


def _drawn(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in table.columns:
        drawn.add_column(Text(column.name), justify="right" if column.right else "left", no_wrap=True, overflow="crop")
    drawn.add_row(*("─" * _column_width(table, column) for column in table.columns))
    for row in table.rows:
        cells = [_cell(column, row) for column in table.columns]
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells))
    return drawn
