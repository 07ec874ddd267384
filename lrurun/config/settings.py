"""Settings in documents, `--set`, `--sweep` and `--by`: dotted paths, and the tables that they flatten."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import msgspec
from msgspec import Struct

from lrurun.config.recurrences import KINDS
from lrurun.config.schema import KIND, RECURRENCE, SETTINGS, known_paths
from lrurun.console import clean, setting
from lrurun.decoding import UNKNOWN_NAME, Fault
from lrurun.errors import UsageError, nearest


def flatten(table: dict[str, Any] | Struct, prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted path and value of each entry of nested tables; a quoted key may already be a dotted path."""
    plain: dict[str, Any] = msgspec.to_builtins(table) if isinstance(table, Struct) else table
    found: list[tuple[str, Any]] = []
    for key, value in plain.items():
        found += flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return found


def settings(table: dict[str, Any]) -> dict[str, Any]:
    """Dotted path -> value; the recurrence's kind first, because the other settings depend on it."""
    return dict(sorted(flatten(table), key=lambda item: item[0] != KIND))


def kind_fields(kind: Any) -> tuple[str, ...]:
    """The names of the settings of a kind of recurrence; none if the kind is unknown."""
    return KINDS[kind].settings.__struct_fields__ if isinstance(kind, str) and kind in KINDS else ()


def setting_faults(
    table: dict[str, Any],
    where: str,
    *,
    within: tuple[str, ...] = (),
    kinds: Collection[str | None] = (),
    known: Collection[str] | None = None,
) -> Iterator[Fault]:
    """Faults of settings: unknown paths, paths outside the sections `within`, and paths that are set twice."""
    paths: set[str] = set()
    for path, _ in flatten(table):
        if fault := path_fault(path, where, within=within, kinds=kinds, known=known):
            yield fault
        elif path in paths:
            yield Fault("set twice", where, path, hint="remove one of them")
        paths.add(path)


def path_fault(
    path: str,
    where: str,
    *,
    within: tuple[str, ...] = (),
    kinds: Collection[str | None] = (),
    known: Collection[str] | None = None,
) -> Fault | None:
    """The fault of a path that names no setting, or a setting outside the sections `within`; None without a fault.

    It names the nearest setting: of the recurrences `kinds`, if one is near, else of all.

    Args:
        known: the settings of a recipe; None where there is no recipe: which ones a program has is then not known.
    """
    if known is not None and KIND not in known:  # a program
        if path not in known:
            by_name = {name.rpartition(".")[2]: name for name in known}
            close = by_name.get(nearest(path.rpartition(".")[2], by_name) or "")
            listed = f"its settings: {', '.join(name for name in known if name.startswith(SETTINGS)) or 'none'}"
            return Fault(
                "no setting of this program", where, path, hint=f"did you mean {close!r}?" if close else listed
            )
    elif path.startswith(SETTINGS):
        if known is not None:
            return Fault(UNKNOWN_NAME, where, path, hint="only recipes with a [program] have settings of this form")
    elif path not in (known := known or known_paths()):
        last = path.rpartition(".")[2]
        settings = [f"{RECURRENCE}{name}" for kind in kinds for name in kind_fields(kind)]
        close = (path.startswith(RECURRENCE) and nearest(path, settings)) or nearest(path, known)
        close = close or next((name for name in known if name.rpartition(".")[2] == last), None)
        hint = (
            f"did you mean {close!r}?"
            if close
            else "paths begin with model., optim., train. or execution., of a program with settings."
        )
        return Fault(UNKNOWN_NAME, where, path, hint=hint)
    if within and path.partition(".")[0] not in within:
        allowed = ", ".join(f"{section}.*" for section in within)
        return Fault("cannot be set here", where, path, hint=f"settings that can: {allowed}")
    return None


def check_path(path: str, where: str, kinds: Collection[str | None] = (), known: Collection[str] | None = None) -> None:
    """Raise Fault if `path` names no setting; the other arguments are those of `path_fault`."""
    if fault := path_fault(path, where, kinds=kinds, known=known):
        raise fault


def parse_sets(texts: Sequence[str]) -> dict[str, Any]:
    """Parses the values of `--set`: dotted path -> value; of a path that is set twice, the last value counts.

    Raises:
        UsageError: a text has no `=`.
    """
    return dict(split_set(text, "optim.lr=0.002") for text in texts)


def set_text(path: str, value: Any) -> str:
    """A setting as `--set` takes it."""
    text = f"{path}={setting(value)}"
    is_other = isinstance(value, str) and split_set(text, "")[1] != value
    return f"{path}={toml_value(value)}" if is_other else text


def check_set(path: str, kinds: Collection[str | None] = (), known: Collection[str] | None = None) -> None:
    """Refuses a path that `--set` cannot set; `kinds` and `known` are as for `path_fault`.

    Raises:
        UsageError: it names no setting, or one that is set in other ways.
    """
    if path in ("seed", "seeds"):
        raise UsageError(f"--set {path}: seeds are not set this way", "use --seeds 0,1,2")
    if path.startswith("data."):
        raise UsageError(
            f"--set {path}: settings of the data cannot be set here, because other data need another folder",
            "copy the recipe to ./recipes and set it in [data] or in a [profile.<name>.data]",
        )
    check_path(path, f"--set {path}", kinds, known)


def split_set(text: str, example: str) -> tuple[str, Any]:
    """Parses `name=value`. The value is TOML; a value that is not valid TOML is a string.

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


_EXAMPLE = "optim.lr=0.001,0.004"


def sweep_points(sweep: Sequence[str], sets: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The values of `--set` for each combination of a sweep, after those of `sets`; its first path varies slowest.

    Without a sweep there is one combination.

    Raises:
        UsageError: a path is unknown or set twice; a path has no value, or a value is named twice.
    """
    grid: dict[str, list[Any]] = {}
    for text in sweep:
        path, values = _parse_sweep(text)
        if path in grid:
            raise UsageError(f"--sweep {path}: named twice", f"give all values at once: --sweep {path}=V,V")
        grid[path] = values
    for path in sets:
        if path in grid:
            raise UsageError(f"--set {path} and --sweep {path} exclude each other", "leave one of them out")
    # the kind first, because the other settings depend on it
    grid = dict(sorted(grid.items(), key=lambda item: item[0] != KIND))
    return [{**sets, **point} for point in combinations(grid)]


def by_paths(by: Sequence[str], option: str = "--by") -> tuple[str, ...]:
    """The settings that `option` names, in one text or several.

    Raises:
        UsageError: a setting is unknown, named twice, or does not distinguish instances of a ladder.
    """
    paths = [name.strip() for text in by for name in text.split(",")]
    for path in paths:
        _check_swept(path, option)
        if paths.count(path) > 1:
            raise UsageError(f"{option} {path}: named twice", "leave one of them out")
    return tuple(paths)


def _parse_sweep(text: str) -> tuple[str, list[Any]]:
    """Parses `path=value,value`. The values are TOML; values that are not valid TOML are strings."""
    path, equals, _ = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise UsageError(f"--sweep {text}: expected path=value,value", f"as in --sweep {_EXAMPLE}")
    if path in ("seed", "seeds"):
        raise UsageError(f"--sweep {path}: seeds are not set this way", "use --seeds 0-4")
    _check_swept(path, "--sweep")
    listed = text.partition("=")[2]
    try:
        table = tomllib.loads(f"x = [{listed}]")
        values = table["x"] if list(table) == ["x"] else None
    except (ValueError, RecursionError):
        values = None
    if values is None:
        values = [split_set(f"{path}={value.strip()}", _EXAMPLE)[1] for value in listed.split(",")]
    if not values or "" in values:
        raise UsageError(f"--sweep {text}: expected values, separated by commas", f"as in --sweep {_EXAMPLE}")
    texts = [setting(value) for value in values]
    for value in texts:
        if texts.count(value) > 1:
            raise UsageError(f"--sweep {path}: {value} is named twice", "leave one of them out")
    return path, values


def _check_swept(path: str, option: str) -> None:
    if path.startswith("data."):
        raise UsageError(
            f"{option} {path}: settings of the data cannot be set on the command line",
            "write a recipe with a profile for each: [profile.<name>.data]",
        )
    check_path(path, f"{option} {path}")
    if path.startswith("execution."):
        raise UsageError(
            f"{option} {path}: says how runs are executed, and does not distinguish instances of a ladder",
            f"set it for all of them: --set {path}=V",
        )


def combinations(values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of paths; the first path varies slowest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def toml_value(value: Any) -> str:
    """A string, number, boolean or list of them as TOML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(clean(value), ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else repr(value)
