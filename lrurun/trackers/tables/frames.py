"""Frames of pandas and polars.

pandas has one NaN for cells that are empty and for numbers that are NaN, except in its nullable types: of a pandas
frame, NaN is an empty cell, and a note says so. polars tells both apart.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lrurun.errors import UsageError, plural
from lrurun.trackers import Source
from lrurun.trackers.tables.columns import Column, MemoryTable, check_names, fractions, objects, plain
from lrurun.trackers.tables.reader import TableReader

_NAME = "frame"
"""The name of the project where a frame has none."""


class FrameReader(TableReader):
    """Reads pandas and polars frames."""

    name: ClassVar = "frame"
    title: ClassVar = "a frame"

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return source.frame is not None

    def version(self) -> str:
        package = _package(self.source.frame)
        return f"{package} {sys.modules[package].__version__}" if package else ""

    def table(self) -> MemoryTable:
        return read(self.source)


def read(source: Source) -> MemoryTable:
    """The table of a frame.

    Raises:
        UsageError: it is none, or has columns of equal names.
    """
    frame, place = source.frame, source.name or _NAME
    package = _package(frame)
    if package == "polars":
        return _of_polars(frame, place)
    if package == "pandas":
        return _of_pandas(frame, place)
    found = "nothing" if frame is None else type(frame).__name__
    raise UsageError(
        f"{place}: expected a pandas or polars frame, found {found}", "give a frame, or the path of a file"
    )


def _package(frame: Any) -> str | None:
    """The package of a frame; None if it is none."""
    package = type(frame).__module__.partition(".")[0]
    is_frame = type(frame).__name__ in ("DataFrame", "LazyFrame")
    return package if is_frame and package in ("pandas", "polars") else None


def _of_polars(frame: Any, place: str) -> MemoryTable:
    import polars

    frame = frame.collect() if isinstance(frame, polars.LazyFrame) else frame
    columns = {}
    for series in frame:
        empty = series.is_null().to_numpy().astype(bool)
        if series.dtype == polars.Boolean:
            values = series.fill_null(False).to_numpy().astype(bool)
        elif series.dtype.is_integer() and series.dtype != polars.UInt64:
            values = series.fill_null(0).to_numpy().astype(np.int64)
        elif series.dtype.is_numeric():
            values = series.cast(polars.Float64).fill_null(0.0).to_numpy()
        else:
            values = objects([plain(value) for value in series.to_list()])
        columns[series.name] = Column(values, empty)
    return MemoryTable(place=place, columns=columns, rows=len(frame), notes=[])


def _of_pandas(frame: Any, place: str) -> MemoryTable:
    import pandas

    index = frame.index
    if any(name is not None for name in index.names):  # an index with a name is a column
        frame = frame.reset_index()
    elif not pandas.api.types.is_integer_dtype(index.dtype):
        frame = frame.rename_axis(index="index").reset_index()
    names = [_joined(name) for name in frame.columns]
    check_names(place, names)
    columns, missing = {}, 0
    for number, name in enumerate(names):
        series = frame.iloc[:, number]
        empty = series.isna().to_numpy().astype(bool)
        columns[name] = Column(_pandas_values(series, empty), empty)
        missing += int(empty.sum()) if isinstance(series.dtype, np.dtype) and series.dtype.kind == "f" else 0
    notes = []
    if missing:
        notes.append(
            f"{place}: {plural(missing, 'cell')} with NaN count as empty, as pandas does not tell them from numbers "
            "that are NaN: give a polars frame, or a file, if runs diverged"
        )
    return MemoryTable(place=place, columns=columns, rows=len(frame), notes=notes)


def _joined(name: Any) -> str:
    """The name of a column, which may have several levels, of which some are empty."""
    return ".".join(str(level) for level in name if level != "") if isinstance(name, tuple) else str(name)


def _pandas_values(series: Any, empty: NDArray[np.bool_]) -> NDArray[Any]:
    import pandas

    types = pandas.api.types
    if types.is_bool_dtype(series.dtype):
        return np.asarray(series.fillna(False).to_numpy(dtype=bool))
    if types.is_integer_dtype(series.dtype):
        filled = series.fillna(0) if empty.any() else series
        return np.asarray(filled.to_numpy(dtype=np.int64))
    if types.is_float_dtype(series.dtype):
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    values: list[Any] = [
        None if is_empty else plain(value) for value, is_empty in zip(series.tolist(), empty, strict=True)
    ]
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {bool}:  # a column of objects
        return np.array([bool(value) for value in values], bool)
    if kinds and kinds <= {int, float}:
        return fractions(values)
    return objects(values)
