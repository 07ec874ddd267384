"""Eigenvalues of the recurrent layers, at initialisation and after the last step."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "eigenvalues",
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("moment", sa.Text, nullable=False),
        sa.Column("layer", sa.Integer, nullable=False),
        sa.Column("pairs", sa.Text),
        sa.PrimaryKeyConstraint("run", "moment", "layer", name="pk_eigenvalues"),
        sa.ForeignKeyConstraint(["run"], ["runs.number"], name="fk_eigenvalues_run"),
        sa.CheckConstraint("moment IN ('start', 'end')", name="ck_eigenvalues_moment"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
