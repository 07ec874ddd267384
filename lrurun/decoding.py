"""TOML files and plain tables to frozen structs, with everything that is wrong in them; and structs to plain tables.

Data and configuration both use it, so it is a layer below them.
"""

from __future__ import annotations

import json
import math
import operator
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, get_origin

import msgspec
from msgspec import UNSET, Struct

from lrurun.errors import LrurunError, UsageError, hint_for
from lrurun.paths import shown

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


class Fault(UsageError):
    """Something that is wrong in a table. Its sentences are made of its other attributes."""

    def __init__(
        self,
        rule: str,
        source: str,
        path: str,
        *,
        value: Any = UNSET,
        known: Iterable[str] | None = None,
        hint: str = "",
    ) -> None:
        """
        Args:
            rule: what is expected, or wrong.
            source: the document, the table in it, or the option that the value is from.
            path: dotted, from the top of the table; empty for the table itself.
            value: what was found.
            known: the values that are permitted; without `value`, the names.
            hint: what to do next, where that does not follow from the others.
        """
        if not hint and known is not None:
            name, what = (path.rpartition(".")[2], "known names here") if value is UNSET else (value, "known values")
            hint = hint_for(str(name), known, what)
        elif not hint and source.startswith("--set "):
            hint = f"give it another value: {source}=..."
        found = "" if value is UNSET else f", found {_shown(value)}"
        super().__init__(f"{place(source, path)}: {rule}{found}", hint or f"change {path or 'the table'} in {source}")
        self.rule = rule
        self.source = source
        self.path = path
        self.value = value
        self.known = None if known is None else tuple(known)


UNKNOWN_NAME: Final = "unknown name"
MISSING: Final = "missing"


def missing(source: str, path: str) -> Fault:
    """The fault of a table in which something is required that it does not have."""
    parent, _, name = path.rpartition(".")
    return Fault(MISSING, source, path, hint=f"add {name} to {parent or 'the file'}")


def not_one_of(source: str, path: str, value: Any, known: Iterable[Any]) -> Fault:
    """The fault of a value that is none of those that are permitted."""
    names = [str(one) for one in known]
    return Fault(f"expected one of {', '.join(names)}", source, path, value=value, known=names)


def place(source: str, path: str) -> str:
    """The place of a value as messages show it; an option, as `--set`, already contains the path."""
    return source if source.startswith("--") or not path else f"{source}, {path}"


def _shown(value: Any) -> str:
    """A value as TOML would write it, shortened."""
    if isinstance(value, dict):
        return "a table" if value else "an empty table"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    try:
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
    except ValueError:
        # more digits than Python prints
        return "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def convert(
    table: Any,
    type_: type[T],
    where: str,
    sources: Mapping[str, str] | None = None,
    *,
    filled: Mapping[str, Any] | None = None,
) -> T:
    """`table` as `type_`, checked as a whole. The arguments are those of `examine`.

    Raises:
        Fault: the first one of `examine`.
    """
    return sound(examine(table, type_, where, sources, filled=filled))


def sound(examined: tuple[T | None, list[Fault]]) -> T:
    """The value that was examined. Raises its first fault, if it has one."""
    value, faults = examined
    if faults:
        raise faults[0]
    return value  # type: ignore[return-value]


def examine(
    table: Any,
    type_: type[T],
    where: str,
    sources: Mapping[str, str] | None = None,
    *,
    filled: Mapping[str, Any] | None = None,
    neutral: Mapping[str, Any] | None = None,
    wrong: Mapping[str, Fault] | None = None,
) -> tuple[T | None, list[Fault]]:
    """`table` as `type_`, and everything that is wrong with it: each missing, unknown and wrong value.

    Rules between the fields of a struct are checked where each of these is right. What is wrong is left out of the
    value, which is None where something required is missing then.

    Args:
        where: the name of the document.
        sources: dotted path -> where the value there is from, if that is not the document.
        filled: fields that the program fills in; the table may not have them.
        neutral: dotted path -> what takes the place of a missing or wrong value that is required.
        wrong: dotted path -> what is known to be wrong with the value there, which is not examined.
    """
    filled, wrong = filled or {}, wrong or {}
    unexplained = ""
    if not wrong and not (isinstance(table, dict) and filled.keys() & table):
        try:
            whole = {**table, **filled} if filled and isinstance(table, dict) else table
            return msgspec.convert(whole, type_, strict=True), []
        except msgspec.ValidationError as error:
            unexplained = str(error)
    found = _Examination(where, sources or {}, filled, neutral or {}, wrong)
    value = found.value(table, _type_info(type_), "")  # type: ignore[arg-type]
    if unexplained and not found.faults:
        found.faults.append(Fault(unexplained, where, ""))
    return (None if value is _WRONG else value), found.faults


@cache
def _type_info(type_: Any) -> Any:
    from msgspec import inspect  # takes longer than the rest of msgspec

    return inspect.type_info(type_)


_WRONG: Final = object()
"""In place of a value that has a fault."""

_KINDS: Final = {
    "StructType": "a table",
    "DictType": "a table",
    "ListType": "a list",
    "VarTupleType": "a list",
    "StrType": "a string",
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
}
"""Type of `msgspec.inspect` -> what people call it. Values of other types are taken as they are."""
_PLAIN: Final[dict[str, Any]] = {
    "StructType": dict,
    "DictType": dict,
    "ListType": list,
    "VarTupleType": list,
    "StrType": str,
    "IntType": int,
    "FloatType": int | float,
}


class _Examination:
    """One pass over a table: the faults that were found in it, and its values."""

    def __init__(
        self,
        where: str,
        sources: Mapping[str, str],
        filled: Mapping[str, Any],
        neutral: Mapping[str, Any],
        wrong: Mapping[str, Fault],
    ) -> None:
        self.where, self.sources, self.filled, self.neutral, self.wrong = where, sources, filled, neutral, wrong
        self.faults: list[Fault] = []

    def source(self, path: str) -> str:
        return self.sources.get(path, self.where)

    def fault(self, rule: str, path: str, value: Any = UNSET, **more: Any) -> Any:
        return self.add(Fault(rule, self.source(path), path, value=value, **more))

    def add(self, fault: Fault) -> Any:
        self.faults.append(fault)
        return _WRONG

    def value(self, value: Any, type_: Any, path: str) -> Any:
        """The value as this type of `msgspec.inspect`; `_WRONG` if it is not of it."""
        described = ""
        if type(type_).__name__ == "Metadata":
            type_, described = type_.type, (type_.extra_json_schema or {}).get("description", "")
        kind = type(type_).__name__
        if kind == "UnionType":
            return self.of_union(value, type_, path)
        if kind == "LiteralType":
            permitted = any(value == one and type(value) is type(one) for one in type_.values)
            return value if permitted else self.add(not_one_of(self.source(path), path, value, type_.values))
        if kind not in _KINDS:
            return value
        if rule := _broken(value, type_):
            return self.fault(f"expected {described or rule}", path, value)
        if kind == "FloatType":
            try:
                return float(value)
            except OverflowError:
                return self.fault("number out of range", path, value)
        if kind == "StructType":
            return self.of_struct(value, type_, path)
        if kind == "DictType":
            return self.of_dict(value, type_, path)
        if kind in ("ListType", "VarTupleType"):
            items = [self.value(one, type_.item_type, _item(path, k, one)) for k, one in enumerate(value)]
            return _WRONG if _WRONG in items else tuple(items) if kind == "VarTupleType" else items
        return value

    def of_union(self, value: Any, type_: Any, path: str) -> Any:
        members = [one for one in type_.types if type(one).__name__ != "NoneType"]
        fitting = [one for one in members if _has_kind(value, _bare(one))]
        if value is None or fitting or len(members) == 1:
            return None if value is None else self.value(value, (fitting or members)[0], path)
        kinds = dict.fromkeys(_KINDS[type(_bare(one)).__name__] for one in members)
        if _KINDS["FloatType"] in kinds:
            kinds.pop(_KINDS["IntType"], None)
        return self.fault(f"expected {' or '.join(kinds)}", path, value)

    def of_dict(self, table: dict[str, Any], type_: Any, path: str) -> Any:
        found = {}
        for key, value in table.items():
            found[key] = self.value(value, type_.value_type, _inner(path, key))
            if rule := _broken(key, _bare(type_.key_type)):
                described = getattr(type_.key_type, "extra_json_schema", None) or {"description": rule}
                rule = f"expected {described['description']}, found {key!r}"
                found[key] = self.add(Fault(rule, self.where, path, hint="rename it"))
        return {key: value for key, value in found.items() if value is not _WRONG}

    def of_struct(self, table: dict[str, Any], type_: Any, path: str) -> Any:
        before = len(self.faults)
        values = {} if path else dict(self.filled)
        fields = {field.encode_name: field for field in type_.fields if field.encode_name not in values}
        names = [*([type_.tag_field] if type_.tag_field else []), *fields]
        for name, value in table.items():
            at = _inner(path, name)
            if at in self.wrong:
                self.faults.append(self.wrong[at])
            elif name in fields:
                made = self.value(value, fields[name].type, at)
                if made is not _WRONG:
                    values[fields[name].name] = made
            elif name == type_.tag_field:
                if value != type_.tag:
                    self.add(not_one_of(self.source(at), at, value, [type_.tag]))
            elif type_.forbid_unknown_fields:
                self.fault(UNKNOWN_NAME, at, known=names)
        required = {name: field.name for name, field in fields.items() if field.required}
        for name, attribute in required.items():
            at = _inner(path, name)
            if name not in table:
                self.add(missing(self.source(at), at))
            if attribute not in values and at in self.neutral:
                values[attribute] = self.neutral[at]
        if not values.keys() >= set(required.values()):
            return _WRONG
        try:
            return (get_origin(type_.cls) or type_.cls)(**values)
        except ValueError as error:
            if len(self.faults) > before:  # the rule may be broken by what takes the place of a wrong value
                return _WRONG
            text = str(error)
            return self.fault(text[:1].lower() + text[1:], path, hint="change one of the values named above")


def _bare(type_: Any) -> Any:
    """A type of `msgspec.inspect` without its description."""
    return type_.type if type(type_).__name__ == "Metadata" else type_


def _has_kind(value: Any, type_: Any) -> bool:
    """Whether a plain value is of a type of `msgspec.inspect`, whatever its limits."""
    kind = type(type_).__name__
    if isinstance(value, bool):
        return kind == "BoolType"
    return isinstance(value, _PLAIN.get(kind, ()))


_LIMITS: Final = {
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
}
_LENGTHS: Final = {"min_length": (">=", operator.ge), "max_length": ("<=", operator.le)}


def _broken(value: Any, type_: Any) -> str:
    """What is expected of a value of this type of `msgspec.inspect`, if it is not that; else empty."""
    kind = _KINDS[type(type_).__name__]
    if not _has_kind(value, type_):
        return kind
    is_number = isinstance(value, int | float)
    for name, (sign, holds) in (_LIMITS if is_number else _LENGTHS).items():
        limit = getattr(type_, name, None)
        if limit is None:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number"
        if not holds(value if is_number else len(value), limit):
            return f"{kind}{'' if is_number else ' of length'} {sign} {int(limit) if limit == int(limit) else limit}"
    pattern = getattr(type_, "pattern", None)
    return f"a string that matches {pattern}" if pattern is not None and not re.search(pattern, value) else ""


def _inner(path: str, name: str) -> str:
    name = name or '""'
    return f"{path}.{name}" if path else name


def _item(path: str, number: int, item: Any) -> str:
    """The path of an item of a list, by its name, where it has one."""
    name = item.get("name") if isinstance(item, dict) else None
    return f"{path}[{name if isinstance(name, str) else number}]"


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
