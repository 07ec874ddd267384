"""Fills ledgers with finished runs and 10 million metric rows, and times the commands that read them.

    python benchmarks/ledger.py FOLDER [--runs 10000 100000] [--rows ROWS] [--rounds 5] [--json]

A ledger for each number of runs is kept in FOLDER and filled once. Every command reads each of them in turn, so that
their times are comparable on a machine with other work. Commands are whole processes, with compiled bytecode; their
memory is the largest resident set of the process. The ladder of sDigits has 2,000 runs however many there are in all.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import multiprocessing
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lrurun

TASKS = ("sDigits", "sCIFAR", "ListOps", "Text", "Pathfinder")
KEYS = ("train/loss", "train/accuracy", "val/loss", "val/accuracy", "machine/steps_per_second")
ROWS = 10_000_000
REPORTED = 2000
"""Runs of the first task, whose report is timed."""

COMMANDS = (
    ["--help"],
    ["runs"],
    ["runs", "--limit", "20"],
    ["runs", "--where", "test/accuracy>0.9", "--sort", "-test/accuracy", "--limit", "20"],
    ["runs", "--where", "optim.lr<=0.01 and rung=gamma-norm", "--sort", "seed", "--limit", "20"],
    ["runs", "--json"],
    ["status"],
    ["show", "RUN"],
    ["show", "RUN", "--json"],
    ["report", "sDigits"],
    ["report", "sDigits", "--json"],
    ["report", "sDigits", "--speed"],
    ["query", "select rung, avg(test_accuracy) from results group by rung"],
    ["query", "select task, optim_lr, avg(test_loss) from results group by task, optim_lr"],
)
COMPLETED = ("lrurun --ledger LEDGER show RU", "lrurun --ledger LEDGER report s")


def fill(path: Path, count: int, rows: int) -> None:
    """A ledger of about `count` finished runs of `rows` metric rows each: five tasks, eight rungs, many seeds.

    Ladders, runs and memberships are made by the ledger itself, what training would have added by plain SQL.
    """
    from lrurun.config import planning
    from lrurun.config.planning import final_runs
    from lrurun.ledger.ledger import Ledger

    reported = min(count, REPORTED)
    others = -(-(count - reported) // (len(TASKS) - 1))
    with Ledger.open(path) as ledger:
        for task in TASKS:
            plan = planning.make(task)
            instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
            # Rungs with equal settings share their runs.
            of_a_seed = len({w.fingerprint for rung in plan.rungs for w in final_runs(plan, rung, [0])})
            seeds = -(-(reported if task == TASKS[0] else others) // of_a_seed)
            wanted = [w for rung in plan.rungs for w in final_runs(plan, rung, range(seeds))]
            ledger.enqueue(instance.key, wanted)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        train(connection, rows)
        connection.commit()


def train(connection: sqlite3.Connection, rows: int) -> None:
    """Everything that training would have written."""
    from lrurun.ledger import owner
    from lrurun.ledger.rows import Document

    draw, me, now = random.Random(0), owner.this_process(), time.time()
    connection.executemany("INSERT OR IGNORE INTO metric_keys (name) VALUES (?)", [(key,) for key in KEYS])
    numbers = dict(connection.execute("SELECT name, id FROM metric_keys"))
    of_attempt: dict[str, Any] = {"device": "cpu", "threads": 1, "machine": {"cpu": "a processor"}}
    of_attempt |= {"code": {"lrurun": "0"}, "data": {"source": "nowhere", "kind": "generated", "baselines": {}}}
    document = Document.pack(of_attempt)
    environment = connection.execute(
        "INSERT INTO documents (sha256, text) VALUES (?, ?)", (document.sha256, document.text)
    ).lastrowid
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
        newest = {key: value for _, key, _, value in measured}
        connection.execute(
            "INSERT INTO stored_attempts "
            "VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'done', 'done', 0, 1, ?, 'lrurun 0', 'me')",
            (number, me.host, me.boot, me.namespace, 1, 0.0, now, now, now, now, environment),
        )
        connection.execute(
            "INSERT INTO events (run, attempt, time, kind, text) VALUES (?, 1, ?, 'done', 'done')", (number, now)
        )
        result = {"best_step": steps, "val/accuracy": score, "test/accuracy": score - 0.01, "test/loss": 0.1}
        result[KEYS[-1]] = draw.uniform(90, 110)
        connection.execute(
            "UPDATE stored_runs SET state = 'done', attempt = 1, step = steps, parameters = 7893770, result = ?, "
            "last_loss = ?, last_score = ?, last_speed = ?, val_accuracy = ?, test_accuracy = ?, steps_per_second = ?, "
            "data_sha256 = 'sha256:0', finished_at = ? WHERE number = ?",
            (
                json.dumps(result),
                *(newest[numbers[key]] for key in ("train/loss", "val/accuracy", KEYS[-1])),
                *(result[key] for key in ("val/accuracy", "test/accuracy", KEYS[-1])),
                now,
                number,
            ),
        )


def apart(function: Any, *arguments: Any) -> None:
    """Call a function in another process: commands would count the memory of this one as theirs."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{function.__name__} failed")


def once(command: list[str], env: dict[str, str]) -> tuple[float, int]:
    """Wall-clock seconds of a command, and the bytes of its largest resident set."""
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{errors.read().decode()}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(name: str, commands: Sequence[list[str]], rounds: int, completing: Sequence[str] = ()) -> list[Any]:
    """Times and memory of a command on each ledger, or of the shell completion of the lines `completing`."""
    environments = [dict(os.environ) for _ in commands]
    for environment, line in zip(environments, completing, strict=False):
        cursor = str(len(line.split(" ")) - 1)
        environment |= {"_LRURUN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": cursor}
    pairs = list(zip(commands, environments, strict=True))
    for command, environment in pairs:
        once(command, environment)  # fills caches
    found = [[once(command, environment) for command, environment in pairs] for _ in range(rounds)]
    return [
        {
            "command": name,
            "median_s": statistics.median(seconds for seconds, _ in of_one),
            "min_s": min(of_one)[0],
            "max_s": max(of_one)[0],
            "memory_bytes": max(memory for _, memory in of_one),
        }
        for of_one in zip(*found, strict=True)
    ]


def content(path: Path) -> dict[str, Any]:
    """How much a ledger holds, and a run of it."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        runs, rows = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("runs", "metrics")
        )
        run = connection.execute("SELECT id FROM runs ORDER BY number DESC").fetchone()[0]
    return {"runs": runs, "rows": rows, "bytes": path.stat().st_size, "run": run}


def measured(paths: Sequence[Path], rounds: int) -> list[dict[str, Any]]:
    """The content of each ledger with the times of the commands that read it."""
    ledgers = [content(path) | {"commands": []} for path in paths]
    starts = [[sys.executable, "-m", "lrurun", "--ledger", str(path)] for path in paths]
    found = []
    for arguments in COMMANDS:
        commands = [
            [*start, *(one["run"] if argument == "RUN" else argument for argument in arguments)]
            for start, one in zip(starts, ledgers, strict=True)
        ]
        found.append(measure(" ".join(arguments), commands, rounds))
    program = [str(Path(sys.executable).with_name("lrurun"))]
    for shown in COMPLETED:
        lines = [
            shown.replace("LEDGER", str(path)).replace("RU", one["run"][:2])
            for path, one in zip(paths, ledgers, strict=True)
        ]
        name = f"completing: {shown.replace(' --ledger LEDGER', '')}"
        found.append(measure(name, [program] * len(paths), rounds, lines))
    for of_command in found:
        for one, times in zip(ledgers, of_command, strict=True):
            one["commands"].append(times)
    return ledgers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, nargs="+", default=[10_000])
    parser.add_argument("--rows", type=int, help="metric rows of each run [10 million in all]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(lrurun.__file__).parent, quiet=1)
    options.folder.mkdir(parents=True, exist_ok=True)
    paths = [options.folder.absolute() / f"{count}.db" for count in options.runs]
    for path, count in zip(paths, options.runs, strict=True):
        if not path.exists():
            apart(fill, path, count, options.rows or ROWS // count)
    found: dict[str, Any] = {"ledgers": measured(paths, options.rounds)}
    print(json.dumps(found, indent=1) if options.json else as_text(found))


def as_text(found: dict[str, Any]) -> str:
    """The figures as a table: a line for each command, with median, range and memory on each ledger."""
    ledgers = found["ledgers"]
    lines = [f"{one['runs']:,} runs, {one['rows']:,} metric rows, {one['bytes'] / 1e6:.0f} MB" for one in ledgers]
    for times in zip(*(one["commands"] for one in ledgers), strict=True):
        cells = [
            f"{one['median_s']:6.2f} s ({one['min_s']:.2f} to {one['max_s']:.2f}) {one['memory_bytes'] / 1e6:4.0f} MB"
            for one in times
        ]
        lines.append(f"{times[0]['command']:70} {'  '.join(cells)}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
