"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger_info",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_ledger_info"),
        sqlite_strict=True,
    )
    op.create_table(
        "ladders",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("profile", sa.Text),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("created_at", sa.REAL, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ladders"),
        sa.UniqueConstraint("key", name="uq_ladders_key"),
        sqlite_strict=True,
    )
    op.create_table(
        "runs",
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("superseded", sa.Integer, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("seed", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("parameters", sa.Integer),
        sa.Column("config", sa.Text, nullable=False),
        sa.Column("execution", sa.Text, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("data_sha256", sa.Text),
        sa.Column("created_at", sa.REAL, nullable=False),
        sa.Column("finished_at", sa.REAL),
        sa.PrimaryKeyConstraint("number", name="pk_runs"),
        sa.UniqueConstraint("id", name="uq_runs_id"),
        sa.UniqueConstraint("fingerprint", "generation", name="uq_runs_fingerprint"),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'done', 'diverged', 'failed', 'interrupted')", name="ck_runs_state"
        ),
        sa.CheckConstraint("superseded IN (0, 1)", name="ck_runs_superseded"),
        sqlite_strict=True,
    )
    op.create_index("ix_runs_running", "runs", ["number"], sqlite_where=sa.text("state = 'running'"))
    op.create_index("ix_runs_queued", "runs", ["number"], sqlite_where=sa.text("state = 'queued'"))
    op.create_table(
        "ladder_runs",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("ladder", sa.Integer, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("rung", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ladder_runs"),
        sa.ForeignKeyConstraint(["ladder"], ["ladders.id"], name="fk_ladder_runs_ladder"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_ladder_runs_run"),
        sa.UniqueConstraint("ladder", "run", "rung", "stage", name="uq_ladder_runs_ladder"),
        sqlite_strict=True,
    )
    op.create_index("ix_ladder_runs_position", "ladder_runs", ["ladder", "position"])
    op.create_index("ix_ladder_runs_run", "ladder_runs", ["run"])
    op.create_table(
        "attempts",
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
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.PrimaryKeyConstraint("run", "n", name="pk_attempts"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_attempts_run"),
        sqlite_strict=True,
    )
    op.create_table(
        "metric_keys",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metric_keys"),
        sa.UniqueConstraint("name", name="uq_metric_keys_name"),
        sqlite_strict=True,
    )
    op.create_table(
        "metrics",
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("key", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("value", sa.REAL),
        sa.PrimaryKeyConstraint("run", "key", "step", name="pk_metrics"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_metrics_run"),
        sa.ForeignKeyConstraint(["key"], ["metric_keys.id"], name="fk_metrics_key"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("bytes", sa.Integer),
        sa.Column("sha256", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_checkpoints"),
        sa.ForeignKeyConstraint(["run", "attempt"], ["attempts.run", "attempts.n"], name="fk_checkpoints_run"),
        sa.CheckConstraint("state IN ('saving', 'committed')", name="ck_checkpoints_state"),
        sqlite_strict=True,
    )
    op.create_index("ix_checkpoints_run", "checkpoints", ["run", "step"])
    op.create_table(
        "events",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("ladder", sa.Integer),
        sa.Column("run", sa.Integer),
        sa.Column("attempt", sa.Integer),
        sa.Column("time", sa.REAL, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.ForeignKeyConstraint(["ladder"], ["ladders.id"], name="fk_events_ladder"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_events_run"),
        sqlite_strict=True,
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_run", "events", ["run"], sqlite_where=sa.text("run IS NOT NULL"))
    op.create_index("ix_events_ladder", "events", ["ladder"], sqlite_where=sa.text("ladder IS NOT NULL"))
    op.execute(
        """
        CREATE TRIGGER runs_finished_stay
        BEFORE UPDATE OF number, id, fingerprint, generation, task, seed, state, attempt, step, steps, parameters,
            config, execution, provenance, result, error, data_sha256, created_at, finished_at ON runs
        WHEN OLD.state IN ('done', 'diverged')
        BEGIN SELECT RAISE(ABORT, 'a finished run never changes'); END"""
    )
    op.execute(
        """
        CREATE TRIGGER runs_finished_not_deleted
        BEFORE DELETE ON runs
        WHEN OLD.state IN ('done', 'diverged')
        BEGIN SELECT RAISE(ABORT, 'a finished run is never deleted'); END"""
    )
