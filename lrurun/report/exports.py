"""Runs with configuration, curves and results as files of other programs: Parquet, CSV, TensorBoard, MLflow."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun import files
from lrurun.errors import LrurunError
from lrurun.report import frame_columns
from lrurun.report.export_shared import Departures, Names
from lrurun.report.formats.as_csv import cell

if TYPE_CHECKING:
    import pyarrow

    from lrurun.ledger.ledger import Ledger
    from lrurun.report.formats import ExportFormat
    from lrurun.report.frame_columns import Columns

CURVES_AT_ONCE = 400
"""How many curves of tables are in memory at a time."""


def write(ledger: Ledger, ids: Sequence[str], format: ExportFormat, target: Path) -> list[str]:
    """Writes runs to the new folder `target`, which appears when it is complete.

    Args:
        ids: exact ids of runs.

    Returns:
        Sentences on what the files do not have as the ledger has it: names, numbers, long texts.

    Raises:
        LrurunError: `target` exists or cannot be written, or the libraries of the format are not installed.
    """
    check_new(target)
    try:
        with files.atomic(target.absolute()) as folder:
            folder.mkdir()
            if format == "parquet":
                return _write_parquet(ledger, ids, folder)
            if format == "csv":
                return _write_csv(ledger, ids, folder)
            if format == "tensorboard":
                from lrurun.report import export_tensorboard

                return export_tensorboard.write(ledger, ids, folder)
            from lrurun.report import export_mlflow

            return export_mlflow.write(ledger, ids, folder, target.absolute())
    except OSError as error:
        check_new(target)  # another export was quicker
        raise LrurunError(f"{target}: {error.strerror or error}", "name another folder, or make room") from None
    except ModuleNotFoundError as error:
        raise LrurunError(f"{error.name} is not installed", f"install it: pip install 'lrurun[{format}]'") from None


def check_new(target: Path) -> None:
    """Checks the name of a new folder.

    Raises:
        LrurunError: it exists already, or cannot be made.
    """
    if target.exists() or target.is_symlink():
        raise LrurunError(f"{target}: exists already, and is not overwritten", "name a new folder")
    parent = target.absolute().parent
    if not parent.is_dir():
        raise LrurunError(f"{target}: the folder {parent} does not exist", f"create it: mkdir -p {parent}")
    if not os.access(parent, os.W_OK):
        raise LrurunError(f"{target}: cannot be written: {parent} is read-only for this user", "name another folder")


# Tables


def _write_parquet(ledger: Ledger, ids: Sequence[str], folder: Path) -> list[str]:
    """`runs.parquet` with a row for each run, `metrics.parquet` with a row for each point: all as it is."""
    from pyarrow import parquet

    parquet.write_table(_table(frame_columns.of_runs(list(ledger.each(ids, brief=False)))), folder / "runs.parquet")
    parts = map(_table, _points(ledger, ids))
    first = next(parts)
    with parquet.ParquetWriter(folder / "metrics.parquet", first.schema) as writer:
        for part in chain([first], parts):
            writer.write_table(part)
    return []


def _write_csv(ledger: Ledger, ids: Sequence[str], folder: Path) -> list[str]:
    """`runs.csv` and `metrics.csv`; numbers as Python's `float` reads them, times as `runs --json` has them."""
    table = frame_columns.of_runs(list(ledger.each(ids, brief=False)))
    headers = Names(_plain, [("", name) for name in table])
    keys = Names(_plain, [("", name) for name in ledger.metric_names()])
    _write_lines(folder / "runs.csv", iter([{headers(name): values for name, values in table.items()}]))
    points = ({**part, "key": list(map(keys, part["key"]))} for part in _points(ledger, ids))
    _write_lines(folder / "metrics.csv", points)
    return Departures("CSV").sentences([headers, keys])


def _plain(name: str) -> str:
    return str(cell(name))


def _points(ledger: Ledger, ids: Sequence[str]) -> Iterator[Columns]:
    """The points of all runs, in parts, of which there is at least one."""
    curves = ledger.curves(ids)
    yield frame_columns.of_curves(islice(curves, CURVES_AT_ONCE))
    while part := list(islice(curves, CURVES_AT_ONCE)):
        yield frame_columns.of_curves(part)


def _table(part: Columns) -> pyarrow.Table:
    import pyarrow

    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    kinds |= {list: pyarrow.list_(pyarrow.string()), datetime: pyarrow.timestamp("us", "UTC")}
    arrays = {name: pyarrow.array(values, kinds[frame_columns.type_of(values)]) for name, values in part.items()}
    return pyarrow.table(arrays)


def _write_lines(path: Path, parts: Iterator[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, part in enumerate(parts):
            if not number:
                writer.writerow(map(cell, part))
            writer.writerows([_cell(value) for value in row] for row in zip(*part.values(), strict=True))


def _cell(value: Any) -> str | int | float:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return cell("; ".join(value) if isinstance(value, list) else value)
