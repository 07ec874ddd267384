"""Whole ledgers: a copy of one, and one into another."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun.errors import LrurunError
from lrurun.ledger import files
from lrurun.ledger.tables import runs as runs_table
from lrurun.paths import inside

TIMEOUT = 30.0
"""Seconds to wait for other processes that write."""


class Merged(Struct, frozen=True, kw_only=True):
    """What a merge brought."""

    new: int
    """Runs that this ledger did not have."""
    finished: int
    """Runs that were unfinished here and finished there."""
    known: int
    """Runs that stay as they are here."""
    held: int
    """Of these, those that a worker here has in hand although they are finished there."""
    checkpoints: int
    """Checkpoints that came with their files."""


def backup(path: Path, target: Path) -> None:
    """Copies a ledger, others writing to it or not, to the new file `target`, which appears whole or not at all.

    Raises LrurunError where there is a `target` already, or it cannot be written.
    """
    if target.exists():
        raise LrurunError(f"{target}: is there already, and is not overwritten", "name a new file")
    if not target.parent.is_dir():
        raise LrurunError(f"the folder {target.parent} does not exist", f"make it: mkdir -p {target.parent}")
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with (
            files.plain_words(target, TIMEOUT),
            contextlib.closing(files.connect(path, "mode=ro", TIMEOUT)) as source,
            contextlib.closing(files.connect(partial, "mode=rwc", TIMEOUT)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=delete")  # one file, whatever is opened next
        partial.rename(target)
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror}", "choose another file") from None
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            partial.with_name(partial.name + suffix).unlink(missing_ok=True)


_COLUMNS = [column.name for column in runs_table.columns if column.name not in ("number", "state", "attempt")]

# there: the run's number in the other ledger; here: its number in this one; shift: attempts that it has here already
_PAIRS = """
    CREATE TEMP TABLE pairs AS
    SELECT t.number AS there, h.number AS here, coalesce(h.attempt, 0) AS shift,
        CASE WHEN h.number IS NULL THEN 'new'
            WHEN t.state NOT IN ('done', 'diverged') OR h.state IN ('done', 'diverged') THEN 'known'
            WHEN h.state = 'running' THEN 'held'
            ELSE 'finished' END AS kind
    FROM other.runs t LEFT JOIN main.runs h ON h.fingerprint = t.fingerprint AND h.generation = t.generation
"""

_STATE = "CASE t.state WHEN 'running' THEN 'interrupted' ELSE t.state END"

_RUNS = (
    f"""
    INSERT INTO main.runs ({", ".join(_COLUMNS)}, state, attempt)
    SELECT {", ".join(f"t.{name}" for name in _COLUMNS)}, {_STATE}, t.attempt
    FROM other.runs t JOIN pairs p ON p.there = t.number WHERE p.kind = 'new' ORDER BY t.number
    """,
    """
    UPDATE pairs SET here = (
        SELECT h.number FROM other.runs t JOIN main.runs h
        ON h.fingerprint = t.fingerprint AND h.generation = t.generation WHERE t.number = pairs.there
    ) WHERE kind = 'new'
    """,
    # what the unfinished ones have here gives way, but for the story of their attempts
    "DELETE FROM main.metrics WHERE run IN (SELECT here FROM pairs WHERE kind = 'finished')",
    "DELETE FROM main.checkpoints WHERE run IN (SELECT here FROM pairs WHERE kind = 'finished')",
    """
    UPDATE main.runs SET
        (step, parameters, result, error, data_sha256, finished_at, execution, state, attempt) =
        (SELECT t.step, t.parameters, t.result, t.error, t.data_sha256, t.finished_at, t.execution, t.state,
            t.attempt + p.shift
        FROM pairs p JOIN other.runs t ON t.number = p.there WHERE p.here = main.runs.number)
    WHERE number IN (SELECT here FROM pairs WHERE kind = 'finished')
    """,
    # of several generations the newest counts, wherever it was made
    """
    UPDATE main.runs SET superseded = 1 WHERE superseded = 0 AND EXISTS (
        SELECT 1 FROM main.runs later
        WHERE later.fingerprint = main.runs.fingerprint AND later.generation > main.runs.generation
    )
    """,
)

_REST = (
    """
    INSERT OR IGNORE INTO main.ladders (key, name, task, profile, spec, created_at)
    SELECT key, name, task, profile, spec, created_at FROM other.ladders ORDER BY id
    """,
    """
    INSERT OR IGNORE INTO main.ladder_runs (ladder, run, rung, stage, position)
    SELECT h.id, p.here, m.rung, m.stage, m.position
    FROM other.ladder_runs m JOIN pairs p ON p.there = m.run
        JOIN other.ladders t ON t.id = m.ladder JOIN main.ladders h ON h.key = t.key ORDER BY m.id
    """,
    "INSERT OR IGNORE INTO main.metric_keys (name) SELECT name FROM other.metric_keys ORDER BY id",
    """
    INSERT INTO main.metrics (run, key, step, value)
    SELECT p.here, h.id, m.step, m.value
    FROM pairs p JOIN other.metrics m ON m.run = p.there
        JOIN other.metric_keys t ON t.id = m.key JOIN main.metric_keys h ON h.name = t.name
    WHERE p.kind IN ('new', 'finished') ORDER BY p.here, h.id, m.step
    """,
    """
    INSERT INTO main.attempts (run, n, host, boot, namespace, pid, pid_started, started_at, heartbeat_at, seen_at,
        ended_at, reason, resumed_from, environment, code)
    SELECT p.here, a.n + p.shift, a.host, a.boot, a.namespace, a.pid, a.pid_started, a.started_at, a.heartbeat_at,
        a.seen_at, coalesce(a.ended_at, :now), coalesce(a.reason, 'interrupted: merged while it ran'), a.resumed_from,
        a.environment, a.code
    FROM pairs p JOIN other.attempts a ON a.run = p.there WHERE p.kind IN ('new', 'finished')
    """,
    """
    INSERT OR IGNORE INTO main.tags (run, name)
    SELECT p.here, t.name FROM other.tags t JOIN pairs p ON p.there = t.run
    """,
    """
    INSERT OR IGNORE INTO main.exclusions (run, why, time)
    SELECT p.here, t.why, t.time FROM other.exclusions t JOIN pairs p ON p.there = t.run
    """,
    """
    INSERT INTO main.events (ladder, run, attempt, time, kind, text)
    SELECT l.id, p.here, e.attempt + p.shift, e.time, e.kind, e.text
    FROM other.events e LEFT JOIN pairs p ON p.there = e.run AND p.kind IN ('new', 'finished')
        LEFT JOIN other.ladders t ON t.id = e.ladder LEFT JOIN main.ladders l ON l.key = t.key
    WHERE p.here IS NOT NULL OR (e.run IS NULL AND NOT EXISTS (
        SELECT 1 FROM main.events known WHERE known.ladder IS l.id AND known.kind = e.kind AND known.text = e.text
    )) ORDER BY e.id
    """,
)


def merge(path: Path, other: Path, runs: Path, other_runs: Path) -> Merged:
    """Brings the runs of the ledger `other` into that at `path`; both are of this version.

    A run that both have is there once: what is finished in either is finished, and the one here counts where both are.
    What runs in the other ledger comes as interrupted. Checkpoints and logs come where `other_runs` has them. All of it
    or nothing.

    Raises:
        LrurunError: a file cannot be copied, or a ledger not be read or written.
    """
    copied: list[Path] = []
    with (
        files.plain_words(path, TIMEOUT),
        contextlib.closing(files.connect(path, "mode=rw", TIMEOUT)) as connection,
    ):
        query, _ = files.read_query(other)
        # what is read of the other one is never changed
        connection.execute("ATTACH ? AS other", (f"{other.as_uri()}?{query.replace('mode=rw', 'mode=ro')}",))
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(_PAIRS)
            for statement in (*_RUNS, *_REST):
                connection.execute(statement, {"now": time.time()} if ":now" in statement else ())
            checkpoints = _bring_files(connection, runs, other_runs, copied)
            kinds = dict(connection.execute("SELECT kind, count(*) FROM pairs GROUP BY kind"))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            for folder in copied:
                shutil.rmtree(folder, ignore_errors=True)
            raise
    return Merged(
        new=kinds.get("new", 0),
        finished=kinds.get("finished", 0),
        known=kinds.get("known", 0) + kinds.get("held", 0),
        held=kinds.get("held", 0),
        checkpoints=checkpoints,
    )


def _bring_files(connection: sqlite3.Connection, runs: Path, other_runs: Path, copied: list[Path]) -> int:
    """Copies the folders of the attempts that came, and enters the checkpoints in them; how many these are."""
    wanted = connection.execute(
        """
        SELECT r.id, a.n, p.shift FROM pairs p JOIN other.attempts a ON a.run = p.there JOIN other.runs r
        ON r.number = p.there WHERE p.kind IN ('new', 'finished') ORDER BY r.number, a.n
        """
    ).fetchall()
    for name, n, shift in wanted:
        source, target = inside(other_runs, name, str(n)), inside(runs, name, str(n + shift))
        if not source.is_dir():
            continue
        try:
            if target.exists():
                target.rename(target.with_name(f"{target.name}.old-{time.time_ns()}"))
            copied.append(target)
            shutil.copytree(source, target, ignore=_strange)
        except OSError as error:
            raise LrurunError(f"{target}: {error.strerror or error}", "make room, or give permission there") from None
    entered = 0
    rows = connection.execute(
        """
        SELECT p.here, c.attempt + p.shift, c.step, c.path, c.bytes, c.sha256, r.id, c.attempt, p.shift
        FROM pairs p JOIN other.checkpoints c ON c.run = p.there JOIN other.runs r ON r.number = p.there
        WHERE p.kind IN ('new', 'finished') AND c.state = 'committed' ORDER BY c.id
        """
    ).fetchall()
    for here, attempt, step, path, size, digest, name, n, shift in rows:
        moved = f"{name}/{n + shift}" + str(path).removeprefix(f"{name}/{n}")
        if inside(runs, moved).is_dir():
            connection.execute(
                "INSERT INTO main.checkpoints (run, attempt, step, state, path, bytes, sha256) "
                "VALUES (?, ?, ?, 'committed', ?, ?, ?)",
                (here, attempt, step, moved, size, digest),
            )
            entered += 1
    return entered


def _strange(folder: str, names: list[str]) -> list[str]:
    """What is not copied: links, which could lead anywhere, and what is neither file nor folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return [n for n, path in paths.items() if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path))]


EXPORTED: dict[str, str] = {
    "ladders": "SELECT key, name, task, profile, spec, created_at FROM ladders ORDER BY id",
    "runs": "SELECT id, fingerprint, generation, superseded, task, seed, state, step, steps, parameters, config, "
    "execution, provenance, result, error, data_sha256, created_at, finished_at FROM runs ORDER BY number",
    "ladder_runs": "SELECT l.key AS ladder, r.id AS run, m.rung, m.stage, m.position FROM ladder_runs m "
    "JOIN ladders l ON l.id = m.ladder JOIN runs r ON r.number = m.run ORDER BY m.id",
    "attempts": "SELECT r.id AS run, a.n, a.host, a.pid, a.started_at, a.ended_at, a.reason, a.resumed_from, "
    "a.environment FROM attempts a JOIN runs r ON r.number = a.run ORDER BY a.run, a.n",
    "metrics": "SELECT r.id AS run, k.name AS key, m.step, m.value FROM metrics m JOIN runs r ON r.number = m.run "
    "JOIN metric_keys k ON k.id = m.key ORDER BY m.run, m.key, m.step",
    "checkpoints": "SELECT r.id AS run, c.attempt, c.step, c.state, c.path, c.bytes, c.sha256 FROM checkpoints c "
    "JOIN runs r ON r.number = c.run ORDER BY c.id",
    "tags": "SELECT r.id AS run, t.name FROM tags t JOIN runs r ON r.number = t.run ORDER BY t.run, t.name",
    "exclusions": "SELECT r.id AS run, e.why, e.time FROM exclusions e JOIN runs r ON r.number = e.run ORDER BY e.run",
    "events": "SELECT l.key AS ladder, r.id AS run, e.attempt, e.time, e.kind, e.text FROM events e "
    "LEFT JOIN ladders l ON l.id = e.ladder LEFT JOIN runs r ON r.number = e.run ORDER BY e.id",
}
"""Table -> what is exported of it: names for numbers, so that an export stands by itself."""

PACKED = frozenset({"spec", "config", "execution", "provenance", "result", "environment"})
"""Columns that hold JSON."""


def export(path: Path) -> Iterator[tuple[str, list[str], Iterator[tuple[Any, ...]]]]:
    """Every table as it was at one moment: its name, its columns, and its rows, to be read before the next table."""
    query, _ = files.read_query(path)
    with (
        files.plain_words(path, TIMEOUT),
        contextlib.closing(files.connect(path, query, TIMEOUT)) as connection,
    ):
        connection.execute("BEGIN")
        for table, statement in EXPORTED.items():
            cursor = connection.execute(statement)
            yield table, [column[0] for column in cursor.description], iter(cursor)
