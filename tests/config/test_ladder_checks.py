"""Ladders whose rungs, claims or speeds do not fit together are refused."""

from __future__ import annotations

import json

import pytest

from lrurun.__main__ import run
from lrurun.config.ladder import load_ladder
from lrurun.data import TASKS
from tests.harness.mistakes import LADDER, changed, folder, ladder_error

__all__ = ["folder"]  # a fixture


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            'change = { "model.recurrence.activation" = "tanh" }',
            "",
            "l.toml, rung second: declares no change",
            'say what it changes: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
        ),
        (
            '"model.recurrence.activation" = "tanh"',
            '"model.recurence.activation" = "tanh"',
            "l.toml, rung second, model.recurence.activation: unknown name",
            "did you mean 'model.recurrence.activation'?",
        ),
        (
            '"model.recurrence.activation" = "tanh"',
            '"model.recurrence.kind" = "gru", "model.recurrence.dtmax" = 5',
            "l.toml, rung second, model.recurrence.dtmax: unknown name",
            "did you mean 'model.recurrence.t_max'?",
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
            "settings that can: model.*, optim.*, train.*, settings.*",
        ),
        ('"second"', '"first"', "l.toml, rung first: there are two rungs with this name", "rename one of them"),
        (
            'title = "the second"',
            "title = 2",
            "l.toml, rung[second].title: expected a string, found 2",
            "change rung[second].title in l.toml",
        ),
        (
            'title = "the second"\n',
            "title = 2\n",
            "l.toml, rung[second].title: expected a string, found 2",
            "change rung[second].title in l.toml",
        ),
        (
            'title = "the second"',
            'titel = "x"',
            "l.toml, rung[second].titel: unknown name",
            "did you mean 'title'? known names here: name, title, on, root, why, change, takes, tunes, published",
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
            "known names here: name, title, source, question, other_tasks, recipes, load, rung, speed, claim, grid",
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
        (
            on("second", "first").replace('on = "first"', 'on = "first"\nroot = true'),
            "l.toml, rung second: has root = true and on = 'first'",
            "remove one of them: a root has no base",
        ),
    ],
)
def test_a_rung_changes_an_earlier_one_or_is_refused(text, message, hint):
    assert ladder_error(text) == (message, hint)


def test_a_rung_changes_the_one_before_it_unless_it_names_another(folder):
    third = '\n[[rung]]\nname = "third"\ntitle = "x"\non = "first"\nchange = { "model.depth" = 2 }\n'
    fourth = third.replace("third", "fourth").replace('on = "first"\n', "")
    (folder / "l.toml").write_text(LADDER + third + fourth)
    assert load_ladder("./l.toml").bases == {
        "first": None,
        "second": "first",
        "third": "first",
        "fourth": "third",
    }


CLAIM = '\n[[claim]]\ntext = "t"\nsource = "s"\nrung = "second"\nthan = "first"\n'


CLAIM_T = "l.toml, claim 't': "


KINDS = "above-chance, as-fast, at-chance, better, equal, faster, no-worse"


@pytest.mark.parametrize(
    ("claim", "message", "hint"),
    [
        (
            changed(CLAIM, '"first"', '"frist"'),
            "l.toml, claim 't': unknown rung 'frist'",
            "did you mean 'first'? rungs: first, second",
        ),
        (CLAIM + 'kind = "equal"', CLAIM_T + 'kind = "equal" needs a margin', "add one, as in margin = 0.005"),
        (CLAIM + 'kind = "no-worse"', CLAIM_T + 'kind = "no-worse" needs a margin', "add one, as in margin = 0.005"),
        (
            CLAIM + "margin = 0.01",
            CLAIM_T + 'kind = "better" has no margin',
            'remove it, or set kind = "no-worse" or "equal"',
        ),
        (
            CLAIM + 'kind = "same"',
            f'l.toml, claim[0].kind: expected one of {KINDS}, found "same"',
            "change claim[0].kind in l.toml",
        ),
        (
            CLAIM + 'kind = "faster"\nmargin = 0.1',
            CLAIM_T + 'kind = "faster" has no margin',
            'remove it, or set kind = "no-worse" or "equal"',
        ),
        (
            CLAIM + 'kind = "at-chance"\nmargin = 0.1',
            CLAIM_T + 'kind = "at-chance" compares with chance, not with first',
            "remove `than`",
        ),
        (
            changed(CLAIM, 'than = "first"', 'kind = "at-chance"'),
            CLAIM_T + 'kind = "at-chance" needs a margin',
            "add one, as in margin = 0.005",
        ),
        (
            changed(CLAIM, 'than = "first"', ""),
            CLAIM_T + 'kind = "better" needs another rung',
            'name it: than = "RUNG"',
        ),
        (
            CLAIM + 'kind = "equal"\nmargin = 0.1\nmargins = { B = 0.2 }\ntasks = ["A"]',
            "l.toml, claim 't', margins: 'B' is not among the tasks of the claim",
            "its tasks: A",
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
        (SPEED + SPEED, "l.toml, speed of 'RNN': A is listed twice", "remove one of them"),
        (
            changed(SPEED, "B = 0.5", "B = 0"),
            "l.toml, speed[0].steps_per_second.B: expected a number > 0, found 0",
            "change speed[0].steps_per_second.B in l.toml",
        ),
        (
            changed(SPEED, "{ A = 2.0, B = 0.5 }", "{}"),
            "l.toml, speed of 'RNN': needs steps_per_second or relative_time",
            "give one of the two, as in relative_time = { Shift = 6.3 }",
        ),
        (
            SPEED + "relative_time = { A = 6.3 }\n",
            "l.toml, speed of 'RNN': needs steps_per_second or relative_time",
            "give one of the two, as in relative_time = { Shift = 6.3 }",
        ),
        (changed(SPEED, 'device = "d"\n', ""), "l.toml, speed[0].device: missing", "add device to speed[0]"),
        (
            changed(SPEED, "system", "sytsem"),
            "l.toml, speed[0].sytsem: unknown name",
            "did you mean 'system'? known names here: system, rung, source, device, steps_per_second, relative_time",
        ),
    ],
)
def test_a_wrong_speed_is_refused(speed, message, hint):
    assert ladder_error(LADDER + speed) == (message, hint)


def test_speeds_of_other_sources_devices_and_systems_are_no_repetition(folder):
    others = [changed(SPEED, 's"\nd', 't"\nd'), changed(SPEED, '"d"', '"e"'), changed(SPEED, 'rung = "first"\n', "")]
    text = (SPEED + "".join(others)).replace("{ A =", "{ Text =").replace("B =", "PathX =")
    (folder / "l.toml").write_text(LADDER + text)
    assert [one.rung for one in load_ladder("./l.toml").speeds] == ["first", "first", "first", None]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (CLAIM + 'tasks = ["Text", "Txet"]', "claim 't', tasks"),
        (CLAIM + 'kind = "equal"\nmargin = 0.1\nmargins = { Txet = 0.2 }', "claim 't', margins"),
        ('\n[[rung.published.Txet]]\nsource = "s"\nvalue = 0.5\n', "rung second, published"),
        (changed(SPEED, "{ A = 2.0, B", "{ Text = 2.0, Txet"), "speed of 'RNN', steps_per_second"),
    ],
)
def test_an_unknown_task_is_refused(text, where, folder, capsys):
    error = f"l.toml, {where}: unknown task 'Txet'"
    own = "--load FILE if it is a task of your own, other_tasks = ['Txet'] if only a paper has it"
    hint = f"did you mean 'Text'? it is one of {len(TASKS)} tasks; {own}"
    assert ladder_error(LADDER + text) == (error, hint)
    assert load_ladder("./l.toml", imports=False).name == "mine"  # a plug-in of it may not be loaded
    assert run(["plan", "sDigits", "--ladder", "l.toml"]) == 2
    assert capsys.readouterr().err == f"error: {error}\nhint: {hint}\n"
    assert run(["check", "ladder", "l.toml"]) == 2
    assert f"{error}; {hint}" in capsys.readouterr().out
    (folder / "recipes").mkdir()
    (folder / "recipes" / "Txet.toml").write_text("")
    assert load_ladder("./l.toml").name == "mine"  # a task of the user's own, which this command does not need
    (folder / "recipes" / "Txet.toml").unlink()
    (folder / "l.toml").write_text('other_tasks = ["Txet"]' + LADDER + text)
    assert run(["check", "ladder", "l.toml"]) == 0


def test_check_lists_everything_that_is_wrong_in_a_ladder(folder, capsys):
    claims = changed(CLAIM, '"first"', '"frist"') + CLAIM.replace('"t"', '"u"') + "margin = 0.1\n"
    (folder / "l.toml").write_text(on("second", "third") + claims)
    assert run(["check", "ladder", "l.toml", "--json"]) == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["detail"].partition(";")[0] for one in findings] == [
        "l.toml, rung second, on: unknown rung 'third'",
        "l.toml, claim 't': unknown rung 'frist'",
        "l.toml, claim 'u': kind = \"better\" has no margin",
    ]
    (folder / "l.toml").write_text(changed(LADDER, 'title = "the second"', "titel = 2") + claims + "depth = 0\n")
    assert run(["check", "ladder", "l.toml", "--json"]) == 2
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert [one["detail"].partition(":")[0] for one in findings] == [
        "l.toml, rung[second].titel",
        "l.toml, claim[1].depth",
    ]


def test_check_says_which_rungs_share_runs_and_counts_in_the_right_number(capsys):
    assert run(["check", "ladder", "lru", "--json"]) == 0
    details = {one["check"]: one["detail"] for one in json.loads(capsys.readouterr().out)["findings"]}
    [shared] = [detail for detail in details.values() if " ListOps" in detail]
    assert "; ring-init: same settings as stable-exponential on this task, shares its runs; " in shared
    assert "same settings" not in details["on sDigits"]
    assert run(["check", "ladder", "lru"]) == 0
    [_, _, recipes] = capsys.readouterr().out.splitlines()
    assert recipes.startswith("ok  lru     on every recipe  ring-init shares the runs of stable-exponential on ")
    assert run(["check", "recipe", "sDigits", "--ladder", "lru", "--json"]) == 0
    details = {one["check"]: one["detail"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert details["profile smoke"] == "8 rungs of ladder lru, 60 steps, 1 seed"


def test_a_ladder_need_not_be_meant_for_every_recipe(folder, capsys):
    """Heads of attention divide the width on some recipes alone."""
    heads = changed(LADDER, '"model.recurrence.activation" = "tanh"', '"model.recurrence.kind" = "attention"')
    (folder / "l.toml").write_text(heads.replace('"attention" }', '"attention", "model.recurrence.heads" = 48 }'))
    assert run(["check", "ladder", "l.toml", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    warnings = [one for one in findings if one["warning"]]
    assert 0 < sum(int(one["check"].split()[1]) if one["check"].endswith("recipes") else 1 for one in warnings)
    assert any(one["check"].startswith("on ") and not one["warning"] for one in findings)
    assert all(one["passed"] for one in findings)
    (folder / "l.toml").write_text(heads.replace('"attention" }', '"attention", "model.recurrence.heads" = 4099 }'))
    assert run(["check", "ladder", "l.toml", "--json"]) == 2, "none that it can run on"
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert len({one["detail"] for one in findings}) == len(findings) < 10, "each fault is there once"


def test_a_recurrence_of_a_file_beside_it_is_named_with_load(folder, capsys):
    (folder / "leaky.py").write_text("")
    assert run(["check", "recurrence", "leaky"]) == 2
    assert capsys.readouterr().err == "error: unknown recurrence 'leaky'\nhint: --load leaky.py\n"
