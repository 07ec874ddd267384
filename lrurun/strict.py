"""Plain tables to frozen structs, with errors that say where, which rule, what was found and what is near it."""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from lrurun.config import AnyRecurrence, decode_hook, recurrence_type
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
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{shown(path)}: not valid TOML: not UTF-8 text ({error.reason})", "save the file as UTF-8"
        ) from None
    except ValueError as error:
        raise UsageError(f"{shown(path)}: not valid TOML: {error}", "mend the line named above") from None
    except RecursionError:
        raise UsageError(f"{shown(path)}: not valid TOML: nested too deeply", "write it flatter") from None
    except OSError as error:
        raise LrurunError(f"{shown(path)}: {error.strerror}", "check the path and its permissions") from None


def convert(table: Any, type_: type[T], where: str, sources: dict[str, str] | None = None) -> T:
    """`table` as `type_`, checked as a whole.

    `where` names the document in errors; `sources` maps dotted paths to the file a value came from.

    Raises:
        UsageError: where, dotted path, rule, what was found, nearest known name.
    """
    try:
        return msgspec.convert(table, type_, strict=True, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        raise _explain(str(error), table, type_, where, sources or {}) from None


def _explain(message: str, table: Any, type_: Any, where: str, sources: dict[str, str]) -> UsageError:
    rule, places = re.fullmatch(r"(.*?)((?: - at `[^`]*`)*)", message, re.DOTALL).groups()  # type: ignore[union-attr]
    steps = "".join(part.removeprefix("$") for part in reversed(re.findall("`([^`]*)`", places)))
    path = _path(steps, table, type_, message)
    value, found = _walk(table, path)
    dotted = _dotted(path, table)
    if name := re.match(r"Object (?:contains unknown|missing required) field `(.*)`", rule, re.DOTALL):
        path.append(name.group(1))
        dotted = _dotted(path, table)
        at = place(sources.get(dotted, where), dotted)
        if rule.startswith("Object missing"):
            return UsageError(f"{at}: missing", f"add {path[-1]} to {_dotted(path[:-1], table) or 'the file'}")
        fields = _fields(_type_at(type_, path[:-1], table))
        return UsageError(f"{at}: unknown name", hint_for(str(path[-1]), fields, "known names here"))
    source = sources.get(dotted, where)
    at = place(source, dotted)
    if re.match(r"Invalid (?:enum )?value", rule):
        options = [str(option) for option in get_args(_type_at(type_, path, table))]
        return UsageError(
            f"{at}: expected one of {', '.join(options)}, found {_found(value)}",
            hint_for(str(value), options, "known values"),
        )
    if isinstance(value, dict) and not rule.startswith("Expected"):
        return UsageError(f"{at}: {rule}", "change one of the values named above")
    rule = re.sub(r"`(.*?)`", lambda kinds: _words(kinds.group(1)), re.sub(r", got .*$", "", rule))
    # names have the one pattern there is
    rule = re.sub(r"a string matching regex .*", "a name of letters, digits, '.', '_' and '-'", rule)
    rule = re.sub(r"(\d)\.0\b", r"\1", rule[:1].lower() + rule[1:])
    if isinstance(value, float) and not math.isfinite(value):
        rule = "expected a finite number"
    if source.startswith("--set "):
        hint = f"give it another value: {source}=..."
    else:
        hint = f"change {dotted or 'the table'} in {source}"
    return UsageError(f"{at}: {rule}{f', found {_found(value)}' if found else ''}", hint)


def place(source: str, dotted: str) -> str:
    """Where, for a person: `--set` names its path itself."""
    return source if source.startswith("--set ") or not dotted else f"{source}, {dotted}"


def _words(kinds: str) -> str:
    """`float | null` in words; there is no null in TOML."""
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")


def _found(value: Any) -> str:
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


def _path(text: str, table: Any, type_: Any, message: str) -> list[str | int]:
    """The steps of msgspec's `.a.b[0][...]`; for `[...]`, the key that leads to the same error on its own."""
    steps: list[str | int] = []
    for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", text):
        if name:
            steps.append(name)
        elif index != "...":
            steps.append(int(index))
        else:
            parent, _ = _walk(table, steps)
            steps.append(next((key for key in parent if _fails_alone(table, steps, key, type_, message)), index))
    return steps


def _fails_alone(table: Any, steps: list[str | int], key: str, type_: Any, message: str) -> bool:
    trial = copy.deepcopy(table)
    parent, _ = _walk(trial, steps)
    for other in list(parent):
        if other != key:
            del parent[other]
    try:
        msgspec.convert(trial, type_, strict=True, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        return str(error) == message
    return False


def _walk(table: Any, path: list[str | int]) -> tuple[Any, bool]:
    for step in path:
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            return None, False
    return table, True


def _dotted(path: list[str | int], table: Any) -> str:
    """The path as a person writes it; an item of a list by its name, where it has one."""
    text = ""
    for depth, step in enumerate(path):
        if isinstance(step, str):
            text += f".{step}" if step else '.""'
            continue
        item, _ = _walk(table, path[: depth + 1])
        name = item.get("name") if isinstance(item, dict) else None
        text += f"[{name if isinstance(name, str) else step}]"
    return text.lstrip(".")


def _type_at(type_: Any, path: list[str | int], table: Any) -> Any:
    """The declared type at `path`, unions of tagged structs resolved by the tag that `table` carries there."""
    for depth, step in enumerate([*path, None]):
        here, _ = _walk(table, path[:depth])
        while get_origin(type_) is Annotated:
            type_ = get_args(type_)[0]
        if type_ is AnyRecurrence:
            type_ = recurrence_type()
        if get_origin(type_) in (Union, UnionType):
            members = [member for member in get_args(type_) if member is not type(None)]
            tags = {m.__struct_config__.tag: m for m in members if isinstance(m, type) and issubclass(m, Struct)}
            tag_field = next((m.__struct_config__.tag_field for m in tags.values()), None)
            if tag_field is not None and step == tag_field:
                return Literal[tuple(tags)]
            tag = here.get(tag_field) if isinstance(here, dict) else None
            type_ = next((member for name, member in tags.items() if name == tag), members[0])
        if step is None:
            return type_
        if isinstance(type_, type) and issubclass(type_, Struct):
            hints = get_type_hints(type_, include_extras=True)
            names = {f.encode_name: f.name for f in msgspec.structs.fields(type_)}
            type_ = hints.get(names.get(str(step), ""), Any)
        elif get_origin(type_) in (dict, list, tuple):
            type_ = get_args(type_)[1 if get_origin(type_) is dict else 0]
        else:
            return Any
    return type_


def _fields(type_: Any) -> list[str]:
    if isinstance(type_, type) and issubclass(type_, Struct):
        tag = type_.__struct_config__.tag_field
        names = [f.encode_name for f in msgspec.structs.fields(type_)]
        # a document's `path` is filled in by the catalog, not written
        return ([tag] if tag else []) + [name for name in names if name != "path"]
    return []
