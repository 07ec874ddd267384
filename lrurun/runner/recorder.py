"""Metric rows on their way to the ledger."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from lrurun.ledger.store import Ledger
from lrurun.ledger.values import ClaimedRun

FLUSH_SECONDS = 0.5
"""How often rows are written."""


class Recorder:
    """Writes the metric rows of one attempt in batches, by a thread: training never waits for a busy ledger."""

    def __init__(self, ledger: Ledger, claim: ClaimedRun, score: str) -> None:
        """`score` is the metric that selects the model, as in "val/r2"."""
        self.ledger, self.claim, self.score = ledger, claim, score
        self._rows: list[tuple[int, Mapping[str, float]]] = []
        self._flushed = time.monotonic()
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._pending: Future[None] | None = None

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Keeps a row until it is written."""
        self._rows.append((step, values))

    def poll(self) -> None:
        """Raises what went wrong when rows were written."""
        if self._pending is not None and self._pending.done():
            self._settle()

    def write_soon(self, step: int) -> None:
        """Starts to write the rows up to `step`, if the last ones are written and it is time to."""
        if self._pending is None and time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flushed = time.monotonic()
            rows, self._rows = self._rows, []
            self._pending = self._thread.submit(self._write, rows, step)

    def flush(self, step: int | None = None) -> None:
        """Writes all rows, and that the run is at `step`; they are in the ledger when this returns."""
        self._settle()
        self._flushed = time.monotonic()
        if self._rows or step is not None:
            rows, self._rows = self._rows, []
            self._write(rows, step if step is not None else max(at for at, _ in rows))

    def close(self) -> None:
        """Waits for the thread."""
        self._thread.shutdown()

    def _settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, rows: list[tuple[int, Mapping[str, float]]], step: int) -> None:
        flat = [(at, key, value) for at, values in rows for key, value in values.items()]
        self.ledger.record(self.claim, flat, step, score=self.score)
