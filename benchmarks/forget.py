"""Fills a ledger and its runs folder, and times `lrurun ledger forget` of all or of a part of them.

    python benchmarks/forget.py FOLDER [--runs 10000] [--rows 100] [--others 0] [--files 12] [--json]

Each run has metric rows and a folder with its record, a log and a checkpoint of some files, as Orbax writes them. The
command is a whole process, with compiled bytecode; the disk's cache is warm. `--others` is how many runs stay. Each
call makes everything again in FOLDER.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lrurun

sys.path.insert(0, str(Path(__file__).parent))
from ledger import train

CHECKPOINT_BYTES = 20_000
"""The bytes of the files of a checkpoint, together."""


def fill(folder: Path, count: int, rows: int, others: int) -> list[str]:
    """A ledger with `count` runs of one instance, and `others` of another. Returns the ids of the first."""
    import contextlib
    import sqlite3

    from lrurun.config import planning
    from lrurun.config.planning import final_runs
    from lrurun.ledger.ledger import Ledger

    ids: list[str] = []
    with Ledger.open(folder / "ledger.db") as ledger:
        for task, runs in (("sDigits", count), ("ListOps", others)):
            if not runs:
                continue
            plan = planning.make(task)
            instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, task)
            of_a_seed = len({w.fingerprint for rung in plan.rungs for w in final_runs(plan, rung, [0])})
            wanted = [w for rung in plan.rungs for w in final_runs(plan, rung, range(-(-runs // of_a_seed)))]
            queued = ledger.enqueue(instance.key, wanted)
            ids = ids or [run.id for run in queued]
    with contextlib.closing(sqlite3.connect(folder / "ledger.db")) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        train(connection, rows)
        connection.commit()
    return ids


def write_files(runs: Path, ids: list[str], count: int) -> int:
    """The folders of runs, each with `count` files; returns how many files there are."""
    for run in ids:
        attempt = runs / run / "1"
        checkpoint = attempt / "checkpoints" / "2000"
        (checkpoint / "d").mkdir(parents=True)
        (runs / run / "run.json").write_bytes(b"{}" * 500)
        (attempt / "log.txt").write_bytes(b"a line of a log\n" * 50)
        for number in range(count - 2):
            inside = checkpoint / "d" if number % 2 else checkpoint
            (inside / f"part-{number}").write_bytes(b"0" * (CHECKPOINT_BYTES // (count - 2)))
    return len(ids) * count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=100, help="metric rows of a run")
    parser.add_argument("--others", type=int, default=0, help="runs that stay")
    parser.add_argument("--files", type=int, default=12, help="files in the folder of a run")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    compileall.compile_dir(Path(lrurun.__file__).parent, quiet=2)
    ids = fill(options.folder, options.runs, options.rows, options.others)
    files = write_files(options.folder / "runs", ids, options.files)
    ledger = options.folder / "ledger.db"
    before = ledger.stat().st_size
    profiled = ["-m", "cProfile", "-s", "cumulative"] if options.profile else []
    command = [sys.executable, *profiled, "-m", "lrurun", "--ledger", str(ledger)]
    began = time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, "ledger", "forget", "sDigits", "--why", "a benchmark", "--yes"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "LRURUN_RUNS": str(options.folder / "runs")},
    )
    seconds = time.perf_counter() - began
    total = resource.getrusage(resource.RUSAGE_CHILDREN)
    if options.profile:
        print(done.stdout[:8000])
    if done.returncode:
        sys.exit(f"exit code {done.returncode}")
    found: dict[str, Any] = {
        "runs": len(ids),
        "others": options.others,
        "files": files,
        "seconds": round(seconds, 2),
        "seconds_of_processor": round(total.ru_utime + total.ru_stime - used.ru_utime - used.ru_stime, 2),
        "ledger_mb_before": round(before / 1e6, 1),
        "ledger_mb_after": round(ledger.stat().st_size / 1e6, 1),
        "folders_left": sum(1 for _ in (options.folder / "runs").iterdir()),
    }
    print(json.dumps(found) if options.json else "\n".join(f"{name}: {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
