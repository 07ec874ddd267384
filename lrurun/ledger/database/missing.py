"""The database of a ledger that does not exist: no rows, in memory, so that readers need no case of their own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import cast

from sqlalchemy import create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateTable

from lrurun.ledger.database import TIMEOUT
from lrurun.ledger.database.schema import metadata
from lrurun.ledger.database.sqlite import SQLite
from lrurun.server import Location

DIALECT = sqlite.dialect()


class Missing(SQLite):
    """A ledger without rows, for reading, under the name of the location where a ledger would be. It creates no file.

    Its tables are made when something is read: a command that only says that there is no ledger does not pay for them.
    """

    is_missing = True

    def __init__(self, location: Location) -> None:
        self.location = cast(Path, location)  # only a name here
        self.read_only = True
        self.note = None
        self.timeout = TIMEOUT
        self.engine = self.fast_engine = create_engine("sqlite://", creator=_connect, poolclass=QueuePool)
        event.listen(self.engine, "begin", self._begin)
        self._reader = self.engine.execution_options(lrurun_begin="BEGIN")


def _connect() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(
        ";".join(str(CreateTable(table).compile(dialect=DIALECT)) for table in metadata.sorted_tables)
    )
    connection.execute("PRAGMA query_only=ON")
    return connection
