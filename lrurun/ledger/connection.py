"""An open ledger: a file or a server, and its transactions."""

from __future__ import annotations

import functools
import os
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Concatenate

from sqlalchemy import Connection, select

from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger import database as databases
from lrurun.ledger.database import TIMEOUT, Database
from lrurun.ledger.database.schema import ladders, runs
from lrurun.server import Place, Server

P = typing.ParamSpec("P")
T = typing.TypeVar("T")
B = typing.TypeVar("B", bound="LedgerBase")


class LedgerBase:
    """A ledger that is open, for writing (`open`) or for reading (`read`). Threads may share it.

    Queue, Recording and Reading add what is done with it; Ledger is all of them.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._metric_numbers: dict[str, int] = {}
        """Name -> number of the metrics that Recording has written."""

    @property
    def database(self) -> Database:
        """For queries and copies of the whole ledger."""
        return self._database

    @property
    def path(self) -> Place:
        """The file or the server."""
        return self._database.place

    @property
    def read_only(self) -> bool:
        return self._database.read_only

    @property
    def note(self) -> str | None:
        """A sentence for the user about how the ledger had to be opened, or None."""
        return self._database.note

    @property
    def waiting(self) -> Callable[[float], None] | None:
        """Called about every second while another process keeps this one from writing, or the server cannot be
        reached or does not answer, with the seconds waited so far; what it raises ends the wait."""
        return self._database.waiting

    @waiting.setter
    def waiting(self, call: Callable[[float], None] | None) -> None:
        self._database.waiting = call

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | Server, *, create: bool = True, timeout: float = TIMEOUT
    ) -> typing.Self:
        """Open a ledger for writing; it is created or migrated if necessary.

        `timeout` is how many seconds each write waits for other processes, or for a server that restarts. Raises
        NotFoundError if there is no ledger and `create` is off, LrurunError if it cannot be written, LedgerError if it
        is busy, cannot be reached, is newer than this version, or not a ledger.
        """
        place = databases.place(path)
        return cls(databases.kind(place).open(place, create=create, timeout=timeout))

    @classmethod
    def read(cls, path: str | os.PathLike[str] | Server, *, timeout: float = TIMEOUT) -> typing.Self | None:
        """Open a ledger for reading; None if there is none. Never creates one and never changes a row.

        Raises LedgerError for a ledger of another version, for a file that is not a ledger and for a server that
        cannot be reached, LrurunError if it cannot be read.
        """
        place = databases.place(path)
        database = databases.kind(place).read(place, timeout=timeout)
        return None if database is None else cls(database)

    def close(self) -> None:
        """Close the ledger. Closing twice is allowed."""
        self._database.close()

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reading(self) -> AbstractContextManager[Connection]:
        """A transaction that reads."""
        return self._database.reading()

    def _writing(self, *, durable: bool = True) -> AbstractContextManager[Connection]:
        """A transaction that writes. What is not `durable` survives a killed process, but maybe not a power cut."""
        if self.read_only:
            raise LrurunError(f"the ledger {self.path} was opened for reading only")
        return self._database.writing(durable=durable)

    def _run_number(self, connection: Connection, run_id: str) -> int:
        number = connection.execute(select(runs.c.number).where(runs.c.id == run_id)).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no run {run_id!r} in {self.path}", "see `lrurun runs`")
        return int(number)

    def _ladder_number(self, connection: Connection, key: str) -> int:
        number = connection.execute(select(ladders.c.id).where(ladders.c.key == key)).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no ladder instance {key!r} in {self.path}", "see `lrurun status`")
        return int(number)


def retried(method: Callable[Concatenate[B, P], T]) -> Callable[Concatenate[B, P], T]:
    """A method of a ledger that is called again when a server, which may have restarted, did not do its transaction.

    Whether the server did it is unknown if the connection broke while it committed, so that doing it twice must be the
    same as doing it once.
    """

    @functools.wraps(method)
    def call(self: B, *arguments: P.args, **options: P.kwargs) -> T:
        if not self._database.may_be_away:
            return method(self, *arguments, **options)
        # A second call would find an iterator at its end.
        lists = [list(one) if isinstance(one, Iterator) else one for one in arguments]
        named = {name: list(one) if isinstance(one, Iterator) else one for name, one in options.items()}
        return self._database.retry(lambda: method(self, *lists, **named))  # type: ignore[arg-type]

    return call  # type: ignore[return-value]
