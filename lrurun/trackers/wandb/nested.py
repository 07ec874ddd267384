"""Nested tables that are written change by change, in which `{"n": {"x": 1}}` and the literal key `n.x` are two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Path = tuple[str, ...]
"""The keys that lead to a value."""


def put(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets a value. A table is merged into one that is there, as W&B does it."""
    *above, key = path
    for step in above:
        inner = table.get(step)
        if not isinstance(inner, dict):
            inner = table[step] = {}
        table = inner
    if isinstance(value, Mapping):
        existing = table.get(key)
        if not isinstance(existing, dict) or not value:
            table[key] = {}
        for name, inner in value.items():
            put(table, (key, name), inner)
    else:
        table[key] = value


def remove(table: dict[str, Any], path: Sequence[str]) -> None:
    """Removes what is at a path, if it is there."""
    *above, key = path
    for step in above:
        inner = table.get(step)
        if not isinstance(inner, dict):
            return
        table = inner
    table.pop(key, None)


def leaves(table: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Path and value of everything that is no table. What has a `_type` is media, and left out."""
    for key, value in table.items():
        if not isinstance(value, Mapping):
            yield (*above, key), value
        elif "_type" not in value:
            yield from leaves(value, (*above, key))


def names(paths: Iterable[Path]) -> dict[Path, str]:
    """Dotted names of paths. Where several have the same, all but the longest are written with their keys in quotes."""
    of_name: dict[str, list[Path]] = {}
    for path in dict.fromkeys(paths):
        of_name.setdefault(".".join(path), []).append(path)
    found = {}
    for name, same in of_name.items():
        for path in sorted(same, key=len, reverse=True):
            is_first = path == max(same, key=len)
            found[path] = name if is_first else quoted(path)
    return found


def quoted(path: Path) -> str:
    """A path with its keys in quotes, as in `"a.b".c`, where they have dots."""
    return ".".join(f'"{key}"' if "." in key else key for key in path)
