"""Recipes that share their tables by `extends`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lrurun import paths
from lrurun.config import plan as planning
from lrurun.config.recipe import load_recipe
from lrurun.errors import UsageError
from tests.harness.mistakes import folder
from tests.harness.plans import SMALL_RECIPE

__all__ = ["folder"]  # a fixture


def write(recipe: str, base: str = "", name: str = "shared/x.toml") -> None:
    Path("r.toml").write_text(recipe)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(base)


def test_a_recipe_has_the_tables_that_it_extends_under_its_own(folder):
    whole = SMALL_RECIPE.replace("[optim]", "[optim]\nwarmup = 0.25")
    write('extends = "shared/x.toml"\ntask = "sDigits"\n[optim]\nwarmup = 0.5\n[train]\nbatch = 8\n', whole)
    Path("shared/x.toml").write_text(whole.replace('checked = "never"', 'checked = "2026-01-02"'))
    base = load_recipe(str(folder / "shared/x.toml"))
    recipe = load_recipe("./r.toml")
    assert base.about.checked == "2026-01-02"
    base = msgspec.structs.replace(base, about=msgspec.structs.replace(base.about, checked="never"))  # that one alone
    assert recipe.optim == base.optim | {"warmup": 0.5}
    assert recipe.train == base.train | {"batch": 8}
    assert (recipe.model, recipe.about, recipe.path) == (base.model, base.about, "r.toml")


def test_shared_tables_are_no_recipes_and_copies_of_packaged_recipes_find_them(folder):
    assert "atomic" not in paths.names("recipes")
    Path("recipes").mkdir()
    packaged = paths.packaged("recipes") / "CumSum.toml"
    Path("recipes/CumSum.toml").write_text(packaged.read_text() + "\n[train]\nbatch = 7\n")
    made = planning.make("CumSum", ladder="dlr")
    assert {rung.config.train.batch for rung in made.rungs} == {7}
    assert {rung.config.train.steps for rung in made.rungs} == {43200}


@pytest.mark.parametrize(
    ("recipe", "base", "message", "hint"),
    [
        (
            'extends = "y.toml"',
            "",
            "r.toml, extends: there is no file y.toml",
            "its path begins in the folder of r.toml",
        ),
        ("extends = 3", "", "r.toml, extends: expected the path of a TOML file, found 3", 'as in extends = "shared/t'),
        (
            'extends = "shared/x.toml"',
            'extends = "z.toml"',
            "shared/x.toml, extends: r.toml extends this file",
            "only a recipe may extend a file",
        ),
        ('extends = "shared/x.toml"', "x = ", "shared/x.toml: not valid TOML: Invalid value", "correct the line named"),
        (
            'extends = "shared/x.toml"\ntask = "sDigits"',
            'seeds = "two"' + SMALL_RECIPE,
            'shared/x.toml, seeds: expected a whole number, found "two"',
            "change seeds in shared/x.toml",
        ),
    ],
)
def test_errors_name_the_file_that_has_the_mistake(folder, recipe, base, message, hint):
    write(recipe, base)
    with pytest.raises(UsageError) as caught:
        load_recipe("./r.toml")
    assert caught.value.message.startswith(message)
    assert (caught.value.hint or "").startswith(hint)
