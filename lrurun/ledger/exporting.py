"""Every table of a ledger as it is exported: names and texts instead of numbers of rows."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

from sqlalchemy import Table

from lrurun.ledger.database.schema import documents, info, item_results, metadata, metric_keys, test_sets
from lrurun.ledger.ledger import Ledger

_NAMED = {
    "run": ("stored_runs", "number", "id"),
    "ladder": ("ladders", "id", "key"),
    "key": ("metric_keys", "id", "name"),
    "test_set": ("test_sets", "id", "sha256"),
    "removal": ("removals", "id", "key"),
}
"""Column that refers to a row by its number -> the table, its column of numbers, and its column of names."""


_INTERNAL = frozenset(
    {"boot", "namespace", "pid_started", "heartbeat_at", "seen_at", "user_name"}
    | {"last_loss", "last_score", "last_speed", "val_accuracy", "test_accuracy", "steps_per_second"}
)
"""Columns that are not exported: they tell whether an attempt is still running and which user started it, and
copies of metrics."""


def _statement(table: Table) -> str:
    """The query for all rows of a table, with names and texts instead of numbers of rows."""
    values, joins = [], []
    for column in table.c:
        if column.identity is not None or column.name in _INTERNAL:
            continue
        if column.foreign_keys and column.name in _NAMED:
            referenced, number, name = _NAMED[column.name]
            values.append(f"{column.name}_row.{name} AS {column.name}")
            joins.append(f"LEFT JOIN {referenced} {column.name}_row ON {column.name}_row.{number} = t.{column.name}")
        else:
            values.append(f"t.{column.name.removesuffix('_id')}")  # a view has the texts of documents
    order = ", ".join(f"t.{column.name}" for column in table.primary_key)
    name = table.name.removeprefix("stored_")
    return f"SELECT {', '.join(values)} FROM {name} t {' '.join(joins)} ORDER BY {order}"


EXPORTED = {
    table.name.removeprefix("stored_"): _statement(table)
    for table in metadata.sorted_tables
    if table not in (info, documents, metric_keys)
}
"""Table -> the query that exports it, so that an export can be read without the ledger."""

PACKED = frozenset(
    {"spec", "config", "execution", "provenance", "result", "environment", "pairs", "payload"}
    | {"weights", "groups", "sums", "instances"}
)
"""Columns that hold JSON, in an export."""


def export(ledger: Ledger) -> Generator[tuple[str, list[str], Iterator[tuple[Any, ...]]], None, None]:
    """Every table as it was at one moment: its name, its columns, and its rows, to be read before the next table.

    Close it if it is not read to its end: rows that are left are not read then.
    """
    with ledger.database.rows() as source:
        for table, statement in EXPORTED.items():
            if table in ledger.database.lacking:
                continue
            columns, rows = source.select(statement)
            with contextlib.closing(rows):  # it cannot be closed after its connection
                yield table, columns, _readable(rows) if table in _WITH_NUMBERS else rows


_WITH_NUMBERS = (test_sets.name, item_results.name)
"""The tables with packed numbers."""


def _readable(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    from lrurun.ledger import item_rows

    for row in rows:
        yield tuple(item_rows.as_json(cell) if isinstance(cell, bytes) else cell for cell in row)
