"""A thread writes to the ledger what an attempt records while it trains, in the order in which it was given."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun

FLUSH_SECONDS = 0.5
"""How often rows are written."""
MOST_ROWS = 100_000
"""Most rows that are kept in memory while the ledger does not answer; then training waits for it."""

T = TypeVar("T")


class LedgerThread:
    """One thread that writes: training does not wait for a ledger that is busy, or whose server is away.

    After an error nothing more is written: a checkpoint must not be announced without the rows that it has seen.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: deque[Future[Any]] = deque()
        self._failed: BaseException | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything is written."""
        return not self._pending or self._pending[-1].done()

    def submit(self, write: Callable[[], T]) -> Future[T]:
        """Calls `write` after everything that was given before."""
        future = self._thread.submit(self._call, write)
        self._pending.append(future)
        return future

    def poll(self) -> None:
        """Raises what went wrong so far."""
        while self._pending and self._pending[0].done():
            self._pending.popleft().result()

    def drain(self) -> None:
        """Waits until everything is written.

        Raises:
            Fenced: another process has continued the run.
            LedgerError: the ledger could not be written.
        """
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Waits for the thread."""
        self._thread.shutdown()

    def _call(self, write: Callable[[], T]) -> T:
        if self._failed is not None:
            raise self._failed
        try:
            return write()
        except BaseException as error:
            self._failed = error
            raise


class Recorder:
    """Collects the metric rows of one attempt, and gives them to the thread in batches."""

    def __init__(self, ledger: Ledger, held: HeldRun, thread: LedgerThread, score: str) -> None:
        """`score` is the metric that selects the model, as in "val/r2"."""
        self.ledger, self.held, self.thread, self.score = ledger, held, thread, score
        self._rows: list[tuple[int, Mapping[str, float]]] = []
        self._flushed = time.monotonic()
        self.recorded: int | None = None
        """The step up to which all rows are in the ledger; None before the first."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Keeps a row until it is written."""
        if len(self._rows) >= MOST_ROWS:
            self.flush()
            self.thread.drain()
        self._rows.append((step, values))

    def write_soon(self, step: int) -> bool:
        """Starts to write the rows up to `step`, if everything before is written and it is time to; whether it does."""
        is_due = self.thread.is_idle and time.monotonic() - self._flushed >= FLUSH_SECONDS
        if is_due:
            self.flush(step)
        return is_due

    def flush(self, step: int | None = None) -> None:
        """Starts to write all rows, and that the run is at `step`."""
        self._flushed = time.monotonic()
        if self._rows or step is not None:
            rows, self._rows = self._rows, []
            at = step if step is not None else max(at for at, _ in rows)
            self.thread.submit(lambda: self._write(rows, at))

    def _write(self, rows: list[tuple[int, Mapping[str, float]]], step: int) -> None:
        flat = [(at, key, value) for at, values in rows for key, value in values.items()]
        self.ledger.record(self.held, flat, step, score=self.score)
        self.recorded = step
