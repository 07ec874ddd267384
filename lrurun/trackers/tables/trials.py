"""The table of a study of Optuna, as `study.trials_dataframe()` makes it, with the names that other tables have.

A row is a trial, whose id is its number. As in the reader of Optuna's storages, `params_x` is the setting x,
`user_attrs_x` the setting user_attrs.x, and `value`, `values_0` and `values_acc` are the metrics value, values/0 and
acc: of complete trials alone, as the value of a pruned trial is its last report. Trials that have not begun (WAITING),
durations and attributes of samplers are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from lrurun.errors import UsageError
from lrurun.trackers.tables.columns import Column, MemoryTable, Table

_NUMBER, _STATE, _METRIC = "number", "state", "metrics."
_NAMES = {
    **{_NUMBER: "run_id", "value": f"{_METRIC}value"},
    **{"datetime_start": "start_time", "datetime_complete": "end_time"},
}
_PARTS = re.compile(r"(params|user_attrs|values|value)[._](.+)", re.DOTALL)
"""Names of several levels are joined by points, others by Optuna itself."""
_LEFT_OUT = re.compile(r"duration|system_attrs[._].+", re.DOTALL)


def fits(names: Iterable[str]) -> bool:
    """Whether these are the columns of trials: their numbers, values, and parameters or attributes."""
    known = set(names)
    kinds = {found[1] for name in known if (found := _PARTS.fullmatch(name))}
    has_values = "value" in known or bool(kinds & {"value", "values"})
    return _NUMBER in known and has_values and bool(kinds & {"params", "user_attrs"})


def of_runs(table: Table) -> MemoryTable:
    """The trials that have begun, as a table with a row for each run.

    Raises:
        UsageError: two trials have one number.
    """
    parts = [block for _, block in table.blocks(table.names)]
    columns = {
        name: Column(
            np.concatenate([block[name].values for block in parts]),
            np.concatenate([block[name].empty for block in parts]),
        )
        for name in table.names
    }
    _check_numbers(table, columns[_NUMBER])
    states = columns[_STATE].cells() if _STATE in columns else ["COMPLETE"] * table.rows
    has_begun = np.array([state != "WAITING" for state in states], bool)
    is_open = np.array([state != "COMPLETE" for state in states], bool)
    if waiting := int((~has_begun).sum()):
        note = f"{table.place}: {waiting} of {table.rows} trials have not begun (WAITING) and are left out"
        table.notes.append(note)
    renamed = {}
    for name, column in columns.items():
        if not _LEFT_OUT.fullmatch(name):
            other = _name(name)
            empty = column.empty | is_open if other.startswith(_METRIC) else column.empty
            renamed[other] = Column(column.values[has_begun], empty[has_begun])
    lines = getattr(table, "lines", None)
    return MemoryTable(
        place=table.place,
        columns=renamed,
        rows=table.rows - waiting,
        notes=table.notes,
        lines=None if lines is None else lines[has_begun],
    )


def _check_numbers(table: Table, numbers: Column) -> None:
    seen: dict[object, int] = {}
    for row, number in enumerate(numbers.cells()):
        if (first := seen.setdefault(number, row)) != row:
            raise UsageError(
                f"{table.place}: {table.row_name(first)} and {table.row_name(row)} are both trial {number}",
                "write each study of Optuna to a file of its own",
            )


def _name(name: str) -> str:
    """The name of a column in other tables."""
    if not (found := _PARTS.fullmatch(name)):
        return _NAMES.get(name, name)
    kind, inner = found.groups()
    if kind == "params":
        return f"params.{inner}"
    if kind == "user_attrs":
        return f"params.user_attrs.{inner}"
    return f"{_METRIC}values/{inner}" if inner.isdecimal() else f"{_METRIC}{inner}"
