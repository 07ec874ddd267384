"""The ledger: ladders, runs, attempts, metrics, checkpoints and events in an SQLite file or a PostgreSQL database.

`store` is the ledger itself; `values` is what it returns; `database` has its tables, SQLite and PostgreSQL; `owner`
identifies processes. Importing this package, `values` or `filters` does not import SQLAlchemy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lrurun.ledger.store import Fenced, Ledger

__all__ = ["Fenced", "Ledger"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from lrurun.ledger import store

        return getattr(store, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
