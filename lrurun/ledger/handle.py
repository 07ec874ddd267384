"""An open ledger: how it is opened, closed, and its transactions. The rest of it, by role, is in `queue`, `heartbeat`,
`attempt`, `changes`, `items`, `reading` and `restoring`."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Concatenate

from sqlalchemy import Connection, bindparam, select

from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger.database import TIMEOUT, Database, implementation
from lrurun.ledger.database.schema import ladders, metric_keys, removals, removed_runs, runs
from lrurun.ledger.database.sql import among, upsert
from lrurun.ledger.times import when
from lrurun.paths import ledger_location
from lrurun.server import Location

P = typing.ParamSpec("P")

T = typing.TypeVar("T")

H = typing.TypeVar("H", bound="Handle")


def retried(method: Callable[Concatenate[H, P], T]) -> Callable[Concatenate[H, P], T]:
    """A method of a ledger that is called again when a server, which may have restarted, did not do its transaction.

    Whether the server did it is unknown if the connection broke while it committed, so that doing it twice must be the
    same as doing it once.
    """

    @functools.wraps(method)
    def call(self: H, *arguments: P.args, **options: P.kwargs) -> T:
        if not self.database.may_be_away:
            return method(self, *arguments, **options)
        # A second call would find an iterator at its end.
        lists = [list(value) if isinstance(value, Iterator) else value for value in arguments]
        named = {name: list(value) if isinstance(value, Iterator) else value for name, value in options.items()}
        return self.database.retry(lambda: method(self, *lists, **named))  # type: ignore[arg-type]

    return call  # type: ignore[return-value]


class Handle:
    """The open database of a ledger, and the transactions in which its parts read and write it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._metric_numbers: dict[str, int] = {}
        """Name -> number of the metrics that were written."""

    @property
    def path(self) -> Location:
        """The file or the server."""
        return self.database.location

    @property
    def exists(self) -> bool:
        """Whether there was a ledger when it was opened; one that there is not has no rows."""
        return not self.database.is_missing

    @property
    def read_only(self) -> bool:
        return self.database.read_only

    @property
    def note(self) -> str | None:
        """A sentence for the user about how the ledger had to be opened, or None."""
        return self.database.note

    @property
    def waiting(self) -> Callable[[float], None] | None:
        """Called about every second while another process keeps this one from writing, or the server cannot be
        reached or does not answer, with the seconds waited so far; what it raises ends the wait."""
        return self.database.waiting

    @waiting.setter
    def waiting(self, call: Callable[[float], None] | None) -> None:
        self.database.waiting = call

    @classmethod
    def open(cls, path: str | Location, *, create: bool = True, timeout: float = TIMEOUT) -> typing.Self:
        """Open a ledger for writing; it is created or migrated if necessary.

        `timeout` is how many seconds each write waits for other processes, or for a server that restarts. Raises
        NotFoundError if there is no ledger and `create` is off, LrurunError if it cannot be written, LedgerError if it
        is busy, cannot be reached, is newer than this version, or not a ledger.
        """
        location = ledger_location(path) if isinstance(path, str) else path
        return cls(implementation(location).open(location, create=create, timeout=timeout))

    @classmethod
    def read(cls, path: str | Location, *, timeout: float = TIMEOUT) -> typing.Self:
        """Open a ledger for reading; where there is none, one without rows. Never creates one and never changes a row.

        Raises LedgerError for a ledger of another version, for a file that is not a ledger and for a server that
        cannot be reached, LrurunError if it cannot be read.
        """
        location = ledger_location(path) if isinstance(path, str) else path
        database = implementation(location).read(location, timeout=timeout)
        if database is None:
            from lrurun.ledger.database.missing import Missing

            database = Missing(location)
        return cls(database)

    def close(self) -> None:
        """Close the ledger. Closing twice is allowed."""
        self.database.close()

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reading(self) -> AbstractContextManager[Connection]:
        """A transaction that reads."""
        return self.database.reading()

    def _writing(self, *, durable: bool = True) -> AbstractContextManager[Connection]:
        """A transaction that writes. What is not `durable` survives a killed process, but maybe not a power cut."""
        if self.read_only:
            raise LrurunError(f"the ledger {self.path} was opened for reading only")
        return self.database.writing(durable=durable)

    def _run_number(self, connection: Connection, run_id: str) -> int:
        number = connection.execute(_RUN_NUMBER, {"id": run_id}).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no run {run_id!r} in {self.path}", "see `lrurun runs`")
        return int(number)

    def _ladder_number(self, connection: Connection, key: str) -> int:
        number = connection.execute(_LADDER_NUMBER, {"key": key}).scalar_one_or_none()
        if number is None:
            removal = None
            if removals.name not in self.database.lacking:
                removal = connection.execute(_FORGOTTEN_WITH, {"key": key}).first()
            if removal is not None:
                who = f" by {removal.user}" if removal.user else ""
                raise NotFoundError(
                    f"{removal.instance}: it was forgotten at {when(removal.time)}{who}",
                    "lrurun ledger forgotten lists why; a command that trains it begins it again",
                )
            raise NotFoundError(f"no ladder instance {key!r} in {self.path}", "see `lrurun status`")
        return int(number)

    def _key_numbers(self, connection: Connection, names: set[str]) -> dict[str, int]:
        numbers = {name: self._metric_numbers[name] for name in names if name in self._metric_numbers}
        unknown = sorted(names - numbers.keys())
        if unknown:
            connection.execute(
                upsert(connection, metric_keys).on_conflict_do_nothing(index_elements=[metric_keys.c.name]),
                [{"name": name} for name in unknown],
            )
            for key, name in connection.execute(
                select(metric_keys.c.id, metric_keys.c.name).where(among(metric_keys.c.name, unknown))
            ):
                numbers[name] = key
        return numbers


_RUN_NUMBER = select(runs.c.number).where(runs.c.id == bindparam("id"))


_LADDER_NUMBER = select(ladders.c.id).where(ladders.c.key == bindparam("key"))


_FORGOTTEN_WITH = (
    select(removed_runs.c.instance, removals.c.time, removals.c.user)
    .join(removals, removals.c.id == removed_runs.c.removal)
    .where(removed_runs.c.ladder_key == bindparam("key"), removals.c.kind == "forgotten")
    .order_by(removals.c.id.desc())
    .limit(1)
)
"""The newest removal of runs of an instance."""
