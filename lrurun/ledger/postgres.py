"""A ledger in a PostgreSQL database: its connections and its transactions."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import QueuePool

from lrurun.errors import NotFoundError
from lrurun.ledger import engines, files, migrate, servers
from lrurun.ledger.schema import SCHEMA
from lrurun.server import Server

OPENING = 5.0
"""Seconds to wait for a server that is restarting when a ledger is opened: a wrong port should be reported soon."""

HANGING = 15.0
"""Seconds after which a statement does not wait for a lock (10 s at most) but for a server that hangs."""

T = TypeVar("T")


class PostgreSQL:
    """A database that is open, for writing (`open`) or for reading (`read`). Threads may share it.

    Transactions that write read what is committed, and lock what they rely on; those that only read see the database
    as it was at their first statement.
    """

    retries = True
    """Transactions can fail although the same ones would work a moment later."""

    def __init__(self, server: Server, *, timeout: float, read_only: bool, note: str | None = None) -> None:
        self.place = server
        self.read_only = read_only
        self.note = note
        self.timeout = timeout
        self.waiting: Callable[[float], None] | None = None
        self.away_at = float("-inf")
        """When the server did not answer last, by the monotonic clock of this process."""
        self.engine = engine(server, self._answer_missing)
        self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @classmethod
    def open(cls, server: Server, *, create: bool, timeout: float) -> PostgreSQL:
        opened = cls(server, timeout=min(timeout, OPENING), read_only=False)
        try:
            migrated = opened.retry(lambda: opened.prepare(create=create))
        except BaseException:
            opened.close()
            raise
        opened.timeout = timeout
        if migrated:
            opened.note = f"the ledger {server} was migrated to version {SCHEMA}"
        return opened

    @classmethod
    def read(cls, server: Server, *, timeout: float) -> PostgreSQL | None:
        opened = cls(server, timeout=min(timeout, OPENING), read_only=True)
        try:
            version = opened.retry(opened.version)
            if version is not None and version < SCHEMA:
                raise migrate.older(
                    server, version, f"save it with pg_dump, then migrate it: {files.migration(server)}"
                )
        except BaseException:
            opened.close()
            raise
        opened.timeout = timeout
        if version is None:
            opened.close()
            return None
        return opened

    def close(self) -> None:
        engines.close(self.engine)

    def checkpoint(self) -> None:
        """Does nothing: a server takes care of its log."""

    def version(self) -> str | None:
        """The revision of the ledger in the database, None if there is none. Raises LedgerError for a newer one."""
        with self.reading() as connection:
            return migrate.version_of_server(connection, self.place)

    def prepare(self, *, create: bool) -> bool:
        """Create the ledger, or migrate it, if necessary. Returns whether one of an older version was migrated."""
        version = self.version()
        if version is None and not create:
            raise NotFoundError(
                f"there is no ledger in the database {self.place}", f"create it: {files.migration(self.place)}"
            )
        if version != SCHEMA:
            with servers.plain_errors(self.place), self.engine.begin() as connection:
                migrate.upgrade_server(connection, self.place)
        return version is not None and version != SCHEMA

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads."""
        with servers.plain_errors(self.place), self._reader.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, *, durable: bool) -> Iterator[Connection]:
        """A transaction that writes. All are durable: a server that is killed could lose others."""
        with servers.plain_errors(self.place), self.engine.begin() as connection:
            yield connection

    def retry(self, call: Callable[[], T]) -> T:
        """What `call` returns; it is called again while the server cannot be reached, until the timeout."""
        started = time.monotonic()
        pause = 0.05
        while True:
            try:
                return call()
            except servers.Unreachable as error:
                if not isinstance(error, servers.Busy):
                    self.away_at = time.monotonic()
                if time.monotonic() - started >= self.timeout:
                    raise
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, 1.0)
            if self.waiting is not None and time.monotonic() - started >= 1.0:
                self.waiting(time.monotonic() - started)

    def _answer_missing(self, seconds: float) -> None:
        """Called while one answer of the server is waited for."""
        if seconds >= HANGING:
            self.away_at = time.monotonic()
        if self.waiting is not None:
            self.waiting(seconds)
            if seconds >= self.timeout:
                raise servers.Unreachable(
                    f"the ledger {self.place} cannot be reached: it has not answered for {seconds:.0f} s",
                    "check that the server is running, and that its disk and its machine answer",
                )


def engine(server: Server, waiting: Callable[[float], None] = lambda _seconds: None) -> Engine:
    """Connections to a server. Few are kept: its number of connections is limited.

    `waiting` is called every second while one of them waits for the server; what it raises ends the wait.
    """
    server.url()  # says so if the driver is missing, before SQLAlchemy imports it
    from lrurun.ledger import sessions

    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: sessions.connect(lambda: servers.connect(server), waiting),
        poolclass=QueuePool,
        pool_size=1,
        max_overflow=15,
        isolation_level="READ COMMITTED",
        use_native_hstore=False,
    )
