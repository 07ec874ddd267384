"""Run by Alembic, on the connection and inside the transaction that `lrurun.ledger.database.migrate` holds."""

from __future__ import annotations

from alembic import context

from lrurun.ledger.database.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
