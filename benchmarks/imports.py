"""Times importing runs of other trackers into a ledger, and what is done with them.

    python benchmarks/imports.py FOLDER [--runs 1000] [--steps 1000] [--metrics 10] [--json]

FOLDER gets the same runs as a Parquet file and as an MLflow store, once. Each command is a whole process: its processor time, which other work on the machine
changes less than its duration, and its largest resident set. The ratios are to inserting the rows of the curves alone,
by one statement for each, into an equal table: `floor`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TRANSACTION = 100_000
"""Rows of a transaction of the floor, about as many as an import has."""


def settings(run: int) -> dict[str, Any]:
    return {"norm": ("none", "layer", "batch", "rms")[run % 4], "lr": (0.001, 0.01)[run // 4 % 2], "seed": run // 8}


def curves(run: int, steps: int, metrics: int) -> dict[str, Any]:
    """Metric -> its values: three of them of the splits, the others of the machine."""
    draw = np.random.default_rng(run)
    names = ["train_loss", "val_acc", "test_acc", *(f"machine_{k}" for k in range(metrics))][:metrics]
    rise = np.linspace(0, 0.3 + 0.05 * (run % 4), steps)
    return {name: rise + draw.normal(0, 0.02, steps) for name in names}


# The ledger alone


def imported(arguments: argparse.Namespace) -> Iterator[Any]:
    from lrurun.config.schema import ImportedConfig, Origin, Reading
    from lrurun.ledger.imports import ImportedRun

    reading = Reading(metric="test_acc")
    steps = np.arange(arguments.steps)
    for run in range(arguments.runs):
        values = curves(run, arguments.steps, arguments.metrics)
        of_run = settings(run)
        yield ImportedRun(
            config=ImportedConfig(
                task="digits",
                origin=Origin(tracker="mlflow", project="mine", run=f"{run:032x}"),
                reading=reading,
                settings=of_run,
                seed=of_run["seed"],
            ),
            state="done",
            result={"test/acc": float(values["test_acc"][-1]) if "test_acc" in values else 0.5},
            step=arguments.steps - 1,
            digest=f"sha256:{run:064x}",
            origin={"title": "MLflow", "version": "3.17.2", "name": f"run {run}", "place": "mlflow.db"},
            curves={name: (steps, curve) for name, curve in values.items()},
        )


def add(path: Path, arguments: argparse.Namespace) -> None:
    from lrurun.ledger.ledger import Ledger

    with Ledger.open(path) as ledger:
        ledger.add_imported(imported(arguments))


def draw(_path: Path, arguments: argparse.Namespace) -> None:
    """What drawing the runs takes, which is part of `add` and of `floor`."""
    for _ in imported(arguments):
        pass


def floor(path: Path, arguments: argparse.Namespace) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(
            "CREATE TABLE metrics (run INTEGER NOT NULL, key INTEGER NOT NULL, step INTEGER NOT NULL, value REAL,"
            " PRIMARY KEY (run, key, step)) STRICT, WITHOUT ROWID"
        )
        connection.execute("BEGIN")
        waiting = 0
        for number, run in enumerate(imported(arguments)):
            for key, (steps, values) in enumerate(run.curves.values()):
                rows = zip([number] * len(steps), [key] * len(steps), steps.tolist(), values.tolist(), strict=True)
                connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?)", rows)
                waiting += len(steps)
            if waiting >= TRANSACTION:
                connection.execute("COMMIT")
                connection.execute("BEGIN")
                waiting = 0
        connection.execute("COMMIT")


def apart(function: Callable[..., None], path: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Calls a function in a process of its own: processor seconds, and MB of the largest resident set."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe()
    process = context.Process(target=_measured, args=(function, path, arguments, sender))
    process.start()
    sender.close()
    try:
        found: dict[str, float] = receiver.recv()
    except EOFError:
        sys.exit(f"{function.__name__} failed")
    process.join()
    return found


def _measured(function: Callable[..., None], path: Path, arguments: argparse.Namespace, sender: Any) -> None:
    began = time.process_time()
    function(path, arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sender.send({"seconds": time.process_time() - began, "megabytes": peak})


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--metrics", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = arguments.runs * arguments.steps * arguments.metrics
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        for function in (draw, floor, add):
            path = Path(name) / f"{function.__name__}.db"
            figures[function.__name__] = apart(function, path, arguments)
            figures[function.__name__]["bytes_per_row"] = size(path) / rows
    least = figures["floor"]["seconds"] - figures["draw"]["seconds"]
    figures["add"]["ratio"] = (figures["add"]["seconds"] - figures["draw"]["seconds"]) / least
    if arguments.json:
        print(json.dumps({"rows": rows, **figures}))
        return
    print(f"{rows:,} numbers")
    for name, found in figures.items():
        print(name, " ".join(f"{key} {value:.4g}" for key, value in found.items()))


if __name__ == "__main__":
    main()
