"""JSON: one object of finite numbers, made from structs by msgspec."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct

SCHEMA_VERSION = 1


def render(value: Any) -> str:
    """The text of a struct or dictionary as one object, with the version of the schema first."""
    return _indented(finite({"schema_version": SCHEMA_VERSION, **plain(value)}))


def render_list(name: str, items: Iterable[Any]) -> Iterator[str]:
    """`render` of an object with one list, in parts that end in whole lines. It takes items as they are needed.

    All fields of the items are shown, by msgspec alone: `plain` would take a quarter of the time of a long list.
    """
    last = f'{{\n  "schema_version": {SCHEMA_VERSION},\n  "{name}": ['
    comma = ""
    for item in items:
        yield last + comma
        # Line ends within text are escaped.
        last = "    " + _indented(finite(msgspec.to_builtins(item))).replace("\n", "\n    ")
        comma = ","
    yield f"{last}\n  ]\n}}" if comma else f"{last}]\n}}"


def plain(value: Any) -> Any:
    """A value as dictionaries and lists: of a struct all fields, or what its class variable `json_fields` names."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Struct):
        return [plain(item) for item in value]
    if not isinstance(value, Struct) or value.__struct_config__.tag is not None:
        return msgspec.to_builtins(value)
    if (paths := getattr(value, "json_fields", None)) is not None:
        return selected(value, paths)
    fields = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    return {name: plain(part) for field, name in fields if (part := getattr(value, field)) is not UNSET}


def selected(value: Any, paths: Iterable[str]) -> Any:
    """The values at these dotted paths, in this order, of a struct, or of each struct in a list.

    What a struct has no attribute for is an attribute of its `instance`. "x=y" names the value at y x.
    """
    if isinstance(value, list | tuple):
        return [selected(item, paths) for item in value]
    inner: dict[str, list[str]] = {}
    for path in paths:
        first, _, rest = path.partition(".")
        inner.setdefault(first, []).extend([rest] if rest else [])
    table: dict[str, Any] = {}
    for first, below in inner.items():
        name, _, source = first.rpartition("=")
        part = getattr(value if hasattr(type(value), source) else value.instance, source)
        if part is not UNSET:
            table[name or source] = selected(part, below) if below else plain(part)
    return table


def _indented(table: Any) -> str:
    # json's own indentation is written in Python, and takes ten times as long
    return msgspec.json.format(json.dumps(table, allow_nan=False), indent=2)


def finite(value: Any) -> Any:
    """NaN and infinities as null, beside "finite": false in the object that held them."""
    if isinstance(value, dict):
        table = {key: finite(item) for key, item in value.items()}
        if any(_has_nonfinite(item) for item in value.values()):
            table["finite"] = False
        return table
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _has_nonfinite(value: Any) -> bool:
    """Whether a number, or a list of lists of them, holds one that JSON cannot write."""
    if isinstance(value, list | tuple):
        return any(_has_nonfinite(item) for item in value)
    return isinstance(value, float) and not math.isfinite(value)
