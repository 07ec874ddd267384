"""All errors of a table at once, where `lrurun.decoding.convert` raises the first."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from lrurun.decoding.explain import Path, explain, fields, is_struct, place, struct_fields, type_at, walk, wrong_field
from lrurun.decoding.messages import Problem, parse
from lrurun.errors import UsageError


class Fault(Struct, frozen=True):
    """A missing or wrong value."""

    path: tuple[str | int, ...]
    """Keys and indices from the top of the table."""
    error: UsageError
    is_missing: bool = False


def faults(table: Any, type_: Any, where: str, sources: dict[str, str] | None = None) -> list[Fault]:
    """What is wrong with `table` as `type_`: every missing, unknown and wrong field.

    Rules between fields are checked where each of them is valid. `where` and `sources` are those of `convert`.
    """
    return list(_faults(_Table(table, type_, where, sources or {}), type_, ()))


class _Table(Struct, frozen=True):
    """What all steps of the search share."""

    table: Any
    type: Any
    where: str
    sources: dict[str, str]

    def fault(self, error: msgspec.ValidationError, at: Path) -> Fault:
        return Fault(tuple(at), explain(error, self.table, self.type, self.where, self.sources, at))


def _faults(whole: _Table, declared: Any, at: Path) -> Iterator[Fault]:
    """The faults of the value at `at`, which is of the type `declared`."""
    value, bare = walk(whole.table, at)[0], type_at(declared, ())
    found: list[Fault] = []
    inner: list[tuple[Any, str | int]] = []
    if is_struct(bare) and isinstance(value, dict):
        known = {field.encode_name: field for field in struct_fields(bare)}
        problems = [Problem(kind="unknown", rule="", field=name) for name in value if name not in fields(bare)]
        problems += [
            Problem(kind="missing", rule="", field=name) for name in known if known[name].required and name not in value
        ]
        for one in problems:
            error = wrong_field(one, at, whole.table, whole.type, whole.where, whole.sources)
            found.append(Fault((*at, one.field), error, is_missing=one.kind == "missing"))
        inner = [(known[name].type, name) for name in value if name in known]
    elif get_origin(bare) is dict and isinstance(value, dict):
        keys, values = get_args(bare)
        for key in value:
            try:
                msgspec.convert(key, keys, strict=True)
            except msgspec.ValidationError as error:
                rule = f"{place(whole.where, '.'.join(map(str, at)))}: {parse(str(error)).rule}, found {key!r}"
                found.append(Fault((*at, key), UsageError(rule, "rename it")))
        inner = [(values, key) for key in value]
    elif get_origin(bare) in (list, tuple) and isinstance(value, list):
        inner = [(get_args(bare)[0], number) for number in range(len(value))]
    for type_, step in inner:
        found += _faults(whole, type_, (*at, step))
    if not found:
        try:
            msgspec.convert(value, declared, strict=True)
        except msgspec.ValidationError as error:
            found.append(whole.fault(error, at))
    yield from found


def repaired(table: Any, type_: Any, neutral: Mapping[tuple[str, ...], Any]) -> Any:
    """A copy of `table` without what is wrong in it; None if something is missing that `neutral` has no value for."""
    table = copy.deepcopy(table)
    while found := faults(table, type_, ""):
        for one in found:
            names = tuple(map(str, one.path))
            # a table without what it needs is left out
            path = one.path if not one.is_missing or names in neutral else one.path[:-1]
            if not path:
                return None
            parent, exists = walk(table, path[:-1])
            if one.is_missing and names in neutral:
                parent[path[-1]] = copy.deepcopy(neutral[names])
            elif exists and not (isinstance(parent, dict) and path[-1] not in parent):
                if isinstance(parent, list):
                    return None
                del parent[path[-1]]
    return table
