"""Recipes with a program: which ladder they have, and what makes another run. Their mistakes: `test_mistakes.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.planning import Plan
from lrurun.errors import LrurunError, UsageError
from lrurun.judging.scored_runs import scoring_of
from tests.harness.machine import Machine
from tests.harness.programs import write

WIDE = '"settings.block.wide" = true'


@pytest.fixture(autouse=True)
def folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(machine.folder)
    return machine.folder


def rungs_of(machine: Machine, *arguments: str) -> list[str]:
    return [rung["rung"] for rung in machine.json("plan", *arguments)["rungs"]]


def test_the_ladder_of_a_recipe_is_that_in_its_file_or_another(machine: Machine, folder: Path) -> None:
    """However the file is named, and also where it extends one that has the ladder."""
    write(folder)
    for name in ("toy.toml", "./toy.toml", str(folder / "toy.toml")):
        machine.run("check", "ladder", name)
        machine.run("check", "recipe", name)
        assert rungs_of(machine, name) == ["narrow", "wide"]
    assert "--ladder" not in machine.run("plan", "toy.toml").stdout
    (folder / "child.toml").write_text('extends = "toy.toml"\n[settings]\nepochs = 2\n')
    assert rungs_of(machine, "child.toml") == ["narrow", "wide"]
    (folder / "other.toml").write_text(
        'name = "other"\ntitle = "other"\nsource = "me"\n[[rung]]\nname = "short"\ntitle = "short"\n'
        '[[rung]]\nname = "long"\ntitle = "long"\nchange = { "settings.epochs" = 8 }\n'
    )
    assert rungs_of(machine, "toy.toml", "--ladder", "other.toml") == ["short", "long"]
    assert [rung.steps for rung in planning.make("toy.toml", ladder="other.toml").rungs] == [4, 8]


def plan(folder: Path, *changes: tuple[str, str], **options: Any) -> Plan:
    write(folder, *changes)
    return planning.make("toy.toml", ladder="toy.toml", **options)


def test_the_metric_has_the_unit_and_the_digits_of_the_recipe(folder: Path) -> None:
    def scored(*changes: tuple[str, str]) -> tuple[Any, ...]:
        metric = plan(folder, *changes).task.metric
        return metric.unit, metric.symbol, metric.scale, metric.decimals, metric.higher_is_better, metric.chance

    assert scored() == ("points", "%", 100.0, 1, True, 0.1)
    assert scored(('unit = "%"', 'unit = "m"\ndirection = "min"')) == ("m", "m", 1.0, 3, False, 0.1)
    assert scored(('unit = "%"', "decimals = 4")) == ("accuracy", "", 1.0, 4, True, 0.1)


@pytest.mark.parametrize(
    ("table", "step", "variance"),
    [
        ('unit = "%"', None, None),
        ('unit = "%"\ntest_items = 400', 1 / 400, 0.5 * 0.5 / 400),
        ('unit = "%"\ndirection = "min"\ntest_items = 400', 1 / 400, 0.5 * 0.5 / 400),
        ('unit = "m"\ntest_items = 400', None, None),
        ('unit = "%"\nshare = false\ntest_items = 400', None, None),
        ("share = true\ntest_items = 400", 1 / 400, 0.5 * 0.5 / 400),
    ],
)
def test_the_number_of_test_items_bounds_how_far_a_share_moves(
    folder: Path, table: str, step: float | None, variance: float | None
) -> None:
    made = plan(folder, ('unit = "%"', table))
    scoring = scoring_of(made.task.metric, {}, made.task.sizes(made.options).get("test"))
    assert scoring.items == (400 if "400" in table else None)
    assert scoring.step == step
    assert (scoring.items and scoring.metric.variance(0.5, scoring.items)) == variance
    assert scoring.learns_from is None
    assert scoring.chance == 0.1


def test_settings_of_a_rung_have_the_types_of_the_recipe(folder: Path) -> None:
    """A whole number is also a fraction: the same run."""
    spelled = plan(folder, (WIDE, '"settings.lr" = 1'))
    assert repr(spelled.rungs[1].config.settings["lr"]) == "1.0"
    fraction = plan(folder, (WIDE, '"settings.lr" = 1.0'))
    assert fingerprint(spelled.rungs[1].config) == fingerprint(fraction.rungs[1].config)
    nested = plan(folder)
    assert [rung.config.settings["block"] for rung in nested.rungs] == [{"wide": False}, {"wide": True}]
    assert nested.rungs[0].config.settings["lr"] == 0.01
    changed = plan(folder, sets={"settings.block.wide": True})
    assert changed.rungs[0].config == nested.rungs[1].config


@pytest.mark.parametrize(
    ("old", "new", "is_another"),
    [
        ('"toy.py"]\nfiles', '"toy.py", "-v"]\nfiles', True),
        ('"val/accuracy"', '"val/error"', True),
        ('unit = "%"', 'unit = "%"\ndirection = "min"', True),
        ("lr = 0.01", "lr = 0.02", True),
        ("lr = 0.01", "lr = 0.01\nmore = 1", True),
        ('files = ["toy.py"]', "files = []", True),
        ('files = ["toy.py"]', 'files = ["t*.py"]', False),
        ('unit = "%"', 'unit = "points"', False),
        ("chance = 0.1", "chance = 0.2", False),
        ('steps = "settings.epochs"', "steps = 7", False),
        ("chance = 0.1", "threads = 3\ndevices = 2\nstop_seconds = 9\nsilent_seconds = 9\ndecimals = 4", False),
        ("chance = 0.1", "test_items = 400\nshare = false", False),
    ],
)
def test_what_makes_another_run(folder: Path, old: str, new: str, is_another: bool) -> None:
    before = fingerprint(plan(folder).rungs[0].config)
    after = fingerprint(plan(folder, (old, new)).rungs[0].config)
    assert (after != before) == is_another


def test_another_content_of_a_file_makes_another_run(folder: Path) -> None:
    before = plan(folder).rungs[0].config
    (folder / "toy.py").write_text("print()\n")
    after = planning.make("toy.toml", ladder="toy.toml").rungs[0].config
    assert fingerprint(after) != fingerprint(before)
    (folder / "toy.py").unlink()
    with pytest.raises((LrurunError, UsageError), match=r"there is no file 'toy\.py'"):
        planning.make("toy.toml", ladder="toy.toml")
