"""What an event costs the training loop: the time that its thread needs to pass it to the ledger.

The loop here only waits for its next step, as one that feeds a device does; each step is an event with some scalars and
a boundary, as `lrurun.training.loop` yields them: two calls. Rows go to a real ledger in a new folder,
which another writer may hold meanwhile. Processor time is that of the loop's thread; the other columns include
other work of the machine. The cost of the measurement itself, measured between the steps, is subtracted.

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
from lrurun.config.schema import Execution
from lrurun.decoding import convert
from lrurun.runner.attempt import ActiveAttempt
from lrurun.runner.execute import EventWriter
from lrurun.training.events import Measured, Reached

PER_SECOND = 200
SCALARS = (1, 3, 10, 100)
HELD, FREE = 0.3, 0.2
"""Seconds for which the other writer locks the ledger, and releases it."""


def calls(place: Path, scalars: int, seconds: float) -> list[tuple[float, float]]:
    """Seconds a call, the mean of the two of each step: by the clock, and of the processor."""
    ledger, held, plan = loop.held_run(place, "small")
    with ledger:
        attempt = ActiveAttempt(ledger, held, place / "runs", place / plan.data_name)
        writer = EventWriter(attempt)
        attempt.execution = convert({**held.run.execution, "checkpoint_seconds": 3600.0}, Execution, "bench")
        names = [f"norm/layer{k}" for k in range(scalars)]
        spent, nothing = [], []
        for step in range(1, 1 + round(seconds * PER_SECOND)):
            until = time.perf_counter() + 1 / PER_SECOND
            measured = Measured(member=0, step=step, values=dict.fromkeys(names, 0.5))
            reached = Reached(member=0, step=step, snapshot=lambda: None)  # type: ignore[arg-type, return-value]
            began, busy = time.perf_counter(), time.thread_time()
            writer.write(measured, False)
            writer.write(reached, False)
            busy = time.thread_time() - busy
            spent.append((time.perf_counter() - began, busy))
            time.sleep(max(0.0, until - time.perf_counter()) / 2)
            began, busy = time.perf_counter(), time.thread_time()
            busy = time.thread_time() - busy
            nothing.append((time.perf_counter() - began, busy))
            time.sleep(max(0.0, until - time.perf_counter()))
        writer.close()
        found = ledger.metrics(held.run.id)
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
    options = parser.parse_args()
    print("| scalars an event | ledger | processor, mean, us | mean, us | median, us | worst, ms |")
    print("|---|---|---|---|---|---|")
    for locked in (False, True):
        for scalars in SCALARS:
            rounds = []
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory() as place:
                    over = threading.Event()
                    other = threading.Thread(target=holding, args=(Path(place) / "ledger.db", over))
                    if locked:
                        other.start()
                    try:
                        rounds.append(calls(Path(place), scalars, options.seconds))
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
