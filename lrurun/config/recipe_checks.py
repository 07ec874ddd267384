"""The rules of the tables of a recipe, which its types do not express."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from lrurun import console, decoding
from lrurun.config.schema import SECTIONS
from lrurun.config.search import Range
from lrurun.config.settings import check_path, settings
from lrurun.decoding.faults import faults, repaired
from lrurun.errors import Sink, UsageError, raising

if TYPE_CHECKING:
    from lrurun.config.documents import Profile, Recipe, Tune


def check(recipe: Recipe, sink: Sink = raising) -> None:
    """Unknown paths, and values that are given twice, are errors for `sink`; see `documents.load_recipe`."""
    where = recipe.path
    for path in recipe.ours:
        _check_path(path, f"{where} [ours]", sink)
    searches = recipe.tune is not None and recipe.tune.search is not None
    if recipe.tune:
        for fault in _of_tune(recipe.tune, where):
            sink(fault)
        _check_grid(recipe.tune.grid, f"{where} [tune.grid]", sink)
        _check_grid(recipe.tune.space, f"{where} [tune.space]", sink, searches=True)
    _check_tables(recipe, where, "", sink, searches=searches)
    for name, profile in recipe.profile.items():
        _check_grid(profile.tune or {}, f"{where} [profile.{name}.tune]", sink, searches=searches)
        if profile.trials is not None and not searches:
            sink(UsageError(f"{where} [profile.{name}], trials: the recipe has no search", NEEDS_SEARCH))
        _check_tables(profile, where, f"profile.{name}.", sink, searches=searches)


NEEDS_SEARCH = 'add search = "random" or "tpe" to [tune], and what it tries to [tune.space]'


def _of_tune(tune: Tune, where: str) -> Iterator[UsageError]:
    """A mixture of a grid and a search, and either of them without what it needs."""
    if tune.search is None:
        if tune.space or tune.trials is not None:
            name = "tune.space]" if tune.space else "tune], trials"
            yield UsageError(f"{where} [{name}: is for a search", NEEDS_SEARCH)
        elif not tune.grid:
            yield UsageError(f"{where} [tune]: has neither a grid nor a search", f"add [tune.grid]; or {NEEDS_SEARCH}")
        return
    found = f"{where} [tune]: search = {tune.search!r}"
    if tune.grid:
        hint = "write what is searched into [tune.space], where a list has the values to choose from"
        yield UsageError(f"{found} and a grid exclude each other", hint)
    if not tune.space:
        hint = 'as in [tune.space] "optim.lr" = { low = 1e-4, high = 0.1, log = true }'
        yield UsageError(f"{found} without a space", hint)
    if tune.trials is None:
        yield UsageError(f"{found} without a budget", "as in trials = 20")


def _check_path(path: str, where: str, sink: Sink, within: tuple[str, ...] = ()) -> None:
    try:
        check_path(path, where, within=within)
    except UsageError as error:
        sink(error)


def _check_tables(document: Recipe | Profile, where: str, prefix: str, sink: Sink, *, searches: bool) -> None:
    for section in SECTIONS:
        table = {section: getattr(document, section)}
        settings(table, f"{where} [{prefix}{section}]" if prefix else where, sink=sink)
    for name, ladder in document.ladder.items():
        for rung, values in ladder.rung.items():
            of_rung = f"{where} [{prefix}ladder.{name}.rung.{rung}]"
            settings(values.settings, of_rung, sink=sink)
            _check_grid(values.tune, f"{where} [{prefix}ladder.{name}.rung.{rung}.tune]", sink, searches=searches)
            if values.lr_published and values.lr_chosen:
                sink(UsageError(f"{of_rung}: has both lr_published and lr_chosen", "remove one of them"))


def _check_grid(grid: dict[str, Any], where: str, sink: Sink, *, searches: bool = False) -> None:
    """Paths that tuning cannot set, and values that it cannot try; a search tries ranges too."""
    for path, values in grid.items():
        _check_path(path, where, sink, within=("model", "optim", "train"))
        if isinstance(values, Range):
            at = decoding.place(where, path)
            fault = values.fault(at) if searches else UsageError(f"{at}: a range is for a search", NEEDS_SEARCH)
            if fault is not None:
                sink(fault)
            continue
        for number, value in enumerate(values):
            if value in values[:number]:
                sink(UsageError(f"{decoding.place(where, path)}: {value!r} is listed twice", "remove one of them"))


NEUTRAL: dict[tuple[str, ...], Any] = {
    ("about", "source"): "",
    ("about", "expect"): "",
    ("about", "device"): "",
    ("about", "hours"): 0.0,
    ("about", "checked"): "never",
    ("about",): {},
    ("model",): {},
    ("optim",): {},
    ("train",): {},
}
"""What stands for missing tables and documentation, so that the rest of a recipe can be used or checked."""


def documentation(table: dict[str, Any], type_: type, where: str, sources: dict[str, str]) -> dict[str, Any]:
    """The table of a recipe with neutral values for what is wrong in `[about]`, of which it warns.

    `type_` is a struct with the field `about` alone.
    """
    about = {name: value for name, value in table.items() if name == "about"}
    found = faults(about, type_, where, sources)
    for one in found:
        _warn(f"{one.error.message}: only documentation, the recipe is used without it; {one.error.hint}")
    return {**table, **repaired(about, type_, NEUTRAL)} if found else table


@cache
def _warn(text: str) -> None:
    """Once for each recipe, which a command may read several times."""
    console.warn(text)
