"""Connections to a PostgreSQL server that is not waited for blindly: it may hang, with its connections still open."""

from __future__ import annotations

import contextlib
import selectors
import threading
import time
from collections.abc import Callable, Generator
from concurrent import futures
from typing import Any, TypeVar

import psycopg

POLL_SECONDS = 1.0
"""Seconds between two calls of `waiting`."""

T = TypeVar("T")


class GivenUp(psycopg.OperationalError):
    """A wait for the server was given up because of `cause`. SQLAlchemy then drops the connection."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Session(psycopg.Connection[Any]):
    """A connection that calls `waiting` every second while it waits for the server.

    `waiting` gets the seconds that have been waited for this answer; what it raises ends the wait and the connection.
    """

    waiting: Callable[[float], None] | None = None

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **options: Any) -> T:
        if self.waiting is None:
            return super().wait(gen, *arguments, **options)
        try:
            return _wait(gen, self.pgconn.socket, self.waiting)
        except BaseException as error:
            if isinstance(error, GivenUp) or not isinstance(error, Exception):  # the answer may still come
                self.pgconn.finish()
                with contextlib.suppress(psycopg.Error):
                    gen.close()
            raise


def _wait(gen: Generator[Any, Any, T], socket: int, waiting: Callable[[float], None]) -> T:
    """The result of a generator of psycopg, which yields what it waits for (1: reading, 2: writing, 3: both)."""
    started = time.monotonic()
    try:
        needed = next(gen)
        with selectors.DefaultSelector() as selector:
            key = selector.register(socket, needed)
            while True:
                if key.events != needed:
                    key = selector.modify(key.fileobj, needed)
                ready = selector.select(POLL_SECONDS)
                if ready:
                    needed = gen.send(ready[0][1])
                else:
                    _call(waiting, time.monotonic() - started)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def connect(make: Callable[[], psycopg.Connection[Any]], waiting: Callable[[float], None]) -> psycopg.Connection[Any]:
    """The connection that `make` returns, in a thread; `waiting` is called meanwhile as by `Session`.

    libpq resolves names and reads files without looking at signals.
    """
    future: futures.Future[psycopg.Connection[Any]] = futures.Future()

    def work() -> None:
        try:
            future.set_result(make())
        except BaseException as error:
            future.set_exception(error)

    started = time.monotonic()
    threading.Thread(target=work, daemon=True).start()
    try:
        while not futures.wait([future], POLL_SECONDS).done:
            _call(waiting, time.monotonic() - started)
        connection = future.result()
    except BaseException:
        future.add_done_callback(_close)
        raise
    if isinstance(connection, Session):
        connection.waiting = waiting
    return connection


def _close(future: futures.Future[psycopg.Connection[Any]]) -> None:
    if future.exception() is None:
        future.result().close()


def _call(waiting: Callable[[float], None], seconds: float) -> None:
    try:
        waiting(seconds)
    except Exception as error:
        raise GivenUp(error) from error
