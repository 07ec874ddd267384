"""The rules of the tables of a recipe, which its types do not express."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lrurun import decoding
from lrurun.config.schema import SECTIONS
from lrurun.config.settings import check_path, settings
from lrurun.errors import UsageError

if TYPE_CHECKING:
    from lrurun.config.documents import Profile, Recipe


def check(recipe: Recipe) -> None:
    """Refuse a recipe with unknown paths, or values that are given twice; see `documents.load_recipe`."""
    where = recipe.path
    for path in recipe.ours:
        check_path(path, f"{where} [ours]")
    if recipe.tune:
        _check_grid(recipe.tune.grid, f"{where} [tune.grid]")
    _check_tables(recipe, where, "")
    for name, profile in recipe.profile.items():
        _check_grid(profile.tune or {}, f"{where} [profile.{name}.tune]")
        _check_tables(profile, where, f"profile.{name}.")


def _check_tables(document: Recipe | Profile, where: str, prefix: str) -> None:
    for section in SECTIONS:
        settings({section: getattr(document, section)}, f"{where} [{prefix}{section}]" if prefix else where)
    for name, ladder in document.ladder.items():
        for rung, values in ladder.rung.items():
            table = f"{where} [{prefix}ladder.{name}.rung.{rung}]"
            settings(values.settings, table)
            _check_grid(values.tune, f"{where} [{prefix}ladder.{name}.rung.{rung}.tune]")
            if values.lr_published and values.lr_chosen:
                raise UsageError(f"{table}: has both lr_published and lr_chosen", "remove one of them")
    for rung, changes in document.rung.items():
        settings(changes, f"{where} [{prefix}rung.{rung}]", within=("model", "optim"))


def _check_grid(grid: dict[str, list[Any]], where: str) -> None:
    for path, values in grid.items():
        check_path(path, where, within=("model", "optim", "train"))
        for value in values:
            if values.count(value) > 1:
                raise UsageError(f"{decoding.place(where, path)}: {value!r} is listed twice", "remove one of them")
