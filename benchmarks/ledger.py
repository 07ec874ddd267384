"""Fills a ledger with 10,000 runs and 10 million metric rows, and times the commands that read it.

    python benchmarks/ledger.py FOLDER [--runs 10000] [--rows 1000] [--rounds 5]

The ledger stays in FOLDER, and is filled once. Commands are whole processes, with compiled bytecode.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

import lrurun
from lrurun import plan as planning
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger

TASKS = ("sDigits", "sCIFAR", "ListOps", "Text", "Pathfinder")
KEYS = ("train/loss", "train/accuracy", "val/loss", "val/accuracy", "machine/steps_per_second")


def fill(path: Path, count: int, rows: int) -> None:
    """A ledger of `count` finished runs of `rows` metric rows each: five tasks, eight rungs, as many seeds as it takes.

    Ladders, runs and memberships are made by the ledger itself, what training would have added by plain SQL.
    """
    draw = random.Random(0)
    seeds = -(-count // (8 * len(TASKS)))
    with Ledger.open(path) as ledger:
        for task in TASKS:
            plan = planning.make(task)
            instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
            wanted = [w for rung in plan.rungs for w in planning.wanted_final(plan, rung, range(seeds))]
            ledger.enqueue(instance.key, wanted)
    me = owner.here()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    connection.executemany("INSERT OR IGNORE INTO metric_keys (name) VALUES (?)", [(key,) for key in KEYS])
    numbers = dict(connection.execute("SELECT name, id FROM metric_keys"))
    of_attempt = {"device": "cpu", "threads": 1, "machine": {"cpu": "a processor"}, "code": {"lrurun": "0"}}
    of_attempt["data"] = {"source": "nowhere", "kind": "generated", "baselines": {}}
    environment = json.dumps(of_attempt)
    now = time.time()
    curves = {"train/loss": 0.45, "train/accuracy": 0.45, "val/loss": 0.04, "val/accuracy": 0.04}
    for number, steps in connection.execute("SELECT number, steps FROM runs ORDER BY number").fetchall():
        score = draw.uniform(0.3, 0.99)
        measured = []
        for key, share in curves.items():
            many = max(1, round(rows * share))
            measured += [
                (number, numbers[key], max(1, steps * (k + 1) // many), draw.random() if "loss" in key else score)
                for k in range(many)
            ]
        speeds = max(1, rows // 50)
        measured += [
            (number, numbers[KEYS[-1]], max(1, steps * (k + 1) // speeds), draw.uniform(90, 110)) for k in range(speeds)
        ]
        connection.executemany("INSERT OR REPLACE INTO metrics VALUES (?, ?, ?, ?)", measured)
        connection.execute(
            "INSERT INTO attempts VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'done', 0, ?, 'lrurun 0')",
            (number, me.host, me.boot, me.namespace, 1, 0.0, now, now, now, now, environment),
        )
        connection.execute(
            "INSERT INTO events (run, attempt, time, kind, text) VALUES (?, 1, ?, 'done', 'done')", (number, now)
        )
        result = {"best_step": steps, "val/accuracy": score, "test/accuracy": score - 0.01, "test/loss": 0.1}
        result[KEYS[-1]] = draw.uniform(90, 110)
        connection.execute(
            "UPDATE runs SET state = 'done', attempt = 1, step = steps, parameters = 7893770, result = ?, "
            "data_sha256 = 'sha256:0', finished_at = ? WHERE number = ?",
            (json.dumps(result), now, number),
        )
    connection.commit()
    connection.close()


def seconds(command: list[str], rounds: int, completing: str = "") -> list[float]:
    """Wall clock of the whole command, or of the shell's question how the words of `completing` go on; rising."""
    question = {"_LRURUN_COMPLETE": "complete_bash", "COMP_WORDS": completing}
    question["COMP_CWORD"] = str(len(completing.split(" ")) - 1)
    env = {**os.environ, **(question if completing else {})}
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=False, env=env)
        times.append(time.perf_counter() - began)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr.decode()}")
    return sorted(times[1:])  # the first one fills caches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(lrurun.__file__).parent, quiet=1)
    asked.folder.mkdir(parents=True, exist_ok=True)
    path = asked.folder / "ledger.db"
    if not path.exists():
        began = time.perf_counter()
        fill(path, asked.runs, asked.rows)
        print(f"filled in {time.perf_counter() - began:.0f} s")
    with sqlite3.connect(path) as connection:
        runs, rows = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("runs", "metrics")
        )
        run = connection.execute("SELECT id FROM runs ORDER BY number DESC").fetchone()[0]
    print(f"{runs:,} runs, {rows:,} metric rows, {path.stat().st_size / 1e6:.0f} MB")
    lrurun_ = [sys.executable, "-m", "lrurun", "--ledger", str(path)]
    for words in (
        ["--help"],
        ["runs"],
        ["runs", "--limit", "20"],
        ["runs", "--json"],
        ["status"],
        ["show", run],
        ["show", run, "--json"],
        ["report", "sDigits"],
        ["report", "sDigits", "--json"],
        ["report", "sCIFAR", "--speed"],
    ):
        times = seconds([*lrurun_, *words], asked.rounds)
        print(f"lrurun {' '.join(words):24} {statistics.median(times):6.2f} s  ({times[0]:.2f} to {times[-1]:.2f})")
    for words in (f"lrurun --ledger {path} show {run[:2]}", f"lrurun --ledger {path} report s"):
        times = seconds([str(Path(sys.executable).with_name("lrurun"))], asked.rounds, words)
        shown = words.replace(f" --ledger {path}", "")
        print(f"completing: {shown:19} {statistics.median(times):6.2f} s  ({times[0]:.2f} to {times[-1]:.2f})")


if __name__ == "__main__":
    main()
