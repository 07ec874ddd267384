"""JSON lines: an object on each line. Nested objects are dotted names, and what an object does not name is empty.

A column has numbers if all its values that are not null are numbers, or the texts "NaN", "Infinity" and "-Infinity";
the bare tokens NaN and Infinity are numbers too. A column that mixes numbers and texts keeps them as they are, and a
note says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lrurun.errors import UsageError
from lrurun.trackers import Source, flat
from lrurun.trackers.numbers import number
from lrurun.trackers.tables.columns import Column, MemoryTable, fractions, objects
from lrurun.trackers.tables.reader import TableReader
from lrurun.trackers.tables.text_lines import TextLines, first_bytes

_AT_ONCE = 10_000
"""How many rows are made columns at once."""
_WORDS = ("NaN", "Infinity", "-Infinity")
"""What trackers write for numbers that JSON does not have."""
_TYPES = {bool: "true or false", int: "numbers", float: "numbers", str: "texts", list: "lists"}


class JsonLinesReader(TableReader):
    """Reads JSON lines."""

    name: ClassVar = "jsonl"
    title: ClassVar = "JSON lines"

    @classmethod
    def recognises(cls, source: Source) -> bool:
        is_named = source.path.suffix.lower() in (".jsonl", ".ndjson")
        return source.frame is None and is_named and first_bytes(source.path).lstrip()[:1] in (b"{", b"")

    def table(self) -> MemoryTable:
        return read(self.source)


def read(source: Source) -> MemoryTable:
    """The table in a file.

    Raises:
        UsageError: a line is no object, or names a value twice.
        LrurunError: it cannot be read.
    """
    place = str(source.path)
    notes: list[str] = []
    rows = _rows(TextLines(source.path), place, notes)
    parts: dict[str, list[tuple[int, NDArray[Any], NDArray[np.bool_]]]] = {}
    numbers: list[int] = []
    while chunk := list(islice(rows, _AT_ONCE)):
        names = dict.fromkeys(name for _, row in chunk for name in row)
        for name in names:
            cells = [row.get(name) for _, row in chunk]
            parts.setdefault(name, []).append((len(numbers), *_part(cells)))
        numbers.extend(line for line, _ in chunk)
    if not numbers:
        raise UsageError(f"{place}: is empty", "write an object on each line")
    lines = np.array(numbers, np.uint32)
    columns = {name: _joined(name, of_column, lines, place, notes) for name, of_column in parts.items()}
    return MemoryTable(place=place, columns=columns, rows=len(lines), notes=notes, lines=lines)


def _rows(lines: TextLines, place: str, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for text in lines:
        if not text.strip():
            continue
        where = f"{place}: line {lines.number}"
        try:
            row = json.loads(text, object_pairs_hook=_object)
        except _Twice as error:
            raise UsageError(f"{where} names {error.args[0]!r} twice", "rename or delete one of them") from None
        except (ValueError, RecursionError):
            if not lines.is_whole:
                notes.append(f"{place}: the last line ({lines.number}) is half-written, and left out")
                return
            hint = 'write one object a line, as in {"run_id": "a", "step": 1, "loss": 0.5}'
            raise UsageError(f"{where} is not JSON", hint) from None
        if not isinstance(row, dict):
            hint = "a file with one list of all runs is no file of JSON lines: write each object on a line of its own"
            raise UsageError(f"{where} is no object", hint)
        settings = flat(row)
        if len(settings) != _leaves(row):
            name = _colliding(row)
            raise UsageError(f"{where} has {name!r} both as a name and nested", "rename one of them")
        yield lines.number, settings


class _Twice(Exception):
    """An object names a value twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _Twice(name)
            seen.add(name)
    return table


def _leaves(row: dict[str, Any]) -> int:
    return sum(_leaves(value) if isinstance(value, dict) else 1 for value in row.values())


def _colliding(row: dict[str, Any]) -> str:
    """The dotted name that two values of an object have."""
    seen: set[str] = set()
    for name, value in row.items():
        names = set(flat({name: value}))
        if common := seen & names:
            return min(common)
        seen |= names
    nested = next(value for value in row.values() if isinstance(value, dict) and len(flat(value)) != _leaves(value))
    return _colliding(nested)


def _part(cells: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """A part of a column, as numbers where all cells are, and where it is empty."""
    empty = np.array([cell is None for cell in cells], bool)
    types = set(map(type, cells)) - {type(None)}
    if types == {int} and all(abs(cell) < 2**63 for cell in cells if cell is not None):
        return np.array([0 if cell is None else cell for cell in cells], np.int64), empty
    if types and types <= {int, float}:
        return fractions(cells), empty
    if types == {bool}:
        return np.array([bool(cell) for cell in cells], bool), empty
    return objects(cells), empty


def _joined(
    name: str,
    parts: Sequence[tuple[int, NDArray[Any], NDArray[np.bool_]]],
    lines: NDArray[np.uint32],
    place: str,
    notes: list[str],
) -> Column:
    """The column of these parts, which is empty between them."""
    dtypes = {values.dtype for _, values, empty in parts if not empty.all()}
    dtype = np.dtype(object)
    if len(dtypes) == 1:
        dtype = next(iter(dtypes))
    elif dtypes and dtypes <= {np.dtype(np.int64), np.dtype(np.float64)}:
        dtype = np.dtype(np.float64)
    values, empty = np.zeros(len(lines), dtype), np.ones(len(lines), bool)
    for start, part, is_empty in parts:
        at = slice(start, start + len(part))
        empty[at] = is_empty
        values[at][~is_empty] = part[~is_empty]
    if dtype.kind == "O":
        return _mixed(name, Column(values, empty), lines, place, notes)
    return Column(values, empty)


def _mixed(name: str, column: Column, lines: NDArray[np.uint32], place: str, notes: list[str]) -> Column:
    """A column of other values than numbers alone; of numbers if all texts are words for numbers."""
    rows = np.flatnonzero(~column.empty).tolist()
    cells = [column.values[row] for row in rows]
    if cells and all(cell in _WORDS if isinstance(cell, str) else type(cell) in (int, float) for cell in cells):
        values = np.zeros(len(lines))
        values[rows] = [number(cell) for cell in cells]
        return Column(values, column.empty)
    first: dict[str, int] = {}
    for row, cell in zip(rows, cells, strict=True):
        first.setdefault(_TYPES[type(cell)], row)
    if len(first) > 1:
        found = " and ".join(f"{kind} (line {lines[row]})" for kind, row in first.items())
        notes.append(f"{place}: {name!r} has {found}: they are kept as they are")
    return column
