"""Settings and environments are shared by content; runs hold the newest values of their metrics.

The tables `runs` and `attempts` become `stored_runs` and `stored_attempts`, which refer to the texts in `documents`;
views of the old names show the old columns.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

AT_ONCE = 1000
"""How many rows are read into memory at a time."""


def upgrade() -> None:
    connection = op.get_bind()
    op.create_table(
        "documents",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("seed_at", sa.Integer),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_documents"),
        sa.UniqueConstraint("sha256", name="uq_documents_sha256"),
        sqlite_strict=True,
    )
    known: dict[str, int] = {}
    # Renaming the old tables changes the references to them in the other tables, which the new tables then take over.
    for name in ("runs", "attempts"):
        op.rename_table(name, f"stored_{name}")
    _create_runs()
    _copy(connection, "runs", sa.text("SELECT * FROM stored_runs ORDER BY number"), known)
    _create_attempts()
    _copy(connection, "attempts", sa.text("SELECT * FROM stored_attempts ORDER BY run, n"), known)
    _create_views("new")
    _verify(connection)
    for name in ("runs", "attempts"):
        op.execute(f"DROP VIEW {name}")
        op.drop_table(f"stored_{name}")
        op.rename_table(f"new_{name}", f"stored_{name}")
    _fill_newest(connection)
    op.create_index("ix_runs_running", "stored_runs", ["number"], sqlite_where=sa.text("state = 'running'"))
    op.create_index("ix_runs_queued", "stored_runs", ["number"], sqlite_where=sa.text("state = 'queued'"))
    op.create_index("ix_runs_not_done", "stored_runs", ["number"], sqlite_where=sa.text("state != 'done'"))
    _order_memberships()
    _create_views("stored")
    _create_triggers()


def _create_runs() -> None:
    op.create_table(
        "new_runs",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("superseded", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("parameters", sa.Integer),
        sa.Column("last_loss", sa.REAL),
        sa.Column("last_score", sa.REAL),
        sa.Column("last_speed", sa.REAL),
        sa.Column("val_accuracy", sa.REAL),
        sa.Column("test_accuracy", sa.REAL),
        sa.Column("steps_per_second", sa.REAL),
        sa.Column("created_at", sa.REAL, nullable=False),
        sa.Column("finished_at", sa.REAL),
        sa.Column("config_id", sa.Integer, nullable=False),
        sa.Column("execution_id", sa.Integer, nullable=False),
        sa.Column("provenance_id", sa.Integer, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("data_sha256", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("number", name="pk_stored_runs"),
        sa.UniqueConstraint("id", name="uq_stored_runs_id"),
        sa.UniqueConstraint("fingerprint", "generation", name="uq_stored_runs_fingerprint"),
        sa.ForeignKeyConstraint(["config_id"], ["documents.id"], name="fk_stored_runs_config_id"),
        sa.ForeignKeyConstraint(["execution_id"], ["documents.id"], name="fk_stored_runs_execution_id"),
        sa.ForeignKeyConstraint(["provenance_id"], ["documents.id"], name="fk_stored_runs_provenance_id"),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'diverged', 'failed', 'interrupted')", name="ck_stored_runs_state"
        ),
        sa.CheckConstraint("superseded IN (0, 1)", name="ck_stored_runs_superseded"),
        sqlite_strict=True,
    )


def _create_attempts() -> None:
    op.create_table(
        "new_attempts",
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("n", sa.Integer, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("boot", sa.Text, nullable=False),
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("pid_started", sa.REAL, nullable=False),
        sa.Column("started_at", sa.REAL, nullable=False),
        sa.Column("heartbeat_at", sa.REAL, nullable=False),
        sa.Column("seen_at", sa.REAL, nullable=False),
        sa.Column("ended_at", sa.REAL),
        sa.Column("reason", sa.Text),
        sa.Column("resumed_from", sa.Integer),
        sa.Column("numerics", sa.Integer, nullable=False),
        sa.Column("environment_id", sa.Integer, nullable=False),
        sa.Column("code", sa.Text),
        sa.PrimaryKeyConstraint("run", "n", name="pk_stored_attempts"),
        sa.ForeignKeyConstraint(["run"], ["stored_runs.number"], name="fk_stored_attempts_run"),
        sa.ForeignKeyConstraint(["environment_id"], ["documents.id"], name="fk_stored_attempts_environment_id"),
        sqlite_strict=True,
    )


def _copy(connection: sa.Connection, name: str, rows: sa.TextClause, known: dict[str, int]) -> None:
    """Fill a new table from the old one. `known` are the documents so far: their hashes and numbers."""
    found = connection.execute(rows, execution_options={"yield_per": AT_ONCE})
    for part in found.mappings().partitions(AT_ONCE):
        documents: list[dict[str, Any]] = []
        copies = [dict(row) for row in part]
        for row in copies:
            if name == "attempts":
                row["numerics"] = 1
                row["environment_id"] = _number(row.pop("environment"), None, known, documents)
                continue
            row["config_id"] = _number(row.pop("config"), row["seed"], known, documents)
            row["execution_id"] = _number(row.pop("execution"), None, known, documents)
            row["provenance_id"] = _number(row.pop("provenance"), None, known, documents)
            row |= _results(row["result"])
        if documents:
            connection.execute(
                sa.text("INSERT INTO documents (id, sha256, seed_at, text) VALUES (:id, :sha256, :seed_at, :text)"),
                documents,
            )
        columns = list(copies[0])
        values = ", ".join(f":{column}" for column in columns)
        connection.execute(sa.text(f"INSERT INTO new_{name} ({', '.join(columns)}) VALUES ({values})"), copies)


def _number(text: str, seed: int | None, known: dict[str, int], documents: list[dict[str, Any]]) -> int:
    """The number of the document with a text, which is added to `documents` if it is not known."""
    before, found, after = text.rpartition(f'"seed":{seed}')
    seed_at = None
    if found and after.startswith((",", "}")):
        text, seed_at = f'{before}"seed":null{after}', len(before) + len('"seed":')
    sha256 = hashlib.sha256(f"{seed_at}\n{text}".encode()).hexdigest()
    if sha256 not in known:
        known[sha256] = len(known) + 1
        documents.append({"id": known[sha256], "sha256": sha256, "seed_at": seed_at, "text": text})
    return known[sha256]


def _results(text: str | None) -> dict[str, float | None]:
    """The numbers of a result that have a column; infinities are stored as text in it."""
    try:
        result = json.loads(text or "{}")
    except ValueError:
        result = {}
    columns = {
        "val_accuracy": "val/accuracy",
        "test_accuracy": "test/accuracy",
        "steps_per_second": "machine/steps_per_second",
    }
    return {column: _real(result.get(key)) if isinstance(result, dict) else None for column, key in columns.items()}


def _real(value: object) -> float | None:
    if value in ("inf", "-inf") or (isinstance(value, int | float) and not isinstance(value, bool)):
        try:
            number = float(value)
        except OverflowError:
            return None
        return None if math.isnan(number) else number
    return None


def _verify(connection: sa.Connection) -> None:
    """Compare the texts that the views make with those in the old tables."""
    same = {
        "runs": "new.number = old.number AND new.config = old.config AND new.execution = old.execution"
        " AND new.provenance = old.provenance",
        "attempts": "new.run = old.run AND new.n = old.n AND new.environment = old.environment",
    }
    for name, condition in same.items():
        lost = sa.text(
            f"SELECT count(*) FROM stored_{name} old WHERE NOT EXISTS (SELECT 1 FROM {name} new WHERE {condition})"
        )
        if count := connection.execute(lost).scalar_one():
            raise ValueError(f"texts of {count} {name} would not stay as they are; nothing was changed")


def _fill_newest(connection: sa.Connection) -> None:
    keys = {row.name: row.id for row in connection.execute(sa.text("SELECT name, id FROM metric_keys"))}
    for column, key in {
        "last_loss": "train/loss",
        "last_score": "val/accuracy",
        "last_speed": "machine/steps_per_second",
    }.items():
        connection.execute(
            sa.text(
                f"UPDATE stored_runs SET {column} = (SELECT value FROM metrics m WHERE m.run = stored_runs.number"
                " AND m.key = :key ORDER BY m.step DESC LIMIT 1)"
            ),
            {"key": keys.get(key)},
        )


def _order_memberships() -> None:
    """The index of the constraint begins with the run, and replaces the index of runs; the other one has every column
    that the progress of a ladder needs."""
    op.create_table(
        "new_ladder_runs",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("ladder", sa.Integer, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("rung", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ladder_runs"),
        sa.ForeignKeyConstraint(["ladder"], ["ladders.id"], name="fk_ladder_runs_ladder"),
        sa.ForeignKeyConstraint(["run"], ["stored_runs.number"], name="fk_ladder_runs_run"),
        sa.UniqueConstraint("run", "ladder", "rung", "stage", name="uq_ladder_runs_run"),
        sqlite_strict=True,
    )
    columns = "id, ladder, run, rung, stage, position"
    op.execute(f"INSERT INTO new_ladder_runs ({columns}) SELECT {columns} FROM ladder_runs ORDER BY id")
    op.drop_table("ladder_runs")
    op.rename_table("new_ladder_runs", "ladder_runs")
    op.create_index("ix_ladder_runs_ladder", "ladder_runs", ["ladder", "rung", "stage", "position", "run"])


def _create_views(stored: str) -> None:
    op.execute(
        f"""
        CREATE VIEW runs AS
        SELECT number, id, fingerprint, generation, superseded, task, seed, state, attempt, step, steps, parameters,
            (SELECT coalesce(substr(d.text, 1, d.seed_at) || r.seed || substr(d.text, d.seed_at + 5), d.text)
                FROM documents d WHERE d.id = r.config_id) AS config,
            (SELECT d.text FROM documents d WHERE d.id = r.execution_id) AS execution,
            (SELECT d.text FROM documents d WHERE d.id = r.provenance_id) AS provenance,
            result, error, data_sha256, created_at, finished_at,
            last_loss, last_score, last_speed, val_accuracy, test_accuracy, steps_per_second
        FROM {stored}_runs r"""
    )
    op.execute(
        f"""
        CREATE VIEW attempts AS
        SELECT run, n, host, boot, namespace, pid, pid_started, started_at, heartbeat_at, seen_at, ended_at, reason,
            resumed_from, (SELECT d.text FROM documents d WHERE d.id = a.environment_id) AS environment, code, numerics
        FROM {stored}_attempts a"""
    )


def _create_triggers() -> None:
    op.execute(
        """
        CREATE TRIGGER runs_finished_stay
        BEFORE UPDATE OF number, id, task, seed, state, generation, attempt, step, steps, parameters,
            last_loss, last_score, last_speed, val_accuracy, test_accuracy, steps_per_second, created_at, finished_at,
            config_id, execution_id, provenance_id, fingerprint, data_sha256, result, error ON stored_runs
        WHEN OLD.state IN ('done', 'diverged')
        BEGIN SELECT RAISE(ABORT, 'a finished run never changes'); END"""
    )
    op.execute(
        """
        CREATE TRIGGER runs_finished_not_deleted
        BEFORE DELETE ON stored_runs
        WHEN OLD.state IN ('done', 'diverged')
        BEGIN SELECT RAISE(ABORT, 'a finished run is never deleted'); END"""
    )
    op.execute(
        """
        CREATE TRIGGER documents_stay
        BEFORE UPDATE ON documents
        BEGIN SELECT RAISE(ABORT, 'a document never changes'); END"""
    )
    op.execute(
        """
        CREATE TRIGGER documents_not_deleted
        BEFORE DELETE ON documents
        BEGIN SELECT RAISE(ABORT, 'a document is never deleted'); END"""
    )
