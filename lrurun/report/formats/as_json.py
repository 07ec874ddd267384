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
    table = {"schema_version": SCHEMA_VERSION, **plain(value)}
    for field, paths in getattr(value, "json_fields", {}).items():
        table[field] = [selected(item, paths) for item in table[field]]
    return _indented(finite(table))


def selected(table: dict[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The values at these dotted paths, in this order; "x=a.b" names the value at "a.b" x.

    A document names in the class variable `json_fields` which values of the structs in a list it shows.
    """
    shown: dict[str, Any] = {}
    for path in paths:
        name, _, source = path.rpartition("=")
        value = table
        for key in source.split("."):
            value = value[key]
        *above, last = (name or source).split(".")
        inner = shown
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return shown


def render_list(name: str, items: Iterable[Any]) -> Iterator[str]:
    """`render` of an object with one list, in parts that end in whole lines. It takes items as they are needed."""
    last = f'{{\n  "schema_version": {SCHEMA_VERSION},\n  "{name}": ['
    comma = ""
    for item in items:
        yield last + comma
        # Line ends within text are escaped.
        last = "    " + _indented(finite(plain(item))).replace("\n", "\n    ")
        comma = ","
    yield f"{last}\n  ]\n}}" if comma else f"{last}]\n}}"


def plain(value: Any) -> Any:
    """A value as dictionaries and lists. A struct that has an instance, and a class variable `flat`, has the names in
    `flat` in the place of the instance: attributes of the struct itself or of the instance. Fields in a class variable
    `unwritten` are left out."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Struct):
        return [plain(item) for item in value]
    if not isinstance(value, Struct) or value.__struct_config__.tag is not None:
        return msgspec.to_builtins(value)
    flat = getattr(value, "flat", "").split()
    left_out = (*flat, *getattr(value, "unwritten", ()))
    table: dict[str, Any] = {}
    for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        if flat and field == "instance":
            table |= {shown: plain(_in_place(value, shown)) for shown in flat}
        elif field not in left_out and (part := getattr(value, field)) is not UNSET:
            table[name] = plain(part)
    return table


_OF_INSTANCE = {"instance": "key", "name": "short_name"}
"""Name in JSON -> the field of an instance, where they differ."""


def _in_place(value: Any, name: str) -> Any:
    if name != "instance" and hasattr(value, name):
        return getattr(value, name)
    return getattr(value.instance, _OF_INSTANCE.get(name, name))


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
