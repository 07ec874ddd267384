"""Nested tables that are written change by change, in which `{"n": {"x": 1}}` and the literal key `n.x` are two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Names:
    """Dotted names of paths. Where two paths have the same, the keys with dots are written in quotes."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self.quoted: set[str] = set()
        """The names that were needed twice."""

    def name(self, path: Path) -> str:
        """The name of a path, which no other one has."""
        name = ".".join(path)
        if self._paths.setdefault(name, path) == path:
            return name
        self.quoted.add(name)
        # All parts are quoted: the other path of this name has other parts.
        return ".".join(f'"{key}"' for key in path)
