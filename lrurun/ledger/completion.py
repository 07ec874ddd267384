"""Names in a ledger for a shell to complete. By plain SQL: a person waits for each of them."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Literal

from lrurun.ledger import files

_PATIENCE = 0.2
"""Seconds to wait for other processes: longer than that, nothing is completed."""

_COLUMNS = {"runs": ("id", "number"), "ladders": ("key", "id")}


def names(path: Path, table: Literal["runs", "ladders"], beginning: str) -> list[str]:
    """The ids of runs, or the keys of ladder instances, that begin so, newest first; none where they cannot be read."""
    name, order = _COLUMNS[table]
    try:
        path = files.locate(path)
        if not files.size_of(path):
            return []
        with contextlib.closing(files.connect(path, files.read_query(path)[0], _PATIENCE)) as connection:
            wanted = f"SELECT {name} FROM {table} WHERE substr({name}, 1, ?) = ? ORDER BY {order} DESC"
            return [row[0] for row in connection.execute(wanted, (len(beginning), beginning))]
    except (sqlite3.Error, OSError):
        return []
