"""The commands that look closer: compare, query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from lrurun import console, listing, reading
from lrurun.errors import NotFoundError, UsageError
from lrurun.ledger.values import Run
from lrurun.paths import Places


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


def _ledger(places: Places, run: str) -> Any:
    ledger = reading.truthful(places)
    if ledger is None:
        raise NotFoundError(f"run {run!r}: there is no ledger at {places.ledger}", "name one with --ledger PATH")
    return ledger


def _cell(value: Any) -> str:
    return "" if value is None else value.hex() if isinstance(value, bytes) else str(value)
