"""What conditions on runs and orders of them mean, computed in Python from runs that were read from the ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from lrurun.config.schema import is_setting
from lrurun.ledger.columns import FIELDS
from lrurun.ledger.times import when
from lrurun.ledger.values import Run
from lrurun.ledger.where.grammar import OPERATORS, And, Condition, Not, Or, ValueComparison
from lrurun.report.listing import flat

PLACES = ("ladder", "rung", "stage", "profile", "instance", "user")


def holds(condition: Condition, value_of: Callable[[str], Any]) -> bool:
    """Whether a condition is true of a run with these values."""
    match condition:
        case ValueComparison():
            return _compare(condition, value_of(condition.name))
        case Not(part):
            return not holds(part, value_of)
        case And(parts):
            return all(holds(part, value_of) for part in parts)
        case Or(parts):
            return any(holds(part, value_of) for part in parts)


def _compare(wanted: ValueComparison, value: Any) -> bool:
    if value is None:
        return False
    if isinstance(value, tuple):
        # A run without tags is known to lack the tag; a run that is in no ladder has no rung to be compared.
        return (wanted.text in value) == (wanted.operator == "=") and (bool(value) or wanted.name == "tag")
    if wanted.operator == "!=" and is_setting(wanted.name):
        return not _compare(structs.replace(wanted, operator="="), value)
    if isinstance(value, bool | str):
        return bool(OPERATORS[wanted.operator](str(value).lower() if isinstance(value, bool) else value, wanted.text))
    if isinstance(value, list | dict):
        return wanted.operator == "=" and wanted.listed is not None and same(value, json.loads(wanted.listed))
    return wanted.number is not None and bool(OPERATORS[wanted.operator](value, wanted.number))


def same(value: Any, other: Any) -> bool:
    """Whether two values are equal in all their parts; a truth equals no number."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(same(value[name], other[name]) for name in value)
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def value(run: Run, name: str) -> Any:
    """A run's value of a name; None if it has none. Of places and tags all values, as a tuple."""
    if name in PLACES:
        return tuple(dict.fromkeys(getattr(place, name) or "" for place in run.memberships))
    if name == "tag":
        return run.tags
    if name in ("created_at", "finished_at"):
        return when(getattr(run, name))
    if name in FIELDS:
        return getattr(run, name)
    if not is_setting(name):
        return (run.result or {}).get(name)
    settings = _settings(run)
    return settings[name] if name in settings else table_of(settings, name)


def table_of(settings: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The settings in a table; None if there are none."""
    inner = {path.removeprefix(f"{name}."): value for path, value in settings.items() if path.startswith(f"{name}.")}
    return inner or None


_TABLES: dict[int, tuple[Run, dict[str, Any]]] = {}
"""By the run's place in memory: made-up runs of several ledgers have equal ids."""


def _settings(run: Run) -> dict[str, Any]:
    if id(run) not in _TABLES:
        _TABLES[id(run)] = run, flat(run)
    return _TABLES[id(run)][1]


def in_order(runs: Iterable[Run], sort: str | None) -> list[str]:
    """The ids of runs that come newest first, sorted by a name; those without a value last."""
    if sort is None:
        return [run.id for run in runs]
    name, descending = sort.removeprefix("-"), sort.startswith("-")
    having, others = [], []
    for run in runs:
        key = _rank(run, name)
        if key is None:
            others.append(run.id)
        else:
            having.append((key, run.id))
    having.sort(key=lambda pair: pair[0], reverse=descending)  # equal ones keep their order in both directions
    return [run_id for _, run_id in having] + others


def _rank(run: Run, name: str) -> tuple[int, Any] | None:
    # Times are printed in whole seconds, but sorted by their fractions too.
    found = getattr(run, name) if name in ("created_at", "finished_at") else value(run, name)
    if isinstance(found, tuple):
        found = next(iter(found), None)
    if found is None or (isinstance(found, float) and math.isnan(found)):
        return None
    return isinstance(found, str), found
