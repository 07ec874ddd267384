"""Merging two ledgers: the runs of one are added to the other, in one transaction.

The statements are for a database that another one is joined to, see `Database.joined`; {main} and {other} stand before
the names of their tables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun.console import no_progress
from lrurun.errors import LedgerError, LrurunError
from lrurun.ledger.database import Joined, command, schema
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.part import InstanceInPart
from lrurun.ledger.rows import altered_documents
from lrurun.ledger.values import BACK
from lrurun.paths import inside

if TYPE_CHECKING:
    from lrurun.data.task import Progress


class Merged(Struct, frozen=True, kw_only=True):
    """The changes that a merge has made."""

    new: int
    """Runs that this ledger did not have."""
    finished: int
    """Runs that were unfinished in this ledger and finished in the other."""
    known: int
    """Runs that stay as they are in this ledger."""
    held: int
    """How many of these are running in this ledger although they are finished in the other."""
    checkpoints: int
    """Checkpoints that were copied with their files."""
    back: int = 0
    """How many of the new runs were forgotten before."""
    hidden: list[str] = []
    """The short names of new instances that are hidden, as they are in the other ledger."""
    instances: list[InstanceInPart] | None = None
    """The instances of the part that was merged; None if it was the whole ledger."""


_REFERENCES = ("config_id", "execution_id", "provenance_id")
_RUN = [column.name for column in schema.runs.columns if column.name not in ("number", "state", "attempt")]
# Seed, steps and configuration of an imported run are as its tracker had them when it was imported.
_FIXED = (
    "id",
    "fingerprint",
    "generation",
    "superseded",
    "kind",
    "task",
    "provenance_id",
    "created_at",
)
_CHANGING = [name for name in _RUN if name not in _FIXED]


def _number_in_main(reference: str) -> str:
    """The number that a document of the other ledger has in this one."""
    documents = "{other}documents o JOIN {main}documents h ON h.sha256 = o.sha256"
    return f"(SELECT h.id FROM {documents} WHERE o.id = {reference})"


def _columns_for_main(names: Iterable[str]) -> str:
    """Columns of a run of the other ledger, as this one stores them."""
    return ", ".join(_number_in_main(f"t.{name}") if name in _REFERENCES else f"t.{name}" for name in names)


_ATTEMPT = {column.name: f"a.{column.name}" for column in schema.attempts.columns} | {
    "run": "p.main_run",
    "n": "a.n + p.shift",
    "environment_id": _number_in_main("a.environment_id"),
    "ended_at": "coalesce(a.ended_at, a.heartbeat_at)",
    "outcome": "coalesce(a.outcome, 'interrupted')",
    "reason": "coalesce(a.reason, 'interrupted: merged while it ran')",
}

# other_run, main_run: numbers of the run in the other ledger and in this one; shift: how many attempts this one has
_PAIRS = """
    CREATE TEMP TABLE pairs AS
    SELECT t.number AS other_run, h.number AS main_run, coalesce(h.attempt, 0) AS shift,
        CASE WHEN h.number IS NULL THEN 'new'
            WHEN t.state NOT IN ('done', 'diverged') OR h.state IN ('done', 'diverged') THEN 'known'
            WHEN h.state = 'running' THEN 'held'
            ELSE 'finished' END AS relation
    FROM {other}stored_runs t LEFT JOIN {main}stored_runs h
        ON h.fingerprint = t.fingerprint AND h.generation = t.generation
"""

_SAID = "('note', 'excluded', 'included')"
"""The kinds of events by which people say something about a run."""

_CHANGED = f"""
    SELECT r.id FROM pairs p JOIN {{other}}stored_runs r ON r.number = p.other_run
    WHERE p.relation IN ('new', 'finished')
        OR EXISTS (SELECT 1 FROM {{other}}events e WHERE e.run = p.other_run AND e.kind IN {_SAID})
        OR EXISTS (SELECT 1 FROM {{other}}tags t WHERE t.run = p.other_run)
        OR p.other_run IN (SELECT other_run FROM new_items)
    ORDER BY r.number
"""
"""The runs that a merge adds or may change."""

_STATE = "CASE t.state WHEN 'running' THEN 'interrupted' ELSE t.state END"

_RUNS = (
    """
    INSERT INTO {main}documents (sha256, seed_at, text)
    SELECT sha256, seed_at, text FROM {other}documents WHERE true ORDER BY id ON CONFLICT DO NOTHING
    """,
    f"""
    INSERT INTO {{main}}stored_runs ({", ".join(_RUN)}, state, attempt)
    SELECT {_columns_for_main(_RUN)}, {_STATE}, t.attempt
    FROM {{other}}stored_runs t JOIN pairs p ON p.other_run = t.number WHERE p.relation = 'new' ORDER BY t.number
    """,
    """
    UPDATE pairs SET main_run = (
        SELECT h.number FROM {other}stored_runs t JOIN {main}stored_runs h
        ON h.fingerprint = t.fingerprint AND h.generation = t.generation WHERE t.number = pairs.other_run
    ) WHERE relation = 'new'
    """,
    # Replace the rows of unfinished runs, except their attempts and events.
    "DELETE FROM {main}metrics WHERE run IN (SELECT main_run FROM pairs WHERE relation = 'finished')",
    "DELETE FROM {main}eigenvalues WHERE run IN (SELECT main_run FROM pairs WHERE relation = 'finished')",
    "DELETE FROM {main}checkpoints WHERE run IN (SELECT main_run FROM pairs WHERE relation = 'finished')",
    f"""
    UPDATE {{main}}stored_runs SET
        ({", ".join(_CHANGING)}, state, attempt) =
        (SELECT {_columns_for_main(_CHANGING)}, t.state, t.attempt + p.shift
        FROM pairs p JOIN {{other}}stored_runs t ON t.number = p.other_run
        WHERE p.main_run = {{main}}stored_runs.number)
    WHERE number IN (SELECT main_run FROM pairs WHERE relation = 'finished')
    """,
    # The newest of several generations counts, whichever ledger it comes from.
    """
    UPDATE {main}stored_runs SET superseded = 1 WHERE superseded = 0 AND EXISTS (
        SELECT 1 FROM {main}stored_runs later
        WHERE later.fingerprint = {main}stored_runs.fingerprint AND later.generation > {main}stored_runs.generation
    )
    """,
)

_RETURNED = """
    CREATE TEMP TABLE returned AS
    SELECT DISTINCT r.id
    FROM pairs p JOIN {main}stored_runs r ON r.number = p.main_run
        JOIN {main}removed_runs x ON x.run = r.id JOIN {main}removals m ON m.id = x.removal
    WHERE p.relation = 'new' AND m.kind = 'forgotten' AND r.created_at <= m.time
"""
"""The new runs that were forgotten before, by removals that this ledger had before it was merged."""

_BACK = f"""
    INSERT INTO {{main}}events (run, time, kind, text)
    SELECT r.number, CASE WHEN :now > max(m.time) THEN :now ELSE max(m.time) END, '{BACK}',
        'merged again after it was forgotten'
    FROM returned x JOIN {{main}}stored_runs r ON r.id = x.id
        JOIN {{main}}removed_runs f ON f.run = r.id JOIN {{main}}removals m ON m.id = f.removal
    WHERE m.kind = 'forgotten' GROUP BY r.number ORDER BY r.number
"""
"""By these events, files of runs that are back differ from those that a removal could not remove."""

_REST = (
    """
    CREATE TEMP TABLE new_ladders AS
    SELECT t.key FROM {other}ladders t WHERE NOT EXISTS (SELECT 1 FROM {main}ladders h WHERE h.key = t.key)
    """,
    """
    INSERT INTO {main}ladders (key, short_name, name, task, profile, kind, spec, created_at, user_name)
    SELECT t.key,
        CASE WHEN EXISTS (SELECT 1 FROM {main}ladders h WHERE h.short_name = t.short_name)
            THEN t.short_name || '-' || t.key ELSE t.short_name END,
        t.name, t.task, t.profile, t.kind, t.spec, t.created_at, t.user_name
    FROM {other}ladders t WHERE true ORDER BY t.id
    ON CONFLICT (key) DO NOTHING
    """,
    """
    INSERT INTO {main}ladder_runs (ladder, run, rung, stage, position)
    SELECT h.id, p.main_run, m.rung, m.stage, m.position
    FROM {other}ladder_runs m JOIN pairs p ON p.other_run = m.run
        JOIN {other}ladders t ON t.id = m.ladder JOIN {main}ladders h ON h.key = t.key WHERE true ORDER BY m.id
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO {main}metric_keys (name) SELECT name FROM {other}metric_keys WHERE true ORDER BY id
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO {main}metrics (run, key, step, value)
    SELECT p.main_run, h.id, m.step, m.value
    FROM pairs p JOIN {other}metrics m ON m.run = p.other_run
        JOIN {other}metric_keys t ON t.id = m.key JOIN {main}metric_keys h ON h.name = t.name
    WHERE p.relation IN ('new', 'finished') ORDER BY p.main_run, h.id, m.step
    """,
    """
    INSERT INTO {main}eigenvalues (run, moment, layer, pairs)
    SELECT p.main_run, e.moment, e.layer, e.pairs
    FROM pairs p JOIN {other}eigenvalues e ON e.run = p.other_run WHERE p.relation IN ('new', 'finished')
    """,
    f"""
    INSERT INTO {{main}}stored_attempts ({", ".join(_ATTEMPT)}) SELECT {", ".join(_ATTEMPT.values())}
    FROM pairs p JOIN {{other}}stored_attempts a ON a.run = p.other_run WHERE p.relation IN ('new', 'finished')
    """,
    """
    INSERT INTO {main}tags (run, name)
    SELECT p.main_run, t.name FROM {other}tags t JOIN pairs p ON p.other_run = t.run WHERE true ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO {main}exclusions (run, why, time)
    SELECT p.main_run, t.why, t.time FROM {other}exclusions t JOIN pairs p ON p.other_run = t.run WHERE true
    ON CONFLICT DO NOTHING
    """,
    # What people said about a run that both have is added to what they said here.
    f"""
    INSERT INTO {{main}}events (run, time, kind, text, payload)
    SELECT p.main_run, e.time, e.kind, e.text, e.payload
    FROM pairs p JOIN {{other}}events e ON e.run = p.other_run AND e.kind IN {_SAID}
    WHERE p.relation IN ('known', 'held') AND NOT EXISTS (
        SELECT 1 FROM {{main}}events known
        WHERE known.run = p.main_run AND known.time = e.time AND known.kind = e.kind AND known.text = e.text
    ) ORDER BY e.id
    """,
    """
    INSERT INTO {main}events (ladder, run, attempt, time, kind, text, payload)
    SELECT l.id, p.main_run, e.attempt + p.shift, e.time, e.kind, e.text, e.payload
    FROM {other}events e LEFT JOIN pairs p ON p.other_run = e.run AND p.relation IN ('new', 'finished')
        LEFT JOIN {other}ladders t ON t.id = e.ladder LEFT JOIN {main}ladders l ON l.key = t.key
    WHERE p.main_run IS NOT NULL OR (e.run IS NULL AND NOT EXISTS (
        SELECT 1 FROM {main}events known WHERE (known.ladder = l.id OR (known.ladder IS NULL AND l.id IS NULL))
            AND known.kind = e.kind AND known.text = e.text AND coalesce(known.payload, '') = coalesce(e.payload, '')
    )) ORDER BY e.id
    """,
)

# The newest generation of an imported run takes what was said about earlier ones and, with their settings and seed,
# their places in instances of either ledger.
_IMPORTED = (
    """
    INSERT INTO {main}ladder_runs (ladder, run, rung, stage, position)
    SELECT m.ladder, newest.number, m.rung, m.stage, m.position
    FROM {main}ladder_runs m JOIN {main}stored_runs old ON old.number = m.run
        JOIN {main}stored_runs newest ON newest.fingerprint = old.fingerprint AND newest.superseded = 0
            AND newest.config_id = old.config_id AND newest.seed = old.seed
    WHERE old.kind = 'imported' AND old.generation = (
        SELECT max(earlier.generation) FROM {main}ladder_runs n JOIN {main}stored_runs earlier ON earlier.number = n.run
        WHERE n.ladder = m.ladder AND earlier.fingerprint = old.fingerprint
    ) ORDER BY m.id
    ON CONFLICT DO NOTHING
    """,
    """
    CREATE TEMP TABLE changed_runs AS
    SELECT p.main_run AS new_run, (
        SELECT old.number FROM {main}stored_runs old
        WHERE old.fingerprint = r.fingerprint AND old.generation < r.generation ORDER BY old.generation DESC LIMIT 1
    ) AS old_run
    FROM pairs p JOIN {main}stored_runs r ON r.number = p.main_run
    WHERE p.relation = 'new' AND r.kind = 'imported' AND r.superseded = 0
    """,
    """
    INSERT INTO {main}tags (run, name)
    SELECT c.new_run, t.name FROM {main}tags t JOIN changed_runs c ON c.old_run = t.run WHERE true
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO {main}exclusions (run, why, time)
    SELECT c.new_run, t.why, t.time FROM {main}exclusions t JOIN changed_runs c ON c.old_run = t.run
    WHERE NOT EXISTS (SELECT 1 FROM {main}events e WHERE e.run = c.new_run AND e.kind = 'included')
    ON CONFLICT DO NOTHING
    """,
    f"""
    INSERT INTO {{main}}events (run, time, kind, text, payload)
    SELECT c.new_run, e.time, e.kind, e.text, e.payload
    FROM changed_runs c JOIN {{main}}events e ON e.run = c.old_run AND e.kind IN {_SAID}
    WHERE NOT EXISTS (
        SELECT 1 FROM {{main}}events known
        WHERE known.run = c.new_run AND known.time = e.time AND known.kind = e.kind AND known.text = e.text
    ) ORDER BY e.id
    """,
)

_ITEMS = (
    # Of a run that both have, if it was trained once: its results are the same.
    """
    CREATE TEMP TABLE new_items AS
    SELECT p.main_run, p.other_run, i.result
    FROM pairs p JOIN {other}item_results i ON i.run = p.other_run
        JOIN {other}stored_runs theirs ON theirs.number = p.other_run
        JOIN {main}stored_runs ours ON ours.number = p.main_run
        LEFT JOIN {main}item_results h ON h.run = p.main_run AND h.result = i.result
    WHERE (p.relation IN ('new', 'finished') OR (p.relation = 'known' AND ours.result = theirs.result))
        AND (h.run IS NULL OR (h.sums IS NULL AND i.sums IS NOT NULL))
    """,
    """
    INSERT INTO {main}test_sets (sha256, count, order_sha256, weights, groups)
    SELECT t.sha256, t.count, t.order_sha256, t.weights, t.groups FROM {other}test_sets t
    WHERE t.id IN (
        SELECT i.test_set FROM new_items n JOIN {other}item_results i ON i.run = n.other_run AND i.result = n.result
    ) ORDER BY t.id
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO {main}item_results (run, result, test_set, sums)
    SELECT n.main_run, i.result, h.id, i.sums
    FROM new_items n JOIN {other}item_results i ON i.run = n.other_run AND i.result = n.result
        JOIN {other}test_sets t ON t.id = i.test_set JOIN {main}test_sets h ON h.sha256 = t.sha256
    WHERE true ORDER BY n.main_run, i.result
    ON CONFLICT (run, result) DO UPDATE SET test_set = excluded.test_set, sums = excluded.sums
    WHERE item_results.sums IS NULL
    """,
)

# What is shown here stays so. The files that a removal left are not here.
_REMOVALS = (
    """
    INSERT INTO {main}hidden (ladder, time, user_name)
    SELECT h.id, x.time, x.user_name
    FROM {other}hidden x JOIN {other}ladders t ON t.id = x.ladder
        JOIN new_ladders n ON n.key = t.key JOIN {main}ladders h ON h.key = t.key
    """,
    """
    INSERT INTO {main}removals (key, kind, time, user_name, selection, why, runs, bytes, finished_at, files,
        instances)
    SELECT key, kind, time, user_name, selection, why, runs, bytes, coalesce(finished_at, time), files, instances
    FROM {other}removals WHERE true ORDER BY id
    ON CONFLICT (key) DO NOTHING
    """,
    """
    INSERT INTO {main}removed_runs (removal, run, ladder_key, rung, stage, instance, task, seed, state)
    SELECT h.id, x.run, x.ladder_key, x.rung, x.stage, x.instance, x.task, x.seed, x.state
    FROM {other}removed_runs x JOIN {other}removals t ON t.id = x.removal JOIN {main}removals h ON h.key = t.key
    WHERE true ORDER BY h.id, x.run
    ON CONFLICT DO NOTHING
    """,
)

_HIDDEN = """
    SELECT h.short_name FROM {main}ladders h JOIN new_ladders n ON n.key = h.key JOIN {main}hidden x ON x.ladder = h.id
    ORDER BY h.id
"""

_NO_ITEMS = ("CREATE TEMP TABLE new_items (main_run INTEGER, other_run INTEGER, result TEXT)",)
"""For another ledger of an older revision, which has no tables of per-item results."""


def merge(
    ledger: Ledger, other: Ledger, runs: Path, other_runs: Path, progress: Progress = no_progress
) -> tuple[Merged, list[str]]:
    """Add the runs of the ledger `other` to `ledger`. Returns the ids of the runs that may have changed, too.

    Of a run that both have, the finished one is kept, and this ledger's if both are finished. Runs that are running in
    the other ledger become interrupted. Checkpoints and logs are copied if they are in `other_runs`. If anything fails,
    nothing is changed.

    Raises:
        LrurunError: a file cannot be copied, or a ledger cannot be read or written.
    """
    _refuse_altered(other)
    folders = AttemptFolders(runs, other_runs)
    with ledger.database.joined(other.database) as target:
        committing = False
        try:
            # No process waits for this one while it copies; what has changed meanwhile is copied in the transaction.
            target.begin(writing=False)
            target.execute(_PAIRS)
            attempts = target.execute(_FOLDERS)
            target.rollback()
            folders.copy(attempts, progress)
            target.begin(writing=True)
            target.execute(_PAIRS)
            lacking = other.database.lacking
            statements = (
                *_RUNS, _RETURNED, *_REST, *_IMPORTED, *(_NO_ITEMS if schema.item_results.name in lacking else _ITEMS),
                *(() if schema.removals.name in lacking else _REMOVALS),
            )  # fmt: skip
            for done, statement in enumerate(statements):
                progress("adding runs to the ledger", done, len(statements))
                target.execute(statement)
            target.execute(_BACK, {"now": time.time()})
            [(back,)] = target.execute("SELECT count(*) FROM returned")
            folders.move(target.execute(_FOLDERS))
            checkpoints = _add_checkpoints(target, runs)
            counts = dict(target.execute("SELECT relation, count(*) FROM pairs GROUP BY relation"))
            changed = [run_id for (run_id,) in target.execute(_CHANGED)]
            hidden = [name for (name,) in target.execute(_HIDDEN)]
            committing = True
            target.commit()
        except BaseException:
            if not committing:  # else the runs may have been committed although the commit raised
                folders.undo()
            with contextlib.suppress(Exception):
                target.rollback()
            raise
        finally:
            folders.clean()
    merged = Merged(
        new=counts.get("new", 0),
        finished=counts.get("finished", 0),
        known=counts.get("known", 0) + counts.get("held", 0),
        held=counts.get("held", 0),
        checkpoints=checkpoints,
        back=back,
        hidden=hidden,
    )
    return merged, changed


def _refuse_altered(other: Ledger) -> None:
    # A text that does not match its hash would become the settings of runs of this ledger that match it.
    with other.database.reading() as connection:
        if altered_documents(connection):
            raise LedgerError(
                f"the ledger {other.path} has settings that do not match their hashes",
                f"see what else is wrong: {command('check', other.path)}",
            )


_FOLDERS = """
    SELECT r.id, a.n, p.shift
    FROM pairs p JOIN {other}stored_attempts a ON a.run = p.other_run
        JOIN {other}stored_runs r ON r.number = p.other_run
    WHERE p.relation IN ('new', 'finished') ORDER BY r.number, a.n
"""


def _add_checkpoints(target: Joined, runs: Path) -> int:
    """Record the checkpoints in the folders of the added attempts. Returns how many."""
    added = 0
    rows = target.execute(
        """
        SELECT p.main_run, c.attempt + p.shift, c.step, c.path, c.bytes, c.sha256, r.id, c.attempt, p.shift
        FROM pairs p JOIN {other}checkpoints c ON c.run = p.other_run
            JOIN {other}stored_runs r ON r.number = p.other_run
        WHERE p.relation IN ('new', 'finished') AND c.state = 'committed' ORDER BY c.id
        """
    )
    for run, attempt, step, path, size, digest, run_id, n, shift in rows:
        moved = f"{run_id}/{n + shift}" + str(path).removeprefix(f"{run_id}/{n}")
        if inside(runs, moved).is_dir():
            target.execute(
                "INSERT INTO {main}checkpoints (run, attempt, step, state, path, bytes, sha256) "
                "VALUES (:run, :attempt, :step, 'committed', :path, :bytes, :sha256)",
                {"run": run, "attempt": attempt, "step": step, "path": moved, "bytes": size, "sha256": digest},
            )
            added += 1
    return added


# Folders of the attempts that a merge brings: copied before its transaction, moved to their paths within it

MergedAttempt = tuple[str, int, int]
"""A run's id, the number of its attempt in the other ledger, and how many attempts it has in this one already."""


class AttemptFolders:
    """Copies of attempts' folders. A folder that both ledgers use stays as it is."""

    def __init__(self, runs: Path, other_runs: Path) -> None:
        self.runs, self.other_runs = runs, other_runs
        self._stamp = time.time_ns()
        self._copies: dict[Path, Path] = {}
        """Folder of the other ledger -> its copy, which is not moved yet."""
        self._moved: list[tuple[Path, Path | None]] = []
        """Folders that were moved to their paths, each with the new path of the folder that it replaced, or None."""

    def copy(self, attempts: Sequence[MergedAttempt], progress: Progress = no_progress) -> None:
        """Copies folders beside their paths. Copying may take long: no transaction should wait for it.

        Raises:
            LrurunError: a file cannot be copied, or both ledgers have the same folder for two attempts.
        """
        for done, (run_id, n, shift) in enumerate(attempts):
            progress("copying the folders of runs", done, len(attempts))
            source, folder = inside(self.other_runs, run_id, str(n)), inside(self.runs, run_id, str(n + shift))
            if not source.is_dir() or source in self._copies or _same(source, folder):
                continue
            if _same(self.runs, self.other_runs):
                raise LrurunError(
                    f"run {run_id}: both ledgers have attempts of it in the runs folder {self.runs}",
                    "copy the folder of the other ledger, and name the copy with --other-runs",
                )
            copy = folder.with_name(f"{folder.name}.new-{self._stamp}")
            self._copies[source] = copy
            try:
                shutil.copytree(source, copy, ignore=_not_copied)
            except OSError as error:
                raise LrurunError(
                    f"{folder}: {error.strerror or error}", "free some space, or change the permissions there"
                ) from None

    def move(self, attempts: Iterable[MergedAttempt]) -> None:
        """Moves the copies to their paths; existing folders are renamed. Attempts that are new since `copy` are
        copied too."""
        attempts = list(attempts)
        self.copy(attempts)
        for run_id, n, shift in attempts:
            copy = self._copies.get(inside(self.other_runs, run_id, str(n)))
            if copy is None:
                continue
            folder, old = inside(self.runs, run_id, str(n + shift)), None
            try:
                if folder.exists():
                    old = folder.rename(folder.with_name(f"{folder.name}.old-{self._stamp}"))
                self._moved.append((folder, old))
                copy.rename(folder)
            except OSError as error:
                raise LrurunError(f"{folder}: {error.strerror or error}", "change the permissions there") from None

    def undo(self) -> None:
        """Puts the folders back that had these paths before."""
        for folder, old in reversed(self._moved):
            shutil.rmtree(folder, ignore_errors=True)
            if old is not None:
                old.rename(folder)

    def clean(self) -> None:
        """Removes copies that were not moved."""
        for copy in self._copies.values():
            shutil.rmtree(copy, ignore_errors=True)


def _same(first: Path, second: Path) -> bool:
    return first.exists() and second.exists() and first.samefile(second)


def _not_copied(folder: str, names: list[str]) -> list[str]:
    """Links, which could lead anywhere, and whatever is neither a file nor a folder."""
    paths = {name: os.path.join(folder, name) for name in names}
    return [n for n, path in paths.items() if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path))]
