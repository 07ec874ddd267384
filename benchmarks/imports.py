"""Times importing runs of other trackers into a ledger, and what is done with them.

    python benchmarks/imports.py FOLDER [--runs 1000] [--steps 1000] [--metrics 10] [--json]

FOLDER gets the same runs as a Parquet file and as an MLflow store, of which a real MLflow makes the tables, once. Each
command is a whole process: its processor time, which other work on the machine changes less than its duration, and its
largest resident set. Ratios are to `floor`, which inserts the numbers alone into an equal table, row by row.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TRANSACTION = 100_000
"""Rows of a transaction of the floor, about as many as an import has."""


def settings(run: int) -> dict[str, Any]:
    """50 rungs, whose runs differ in the seed."""
    return {"norm": f"norm-{run % 10}", "lr": round(10 ** -(run // 10 % 5 / 2), 4), "seed": run // 50}


def curves(run: int, steps: int, metrics: int) -> dict[str, Any]:
    """Metric -> its values: three of them of the splits, the others of the machine."""
    draw = np.random.default_rng(run)
    names = ["train_loss", "val_acc", "test_acc", *(f"machine_{k}" for k in range(metrics))][:metrics]
    rise = np.linspace(0, 0.3 + 0.05 * (run % 10), steps)
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


# The sources


def write_parquet(path: Path, arguments: argparse.Namespace) -> None:
    """A row for each step of each run, in row groups of a run."""
    import pyarrow
    from pyarrow import parquet

    writer = None
    for run in range(arguments.runs):
        columns = {"run": [f"{run:032x}"] * arguments.steps, "step": np.arange(arguments.steps)}
        columns |= {name: [value] * arguments.steps for name, value in settings(run).items()}
        table = pyarrow.table(columns | curves(run, arguments.steps, arguments.metrics))
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def write_mlflow(path: Path, arguments: argparse.Namespace) -> None:
    """The store that an MLflow of this environment makes, with runs that were inserted by SQL."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    experiment = int(client.create_experiment("mine", artifact_location=str(path.parent)))
    began = 1_700_000_000_000
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        for run in range(arguments.runs):
            name, start = f"{run:032x}", began + 20_000 * run
            fields = {
                "run_uuid": name, "name": f"run-{run}", "status": "FINISHED", "lifecycle_stage": "active",
                "source_type": "LOCAL", "source_name": "", "entry_point_name": "", "source_version": "",
                "user_id": "me", "artifact_uri": "", "experiment_id": experiment,
                "start_time": start, "end_time": start + 10 * arguments.steps,
            }  # fmt: skip
            _insert(connection, "runs", fields)
            for key, value in settings(run).items():
                _insert(connection, "params", {"key": key, "value": str(value), "run_uuid": name})
            names = "key, value, timestamp, run_uuid, step, is_nan"
            of_run = curves(run, arguments.steps, arguments.metrics)
            rows = [  # in the order in which a training logs them
                (key, value, start + 10 * step, name, step, 0)
                for step, values in enumerate(zip(*(values.tolist() for values in of_run.values()), strict=True))
                for key, value in zip(of_run, values, strict=True)
            ]
            connection.executemany(f"INSERT INTO metrics ({names}) VALUES (?, ?, ?, ?, ?, ?)", rows)
            ends = rows[-len(of_run) :]
            connection.executemany(f"INSERT INTO latest_metrics ({names}) VALUES (?, ?, ?, ?, ?, ?)", ends)
        connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, table: str, fields: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(fields))
    connection.execute(f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({marks})", list(fields.values()))


SOURCES = {"runs.parquet": write_parquet, "mlflow.db": write_mlflow}


def make(path: Path, arguments: argparse.Namespace) -> None:
    """Writes a source, unless the environment cannot."""
    partial = path.with_name(f"partial-{path.name}")
    partial.unlink(missing_ok=True)
    try:
        SOURCES[path.name.rpartition("-")[2]](partial, arguments)
    except ModuleNotFoundError as error:
        print(f"{path.name} is left out: {error.name} is not installed", file=sys.stderr)
        return
    partial.rename(path)


def made(folder: Path, arguments: argparse.Namespace) -> list[Path]:
    """The sources, which are made if they are not there, in processes of their own: the memory of this one is counted
    as that of commands."""
    paths = [folder / f"{arguments.runs}-{arguments.steps}-{arguments.metrics}-{name}" for name in SOURCES]
    for path in paths:
        if not path.exists():
            apart(make, path, arguments)
    return [path for path in paths if path.exists()]


# Commands


def once(words: Sequence[str], folder: Path) -> dict[str, float]:
    """What a command takes: processor seconds, seconds, and MB of the largest resident set."""
    environment = os.environ | {"LRURUN_LEDGER": str(folder / "ledger.db")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # the first command compiles, as after an installation
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        command = [sys.executable, "-m", "lrurun", *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - began
        if status:
            errors.seek(0)
            sys.exit(f"{' '.join(command)}: {errors.read().decode()}")
    return {
        "seconds": usage.ru_utime + usage.ru_stime,
        "elapsed": elapsed,
        "megabytes": usage.ru_maxrss / 1024,
    }


HOW = ("--metric", "test_acc", "--by", "norm,lr", "--seed-column", "seed", "--at", "last")


def commands(source: Path) -> dict[str, dict[str, float]]:
    """An import, the same again, and its report; and an import of the scores alone, with its report."""
    figures: dict[str, dict[str, float]] = {}
    name = source.name.rpartition("-")[2]
    for option in ((), ("--scores-only",)):
        title = " ".join([name, *option])
        with tempfile.TemporaryDirectory(dir=source.parent) as folder:
            place = Path(folder)
            figures[f"{title}: import"] = once(["import", str(source), "--name", "bench", *HOW, *option], place)
            figures[f"{title}: again"] = once(["import", "bench.toml", *option], place)
            figures[f"{title}: report"] = once(["report", "bench.toml"], place)
            figures[f"{title}: import"]["bytes"] = size(place / "ledger.db")
    return figures


# Processes


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
    for source in made(arguments.folder, arguments):
        for name, found in commands(source).items():
            figures[name] = found | {"ratio": found["seconds"] / least}
    if arguments.json:
        print(json.dumps({"rows": rows, **figures}))
        return
    print(f"{rows:,} numbers")
    for name, found in figures.items():
        print(name, " ".join(f"{key} {value:.4g}" for key, value in found.items()))


if __name__ == "__main__":
    main()
