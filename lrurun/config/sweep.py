"""`--sweep`: the values to try for some settings, and the `--set` of each of their combinations."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from lrurun.config.runs import grid_points
from lrurun.config.schema import KIND
from lrurun.config.settings import check_path, parse_set, split_set
from lrurun.console import setting
from lrurun.errors import UsageError

_EXAMPLE = "optim.lr=0.001,0.004"


def points(sweep: Sequence[str], sets: Sequence[str]) -> list[list[str]]:
    """The values of `--set` at each combination, those of `sets` first; the first path of the sweep is the slowest.

    Without a sweep there is one combination.

    Raises:
        UsageError: an unknown path, or one that is set twice; no value, or one that is named twice.
    """
    grid: dict[str, list[Any]] = {}
    for text in sweep:
        path, values = _parse(text)
        if path in grid:
            raise UsageError(f"--sweep {path}: named twice", f"give all values at once: --sweep {path}=V,V")
        grid[path] = values
    for text in sets if sweep else ():
        if (path := parse_set(text)[0]) in grid:
            raise UsageError(f"--set {path} and --sweep {path} exclude each other", "leave one of them out")
    # the kind first, because the other settings depend on it
    grid = dict(sorted(grid.items(), key=lambda item: item[0] != KIND))
    return [[*sets, *(f"{path}={setting(value)}" for path, value in point.items())] for point in grid_points(grid)]


def paths(by: Sequence[str], option: str = "--by") -> tuple[str, ...]:
    """The settings that `option` names, in one text or several.

    Raises:
        UsageError: one is unknown, named twice, or no setting of a ladder instance.
    """
    found = [name.strip() for text in by for name in text.split(",")]
    for path in found:
        _check(path, option)
        if found.count(path) > 1:
            raise UsageError(f"{option} {path}: named twice", "leave one of them out")
    return tuple(found)


def _parse(text: str) -> tuple[str, list[Any]]:
    """A path and its values: in TOML, separated by commas; what is not TOML are strings."""
    path, equals, _ = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise UsageError(f"--sweep {text}: expected path=value,value", f"as in --sweep {_EXAMPLE}")
    if path in ("seed", "seeds"):
        raise UsageError(f"--sweep {path}: seeds are not set this way", "use --seeds 0-4")
    _check(path, "--sweep")
    given = text.partition("=")[2]
    try:
        table = tomllib.loads(f"x = [{given}]")
        values = table["x"] if list(table) == ["x"] else None
    except (ValueError, RecursionError):
        values = None
    if values is None:
        values = [split_set(f"{path}={one.strip()}", _EXAMPLE)[1] for one in given.split(",")]
    if not values or "" in values:
        raise UsageError(f"--sweep {text}: expected values, separated by commas", f"as in --sweep {_EXAMPLE}")
    texts = [setting(value) for value in values]
    for value in texts:
        if texts.count(value) > 1:
            raise UsageError(f"--sweep {path}: {value} is named twice", "leave one of them out")
    return path, values


def _check(path: str, option: str) -> None:
    if path.startswith("data."):
        raise UsageError(
            f"{option} {path}: settings of the data cannot be set on the command line",
            "write a recipe with a profile for each: [profile.<name>.data]",
        )
    check_path(path, f"{option} {path}")
    if path.startswith("execution."):
        raise UsageError(
            f"{option} {path}: says how runs are executed, and distinguishes no instances of a ladder",
            f"set it for all of them: --set {path}=V",
        )
