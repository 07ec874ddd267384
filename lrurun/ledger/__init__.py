"""The ledger: ladders, runs, attempts, metrics, checkpoints and events in one SQLite file.

`values` is what goes in and comes out, `store` is the ledger itself, `owner` says which process is which. Only `store`,
`tables` and the migrations import SQLAlchemy: importing this package, or `values`, costs nothing.
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
