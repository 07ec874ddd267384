"""Numbered rounds of work, done by several processes and handed over in order."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import TypeVar

from lrurun.errors import LrurunError

T = TypeVar("T")

_between_rounds = threading.Lock()
"""A lock that a process of the pool holds while it does anything but compute."""


def rounds(work: Callable[[int], T], workers: int = 1) -> Generator[T, None, None]:
    """`work(0)`, `work(1)`, ... without end, each computed in one of `workers` processes, or in this one for 1.

    `work` must be picklable: a function of an importable module, or a `functools.partial` of one. What it raises is
    raised here in place of its result. Closing the iterator ends the processes, and so does the end of this process,
    however it ends.

    Raises:
        LrurunError: a process died.
    """
    if workers == 1:
        yield from map(work, itertools.count())
        return
    # other threads of this process may hold locks, which a fork would copy
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(reader,))
    try:
        pending: deque[Future[T]] = deque()
        for number in itertools.count():
            pending.append(pool.submit(_compute, work, number))
            if len(pending) > workers:  # one in reserve: no process waits while a result is used
                yield pending.popleft().result()
    except BrokenProcessPool:
        raise LrurunError(
            "a process that generates data died", "check the memory of this machine, and use fewer workers"
        ) from None
    finally:
        writer.close()
        pool.shutdown(cancel_futures=True)
        reader.close()


def _begin(starter: Connection) -> None:
    """Prepares a process of the pool, which ends when the other end of the pipe is closed; ^C is for its starter."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _between_rounds.acquire()

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            starter.recv_bytes()
        # in the middle of a message to the pool, the end of this process would make the pool wait forever; it ends
        # an idle process itself, unless the starter was killed
        _between_rounds.acquire(timeout=5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _compute(work: Callable[[int], T], number: int) -> T:
    _between_rounds.release()
    try:
        return work(number)
    finally:
        _between_rounds.acquire()
