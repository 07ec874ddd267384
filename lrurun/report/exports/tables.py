"""Tables of runs and of metrics: Parquet and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun.report import columns as tables
from lrurun.report.exports import missing
from lrurun.report.formats.csv import cell

if TYPE_CHECKING:
    import pyarrow

    from lrurun.ledger.store import Ledger
    from lrurun.report.columns import Columns

AT_ONCE = 400
"""How many curves are in memory at a time."""


def write_parquet(ledger: Ledger, ids: Sequence[str], folder: Path, named: Path) -> None:
    """`runs.parquet` with a row for each run, `metrics.parquet` with a row for each point.

    Raises:
        LrurunError: pyarrow is not installed.
    """
    try:
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise missing(error, "parquet") from None
    parquet.write_table(_table(tables.of_runs(list(ledger.each(ids, brief=False)))), folder / "runs.parquet")
    parts = map(_table, _points(ledger, ids))
    first = next(parts)
    with parquet.ParquetWriter(folder / "metrics.parquet", first.schema) as writer:
        for part in chain([first], parts):
            writer.write_table(part)


def _points(ledger: Ledger, ids: Sequence[str]) -> Iterator[Columns]:
    """The points of all runs, in parts, of which there is at least one."""
    curves = ledger.curves(ids)
    yield tables.of_curves(islice(curves, AT_ONCE))
    while part := list(islice(curves, AT_ONCE)):
        yield tables.of_curves(part)


def _table(columns: Columns) -> pyarrow.Table:
    import pyarrow

    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    kinds |= {list: pyarrow.list_(pyarrow.string()), datetime: pyarrow.timestamp("us", "UTC")}
    arrays = {name: pyarrow.array(values, kinds[tables.kind_of(values)]) for name, values in columns.items()}
    return pyarrow.table(arrays)


def write_csv(ledger: Ledger, ids: Sequence[str], folder: Path, named: Path) -> None:
    """`runs.csv` and `metrics.csv`; numbers as Python's `float` reads them, times as `runs --json` has them."""
    _write(folder / "runs.csv", iter([tables.of_runs(list(ledger.each(ids, brief=False)))]))
    _write(folder / "metrics.csv", _points(ledger, ids))


def _write(path: Path, parts: Iterator[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, columns in enumerate(parts):
            if not number:
                writer.writerow(map(cell, columns))
            writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))


def _cell(value: Any) -> str | int | float:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return cell("; ".join(value) if isinstance(value, list) else value)
