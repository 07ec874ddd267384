"""Adds what is hidden and what was removed. Finished runs can be deleted once they are recorded as removed, documents
when nothing refers to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "1002"
down_revision = "1001"
branch_labels = None
depends_on = None

WHOLE = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
NUMBER: TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

FINISHED = "OLD.state IN ('done', 'diverged')"
RECORDED = (
    "EXISTS (SELECT 1 FROM removed_runs x JOIN removals m ON m.id = x.removal WHERE x.run = OLD.id"
    " AND m.kind = 'forgotten' AND m.finished_at IS NULL AND m.time >= OLD.created_at)"
)
MESSAGE = "a finished run is only deleted by ledger forget"
TRIGGER = "runs_finished_not_deleted"

REFERENCES = (
    *(("stored_runs", column) for column in ("config_id", "execution_id", "provenance_id")),
    ("stored_attempts", "environment_id"),
    ("item_results", "test_set"),
)
"""What refers to documents and test sets: without an index, deleting one of these would read all rows."""


def upgrade() -> None:
    op.create_table(
        "hidden",
        sa.Column("ladder", WHOLE, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("user_name", TEXT),
        sa.PrimaryKeyConstraint("ladder", name="pk_hidden"),
        sa.ForeignKeyConstraint(["ladder"], ["ladders.id"], name="fk_hidden_ladder"),
        sqlite_strict=True,
    )
    op.create_table(
        "removals",
        sa.Column("id", WHOLE, sa.Identity(), nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("time", NUMBER, nullable=False),
        sa.Column("user_name", TEXT),
        sa.Column("selection", TEXT, nullable=False),
        sa.Column("why", TEXT),
        sa.Column("runs", WHOLE, nullable=False),
        sa.Column("bytes", WHOLE),
        sa.Column("finished_at", NUMBER),
        sa.Column("files", TEXT),
        sa.Column("instances", TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_removals"),
        sa.CheckConstraint("kind IN ('forgotten', 'left out')", name="ck_removals_kind"),
        sa.UniqueConstraint("key", name="uq_removals_key"),
        sqlite_strict=True,
    )
    op.create_table(
        "removed_runs",
        sa.Column("removal", WHOLE, nullable=False),
        sa.Column("run", TEXT, nullable=False),
        sa.Column("ladder_key", TEXT, nullable=False),
        sa.Column("rung", TEXT, nullable=False),
        sa.Column("stage", TEXT, nullable=False),
        sa.Column("instance", TEXT, nullable=False),
        sa.Column("task", TEXT, nullable=False),
        sa.Column("seed", WHOLE, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("removal", "run", "ladder_key", "rung", "stage", name="pk_removed_runs"),
        sa.ForeignKeyConstraint(["removal"], ["removals.id"], name="fk_removed_runs_removal"),
        sqlite_strict=True,
    )
    op.create_index("ix_removed_runs_run", "removed_runs", ["run"])
    op.create_index("ix_removed_runs_ladder_key", "removed_runs", ["ladder_key"])
    for table, column in REFERENCES:
        op.create_index(f"ix_{table}_{column}", table, [column])
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER documents_not_deleted ON documents")
        op.execute(f"DROP TRIGGER {TRIGGER} ON stored_runs")
        op.execute(
            f"CREATE FUNCTION lrurun_refuse_{TRIGGER}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF {RECORDED} THEN RETURN OLD; END IF;"
            " RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$"
        )
        op.execute(
            f"CREATE TRIGGER {TRIGGER} BEFORE DELETE ON stored_runs FOR EACH ROW WHEN ({FINISHED})"
            f" EXECUTE FUNCTION lrurun_refuse_{TRIGGER}('{MESSAGE}')"
        )
    else:
        op.execute("DROP TRIGGER documents_not_deleted")
        op.execute(f"DROP TRIGGER {TRIGGER}")
        op.execute(
            f"CREATE TRIGGER {TRIGGER} BEFORE DELETE ON stored_runs WHEN ({FINISHED}) AND NOT ({RECORDED})"
            f" BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
        )
