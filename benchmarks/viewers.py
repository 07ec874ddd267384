"""The longest wait of a writer for a lock, with and without viewers of `lrurun ui` beside it.

    python benchmarks/viewers.py FOLDER [--viewers 20] [--seconds 20] [--json]

A writer records metric rows of a run in a ledger of its own, as a worker does: a transaction every 20 ms. Viewers are
clients without a browser: each holds a stream of events, and fetches a page and its curves whenever something changed,
as pages do. The wait is that for `BEGIN IMMEDIATE`, where SQLite makes a writer wait. It is 0 where the first try finds
no lock, however busy the processor is.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "viewers.db"
    found = {"alone": write(path, given.seconds)}
    command = [sys.executable, "-m", "lrurun", "--ledger", str(path), "ui", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        link = server.stdout.readline().strip()
        fetched: list[int] = []
        viewers = [
            threading.Thread(target=view, args=(link, number, fetched), daemon=True) for number in range(given.viewers)
        ]
        for viewer in viewers:
            viewer.start()
        time.sleep(2)
        found["beside viewers"] = write(path, given.seconds)
        server.terminate()
    print(json.dumps(found | {"viewers": given.viewers, "pages": len(fetched)}, indent=None if given.json else 2))


def write(path: Path, seconds: float) -> dict[str, float]:
    """Record rows for some seconds; how long the transactions waited for the lock, in milliseconds."""
    from lrurun.config import planning
    from lrurun.config.planning import final_runs
    from lrurun.ledger import owner
    from lrurun.ledger.ledger import Ledger

    plan = planning.make("sDigits")
    with Ledger.open(path) as ledger:
        instance = ledger.add_ladder("lru", "sDigits", None, plan.spec)
        ledger.enqueue(instance.key, [run for rung in plan.rungs for run in final_runs(plan, rung, range(40))])
        held = ledger.hold(instance.key, owner.this_process())
        assert held is not None
        waits: list[float] = []
        engine = ledger.database
        begin = engine._begin  # type: ignore[attr-defined]

        def timed(connection: Any) -> None:
            raw = connection.connection.dbapi_connection
            if connection.get_execution_options().get("lrurun_begin") == "BEGIN":
                begin(connection)
                return
            began = time.perf_counter()
            raw.execute("PRAGMA busy_timeout=0")
            try:
                raw.execute("BEGIN IMMEDIATE")
                waits.append(0.0)
            except sqlite3.OperationalError:
                raw.execute("PRAGMA busy_timeout=30000")
                raw.execute("BEGIN IMMEDIATE")
                waits.append(1000 * (time.perf_counter() - began))
            finally:
                raw.execute("PRAGMA busy_timeout=30000")

        from sqlalchemy import event

        for one in (engine.engine, engine.fast_engine):
            event.remove(one, "begin", begin)
            event.listen(one, "begin", timed)
        end, step = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            step += 1
            ledger.record(held, [(step, "train/loss", 1.0 / step), (step, "val/accuracy", 0.5)], min(step, 100))
            time.sleep(0.02)
        ledger.finish(held, "done", result={"test/accuracy": 0.5, "val/accuracy": 0.5}, step=held.run.steps)
    waited = [one for one in waits if one]
    return {"transactions": len(waits), "waited": len(waited), "longest_ms": round(max(waited, default=0.0), 3)}


def view(link: str, number: int, fetched: list[int]) -> None:
    """A page that is watched: the ladder, the list of ladders or the table of runs."""
    place = urlsplit(link)
    jar = _get(place.netloc, f"/?{place.query}", "")[1].split(";")[0]
    home, _ = _get(place.netloc, "/", jar)
    key = re.search(r"/ladders/(\w+)", home)
    ladder = f"/ladders/{key[1]}" if key else "/"
    pages = [(ladder, f"/data{ladder}?kind=curves"), ("/", ""), ("/runs?where=state=done", "")][number % 3]
    connection = http.client.HTTPConnection(place.netloc)
    with contextlib.suppress(OSError, http.client.HTTPException):  # the server was stopped
        connection.request("GET", "/live", headers={"Cookie": jar})
        answer = connection.getresponse()
        while answer.readline():
            for address in filter(None, pages):
                _get(place.netloc, address, jar)
                fetched.append(number)
            time.sleep(2)  # as pages do


def _get(server: str, address: str, cookie: str) -> tuple[str, str]:
    connection = http.client.HTTPConnection(server, timeout=60)
    connection.request("GET", address, headers={"Cookie": cookie} if cookie else {})
    answer = connection.getresponse()
    return answer.read().decode(), answer.getheader("set-cookie") or ""


if __name__ == "__main__":
    main()
