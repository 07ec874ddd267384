"""Copies of whole ledgers: backup and export. Merging is in `merging`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from lrurun.errors import LrurunError
from lrurun.files import atomic
from lrurun.ledger.store import Ledger


def backup(ledger: Ledger, target: Path) -> None:
    """Copy a ledger, even while others write to it, to the new file `target`, which appears complete or not at all.

    Raises LrurunError if `target` exists or cannot be written, DamagedError if the ledger is damaged.
    """
    if target.exists():
        raise LrurunError(f"{target} exists, and is not overwritten", "name a new file")
    if not target.parent.is_dir():
        raise LrurunError(f"the folder {target.parent} does not exist", f"create it: mkdir -p {target.parent}")
    if not os.access(target.parent, os.W_OK):
        raise LrurunError(
            f"{target} cannot be written: its folder is read-only for this user",
            "name a file elsewhere with --out FILE",
        )
    try:
        with atomic(target) as partial:
            ledger.database.backup(partial)
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror}", "choose another file") from None


EXPORTED: dict[str, str] = {
    "ladders": "SELECT key, short_name, name, task, profile, kind, spec, created_at FROM ladders ORDER BY id",
    "runs": "SELECT id, fingerprint, generation, superseded, kind, task, seed, state, step, steps, parameters, config, "
    "execution, provenance, result, error, data_sha256, created_at, finished_at FROM runs ORDER BY number",
    "ladder_runs": "SELECT l.key AS ladder, r.id AS run, m.rung, m.stage, m.position FROM ladder_runs m "
    "JOIN ladders l ON l.id = m.ladder JOIN runs r ON r.number = m.run ORDER BY m.id",
    "attempts": "SELECT r.id AS run, a.n, a.host, a.pid, a.started_at, a.ended_at, a.outcome, a.reason, "
    "a.resumed_from, a.environment, a.numerics FROM attempts a JOIN runs r ON r.number = a.run ORDER BY a.run, a.n",
    "metrics": "SELECT r.id AS run, k.name AS key, m.step, m.value FROM metrics m JOIN runs r ON r.number = m.run "
    "JOIN metric_keys k ON k.id = m.key ORDER BY m.run, m.key, m.step",
    "eigenvalues": "SELECT r.id AS run, e.moment, e.layer, e.pairs FROM eigenvalues e "
    "JOIN runs r ON r.number = e.run ORDER BY e.run, e.moment DESC, e.layer",
    "checkpoints": "SELECT r.id AS run, c.attempt, c.step, c.state, c.path, c.bytes, c.sha256 FROM checkpoints c "
    "JOIN runs r ON r.number = c.run ORDER BY c.id",
    "tags": "SELECT r.id AS run, t.name FROM tags t JOIN runs r ON r.number = t.run ORDER BY t.run, t.name",
    "exclusions": "SELECT r.id AS run, e.why, e.time FROM exclusions e JOIN runs r ON r.number = e.run ORDER BY e.run",
    "events": "SELECT l.key AS ladder, r.id AS run, e.attempt, e.time, e.kind, e.text, e.payload FROM events e "
    "LEFT JOIN ladders l ON l.id = e.ladder LEFT JOIN runs r ON r.number = e.run ORDER BY e.id",
}
"""Table -> the query that exports it: names instead of numbers, so that an export can be read without the ledger."""

PACKED = frozenset({"spec", "config", "execution", "provenance", "result", "environment", "pairs", "payload"})
"""Columns that hold JSON."""


def export(ledger: Ledger) -> Generator[tuple[str, list[str], Iterator[tuple[Any, ...]]], None, None]:
    """Every table as it was at one moment: its name, its columns, and its rows, to be read before the next table.

    Close it if it is not read to its end: rows that are left are not read then.
    """
    with ledger.database.rows() as source:
        for table, statement in EXPORTED.items():
            columns, rows = source.select(statement)
            with contextlib.closing(rows):  # it cannot be closed after its connection
                yield table, columns, rows
