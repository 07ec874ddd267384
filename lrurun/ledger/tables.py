"""The tables of the ledger. A change here needs a migration beside it: a test compares the two.

Numbers inside, text outside: rows refer to runs by `runs.number`, people by `runs.id`. Columns that hold tables are
JSON text. Times are seconds since 1970, UTC. All tables are STRICT, so that no text ends up where numbers belong.
"""

from __future__ import annotations

from sqlalchemy import (
    REAL,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

SCHEMA = "0002"
"""The newest revision in `migrations/versions`. Revisions are four digits and sort as text."""

VERSION_TABLE = "lrurun_version"

APPLICATION_ID = 0x4C525552
""""LRUR" in the header of the file, for `file` and other programs that wonder what it is."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

info = Table(
    "ledger_info",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    comment="lrurun: the version that created or last migrated this file",
    sqlite_strict=True,
)

ladders = Table(
    "ladders",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("profile", Text),
    Column("spec", Text, nullable=False),
    Column("created_at", REAL, nullable=False),
    sqlite_strict=True,
)

runs = Table(
    "runs",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("fingerprint", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("superseded", Integer, nullable=False),
    Column("task", Text, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, comment="number of the newest attempt; 0 before the first"),
    Column("step", Integer, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("parameters", Integer),
    Column("config", Text, nullable=False),
    Column("execution", Text, nullable=False),
    Column("provenance", Text, nullable=False),
    Column("result", Text),
    Column("error", Text),
    Column("data_sha256", Text),
    Column("created_at", REAL, nullable=False),
    Column("finished_at", REAL),
    UniqueConstraint("fingerprint", "generation"),
    CheckConstraint(
        "state IN ('queued', 'running', 'done', 'diverged', 'failed', 'interrupted')",
        name="state",
    ),
    CheckConstraint("superseded IN (0, 1)", name="superseded"),
    sqlite_strict=True,
)
Index("ix_runs_running", runs.c.number, sqlite_where=text("state = 'running'"))
Index("ix_runs_queued", runs.c.number, sqlite_where=text("state = 'queued'"))

ladder_runs = Table(
    "ladder_runs",
    metadata,
    # Counts up: the first membership of a run names the instance that it was first made for.
    Column("id", Integer, primary_key=True),
    Column("ladder", Integer, ForeignKey(ladders.c.id), nullable=False),
    Column("run", Integer, ForeignKey(runs.c.number), nullable=False),
    Column("rung", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("position", Integer, nullable=False),
    UniqueConstraint("ladder", "run", "rung", "stage"),
    sqlite_strict=True,
)
Index("ix_ladder_runs_position", ladder_runs.c.ladder, ladder_runs.c.position)
Index("ix_ladder_runs_run", ladder_runs.c.run)

attempts = Table(
    "attempts",
    metadata,
    Column("run", Integer, ForeignKey(runs.c.number), primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("host", Text, nullable=False),
    Column("boot", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("pid_started", REAL, nullable=False),
    Column("started_at", REAL, nullable=False),
    Column("heartbeat_at", REAL, nullable=False),
    Column("seen_at", REAL, nullable=False),
    Column("ended_at", REAL),
    Column("reason", Text),
    Column("resumed_from", Integer),
    Column("environment", Text, nullable=False),
    Column("code", Text, comment="the code version as text, so that lists of runs need no JSON"),
    sqlite_strict=True,
)

metric_keys = Table(
    "metric_keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    sqlite_strict=True,
)

metrics = Table(
    "metrics",
    metadata,
    Column("run", Integer, ForeignKey(runs.c.number), primary_key=True),
    Column("key", Integer, ForeignKey(metric_keys.c.id), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("value", REAL, comment="NULL is NaN, which SQLite cannot hold; infinities are stored as they are"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("bytes", Integer),
    Column("sha256", Text),
    ForeignKeyConstraint(["run", "attempt"], [attempts.c.run, attempts.c.n]),
    CheckConstraint("state IN ('saving', 'committed')", name="state"),
    sqlite_strict=True,
)
Index("ix_checkpoints_run", checkpoints.c.run, checkpoints.c.step)

events = Table(
    "events",
    metadata,
    # Never reused, so that whoever read up to a number has seen all before it.
    Column("id", Integer, primary_key=True),
    Column("ladder", Integer, ForeignKey(ladders.c.id)),
    Column("run", Integer, ForeignKey(runs.c.number)),
    Column("attempt", Integer),
    Column("time", REAL, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)
Index("ix_events_run", events.c.run, sqlite_where=text("run IS NOT NULL"))
Index("ix_events_ladder", events.c.ladder, sqlite_where=text("ladder IS NOT NULL"))

# What people say of runs stands beside them: a finished run never changes. Their notes are events.

tags = Table(
    "tags",
    metadata,
    Column("run", Integer, ForeignKey(runs.c.number), primary_key=True),
    Column("name", Text, primary_key=True),
    sqlite_strict=True,
)

exclusions = Table(
    "exclusions",
    metadata,
    Column("run", Integer, ForeignKey(runs.c.number), primary_key=True),
    Column("why", Text, nullable=False),
    Column("time", REAL, nullable=False),
    comment="runs that reports leave out",
    sqlite_strict=True,
)

TRIGGERS = {
    "runs_finished_stay": """
        CREATE TRIGGER runs_finished_stay
        BEFORE UPDATE OF number, id, fingerprint, generation, task, seed, state, attempt, step, steps, parameters,
            config, execution, provenance, result, error, data_sha256, created_at, finished_at ON runs
        WHEN OLD.state IN ('done', 'diverged')
        BEGIN SELECT RAISE(ABORT, 'a finished run never changes'); END""",
    "runs_finished_not_deleted": """
        CREATE TRIGGER runs_finished_not_deleted
        BEFORE DELETE ON runs
        WHEN OLD.state IN ('done', 'diverged')
        BEGIN SELECT RAISE(ABORT, 'a finished run is never deleted'); END""",
}
"""Kept beside the tables: rebuilding `runs` in a migration drops them, and has to create them again."""
