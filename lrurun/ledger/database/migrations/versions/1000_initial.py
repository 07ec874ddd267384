"""The initial schema. New ledgers are made from `lrurun.ledger.database.schema`; there is none to migrate before it."""

from __future__ import annotations

revision = "1000"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    raise NotImplementedError("no ledger has a revision before this one")
