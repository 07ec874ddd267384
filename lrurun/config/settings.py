"""Settings in documents and in `--set`: dotted paths and the tables that they flatten."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from lrurun import decoding
from lrurun.config.schema import KIND, known_paths
from lrurun.errors import Sink, UsageError, nearest, raising


def flatten(table: dict[str, Any] | Struct, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested tables as dotted paths; a quoted key may already be one."""
    plain: dict[str, Any] = msgspec.to_builtins(table) if isinstance(table, Struct) else table
    for key, value in plain.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def settings(
    table: dict[str, Any], where: str, *, within: tuple[str, ...] = (), sink: Sink = raising
) -> dict[str, Any]:
    """Dotted path -> value, all of them known; the recurrence's kind first, because the other settings depend on it.

    An unknown path, one outside the sections `within`, and one that is set twice are errors for `sink`.
    """
    found: dict[str, Any] = {}
    for path, value in flatten(table):
        try:
            check_path(path, where, within=within)
        except UsageError as error:
            sink(error)
            continue
        if path in found:
            sink(UsageError(f"{decoding.place(where, path)}: set twice", "remove one of them"))
        found[path] = value
    return dict(sorted(found.items(), key=lambda item: item[0] != KIND))


def check_path(path: str, where: str, *, within: tuple[str, ...] = ()) -> None:
    """Refuse a `path` that names no setting, or one outside the sections `within`.

    Raises:
        UsageError: with the nearest known path.
    """
    known = known_paths()
    if path not in known:
        last = path.rpartition(".")[2]
        close = nearest(path, known) or next((p for p in known if p.rpartition(".")[2] == last), None)
        hint = f"did you mean {close!r}?" if close else "paths begin with model., optim., train. or execution."
        raise UsageError(f"{decoding.place(where, path)}: unknown name", hint)
    if within and path.partition(".")[0] not in within:
        allowed = ", ".join(f"{section}.*" for section in within)
        raise UsageError(f"{decoding.place(where, path)}: cannot be set here", f"what can: {allowed}")


def parse_set(text: str) -> tuple[str, Any]:
    """`a.b=value`, the value in TOML; what is not TOML is a string.

    Raises:
        UsageError: no `=`, an unknown table or field.
    """
    path, value = split_set(text, "optim.lr=0.002")
    if path in ("seed", "seeds"):
        raise UsageError(f"--set {path}: seeds are not set this way", "use --seeds 0,1,2")
    if path.startswith("data."):
        raise UsageError(
            f"--set {path}: settings of the data cannot be set here, because other data need another folder",
            "copy the recipe to ./recipes and set it in [data] or in a [profile.<name>.data]",
        )
    check_path(path, f"--set {path}")
    return path, value


def split_set(text: str, example: str) -> tuple[str, Any]:
    """`name=value`, the value in TOML; what is not TOML is a string.

    Raises:
        UsageError: no `=`, or no name.
    """
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise UsageError(f"--set {text}: expected path=value", f"as in --set {example}")
    try:
        table = tomllib.loads(f"x = {value}")
    except (ValueError, RecursionError):
        table = {}
    return name, table["x"] if list(table) == ["x"] else value
