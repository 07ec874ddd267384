"""Recipes with a program: what they may say, which ladder they have, and what makes another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrurun.config import plan as planning
from lrurun.config.plan import Plan
from lrurun.config.schema import fingerprint
from lrurun.errors import LrurunError, UsageError
from tests.harness.commands import folder, said
from tests.harness.programs import write

__all__ = ["folder"]  # a fixture
WIDE = '"settings.block.wide" = true'


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            WIDE,
            '"settings.block.wid" = true',
            "toy.toml, rung wide, settings.block.wid: no setting of this program",
            "did you mean 'settings.block.wide'?",
        ),
        (
            WIDE,
            '"settings.block.wide" = 1',
            "toy.toml, rung wide, settings.block.wide: expected true or false, like false in the recipe, found 1",
            "change",
        ),
        (
            WIDE,
            '"settings.epochs" = 4.5',
            "toy.toml, rung wide, settings.epochs: expected a whole number, like 4 in the recipe, found 4.5",
            "write 4.0 in the recipe's [settings] if it may have fractions",
        ),
        (
            WIDE,
            '"settings.name" = 3',
            "toy.toml, rung wide, settings.name: expected a string, like plain text in the recipe, found 3",
            "change",
        ),
        (
            WIDE,
            '"model.depth" = 2',
            "toy.toml, rung wide, model.depth: no setting of this program",
            "its settings: settings.lr, settings.epochs, ",
        ),
        (
            '"toy.py"]\nfiles',
            '"toy.py", "{settings.eposch}"]\nfiles',
            "toy.toml [program], command[2]: unknown placeholder {settings.eposch}",
            "did you mean 'settings.epochs'?",
        ),
        (
            'files = ["toy.py"]',
            'files = ["toy.pi"]',
            "toy.toml [program], files: there is no file 'toy.pi' in .",
            "did you mean 'toy.py'?",
        ),
        ('files = ["toy.py"]', 'file = ["toy.py"]', "toy.toml, program.file: unknown name", "did you mean 'files'?"),
        (
            '"settings.epochs"',
            '"settings.name"',
            "toy.toml [program], steps: settings.name is not a whole number from 1 on",
            "name a setting that has the number of steps",
        ),
        (
            '"val/accuracy"',
            '"accuracy"',
            'toy.toml, program.metric: expected a name such as "val/accuracy", found "accuracy"',
            "change",
        ),
        (
            "chance = 0.1",
            "chance = 10",
            'toy.toml [program], chance: expected a fraction, because unit = "%", found 10.0',
            "write 0.1 for 10 %",
        ),
        ("epochs = 4", "epochs = 4\nseed = 1", "toy.toml, settings.seed: lrurun sets it", "remove it"),
        (
            "lr = 0.01",
            "lr = nan",
            "toy.toml, settings.lr: expected a string, a number, true or false, or a list of these, found nan",
            "change",
        ),
        (
            "lr = 0.01",
            "lr = 1979-05-27",
            "toy.toml, settings.lr: expected a string, a number, true or false, or a list of these, found date",
            "change",
        ),
        (
            'files = ["toy.py"]',
            'files = ["."]',
            "toy.toml [program], files: there is no file '.' in ",
            "for the files of a folder: **/*.py",
        ),
        (
            "[settings]",
            "[model]\ndepth = 3\n[settings]",
            "toy.toml [model]: is for lrurun's own models, and this recipe has a [program]",
            "write what the program takes into [settings]",
        ),
        (
            'task = "toy"',
            'task = "sDigits"',
            "toy.toml, task: 'sDigits' is a task of lrurun, and this recipe has a [program]",
            "choose another name",
        ),
        (
            '"settings.lr" = [0.01',
            '"settings.le" = [0.01',
            "toy.toml [tune.grid], settings.le: no setting of this program",
            "",
        ),
        (
            'than = "narrow"',
            'metric = "f1"\nthan = "narrow"',
            "toy.toml, claim 'wide blocks are better', metric: toy has no metric 'f1'",
            "metrics of toy: accuracy",
        ),
        ('than = "narrow"', "min_length = 5", "toy.toml, claim 'wide blocks are better'", ""),
    ],
)
def test_what_a_recipe_may_not_say(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str, hint: str
) -> None:
    write(folder, (old, new))
    code, out, err = said(capsys, "plan", "toy.toml")
    first, second, *_ = err.splitlines()
    assert (code, out) == (2, "")
    assert first.startswith(f"error: {message}")
    assert second.startswith(f"hint: {hint}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--set", "settings.epoch=3"),
            "--set settings.epoch: no setting of this program\nhint: did you mean 'settings.epochs'?",
        ),
        (
            ("--set", "settings.epochs=true"),
            "--set settings.epochs: expected a whole number, like 4 in the recipe, found true",
        ),
        (("--set", "optim.lr=3"), "--set optim.lr: no setting of this program\nhint: did you mean 'settings.lr'?"),
        (
            ("--sweep", "settings.lrs=1,2"),
            "--sweep settings.lrs: no setting of this program\nhint: did you mean 'settings.lr'?",
        ),
        (("--pack", "2"), "--pack: is for lrurun's own models, of which one process can train several seeds"),
        (("--ladder", "lru"), "ablations/lru.toml, rung tanh-rnn, model.recurrence.kind: no setting of this program"),
    ],
)
def test_options_that_a_program_does_not_have(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    write(folder)
    before = sorted(folder.rglob("*"))
    code, out, err = said(capsys, "ladder", "toy.toml", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert sorted(folder.rglob("*")) == before


def test_a_ladder_in_the_file_of_the_recipe_is_its_default(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """However the file is named, and also where it extends one that has the ladder."""
    write(folder)
    for name in ("toy.toml", "./toy.toml", str((folder / "toy.toml").absolute())):
        assert said(capsys, "check", "ladder", name)[0] == 0
        code, out, _ = said(capsys, "plan", name)
        assert (code, "wide" in out, "--ladder" in out) == (0, True, False)
    (folder / "child.toml").write_text('extends = "toy.toml"\n[settings]\nepochs = 2\n')
    code, out, _ = said(capsys, "plan", "child.toml")
    assert (code, "wide" in out) == (0, True)


def test_a_ladder_of_settings_needs_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder)
    code, _, err = said(capsys, "plan", "sDigits", "--ladder", "toy.toml")
    assert code == 2
    assert err.startswith("error: toy.toml, rung wide, settings.block.wide: ")
    assert "[program]" in err


def plan(folder: Path, *changes: tuple[str, str], **options: Any) -> Plan:
    write(folder, *changes)
    return planning.make("toy.toml", ladder="toy.toml", **options)


def test_the_ladder_of_a_recipe_is_its_own_or_another_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder)
    assert said(capsys, "check", "ladder", "toy.toml")[0] == said(capsys, "check", "recipe", "toy.toml")[0] == 0
    _, own, _ = said(capsys, "plan", "toy.toml")
    assert [line.split()[0] for line in own.splitlines()[2:4]] == ["narrow", "wide"]
    (folder / "other.toml").write_text(
        'name = "other"\ntitle = "other"\nsource = "me"\n[[rung]]\nname = "short"\ntitle = "short"\n'
        '[[rung]]\nname = "long"\ntitle = "long"\nchange = { "settings.epochs" = 8 }\n'
    )
    code, other, _ = said(capsys, "plan", "toy.toml", "--ladder", "other.toml")
    assert code == 0
    assert [line.split()[0] for line in other.splitlines()[2:4]] == ["short", "long"]
    made = planning.make("toy.toml", ladder="other.toml")
    assert [rung.steps for rung in made.rungs] == [4, 8]


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
