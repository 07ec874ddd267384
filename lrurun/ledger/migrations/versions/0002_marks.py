"""Tags on runs, and runs that are excluded from reports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tags",
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run", "name", name="pk_tags"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_tags_run"),
        sqlite_strict=True,
    )
    op.create_table(
        "exclusions",
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("time", sa.REAL, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_exclusions"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_exclusions_run"),
        sqlite_strict=True,
    )
