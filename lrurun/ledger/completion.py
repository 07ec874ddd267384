"""Names in a ledger, for shell completion. Plain SQL, which starts fast."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Literal

from lrurun.errors import LrurunError
from lrurun.ledger import files
from lrurun.server import Place, Server

_TIMEOUT = 0.2
"""Seconds to wait for other processes; after that nothing is completed."""

_CONNECT_TIMEOUT = 2
"""The same for a server: PostgreSQL's shortest time."""

_COLUMNS = {"runs": ("id", "number"), "ladders": ("key", "id")}


def names(path: Place, table: Literal["runs", "ladders"], beginning: str) -> list[str]:
    """The ids of runs or keys of ladder instances with this beginning, newest first; none if they cannot be read."""
    name, order = _COLUMNS[table]
    if isinstance(path, Server):
        return _on_server(path, table, beginning)
    try:
        file = path.absolute()
        if not files.size_of(file):
            return []
        with contextlib.closing(files.connect(file, files.read_query(file)[0], _TIMEOUT)) as connection:
            # A range, so that the index on names is used.
            wanted = f"SELECT {name} FROM {table} WHERE {name} >= ? AND {name} < ? ORDER BY {order} DESC"
            return [row[0] for row in connection.execute(wanted, (beginning, beginning + "\U0010ffff"))]
    except (sqlite3.Error, OSError, LrurunError):
        return []


def _on_server(server: Server, table: str, beginning: str) -> list[str]:
    from lrurun.ledger import servers

    name, order = _COLUMNS[table]
    wanted = f"SELECT {name} FROM {table} WHERE {name} >= %s AND {name} < %s ORDER BY {order} DESC"
    try:
        with (
            servers.plain_errors(server),
            contextlib.closing(servers.connect(server, connect_timeout=_CONNECT_TIMEOUT)) as connection,
        ):
            return [row[0] for row in connection.execute(wanted.encode(), (beginning, beginning + "\U0010ffff"))]
    except Exception:  # a shell shows no errors
        return []
