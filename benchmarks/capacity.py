"""How many workers one ledger supports: simulated nodes on a PostgreSQL server and on an SQLite file.

    python benchmarks/capacity.py [--workers 50 100 200 400 1000] [--nodes-of 8] [--seconds 10] [--json]

A node is a supervisor with workers. Supervisors are the real ones (`Supervisor`, `LocalExecutor`) without
processes; workers make a worker's calls of the ledger at a worker's times, without jax: hold, description, a write of
rows every FLUSH_SECONDS, a checkpoint every `checkpoint_seconds`, eigenvalues, finish. Runs last `--run-seconds`. A few
processes with a few threads (`--processes`, `--threads`) play all nodes in turn, each thread with one connection.

First all workers take a run at once, as fast as the ledger allows. Then it is measured for `--seconds` how much of the
offered load is done and how long each call takes. In the end every run is finished. Exit code 1 if a run is taken
twice or not done, or if a row is missing. The server is private, started here (Debian: apt-get install postgresql), has
PostgreSQL's defaults, once with fsync and once without, and shares the machine with the clients.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from simulation import METRICS, STEPS, planned, play  # noqa: E402

from lrurun.config.runs import InstanceSpec  # noqa: E402
from lrurun.ledger.database import schema  # noqa: E402
from lrurun.ledger.ledger import Ledger  # noqa: E402
from lrurun.runner.recorder import FLUSH_SECONDS  # noqa: E402
from lrurun.runner.supervisor import UPDATE_SECONDS  # noqa: E402
from tests.harness import servers  # noqa: E402


def measure(text: str, workers: int, options: dict[str, Any], server: servers.PrivateServer | None) -> dict[str, Any]:
    """The load of `workers` workers on an empty ledger."""
    count = workers * (2 + math.ceil(options["seconds"] / options["run_seconds"]))
    with Ledger.open(text) as ledger:
        key = ledger.add_ladder("l", "t", None, InstanceSpec()).key
        ledger.enqueue(key, list(planned(count)))
    size = options["nodes_of"]
    nodes = [(k, min(size, workers - k * size)) for k in range(math.ceil(workers / size))]
    threads = min(options["processes"] * options["threads"], len(nodes))
    shares = [nodes[k::threads] for k in range(threads)]
    processes = min(options["processes"], threads)
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(threads + 1), context.Queue()
    started = [
        context.Process(target=play, args=(text, options, shares[k::processes], barrier, answers))
        for k in range(processes)
    ]
    for process in started:
        process.start()
    times, server_seconds = [], []
    with contextlib.suppress(threading.BrokenBarrierError):
        for _ in range(5):
            barrier.wait(600)
            times.append(time.perf_counter())
            server_seconds.append(_processor_seconds(server))
    found = []
    with contextlib.suppress(queue.Empty):  # a client that failed before its threads began sends nothing
        for _ in started:
            found.append(answers.get(timeout=60))
    for process in started:
        process.join()
    errors = [text for _, errors, _ in found for text in errors if not text.startswith("BrokenBarrierError")]
    if late := sum(text.startswith("Fenced") for text in errors):
        errors = [text for text in errors if not text.startswith("Fenced")]
        errors.append(f"{workers} workers: overloaded, late heartbeats, {late} clients lost a run to others")
    if barrier.broken and not errors:
        errors = ["a client failed"]
    if errors:
        return {"workers": workers, "violations": errors}
    clients = [client for each, _, _ in found for client in each]
    return _summary(workers, len(nodes), threads, times, clients) | {
        "server_processor_seconds": server_seconds[3] - server_seconds[2],
        "client_processor_seconds": sum(seconds for _, _, seconds in found),
        "violations": _violations(text, clients),
    }


def _summary(
    workers: int, nodes: int, threads: int, times: list[float], clients: list[dict[str, Any]]
) -> dict[str, Any]:
    burst = [second for client in clients for second in client["burst"].get("hold", [])]
    calls: dict[str, list[float]] = defaultdict(list)
    for client in clients:
        for name, seconds in client["calls"].items():
            calls[name] += seconds
    lasted = times[3] - times[2]
    return {
        "workers": workers,
        "nodes": nodes,
        "connections": threads,
        "runs": sum(len(worker) for client in clients for worker in client["held"]),
        "rows": sum(rows for client in clients for worker in client["held"] for _, rows in worker),
        "seconds": lasted,
        "claims_at_once": {"per_second": len(burst) / (times[1] - times[0]), **_latency(burst)},
        "ends_at_once_per_second": workers / (times[4] - times[3]),
        "offered": {"record": workers / FLUSH_SECONDS, "tick": nodes / UPDATE_SECONDS},
        "rows_per_second": STEPS * len(METRICS) * len(calls["record"]) / lasted,
        "transactions_per_second": sum(client["transactions"] for client in clients) / lasted,
        "transactions": sum(client["transactions"] for client in clients),
        "heartbeats_per_second": sum(client["heartbeats"] for client in clients) / lasted,
        "calls": {name: {"per_second": len(each) / lasted, **_latency(each)} for name, each in sorted(calls.items())},
    }


def _latency(seconds: list[float]) -> dict[str, float]:
    """Milliseconds of calls."""
    ordered = sorted(seconds) or [math.nan]
    found = (statistics.median(ordered), ordered[math.ceil(0.99 * len(ordered)) - 1], ordered[-1])
    return {name: 1e3 * value for name, value in zip(("median", "p99", "worst"), found, strict=True)}


def _processor_seconds(server: servers.PrivateServer | None) -> float:
    """Of all processes of a server, ended ones too."""
    if server is None:
        return 0.0
    total = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(entry.parent.name) == server.pid:
                total += sum(map(int, fields[11:15]))  # user and system time, its own and of ended children
            elif int(fields[1]) == server.pid:
                total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def _violations(text: str, clients: list[dict[str, Any]]) -> list[str]:
    """Runs that were held twice or not finished, and rows that are missing."""
    held = [(name, rows) for client in clients for worker in client["held"] for name, rows in worker]
    expected = dict(held)
    wrong = [] if len(expected) == len(held) else [f"{len(held) - len(expected)} runs were held twice"]
    with Ledger.open(text) as ledger:
        table = schema.runs.c
        rows = select(table.id, func.count()).join(schema.metrics, schema.metrics.c.run == table.number)
        with ledger._reading() as connection:
            written = {row[0]: row[1] for row in connection.execute(rows.group_by(table.id))}
        done = {run.id for run in ledger.runs(states=["done"], brief=True)}
        attempts = ledger.newest_attempts(done)
    wrong += [f"{name}: held, but not done" for name in sorted(expected.keys() - done)]
    wrong += [f"{name}: done, but not held" for name in sorted(done - expected.keys())]
    wrong += [f"{name}: attempt {one.n}" for name, one in attempts.items() if one.n != 1]
    wrong += [f"{k}: {written.get(k, 0)} of {n} rows" for k, n in expected.items() if written.get(k, 0) != n]
    return wrong if expected else ["no run was held"]


def capacity(
    workers: list[int], options: dict[str, Any], ledgers: list[str], say: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """Ledger -> what was measured for each number of workers."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ledgers:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="capacity-")))
            server = None
            if name != "sqlite":
                server = stack.enter_context(servers.running())
                for setting in ("fsync", "full_page_writes"):
                    server.admin(f"ALTER SYSTEM SET {setting} = {'off' if name.endswith('no-fsync') else 'on'}")
                server.admin("ALTER SYSTEM SET shared_buffers = '128MB'")
                server.restart()
            for many in workers:
                text = str(folder / f"{many}.db") if server is None else server.empty().text
                found.setdefault(name, []).append(measure(text, many, options, server))
                say(f"{name}: {json.dumps(found[name][-1])}")
    return found


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """The results in Markdown."""
    head = ["ledger", "workers", "claims/s at once", "writes/s of offered", "rows/s", "transactions/s"]
    head += ["ticks/s of offered", "heartbeats/s", "write: median, p99, worst, ms", "ms of server, of clients"]
    lines = [head, ["---"] * len(head)]
    for name, levels in found.items():
        for one in levels:
            if "calls" not in one:
                continue
            record, tick = (one["calls"].get(call, {"per_second": 0.0, **_latency([])}) for call in ("record", "tick"))
            per = 1e3 / max(1, one["transactions"])
            cells = [name, f"{one['workers']:,}", f"{one['claims_at_once']['per_second']:,.0f}"]
            cells.append(f"{record['per_second']:,.0f} of {one['offered']['record']:,.0f}")
            cells += [f"{one['rows_per_second']:,.0f}", f"{one['transactions_per_second']:,.0f}"]
            cells.append(f"{tick['per_second']:,.0f} of {one['offered']['tick']:,.0f}")
            cells.append(f"{one['heartbeats_per_second']:,.0f}")
            cells.append(f"{record['median']:,.1f}, {record['p99']:,.0f}, {record['worst']:,.0f}")
            cells.append(f"{per * one['server_processor_seconds']:.2f}, {per * one['client_processor_seconds']:.2f}")
            lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[50, 100, 200, 400, 1000])
    parser.add_argument("--nodes-of", type=int, default=8, help="workers of a node")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--run-seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--threads", type=int, default=4, help="threads of a process; at most 50 in all")
    names = ["postgresql", "postgresql-no-fsync", "sqlite"]
    parser.add_argument("--ledgers", nargs="+", choices=names, default=names)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    options = {"nodes_of": given.nodes_of, "seconds": given.seconds, "run_seconds": given.run_seconds}
    options |= {"processes": given.processes, "threads": given.threads}
    found = capacity(given.workers, options, given.ledgers, lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps({"schema_version": 1, **options, "ledgers": found}, indent=2) if given.json else table(found))
    wrong = [text for levels in found.values() for one in levels for text in one["violations"]]
    for text in wrong[:20]:
        print(f"violation: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
