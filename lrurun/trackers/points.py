"""The metrics of one run, collected point by point, and files of any of three formats that hold some."""

from __future__ import annotations

import csv
import io
import json
from array import array
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lrurun.errors import UsageError
from lrurun.trackers import Curve, documents, folders, numbers

STEP_NAMES = ("step", "_step", "global_step", "training_iteration", "iteration", "epoch")
"""The names of a column or key with the step; the first of them that a file has counts."""


class Points:
    """Collects the points of one run in the order in which they were recorded."""

    def __init__(self, curves: Collection[str] | None) -> None:
        """
        Args:
            curves: the metrics whose curves are kept; None for all of them.
        """
        self._kept = curves
        self.last: dict[str, float] = {}
        self.last_step: int | None = None
        self._curves: dict[str, tuple[array[int], array[float]]] = {}

    def add(self, name: str, value: float, step: int | None) -> None:
        """Adds a point. One without a step is in no curve."""
        self.last[name] = value
        if step is None:
            return
        if self.last_step is None or step > self.last_step:
            self.last_step = step
        if self._kept is None or name in self._kept:
            steps, values = self._curves.setdefault(name, (array("q"), array("d")))
            steps.append(step)
            values.append(value)

    @property
    def curves(self) -> dict[str, Curve]:
        """Metric -> its curve, of those that are kept."""
        return {
            name: Curve(np.array(steps, np.int64), np.array(values, np.float64))
            for name, (steps, values) in self._curves.items()
        }


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The names and values of nested tables of metrics: `{"val": {"acc": 1}}` has `val/acc`."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def numbers_in(table: Mapping[str, Any], separator: str = "/", prefix: str = "") -> Iterator[tuple[str, float]]:
    """The metrics among the values of nested tables, `val/acc` in `{"val": {"acc": 1}}`. Tables with a `_type` are
    images and the like, and no metrics."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            if "_type" not in value:
                yield from numbers_in(value, separator, f"{prefix}{key}{separator}")
        elif (number := numbers.number(value)) is not None:
            yield f"{prefix}{key}", number


class JsonLines:
    """The objects in the lines of a file. A last line that is no JSON is half written, and left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.half_written = False
        """Whether the last line was left out."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """
        Raises:
            UsageError: a line before the last one is no JSON object, or one is not UTF-8.
        """
        self.half_written = False
        with documents.reading(self.path), self.path.open("rb") as file:
            broken = 0
            for number, line in enumerate(file, 1):
                if broken:
                    break
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    broken = number
                    continue
                if not isinstance(row, dict):
                    raise UsageError(f"{self.path}, line {number}: expected a JSON object", _REPAIR)
                yield row
            else:
                self.half_written = broken > 0
                return
        raise UsageError(f"{self.path}, line {broken}: is not JSON in UTF-8", _REPAIR)


MAY_BE_CUT = "it counts, but if the file is half written, its last number may be cut off"
_REPAIR = "repair the file, or move its run's folder away"


class _Commas(csv.excel):
    strict = True  # a quote that is not closed is an error


class _Tabs(csv.excel_tab):
    quoting = csv.QUOTE_NONE  # a quote is a character as any other


class MetricsFile:
    """A file with metrics of one run: a JSON object, JSON lines, a JSON list of objects, or a table (CSV, TSV)."""

    def __init__(self, path: Path, items: str = "") -> None:
        """
        Args:
            items: the key of a list with per-item results.
        """
        self.path = path
        self._items = items
        self.items: list[float] | None = None
        """The per-item results, of the last row that has them."""
        self.notes: list[str] = []

    def read(self, points: Points, *, ends_with_line: bool = False) -> None:
        """Adds the metrics of the file.

        Args:
            ends_with_line: a last line of a table without an end of line is half written. Otherwise it counts if it
                has all cells.

        Raises:
            UsageError: the file is not UTF-8, or in none of the formats.
            LrurunError: it cannot be read.
        """
        with documents.reading(self.path), self.path.open("rb") as file:
            first = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        if first in (b"{", b"["):
            self._read_json(points)
        elif first:
            self._read_table(points, ends_with_line)

    def _read_json(self, points: Points) -> None:
        try:
            found = json.loads(documents.text(self.path))
        except (ValueError, RecursionError):
            lines = JsonLines(self.path)
            self._add_rows(points, iter(lines))
            if lines.half_written:
                self.notes.append(documents.half_written(self.path))
            return
        rows = found if isinstance(found, list) else [found]
        if not all(isinstance(row, dict) for row in rows):
            raise UsageError(f"{self.path}: expected JSON objects", _REPAIR)
        if isinstance(found, list) or step_name(found) is not None:
            self._add_rows(points, iter(rows))
        else:
            self._add(points, found, None, "")

    def _add_rows(self, points: Points, rows: Iterator[dict[str, Any]]) -> None:
        name: str | None = None
        numbered = False
        for index, row in enumerate(rows):
            if name is None:
                name = step_name(row)
            step = numbers.step(row.get(name)) if name else None
            if name is None:
                step, numbered = index, True
            self._add(points, row, step, name or "")
        if numbered:
            self._note_numbered()

    def _add(self, points: Points, row: dict[str, Any], step: int | None, step_name: str) -> None:
        for metric, value in flat(row):
            if metric == step_name:
                continue
            if (found := numbers.number(value)) is not None:
                points.add(metric, found, step)
            elif metric == self._items and isinstance(value, list):
                self.items = folders.item_results(value, self.path)

    def _read_table(self, points: Points, ends_with_line: bool) -> None:
        text = documents.text(self.path).lstrip("\r\n")
        ended = text.endswith(("\n", "\r"))
        first = text.partition("\n")[0]
        tabs = self.path.suffix.lower() == ".tsv"
        delimiter = "\t" if tabs else ";" if ";" in first and "," not in first else ","
        dialect = _Tabs if tabs else _Commas
        lines = csv.reader(io.StringIO(text, newline=""), dialect, delimiter=delimiter)
        try:
            header = [column.strip() for column in next(lines)]
            name = next((name for name in STEP_NAMES if name in header), None)
            place = header.index(name) if name else -1
            for column in header:
                if header.count(column) > 1:
                    raise UsageError(f"{self.path}: two columns have the name {column!r}", "rename one of them")
            held: list[str] | None = None
            index = 0
            for row in lines:
                if not row:
                    continue
                if held is not None:
                    self._add_cells(points, header, held, place, index)
                    index += 1
                if len(row) != len(header) and (ended or lines.line_num < text.count("\n") + 1):
                    raise UsageError(
                        f"{self.path}, line {lines.line_num}: has {len(row)} cells, and the header has {len(header)}",
                        _REPAIR,
                    )
                held = row
        except csv.Error as error:
            raise UsageError(f"{self.path}, line {lines.line_num}: {error}", _REPAIR) from None
        if held is not None and not ended and (ends_with_line or len(held) != len(header)):
            self.notes.append(documents.half_written(self.path))
        elif held is not None:
            self._add_cells(points, header, held, place, index)
            index += 1
            if not ended:
                self.notes.append(f"{self.path}: the last line has no end: {MAY_BE_CUT}")
        if name is None and index > 1:
            self._note_numbered()

    def _add_cells(self, points: Points, header: list[str], row: list[str], place: int, index: int) -> None:
        step = numbers.step_of_text(row[place]) if place >= 0 else index
        for column, (metric, cell) in enumerate(zip(header, row, strict=True)):
            if cell and column != place and (found := numbers.number_of_text(cell)) is not None:
                points.add(metric, found, step)

    def _note_numbered(self) -> None:
        self.notes.append(
            f"{self.path}: no column is a step ({', '.join(STEP_NAMES)}): rows are numbered from 0 in their order"
        )


def step_name(row: Mapping[str, Any]) -> str | None:
    """The key of a row that has its step."""
    return next((name for name in STEP_NAMES if name in row), None)
