"""`--sweep` and `--by`: the combinations of values of settings, and the settings in which instances differ."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from lrurun.config.schema import KIND, OPTIMIZER
from lrurun.config.settings import combinations, split_set
from lrurun.config.unknown_settings import check_path
from lrurun.console import setting
from lrurun.errors import UsageError

_EXAMPLE = "optim.lr=0.001,0.004"


def sweep_points(sweep: Sequence[str], sets: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The values of `--set` for each combination of a sweep, before those of `sets`; its first path varies slowest.

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
    # kind and optimiser first, because other settings depend on them
    grid = dict(sorted(grid.items(), key=lambda item: item[0] not in (KIND, OPTIMIZER)))
    return [{**point, **sets} for point in combinations(grid)]


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


def in_words(path: str) -> str:
    """A setting as a paper names it, for example "learning rate" for optim.lr."""
    from lrurun.config.resolve import RATE

    return "learning rate" if path == RATE else path.rpartition(".")[2].replace("_", " ")
