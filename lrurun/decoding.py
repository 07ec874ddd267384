"""Decodes TOML files and plain tables to frozen structs, reports every fault in them, and encodes structs again.

Data and configuration both use it, so it is a layer below them.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar, get_origin

import msgspec
from msgspec import UNSET, Struct

from lrurun.errors import LrurunError, UsageError, hint_for, nearest_hint
from lrurun.paths import shown

T = TypeVar("T")


def load_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file, which callers do not change: files with the same text share it.

    Raises:
        UsageError: the file is not valid TOML, with the line and column.
        LrurunError: it cannot be read.
    """
    try:
        text = path.read_bytes().decode()
        return _parsed(text)
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(path)}: not valid TOML: not UTF-8 text ({error.reason})", "save the file as UTF-8"
        ) from None
    except ValueError as error:
        problem = str(error).replace("at end of document", f"at line {len(text.splitlines())}, the last")
        raise UsageError(f"{shown(path)}: not valid TOML: {problem}", "correct the line named above") from None
    except RecursionError:
        raise UsageError(f"{shown(path)}: not valid TOML: nested too deeply", "use fewer levels of tables") from None
    except OSError as error:
        raise LrurunError(f"{shown(path)}: {error.strerror}", "check the path and its permissions") from None


@lru_cache(maxsize=256)
def _parsed(text: str) -> dict[str, Any]:
    """The table of a TOML text, cached: ladders and recipes name others, so that a command reads a file many times."""
    import tomllib  # which lists of runs do not need

    table = tomllib.loads(text)
    _check_depth(table)
    return table


DEEPEST = 100
"""The largest number of levels of tables and lists in a document: its readers are recursive."""


def _check_depth(table: dict[str, Any]) -> None:
    """Raises RecursionError where a table is nested deeper than `DEEPEST`."""
    level: list[Any] = [table]
    for _ in range(DEEPEST):
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise RecursionError


class Fault(UsageError):
    """A fault in a table. Message and hint are made from the other attributes."""

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
            rule: what was expected, or what is wrong.
            source: the document, table or option that the value comes from.
            path: dotted, from the top of the table; empty for the table itself.
            value: what was found.
            known: the permitted values, which the rule lists; without `value`, the permitted names.
            hint: what to do next, where it does not follow from the other arguments.
        """
        if not hint and known is not None:
            if value is UNSET:
                hint = hint_for(path.rpartition(".")[2], known, "known names here")
            else:
                hint = nearest_hint(str(value), known) or ""
        if not hint and source.startswith("--set "):
            hint = f"give it another value: {source}=..."
        suffix = "" if value is UNSET else f", found {_shown(value)}"
        super().__init__(
            f"{path_in(source, path)}: {rule}{suffix}", hint or f"change {path or 'the table'} in {source}"
        )
        self.rule = rule
        self.source = source
        self.path = path
        self.value = value
        self.known = None if known is None else tuple(known)


UNKNOWN_NAME: Final = "unknown name"
MISSING: Final = "missing"


def missing(source: str, path: str) -> Fault:
    """The fault of a table that lacks a required entry."""
    parent, _, name = path.rpartition(".")
    return Fault(MISSING, source, path, hint=f"add {name} to {parent or 'the file'}")


def not_one_of(source: str, path: str, value: Any, known: Iterable[Any]) -> Fault:
    """The fault of a value that is not among the permitted ones."""
    names = [str(item) for item in known]
    return Fault(f"expected one of {', '.join(names)}", source, path, value=value, known=names)


def path_in(source: str, path: str) -> str:
    """Source and path of a value as messages show it. An option such as `--set` already contains the path."""
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
    """Converts `table` to `type_` and checks it as a whole. The arguments are as in `examine`.

    Raises:
        Fault: the first fault that `examine` reports.
    """
    return sound(examine(table, type_, where, sources, filled=filled))


def sound(examined: tuple[T | None, list[Fault]]) -> T:
    """The value in the result of an examination. Raises the first fault, if there is one."""
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
    known_faults: Mapping[str, Fault] | None = None,
) -> tuple[T | None, list[Fault]]:
    """Converts `table` to `type_`, and lists every missing, unknown and wrong value.

    Rules between the fields of a struct are checked where each field is right. Wrong values are left out of the
    result, which is None where a required value is missing.

    Args:
        where: the name of the document.
        sources: dotted path -> the source of the value there, if it is not the document.
        filled: fields that the program fills in; the table may not have them.
        neutral: dotted path -> the substitute for a required value that is missing or wrong.
        known_faults: dotted path -> the known fault of the value there, which is not examined.
    """
    filled, known_faults = filled or {}, known_faults or {}
    unexplained = ""
    if not known_faults and not (isinstance(table, dict) and filled.keys() & table):
        try:
            completed = {**table, **filled} if filled and isinstance(table, dict) else table
            return msgspec.convert(completed, type_, strict=True), []
        except msgspec.ValidationError as error:
            unexplained = str(error)
    examination = _Examination(where, sources or {}, filled, neutral or {}, known_faults)
    value = examination.value(table, _type_info(type_), "")  # type: ignore[arg-type]
    if unexplained and not examination.faults:
        examination.faults.append(Fault(unexplained, where, ""))
    return (None if value is _WRONG else value), examination.faults


@cache
def _type_info(type_: Any) -> Any:
    from msgspec import inspect  # takes longer than the rest of msgspec

    return inspect.type_info(type_)


_WRONG: Final = object()
"""Stands for a value that has a fault."""

_TYPE_NAMES: Final = {
    "StructType": "a table",
    "DictType": "a table",
    "ListType": "a list",
    "VarTupleType": "a list",
    "TupleType": "a list",
    "StrType": "a string",
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
}
"""Type of `msgspec.inspect` -> its name in messages. Values of other types are taken as they are."""
_PLAIN: Final[dict[str, Any]] = {
    "StructType": dict,
    "DictType": dict,
    "ListType": list,
    "VarTupleType": list,
    "TupleType": list,
    "StrType": str,
    "IntType": int,
    "FloatType": int | float,
}


class _Examination:
    """One pass over a table, which collects its faults and its values."""

    def __init__(
        self,
        where: str,
        sources: Mapping[str, str],
        filled: Mapping[str, Any],
        neutral: Mapping[str, Any],
        known_faults: Mapping[str, Fault],
    ) -> None:
        self.where, self.sources, self.filled, self.neutral = where, sources, filled, neutral
        self.known_faults = known_faults
        self.faults: list[Fault] = []

    def source(self, path: str) -> str:
        return self.sources.get(path, self.where)

    def fault(self, rule: str, path: str, value: Any = UNSET, **more: Any) -> Any:
        return self.add(Fault(rule, self.source(path), path, value=value, **more))

    def add(self, fault: Fault) -> Any:
        self.faults.append(fault)
        return _WRONG

    def value(self, value: Any, type_: Any, path: str) -> Any:
        """The value converted to a type of `msgspec.inspect`; `_WRONG` if it does not have that type."""
        description = ""
        if type(type_).__name__ == "Metadata":
            type_, description = type_.type, (type_.extra_json_schema or {}).get("description", "")
        type_name = type(type_).__name__
        if type_name == "UnionType":
            return self.union_value(value, type_, path)
        if type_name == "LiteralType":
            is_permitted = any(value == choice and type(value) is type(choice) for choice in type_.values)
            return value if is_permitted else self.add(not_one_of(self.source(path), path, value, type_.values))
        if type_name not in _TYPE_NAMES:
            return value
        if rule := _broken_rule(value, type_):
            return self.fault(f"expected {description or rule}", path, value)
        if type_name == "FloatType":
            try:
                return float(value)
            except OverflowError:
                return self.fault("number out of range", path, value)
        if type_name == "StructType":
            return self.struct_value(value, type_, path)
        if type_name == "DictType":
            return self.dict_value(value, type_, path)
        if type_name in ("ListType", "VarTupleType", "TupleType"):
            types = type_.item_types if type_name == "TupleType" else [type_.item_type] * len(value)
            if len(value) != len(types):
                return self.fault(f"expected a list of length {len(types)}", path, value)
            items = [
                self.value(item, of_item, _item(path, k, item))
                for k, (item, of_item) in enumerate(zip(value, types, strict=True))
            ]
            return _WRONG if _WRONG in items else items if type_name == "ListType" else tuple(items)
        return value

    def union_value(self, value: Any, type_: Any, path: str) -> Any:
        members = [member for member in type_.types if type(member).__name__ != "NoneType"]
        fitting = [member for member in members if _has_type(value, _bare(member))]
        if value is None or fitting or len(members) == 1:
            return None if value is None else self.value(value, (fitting or members)[0], path)
        expected = dict.fromkeys(_described(_bare(member)) for member in members)
        if _TYPE_NAMES["FloatType"] in expected:
            expected.pop(_TYPE_NAMES["IntType"], None)
        return self.fault(f"expected {' or '.join(expected)}", path, value)

    def dict_value(self, table: dict[str, Any], type_: Any, path: str) -> Any:
        items = {}
        for key, value in table.items():
            items[key] = self.value(value, type_.value_type, _inner(path, key))
            if rule := _broken_rule(key, _bare(type_.key_type)):
                described = getattr(type_.key_type, "extra_json_schema", None) or {"description": rule}
                rule = f"expected {described['description']}, found {key!r}"
                items[key] = self.add(Fault(rule, self.where, path, hint="rename it"))
        return {key: value for key, value in items.items() if value is not _WRONG}

    def struct_value(self, table: dict[str, Any], type_: Any, path: str) -> Any:
        earlier_faults = len(self.faults)
        values = {} if path else dict(self.filled)
        fields = {field.encode_name: field for field in type_.fields if field.encode_name not in values}
        names = [*([type_.tag_field] if type_.tag_field else []), *fields]
        for name, value in table.items():
            at = _inner(path, name)
            if at in self.known_faults:
                self.faults.append(self.known_faults[at])
            elif name in fields:
                item = self.value(value, fields[name].type, at)
                if item is not _WRONG:
                    values[fields[name].name] = item
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
            if len(self.faults) > earlier_faults:  # the rule may be broken by what takes the place of a wrong value
                return _WRONG
            text = str(error)
            rule = text[:1].lower() + text[1:]
            return self.add(
                Fault(rule, self.source_of_rule(text, path), path, hint="change one of the values named above")
            )

    def source_of_rule(self, text: str, path: str) -> str:
        """The source of the value that was set last of those that the text of a broken rule names."""
        prefix = f"{path}." if path else ""
        words = set(re.findall(r"[\w.]+", text))
        named = [at for at in self.sources if at.startswith(prefix) and words & {at, at.rpartition(".")[2]}]
        return self.sources[named[-1]] if named else self.source(path)


def _bare(type_: Any) -> Any:
    """A type of `msgspec.inspect` without its description."""
    return type_.type if type(type_).__name__ == "Metadata" else type_


def _has_type(value: Any, type_: Any) -> bool:
    """Whether a plain value has a type of `msgspec.inspect`, regardless of limits."""
    type_name = type(type_).__name__
    if type_name == "LiteralType":
        return any(value == permitted and type(value) is type(permitted) for permitted in type_.values)
    if isinstance(value, bool):
        return type_name == "BoolType"
    return isinstance(value, _PLAIN.get(type_name, ()))


def _described(type_: Any) -> str:
    """A type of `msgspec.inspect` in words, as "a number"."""
    type_name = type(type_).__name__
    if type_name == "LiteralType":
        return " or ".join(map(repr, type_.values))
    return _TYPE_NAMES.get(type_name, type_name.removesuffix("Type").lower())


_LIMITS: Final = {
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
}
_LENGTHS: Final = {"min_length": (">=", operator.ge), "max_length": ("<=", operator.le)}


def _broken_rule(value: Any, type_: Any) -> str:
    """The rule of a type of `msgspec.inspect` that a value breaks, as in "a number > 0"; empty if it breaks none."""
    type_name = _TYPE_NAMES[type(type_).__name__]
    if not _has_type(value, type_):
        return type_name
    is_number = isinstance(value, int | float)
    for name, (sign, holds) in (_LIMITS if is_number else _LENGTHS).items():
        limit = getattr(type_, name, None)
        if limit is None:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            return "a finite number"
        if not holds(value if is_number else len(value), limit):
            return (
                f"{type_name}{'' if is_number else ' of length'} {sign} {int(limit) if limit == int(limit) else limit}"
            )
    multiple = getattr(type_, "multiple_of", None)
    if multiple is not None and value % multiple:
        return f"{type_name} that is a multiple of {multiple}"
    pattern = getattr(type_, "pattern", None)
    return f"a string that matches {pattern}" if pattern is not None and not re.search(pattern, value) else ""


def _inner(path: str, name: str) -> str:
    name = name or '""'
    return f"{path}.{name}" if path else name


def _item(path: str, index: int, item: Any) -> str:
    """The path of an item of a list: by its name where it has one, else by its index."""
    name = item.get("name") if isinstance(item, dict) else None
    return f"{path}[{name if isinstance(name, str) else index}]"


_fields = cache(msgspec.structs.fields)


def canonical(value: Any) -> Any:
    """A struct as plain data, without fields at their default, so that a field of a later version changes no hash."""
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
