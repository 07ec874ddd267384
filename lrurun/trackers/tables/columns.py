"""The cells of a table by columns, as every reader of tables gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun import trackers
from lrurun.errors import UsageError
from lrurun.trackers import Value, numbers

Strings = Sequence[str]


class Column(Struct, frozen=True):
    """Cells of one column, of which some may be empty."""

    values: NDArray[Any]
    """(rows,) float64, int64 or bool where all cells of the table's column are such, else objects: texts, lists, and
    numbers in a column that mixes them. What is at empty cells has no meaning."""
    empty: NDArray[np.bool_]
    """(rows,)"""

    @property
    def is_numeric(self) -> bool:
        """Whether the cells are numbers, or true and false."""
        return self.values.dtype != object

    def __getitem__(self, rows: slice) -> Column:
        return Column(self.values[rows], self.empty[rows])

    def cell(self, row: int) -> Value:
        """A cell as a value of a setting; None where it is empty."""
        if self.empty[row]:
            return None
        value = self.values[row]
        plain: Value = value.item() if isinstance(value, np.generic) else value
        return plain

    def cells(self) -> list[Any]:
        """All cells; None where they are empty."""
        values = self.values.tolist()
        if self.empty.any():
            for row in np.flatnonzero(self.empty):
                values[row] = None
        return values

    def same(self, other: Column) -> NDArray[np.bool_]:
        """(rows,) whether the cells equal those of another column, where NaN equals NaN and empty equals empty."""
        equal = np.asarray(self.values == other.values, bool)
        if self.values.dtype.kind == "f":
            equal |= np.isnan(self.values) & np.isnan(other.values)
        return (equal & ~self.empty & ~other.empty) | (self.empty & other.empty)


Block = Mapping[str, Column]
"""Consecutive rows of some columns."""


class Table(Protocol):
    """A table that can be read block by block, as often as one likes."""

    place: str
    """Its file, or what a frame is called."""
    rows: int
    """How many rows it has."""
    notes: list[str]
    """What was left out, or had to be interpreted, when it was read."""

    @property
    def names(self) -> Strings:
        """The names of its columns, which are different."""

    def blocks(self, names: Strings, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Block]]:
        """The cells of these columns in the rows from `start` to `stop`: the first row of each block, and the block."""

    def row_name(self, row: int) -> str:
        """How people find a row, as in "line 7"."""


class MemoryTable(Struct, kw_only=True):
    """A table that is in memory."""

    place: str
    columns: dict[str, Column]
    rows: int
    notes: list[str] = []
    lines: NDArray[np.uint32] | None = None
    """(rows,) the number of the line in which each row begins; None: rows are counted from 1."""

    @property
    def names(self) -> Strings:
        return list(self.columns)

    def blocks(self, names: Strings, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, Block]]:
        yield start, {name: self.columns[name][start:stop] for name in names}

    def row_name(self, row: int) -> str:
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """(n,) values as they are: a list among them is one value."""
    return np.fromiter(values, object, len(values))


def plain(value: Any) -> Value:
    """A cell of a frame or of Parquet as a value of a setting; dates and times as texts of ISO 8601."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(part) for part in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return plain(value.item())
    return value.isoformat() if hasattr(value, "isoformat") else trackers.plain(value)


def fractions(values: Sequence[float | None]) -> NDArray[np.float64]:
    """(n,) numbers, with NaN for None; whole numbers that no float reaches are infinite."""
    filled = [np.nan if value is None else value for value in values]
    try:
        return np.array(filled, np.float64)
    except OverflowError:
        return np.array([numbers.number(value) for value in filled])


def check_names(place: str, names: Sequence[str]) -> None:
    """Refuses columns of equal names.

    Raises:
        UsageError: with the numbers of both columns.
    """
    seen: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name in seen:
            problem = f"{place}: columns {seen[name]} and {number} are both named {name!r}"
            raise UsageError(problem, "rename or delete one of them")
        seen[name] = number
