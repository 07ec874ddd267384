"""Copies of whole ledgers: backup, merge and export."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun.errors import LedgerError, LrurunError
from lrurun.files import atomic
from lrurun.ledger import files, schema
from lrurun.ledger.connection import TIMEOUT
from lrurun.ledger.rows import Document
from lrurun.paths import inside


class Merged(Struct, frozen=True, kw_only=True):
    """What a merge has changed."""

    new: int
    """Runs that this ledger did not have."""
    finished: int
    """Runs that were unfinished here and finished there."""
    known: int
    """Runs that stay as they are here."""
    held: int
    """How many of these are running here although they are finished there."""
    checkpoints: int
    """Checkpoints that were copied with their files."""


def backup(path: Path, target: Path) -> None:
    """Copy a ledger, even while others write to it, to the new file `target`, which appears complete or not at all.

    Raises LrurunError if `target` exists or cannot be written.
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
        with (
            atomic(target) as partial,
            files.plain_errors(target, TIMEOUT),
            contextlib.closing(files.connect(path, "mode=ro", TIMEOUT)) as source,
            contextlib.closing(files.connect(partial, "mode=rwc", TIMEOUT)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=delete")  # a single file, even while it is open
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror}", "choose another file") from None


_REFERENCES = ("config_id", "execution_id", "provenance_id")
_RUN = [column.name for column in schema.runs.columns if column.name not in ("number", "state", "attempt")]
_FIXED = (
    "id",
    "fingerprint",
    "generation",
    "superseded",
    "task",
    "seed",
    "steps",
    "config_id",
    "provenance_id",
    "created_at",
)
_CHANGING = [name for name in _RUN if name not in _FIXED]


def _here(reference: str) -> str:
    """The number that a document of the other ledger has in this one."""
    return f"(SELECT h.id FROM other.documents o JOIN main.documents h ON h.sha256 = o.sha256 WHERE o.id = {reference})"


def _there(names: Iterable[str]) -> str:
    """Columns of a run of the other ledger, as this one stores them."""
    return ", ".join(_here(f"t.{name}") if name in _REFERENCES else f"t.{name}" for name in names)


_ATTEMPT = {column.name: f"a.{column.name}" for column in schema.attempts.columns} | {
    "run": "p.here",
    "n": "a.n + p.shift",
    "environment_id": _here("a.environment_id"),
    "ended_at": "coalesce(a.ended_at, :now)",
    "reason": "coalesce(a.reason, 'interrupted: merged while it ran')",
}

# A text that is not that of its hash would become the settings of runs here that have the text of the hash.
_ALTERED = "SELECT 1 FROM other.documents WHERE sha256 <> document_sha256(seed_at, text)"

# there: number of the run in the other ledger; here: its number in this one; shift: how many attempts it has here
_PAIRS = """
    CREATE TEMP TABLE pairs AS
    SELECT t.number AS there, h.number AS here, coalesce(h.attempt, 0) AS shift,
        CASE WHEN h.number IS NULL THEN 'new'
            WHEN t.state NOT IN ('done', 'diverged') OR h.state IN ('done', 'diverged') THEN 'known'
            WHEN h.state = 'running' THEN 'held'
            ELSE 'finished' END AS kind
    FROM other.stored_runs t LEFT JOIN main.stored_runs h
        ON h.fingerprint = t.fingerprint AND h.generation = t.generation
"""

_STATE = "CASE t.state WHEN 'running' THEN 'interrupted' ELSE t.state END"

_RUNS = (
    """
    INSERT OR IGNORE INTO main.documents (sha256, seed_at, text)
    SELECT sha256, seed_at, text FROM other.documents ORDER BY id
    """,
    f"""
    INSERT INTO main.stored_runs ({", ".join(_RUN)}, state, attempt)
    SELECT {_there(_RUN)}, {_STATE}, t.attempt
    FROM other.stored_runs t JOIN pairs p ON p.there = t.number WHERE p.kind = 'new' ORDER BY t.number
    """,
    """
    UPDATE pairs SET here = (
        SELECT h.number FROM other.stored_runs t JOIN main.stored_runs h
        ON h.fingerprint = t.fingerprint AND h.generation = t.generation WHERE t.number = pairs.there
    ) WHERE kind = 'new'
    """,
    # Replace what unfinished runs have here, except their attempts and events.
    "DELETE FROM main.metrics WHERE run IN (SELECT here FROM pairs WHERE kind = 'finished')",
    "DELETE FROM main.eigenvalues WHERE run IN (SELECT here FROM pairs WHERE kind = 'finished')",
    "DELETE FROM main.checkpoints WHERE run IN (SELECT here FROM pairs WHERE kind = 'finished')",
    f"""
    UPDATE main.stored_runs SET
        ({", ".join(_CHANGING)}, state, attempt) =
        (SELECT {_there(_CHANGING)}, t.state, t.attempt + p.shift
        FROM pairs p JOIN other.stored_runs t ON t.number = p.there WHERE p.here = main.stored_runs.number)
    WHERE number IN (SELECT here FROM pairs WHERE kind = 'finished')
    """,
    # The newest of several generations counts, whichever ledger it comes from.
    """
    UPDATE main.stored_runs SET superseded = 1 WHERE superseded = 0 AND EXISTS (
        SELECT 1 FROM main.stored_runs later
        WHERE later.fingerprint = main.stored_runs.fingerprint AND later.generation > main.stored_runs.generation
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
    INSERT INTO main.eigenvalues (run, moment, layer, pairs)
    SELECT p.here, e.moment, e.layer, e.pairs
    FROM pairs p JOIN other.eigenvalues e ON e.run = p.there WHERE p.kind IN ('new', 'finished')
    """,
    f"""
    INSERT INTO main.stored_attempts ({", ".join(_ATTEMPT)}) SELECT {", ".join(_ATTEMPT.values())}
    FROM pairs p JOIN other.stored_attempts a ON a.run = p.there WHERE p.kind IN ('new', 'finished')
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
    """Add the runs of the ledger `other` to the one at `path`; both have this version.

    Of a run that both have, the finished one is kept, and this ledger's if both are finished. Runs that are running in
    the other ledger become interrupted. Checkpoints and logs are copied if they are in `other_runs`. If anything fails,
    nothing is changed.

    Raises:
        LrurunError: a file cannot be copied, or a ledger cannot be read or written.
    """
    copied: list[Path] = []
    with (
        files.plain_errors(path, TIMEOUT),
        contextlib.closing(files.connect(path, "mode=rw", TIMEOUT)) as connection,
    ):
        query, _ = files.read_query(other)
        # The other ledger is only read.
        connection.execute("ATTACH ? AS other", (f"{other.as_uri()}?{query.replace('mode=rw', 'mode=ro')}",))
        connection.create_function("document_sha256", 2, lambda at, text: Document(text, at).sha256, deterministic=True)
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute(_ALTERED).fetchone():
                raise LedgerError(
                    f"the ledger {other} has settings that are not those of their hashes",
                    f"see what else is wrong: lrurun ledger check --ledger {shlex.quote(str(other))}",
                )
            connection.execute(_PAIRS)
            for statement in (*_RUNS, *_REST):
                connection.execute(statement, {"now": time.time()} if ":now" in statement else ())
            checkpoints = _copy_files(connection, runs, other_runs, copied)
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


def _copy_files(connection: sqlite3.Connection, runs: Path, other_runs: Path, copied: list[Path]) -> int:
    """Copy the folders of the added attempts, and record the checkpoints in them. Returns how many checkpoints."""
    wanted = connection.execute(
        """
        SELECT r.id, a.n, p.shift FROM pairs p JOIN other.stored_attempts a ON a.run = p.there JOIN other.stored_runs r
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
            shutil.copytree(source, target, ignore=_not_copied)
        except OSError as error:
            raise LrurunError(
                f"{target}: {error.strerror or error}", "free some space, or change the permissions there"
            ) from None
    added = 0
    rows = connection.execute(
        """
        SELECT p.here, c.attempt + p.shift, c.step, c.path, c.bytes, c.sha256, r.id, c.attempt, p.shift
        FROM pairs p JOIN other.checkpoints c ON c.run = p.there JOIN other.stored_runs r ON r.number = p.there
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
            added += 1
    return added


def _not_copied(folder: str, names: list[str]) -> list[str]:
    """Links, which could lead anywhere, and whatever is neither a file nor a folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return [n for n, path in paths.items() if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path))]


EXPORTED: dict[str, str] = {
    "ladders": "SELECT key, name, task, profile, spec, created_at FROM ladders ORDER BY id",
    "runs": "SELECT id, fingerprint, generation, superseded, task, seed, state, step, steps, parameters, config, "
    "execution, provenance, result, error, data_sha256, created_at, finished_at FROM runs ORDER BY number",
    "ladder_runs": "SELECT l.key AS ladder, r.id AS run, m.rung, m.stage, m.position FROM ladder_runs m "
    "JOIN ladders l ON l.id = m.ladder JOIN runs r ON r.number = m.run ORDER BY m.id",
    "attempts": "SELECT r.id AS run, a.n, a.host, a.pid, a.started_at, a.ended_at, a.reason, a.resumed_from, "
    "a.environment, a.numerics FROM attempts a JOIN runs r ON r.number = a.run ORDER BY a.run, a.n",
    "metrics": "SELECT r.id AS run, k.name AS key, m.step, m.value FROM metrics m JOIN runs r ON r.number = m.run "
    "JOIN metric_keys k ON k.id = m.key ORDER BY m.run, m.key, m.step",
    "eigenvalues": "SELECT r.id AS run, e.moment, e.layer, e.pairs FROM eigenvalues e "
    "JOIN runs r ON r.number = e.run ORDER BY e.run, e.moment DESC, e.layer",
    "checkpoints": "SELECT r.id AS run, c.attempt, c.step, c.state, c.path, c.bytes, c.sha256 FROM checkpoints c "
    "JOIN runs r ON r.number = c.run ORDER BY c.id",
    "tags": "SELECT r.id AS run, t.name FROM tags t JOIN runs r ON r.number = t.run ORDER BY t.run, t.name",
    "exclusions": "SELECT r.id AS run, e.why, e.time FROM exclusions e JOIN runs r ON r.number = e.run ORDER BY e.run",
    "events": "SELECT l.key AS ladder, r.id AS run, e.attempt, e.time, e.kind, e.text FROM events e "
    "LEFT JOIN ladders l ON l.id = e.ladder LEFT JOIN runs r ON r.number = e.run ORDER BY e.id",
}
"""Table -> the query that exports it: names instead of numbers, so that an export can be read without the ledger."""

PACKED = frozenset({"spec", "config", "execution", "provenance", "result", "environment", "pairs"})
"""Columns that hold JSON."""


def export(path: Path) -> Iterator[tuple[str, list[str], Iterator[tuple[Any, ...]]]]:
    """Every table as it was at one moment: its name, its columns, and its rows, to be read before the next table."""
    query, _ = files.read_query(path)
    with (
        files.plain_errors(path, TIMEOUT),
        contextlib.closing(files.connect(path, query, TIMEOUT)) as connection,
    ):
        connection.execute("BEGIN")
        for table, statement in EXPORTED.items():
            cursor = connection.execute(statement)
            yield table, [column[0] for column in cursor.description], iter(cursor)
