"""The rungs of a ladder on two axes: the form of a table beside the one that has a row a rung."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from lrurun import catalog
from lrurun.console import clean
from lrurun.report import sheet
from lrurun.report.comparison import Row
from lrurun.report.sheet import Block, Column


class Line(Struct, frozen=True, kw_only=True):
    """A line of the grid."""

    name: str
    cells: tuple[Row | None, ...]
    """None where the ladder has no rung."""


def blocks(grid: catalog.Grid, rows: Sequence[Row], text: Callable[[Row], str]) -> tuple[Block, ...]:
    """The grid as it is declared, and turned on its side; `text` is what a cell says of its rung."""
    by_rung = {row.rung: row for row in rows}
    best = max((row.mean for row in rows if row.mean is not None), default=None)
    wide = [Line(name=name, cells=tuple(map(by_rung.get, rungs))) for name, rungs in grid.rows.items()]
    tall = [Line(name=name, cells=tuple(line.cells[k] for line in wide)) for k, name in enumerate(grid.columns)]
    return (
        _block(grid.down, grid.columns, wide, text, best),
        _block(grid.across, tuple(grid.rows), tall, text, best),
    )


def _block(
    corner: str, names: Sequence[str], lines: Sequence[Line], text: Callable[[Row], str], best: float | None
) -> Block:
    def column(k: int, name: str) -> Column:
        def cell(line: Line) -> str:
            row = line.cells[k]
            return "" if row is None else text(row)

        def link(line: Line) -> str | None:
            row = line.cells[k]
            return None if row is None else sheet.runs_of(row)

        def marked(line: Line) -> bool:
            row = line.cells[k]
            # as printed: two that look alike are alike
            return row is not None and None not in (row.mean, best) and f"{row.mean:.4f}" == f"{best:.4f}"

        return Column(name=clean(name), cell=cell, right=False, link=link, marked=marked)

    first = Column(name=clean(corner), cell=lambda line: clean(line.name), right=False)
    return Block(columns=(first, *(column(k, name) for k, name in enumerate(names))), rows=tuple(lines))
