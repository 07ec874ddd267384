"""Recipes that share their tables: `extends` names a file whose tables a recipe has under its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lrurun import decoding
from lrurun.config.settings import flatten
from lrurun.errors import UsageError
from lrurun.paths import packaged, shown


def extended(table: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The table of the recipe at `path` with what it extends below it, and dotted path -> file of values from there.

    Tables are merged, but a search replaces the grids of the file; other values of the recipe replace those of the
    file, which is beside the recipe or, for copies of packaged recipes, beside those.

    Raises:
        UsageError: there is no such file, it is not valid TOML, or extends another one.
    """
    if "extends" not in table:
        return table, {}
    name, at = table["extends"], f"{shown(path)}, extends"
    if not isinstance(name, str) or not name.endswith(".toml"):
        raise UsageError(
            f"{at}: expected the path of a TOML file, found {name!r}", 'as in extends = "shared/tasks.toml"'
        )
    file = next((one for one in (path.parent / name, packaged("recipes") / name) if one.is_file()), None)
    if file is None:
        raise UsageError(f"{at}: there is no file {name}", f"its path begins in the folder of {shown(path)}")
    base = decoding.load_toml(file)
    if isinstance(about := base.get("about"), dict):  # what was checked is the other recipe
        base = base | {"about": about | {"checked": "never"}}
    if "extends" in base:
        raise UsageError(f"{shown(file)}, extends: {shown(path)} extends this file", "only a recipe may extend a file")
    own = {key: value for key, value in table.items() if key != "extends"}
    if isinstance(own.get("tune"), dict) and "search" in own["tune"]:
        base = _without_grids(base)
    theirs = {one for one, _ in flatten(base)} - {one for one, _ in flatten(own)}
    return _merged(base, own), dict.fromkeys(theirs, shown(file))


def _without_grids(table: dict[str, Any]) -> dict[str, Any]:
    """A copy without any table `tune`: of the recipe, of its profiles and of rungs."""
    kept = {key: value for key, value in table.items() if key != "tune"}
    return {key: _without_grids(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: _merged(below.get(key), value) for key, value in above.items()}
