"""Signals and the time limit of a command."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from lrurun import console
from lrurun.errors import Stopped

GRACE_SECONDS = 8.0
"""How long workers may take to save and exit after SIGTERM."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Records SIGINT, SIGTERM and SIGHUP, which would otherwise end the process at once.

    The time limit, in seconds, acts as SIGTERM early enough for workers to save: 8 s before the limit, or at half of
    it if that is later.
    """

    def __init__(self, limit: float | None = None, also: Sequence[signal.Signals] = ()) -> None:
        """
        Args:
            also: further signals that act as SIGTERM.
        """
        self._numbers = (*SIGNALS, *also)
        self.received: int | None = None
        """The first signal."""
        self.abort = False
        """Whether a ^C followed it: stop without saving."""
        self.limit = limit
        self._began = time.monotonic()
        self.reserve(0.0)

    def reserve(self, seconds: float) -> None:
        """Makes the time limit act so much earlier: users' programs may need longer to save."""
        limit = self.limit
        self._deadline = math.inf if limit is None else self._began + max(limit - GRACE_SECONDS - seconds, limit / 2)

    def _record(self, number: int, _frame: object) -> None:
        if self.received is None:
            self.received = number
        elif number == signal.SIGINT:
            self.abort = True

    @contextlib.contextmanager
    def recorded(self) -> Iterator[Signals]:
        """Within this context, signals are recorded; those ignored at the start of the process (nohup) stay ignored.

        Python gives signals to the main thread alone: in another one, none is recorded, and only the time limit stops.
        """
        in_main_thread = threading.current_thread() is threading.main_thread()
        kept = (signal.SIG_IGN, None)  # None: set by a program that runs Python, and cannot be restored
        handled = [number for number in self._numbers if in_main_thread and signal.getsignal(number) not in kept]
        before = {number: signal.signal(number, self._record) for number in handled}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raises Stopped after a signal, or when the time limit is near."""
        if self.received is None and self.limit is not None and time.monotonic() >= self._deadline:
            self.received = signal.SIGTERM
            raise Stopped(self.received, f"the time limit of {console.duration(self.limit)}")
        if self.received is not None:
            raise Stopped(self.received)
