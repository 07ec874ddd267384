"""Recipes and ladders by name, by path and by `extends`: which file is read, and what it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import paths
from lrurun.config import planning
from lrurun.config.ladder import load_ladder
from lrurun.config.recipe import Profile, get_profile, load_recipe
from lrurun.config.settings import settings
from lrurun.errors import UsageError
from tests.harness.machine import Machine
from tests.harness.plans import LADDER, RECIPE, SMALL_RECIPE


@pytest.fixture(autouse=True)
def folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(machine.folder)
    return machine.folder


def write(**files: str) -> None:
    for kind, text in files.items():
        path = Path(f"{kind}/mine.toml" if kind in ("recipes", "ablations") else f"{kind}.toml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_a_file_by_path_and_a_file_by_name_are_the_same_document(folder: Path, tmp_path: Path) -> None:
    write(recipes=RECIPE, ablations=LADDER)
    assert load_recipe("mine") == load_recipe(str(folder / "recipes/mine.toml"))
    assert load_ladder("mine") == load_ladder("ablations/mine.toml")
    assert load_ladder("mine").path == "ablations/mine.toml"
    assert "mine" in paths.names("recipes")
    ladder = str(folder / "ablations/mine.toml")
    shown = Machine(tmp_path / "elsewhere").json("plan", str(folder / "recipes/mine.toml"), "--ladder", ladder)
    assert (shown["ladder"], len(shown["rungs"])) == ("mine", 4)


def test_a_local_file_hides_the_packaged_one_and_is_named(folder: Path, machine: Machine) -> None:
    packaged = paths.find("recipes", "sDigits")
    assert paths.shown(packaged) == "recipes/sDigits.toml"
    assert not paths.hides_packaged("recipes", packaged)
    assert not paths.hides_packaged("recipes", Path("recipes/sDigits.toml"))
    assert machine.run("plan", "sDigits").stderr == ""
    write(ablations=LADDER)
    (folder / "recipes").mkdir()
    (folder / "recipes/sDigits.toml").write_text(RECIPE)
    local = paths.find("recipes", "sDigits")
    assert load_recipe("sDigits").about.expect == "anything"
    assert paths.shown(local) == "recipes/sDigits.toml"
    assert paths.hides_packaged("recipes", local)
    # the hidden one is no longer called by the name that now means another file
    assert paths.shown(packaged) == str(packaged)
    hiding = "using recipes/sDigits.toml, which hides the packaged file of that name\n"
    assert machine.run("plan", "sDigits", "--ladder", "mine").stderr == hiding
    # the same name as a path, and another name, hide nothing
    (folder / "own.toml").write_text(RECIPE)
    assert machine.run("plan", "./own.toml", "--ladder", "mine").stderr == ""


@pytest.mark.parametrize(
    ("load", "name", "message", "hint"),
    [
        (load_ladder, "lrv", "unknown ladder 'lrv'", "did you mean 'lru'? ladders: "),
        (load_recipe, "SDIGITS", "unknown task 'SDIGITS'", "did you mean 'sDigits'?"),
        (load_recipe, "", "unknown task ''", "tasks: "),
        (load_ladder, "./no.toml", "ladder: there is no file ./no.toml", "give a path to a TOML file, or a "),
        (load_recipe, "a/b", "recipe: there is no file a/b", "give a path to a TOML file, or a name: "),
    ],
)
def test_unknown_names_get_the_nearest_one(load: Any, name: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(name)
    assert (caught.value.message, caught.value.exit_code) == (message, 2)
    assert str(caught.value.hint).startswith(hint)


def test_a_recipe_has_the_tables_that_it_extends_under_its_own(folder: Path) -> None:
    write(r='extends = "x.toml"\ntask = "sDigits"\n[optim]\nwarmup = 0.5\n[train]\nbatch = 8\n')
    whole = SMALL_RECIPE.replace("[optim]", "[optim]\nwarmup = 0.25")
    write(x=whole.replace('checked = "never"', 'checked = "2026-01-02"'))
    base, recipe = load_recipe("./x.toml"), load_recipe("./r.toml")
    assert base.about.checked == "2026-01-02"
    about = msgspec.structs.replace(base.about, checked="never")  # that one alone
    assert recipe.optim == base.optim | {"warmup": 0.5}
    assert recipe.train == base.train | {"batch": 8}
    assert (recipe.model, recipe.about, recipe.path) == (base.model, about, "r.toml")


def test_shared_tables_are_no_recipes_and_copies_of_packaged_recipes_find_them(folder: Path) -> None:
    assert "atomic" not in paths.names("recipes")
    (folder / "recipes").mkdir()
    packaged = paths.packaged("recipes") / "CumSum.toml"
    (folder / "recipes/CumSum.toml").write_text(packaged.read_text() + "\n[train]\nbatch = 7\n")
    made = planning.make("CumSum", ladder="dlr")
    assert {(rung.config.train.batch, rung.config.train.steps) for rung in made.rungs} == {(7, 43200)}


def test_a_profile_is_found_by_its_name() -> None:
    write(r=RECIPE)
    recipe = load_recipe("r.toml")
    assert get_profile(recipe, "small").seeds == 1
    assert get_profile(recipe, None) == Profile()


def test_nested_tables_and_dotted_keys_are_the_same_paths() -> None:
    nested = {"model": {"recurrence": {"kind": "dense", "activation": "tanh"}, "depth": 1}}
    dotted = {"model.depth": 1, "model.recurrence.activation": "tanh", "model.recurrence.kind": "dense"}
    assert settings(nested) == settings(dotted) == dotted
    # whatever the order of the file, the kind comes first: it starts the table that the others fill
    assert next(iter(settings(dotted))) == "model.recurrence.kind"


def test_a_rung_changes_the_one_before_it_unless_it_names_another() -> None:
    more = '\n[[rung]]\nname = "{0}"\ntitle = "x"\n{1}change = {{ "model.depth" = 2 }}\n'
    write(l=LADDER + more.format("third", 'on = "dense"\n') + more.format("fourth", ""))
    bases = load_ladder("./l.toml").bases
    assert bases == {
        "dense": None, "plane": "dense", "ring": "plane", "norm": "ring", "third": "dense", "fourth": "third",
    }  # fmt: skip
