"""Recipes and ladders from TOML: what ships is sound, and errors name file, table and rule."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import pytest

from lrurun import decoding, paths
from lrurun.config.ladder import load_ladder
from lrurun.config.recipe import NEEDS_SEARCH, Profile, Recipe, get_profile, load_recipe
from lrurun.config.settings import settings
from lrurun.errors import LrurunError, UsageError
from tests.harness.mistakes import LADDER, changed, folder, ladder_error
from tests.harness.plans import SMALL_RECIPE as RECIPE

__all__ = ["folder"]  # a fixture


def recipe_error(text: str) -> tuple[str, str | None]:
    Path("r.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_recipe("./r.toml")
    assert [path.name for path in Path().iterdir()] == ["r.toml"]
    return caught.value.message, caught.value.hint


def test_every_shipped_document_loads_and_says_where_it_comes_from():
    assert {"lru", "nonlinearity"} <= set(paths.names("ablations"))
    for name in paths.names("ablations"):
        ladder = load_ladder(name)
        assert ladder.name == name
        assert ladder.source
        assert all(row.source for rung in ladder.rungs for rows in rung.published.values() for row in rows)
    assert "sDigits" in paths.names("recipes")
    for name in paths.names("recipes"):
        recipe = load_recipe(name)
        assert recipe.task == name
        assert recipe.about.source
        assert recipe.about.checked


def test_a_file_by_path_and_a_file_by_name_are_the_same_document(folder):
    for place in ("recipes/mine.toml", "ablations/mine.toml"):
        (folder / place).parent.mkdir()
    (folder / "recipes/mine.toml").write_text(RECIPE)
    (folder / "ablations/mine.toml").write_text(LADDER)
    assert load_recipe("mine") == load_recipe(str(folder / "recipes/mine.toml"))
    assert load_ladder("mine") == load_ladder("ablations/mine.toml")
    assert load_ladder("mine").path == "ablations/mine.toml"
    assert "mine" in paths.names("recipes")


def test_a_local_file_hides_the_packaged_one_and_only_then(folder):
    packaged = paths.find("recipes", "sDigits")
    assert paths.shown(packaged) == "recipes/sDigits.toml"
    assert not paths.hides_packaged("recipes", packaged)
    assert not paths.hides_packaged("recipes", Path("recipes/sDigits.toml"))
    (folder / "recipes").mkdir()
    (folder / "recipes/sDigits.toml").write_text(RECIPE)
    local = paths.find("recipes", "sDigits")
    assert load_recipe("sDigits").about.expect == "anything"
    assert paths.shown(local) == "recipes/sDigits.toml"
    assert paths.hides_packaged("recipes", local)
    # the hidden one is no longer called by the name that now means another file
    assert paths.shown(packaged) == str(packaged)


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
def test_unknown_names_get_the_nearest_one(load, name, message, hint):
    with pytest.raises(UsageError) as caught:
        load(name)
    assert caught.value.message == message
    assert caught.value.hint.startswith(hint)
    assert caught.value.exit_code == 2
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (
            b'name = "x\ntitle = 1\n',
            "not valid TOML: Illegal character",
            "correct the line named above",
        ),
        (b"x = " + b"9" * 5000, "not valid TOML: Exceeds the limit", "correct the line named above"),
        (b"x = " + b"[" * 100_000, "not valid TOML: nested too deeply", "use fewer levels of tables"),
        (b'x = "\xff"', "not valid TOML: not UTF-8 text (invalid start byte)", "save the file as UTF-8"),
    ],
)
def test_invalid_toml_is_reported_with_file_and_line(content, message, hint):
    Path("l.toml").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_ladder("l.toml")
    assert caught.value.message.startswith(f"l.toml: {message}")
    assert caught.value.hint == hint


def test_a_file_that_cannot_be_read_is_no_usage_error(monkeypatch):
    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    Path("l.toml").write_text(LADDER)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(LrurunError) as caught:
        load_ladder("l.toml")
    assert (caught.value.message, caught.value.exit_code) == ("l.toml: Permission denied", 1)


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            "depth = 1",
            "depht = 1",
            "r.toml, model.depht: unknown name",
            "did you mean 'model.depth'?",
        ),
        (
            "[train]",
            "[trian]",
            "r.toml, trian: unknown name",
            "did you mean 'train'? known names here: task, about, seeds, data, model, optim, train, program, settings, "
            "execution, ours, ladder, tune, profile",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune]\nfound = "x"',
            "r.toml [tune]: has neither a grid nor a search",
            f"add [tune.grid]; or {NEEDS_SEARCH}",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"optim.lr" = [1]\n[tune.results.x]\na = "two"',
            'r.toml, tune.results.x.a: expected a number, found "two"',
            "change tune.results.x.a in r.toml",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"optim.lr" = [1]\n[tune.results.x]\na = nan',
            "r.toml, tune.results.x.a: expected a finite number, found nan",
            "change tune.results.x.a in r.toml",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"optim.lr" = [1]\n[tune.results.x]\na = 2001-01-01',
            "r.toml, tune.results.x.a: expected a number, found 2001-01-01",
            "change tune.results.x.a in r.toml",
        ),
        (
            "[model]",
            "[model.recurrence]\nr_mni = 0.5\n[model]",
            "r.toml, model.recurrence.r_mni: unknown name",
            "did you mean 'model.recurrence.r_min'?",
        ),
        (
            "depth = 1",
            'depth = 1\nrecurrence.kind = "dense"\n"recurrence.kind" = "dense"',
            "r.toml, model.recurrence.kind: set twice",
            "remove one of them",
        ),
        ("lr = 0.01", "lr = { value = 0.01 }", "r.toml, optim.lr.value: unknown name", "did you mean 'optim.lr'?"),
        (
            "steps = 10",
            "steps = 10\n[ladder.l.rung.first.train]\nsteps = 20",
            "r.toml, ladder.l.rung.first.train: unknown name",
            "known names here: lr_published, lr_chosen, model, optim, settings, tune",
        ),
        (
            "steps = 10",
            "steps = 10\n[ladder.l.rung.first.model]\nwidht = 20",
            "r.toml [ladder.l.rung.first], model.widht: unknown name",
            "did you mean 'model.width'?",
        ),
        (
            "steps = 10",
            "steps = 10\n[profile.a.train]\nstep = 20",
            "r.toml [profile.a.train], train.step: unknown name",
            "did you mean 'train.steps'?",
        ),
        (
            "steps = 10",
            "steps = 10\n[profile.a.ladder.l.rung.first.optim]\nlrate = 1",
            "r.toml [profile.a.ladder.l.rung.first], optim.lrate: unknown name",
            "did you mean 'optim.lr'?",
        ),
        (
            "steps = 10",
            "steps = 10\n[profile.a]\nseeds = 0",
            "r.toml, profile.a.seeds: expected a whole number >= 1, found 0",
            "change profile.a.seeds in r.toml",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"optim.lr" = []',
            "r.toml, tune.grid.optim.lr: expected a list of length >= 1, found an empty list",
            "change tune.grid.optim.lr in r.toml",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"optim.l_r" = [1]',
            "r.toml [tune.grid], optim.l_r: unknown name",
            "did you mean 'optim.lr'?",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"optim.lr" = [0.1, 0.1]',
            "r.toml [tune.grid], optim.lr: 0.1 is listed twice",
            "remove one of them",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"execution.threads" = [1]',
            "r.toml [tune.grid], execution.threads: cannot be set here",
            "settings that can: model.*, optim.*, train.*",
        ),
        (
            "steps = 10",
            'steps = 10\n[ours]\n"optim.rl" = "x"',
            "r.toml [ours], optim.rl: unknown name",
            "did you mean 'optim.lr'?",
        ),
        (
            "task =",
            'path = "x"\ntask =',
            "r.toml, path: unknown name",
            "known names here: task, about, seeds, data, model, optim, train, program, settings, execution, "
            "ours, ladder, tune, profile",
        ),
        (
            '"sDigits"',
            '"s Digits"',
            "r.toml, task: expected a name of letters, digits, '.', '_' and '-', found \"s Digits\"",
            "change task in r.toml",
        ),
    ],
)
def test_a_wrong_recipe_is_refused(old, new, message, hint):
    # a table that is put after `steps` takes the rest of [train] along, so it goes to the end
    text = changed(RECIPE, old, new) if "\n[" not in new or old == "[model]" else RECIPE + new.partition("\n")[2]
    assert recipe_error(text) == (message, hint)


def test_an_error_below_free_keys_names_the_key_even_where_two_are_wrong():
    published = "".join(
        f'\n[[rung.published.{task}]]\nsource = "s"\nstderr = {value}\n'
        for task, value in (("A", 0.5), ("B", -69.9), ("C", -70.1))
    )
    message, hint = ladder_error(LADDER + published)
    assert message == "l.toml, rung[second].published.B[0].stderr: expected a number >= 0, found -69.9"
    assert hint == "change rung[second].published.B[0].stderr in l.toml"


def test_an_unknown_profile_gets_the_nearest_one(folder):
    (folder / "r.toml").write_text(RECIPE + "\n[profile.smoke]\nseeds = 1\n")
    recipe = load_recipe("r.toml")
    with pytest.raises(UsageError) as caught:
        get_profile(recipe, "smok")
    assert caught.value.message == "r.toml: unknown profile 'smok'"
    assert caught.value.hint == "did you mean 'smoke'? profiles: smoke"
    assert get_profile(recipe, "smoke").seeds == 1
    assert get_profile(recipe, None) == Profile()


def test_nested_tables_and_dotted_keys_are_the_same_paths():
    nested = {"model": {"recurrence": {"kind": "dense", "activation": "tanh"}, "depth": 1}}
    dotted = {"model.depth": 1, "model.recurrence.activation": "tanh", "model.recurrence.kind": "dense"}
    assert settings(nested) == settings(dotted) == dotted
    # whatever the order of the file, the kind comes first: it starts the table that the others fill
    assert next(iter(settings(dotted))) == "model.recurrence.kind"


HOSTILE = ["", "x - at `$.model`", "missing", "a.b", "[0]", "`", "\x1b[31m", "é" * 300]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_key_anywhere_is_an_error_of_the_file_never_of_the_program(name):
    for section in (None, "about", "model", "optim", "rung", "profile", "tune", "ours", "seeds"):
        for value in (1, "x", [], {}, {"x": {}}, {name: [{name: 1}]}):
            table = tomllib.loads(RECIPE)
            inner = table if section is None else table.setdefault(section, {})
            inner[name] = value
            with contextlib.suppress(UsageError):
                decoding.convert(table, Recipe, "r.toml")
    with pytest.raises(UsageError) as caught:
        decoding.convert(tomllib.loads(RECIPE) | {name: 1}, Recipe, "r.toml")
    shown = name or '""'
    assert caught.value.message == f"r.toml, {shown}: unknown name"


def test_a_key_that_reads_like_a_rule_is_still_unknown():
    message, hint = recipe_error("missing = 1\n" + RECIPE)
    assert message == "r.toml, missing: unknown name"
    assert hint.startswith("known names here: task, about")
