"""The values that tuning tries for each rung: a grid, or a space that is searched. They come from the recipe or its
profile, and from the recipe's table for the rung."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.recipe import Range, Recipe, RungTable, Tried, Tune, get_profile
from lrurun.config.schema import KIND, OPTIMIZER, OTHER_FORMS, RECURRENCE, choice_for, is_inherited, own_settings
from lrurun.config.search import Search
from lrurun.errors import plural

TuningGrid = dict[str, tuple[Tried, str]]
"""Dotted path -> the values to try, or their range, and their source."""


def common_grid(recipe: Recipe, profile: str | None) -> TuningGrid:
    """The grid for all rungs. A rung tries the paths that its recurrence has."""
    values = get_profile(recipe, profile).tune
    if values:
        return {path: (tried, f"{recipe.path} [profile.{profile}.tune]") for path, tried in values.items()}
    if recipe.tune is None:
        return {}
    name = "grid" if recipe.tune.search is None else "space"
    return {path: (tried, f"{recipe.path} [tune.{name}]") for path, tried in getattr(recipe.tune, name).items()}


def replacement_note(recipe: Recipe, profile: str | None) -> str:
    """A phrase that says that the profile replaces the grid of its recipe, which may come from `extends`; empty if it
    does not."""
    tried = {} if recipe.tune is None else recipe.tune.grid | recipe.tune.space
    if not tried or get_profile(recipe, profile).tune in (None, {}, tried) or recipe.is_packaged:
        return ""
    name = "grid" if recipe.tune is None or recipe.tune.search is None else "space"
    return f"profile {profile} has values of its own to try, so {recipe.path} [tune.{name}] is not used"


def seeds_of(recipe: Recipe, profile: str | None) -> int:
    """The number of seeds with which each point is trained."""
    reduced = get_profile(recipe, profile)
    seeds = (recipe.tune or Tune()).seeds
    return reduced.tune_seeds or min(seeds, reduced.seeds or seeds)


def extension_of(recipe: Recipe, profile: str | None) -> int:
    """The number of values that may be added to the grid of a rung, as the recipe or its profile says."""
    extend = get_profile(recipe, profile).tune_extend
    return (recipe.tune or Tune()).extend if extend is None else extend


def extensible(grid: Mapping[str, Tried]) -> list[str]:
    """The paths of a grid that can be extended: those with two or more numbers to go on from."""
    return [path for path, tried in grid.items() if isinstance(tried, list) and are_numbers(tried)]


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether these are two or more values, and all of them are numbers."""
    return len(values) > 1 and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def examples(tried: Tried) -> list[Any]:
    """The values to try, or the ends of their range, which must all be valid for the rung."""
    return [tried.low, tried.high] if isinstance(tried, Range) else tried


def is_edge(value: Any, tried: Tried) -> bool:
    """Whether a value is the smallest or the largest number that was tried, so that the best one may lie beyond."""
    ends = examples(tried)
    return are_numbers(ends) and value in (min(ends), max(ends))


def next_value(value: float, values: Collection[float], *, whole: bool) -> float | None:
    """The next number beyond `value`, the smallest or the largest of `values`, by the ratio of the two values at that
    edge; None if the ratio leads to no other number of the same sign, as from 0.

    A whole number is rounded, which is at least 1 further out. Other numbers get four significant digits, or as many as
    it takes to be further out.
    """
    rest = [other for other in values if other != value]
    is_largest = value > max(rest)
    neighbour = max(rest) if is_largest else min(rest)
    if value * neighbour <= 0:
        return None
    if whole:  # neighbours differ by 1 at least, and so do the value and the next one after rounding
        return round(Fraction(int(value)) ** 2 / int(neighbour))
    exact = value * (value / neighbour)
    if not math.isfinite(exact) or exact * value <= 0:  # beyond what floats hold
        return None
    rounded = (float(f"{exact:.{digits}g}") for digits in range(4, 18))
    return next((number for number in rounded if (number > value if is_largest else number < value)), None)


def inherited_grid(base: TuningGrid, tables: Sequence[RungTable], declared: Collection[str]) -> TuningGrid:
    """The grid of a rung and of the rungs that change it, beside the common grid.

    Args:
        base: the inherited grid of the base of the rung.
        tables: the tables with values for the rung.
        declared: the paths that the ladder or the recipe sets for the rung, which are then no longer tried.
    """
    kept = {path: values for path, values in base.items() if is_inherited(path) and path not in declared}
    if KIND in declared:
        kept = {path: values for path, values in kept.items() if not path.startswith(RECURRENCE)}
    return kept | {path: (tried, table.where_tuned) for table in tables for path, tried in table.notes.tune.items()}


def combined(common: TuningGrid, own: TuningGrid) -> TuningGrid:
    """The common grid with that of a rung, which takes the place of the same settings, also in another form."""
    return {path: values for path, values in common.items() if OTHER_FORMS.get(path) not in own} | own


def shortened(grid: TuningGrid, values: int | None) -> TuningGrid:
    """The grid with at most this many values of each setting, those in the middle of its list. None: all of them.

    Of seven, two are the third and the fourth: where a list surrounds a published value, this one is kept.
    """
    if values is None:
        return grid

    def middle(tried: Tried) -> Tried:
        if isinstance(tried, Range) or len(tried) <= values:
            return tried
        first = (len(tried) - values) // 2
        return tried[first : first + values]

    return {path: (middle(tried), source) for path, (tried, source) in grid.items()}


def applicable(grid: TuningGrid, choices: Mapping[str, Any], fixed: Collection[str]) -> TuningGrid:
    """The part of a grid that fits these choices, see `has`, without the paths that `--set` fixes, in whichever form.

    An optimiser that estimates its learning rate has none to try.
    """
    name = choices[OPTIMIZER]
    estimates = isinstance(name, str) and name in OPTIMIZERS and OPTIMIZERS[name].estimates_rate
    fixed = {*fixed, *(OTHER_FORMS[path] for path in fixed if path in OTHER_FORMS)}
    fixed |= {"optim.lr"} if estimates else set()
    return {path: values for path, values in grid.items() if path not in fixed and has(choices, path)}


def has(choices: Mapping[str, Any], path: str) -> bool:
    """Whether a rung with this kind of recurrence and this optimiser, see `choices_of`, has a setting."""
    choice = choice_for(path)
    return choice is None or path.rpartition(".")[2] in own_settings(choice, choices[choice])


def sentences(
    grids: Mapping[str, Mapping[str, Tried]], seeds: int, search: Search | None = None, extend: int = 0
) -> list[str]:
    """Sentences about the values that tuning tries, one for each different grid or space in `grids`, by rung; and one
    on the values that are added, up to `extend`."""
    method = f" with {plural(seeds, 'seed')}" + ("" if search is None else f" by {search.text}")
    rungs: dict[str, list[str]] = {}
    for rung, grid in grids.items():
        tried = "; ".join(f"{path} from {_listed(values)}" for path, values in grid.items())
        rungs.setdefault(tried, []).append(rung)
    if not any(grids.values()):
        return ["Nothing is tuned: no setting of these rungs has values to try."]
    added = []
    if extended := [rung for rung, grid in grids.items() if extend and extensible(grid)]:
        which = "" if len(extended) == len(grids) else f" (of {', '.join(extended)})"
        added = [f"While the best value of a rung{which} is at the edge, the next one is added, {extend} at most."]
    if len(rungs) == 1:
        return [*(f"Chosen on validation{method}, for each rung: {tried}." for tried in rungs), *added]
    listed = [
        f"Chosen on validation{method}, for {', '.join(names)}: {tried}."
        if tried
        else f"Not tuned: {', '.join(names)}."
        for tried, names in rungs.items()
    ]
    return [*listed, *added]


def _listed(values: Tried) -> str:
    return str(values) if isinstance(values, Range) else ", ".join(map(short, values))


def short(value: Any) -> str:
    """A value as tables show it."""
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
