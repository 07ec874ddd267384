"""The same work for lrurun's ledger, MLflow and Optuna, each on SQLite, side by side in one run.

    python benchmarks/trackers.py [--other PYTHON] [--rounds 5]

PYTHON is the interpreter of an environment that has mlflow and optuna; without one only the ledger is measured. Every
job is a process of its own for each of them, in turns. Figures are medians of seconds, imports not counted but for the
listing, which is a whole command or program as a user starts it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

RUNS, SCALARS, BATCHES = 200, 500, 100
"""Runs to list; scalars logged one by one; batches of as many scalars as there are metrics of a row."""
WRITERS, FIRST = 4, 12
"""Processes that log at once; processes that open a new file at once."""

LRURUN = """
import sys, time
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.config.runs import InstanceSpec, PlannedRun
from lrurun.config.schema import CellConfig, Execution

def want(name):
    return PlannedRun(fingerprint="sha256:" + name, task="t", rung="r", stage="train", seed=0, steps=10**6,
                  config=CellConfig(task="t", version=1, cell={}, seed=0), execution=Execution(), sources={},
                  position=0)

def begin(path, name):
    ledger = Ledger.open(path)
    key = ledger.add_ladder("l", "t", None, InstanceSpec(digest=name)).key
    ledger.enqueue(key, [want(name)])
    return ledger, ledger.hold(key, owner.this_process(), environment={})

def fill(path, count):
    for k in range(count):
        ledger, held = begin(path, f"run{k:09d}")
        ledger.record(held, [(1, "loss", 0.5)], 1)
        ledger.finish(held, "done", result={"val/accuracy": 0.5}, reason="done", step=1)
        ledger.close()

def single(path, name, count):
    ledger, held = begin(path, name)
    began = time.perf_counter()
    for k in range(count):
        ledger.record(held, [(k, "loss", 0.5)], k)
    return time.perf_counter() - began

def batches(path, name, count):
    ledger, held = begin(path, name)
    began = time.perf_counter()
    for k in range(count):
        ledger.record(held, [(100 * k + j, "loss", 0.5) for j in range(100)], 100 * k)
    return time.perf_counter() - began

def first(path):
    Ledger.open(path).close()
"""

MLFLOW = """
import os, sys, time, logging
os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"
logging.disable(logging.CRITICAL)
import mlflow
from mlflow.entities import Metric
from mlflow.tracking import MlflowClient

def begin(path):
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    return client, client.create_run("0").info.run_id

def fill(path, count):
    for k in range(count):
        client, run = begin(path)
        client.log_metric(run, "loss", 0.5, step=1)
        client.set_terminated(run)

def single(path, name, count):
    client, run = begin(path)
    began = time.perf_counter()
    for k in range(count):
        client.log_metric(run, "loss", 0.5, step=k)
    return time.perf_counter() - began

def batches(path, name, count):
    client, run = begin(path)
    began = time.perf_counter()
    for k in range(count):
        client.log_batch(run, metrics=[Metric("loss", 0.5, 0, 100 * k + j) for j in range(100)])
    return time.perf_counter() - began

def first(path):
    begin(path)

def listed(path):
    return len(MlflowClient(tracking_uri=f"sqlite:///{path}").search_runs(["0"], max_results=1000))
"""

OPTUNA = """
import sys, time, logging
import optuna
optuna.logging.set_verbosity(optuna.logging.CRITICAL)

def begin(path, name):
    study = optuna.create_study(storage=f"sqlite:///{path}", study_name="s", load_if_exists=True)
    return study, study.ask()

def fill(path, count):
    for k in range(count):
        study, trial = begin(path, k)
        trial.report(0.5, 1)
        study.tell(trial, 0.5)

def single(path, name, count):
    study, trial = begin(path, name)
    began = time.perf_counter()
    for k in range(count):
        trial.report(0.5, k)
    return time.perf_counter() - began

batches = None  # it has none

def first(path):
    begin(path, 0)

def listed(path):
    return len(optuna.load_study(storage=f"sqlite:///{path}", study_name="s").trials)
"""


class Tracker:
    """One of the three, as programs for its interpreter."""

    def __init__(self, name: str, python: str, program: str) -> None:
        self.name, self.python, self.program = name, python, program

    def start(self, call: str, *arguments: object) -> subprocess.Popen[str]:
        code = f"{self.program}\nprint({call})"
        command = [self.python, "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, call: str, *arguments: object) -> str:
        process = self.start(call, *arguments)
        out, err = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{self.name}: {err.strip().splitlines()[-1]}")
        return out.strip().splitlines()[-1]


def median(measure: Callable[[], float], rounds: int) -> float:
    return statistics.median(measure() for _ in range(rounds))


def listing(tracker: Tracker, path: Path) -> float:
    """Seconds to list all runs, the interpreter's start included."""
    began = time.perf_counter()
    if tracker.name == "lrurun":
        command = [tracker.python, "-m", "lrurun", "--ledger", str(path), "runs", "--limit", str(RUNS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert len(done.stdout.splitlines()) == RUNS + 1, done.stdout
    else:
        assert tracker.run("listed(sys.argv[1])", path) == str(RUNS)
    return time.perf_counter() - began


def together(tracker: Tracker, path: Path) -> tuple[float, int]:
    """Seconds until several processes that log at once are done, imports included, and how many of them failed."""
    tracker.run("first(sys.argv[1])", path)
    began = time.perf_counter()
    started = [
        tracker.start("single(sys.argv[1], sys.argv[2], int(sys.argv[3]))", path, f"w{k:011d}", SCALARS)
        for k in range(WRITERS)
    ]
    failed = sum(process.wait() != 0 for process in started)
    return time.perf_counter() - began, failed


def first_use(tracker: Tracker, path: Path) -> tuple[float, int]:
    """Seconds until many processes have opened one new file, imports included, and how many of them failed."""
    began = time.perf_counter()
    started = [tracker.start("first(sys.argv[1])", path) for _ in range(FIRST)]
    failed = sum(process.wait() != 0 for process in started)
    return time.perf_counter() - began, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", help="the interpreter of an environment with mlflow and optuna")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    trackers = [Tracker("lrurun", sys.executable, LRURUN)]
    if options.other:
        trackers += [Tracker("mlflow", options.other, MLFLOW), Tracker("optuna", options.other, OPTUNA)]
    with tempfile.TemporaryDirectory() as folder:
        rows: dict[str, list[str]] = {}
        for tracker in trackers:
            full = Path(folder) / f"{tracker.name}-full.db"
            tracker.run("fill(sys.argv[1], int(sys.argv[2]))", full, RUNS)
            number = iter(range(10**6))

            def fresh(what: str, tracker: Tracker = tracker, number: object = number) -> Path:
                return Path(folder) / f"{tracker.name}-{what}-{next(number)}.db"  # type: ignore[call-overload]

            one = "single(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
            many = one.replace("single", "batches")
            listed = median(lambda t=tracker, f=full: listing(t, f), options.rounds)  # type: ignore[misc]
            single = median(
                lambda t=tracker, c=one, f=fresh: float(t.run(c, f("one"), "a", SCALARS)),  # type: ignore[misc]
                options.rounds,
            )
            rows.setdefault(f"list {RUNS} runs, whole program, s", []).append(f"{listed:.2f}")
            rows.setdefault("one scalar at a time, ms each", []).append(f"{1e3 * single / SCALARS:.2f}")
            batch = "none"
            if "batches = None" not in tracker.program:
                seconds = median(
                    lambda t=tracker, c=many, f=fresh: float(t.run(c, f("batch"), "a", BATCHES)),  # type: ignore[misc]
                    options.rounds,
                )
                batch = f"{1e6 * seconds / BATCHES / 100:.1f}"
            rows.setdefault("batches of 100, us a scalar", []).append(batch)
            seconds, failed = together(tracker, fresh("together"))
            rows.setdefault(f"{WRITERS} writers at once, {SCALARS} scalars each, s (failed)", []).append(
                f"{seconds:.1f} ({failed})"
            )
            seconds, failed = first_use(tracker, fresh("first"))
            rows.setdefault(f"first use by {FIRST} processes at once, s (failed)", []).append(
                f"{seconds:.1f} ({failed})"
            )
            print(f"measured {tracker.name}", file=sys.stderr)
    print("| what | " + " | ".join(tracker.name for tracker in trackers) + " |")
    print("|---|" + "---|" * len(trackers))
    for what, cells in rows.items():
        print(f"| {what} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
