"""Configurations of runs for tests of what records and shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lrurun.config.schema import Config, Execution, recorded

BASE: dict[str, Any] = {
    "task": "sDigits",
    "data": {"version": "1"},
    "model": {"recurrence": {"kind": "diagonal"}, "depth": 1, "width": 8, "state": 8},
    "optim": {"lr": 0.01, "recurrent_factor": 0.5, "weight_decay": 0.05},
    "train": {"steps": 100, "batch": 10, "eval_every": 50},
    "seed": 0,
}


def config(changes: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a small run with these changes, tables in tables; `data` may have any names."""
    return recorded(_merged(BASE, changes or {}))


def execution(changes: Mapping[str, Any] | None = None) -> Execution:
    return msgspec.convert(changes or {}, Execution)


def _merged(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    inner = {
        name: _merged(table[name], value)
        for name, value in changes.items()
        if isinstance(value, Mapping) and isinstance(table.get(name), Mapping)
    }
    return {**table, **changes, **inner}
