"""Heartbeats of running attempts, and the end of workers that hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lrurun.ledger.store import Ledger
from lrurun.ledger.values import Run
from lrurun.runner.processes import LocalWorker

SECONDS = 10.0


class Heartbeat:
    """Writes the heartbeat for the workers of this process, because one that compiles may be unable to for minutes.

    A worker that itself writes nothing for longer than its run's `hang_after_seconds` is killed. Only time during which
    this process watches is counted: not while it is stopped, the machine sleeps or another process holds the ledger.
    Changes of the clock have no effect.
    """

    def __init__(self, ledger: Ledger, host: str, say: Callable[[str], None]) -> None:
        self.ledger, self.host, self.say = ledger, host, say
        self._last = float("-inf")
        self._silence: dict[tuple[str, int], tuple[float, float]] = {}
        """(Run id, attempt) -> the time of the worker's last write, and the seconds watched since without another."""

    def update(self, runs: Sequence[Run], workers: Sequence[LocalWorker]) -> None:
        """Writes the heartbeat of `runs` if it is due."""
        now = time.monotonic()
        if now - self._last < SECONDS:
            return
        watched, self._last = min(now - self._last, 2 * SECONDS), now
        by_pid = {worker.pid: worker for worker in workers}
        own = []
        running = [run.id for run in runs if run.state == "running"]
        # Of one query, however many runs the ladder has on other nodes.
        for run, attempt in self.ledger.newest_attempts(running, host=self.host).items():
            if attempt.pid not in by_pid:
                continue
            own.append((run, attempt.n))
            seen, silence = self._silence.get((run, attempt.n), (attempt.seen_at, -watched))
            silence = silence + watched if seen == attempt.seen_at else 0.0
            self._silence[run, attempt.n] = attempt.seen_at, silence
            limit = self.ledger.run(run).execution.hang_after_seconds
            if silence > limit:
                self.say(f"{run}: its worker wrote nothing for {limit:.0f} s and was killed")
                by_pid[attempt.pid].kill()
        if own:
            self.ledger.record_heartbeats(own)
