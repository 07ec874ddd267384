"""Errors of decoding for users: the place, the rule, the value found and the nearest known name."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from lrurun.decoding import messages
from lrurun.errors import UsageError, hint_for

struct_fields = cache(msgspec.structs.fields)
"""The fields of a struct, whose annotations take long to read."""
Path = Sequence[str | int]
"""Keys and indices from the top of a table."""


def explain(
    error: msgspec.ValidationError, table: Any, type_: Any, where: str, sources: dict[str, str], at: Path = ()
) -> UsageError:
    """The error for the user, with the value and the keys that msgspec leaves out, which are looked up in `table`.

    Args:
        at: where in `table` is the value that was decoded.
    """
    problem = messages.parse(str(error))
    path = [*at, *_path(problem.steps, walk(table, at)[0], type_at(type_, at), str(error))]
    if problem.kind in ("missing", "unknown"):
        return wrong_field(problem, path, table, type_, where, sources)
    value, found = walk(table, path)
    dotted = _dotted(path, table)
    source = sources.get(dotted, where)
    where = place(source, dotted)
    if problem.kind == "choice":
        return not_one_of(where, value, [str(option) for option in get_args(type_at(type_, path))])
    if problem.kind == "rule" and isinstance(value, dict):
        return UsageError(f"{where}: {problem.rule}", "change one of the values named above")
    finite = not isinstance(value, float) or math.isfinite(value)
    rule = problem.rule if finite else "expected a finite number"
    if source.startswith("--set "):
        hint = f"give it another value: {source}=..."
    else:
        hint = f"change {dotted or 'the table'} in {source}"
    return UsageError(f"{where}: {rule}{f', found {_shown(value)}' if found else ''}", hint)


def wrong_field(
    problem: messages.Problem, path: Path, table: Any, type_: Any, where: str, sources: dict[str, str]
) -> UsageError:
    """The error of a field that is missing or unknown, in the struct at `path`."""
    dotted = _dotted([*path, problem.field], table)
    at = place(sources.get(dotted, where), dotted)
    if problem.kind == "missing":
        return missing(at, problem.field, _dotted(path, table))
    return UsageError(f"{at}: unknown name", hint_for(problem.field, fields(type_at(type_, path)), "known names here"))


def missing(at: str, name: str, parent: str) -> UsageError:
    """The error of a field that is required, in the table `parent`."""
    return UsageError(f"{at}: missing", f"add {name} to {parent or 'the file'}")


def not_one_of(at: str, value: Any, options: list[str]) -> UsageError:
    """The error of a value that is none of `options`."""
    return UsageError(
        f"{at}: expected one of {', '.join(options)}, found {_shown(value)}",
        hint_for(str(value), options, "known values"),
    )


def place(source: str, dotted: str) -> str:
    """The place as messages show it; an option, as `--set`, already contains the path."""
    return source if source.startswith("--") or not dotted else f"{source}, {dotted}"


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


def _path(steps: tuple[str | int | None, ...], table: Any, type_: Any, message: str) -> list[str | int]:
    """The steps with the key of each dictionary: the one that leads to the same error on its own."""
    path: list[str | int] = []
    for step in steps:
        if step is None:
            parent, _ = walk(table, path)
            step = next((key for key in parent if _fails_alone(table, path, key, type_, message)), "...")
        path.append(step)
    return path


def _fails_alone(table: Any, path: Path, key: str, type_: Any, message: str) -> bool:
    trial = copy.deepcopy(table)
    parent, _ = walk(trial, path)
    for other in list(parent):
        if other != key:
            del parent[other]
    try:
        msgspec.convert(trial, type_, strict=True)
    except msgspec.ValidationError as error:
        return str(error) == message
    return False


def walk(table: Any, path: Path) -> tuple[Any, bool]:
    """The value at `path`, and whether there is one."""
    for step in path:
        try:
            table = table[step]
        except (KeyError, IndexError, TypeError):
            return None, False
    return table, True


def _dotted(path: Path, table: Any) -> str:
    """The path as a person writes it; an item of a list by its name, where it has one."""
    text = ""
    for depth, step in enumerate(path):
        if isinstance(step, str):
            text += f".{step}" if step else '.""'
            continue
        item, _ = walk(table, path[: depth + 1])
        name = item.get("name") if isinstance(item, dict) else None
        text += f"[{name if isinstance(name, str) else step}]"
    return text.lstrip(".")


def type_at(type_: Any, path: Path) -> Any:
    """The declared type at `path`; Any where none is declared."""
    for step in (*path, None):
        while get_origin(type_) is Annotated:
            type_ = get_args(type_)[0]
        if get_origin(type_) in (Union, UnionType):
            # the only unions of our documents are with None
            type_ = next(member for member in get_args(type_) if member is not type(None))
        if step is None:
            return type_
        if is_struct(type_):
            type_ = {field.encode_name: field.type for field in struct_fields(type_)}.get(str(step), Any)
        elif get_origin(type_) in (dict, list, tuple):
            type_ = get_args(type_)[1 if get_origin(type_) is dict else 0]
        else:
            return Any
    return type_


def is_struct(type_: Any) -> bool:
    """Whether a type is a struct, generic or not."""
    origin = get_origin(type_) or type_
    return isinstance(origin, type) and issubclass(origin, Struct)


def fields(type_: Any) -> list[str]:
    """The names that a table of this type may have."""
    if not is_struct(type_):
        return []
    tag = (get_origin(type_) or type_).__struct_config__.tag_field
    names = [field.encode_name for field in struct_fields(type_)]
    # a document's `path` is filled in after decoding, not written
    return ([tag] if tag else []) + [name for name in names if name != "path"]
