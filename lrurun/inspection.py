"""The commands that look closer: compare, query, logs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lrurun import console, listing, reading
from lrurun import logs as logfiles
from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger.values import Attempt, Run
from lrurun.paths import Places

FOLLOW_SECONDS = 0.5
"""Between two looks at a log that is followed."""
PATIENCE_SECONDS = 5.0
"""For the log of an attempt that has just begun."""


def query(places: Places, sql: str, *, json: bool) -> int:
    """Prints what SQL that only reads has found."""
    from lrurun.ledger.query import select

    columns, rows, note = select(places.ledger, sql)
    if note:
        console.warn(note)
    if json:
        plain = [[cell.hex() if isinstance(cell, bytes) else cell for cell in row] for row in rows]
        flag = _flag(cell for row in rows for cell in row)
        console.write(reading.document({"columns": columns, "rows": plain, **flag}))
        return 0
    console.table(None, [console.clean(column) for column in columns], [[_cell(cell) for cell in row] for row in rows])
    if not rows:
        console.say("no rows")
    return 0


def compare(places: Places, prefixes: Sequence[str], *, json: bool) -> int:
    """Prints in what runs differ, and their results side by side."""
    with _ledger(places, prefixes[0]) as ledger:
        runs = list({run.id: run for run in map(ledger.run, prefixes)}.values())
    if len(runs) < 2:
        raise UsageError(f"compare: {runs[0].id} alone has nothing to differ from", "name another run beside it")
    told = [_told(run) for run in runs]
    differs = {path: [one.get(path) for one in told] for path in dict.fromkeys(path for one in told for path in one)}
    differs = {path: values for path, values in differs.items() if any(value != values[0] for value in values)}
    metrics = sorted({name for run in runs for name in run.result or ()})
    results = {name: [(run.result or {}).get(name) for run in runs] for name in metrics}
    if json:
        table = {
            "runs": [run.id for run in runs],
            "differs": [{"path": path, "values": values} for path, values in differs.items()],
            "results": [{"metric": name, "values": values, **_flag(values)} for name, values in results.items()],
        }
        console.write(reading.document(table))
        return 0
    headers = [run.id for run in runs]
    if not differs:
        console.say("nothing differs but what came out")
    else:
        rows = [[path, *map(_cell, values)] for path, values in differs.items()]
        console.table("what differs", ["path", *headers], rows)
    if results:
        rows = [[name, *("" if v is None else f"{v:.6g}" for v in values)] for name, values in results.items()]
        console.table("results", ["metric", *headers], rows)
    return 0


def _told(run: Run) -> dict[str, Any]:
    """All that runs are compared by, but their results."""
    places = dict.fromkeys(f"{place.ladder}/{place.rung} ({place.stage})" for place in run.memberships)
    return {
        "rung": ", ".join(places),
        "state": run.state,
        **listing.flat(run),
        "code": "; ".join(run.code),
        "data_sha256": run.data_sha256,
    }


def _flag(values: Iterable[Any]) -> dict[str, bool]:
    """What JSON says beside numbers that it cannot hold."""
    return {} if all(math.isfinite(v) for v in values if isinstance(v, float)) else {"finite": False}


def logs(places: Places, prefix: str, *, attempt: int | None, follow: bool, json: bool) -> int:
    """Prints the log of the newest attempt at a run, or of one; with `follow`, what is added until the run is over."""
    if follow and json:
        raise UsageError("--follow prints for as long as the run goes on, --json one object", "leave one of them out")
    if follow and attempt is not None:
        raise UsageError("--follow follows the newest attempt, --attempt names one", "leave one of them out")
    run, attempts = _attempts(places, prefix)
    known = [one.n for one in attempts]
    if follow and not known and run.state == "queued":
        console.say(f"run {run.id} waits in the queue")
        run, known = _wait(places, run, 0)
    if not known:
        raise NotFoundError(f"run {run.id} has no log: it has not begun", "lrurun status tells what runs")
    if attempt is not None and attempt not in known:
        raise NotFoundError(
            f"run {run.id} has no attempt {attempt}",
            f"it has: {', '.join(map(str, known))}; the last without --attempt",
        )
    number = known[-1] if attempt is None else attempt
    begins = follow and run.state == "running"
    reader = _reader(places, run, number, patience=PATIENCE_SECONDS if begins else 0.0)
    if json:
        lines = list(itertools.chain.from_iterable(_blocks(reader, last=True)))
        console.write(reading.document({"run": run.id, "attempt": number, "path": str(reader.path), "lines": lines}))
        return 0
    if not follow:
        for block in _blocks(reader, last=True):
            console.write("\n".join(block) + "\n")
        return 0
    while True:
        over = run.state not in ("running", "queued")
        for block in _blocks(reader, last=over or known[-1] > number):
            console.write("\n".join(block) + "\n")
        if over:
            console.say(f"run {run.id}: {run.state} at step {run.step} of {run.steps}")
            return 0
        if known[-1] > number:
            number = known[-1]
            console.say(f"attempt {number}")
            reader = _reader(places, run, number, patience=PATIENCE_SECONDS)
            continue
        time.sleep(FOLLOW_SECONDS)
        run, known = _wait(places, run, number)


def _wait(places: Places, run: Run, number: int) -> tuple[Run, list[int]]:
    """The run and its attempts as they are now; of a run in the queue, as soon as somebody works on it."""
    end = time.monotonic() + reading.PATIENCE_SECONDS
    while True:
        run, attempts = _attempts(places, run.id)
        known = [one.n for one in attempts]
        if run.state != "queued" or (known and known[-1] > number):
            return run, known
        if time.monotonic() > end:
            raise LrurunError(f"run {run.id} waits in the queue, and nobody takes it", "lrurun resume goes on with it")
        time.sleep(FOLLOW_SECONDS)


def _attempts(places: Places, run: str) -> tuple[Run, list[Attempt]]:
    with _ledger(places, run) as ledger:
        found = ledger.run(run)
        return found, ledger.attempts(found.id)


def _reader(places: Places, run: Run, attempt: int, *, patience: float) -> logfiles.Reader:
    """The log of an attempt; one that has just begun makes it a moment later."""
    path = logfiles.path_of(places, run.id, attempt)
    end = time.monotonic() + patience
    while not path.exists() and time.monotonic() < end:
        time.sleep(FOLLOW_SECONDS)
    try:
        return logfiles.Reader(path)
    except OSError as error:
        raise NotFoundError(
            f"run {run.id}, attempt {attempt}: no log at {path}: {error.strerror}",
            "name the runs folder: --runs-dir DIR",
        ) from None


def _blocks(reader: logfiles.Reader, *, last: bool) -> Iterator[list[str]]:
    while block := reader.lines(last=last):
        yield block


def _ledger(places: Places, run: str) -> Any:
    ledger = reading.truthful(places)
    if ledger is None:
        raise NotFoundError(f"run {run!r}: there is no ledger at {places.ledger}", "name one with --ledger PATH")
    return ledger


def _cell(value: Any) -> str:
    return "" if value is None else value.hex() if isinstance(value, bytes) else str(value)
