"""Names in a ledger, for shell completion. Plain SQL, which starts fast."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Literal

from lrurun.ledger import files

_TIMEOUT = 0.2
"""Seconds to wait for other processes; after that nothing is completed."""

_COLUMNS = {"runs": ("id", "number"), "ladders": ("key", "id")}


def names(path: Path, table: Literal["runs", "ladders"], beginning: str) -> list[str]:
    """The ids of runs or keys of ladder instances with this beginning, newest first; none if they cannot be read."""
    name, order = _COLUMNS[table]
    try:
        path = files.locate(path)
        if not files.size_of(path):
            return []
        with contextlib.closing(files.connect(path, files.read_query(path)[0], _TIMEOUT)) as connection:
            # A range, so that the index on names is used.
            wanted = f"SELECT {name} FROM {table} WHERE {name} >= ? AND {name} < ? ORDER BY {order} DESC"
            return [row[0] for row in connection.execute(wanted, (beginning, beginning + "\U0010ffff"))]
    except (sqlite3.Error, OSError):
        return []
