"""Values that older releases accepted and this one replaces, with a warning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from lrurun import console, decoding
from lrurun.config.schema import Execution

SCAN_BACKENDS = ("pallas",)


def execution_of(table: Mapping[str, Any], where: str) -> Execution:
    """The execution of a run in the ledger, from its plain table.

    Raises:
        UsageError: as `lrurun.decoding.convert`.
    """
    return decoding.convert(without_removed(table, where), Execution, where)


def without_removed(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A plain execution table with "auto" in place of a removed scan backend."""
    backend = table.get("scan_backend")
    if backend not in SCAN_BACKENDS:
        return dict(table)
    _warn(where, str(backend))
    return {**table, "scan_backend": "auto"}


@cache  # once, not for every rung
def _warn(where: str, backend: str) -> None:
    console.warn(f"{where}: scan backend {backend!r} no longer exists; execution.scan_backend is 'auto' instead")
