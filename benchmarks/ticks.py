"""What one tick of a supervisor costs: ladders of 24, 2,000 and 10,000 runs.

    python benchmarks/ticks.py [--runs 24 2000 10000] [--ticks 20]

Half the runs of a ladder in a new ledger are finished and two are running. Between ticks these record a row, and at
every fourth tick one of them ends and another begins. Measured is what the supervisor of `lrurun ladder` does every
half second, without starting workers, with plain lines as display; these lines alone, as `lrurun status --watch` in a
pipe prints them; and the table of the live view in a terminal. Median and slowest time in ms, and median CPU time. With
LRURUN_TREE=FOLDER another checkout is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, os.environ.get("LRURUN_TREE", str(ROOT)))

from lrurun.config import planning  # noqa: E402
from lrurun.ledger import owner  # noqa: E402
from lrurun.ledger.ledger import Ledger  # noqa: E402
from lrurun.ledger.values import HeldRun  # noqa: E402
from lrurun.paths import Places  # noqa: E402
from lrurun.report.live.progress import collect  # noqa: E402
from lrurun.report.live.views import LadderView  # noqa: E402
from lrurun.runner.selection import Selection  # noqa: E402
from lrurun.runner.signals import Signals  # noqa: E402
from lrurun.runner.supervisor import Supervisor  # noqa: E402

RESULT = '{"val/accuracy":0.5,"test/accuracy":0.5,"machine/steps_per_second":100.0}'


def measure(folder: Path, runs: int, ticks: int) -> None:
    """Prints a line for the supervisor, one for plain lines, and one for the table."""
    plan = planning.make("sDigits", profile="smoke")
    places = Places(ledger=folder / "ledger.db", runs=folder / "runs", data=folder / "data")
    selection = Selection(plan=plan, rungs=plan.rungs, seeds=range(runs // len(plan.rungs)))
    with Ledger.open(places.ledger) as ledger, LadderView() as view:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        supervisor = Supervisor(ledger, selection.work(instance, places), selection, view, Signals())
        supervisor._executor._fill = lambda *_: None  # type: ignore[attr-defined]
        supervisor.runs.enqueue()
        _finish_half(places.ledger, runs)
        key = supervisor.instance.key
        running: list[HeldRun] = []
        step = 0

        def work() -> None:
            nonlocal step
            step += 1
            due = step % 4 == 0 or len(running) < 2
            if due and (held := ledger.hold(key, owner.this_process(), environment={})):
                running.append(held)
                if len(running) > 2:
                    result = {"val/accuracy": 0.5, "machine/steps_per_second": 99.0}
                    ledger.finish(running.pop(0), "done", result=result)
            for held in running:
                ledger.record(held, [(step, "train/loss", 1.0), (step, "machine/steps_per_second", 99.0)], step)

        work()
        work()
        _show(f"{runs} runs, supervisor", ticks, work, supervisor._update)
        _show(f"{runs} runs, lines", ticks, work, lambda: view.update(ledger, supervisor.instance))
        _show(f"{runs} runs, table", ticks, work, lambda: collect(ledger, supervisor.instance))


def _finish_half(path: Path, runs: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        table = "stored_runs" if "stored_runs" in tables else "runs"
        half = f"SELECT number FROM {table} ORDER BY number LIMIT {runs // 2}"
        connection.execute(
            f"UPDATE {table} SET state = 'done', step = steps, result = ? WHERE number IN ({half})", [RESULT]
        )


def _show(what: str, ticks: int, work: Callable[[], None], tick: Callable[[], object]) -> None:
    times, cpu = [], []
    tick()
    for _ in range(ticks):
        work()
        began, began_cpu = time.perf_counter(), time.process_time()
        tick()
        times.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - began_cpu))
    print(f"{what}: {statistics.median(times):.1f} ms, slowest {max(times):.1f}; CPU {statistics.median(cpu):.1f} ms")


def main() -> None:
    """Reads the arguments and measures."""
    parser = argparse.ArgumentParser(description="The cost of one tick of a supervisor.")
    parser.add_argument("--runs", type=int, nargs="+", default=[24, 2000, 10_000])
    parser.add_argument("--ticks", type=int, default=20)
    arguments = parser.parse_args()
    for runs in arguments.runs:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), runs, arguments.ticks)


if __name__ == "__main__":
    main()
