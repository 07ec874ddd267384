"""The tables of the ledger, from which new ledgers are made. A change here needs a migration for those that exist.

Rows refer to runs by number; users and other modules by id. Columns that hold tables are JSON text. Times are seconds
since 1970, UTC. All tables are STRICT, so that a column of numbers cannot contain text.

Settings and environments are the same for many runs: `documents` has each text once, and `stored_runs` and
`stored_attempts` refer to it. The views `runs` and `attempts` show the rows with their texts.

The tables are the same in a file and on a server: there, whole numbers are bigint, other numbers double precision, and
texts are compared by code points (COLLATE "C"), as SQLite does; blobs are bytea.
"""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    select,
    text,
)
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.types import TypeEngine

from lrurun.ledger.database.sql import NUMBER, WHOLE, create_refusal, create_tables

SCHEMA = "1002"
"""The newest revision in `migrations/versions`. Revisions are four digits and sort as text."""

_SINCE_1002 = frozenset(
    {
        *("hidden", "removals", "removed_runs", "ix_removed_runs_run", "ix_removed_runs_ladder_key"),
        *("ix_stored_runs_config_id", "ix_stored_runs_execution_id", "ix_stored_runs_provenance_id"),
        *("ix_stored_attempts_environment_id", "ix_item_results_test_set"),
    }
)

LACKING = {"1000": frozenset({"test_sets", "item_results"}) | _SINCE_1002, "1001": _SINCE_1002}
"""Older revision -> the tables and indexes that it does not have. Ledgers of these revisions are read as they are;
others have to be migrated before."""

VERSION_TABLE = "lrurun_version"

APPLICATION_ID = 0x4C525552
""""LRUR" in the header of the file, by which `file` and other programs can recognise it."""

BYTES: TypeEngine[bytes] = LargeBinary()

TEXT: TypeEngine[str] = Text().with_variant(Text(collation="C"), "postgresql")

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
    Column("name", TEXT, primary_key=True),
    Column("value", TEXT, nullable=False),
    comment="lrurun: the version that created or last migrated this file",
    sqlite_strict=True,
)

ladders = Table(
    "ladders",
    metadata,
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("key", TEXT, nullable=False, unique=True),
    Column("short_name", TEXT, nullable=False, unique=True, comment="which people type"),
    Column("name", TEXT, nullable=False, comment="of the ladder"),
    Column("task", TEXT, nullable=False),
    Column("profile", TEXT),
    Column("kind", TEXT, nullable=False, comment="of its runs"),
    Column("spec", TEXT, nullable=False),
    Column("created_at", NUMBER, nullable=False),
    Column("user_name", TEXT, key="user", comment="of the operating system's user who requested it first"),
    sqlite_strict=True,
)

documents = Table(
    "documents",
    metadata,
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("sha256", TEXT, nullable=False, unique=True, comment="of `seed_at`, a line end and the text"),
    Column("seed_at", WHOLE, comment="how many characters precede the null that stands for the run's seed"),
    Column("text", TEXT, nullable=False),
    comment="JSON texts that runs and attempts share: configurations (with null for the seed), execution settings, "
    "provenance, environments. A row never changes, and stays while something refers to it",
    sqlite_strict=True,
)

# What lists of runs need comes first, long texts last: SQLite reads a row only as far as it needs to.
runs = Table(
    "stored_runs",
    metadata,
    Column("number", WHOLE, Identity(), primary_key=True),
    Column("id", TEXT, nullable=False, unique=True),
    Column("kind", TEXT, nullable=False, comment="'training', or 'study': a cell of one"),
    Column("task", TEXT, nullable=False),
    Column("seed", WHOLE, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("superseded", WHOLE, nullable=False),
    Column("generation", WHOLE, nullable=False),
    Column("attempt", WHOLE, nullable=False, comment="number of the newest attempt; 0 before the first"),
    Column("step", WHOLE, nullable=False),
    Column("steps", WHOLE, nullable=False),
    Column("parameters", WHOLE),
    Column("last_loss", NUMBER, comment="the newest training loss; null if it is NaN or there is none"),
    Column("last_score", NUMBER, comment="the newest validation score"),
    Column("last_speed", NUMBER, comment="the newest steps per second"),
    Column("val_accuracy", NUMBER, comment="validation accuracy in `result`; null if it is NaN or there is none"),
    Column("test_accuracy", NUMBER, comment="test accuracy in `result`"),
    Column("steps_per_second", NUMBER, comment="steps per second in `result`"),
    Column("created_at", NUMBER, nullable=False),
    Column("finished_at", NUMBER),
    Column("config_id", WHOLE, ForeignKey(documents.c.id), nullable=False),
    Column("execution_id", WHOLE, ForeignKey(documents.c.id), nullable=False),
    Column("provenance_id", WHOLE, ForeignKey(documents.c.id), nullable=False),
    Column("fingerprint", TEXT, nullable=False),
    Column("data_sha256", TEXT),
    Column("result", TEXT),
    Column("error", TEXT),
    UniqueConstraint("fingerprint", "generation"),
    CheckConstraint(
        "state IN ('queued', 'running', 'done', 'diverged', 'failed', 'interrupted')",
        name="state",
    ),
    CheckConstraint("superseded IN (0, 1)", name="superseded"),
    comment="the runs; the view `runs` shows them with their settings",
    sqlite_strict=True,
)
Index("ix_runs_running", runs.c.number, sqlite_where=text("state = 'running'"))
Index("ix_runs_queued", runs.c.number, sqlite_where=text("state = 'queued'"))
Index("ix_runs_not_done", runs.c.number, sqlite_where=text("state != 'done'"))

ladder_runs = Table(
    "ladder_runs",
    metadata,
    # Increases: the first membership of a run is the instance that it was created for.
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("ladder", WHOLE, ForeignKey(ladders.c.id), nullable=False),
    Column("run", WHOLE, ForeignKey(runs.c.number), nullable=False),
    Column("rung", TEXT, nullable=False),
    Column("stage", TEXT, nullable=False),
    Column("position", WHOLE, nullable=False),
    # Its index serves searches by run; the other one, those by ladder.
    UniqueConstraint("run", "ladder", "rung", "stage"),
    sqlite_strict=True,
)
# Has all columns that the progress of a ladder needs, in the order in which it adds runs up.
Index(
    "ix_ladder_runs_ladder",
    *(ladder_runs.c[name] for name in ("ladder", "rung", "stage", "position", "run")),
)

attempts = Table(
    "stored_attempts",
    metadata,
    Column("run", WHOLE, ForeignKey(runs.c.number), primary_key=True),
    Column("n", WHOLE, primary_key=True),
    Column("host", TEXT, nullable=False),
    Column("boot", TEXT, nullable=False),
    Column("namespace", TEXT, nullable=False),
    Column("pid", WHOLE, nullable=False),
    Column("pid_started", NUMBER, nullable=False),
    Column("started_at", NUMBER, nullable=False),
    Column("heartbeat_at", NUMBER, nullable=False),
    Column("seen_at", NUMBER, nullable=False),
    Column("ended_at", NUMBER),
    Column("outcome", TEXT, comment="how it ended; null until then"),
    Column("reason", TEXT, comment="the same with its cause, as a sentence"),
    Column("resumed_from", WHOLE),
    Column("numerics", WHOLE, nullable=False, comment="version of the arithmetic that the attempt used"),
    Column("environment_id", WHOLE, ForeignKey(documents.c.id), nullable=False),
    Column("code", TEXT, comment="the code version as text, so that lists of runs need no JSON"),
    Column("user_name", TEXT, key="user", comment="of the operating system's user whose process it is"),
    CheckConstraint("outcome IN ('done', 'diverged', 'failed', 'interrupted', 'exited', 'rejected')", name="outcome"),
    comment="the attempts; the view `attempts` shows them with their environment",
    sqlite_strict=True,
)

# Without an index on what refers to them, deleting a document or a test set would read all runs.
Index("ix_stored_runs_config_id", runs.c.config_id)
Index("ix_stored_runs_execution_id", runs.c.execution_id)
Index("ix_stored_runs_provenance_id", runs.c.provenance_id)
Index("ix_stored_attempts_environment_id", attempts.c.environment_id)

metric_keys = Table(
    "metric_keys",
    metadata,
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("name", TEXT, nullable=False, unique=True),
    sqlite_strict=True,
)

metrics = Table(
    "metrics",
    metadata,
    Column("run", WHOLE, ForeignKey(runs.c.number), primary_key=True),
    Column("key", WHOLE, ForeignKey(metric_keys.c.id), primary_key=True),
    Column("step", WHOLE, primary_key=True),
    Column("value", NUMBER, comment="NULL is NaN, which SQLite cannot hold; infinities are stored as they are"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

eigenvalues = Table(
    "eigenvalues",
    metadata,
    Column("run", WHOLE, ForeignKey(runs.c.number), primary_key=True),
    Column("moment", TEXT, primary_key=True, comment="at initialisation ('start') or after the last step ('end')"),
    Column("layer", WHOLE, primary_key=True),
    Column("pairs", TEXT, comment="JSON: [[real, imaginary], ...]; NULL where the recurrence has no eigenvalues"),
    CheckConstraint("moment IN ('start', 'end')", name="moment"),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)

test_sets = Table(
    "test_sets",
    metadata,
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("sha256", TEXT, nullable=False, unique=True, comment="of all that follows"),
    Column("count", WHOLE, nullable=False, comment="of the items"),
    Column("order_sha256", TEXT, nullable=False, comment="of the items, in their order; empty where it is not known"),
    Column("weights", BYTES, comment="packed: the weight of each item in the score; NULL where they are equal"),
    Column("groups", BYTES, comment="packed: the number of the group of each item; NULL where there are no groups"),
    comment="the items of test sets, which runs share; a row never changes",
    sqlite_strict=True,
)

# With row ids: without them, SQLite would give each row of more than about 1,000 bytes a page of its own.
item_results = Table(
    "item_results",
    metadata,
    Column("run", WHOLE, ForeignKey(runs.c.number), primary_key=True),
    Column("result", TEXT, primary_key=True, comment="the name of the score, as in test/accuracy"),
    Column("test_set", WHOLE, ForeignKey(test_sets.c.id), nullable=False),
    Column("sums", BYTES, comment="packed: what each item contributes; NULL where `ledger gc --items` removed them"),
    comment="the per-item results, of which the score is the weighted mean",
    sqlite_strict=True,
)
Index("ix_item_results_test_set", item_results.c.test_set)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("run", WHOLE, nullable=False),
    Column("attempt", WHOLE, nullable=False),
    Column("step", WHOLE, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("path", TEXT, nullable=False),
    Column("bytes", WHOLE),
    Column("sha256", TEXT),
    ForeignKeyConstraint(["run", "attempt"], [attempts.c.run, attempts.c.n]),
    CheckConstraint("state IN ('saving', 'committed')", name="state"),
    sqlite_strict=True,
)
Index("ix_checkpoints_run", checkpoints.c.run, checkpoints.c.step)

events = Table(
    "events",
    metadata,
    # Never reused: a reader who has read up to a number has seen all events before it.
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("ladder", WHOLE, ForeignKey(ladders.c.id)),
    Column("run", WHOLE, ForeignKey(runs.c.number)),
    Column("attempt", WHOLE),
    Column("time", NUMBER, nullable=False),
    Column("kind", TEXT, nullable=False),
    Column("text", TEXT, nullable=False, comment="for people"),
    Column("payload", TEXT, comment="JSON: for programs, where the kind of event has one"),
    sqlite_strict=True,
    sqlite_autoincrement=True,
)
Index("ix_events_run", events.c.run, sqlite_where=text("run IS NOT NULL"))
Index("ix_events_ladder", events.c.ladder, sqlite_where=text("ladder IS NOT NULL"))


# Tags and exclusions are tables of their own, because a finished run never changes. Notes are events.

tags = Table(
    "tags",
    metadata,
    Column("run", WHOLE, ForeignKey(runs.c.number), primary_key=True),
    Column("name", TEXT, primary_key=True),
    sqlite_strict=True,
)

exclusions = Table(
    "exclusions",
    metadata,
    Column("run", WHOLE, ForeignKey(runs.c.number), primary_key=True),
    Column("why", TEXT, nullable=False),
    Column("time", NUMBER, nullable=False),
    comment="runs that reports leave out",
    sqlite_strict=True,
)

# What is set aside or removed. Rows of removals stay when their runs and instances are gone, so that they refer to
# those by id and key.

hidden = Table(
    "hidden",
    metadata,
    Column("ladder", WHOLE, ForeignKey(ladders.c.id), primary_key=True),
    Column("time", NUMBER, nullable=False),
    Column("user_name", TEXT, key="user", comment="of the operating system's user who hid it"),
    comment="ladder instances that lists leave out",
    sqlite_strict=True,
)

removals = Table(
    "removals",
    metadata,
    Column("id", WHOLE, Identity(), primary_key=True),
    Column("key", TEXT, nullable=False, unique=True, comment="the same in every ledger that has it"),
    Column("kind", TEXT, nullable=False, comment="'forgotten', or 'left out' when a part of a ledger was copied"),
    Column("time", NUMBER, nullable=False),
    Column("user_name", TEXT, key="user", comment="of the operating system's user"),
    Column("selection", TEXT, nullable=False, comment="what was named: an instance, or a condition"),
    Column("why", TEXT, comment="the user's reason"),
    Column("runs", WHOLE, nullable=False, comment="how many"),
    Column("bytes", WHOLE, comment="of their files; null until they are removed, and for runs that were left out"),
    Column("finished_at", NUMBER, comment="null while files remain"),
    Column("files", TEXT, comment="JSON: the files that go with the runs; null for runs that were left out"),
    Column("instances", TEXT, comment="JSON: the instances that were forgotten with all their runs; null for none"),
    CheckConstraint("kind IN ('forgotten', 'left out')", name="kind"),
    comment="what is not in this ledger any more, or was left out of it: a row never changes once it is finished",
    sqlite_strict=True,
)

removed_runs = Table(
    "removed_runs",
    metadata,
    Column("removal", WHOLE, ForeignKey(removals.c.id), primary_key=True),
    Column("run", TEXT, primary_key=True, comment="its id"),
    Column("ladder_key", TEXT, primary_key=True, comment="of an instance that it was in; empty for a run of none"),
    Column("rung", TEXT, primary_key=True),
    Column("stage", TEXT, primary_key=True),
    Column("instance", TEXT, nullable=False, comment="the short name of the instance then"),
    Column("task", TEXT, nullable=False),
    Column("seed", WHOLE, nullable=False),
    Column("state", TEXT, nullable=False),
    comment="the runs of removals, with their places in ladders",
    sqlite_strict=True,
)
Index("ix_removed_runs_run", removed_runs.c.run)
Index("ix_removed_runs_ladder_key", removed_runs.c.ladder_key)

_FINISHED_COLUMNS = ", ".join(column.name for column in runs.c if column.name != "superseded")
_FINISHED = "OLD.state IN ('done', 'diverged')"

TRIGGERS = {
    "runs_finished_stay": (f"UPDATE OF {_FINISHED_COLUMNS}", "stored_runs", _FINISHED, "a finished run never changes"),
    "documents_stay": ("UPDATE", "documents", None, "a document never changes"),
}
"""Name of a trigger -> the statement that it refuses, the table, a condition on rows, and the error. A migration that
rebuilds a table drops its triggers, and has to create them again."""

UNRECORDED = "runs_finished_not_deleted"
"""The name of the trigger that refuses to delete a finished run, unless it is being forgotten."""

_BEING_FORGOTTEN = (
    "EXISTS (SELECT 1 FROM removed_runs x JOIN removals m ON m.id = x.removal WHERE x.run = OLD.id"
    " AND m.kind = 'forgotten' AND m.finished_at IS NULL AND m.time >= OLD.created_at)"
)
"""A removal whose files remain has the run. Removals of other ledgers are finished; a run trained again is newer."""

VIEWS = {
    "runs": """
        CREATE VIEW runs AS
        SELECT number, id, fingerprint, generation, superseded, kind, task, seed, state, attempt, step, steps,
            parameters,
            (SELECT coalesce(
                    substr(d.text, 1, CAST(d.seed_at AS integer)) || r.seed
                        || substr(d.text, CAST(d.seed_at AS integer) + 5), d.text)
                FROM documents d WHERE d.id = r.config_id) AS config,
            (SELECT d.text FROM documents d WHERE d.id = r.execution_id) AS execution,
            (SELECT d.text FROM documents d WHERE d.id = r.provenance_id) AS provenance,
            result, error, data_sha256, created_at, finished_at,
            last_loss, last_score, last_speed, val_accuracy, test_accuracy, steps_per_second
        FROM stored_runs r""",
    "attempts": """
        CREATE VIEW attempts AS
        SELECT run, n, host, boot, namespace, pid, pid_started, started_at, heartbeat_at, seen_at, ended_at, outcome,
            reason, resumed_from, (SELECT d.text FROM documents d WHERE d.id = a.environment_id) AS environment, code,
            numerics, user_name
        FROM stored_attempts a""",
}
"""Runs and attempts with their JSON texts, for people's queries. Before a migration rebuilds a table, it drops them."""


def create(connection: Connection) -> None:
    """Makes the tables, triggers and views in an empty database."""
    create_tables(connection, metadata)
    for name, (statement, table, rows, message) in TRIGGERS.items():
        create_refusal(connection, name, statement, table, rows, message)
    create_refusal(
        connection, UNRECORDED, "DELETE", "stored_runs", _FINISHED, "a finished run is only deleted by ledger forget",
        unless=_BEING_FORGOTTEN,
    )  # fmt: skip
    for definition in VIEWS.values():
        connection.exec_driver_sql(definition)


def document(reference: Column[int]) -> ColumnElement[str]:
    """The text to which a column refers."""
    return select(documents.c.text).where(documents.c.id == reference).scalar_subquery()


# The texts of the views.
EXECUTION = document(runs.c.execution_id)
SOURCES = document(runs.c.provenance_id)
ENVIRONMENT = document(attempts.c.environment_id)
"""The JSON text of an attempt."""
