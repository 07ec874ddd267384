"""`check recipe`: all that is missing or wrong in one pass, on the ladders that are meant; and documentation."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from lrurun import decoding, paths
from lrurun.commands.check import _check_recipe
from lrurun.config import plan as planning
from lrurun.config import recipe
from lrurun.config.ladder import Ladder
from lrurun.config.recipe import About, Recipe, load_recipe, read_recipe
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import RunConfig
from lrurun.errors import UsageError
from tests.harness.commands import folder, said
from tests.harness.plans import LADDER, RECIPE, changed

__all__ = ["folder"]  # a fixture

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
def warned() -> None:
    recipe._warn.cache_clear()


def found(
    capsys: pytest.CaptureFixture[str], text: str, *options: str, code: int = 2
) -> tuple[list[str], list[str], list[str]]:
    """Faults, warnings and checks that are passed, for a recipe with this text."""
    Path("r.toml").write_text(text)
    Path("l.toml").write_text(LADDER)
    got, out, err = said(capsys, "check", "recipe", "r.toml", *options, "--json")
    findings = json.loads(out)["findings"]
    failed = [one["detail"] for one in findings if not one["passed"]]
    assert got == code, err
    number = f"{len(failed)} fault" if len(failed) == 1 else f"{len(failed)} faults"
    assert err == (f"error: check recipe: {number} in r.toml\nhint: listed above\n" if failed else "")
    warnings = [one["detail"] for one in findings if one["warning"]]
    assert all(one["passed"] for one in findings if one["warning"])
    return failed, warnings, [one["detail"] for one in findings if one["passed"] and not one["warning"]]


def test_a_recipe_with_six_faults_lists_six(capsys: pytest.CaptureFixture[str]) -> None:
    text = RECIPE + LRU
    for old, new in (
        ("seeds = 2", "seeds = 0"),
        ("depth = 1", "depth = 1\ndeph = 1"),
        ("\nlr = 0.01", "\nlr = -0.01"),
        ("batch = 8\n", ""),
        ("max_phase = 0.3", 'max_phase = "0.3"'),
        ('"optim.lr" = [0.01, 0.02]', '"optim.lr" = [0.01, 20.0]'),
    ):
        text = changed(text, old, new)
    assert found(capsys, text, "--ladder", "lru")[0] == [
        "r.toml, seeds: expected a whole number >= 1, found 0; change seeds in r.toml",
        "r.toml, model.deph: unknown name; did you mean 'model.depth'?",
        "r.toml, optim.lr: expected a number > 0, found -0.01; change optim.lr in r.toml",
        "r.toml, train.batch: missing; add batch to train",
        "r.toml [tune.grid], optim.lr: expected a number <= 10, found 20.0; change optim.lr in r.toml [tune.grid]",
        'r.toml [ladder.lru.rung.small-phase], model.recurrence.max_phase: expected a number, found "0.3"; '
        "change model.recurrence.max_phase in r.toml [ladder.lru.rung.small-phase]",
    ]
    code, out, err = said(capsys, "check", "recipe", "r.toml", "--ladder", "lru")
    assert (code, err) == (2, "error: check recipe: 6 faults in r.toml\nhint: listed above\n")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["FAILED", "r.toml"]] * 6


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        ('task = "sDigits"', "", ["r.toml, task: missing; add task to the file"]),
        ('task = "sDigits"', 'path = "x"\ntask = "sDigits"', [
            "r.toml, path: unknown name; known names here: task, about, ",
        ]),
        ("[optim]", "[optimiser]", [
            "r.toml, optimiser: unknown name; did you mean 'optim'? known names here: task, about, seeds, data, model, "
            "optim, train, program, settings, execution, ours, ladder, tune, profile",
            "r.toml, optim: missing; add optim to the file",
            "r.toml, optim.lr: missing; add lr to optim",
            "r.toml, optim.recurrent_factor: missing; add recurrent_factor to optim",
            "r.toml, optim.weight_decay: missing; add weight_decay to optim",
        ]),
        ("[train]", "[data]\ntrian = 1\ntest = 0\n[train]", [
            "r.toml [data], trian: unknown name; did you mean 'train'? known names here: train, validation, test",
            "r.toml [data], test: expected a whole number >= 1, found 0; change test in r.toml [data]",
        ]),
        ("[tune.grid]", '[ladder."a b"]\nlr_published = "x"\n[tune]\nfond = "x"\n[tune.grid]', [
            "r.toml, ladder: expected a name of letters, digits, '.', '_' and '-', found 'a b'; rename it",
            "r.toml, tune.fond: unknown name; did you mean 'found'? ",
        ]),
        ("[tune.grid]", "[rung.gamma-norm.model]\nwidth = 8\n[ours]\nlr = 1\n[tune.grid]", [
            "r.toml, rung: unknown name; ",
            "r.toml, ours.lr: expected a string, found 1; change ours.lr in r.toml",
        ]),
        ("[tune.grid]", '[ladder.lru.rung.diagonal.tune]\n"x.y" = [1]\n[tune.grid]', [
            "r.toml [ladder.lru.rung.diagonal.tune], x.y: unknown name; paths begin with model., optim., ",
        ]),
        ("[tune.grid]", '[ours]\nlr = "x"\n[tune.grid]', ["r.toml [ours], lr: unknown name; did you mean 'optim.lr'?"]),
        ("[tune.grid]", '[tune.grid]\n"optim.b1" = [0.5, 0.5]', [
            "r.toml [tune.grid], optim.b1: 0.5 is listed twice; remove one of them",
        ]),
        ('"sDigits"', '"sDigit"', ["r.toml, task: unknown task 'sDigit'; did you mean 'sDigits'? "]),
        ("width = 4", "width = 0", [
            "r.toml [profile.small], model.width: expected a whole number >= 1, found 0; "
            "change model.width in r.toml [profile.small]",
        ]),
        # rules between values, once these are right
        ("depth = 1", 'depth = 1\nfinal_norm = true\nnorm_place = "post"', [
            'r.toml, model: final_norm = true needs norm_place = "pre": with "post" the last block ends in a norm; ',
            'r.toml [profile.small], model: final_norm = true needs norm_place = "pre": with "post" the last',
        ]),
        ("batch = 8", 'batch = 8\nprotocol = "paper"', [
            "r.toml, train.protocol: sDigits has no protocol 'paper'; protocols of this task: holdout",
        ]),
    ],
)  # fmt: skip
def test_every_fault_is_listed(capsys: pytest.CaptureFixture[str], old: str, new: str, faults: list[str]) -> None:
    text = BARE + '[tune.grid]\n"optim.lr" = [0.1]\n[profile.small.model]\nwidth = 4\n' + LRU
    failed, _, _ = found(capsys, changed(text, old, new))
    assert len(failed) == len(faults), failed
    for message, expected in zip(failed, faults, strict=True):
        assert message.startswith(expected)


def test_a_recipe_is_checked_on_the_ladders_that_it_has_values_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys, BARE + LRU, code=0) == ([], [], ["checked: never", "8 rungs of ladder lru, 10 steps, 2 seeds"])
    none = "not checked: the recipe has values for none; --ladder NAME checks one"
    assert found(capsys, BARE, code=0) == ([], [none], ["checked: never", "its values"])
    once = "validated once: train.eval_every = 11, of 10 steps"
    assert once in found(capsys, changed(BARE, "eval_every = 5", "eval_every = 11") + LRU, code=0)[1]
    missing = "r.toml, model.width: missing; add width to model"
    assert found(capsys, BARE.replace("width = 8\n", "")) == ([missing], [none], [])
    kind = found(capsys, BARE.replace("width = 8", 'width = 8\nrecurrence.kind = "lur"'))[0]
    assert [one.partition("expected one of")[0] for one in kind] == ["r.toml, model.recurrence.kind: "]
    failed, _, _ = found(capsys, BARE, "--ladder", "lru")
    assert len(failed) == 5
    assert failed[0].startswith("r.toml: [ladder.lru.rung.ring-init] does not set model.recurrence.r_min, which ladder")
    # a ladder of one's own has no name here, but a path
    own = "not checked: there is no ladder 'mine' here; --ladder PATH.toml checks one"
    assert found(capsys, RECIPE, code=0)[1] == [own]
    assert found(capsys, RECIPE, "--ladder", "l.toml", code=0)[2] == [
        "checked: never", "4 rungs of ladder mine, 10 steps, 2 seeds", "4 rungs of ladder mine, 4 steps, 1 seed",
    ]  # fmt: skip
    both = found(capsys, RECIPE + LRU, "--ladder", "l.toml", "--ladder", "lru", code=0)[2]
    assert both[1] == "4 rungs of ladder mine, 8 rungs of ladder lru, 10 steps, 2 seeds"
    misspelt = found(capsys, BARE + LRU.replace("ladder.lru.", "ladder.lur."), code=0)[1]
    assert misspelt == [
        "not checked: there is no ladder 'lur' here, did you mean 'lru'?; --ladder PATH.toml checks one"
    ]
    [unknown] = found(capsys, RECIPE.replace("mine.rung.ring.optim", "mine.rung.rnig.optim"), "--ladder", "l.toml")[0]
    assert unknown.startswith("r.toml [ladder.mine.rung.rnig]: ladder mine has no rung 'rnig'; did you mean 'ring'?")


def test_a_ladder_with_a_plug_in_is_loaded_only_where_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ablations").mkdir()
    Path("ablations/mine.toml").write_text(LADDER.replace("[[rung]]", 'load = ["none.py"]\n[[rung]]', 1))
    skipped = "not checked: loads none.py; --ladder mine does"
    assert found(capsys, RECIPE, code=0)[1] == [skipped]
    code, _, err = said(capsys, "check", "recipe", "r.toml", "--ladder", "mine")
    assert (code, "none.py" in err) == (2, True)


def test_faults_of_documentation_warn_and_do_not_stop_a_recipe_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
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
        recipe = changed(changed(RECIPE, about, text), "eval_every = 5", "eval_every = 4")
        assert found(capsys, recipe, "--ladder", "l.toml", code=0)[1] == expected
        code, out, err = said(capsys, "plan", "./r.toml", "--ladder", "l.toml")
        assert (code, "norm" in out) == (0, True)
        assert err.splitlines() == [
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


def test_options_that_are_not_for_recipes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "check", "ladder", "lru", "--ladder", "lru") == (
        2,
        "",
        "error: check ladder: --ladder is for recipes\nhint: omit it\n",
    )


def replaced(table: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy in which the value at `path` is another one, or is left out if that is None."""
    first, *rest = path
    other = dict(table) if isinstance(table, dict) else list(table)
    if rest or value is not None:
        other[first] = replaced(table[first], tuple(rest), value) if rest else value
    else:
        del other[first]
    return other


def paths_of(table: Any) -> Iterator[tuple[Any, ...]]:
    """Every key and index in a table, from its top."""
    for key in table if isinstance(table, dict) else range(len(table)):
        yield (key,)
        if isinstance(table[key], dict | list):
            yield from ((key, *path) for path in paths_of(table[key]))


def documents() -> list[tuple[dict[str, Any], type]]:
    config = msgspec.to_builtins(planning.make("sDigits").rungs[-1].config)
    settings: Any = KINDS[config["model"]["recurrence"]["kind"]].settings
    ladder = decoding.load_toml(paths.packaged("ablations") / "lru.toml")
    return [
        (config, RunConfig[settings]),
        (tomllib.loads(RECIPE), Recipe),
        ({**ladder, "rung": ladder["rung"][-1:], "claim": ladder["claim"][-1:], "speed": ladder["speed"][:1]}, Ladder),
    ]


def test_examining_agrees_with_msgspec_and_finds_two_faults_at_once() -> None:
    """Over documents in which each value is replaced by each of several others, or left out."""
    none = {"nothing": decoding.missing("", "x")}  # so that valid tables are walked through too
    for table, type_ in documents():
        for path in paths_of(table):
            for value in (None, -3, 1e300, "x y", True, [], {"x": 1}):
                other = replaced(table, path, value)
                got, faults = decoding.examine(other, type_, "r", known_faults=none)
                try:
                    assert (got, faults) == (msgspec.convert(other, type_, strict=True), [])
                except msgspec.ValidationError:
                    assert faults, (path, value)
                    second = decoding.examine({**other, "x y": 3}, type_, "r")[1]
                    assert [(one.path, one.rule) for one in second] != [(one.path, one.rule) for one in faults]
                    assert {(one.path, one.rule) for one in second} >= {
                        ("x y", decoding.UNKNOWN_NAME),
                        *((one.path, one.rule) for one in faults),
                    }, (path, value)


class Mixed(msgspec.Struct):
    amount: Literal["auto"] | int


@pytest.mark.parametrize("amount", ["auto", 3, 1.5, "automatic", True])
def test_a_setting_is_one_of_some_words_or_a_number(amount: Any) -> None:
    table = {"amount": amount}
    value, faults = decoding.examine(table, Mixed, "r")
    try:
        assert (value, faults) == (msgspec.convert(table, Mixed, strict=True), [])
    except msgspec.ValidationError:
        assert [fault.path for fault in faults] == ["amount"]
        assert "'auto' or a whole number" in faults[0].rule
