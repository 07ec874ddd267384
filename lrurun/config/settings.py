"""Settings in documents and `--set`: dotted paths and values, and the tables that they flatten."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct

from lrurun.config.schema import KIND, OPTIMIZER
from lrurun.console import clean, setting
from lrurun.errors import UsageError


def flatten(table: dict[str, Any] | Struct, prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted path and value of each entry of nested tables; a quoted key may already be a dotted path."""
    plain: dict[str, Any] = msgspec.to_builtins(table) if isinstance(table, Struct) else table
    entries: list[tuple[str, Any]] = []
    for key, value in plain.items():
        entries += flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return entries


def settings(table: dict[str, Any]) -> dict[str, Any]:
    """Dotted path -> value; kind of recurrence and optimiser first, because the other settings depend on them."""
    return dict(sorted(flatten(table), key=lambda item: item[0] not in (KIND, OPTIMIZER)))


def parse_sets(texts: Sequence[str]) -> dict[str, Any]:
    """Parses the values of `--set`: dotted path -> value; of a path that is set twice, the last value counts.

    Raises:
        UsageError: a text has no `=`.
    """
    return dict(split_set(text, "optim.lr=0.002") for text in texts)


def set_text(path: str, value: Any) -> str:
    """A setting as `--set` takes it."""
    text = f"{path}={setting(value)}"
    is_other = isinstance(value, str) and split_set(text, "")[1] != value
    return f"{path}={toml_value(value)}" if is_other else text


def split_set(text: str, example: str) -> tuple[str, Any]:
    """Parses `name=value`. The value is TOML; a value that is not valid TOML is a string.

    Raises:
        UsageError: no `=`, or no name.
    """
    import tomllib  # which lists of runs do not need

    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise UsageError(f"--set {text}: expected path=value", f"as in --set {example}")
    try:
        table = tomllib.loads(f"x = {value}")
    except (ValueError, RecursionError):
        table = {}
    return name, table["x"] if list(table) == ["x"] else value


def combinations(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of paths; the first path varies slowest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def toml_value(value: Any) -> str:
    """A string, number, boolean or list of them as TOML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)
