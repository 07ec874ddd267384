"""Recipes and ladders with mistakes: errors of two lines; and which file a name or a path stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lrurun import data
from tests.harness.commands import folder, lrurun
from tests.harness.plans import SMALL_RECIPE

__all__ = ["folder"]  # a fixture

TASKS = ", ".join(data.TASKS)

GOOD_RECIPE = (
    SMALL_RECIPE.replace("\n\n", "\n")
    + """\
[ladder.bad.rung.ring.model.recurrence]
r_min = 0.5
r_max = 0.9
"""
)
GOOD_LADDER = """
name = "bad"
title = "t"
source = "s"
[[rung]]
name = "plane"
title = "t"
change = { "model.recurrence.kind" = "diagonal" }
[[rung]]
name = "ring"
title = "t"
tunes = ["model.recurrence.r_min", "model.recurrence.r_max"]
"""


def documents(kind: str, old: str, new: str) -> None:
    for name, text in (("recipes/sDigits.toml", GOOD_RECIPE), ("ablations/bad.toml", GOOD_LADDER)):
        if name.startswith(kind):
            assert old in text
            text = text.replace(old, new, 1)
        Path(name).parent.mkdir()
        Path(name).write_text(text)


@pytest.mark.parametrize("command", [["ladder", "sDigits"], ["plan", "sDigits", "--json"]])
@pytest.mark.parametrize(
    ("kind", "old", "new", "error", "hint"),
    [
        (
            "recipes",
            "lr = 0.01",
            "lr = 0.01.",
            "recipes/sDigits.toml: not valid TOML: Expected newline or end of document after a statement "
            "(at line 14, column 10)",
            "correct the line named above",
        ),
        (
            "recipes",
            "width",
            "widht",
            "recipes/sDigits.toml, model.widht: unknown name",
            "did you mean 'model.width'?",
        ),
        (
            "recipes",
            "width = 8",
            'width = "8"',
            'recipes/sDigits.toml, model.width: expected a whole number, found "8"',
            "change model.width in recipes/sDigits.toml",
        ),
        (
            "recipes",
            "r_max = 0.9",
            "r_max = 0.4",
            "recipes/sDigits.toml [ladder.bad.rung.ring], model.recurrence: r_min must not be larger than r_max, found "
            "r_min = 0.5, r_max = 0.4",
            "change one of the values named above",
        ),
        (
            "recipes",
            "lr = 0.01",
            "lr = -0.01",
            "recipes/sDigits.toml, optim.lr: expected a number > 0, found -0.01",
            "change optim.lr in recipes/sDigits.toml",
        ),
        (
            "recipes",
            'task = "sDigits"',
            'task = "EnWik8"',
            "recipes/sDigits.toml, task: unknown task 'EnWik8'",
            f"tasks: {TASKS}; --load FILE if it is a task of your own",
        ),
        (
            "ablations",
            'tunes = ["model.recurrence.r_min", "model.recurrence.r_max"]',
            "",
            "ablations/bad.toml, rung ring: declares no change",
            'say what it changes: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
        ),
        (
            "ablations",
            "model.recurrence.r_min",
            "model.recurrence.rmin",
            "ablations/bad.toml, rung ring, model.recurrence.rmin: unknown name",
            "did you mean 'model.recurrence.r_min'?",
        ),
        (
            "ablations",
            'name = "ring"',
            'name = "plane"',
            "ablations/bad.toml, rung plane: there are two rungs with this name",
            "rename one of them",
        ),
        (
            "ablations",
            'title = "t"',
            "title = [1]",
            "ablations/bad.toml, title: expected a string, found a list",
            "change title in ablations/bad.toml",
        ),
    ],
)
def test_invalid_documents_give_an_error_of_two_lines_and_no_file(command, kind, old, new, error, hint, capsys):
    documents(kind, old, new)
    assert lrurun(capsys, *command, "--ladder", "bad") == (2, "", f"error: {error}\nhint: {hint}\n")


def test_the_valid_documents_of_these_tests_are_valid(capsys):
    documents("", "", "")
    code, out, err = lrurun(capsys, "plan", "sDigits", "--ladder", "bad", "--json")
    assert code == 0, err
    assert [rung["rung"] for rung in json.loads(out)["rungs"]] == ["plane", "ring"]


def test_a_local_file_that_hides_a_packaged_one_is_named(capsys):
    hiding = "using recipes/sDigits.toml, which hides the packaged file of that name\n"
    assert hiding not in lrurun(capsys, "plan", "sDigits")[2]
    documents("", "", "")
    code, _, err = lrurun(capsys, "plan", "sDigits", "--ladder", "bad")
    assert (code, err) == (0, hiding)
    # the same name as a path, and another name, hide nothing
    Path("mine.toml").write_text(GOOD_RECIPE)
    assert lrurun(capsys, "plan", "./mine.toml", "--ladder", "bad")[2] == ""


def test_check_refuses_what_plan_refuses(capsys):
    documents("recipes", "width", "widht")
    for name in ("sDigits", "./recipes/sDigits.toml"):
        code, out, err = lrurun(capsys, "check", "recipe", name)
        assert (code, err) == (2, f"error: check recipe: 2 faults in {name}\nhint: listed above\n")
        assert "recipes/sDigits.toml, model.widht: unknown name; did you mean 'model.width'?\n" in out
    assert lrurun(capsys, "check", "ladder", "bad")[0] != 0


def test_a_recipe_and_a_ladder_may_be_files_anywhere(capsys, tmp_path, monkeypatch):
    documents("", "", "")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recipe, ladder = tmp_path / "recipes/sDigits.toml", tmp_path / "ablations/bad.toml"
    code, out, err = lrurun(capsys, "plan", str(recipe), "--ladder", str(ladder), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ladder"] == "bad"
