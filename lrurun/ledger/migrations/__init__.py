"""Alembic's folder: `env.py` and one file a revision in `versions`, applied by `lrurun.ledger.migrate`.

A revision is frozen once released. It names every constraint, imports nothing of `lrurun`, and creates the triggers
again when it rebuilds a table that has some (batch mode drops them).
"""
