"""Adds the per-item results, and the test sets that they belong to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1001"
down_revision = "1000"
branch_labels = None
depends_on = None

WHOLE = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "test_sets",
        sa.Column("id", WHOLE, sa.Identity(), nullable=False),
        sa.Column("sha256", TEXT, nullable=False),
        sa.Column("count", WHOLE, nullable=False),
        sa.Column("order_sha256", TEXT, nullable=False),
        sa.Column("weights", sa.LargeBinary()),
        sa.Column("groups", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id", name="pk_test_sets"),
        sa.UniqueConstraint("sha256", name="uq_test_sets_sha256"),
        sqlite_strict=True,
    )
    op.create_table(
        "item_results",
        sa.Column("run", WHOLE, nullable=False),
        sa.Column("result", TEXT, nullable=False),
        sa.Column("test_set", WHOLE, nullable=False),
        sa.Column("sums", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("run", "result", name="pk_item_results"),
        sa.ForeignKeyConstraint(["run"], ["stored_runs.number"], name="fk_item_results_run"),
        sa.ForeignKeyConstraint(["test_set"], ["test_sets.id"], name="fk_item_results_test_set"),
        sqlite_strict=True,
    )
