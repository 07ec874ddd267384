"""Plain tables to frozen structs, with errors that say where, which rule, what was found and what is near it."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from lrurun.errors import LrurunError, UsageError, hint_for
from lrurun.paths import shown

T = TypeVar("T")
_KINDS = {
    "object": "a table",
    "array": "a list",
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def load_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file.

    Raises:
        UsageError: the file is no TOML, with its line and column.
        LrurunError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown(path)}: not valid TOML: {error}", "mend the line named above") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(path)}: not valid TOML: not UTF-8 text ({error.reason})", "save the file as UTF-8"
        ) from None
    except OSError as error:
        raise LrurunError(f"{shown(path)}: {error.strerror}", "check the path and its permissions") from None


def convert(table: Any, type_: type[T], where: str, sources: dict[str, str] | None = None) -> T:
    """`table` as `type_`, checked as a whole.

    `where` names the document in errors; `sources` maps dotted paths to the file a value came from.

    Raises:
        UsageError: where, dotted path, rule, what was found, nearest known name.
    """
    try:
        return msgspec.convert(table, type_, strict=True)
    except msgspec.ValidationError as error:
        raise _explain(str(error), table, type_, where, sources or {}) from None


def _explain(message: str, table: Any, type_: Any, where: str, sources: dict[str, str]) -> UsageError:
    rule, _, at = message.partition(" - at `")
    path = _path(at.rstrip("`"), table, type_, message)
    value, found = _walk(table, path)
    dotted = _dotted(path)
    unknown = re.match(r"Object contains unknown field `(.*)`", rule)
    missing = re.match(r"Object missing required field `(.*)`", rule)
    if unknown or missing:
        name = (unknown or missing).group(1)  # type: ignore[union-attr]
        full = f"{dotted}.{name}" if dotted else name
        fields = _fields(_type_at(type_, path, table))
        place = sources.get(full, where)
        if unknown:
            return UsageError(f"{place}, {full}: unknown name", hint_for(name, fields, "known names here"))
        return UsageError(f"{place}, {full}: missing", "add it; " + hint_for(name, fields, "known names here"))
    place = sources.get(dotted, where)
    rule = re.sub(r"`(\w+)`", lambda m: _KINDS.get(m.group(1), m.group(1)), rule)
    rule = rule.replace("Expected", "expected").replace(" | nothing", "")
    invalid = re.match(r"Invalid (?:enum )?value '?(.*?)'?$", rule)
    if invalid:
        options = _options(_type_at(type_, path, table), value)
        what = f"expected one of {', '.join(map(repr, options))}, found {value!r}"
        return UsageError(f"{place}, {dotted}: {what}", hint_for(str(value), [str(o) for o in options], "known values"))
    rule = re.sub(r", got .*$", "", rule)
    what = rule
    if found and not isinstance(value, dict | list):
        what += f", found {value!r}"
    return UsageError(
        f"{place}{', ' + dotted if dotted else ''}: {what}",
        f"change {dotted or 'the table'}, and run the command again",
    )


def _path(text: str, table: Any, type_: Any, message: str) -> list[str | int]:
    """The steps of msgspec's `$.a.b[0][...]`; for `[...]`, the key without which the error goes."""
    steps: list[str | int] = []
    for dot, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", text):
        if dot:
            steps.append(dot)
        elif index != "...":
            steps.append(int(index))
        else:
            parent, _ = _walk(table, steps)
            for key in list(parent):
                trial = copy.deepcopy(table)
                inner, _ = _walk(trial, steps)
                del inner[key]
                try:
                    msgspec.convert(trial, type_, strict=True)
                except msgspec.ValidationError as error:
                    if str(error) == message:
                        continue
                steps.append(key)
                break
    return steps


def _walk(table: Any, path: list[str | int]) -> tuple[Any, bool]:
    for step in path:
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            return None, False
    return table, True


def _dotted(path: list[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.lstrip(".")


def _type_at(type_: Any, path: list[str | int], table: Any) -> Any:
    """The declared type at `path`, unions of tagged structs resolved by the tag that `table` carries there."""
    for depth, step in enumerate([*path, None]):
        here, _ = _walk(table, path[:depth])
        while get_origin(type_) is not None and hasattr(type_, "__metadata__"):
            type_ = get_args(type_)[0]
        if get_origin(type_) is Union or type(type_).__name__ == "UnionType":
            members = [m for m in get_args(type_) if m is not type(None)]
            structs = [m for m in members if isinstance(m, type) and issubclass(m, Struct)]
            type_ = members[0]
            for member in structs:
                config = member.__struct_config__
                if isinstance(here, dict) and here.get(config.tag_field) == config.tag:
                    type_ = member
        if step is None:
            return type_
        if isinstance(type_, type) and issubclass(type_, Struct):
            hints = get_type_hints(type_, include_extras=True)
            names = {f.encode_name: f.name for f in msgspec.structs.fields(type_)}
            type_ = hints.get(names.get(str(step), ""), Any)
        elif get_origin(type_) is dict:
            type_ = get_args(type_)[1]
        elif get_origin(type_) in (list, tuple):
            type_ = get_args(type_)[0]
        else:
            return Any
    return type_


def _fields(type_: Any) -> list[str]:
    if isinstance(type_, type) and issubclass(type_, Struct):
        tag = type_.__struct_config__.tag_field
        return ([tag] if tag else []) + [f.encode_name for f in msgspec.structs.fields(type_)]
    return []


def _options(type_: Any, value: Any) -> list[Any]:
    args = get_args(type_)
    return list(args) if args else []
