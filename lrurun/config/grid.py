"""What tuning tries for each rung, a grid or a space to search.

It is that of the recipe, or of its profile, and what the recipe has for the rung alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lrurun.config.documents import Recipe, RungTable, Tune, get_profile
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import KIND
from lrurun.config.search import Range, Search
from lrurun.errors import plural

RECURRENCE = "model.recurrence."
Tried = list[Any] | Range
Grid = dict[str, tuple[Tried, str]]
"""Dotted path -> the values to try, and their source."""


def common(recipe: Recipe, profile: str | None) -> Grid:
    """The grid of all rungs. A rung tries what its recurrence has of it."""
    values = get_profile(recipe, profile).tune
    if values:
        return {path: (tried, f"{recipe.path} [profile.{profile}.tune]") for path, tried in values.items()}
    if recipe.tune is None:
        return {}
    name = "grid" if recipe.tune.search is None else "space"
    return {path: (tried, f"{recipe.path} [tune.{name}]") for path, tried in getattr(recipe.tune, name).items()}


def search_of(recipe: Recipe, profile: str | None) -> Search | None:
    """How the recipe searches; None for a grid."""
    if recipe.tune is None or recipe.tune.search is None:
        return None
    trials = get_profile(recipe, profile).trials or recipe.tune.trials or 0
    return Search(kind=recipe.tune.search, trials=trials, batch=recipe.tune.batch)


def seeds_of(recipe: Recipe, profile: str | None) -> int:
    """The number of seeds that each point is trained with."""
    reduced = get_profile(recipe, profile)
    seeds = (recipe.tune or Tune()).seeds
    return reduced.tune_seeds or min(seeds, reduced.seeds or seeds)


def examples(tried: Tried) -> list[Any]:
    """The values to try, or the ends of their range: what a rung must be able to have."""
    return [tried.low, tried.high] if isinstance(tried, Range) else tried


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


def sentences(grids: Mapping[str, Mapping[str, Tried]], seeds: int, search: Search | None = None) -> list[str]:
    """Sentences on what tuning tries, from rung -> its grid or space: one for each of them."""
    how = f" with {plural(seeds, 'seed')}" + ("" if search is None else f" by {search.text}")
    rungs: dict[str, list[str]] = {}
    for rung, grid in grids.items():
        tried = "; ".join(f"{path} from {_listed(values)}" for path, values in grid.items())
        rungs.setdefault(tried, []).append(rung)
    if len(rungs) == 1:
        return [f"Chosen on validation{how}, for each rung: {tried}." for tried in rungs]
    return [
        f"Chosen on validation{how}, for {', '.join(names)}: {tried}." if tried else f"Not tuned: {', '.join(names)}."
        for tried, names in rungs.items()
    ]


def _listed(values: Tried) -> str:
    return str(values) if isinstance(values, Range) else ", ".join(map(short, values))


def short(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
