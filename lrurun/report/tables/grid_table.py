"""The rungs of a ladder on two axes, as another form of its table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from lrurun.config.ladder import Grid
from lrurun.console import clean
from lrurun.judging.scores import ScoreForm
from lrurun.report.tables import content
from lrurun.report.tables.row_scores import LadderRow, with_fewest_lost
from lrurun.table import Column, Table


class GridLine(Struct, frozen=True, kw_only=True):
    """A row of the grid."""

    name: str
    cells: tuple[LadderRow | None, ...]
    """The rows of the ladder; None where it has no rung."""


def tables(
    grid: Grid, rows: Sequence[LadderRow], text: Callable[[LadderRow], str], form: ScoreForm
) -> tuple[Table, ...]:
    """The grid as declared, and transposed; `text` gives the cell of a rung, `form` says which score is better."""
    by_rung = {row.rung: row for row in rows}
    candidates = with_fewest_lost(rows)
    best = form.best(row.mean for row in candidates if row.mean is not None)

    def is_best(row: LadderRow) -> bool:
        # Compared as printed: scores that look equal are marked alike.
        return (
            row in candidates and row.mean is not None and best is not None and form.full(row.mean) == form.full(best)
        )

    wide = [GridLine(name=name, cells=tuple(map(by_rung.get, rungs))) for name, rungs in grid.rows.items()]
    tall = [GridLine(name=name, cells=tuple(line.cells[k] for line in wide)) for k, name in enumerate(grid.columns)]
    return (
        _table(grid.down, grid.columns, wide, text, is_best),
        _table(grid.across, tuple(grid.rows), tall, text, is_best),
    )


def _table(
    corner: str,
    names: Sequence[str],
    lines: Sequence[GridLine],
    text: Callable[[LadderRow], str],
    is_best: Callable[[LadderRow], bool],
) -> Table:
    def column(k: int, name: str) -> Column:
        def cell(line: GridLine) -> str:
            row = line.cells[k]
            return "" if row is None else text(row)

        def link(line: GridLine) -> str | None:
            row = line.cells[k]
            return None if row is None else content.runs_of(row)

        def marked(line: GridLine) -> bool:
            row = line.cells[k]
            return row is not None and is_best(row)

        return Column(name=clean(name), cell=cell, right=False, whole=True, link=link, marked=marked)

    first = Column(name=clean(corner), cell=lambda line: clean(line.name), right=False)
    return Table(columns=(first, *(column(k, name) for k, name in enumerate(names))), rows=tuple(lines))
