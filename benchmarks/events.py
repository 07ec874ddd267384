"""What an event costs the loop that trains: the time its thread spends in handing it over to the ledger.

The loop here does nothing but wait for its next step, as one that feeds a device does; each step is an event of some
scalars and a boundary, as `lrurun.train` yields them: two calls. Rows go to a real ledger in a new folder, which
another writer may hold meanwhile. Processor time is that of the loop's thread; what else runs on the machine is in the
other columns. What the measurement itself costs there, found between the steps, is taken off.

    python benchmarks/events.py [--seconds S] [--rounds N]
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import threading
import time
from pathlib import Path

from lrurun.bench import loop
from lrurun.config import Execution
from lrurun.strict import convert
from lrurun.train import Measured, Reached
from lrurun.worker import Attempt

PER_SECOND = 200
SCALARS = (1, 3, 10, 100)
HELD, FREE = 0.3, 0.2
"""Seconds that the other writer holds the ledger, and lets go of it."""


def calls(place: Path, scalars: int, seconds: float) -> list[tuple[float, float]]:
    """Seconds a call, the mean of the two of each step: by the clock, and of the processor."""
    ledger, claim, plan = loop.claimed(place, "small")
    with ledger:
        attempt = Attempt(ledger, claim, place / "runs", place / plan.data_name)
        attempt.execution = convert({**claim.run.execution, "checkpoint_seconds": 3600.0}, Execution, "bench")
        names = [f"norm/layer{k}" for k in range(scalars)]
        spent, nothing = [], []
        for step in range(1, 1 + round(seconds * PER_SECOND)):
            until = time.perf_counter() + 1 / PER_SECOND
            measured = Measured(member=0, step=step, values=dict.fromkeys(names, 0.5))
            reached = Reached(member=0, step=step, snapshot=lambda: None)  # type: ignore[arg-type, return-value]
            began, busy = time.perf_counter(), time.thread_time()
            attempt.take(measured, False)
            attempt.take(reached, False)
            busy = time.thread_time() - busy
            spent.append((time.perf_counter() - began, busy))
            time.sleep(max(0.0, until - time.perf_counter()) / 2)
            began, busy = time.perf_counter(), time.thread_time()
            busy = time.thread_time() - busy
            nothing.append((time.perf_counter() - began, busy))
            time.sleep(max(0.0, until - time.perf_counter()))
        attempt.close()
        found = ledger.metrics(claim.run.id)
        assert all(len(found[name]) == len(spent) for name in names), "a row is missing"
    wall, own = (statistics.median(column) for column in zip(*nothing, strict=True))
    return [((clock - wall) / 2, (busy - own) / 2) for clock, busy in spent]


def holding(path: Path, over: threading.Event) -> None:
    """Another writer, which keeps the ledger locked most of the time."""
    while not path.exists():
        time.sleep(0.01)
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    while not over.is_set():
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(HELD)
        connection.execute("COMMIT")
        time.sleep(FREE)
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print("| scalars an event | ledger | processor, mean, us | mean, us | median, us | worst, ms |")
    print("|---|---|---|---|---|---|")
    for locked in (False, True):
        for scalars in SCALARS:
            rounds = []
            for _ in range(asked.rounds):
                with tempfile.TemporaryDirectory() as place:
                    over = threading.Event()
                    other = threading.Thread(target=holding, args=(Path(place) / "ledger.db", over))
                    if locked:
                        other.start()
                    try:
                        rounds.append(calls(Path(place), scalars, asked.seconds))
                    finally:
                        over.set()
                        if locked:
                            other.join()
            clocks = [[clock for clock, _ in spent] for spent in rounds]
            busy = statistics.median(statistics.fmean(own for _, own in spent) for spent in rounds)
            mean = statistics.median(map(statistics.fmean, clocks))
            middle = statistics.median(map(statistics.median, clocks))
            cells = [f"{1e6 * one:.1f}" for one in (busy, mean, middle)] + [f"{1e3 * max(map(max, clocks)):.1f}"]
            print(f"| {scalars} | {'held by another' if locked else 'free'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
