"""CSV and TSV files. A file of which every cell can be read one way only is read; of others the first fault is named.

Cells are separated by tabs in files named `.tsv` or `.tab`; in others by that of comma, semicolon and tab which the
first line has most of. Blanks around cells do not count, and lines without any cell are skipped.

* **Quotes.** In CSV, a cell in quotes may hold separators and ends of lines. In TSV a quote is a letter, as most
  programs write it, unless lines would then have different numbers of cells. Where quotes do not fit together in CSV,
  they are letters too, if all lines have the same number of cells then.
* **Numbers.** A column has numbers if all its cells that are not empty are numbers: `1`, `-0.5`, `1e-3`, `nan`, `inf`
  and `Infinity`; with semicolons between cells, decimal commas too. `010`, `1_000`, dates, and whole numbers of more
  than 15 digits are texts. It has whole numbers if none has a point or an exponent.
* **True and false**, in any case, if all cells are one of them.
* **Texts** otherwise. Where numbers are among them, a note says so.
* An apostrophe before `=`, `+`, `-` or `@` is left out: MLflow's page writes `'-0.5`, against formulas in spreadsheets.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from lrurun.errors import UsageError
from lrurun.trackers import Source
from lrurun.trackers.points import MAY_BE_CUT
from lrurun.trackers.tables.columns import Column, MemoryTable, check_names, objects
from lrurun.trackers.tables.reader import TableReader
from lrurun.trackers.tables.text_lines import TextLines, first_bytes

_AT_ONCE = 10_000
"""How many rows are made columns at once."""
_TABS = (".tsv", ".tab")
_LEADING_ZERO = re.compile(r"\n[+-]?0[0-9]")
_LARGEST = 1e15
"""Whole numbers from here on are texts: names of things, which as numbers would lose digits."""
_PROTECTED = re.compile(r"'(?=[=+@-])")
_FIRST_LETTERS = frozenset("+-.0123456789iInN")
"""With which a number may begin."""
_NUMBER, _BOOL, _TEXT = "number", "bool", "text"


class CsvReader(TableReader):
    """Reads CSV and TSV files."""

    name: ClassVar = "csv"
    title: ClassVar = "CSV"

    @classmethod
    def recognises(cls, source: Source) -> bool:
        path = source.path
        if source.frame is not None or path.suffix.lower() not in (".csv", ".txt", *_TABS):
            return False
        # the file of one run, whose folder has its settings: of Lightning, of Ray
        if any((path.parent / name).exists() for name in ("hparams.yaml", "params.json")):
            return False
        start = first_bytes(path)
        return start[:4] != b"PAR1" and (path.suffix.lower() != ".txt" or b"\t" in start)

    def table(self) -> MemoryTable:
        return read(self.source)


def read(source: Source) -> MemoryTable:
    """The table in a file.

    Raises:
        UsageError: it has no table.
        LrurunError: it cannot be read.
    """
    path = source.path
    first = next((line for line in TextLines(path) if line.strip()), None)
    if first is None:
        raise UsageError(f"{path}: is empty", "write a line with the names of the columns first")
    separator = "\t" if path.suffix.lower() in _TABS else max(",;\t", key=_outside_quotes(first).count)
    ways: list[type[_Records]] = [_Literal, _Quoted] if separator == "\t" else [_Quoted, _Literal]
    faults: list[_Fault] = []
    for way in ways:
        limit = csv.field_size_limit(sys.maxsize)  # of the process: a cell may be a list of many items
        try:
            table = _loaded(way, source, separator)
        except _Fault as fault:
            faults.append(fault)
            if not fault.has_quotes:
                break
            continue
        finally:
            csv.field_size_limit(limit)
        if faults and way is _Literal:
            table.notes.append(f"{faults[0].message}: quotes are read as letters")
        return table
    raise UsageError(faults[0].message, faults[0].hint)


def _outside_quotes(line: str) -> str:
    return re.sub(r'"[^"]*"', "", line)


class _Fault(UsageError):
    """A file has a fault when it is read one way."""

    def __init__(self, message: str, hint: str, has_quotes: bool) -> None:
        super().__init__(message, hint)
        self.has_quotes = has_quotes
        """Whether it has quotes, so that another way may be the right one."""


class _Records:
    """The rows of a file, each with the number of the line in which it begins."""

    def __init__(self, lines: TextLines, separator: str) -> None:
        self.lines, self.separator = lines, separator
        self.has_quotes = False
        self.longer = 0
        """How many rows take several lines."""
        self.first_longer = 0
        self.rest = 0
        """The number of the last line, if it is half-written."""

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Raises _Fault: rows with other numbers of cells than the first one, or quotes that do not fit together."""
        width, short = 0, (0, 0)
        for line, row in self._rows():
            if short[0]:
                raise self._ragged(*short, width)
            if not width:
                width = len(row)
            elif len(row) < width:
                short = line, len(row)  # perhaps the last line
                continue
            elif len(row) > width:
                raise self._ragged(line, len(row), width)
            yield line, row
        if short[0]:
            if self.lines.is_whole:
                raise self._ragged(*short, width)
            self.rest = short[0]

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        raise NotImplementedError

    def _ragged(self, line: int, found: int, width: int) -> _Fault:
        problem = f"{self.lines.path}: line {line} has {found} cells, and the first line has {width}"
        return _Fault(problem, "correct this line, or export the table again", self.has_quotes)


class _Quoted(_Records):
    """Quotes enclose cells."""

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        lines = self._watched()
        reader = csv.reader(lines, delimiter=self.separator, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if line == self.lines.number and not self.lines.is_whole:
                    self.rest = line
                    return
                is_open = "unexpected end" in str(error)
                problem = f"a quote is opened in line {line} and never closed" if is_open else f"line {line}: {error}"
                hint = "double the quotes within a cell in quotes"
                raise _Fault(f"{self.lines.path}: {problem}", hint, has_quotes=True) from None
            if reader.line_num > line:
                self.longer += 1
                self.first_longer = self.first_longer or line
            if row and (len(row) > 1 or row[0].strip()):
                yield line, row

    def _watched(self) -> Iterator[str]:
        for text in self.lines:
            self.has_quotes = self.has_quotes or '"' in text
            yield text


class _Literal(_Records):
    """Quotes are letters, except around a whole cell."""

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        for text in self.lines:
            if not text.strip():
                continue
            row = text.rstrip("\r\n").split(self.separator)
            if '"' in text:
                self.has_quotes = True
                row = [_unquoted(cell) for cell in row]
            yield self.lines.number, row


def _unquoted(cell: str) -> str:
    cell = cell.strip()
    inner = cell[1:-1]
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if is_quoted else cell


class _Kind(Struct):
    """What the cells of a column were found to be."""

    kinds: set[str] = set()
    is_whole: bool = True
    """Whether all numbers are whole."""
    odd: tuple[int, str] | None = None
    """The index and the text of the first cell that is no number, in a column of numbers and texts."""
    has_numbers: bool = False


def _loaded(way: type[_Records], source: Source, separator: str) -> MemoryTable:
    """The table of a file, which is read again for columns that turn out to mix numbers and texts."""
    as_texts: set[int] = set()
    while True:
        records = way(TextLines(source.path), separator)
        table, mixed = _columns(records, str(source.path), as_texts, decimal_comma=separator == ";")
        if not mixed:
            return table
        as_texts |= mixed


def _columns(
    records: _Records, place: str, as_texts: Collection[int], *, decimal_comma: bool
) -> tuple[MemoryTable, set[int]]:
    rows = iter(records)
    _, header = next(rows)
    names = [name.strip() for name in header]
    _check_header(place, names)
    kinds = [_Kind() for _ in names]
    parts: list[list[tuple[NDArray[Any], NDArray[np.bool_]]]] = [[] for _ in names]
    pools: list[dict[str, str]] = [{} for _ in names]
    lines: list[NDArray[np.uint32]] = []
    while chunk := list(islice(rows, _AT_ONCE)):
        numbers, cells_of_rows = zip(*chunk, strict=True)
        lines.append(np.array(numbers, np.uint32))
        for index, cells in enumerate(zip(*cells_of_rows, strict=True)):
            is_text = index in as_texts
            parts[index].append(_part(cells, numbers, kinds[index], pools[index], decimal_comma, is_text))
    count = sum(map(len, lines))
    mixed = {index for index, kind in enumerate(kinds) if len(kind.kinds) > 1}
    columns = {}
    notes = []
    for index, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        columns[name or f"column {index + 1}"] = _joined(parts[index], kind)
        parts[index] = []
        if kind.has_numbers and kind.odd and not mixed:
            line, cell = kind.odd
            found = f"{name!r} has numbers and texts, as {_short(cell)} in line {line}"
            notes.append(f"{place}: {found}: all are read as texts")
    table = MemoryTable(
        place=place, columns=columns, rows=count, notes=notes, lines=np.concatenate(lines) if lines else None
    )
    _leave_out_index(table, names)
    if records.rest:
        table.notes.append(f"{place}: the last line ({records.rest}) is half-written, and left out")
    elif not records.lines.is_whole:
        table.notes.append(f"{place}: the last line ({records.lines.number}) has no end: {MAY_BE_CUT}")
    if records.longer:
        what = "1 row takes" if records.longer == 1 else f"{records.longer} rows take"
        first = f"the first from line {records.first_longer} on"
        table.notes.append(f"{place}: {what} several lines, as quotes say, {first}")
    return table, mixed


def _check_header(place: str, names: Sequence[str]) -> None:
    check_names(place, [name or f"column {number}" for number, name in enumerate(names, 1)])
    if all(name and _numbers([name], decimal_comma=False) is not None for name in names):
        problem = f"{place}: the first line has numbers, expected the names of the columns"
        raise UsageError(problem, "write their names as the first line")


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else f"{cell[:37]}...")


def _leave_out_index(table: MemoryTable, names: Sequence[str]) -> None:
    """Leaves out columns without a name that are empty or count the rows, as pandas writes its index."""
    for number, name in enumerate(names, 1):
        column = table.columns[name or f"column {number}"]
        if not name and (column.empty.all() or _counts_rows(column)):
            del table.columns[f"column {number}"]


def _counts_rows(column: Column) -> bool:
    values = column.values
    counts = values.dtype.kind == "i" and np.array_equal(values - values[:1], np.arange(len(values)))
    return counts and not column.empty.any() and values[0] in (0, 1)


def _part(
    cells: Sequence[str],
    lines: Sequence[int],
    kind: _Kind,
    pool: dict[str, str],
    decimal_comma: bool,
    as_text: bool,
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """A part of a column: float64, bool or texts, and where it is empty."""
    filled = cells
    empty = np.zeros(len(cells), bool)
    read = None if as_text or not all(cells) else _numbers(cells, decimal_comma)
    if read is None:
        cells = [_PROTECTED.sub("", cell.strip(), count=1) if "'" in cell else cell.strip() for cell in cells]
        empty = np.array([not cell for cell in cells], bool)
        filled = [cell for cell in cells if cell]
        read = None if as_text and filled else _numbers(filled, decimal_comma)
    if read is not None:
        numbers, is_whole = read
        if numbers:
            kind.kinds.add(_NUMBER)
            kind.has_numbers = True
            kind.is_whole &= is_whole
        values = np.zeros(len(cells))
        values[~empty] = numbers
        return values, empty
    distinct = set(filled)
    if not as_text and all(cell.lower() in ("true", "false") for cell in distinct):
        kind.kinds.add(_BOOL)
        return np.array([cell.lower() == "true" for cell in cells], bool), empty
    kind.kinds.add(_TEXT)
    _look_for_numbers(cells, lines, kind, distinct, decimal_comma)
    return objects([pool.setdefault(cell, cell) for cell in cells]), empty


def _look_for_numbers(
    cells: Sequence[str], lines: Sequence[int], kind: _Kind, distinct: Iterable[str], decimal_comma: bool
) -> None:
    """Notes whether numbers are among texts, and the first cell that is none."""
    if kind.has_numbers and kind.odd:
        return
    numbers = {cell for cell in distinct if cell[0] in _FIRST_LETTERS and _numbers([cell], decimal_comma) is not None}
    kind.has_numbers = kind.has_numbers or bool(numbers)
    if kind.odd is None:
        index = next((index for index, cell in enumerate(cells) if cell and cell not in numbers), None)
        kind.odd = None if index is None else (lines[index], cells[index])


def _numbers(cells: Sequence[str], decimal_comma: bool) -> tuple[list[float], bool] | None:
    """The numbers in these cells, and whether all are whole; None if a cell is none."""
    joined = "\n".join(cells)
    if "'" in joined:
        cells = [_PROTECTED.sub("", cell.strip(), count=1) if cell.lstrip()[:1] == "'" else cell for cell in cells]
        joined = "\n".join(cells)
    if decimal_comma and "," in joined and "." not in joined:
        joined = joined.replace(",", ".")
        cells = [cell.replace(",", ".") for cell in cells]
    try:
        numbers = list(map(float, cells))
    except ValueError:
        return None
    if not joined.isascii() or "_" in joined or _LEADING_ZERO.search(f"\n{joined}"):
        return None  # what Python reads as a number, and a table does not mean so
    is_whole = not any(letter in joined for letter in ".eEnN")
    if is_whole and numbers and max(max(numbers), -min(numbers)) >= _LARGEST:
        return None
    return numbers, is_whole


def _joined(parts: Sequence[tuple[NDArray[Any], NDArray[np.bool_]]], kind: _Kind) -> Column:
    """The column of these parts, of which those without a cell have no kind."""
    if not parts:
        return Column(np.zeros(0), np.zeros(0, bool))
    empty = np.concatenate([empty for _, empty in parts])
    if kind.kinds == {_NUMBER}:
        values = np.concatenate([values for values, _ in parts])
        return Column(values.astype(np.int64) if kind.is_whole else values, empty)
    if kind.kinds == {_BOOL}:
        return Column(np.concatenate([values.astype(bool) for values, _ in parts]), empty)
    return Column(np.concatenate([values.astype(object) for values, _ in parts]), empty)
