"""Runs, curves and other frozen values as columns: what data frames and exported files are made of."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun.config.settings import flatten
from lrurun.console import setting
from lrurun.ledger.times import when

if TYPE_CHECKING:
    from lrurun.ledger.values import RecordedCurve, Run

Columns = dict[str, Sequence[Any]]
"""Name -> a value for each row, None where there is none. The values of a column have one type."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_runs(runs: Sequence[Run]) -> Columns:
    """A row for each run: its fields, its first membership, its results and its settings.

    Results have their names (`test/accuracy`), settings their dotted paths (`optim.lr`), as in conditions on runs.
    There is a column for each result and setting that any of the runs has. Settings that are lists or tables are text.
    """
    from lrurun.ledger.columns import COLUMNS

    settings: dict[int, dict[str, Any]] = {}
    executions: dict[int, dict[str, Any]] = {}
    results: dict[str, None] = {}
    paths: dict[str, None] = {}
    for run in runs:
        results.update(dict.fromkeys(run.result or ()))
        if run.config_id not in settings:
            table = _settings(flatten(run.config))
            settings[run.config_id] = {path: table[path] for path in table if path not in ("task", "seed")}
            paths.update(dict.fromkeys(settings[run.config_id]))
        if id(run.execution) not in executions:  # runs share these tables, and keep them alive here
            executions[id(run.execution)] = _settings(flatten(run.execution, "execution."))
            paths.update(dict.fromkeys(executions[id(run.execution)]))
    columns: Columns = {}
    for name, column in COLUMNS.items():
        if column.of_run is not None:
            values = map(column.of_run, runs)
            columns[name] = list(map(_moment, values) if column.type == "time" else values)
    for name in sorted(results):
        columns[name] = _uniform([(run.result or {}).get(name) for run in runs])
    for path in sorted(paths):
        of_execution = path.startswith("execution.")
        tables = (executions[id(run.execution)] if of_execution else settings[run.config_id] for run in runs)
        columns.setdefault(path, _uniform([table.get(path) for table in tables]))
    return columns


def _settings(values: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {path: setting(value) if isinstance(value, list | dict) else value for path, value in values}


def of_curves(curves: Iterable[RecordedCurve]) -> Columns:
    """A row for each point: run, key, step and value."""
    runs, keys, steps, values = [], [], array("q"), array("d")
    for curve in curves:
        runs += [curve.run] * len(curve)
        keys += [curve.key] * len(curve)
        steps.extend(curve.steps)
        values.extend(curve.values)
    return {"run": runs, "key": keys, "step": steps, "value": values}


def of_structs(values: Sequence[msgspec.Struct], fields: Sequence[str]) -> Columns:
    """A row for each value, with columns for its fields, `fields` if there are none; tables become dotted names."""
    return of_tables([msgspec.to_builtins(value) for value in values], fields)


def of_tables(tables: Sequence[dict[str, Any]], fields: Sequence[str]) -> Columns:
    """`of_structs` of values that are dictionaries already."""
    rows = [dict(flatten(table)) for table in tables]
    names = dict.fromkeys(name for row in rows for name in row) if rows else dict.fromkeys(fields)
    columns = {name: _uniform([row.get(name) for row in rows]) for name in names}
    # a table that some rows lack has the columns of its fields, and none of its own
    groups = {name.rpartition(".")[0] for name in names}
    return {
        name: column for name, column in columns.items() if name not in groups or any(v is not None for v in column)
    }


def _moment(seconds: float | None) -> datetime | None:
    """A time; None where `when` prints none."""
    return None if seconds is None or when(seconds) is None else _EPOCH + timedelta(seconds=seconds)


def _uniform(values: list[Any]) -> list[Any]:
    """The values, if those that are not None have one type; whole numbers beside others as floats, else JSON."""
    types = set(map(type, values)) - {type(None)}
    if tuple in types:
        return _uniform([list(value) if isinstance(value, tuple) else value for value in values])
    if types == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(types) <= 1 and not types & {list, dict}:
        if types == {int} and any(value is not None and abs(value) >= 2**63 for value in values):
            return [None if value is None else float(value) for value in values]
        return values
    if types == {list} and all(isinstance(item, str) for value in values if value is not None for item in value):
        return values
    return [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]


def type_of(values: Sequence[Any]) -> type:
    """The type of the values of a column that are not None; `str` if all are."""
    if isinstance(values, array):
        return int if values.typecode == "q" else float
    return next((type(value) for value in values if value is not None), str)


def text(value: Any) -> str:
    """A value in a table for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return ", ".join(map(text, value)) if isinstance(value, list) else str(value)
