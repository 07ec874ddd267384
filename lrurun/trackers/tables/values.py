"""A table with a row for each value of a metric, as one with a column for each metric."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lrurun.errors import UsageError
from lrurun.trackers.tables import roles
from lrurun.trackers.tables.columns import Block, Column, Strings, Table, check_names


class ValueTable:
    """The table, of which each row has a cell in the column of its metric, and empty ones in those of the others."""

    def __init__(self, table: Table) -> None:
        """
        Raises:
            UsageError: metrics without a name, or with that of another column; values that are no numbers.
        """
        self._table = table
        self.place, self.rows, self.notes = table.place, table.rows, table.notes
        self._metric, self._value = _columns(table) or ("", "")
        names: dict[str, None] = {}
        for start, block in table.blocks([self._metric, self._value]):
            metric, value = block[self._metric], block[self._value]
            if not value.is_numeric and not value.empty.all():
                raise UsageError(f"{self.place}: {self._value!r} has cells that are no numbers", "correct them")
            if metric.empty.any():
                row = table.row_name(start + int(np.flatnonzero(metric.empty)[0]))
                raise UsageError(f"{self.place}: {row} has no name of a metric", f"fill in {self._metric!r}")
            names |= dict.fromkeys(map(str, metric.cells()))
        self.metrics = list(names)
        """The names of the metrics."""
        self._others = [name for name in table.names if name not in (self._metric, self._value)]
        self.names: Strings = [*self._others, *self.metrics]
        check_names(f"{self.place}: with a column for each {self._metric}", self.names)

    @staticmethod
    def fits(table: Table) -> bool:
        """Whether a table has a row for each value."""
        columns = _columns(table)
        if columns is None or not roles.find_all(table.names, roles.RUN):
            return False
        _, block = next(table.blocks([columns[0]]))
        return not block[columns[0]].is_numeric

    def blocks(self, names: Strings, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Block]]:
        needed = [name for name in names if name in self._others]
        wanted = [name for name in names if name in self.metrics]
        if wanted:
            needed += [self._metric, self._value]
        for begin, block in self._table.blocks(needed, start, stop):
            pivoted = {name: block[name] for name in names if name in self._others}
            for metric in wanted:
                value = block[self._value]
                elsewhere = block[self._metric].values != metric
                pivoted[metric] = Column(value.values, value.empty | np.asarray(elsewhere, bool))
            yield begin, {name: pivoted[name] for name in names}

    def row_name(self, row: int) -> str:
        return self._table.row_name(row)


def _columns(table: Table) -> tuple[str, str] | None:
    found = [*roles.find_all(table.names, [roles.METRIC]), *roles.find_all(table.names, [roles.VALUE])]
    return (found[0], found[1]) if len(found) == 2 else None
