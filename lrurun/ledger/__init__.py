"""The ledger: ladders, runs, attempts, metrics, checkpoints and events in an SQLite file or a PostgreSQL database.

`ledger` is the ledger itself; `values` is what it returns; `database` has its tables, SQLite and PostgreSQL; `owner`
identifies processes. Importing this package, `values` or
`where.grammar` does not import SQLAlchemy.
"""
