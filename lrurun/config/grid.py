"""The tuning grid of each rung: that of the recipe, or of its profile, and what the recipe has for the rung alone."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lrurun.config.documents import Recipe, RungTable, get_profile
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import KIND

RECURRENCE = "model.recurrence."
Grid = dict[str, tuple[list[Any], str]]
"""Dotted path -> the values to try, and their source."""


def common(recipe: Recipe, profile: str | None) -> Grid:
    """The grid of all rungs. A rung tries what its recurrence has of it."""
    values = get_profile(recipe, profile).tune
    if values:
        return {path: (tried, f"{recipe.path} [profile.{profile}.tune]") for path, tried in values.items()}
    return {
        path: (tried, f"{recipe.path} [tune.grid]") for path, tried in (recipe.tune.grid if recipe.tune else {}).items()
    }


def inherited(base: Grid, tables: Sequence[RungTable], declared: Collection[str]) -> Grid:
    """What a rung and those that change it try, beside the common grid.

    Args:
        base: the same of its base.
        tables: what the recipe has for the rung.
        declared: the paths that the ladder or the recipe sets for it, which are not tried any more.
    """
    kept = {path: one for path, one in base.items() if path.startswith("model.") and path not in declared}
    if KIND in declared:
        kept = {path: one for path, one in kept.items() if not path.startswith(RECURRENCE)}
    return kept | {path: (tried, f"{one.where[:-1]}.tune]") for one in tables for path, tried in one.notes.tune.items()}


def applying(grid: Grid, kind: Any, fixed: Collection[str]) -> Grid:
    """What a rung with this kind of recurrence tries: settings that it has, without those that `--set` fixes."""
    return {path: one for path, one in grid.items() if path not in fixed and has(kind, path)}


def has(kind: Any, path: str) -> bool:
    """Whether a rung with this kind of recurrence has a setting."""
    return not path.startswith(RECURRENCE) or path == KIND or path.removeprefix(RECURRENCE) in fields(kind)


def fields(kind: Any) -> tuple[str, ...]:
    """The settings of a kind of recurrence; none if it is unknown."""
    return KINDS[kind].settings.__struct_fields__ if isinstance(kind, str) and kind in KINDS else ()


def sentences(grids: Mapping[str, Mapping[str, list[Any]]]) -> list[str]:
    """Sentences on what tuning tries, from rung -> its grid: one for each grid."""
    rungs: dict[str, list[str]] = {}
    for rung, grid in grids.items():
        tried = "; ".join(f"{path} from {', '.join(map(short, values))}" for path, values in grid.items())
        rungs.setdefault(tried, []).append(rung)
    if len(rungs) == 1:
        return [f"Chosen on validation, for each rung: {tried}." for tried in rungs]
    return [
        f"Chosen on validation, for {', '.join(names)}: {tried}." if tried else f"Not tuned: {', '.join(names)}."
        for tried, names in rungs.items()
    ]


def short(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
