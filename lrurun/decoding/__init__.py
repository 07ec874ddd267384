"""TOML files and plain tables to frozen structs, and back.

Data and configuration both use it, so it is a layer below them.
"""

from __future__ import annotations

import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from lrurun.decoding.explain import explain, place
from lrurun.errors import LrurunError, UsageError
from lrurun.paths import shown

__all__ = ["canonical", "convert", "load_toml", "place"]

T = TypeVar("T")


def load_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file, which callers do not change: files with the same text share it.

    Raises:
        UsageError: the file is not valid TOML, with the line and column.
        LrurunError: it cannot be read.
    """
    try:
        return _parsed(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(path)}: not valid TOML: not UTF-8 text ({error.reason})", "save the file as UTF-8"
        ) from None
    except ValueError as error:
        raise UsageError(f"{shown(path)}: not valid TOML: {error}", "correct the line named above") from None
    except RecursionError:
        raise UsageError(f"{shown(path)}: not valid TOML: nested too deeply", "use fewer levels of tables") from None
    except OSError as error:
        raise LrurunError(f"{shown(path)}: {error.strerror}", "check the path and its permissions") from None


@lru_cache(maxsize=256)
def _parsed(text: str) -> dict[str, Any]:
    """Ladders and recipes name others, so that one command reads a file many times."""
    table = tomllib.loads(text)
    _check_depth(table)
    return table


DEEPEST = 100
"""How many levels of tables and lists a document may have: what reads it calls itself for each."""


def _check_depth(table: dict[str, Any]) -> None:
    """Raises RecursionError."""
    level: list[Any] = [table]
    for _ in range(DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise RecursionError


def convert(table: Any, type_: type[T], where: str, sources: dict[str, str] | None = None) -> T:
    """`table` as `type_`, checked as a whole.

    `where` names the document in errors; `sources` maps dotted paths to the file a value came from.

    Raises:
        UsageError: where, dotted path, rule, what was found, nearest known name.
    """
    try:
        return msgspec.convert(table, type_, strict=True)
    except msgspec.ValidationError as error:
        raise explain(error, table, type_, where, sources or {}) from None


_fields = cache(msgspec.structs.fields)


def canonical(value: Any) -> Any:
    """A struct as plain data, fields at their default left out, so that a later version's field changes no hash."""
    if isinstance(value, Struct):
        config = value.__struct_config__
        table: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field else {}
        for field in _fields(type(value)):
            item = getattr(value, field.name)
            if field.default is msgspec.NODEFAULT or item != field.default:
                table[field.name] = canonical(item)
        return table
    if isinstance(value, float):
        return value + 0.0  # -0.0 and 0.0 are one value
    return value
