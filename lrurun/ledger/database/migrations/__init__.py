"""Alembic's folder: `env.py`, and one file per revision in `versions`, applied by `lrurun.ledger.database.migrate`.

A revision changes ledgers that exist, on both databases; new ones are made from `lrurun.ledger.database.schema`. It is
frozen once released. It names every constraint, imports nothing of `lrurun`, and creates triggers and views again when
it rebuilds their table (batch mode drops triggers, and needs the views to be dropped before).
"""
