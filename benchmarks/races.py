"""Many processes on one SQLite file: lrurun's ledger, compared with MLflow and Optuna.

    python benchmarks/races.py [--other PYTHON] [--processes 64] [--jobs 1000] [--transactions 100000] [--json]

Three races, each of processes that start at the same moment after their imports:

- first use: they open one file that does not exist yet; three times. lrurun by `lrurun ledger migrate`, whole commands.
- queue: eight take jobs from a queue until it is empty. A job that two processes get is a duplicate.
- mixed: eight do what training and watching do: of ten transactions six write a metric, one takes or ends a run,
  one notes an event, two read. Errors are counted; those that say "locked" are what a user would see.

PYTHON is the interpreter of an environment with mlflow and optuna; without it only the ledger is measured. They get
smaller counts, shown in the table, so that everything ends within minutes. Exit code 1 if anything of lrurun fails, is
done twice, or is locked out.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import trackers  # noqa: E402

EIGHT = 8
OTHERS_PROCESSES, OTHERS_JOBS, OTHERS_TRANSACTIONS = 12, 100, 1000
"""Upper limits for MLflow and Optuna."""

COMMON = """
import json, sys, time

def start_together():
    print("ready", flush=True)
    sys.stdin.readline()

def mixed(path, count, make):
    steps, errors, locked, worst = make(path), [], 0, 0.0
    start_together()
    began = time.perf_counter()
    for k in range(count):
        before = time.perf_counter()
        try:
            steps[k % 10](k)
        except Exception as error:
            errors.append(type(error).__name__)
            locked += "locked" in str(error) or "busy" in str(error)
        worst = max(worst, time.perf_counter() - before)
    return json.dumps([time.perf_counter() - began, errors, locked, worst])
"""

LRURUN = (
    trackers.LRURUN
    + COMMON
    + """
import os, hashlib

def prepare(path, jobs):
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("l", "t", None, InstanceSpec()).key
        ledger.enqueue(key, [want(hashlib.sha256(str(k).encode()).hexdigest()) for k in range(jobs)])
    return key

def queue(path):
    ledger = Ledger.open(path)
    (ladder,) = ledger.ladders()
    start_together()
    began, got = time.perf_counter(), []
    while (held := ledger.hold(ladder.key, owner.this_process(), environment={})) is not None:
        got.append(held.run.id)
        ledger.finish(held, "done", result={}, reason="done")
    return json.dumps([time.perf_counter() - began, got])

def make(path):
    ledger = Ledger.open(path)
    (ladder,) = ledger.ladders()
    held_runs = []

    def turn(k):
        if held_runs:
            held = held_runs.pop()
            ledger.finish(held, "interrupted", reason="interrupted: its turn is over")
            ledger.requeue([held.run.id])
        else:
            held_runs.append(ledger.hold(ladder.key, owner.this_process(), environment={}))

    def metric(k):
        if held_runs:
            ledger.record(held_runs[0], [(k, "train/loss", 0.5)], k)
        else:
            ledger.event("waits", str(k))

    watch = lambda k: ledger.state_summaries(ladder.key)
    return [turn, metric, metric, metric, watch, metric, metric, metric,
            lambda k: ledger.event("note", str(k)), lambda k: ledger.runs(ladder.key, limit=20, brief=True)]
"""
)

MLFLOW = (
    trackers.MLFLOW
    + COMMON
    + """
queue = None  # it has none

def prepare(path, jobs):
    begin(path)

def make(path):
    client = MlflowClient(tracking_uri=f"sqlite:///{path}")
    run = [client.create_run("0").info.run_id]

    def turn(k):
        client.set_terminated(run[0])
        run[0] = client.create_run("0").info.run_id

    metric = lambda k: client.log_metric(run[0], "loss", 0.5, step=k)
    return [turn, metric, metric, metric, lambda k: client.get_run(run[0]), metric, metric, metric,
            lambda k: client.set_tag(run[0], "note", str(k)), lambda k: client.search_runs(["0"], max_results=20)]
"""
)

OPTUNA = (
    trackers.OPTUNA
    + COMMON
    + """
def study_of(path):
    return optuna.create_study(storage=f"sqlite:///{path}", study_name="s", load_if_exists=True)

def prepare(path, jobs):
    study = study_of(path)
    for k in range(jobs):
        study.enqueue_trial({"job": k})

def queue(path):
    study = study_of(path)
    start_together()
    began, got = time.perf_counter(), []
    while True:
        trial = study.ask()
        wanted = study._storage.get_trial(trial._trial_id).system_attrs.get("fixed_params")
        if wanted is None:  # the queue is empty: this one is new
            return json.dumps([time.perf_counter() - began, got])
        got.append(wanted["job"])
        try:
            trial.suggest_int("job", 0, 10**6)
            study.tell(trial, 0.0)
        except Exception:
            pass  # another process, which has it too, was first

def make(path):
    study = study_of(path)
    trial = [study.ask()]

    def turn(k):
        study.tell(trial[0], 0.5)
        trial[0] = study.ask()

    metric = lambda k: trial[0].report(0.5, k)
    return [turn, metric, metric, metric, lambda k: study._storage.get_trial(trial[0]._trial_id), metric, metric,
            metric, lambda k: trial[0].set_user_attr("note", str(k)), lambda k: study.get_trials(deepcopy=False)[-20:]]
"""
)


def together(tracker: trackers.Tracker, call: str, arguments: list[list[object]]) -> tuple[list[str], int]:
    """The last lines of processes that start together, and how many of them failed."""
    started = [
        subprocess.Popen(
            [tracker.python, "-c", f"{tracker.program}\nprint({call})", *map(str, one)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for one in arguments
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()  # ready, or exited already
    ends = []
    for process in started:
        assert process.stdin is not None
        try:
            process.stdin.write("go\n")
            process.stdin.flush()
        except BrokenPipeError:
            continue
    for process in started:
        ends.append((process.communicate()[0].strip(), process.returncode))
    return [out.splitlines()[-1] for out, code in ends if code == 0], sum(code != 0 for _, code in ends)


def first_use(tracker: trackers.Tracker, path: Path, processes: int) -> dict[str, Any]:
    began = time.perf_counter()
    if tracker.name == "lrurun":
        command = [tracker.python, "-m", "lrurun", "--ledger", str(path), "ledger", "migrate"]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
            for _ in range(processes)
        ]
        failed = sum(process.wait() != 0 for process in started)
    else:
        _, failed = together(tracker, "start_together() or first(sys.argv[1])", [[path]] * processes)
    seconds = time.perf_counter() - began
    with sqlite3.connect(path) as connection:
        whole = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    return {"processes": processes, "failed": failed, "seconds": seconds, "integrity": whole}


def queued(tracker: trackers.Tracker, path: Path, jobs: int) -> dict[str, Any] | None:
    if "queue = None" in tracker.program:
        return None
    tracker.run("prepare(sys.argv[1], int(sys.argv[2]))", path, jobs)
    said, failed = together(tracker, "queue(sys.argv[1])", [[path]] * EIGHT)
    found = [json.loads(text) for text in said]
    got = [job for _, mine in found for job in mine]
    return {
        "processes": EIGHT,
        "jobs": jobs,
        "failed": failed,
        "duplicates": len(got) - len(set(got)),
        "missing": jobs - len(set(got)),
        "seconds": max((seconds for seconds, _ in found), default=0.0),
    }


def mixed(tracker: trackers.Tracker, path: Path, transactions: int) -> dict[str, Any]:
    # a ledger's 16 runs are held in turn; Optuna makes a new trial whenever its queue is empty
    tracker.run("prepare(sys.argv[1], int(sys.argv[2]))", path, 2 * EIGHT if tracker.name == "lrurun" else 0)
    call = "mixed(sys.argv[1], int(sys.argv[2]), make)"
    said, failed = together(tracker, call, [[path, transactions // EIGHT]] * EIGHT)
    found = [json.loads(text) for text in said]
    seconds = max((row[0] for row in found), default=0.0)
    return {
        "processes": EIGHT,
        "transactions": transactions // EIGHT * EIGHT,
        "failed": failed,
        "errors": sum(len(row[1]) for row in found),
        "kinds": sorted({kind for row in found for kind in row[1]}),
        "locked": sum(row[2] for row in found),
        "slowest": max((row[3] for row in found), default=0.0),
        "seconds": seconds,
        "per_second": transactions / seconds if seconds else 0.0,
    }


def races(
    chosen: list[trackers.Tracker], folder: Path, processes: int, jobs: int, transactions: int
) -> dict[str, dict[str, Any]]:
    """Tracker -> the result of each race."""
    found: dict[str, dict[str, Any]] = {}
    for tracker in chosen:
        ours = tracker.name == "lrurun"
        many = processes if ours else min(processes, OTHERS_PROCESSES)
        found[tracker.name] = {
            "first_use": [first_use(tracker, folder / f"{tracker.name}-first-{k}.db", many) for k in range(3)],
            "queue": queued(tracker, folder / f"{tracker.name}-queue.db", jobs if ours else min(jobs, OTHERS_JOBS)),
            "mixed": mixed(
                tracker,
                folder / f"{tracker.name}-mixed.db",
                transactions if ours else min(transactions, OTHERS_TRANSACTIONS),
            ),
        }
        print(f"{tracker.name}: {json.dumps(found[tracker.name])}", file=sys.stderr, flush=True)
    return found


def violations(found: dict[str, Any]) -> list[str]:
    """Results of lrurun that are wrong."""
    wrong = [f"first use: {one}" for one in found["first_use"] if one["failed"] or one["integrity"] != "ok"]
    if any(found["queue"][what] for what in ("failed", "duplicates", "missing")):
        wrong.append(f"queue: {found['queue']}")
    if any(found["mixed"][what] for what in ("failed", "errors", "locked")):
        wrong.append(f"mixed: {found['mixed']}")
    return wrong


def table(found: dict[str, dict[str, Any]]) -> str:
    """The results in Markdown."""
    rows: dict[str, list[str]] = {}
    for one in found.values():
        first = one["first_use"]
        failed = ", ".join(str(each["failed"]) for each in first)
        seconds = ", ".join(f"{each['seconds']:.1f}" for each in first)
        rows.setdefault("first use three times: failed of processes at once", []).append(
            f"{failed} of {first[0]['processes']} ({seconds} s)"
        )
        queue = one["queue"]
        rows.setdefault("queue: jobs done twice by 8 processes", []).append(
            "no queue" if queue is None else f"{queue['duplicates']} of {queue['jobs']} ({queue['seconds']:.1f} s)"
        )
        rows.setdefault("queue: jobs that no process got, processes that failed", []).append(
            "no queue" if queue is None else f"{queue['missing']}, {queue['failed']}"
        )
        mix = one["mixed"]
        rows.setdefault("mixed transactions of 8 processes: locked, other errors", []).append(
            f"{mix['locked']}, {mix['errors'] - mix['locked'] + mix['failed']} of {mix['transactions']:,}"
        )
        rows.setdefault("mixed: transactions/s, the slowest in s", []).append(
            f"{mix['per_second']:,.0f}, {mix['slowest']:.2f}"
        )
    lines = [["what", *found], ["---"] * (len(found) + 1), *([what, *cells] for what, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", help="the interpreter of an environment with mlflow and optuna")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = str(ROOT)
    chosen = [trackers.Tracker("lrurun", sys.executable, LRURUN)]
    if options.other:
        chosen += [
            trackers.Tracker("mlflow", options.other, MLFLOW),
            trackers.Tracker("optuna", options.other, OPTUNA),
        ]
    with tempfile.TemporaryDirectory(prefix="races-") as folder:
        found = races(chosen, Path(folder), options.processes, options.jobs, options.transactions)
    wrong = violations(found["lrurun"])
    print(json.dumps({"schema_version": 1, **found, "violations": wrong}, indent=2) if options.json else table(found))
    for text in wrong:
        print(f"violation: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
