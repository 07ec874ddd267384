"""`check recipe` and `check ladder`: on which ladders and recipes, with which warnings; and documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.commands.check import _check_recipe
from lrurun.config import recipe
from lrurun.config.recipe import About, load_recipe, read_recipe
from lrurun.errors import UsageError
from tests.harness.machine import Machine
from tests.harness.plans import LADDER, RECIPE, changed

BARE = RECIPE[: RECIPE.index("[ladder.mine")]
"""Without values for any ladder."""
LRU = """
[ladder.lru.rung.ring-init.model.recurrence]
r_min = 0.5
r_max = 0.9
[ladder.lru.rung.gamma-norm.model.recurrence]
r_min = 0.5
r_max = 0.9
[ladder.lru.rung.small-phase.model.recurrence]
max_phase = 0.3
"""


@pytest.fixture(autouse=True)
def folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    recipe._warn.cache_clear()
    monkeypatch.chdir(machine.folder)
    return machine.folder


def found(machine: Machine, text: str, *options: str, code: int = 2) -> tuple[list[str], list[str], list[str]]:
    """Faults, warnings and checks that are passed, for a recipe with this text."""
    Path("r.toml").write_text(text)
    Path("l.toml").write_text(LADDER)
    done = machine.run("check", "recipe", "r.toml", *options, "--json", code=code)
    findings = json.loads(done.stdout)["findings"]
    failed = [one["detail"] for one in findings if not one["passed"]]
    assert bool(failed) == bool(code) == bool(done.stderr)
    warnings = [one["detail"] for one in findings if one["warning"]]
    assert all(one["passed"] for one in findings if one["warning"])
    return failed, warnings, [one["detail"] for one in findings if one["passed"] and not one["warning"]]


def test_a_recipe_is_checked_on_the_ladders_that_it_has_values_for(machine: Machine) -> None:
    assert found(machine, BARE + LRU, code=0) == (
        [],
        [],
        ["checked: never", "8 rungs of ladder lru, 10 steps, 2 seeds"],
    )
    none = "not checked: the recipe has values for none; --ladder NAME checks one"
    assert found(machine, BARE, code=0) == ([], [none], ["checked: never", "its values"])
    once = "validated once: train.eval_every = 11, of 10 steps"
    assert once in found(machine, changed(BARE, "eval_every = 5", "eval_every = 11") + LRU, code=0)[1]
    missing = "r.toml, model.width: missing; add width to model"
    assert found(machine, BARE.replace("width = 8\n", "")) == ([missing], [none], [])
    [kind] = found(machine, BARE.replace("width = 8", 'width = 8\nrecurrence.kind = "lur"'))[0]
    assert kind.startswith("r.toml, model.recurrence.kind: expected one of")
    failed, _, _ = found(machine, BARE, "--ladder", "lru")
    assert len(failed) == 5
    assert failed[0].startswith("r.toml: [ladder.lru.rung.ring-init] does not set model.recurrence.r_min, which ladder")
    # a ladder of one's own has no name here, but a path
    own = "not checked: there is no ladder 'mine' here; --ladder PATH.toml checks one"
    assert found(machine, RECIPE, code=0)[1] == [own]
    assert found(machine, RECIPE, "--ladder", "l.toml", code=0)[2] == [
        "checked: never", "4 rungs of ladder mine, 10 steps, 2 seeds", "4 rungs of ladder mine, 4 steps, 1 seed",
    ]  # fmt: skip
    both = found(machine, RECIPE + LRU, "--ladder", "l.toml", "--ladder", "lru", code=0)[2]
    assert both[1] == "4 rungs of ladder mine, 8 rungs of ladder lru, 10 steps, 2 seeds"
    misspelt = found(machine, BARE + LRU.replace("ladder.lru.", "ladder.lur."), code=0)[1]
    assert misspelt == [
        "not checked: there is no ladder 'lur' here, did you mean 'lru'?; --ladder PATH.toml checks one"
    ]
    [unknown] = found(machine, RECIPE.replace("mine.rung.ring.optim", "mine.rung.rnig.optim"), "--ladder", "l.toml")[0]
    assert unknown.startswith("r.toml [ladder.mine.rung.rnig]: ladder mine has no rung 'rnig'; did you mean 'ring'?")


def test_a_ladder_with_a_plug_in_is_loaded_only_where_it_is_named(machine: Machine) -> None:
    Path("ablations").mkdir()
    Path("ablations/mine.toml").write_text(LADDER.replace("[[rung]]", 'load = ["none.py"]\n[[rung]]', 1))
    skipped = "not checked: loads none.py; --ladder mine does"
    assert found(machine, RECIPE, code=0)[1] == [skipped]
    assert "none.py" in machine.refused("check", "recipe", "r.toml", "--ladder", "mine")


def test_faults_of_documentation_warn_and_do_not_stop_a_recipe_of_ones_own(machine: Machine) -> None:
    about = RECIPE[RECIPE.index("[about]") : RECIPE.index("[model]")]
    for text, expected in (
        ('[about]\nsource = "ours"\nhours = -1\nauthor = "me"\n', [
            "r.toml, about.hours: expected a number >= 0, found -1; change about.hours in r.toml",
            "r.toml, about.author: unknown name; known names here: source, expect, device, hours, checked, notes",
            "r.toml, about.expect: missing; add expect to about",
            "r.toml, about.device: missing; add device to about",
            "r.toml, about.checked: missing; add checked to about",
        ]),
        ("", ["r.toml, about: missing; add about to the file"]),
    ):  # fmt: skip
        whole = changed(changed(RECIPE, about, text), "eval_every = 5", "eval_every = 4")
        assert found(machine, whole, "--ladder", "l.toml", code=0)[1] == expected
        done = machine.run("plan", "./r.toml", "--ladder", "l.toml")
        assert "norm" in done.stdout
        assert done.stderr.splitlines() == [
            f"warning: {one.replace('; ', ': only documentation, the recipe is used without it; ', 1)}"
            for one in expected
        ]
        read = read_recipe("./r.toml").about
        assert read == About(source="ours" * bool(text), expect="", device="", hours=0, checked="never")


def test_documentation_of_the_packaged_recipes_is_complete_and_its_faults_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packaged = Path("packaged")
    packaged.mkdir()
    (packaged / "sDigits.toml").write_text(
        (paths.packaged("recipes") / "sDigits.toml").read_text().replace("hours =", "hour =")
    )
    original = paths.packaged
    monkeypatch.setattr(paths, "packaged", lambda kind: packaged.absolute() if kind == "recipes" else original(kind))
    failed = [one.detail for one in _check_recipe("sDigits", ["lru"]) if not one.passed]
    assert [one.partition(":")[0].rpartition(", ")[2] for one in failed] == ["about.hour", "about.hours"]
    with pytest.raises(UsageError, match=r"about\.hour: unknown name"):
        load_recipe("sDigits")


def test_options_and_names_that_do_not_fit_are_refused(machine: Machine) -> None:
    assert "--ladder is for recipes" in machine.refused("check", "ladder", "lru", "--ladder", "lru")
    Path("leaky.py").write_text("")
    refused = "error: unknown recurrence 'leaky'\nhint: --load leaky.py\n"
    assert machine.refused("check", "recurrence", "leaky") == refused


def test_check_says_which_rungs_share_runs_and_counts_in_the_right_number(machine: Machine) -> None:
    details = {one["check"]: one["detail"] for one in machine.json("check", "ladder", "lru")["findings"]}
    [shared] = [detail for detail in details.values() if " ListOps" in detail]
    assert "; ring-init: same settings as stable-exponential on this task, shares its runs; " in shared
    assert "same settings" not in details["on sDigits"]
    findings = machine.json("check", "recipe", "sDigits", "--ladder", "lru")["findings"]
    details = {one["check"]: one["detail"] for one in findings}
    assert details["profile smoke"] == "8 rungs of ladder lru, 60 steps, 1 seed"


def test_a_ladder_need_not_be_meant_for_every_recipe(machine: Machine) -> None:
    """Heads of attention divide the width on some recipes alone."""
    plain = LADDER[: LADDER.index('[[rung]]\nname = "ring"')]
    heads = changed(plain, 'kind" = "diagonal"', 'kind" = "attention", "model.recurrence.heads" = 48')
    Path("l.toml").write_text(heads)
    findings = machine.json("check", "ladder", "l.toml")["findings"]
    warnings = [one for one in findings if one["warning"]]
    assert 0 < sum(int(one["check"].split()[1]) if one["check"].endswith("recipes") else 1 for one in warnings)
    assert any(one["check"].startswith("on ") and not one["warning"] for one in findings)
    assert all(one["passed"] for one in findings)
    some = 'recipes = ["sDigits", "npDigits", "PathX"]\n' + heads
    Path("l.toml").write_text(some.replace("48", "4099"))
    error = machine.run("check", "ladder", "l.toml", code=2).stderr
    assert error == (
        "error: check ladder: l.toml fails on sDigits, npDigits, PathX\n"
        'hint: the table above shows why; a ladder for some recipes names them: recipes = ["NAME", ...]\n'
    )
    Path("l.toml").write_text(heads.replace("48", "4099"))  # none that it can run on
    error = machine.run("check", "ladder", "l.toml", code=2).stderr
    more = len(paths.names("recipes")) - 8
    assert re.match(rf"error: check ladder: l\.toml fails on (\w+, ){{7}}\w+ and {more} more\nhint: ", error)
    findings = machine.json("check", "ladder", "l.toml", code=2)["findings"]
    assert len({one["detail"] for one in findings}) == len(findings) < 10, "each fault is there once"


def test_a_recipe_in_the_place_of_a_ladder_is_called_so_and_the_other_way_round(machine: Machine) -> None:
    recipe = paths.find("recipes", "sDigits").read_text()
    texts = {
        "r.toml": recipe,
        "half.toml": 'task = "npDigits"\n',
        "untitled.toml": "[model]\ndepth = 1\n",
        "l.toml": LADDER,
        "claims.toml": LADDER[LADDER.index("[[claim]]") :] if "[[claim]]" in LADDER else '[[claim]]\ntext = "x"\n',
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    for name in ("r.toml", "half.toml", "untitled.toml"):
        for words in (["plan", "sDigits", "--ladder", name], ["claims", "--ladder", name], ["check", "ladder", name]):
            error = machine.refused(*words)
            assert error.startswith(f"error: {name}: this is a recipe, expected a ladder\nhint: ")
            assert f"lrurun plan {name}" in error
    for name in ("l.toml", "claims.toml"):
        for words in (["plan", name], ["report", name], ["data", "info", name], ["check", "recipe", name]):
            error = machine.refused(*words)
            assert error.startswith(f"error: {name}: this is a ladder, expected a recipe\nhint: ")
            assert f"--ladder {name}" in error
    both = machine.refused("plan", "l.toml", "--ladder", "r.toml")
    assert "r.toml: this is a recipe" in both or "l.toml: this is a ladder" in both
