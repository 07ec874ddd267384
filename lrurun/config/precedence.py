"""The precedence of values: recipe, profile, rung by rung along the bases, then `--set`. Later ones win."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from lrurun.config import programs, tuning_grid
from lrurun.config.ladder import Ladder, Rung, Scope
from lrurun.config.recipe import Recipe, RungTable, get_profile
from lrurun.config.schema import (
    KIND,
    OPTIMIZER,
    OTHER_FORMS,
    choice_for,
    choices_of,
    is_inherited,
    is_known,
    own_settings,
    without_meaning,
)
from lrurun.config.settings import flatten, settings
from lrurun.config.unknown_settings import untried_fault
from lrurun.decoding import Fault
from lrurun.errors import UsageError

Values = dict[str, tuple[Any, str]]
"""Dotted path -> value and its source, in the order in which they were set."""


class UnresolvedRung(Struct, frozen=True, kw_only=True):
    """A rung with its values, before these are converted to a configuration."""

    rung: Rung
    values: Values
    scopes: list[Scope]
    tables: list[RungTable]
    tried: tuning_grid.TuningGrid
    used: set[str]
    """The paths of `--set` that this rung has."""
    faults: list[UsageError]
    """An error for each value that the ladder expects from the recipe, and the recipe lacks; and for values to try of a
    setting that the optimiser of the rung does not have."""


def unresolved_rungs(
    ladder: Ladder,
    recipe: Recipe,
    profile: str | None,
    sets: dict[str, Any],
    *,
    tune: bool = False,
) -> Iterator[UnresolvedRung]:
    """The rungs of the ladder in their order, each with its values.

    Later values win: recipe, profile, rung by rung along the bases (the ladder's change, then `Recipe.tables`), then
    `sets`. Model values in these tables also hold for later rungs; optimiser values hold for that rung alone.
    With `tune`, a value that the grid chooses need not be set for the rung.

    Raises:
        UsageError: `--set` does not fit, or a rung takes the values of an unknown rung.
    """
    shared = shared_values(recipe, profile)
    common_grid, bases = tuning_grid.common_grid(recipe, profile), ladder.bases
    inherited: dict[str, Values] = {}
    grids: dict[str | None, tuning_grid.TuningGrid] = {None: {}}
    for rung in ladder.rungs:
        base = bases[rung.name]
        values = dict(shared if base is None else inherited[base])
        scopes = ladder.scopes(rung)
        tables = recipe.tables(ladder, rung, profile)
        _apply(values, ladder, rung, tables, shared)
        inherited[rung.name] = dict(values)
        declared = {path for table in tables for path, _ in flatten(table.settings)}
        set_here = {*dict(flatten(rung.change)), *rung.resets, *declared}
        grids[rung.name] = tuning_grid.inherited_grid(grids[base], tables, set_here)
        for table in tables:
            for path, value in settings(table.settings).items():
                if not is_inherited(path):
                    put(values, path, value, table.where)
        used = _override(values, sets, kept=common_sources(recipe, profile), rung=rung.name)
        own_grid = tuning_grid.shortened(grids[rung.name], get_profile(recipe, profile).tune_values)
        tried = tuning_grid.applicable(tuning_grid.combined(common_grid, own_grid), _choices(values), sets)
        faults: list[UsageError] = [
            _unset(path, ladder, rung, recipe)
            for path in rung.tunes
            if path not in declared and not (tune and path in tried and path in values)
        ]
        if OPTIMIZER not in sets:
            faults += _tried_faults([table for table in tables if table.scope == scopes[-1]], _choices(values))
        yield UnresolvedRung(
            rung=rung, values=values, scopes=scopes, tables=tables, tried=tried, used=used, faults=faults
        )


def plain(values: Values) -> dict[str, Any]:
    """Dotted path -> value."""
    return {path: value for path, (value, _) in values.items()}


def _choices(values: Values) -> dict[str, Any]:
    """The kind of recurrence and the optimiser of a rung."""
    return choices_of(plain(values))


def common_sources(recipe: Recipe, profile: str | None) -> tuple[str, str]:
    """The sources of values that hold for all rungs: the recipe and its profile."""
    return recipe.path, f"{recipe.path} [profile.{profile}]"


def shared_values(recipe: Recipe, profile: str | None) -> Values:
    """The values that the recipe and its profile set for all rungs."""
    values: Values = {}
    if recipe.program is not None:
        source = f"{recipe.path} [program]"
        values |= {path: (value, source) for path, value in programs.execution_of(recipe.program).items()}
    for document, source in zip((recipe, get_profile(recipe, profile)), common_sources(recipe, profile), strict=True):
        tables = {name: getattr(document, name) for name in recipe.sections}
        for path, value in settings(tables).items():
            put(values, path, value, source)
    return values


def _apply(values: Values, ladder: Ladder, rung: Rung, tables: list[RungTable], shared: Values) -> None:
    """Applies to `values` what the rung changes for itself and for the rungs that change it.

    `shared` are the values of the recipe, which hold where the rung resets a setting.
    """
    source = f"{ladder.path}, rung {rung.name}"
    for path in rung.resets:
        _reset(values, path, shared)
    for path, value in settings(rung.change).items():
        put(values, path, value, source)
    for table in tables:
        for path, value in settings(table.settings).items():
            if is_inherited(path):
                put(values, path, value, table.where)


def _unset(path: str, ladder: Ladder, rung: Rung, recipe: Recipe) -> UsageError:
    name = f"[ladder.{ladder.name}.rung.{rung.name}]"
    return UsageError(
        f"{recipe.path}: {name} does not set {path}, which ladder {ladder.name} expects from it",
        f"add {path} to {name}, or write it into the ladder's rung",
    )


def _tried_faults(tables: list[RungTable], choices: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of values that tables try of settings of the optimiser that a rung does not have."""
    for table in tables:
        for path in table.notes.tune:
            fault = untried_fault(path, table.where_tuned, choices, table.notes.tune)
            if fault is not None and path.startswith("optim."):
                yield fault


def put(values: Values, path: str, value: Any, source: str) -> None:
    """Sets a value, and removes what earlier sources have set that has no meaning beside it, see `without_meaning`.

    What the same source has set stays, so that it is refused.
    """
    for setting in without_meaning(path, value, plain(values)):
        if not _is_same(values[setting][1], source):
            del values[setting]
    # moved to the end: an error about several values names the source of the last one
    values.pop(path, None)
    values[path] = (value, source)


def _is_same(source: str, other: str) -> bool:
    """Whether two sources are one: all `--set` of a command are."""
    return source == other or (source.startswith("--set") and other.startswith("--set"))


def _reset(values: Values, path: str, shared: Values) -> None:
    """Gives a setting the recipe's value, or its default, again; an optimiser with all settings of its own."""
    reset = {path, OTHER_FORMS.get(path, path)}
    if path == OPTIMIZER:
        reset |= {setting for setting in {**values, **shared} if choice_for(setting) == OPTIMIZER}
    if path not in shared:
        reset |= set(without_meaning(path, None, plain(values)))
    for setting in reset:
        values.pop(setting, None)
    for setting, (value, source) in shared.items():
        if setting in reset:
            put(values, setting, value, source)


def _override(values: Values, sets: dict[str, Any], *, kept: tuple[str, ...], rung: str) -> set[str]:
    """Applies `--set` to a rung's values; returns the paths that the rung has.

    Raises:
        UsageError: `--set` chooses a kind of recurrence, or an optimiser, that lacks a setting which the rung changes.
    """
    for choice in (KIND, OPTIMIZER):
        if choice not in sets:
            continue
        fields = own_settings(choice, sets[choice])
        for path, (_, source) in values.items():
            if choice_for(path) == choice and source not in kept and sets[choice] != _choices(values)[choice]:
                if is_known(choice, sets[choice]) and path.rpartition(".")[2] not in fields:
                    raise UsageError(
                        f"--set {choice}={sets[choice]}: rung {rung} sets {path}, which this"
                        f" {'kind' if choice == KIND else 'optimiser'} does not have ({source})",
                        "leave it out: what the rungs change belongs to the ladder",
                    )
        put(values, choice, sets[choice], f"--set {choice}")
    choices = _choices(values)
    used = set()
    for path, value in sets.items():
        if tuning_grid.has(choices, path):
            put(values, path, value, f"--set {path}")
            used.add(path)
    return used
