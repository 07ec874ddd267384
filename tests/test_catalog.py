"""Recipes and ladders from TOML: what ships is sound, and what is wrong in a file is told in whole sentences."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import pytest

from lrurun import catalog, paths, strict
from lrurun.errors import LrurunError, UsageError

RECIPE = """
task = "sDigits"

[about]
source = "ours"
expect = "anything"
device = "a core"
hours = 0
checked = "never"

[model]
depth = 1
width = 8
state = 8

[optim]
lr = 0.01
recurrent_factor = 0.5
weight_decay = 0.05

[train]
steps = 10
batch = 8
eval_every = 5
"""

LADDER = """
name = "mine"
title = "mine"
source = "ours"

[[rung]]
name = "first"
title = "the first"
change = { "model.recurrence.kind" = "dense" }

[[rung]]
name = "second"
title = "the second"
change = { "model.recurrence.activation" = "tanh" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory, in which nothing may appear."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recipe_error(text: str) -> tuple[str, str | None]:
    Path("r.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        catalog.load_recipe("./r.toml")
    assert [path.name for path in Path().iterdir()] == ["r.toml"]
    return caught.value.message, caught.value.hint


def ladder_error(text: str) -> tuple[str, str | None]:
    Path("l.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        catalog.load_ladder("./l.toml")
    assert [path.name for path in Path().iterdir()] == ["l.toml"]
    return caught.value.message, caught.value.hint


def changed(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_every_shipped_document_loads_and_says_where_it_comes_from():
    assert {"lru", "nonlinearity"} <= set(paths.names("ablations"))
    for name in paths.names("ablations"):
        ladder = catalog.load_ladder(name)
        assert ladder.name == name
        assert ladder.source
        assert all(row.source for rung in ladder.rungs for rows in rung.published.values() for row in rows)
    assert "sDigits" in paths.names("recipes")
    for name in paths.names("recipes"):
        recipe = catalog.load_recipe(name)
        assert recipe.task == name
        assert recipe.about.source
        assert recipe.about.checked


def test_the_lru_ladder_has_the_eight_rungs_of_the_paper():
    assert [rung.name for rung in catalog.load_ladder("lru").rungs] == [
        "tanh-rnn",
        "linear-rnn",
        "diagonal",
        "exponential",
        "stable-exponential",
        "ring-init",
        "gamma-norm",
        "small-phase",
    ]


def test_a_file_by_path_and_a_file_by_name_are_the_same_document(folder):
    for place in ("recipes/mine.toml", "ablations/mine.toml"):
        (folder / place).parent.mkdir()
    (folder / "recipes/mine.toml").write_text(RECIPE)
    (folder / "ablations/mine.toml").write_text(LADDER)
    assert catalog.load_recipe("mine") == catalog.load_recipe(str(folder / "recipes/mine.toml"))
    assert catalog.load_ladder("mine") == catalog.load_ladder("ablations/mine.toml")
    assert catalog.load_ladder("mine").path == "ablations/mine.toml"
    assert "mine" in paths.names("recipes")


def test_a_local_file_hides_the_packaged_one_and_only_then(folder):
    packaged = paths.find("recipes", "sDigits")
    assert paths.shown(packaged) == "recipes/sDigits.toml"
    assert not paths.hides_packaged("recipes", packaged)
    assert not paths.hides_packaged("recipes", Path("recipes/sDigits.toml"))
    (folder / "recipes").mkdir()
    (folder / "recipes/sDigits.toml").write_text(RECIPE)
    local = paths.find("recipes", "sDigits")
    assert catalog.load_recipe("sDigits").about.expect == "anything"
    assert paths.shown(local) == "recipes/sDigits.toml"
    assert paths.hides_packaged("recipes", local)
    # the hidden one is no longer called by the name that now means another file
    assert paths.shown(packaged) == str(packaged)


@pytest.mark.parametrize(
    ("load", "name", "message", "hint"),
    [
        (catalog.load_ladder, "lrv", "unknown ladder 'lrv'", "did you mean 'lru'? ladders: "),
        (catalog.load_recipe, "SDIGITS", "unknown task 'SDIGITS'", "did you mean 'sDigits'? tasks: "),
        (catalog.load_recipe, "", "unknown task ''", "tasks: "),
        (catalog.load_ladder, "./no.toml", "ladder: there is no file ./no.toml", "give a path to a TOML file, or a "),
        (catalog.load_recipe, "a/b", "recipe: there is no file a/b", "give a path to a TOML file, or a name: "),
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
            "mend the line named above",
        ),
        (b"x = " + b"9" * 5000, "not valid TOML: Exceeds the limit", "mend the line named above"),
        (b"x = " + b"[" * 100_000, "not valid TOML: nested too deeply", "write it flatter"),
        (b'x = "\xff"', "not valid TOML: not UTF-8 text (invalid start byte)", "save the file as UTF-8"),
    ],
)
def test_what_is_no_toml_is_told_with_file_and_line(content, message, hint):
    Path("l.toml").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        catalog.load_ladder("l.toml")
    assert caught.value.message.startswith(f"l.toml: {message}")
    assert caught.value.hint == hint


def test_a_file_that_cannot_be_read_is_no_usage_error(monkeypatch):
    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    Path("l.toml").write_text(LADDER)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(LrurunError) as caught:
        catalog.load_ladder("l.toml")
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
            "did you mean 'train'? known names here: task, about, seeds, data, model, optim, train, execution, ours, "
            "rung, tune, profile",
        ),
        ('device = "a core"\n', "", "r.toml, about.device: missing", "add device to about"),
        (
            "hours = 0",
            'hours = "two"',
            'r.toml, about.hours: expected a number, found "two"',
            "change about.hours in r.toml",
        ),
        (
            "hours = 0",
            "hours = nan",
            "r.toml, about.hours: expected a finite number, found nan",
            "change about.hours in r.toml",
        ),
        (
            "hours = 0",
            "hours = 2001-01-01",
            "r.toml, about.hours: expected a number, found 2001-01-01",
            "change about.hours in r.toml",
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
            "r.toml, model.recurrence.kind: given twice",
            "remove one of them",
        ),
        ("lr = 0.01", "lr = { value = 0.01 }", "r.toml, optim.lr.value: unknown name", "did you mean 'optim.lr'?"),
        (
            "steps = 10",
            "steps = 10\n[rung.first.train]\nsteps = 20",
            "r.toml [rung.first], train.steps: cannot be set here",
            "what can: model.*, optim.*",
        ),
        (
            "steps = 10",
            "steps = 10\n[rung.first.model]\nwidht = 20",
            "r.toml [rung.first], model.widht: unknown name",
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
            "steps = 10\n[profile.a.rung.first.optim]\nlrate = 1",
            "r.toml [profile.a.rung.first], optim.lrate: unknown name",
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
            "r.toml [tune.grid], optim.lr: 0.1 is there twice",
            "remove one of them",
        ),
        (
            "steps = 10",
            'steps = 10\n[tune.grid]\n"execution.threads" = [1]',
            "r.toml [tune.grid], execution.threads: cannot be set here",
            "what can: model.*, optim.*, train.*",
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
            "remove it: lrurun knows where it read the file",
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


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            'change = { "model.recurrence.activation" = "tanh" }',
            "",
            "l.toml, rung second: declares no change",
            'say what it moves: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
        ),
        (
            '"model.recurrence.activation" = "tanh"',
            '"model.recurence.activation" = "tanh"',
            "l.toml, rung second, model.recurence.activation: unknown name",
            "did you mean 'model.recurrence.activation'?",
        ),
        (
            'change = { "model.recurrence.activation" = "tanh" }',
            'tunes = ["model.rmin"]',
            "l.toml, rung second, model.rmin: unknown name",
            "did you mean 'model.norm'?",
        ),
        (
            '"model.recurrence.activation" = "tanh"',
            '"execution.threads" = 2',
            "l.toml, rung second, execution.threads: cannot be set here",
            "what can: model.*, optim.*, train.*",
        ),
        ('"second"', '"first"', "l.toml, rung first: there are two rungs of this name", "rename one of them"),
        (
            'title = "the second"',
            "title = 2",
            "l.toml, rung[second].title: expected a string, found 2",
            "change rung[second].title in l.toml",
        ),
        ('title = "the second"\n', "", "l.toml, rung[second].title: missing", "add title to rung[second]"),
        (
            'title = "the second"',
            'titel = "x"',
            "l.toml, rung[second].titel: unknown name",
            "did you mean 'title'? known names here: name, title, on, why, change, tunes, published",
        ),
        (
            'name = "second"',
            'name = "sec ond"',
            "l.toml, rung[sec ond].name: expected a name of letters, digits, '.', '_' and '-', found \"sec ond\"",
            "change rung[sec ond].name in l.toml",
        ),
        (
            'name = "mine"',
            'name = "mine"\nimport = ["mine.py"]',
            "l.toml, import: unknown name",
            "known names here: name, title, source, question, load, rung, speed, claim, grid",
        ),
    ],
)
def test_a_wrong_ladder_is_refused(old, new, message, hint):
    found, advice = ladder_error(changed(LADDER, old, new))
    assert (found, advice) == (message, hint)


def test_a_ladder_without_rungs_is_refused():
    message, hint = ladder_error(LADDER.partition("[[rung]]")[0])
    assert (message, hint) == ("l.toml: a ladder needs at least one [[rung]]", "add one: name, title, change")


def on(rung: str, name: str) -> str:
    """The ladder with `on = name` in that rung."""
    return changed(LADDER, f'name = "{rung}"', f'name = "{rung}"\non = "{name}"')


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            on("second", "frist"),
            "l.toml, rung second, on: unknown rung 'frist'",
            "did you mean 'first'? rungs before it: first",
        ),
        (on("second", "second"), "l.toml, rung second, on: a rung cannot change itself", "rungs before it: first"),
        (
            on("first", "second"),
            "l.toml, rung first, on: second does not come before it",
            "there are no rungs before it",
        ),
        (on("first", "first"), "l.toml, rung first, on: a rung cannot change itself", "there are no rungs before it"),
        (
            on("second", ""),
            "l.toml, rung[second].on: expected a name of letters, digits, '.', '_' and '-', found \"\"",
            "change rung[second].on in l.toml",
        ),
    ],
)
def test_a_rung_changes_an_earlier_one_or_is_refused(text, message, hint):
    assert ladder_error(text) == (message, hint)


def test_a_rung_changes_the_one_before_it_unless_it_names_another(folder):
    third = '\n[[rung]]\nname = "third"\ntitle = "x"\non = "first"\nchange = { "model.depth" = 2 }\n'
    fourth = third.replace("third", "fourth").replace('on = "first"\n', "")
    (folder / "l.toml").write_text(LADDER + third + fourth)
    assert catalog.load_ladder("./l.toml").bases == {
        "first": None,
        "second": "first",
        "third": "first",
        "fourth": "third",
    }


CLAIM = '\n[[claim]]\ntext = "t"\nsource = "s"\nrung = "second"\nthan = "first"\n'
MARGIN = "l.toml, claim 't': " + 'a margin belongs to kind = "equal" or "no-worse", and to them alone'


@pytest.mark.parametrize(
    ("claim", "message", "hint"),
    [
        (
            changed(CLAIM, '"first"', '"frist"'),
            "l.toml, claim 't': unknown rung 'frist'",
            "did you mean 'first'? rungs: first, second",
        ),
        (CLAIM + 'kind = "equal"', MARGIN, "add margin = 0.005, or remove it"),
        (CLAIM + 'kind = "no-worse"', MARGIN, "add margin = 0.005, or remove it"),
        (CLAIM + "margin = 0.01", MARGIN, "add margin = 0.005, or remove it"),
        (
            CLAIM + 'kind = "same"',
            'l.toml, claim[0].kind: expected one of better, no-worse, equal, found "same"',
            "known values: better, no-worse, equal",
        ),
        (
            CLAIM + 'kind = "no-worse"\nmargin = 0',
            "l.toml, claim[0].margin: expected a number > 0, found 0",
            "change claim[0].margin in l.toml",
        ),
    ],
)
def test_a_wrong_claim_is_refused(claim, message, hint):
    assert ladder_error(LADDER + claim) == (message, hint)


SPEED = (
    '\n[[speed]]\nsystem = "RNN"\nrung = "first"\nsource = "s"\ndevice = "d"\nsteps_per_second = { A = 2.0, B = 0.5 }\n'
)


@pytest.mark.parametrize(
    ("speed", "message", "hint"),
    [
        (
            changed(SPEED, '"first"', '"frist"'),
            "l.toml, speed of 'RNN': unknown rung 'frist'",
            "did you mean 'first'? rungs: first, second",
        ),
        (SPEED + SPEED, "l.toml, speed of 'RNN': A is there twice", "remove one of them"),
        (
            changed(SPEED, "B = 0.5", "B = 0"),
            "l.toml, speed[0].steps_per_second.B: expected a number > 0, found 0",
            "change speed[0].steps_per_second.B in l.toml",
        ),
        (
            changed(SPEED, "{ A = 2.0, B = 0.5 }", "{}"),
            "l.toml, speed[0].steps_per_second: expected a table of length >= 1, found an empty table",
            "change speed[0].steps_per_second in l.toml",
        ),
        (changed(SPEED, 'device = "d"\n', ""), "l.toml, speed[0].device: missing", "add device to speed[0]"),
        (
            changed(SPEED, "system", "sytsem"),
            "l.toml, speed[0].sytsem: unknown name",
            "did you mean 'system'? known names here: system, rung, source, device, steps_per_second",
        ),
    ],
)
def test_a_wrong_speed_is_refused(speed, message, hint):
    assert ladder_error(LADDER + speed) == (message, hint)


def test_speeds_of_other_sources_devices_and_systems_are_no_repetition(folder):
    others = [changed(SPEED, 's"\nd', 't"\nd'), changed(SPEED, '"d"', '"e"'), changed(SPEED, 'rung = "first"\n', "")]
    (folder / "l.toml").write_text(LADDER + SPEED + "".join(others))
    assert [one.rung for one in catalog.load_ladder("./l.toml").speeds] == ["first", "first", "first", None]


def test_an_error_below_free_keys_names_the_key_even_where_two_are_wrong():
    published = "".join(
        f'\n[[rung.published.{task}]]\nsource = "s"\nvalue = {value}\n'
        for task, value in (("A", 0.5), ("B", 69.9), ("C", 70.1))
    )
    message, hint = ladder_error(LADDER + published)
    assert message == "l.toml, rung[second].published.B[0].value: expected a number <= 1, found 69.9"
    assert hint == "change rung[second].published.B[0].value in l.toml"


def test_an_unknown_profile_gets_the_nearest_one(folder):
    (folder / "r.toml").write_text(RECIPE + "\n[profile.smoke]\nseeds = 1\n")
    recipe = catalog.load_recipe("r.toml")
    with pytest.raises(UsageError) as caught:
        catalog.get_profile(recipe, "smok")
    assert caught.value.message == "r.toml: unknown profile 'smok'"
    assert caught.value.hint == "did you mean 'smoke'? profiles: smoke"
    assert catalog.get_profile(recipe, "smoke").seeds == 1
    assert catalog.get_profile(recipe, None) == catalog.Profile()


def test_nested_tables_and_dotted_keys_are_the_same_paths():
    nested = {"model": {"recurrence": {"kind": "dense", "activation": "tanh"}, "depth": 1}}
    dotted = {"model.depth": 1, "model.recurrence.activation": "tanh", "model.recurrence.kind": "dense"}
    assert catalog.settings(nested, "x") == catalog.settings(dotted, "x") == dotted
    # whatever the order of the file, the kind comes first: it starts the table that the others fill
    assert next(iter(catalog.settings(dotted, "x"))) == "model.recurrence.kind"


HOSTILE = ["", "x - at `$.model`", "missing", "a.b", "[0]", "`", "\x1b[31m", "é" * 300]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_key_anywhere_is_an_error_of_the_file_never_of_the_program(name):
    for section in (None, "about", "model", "optim", "rung", "profile", "tune", "ours", "seeds"):
        for value in (1, "x", [], {}, {"x": {}}, {name: [{name: 1}]}):
            table = tomllib.loads(RECIPE)
            inner = table if section is None else table.setdefault(section, {})
            inner[name] = value
            with contextlib.suppress(UsageError):
                strict.convert(table, catalog.Recipe, "r.toml")
    with pytest.raises(UsageError) as caught:
        strict.convert(tomllib.loads(RECIPE) | {name: 1}, catalog.Recipe, "r.toml")
    shown = name or '""'
    assert caught.value.message == f"r.toml, {shown}: unknown name"


def test_a_key_that_reads_like_a_rule_is_still_unknown():
    message, hint = recipe_error("missing = 1\n" + RECIPE)
    assert message == "r.toml, missing: unknown name"
    assert hint.startswith("known names here: task, about")
