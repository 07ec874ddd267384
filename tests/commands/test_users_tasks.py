"""Tasks of plug-ins while they are written: faults of their code, edits of their file, `data prepare --force`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lrurun import plugins
from lrurun.data import TASKS
from lrurun.data.store import Manifest, load, manifest, prepare
from lrurun.errors import LrurunError
from lrurun.runner import worker
from lrurun.runner.work import Preparation
from tests.harness.commands import said
from tests.harness.plug_ins import MAJORITY, RECIPE, folder, forget, forgotten
from tests.harness.scored import LADDER

__all__ = ["folder", "forgotten"]  # fixtures

PREPARE = ("data", "prepare", "m.toml", "--load", "mine.py", "--data-dir", "data")
FILL = "        def fill(writer, tell):\n"
LINE = MAJORITY[: MAJORITY.index(FILL)].count("\n") + 2
"""The first line in `fill`."""


def written(text: str) -> None:
    """Saves and loads the task, as a new process does."""
    Path("m.toml").write_text(RECIPE)
    Path("mine.py").write_text(text)
    forget()


def edited(text: str, *, force: bool = False) -> Manifest:
    """The manifest after preparing the data with this text of the plug-in."""
    written(text)
    plugins.load("mine.py")
    task = TASKS["Majority"]
    return prepare(task, task.options(), Path("data/Majority"), force=force)


def test_an_exception_in_fill_is_reported_with_file_line_and_cause(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(MAJORITY.replace(FILL, f"{FILL}            self.nothing\n"))
    code, _, err = said(capsys, *PREPARE, "--debug")
    assert code == 1
    assert err.splitlines()[-2:] == [
        f"error: mine.py, line {LINE}: raised AttributeError: 'Majority' object has no attribute 'nothing'",
        "hint: --debug shows the traceback",
    ]
    assert "In the worker process:\nTraceback (most recent call last):\n" in err
    assert f'mine.py", line {LINE}, in fill\n' in err
    assert not Path("data").exists()


def test_exceptions_of_other_methods_and_of_the_system_are_told_apart(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(MAJORITY.replace("return Spec(name=self.name", "return Spec(name=self.nothing"))
    code, _, err = said(capsys, "data", "info", "m.toml", "--load", "mine.py")
    assert (code, "bug in lrurun" in err) == (1, False)
    assert "raised AttributeError: 'Majority' object has no attribute 'nothing'" in err
    with pytest.raises(LrurunError, match=rf"mine\.py, line {LINE}: raised FileNotFoundError: .*'nowhere'"):
        edited(MAJORITY.replace(FILL, f"{FILL}            open('nowhere')\n"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "train-inputs.npy")

    monkeypatch.setattr("lrurun.data.arrays._write", full)  # called by the plug-in's fill, but not its fault
    with pytest.raises(LrurunError, match=r"^train-inputs\.npy: No space left on device$"):
        edited(MAJORITY)


def test_an_edit_without_a_new_version_keeps_the_data_with_a_note(folder: Path) -> None:
    made = edited(MAJORITY)
    noted = edited(MAJORITY + "# a comment\n")
    where = Path("data/Majority")
    assert noted.sha256 == made.sha256
    assert noted.notes == [
        "mine.py has changed since data/Majority was prepared, but not its version '1': if its data are different now, "
        "change the version, or run: lrurun data prepare RECIPE.toml --load mine.py --force"
    ]
    task = TASKS["Majority"]
    assert load(task, task.options(), where).sha256
    other = MAJORITY.replace("sum(1) > 4", "sum(1) > 5")
    again = edited(other, force=True)
    assert again.sha256 != made.sha256
    assert not again.notes
    assert [path.name for path in Path("data").glob("*[!k]")] == ["Majority"]
    with pytest.raises(LrurunError, match="expected finite"):
        edited(MAJORITY.replace(".astype(np.uint8)\n", ".astype(np.float32) + np.inf\n", 1), force=True)
    with pytest.raises(LrurunError, match="expected Majority version 2, found Majority version 1") as caught:
        edited(other.replace('version = "1"', 'version = "2"'))
    assert caught.value.hint == "run: lrurun data prepare RECIPE.toml --load mine.py --force"
    assert json.loads((where / "manifest.json").read_text())["sha256"] == again.sha256
    assert edited(other.replace('version = "1"', 'version = "2"'), force=True).version == "2"


def test_force_replaces_nothing_but_prepared_data(folder: Path) -> None:
    where = Path("data/Majority")
    where.mkdir(parents=True)
    (where / "letters").write_text("mine")
    with pytest.raises(LrurunError, match="this folder exists, but has no manifest"):
        edited(MAJORITY, force=True)
    assert (where / "letters").read_text() == "mine"


def test_data_of_a_plug_in_are_not_those_of_lruruns_own_task(folder: Path) -> None:
    edited(MAJORITY)
    task = TASKS["Majority"]
    task.code = ""  # as if lrurun had this task
    with pytest.raises(LrurunError, match="of the task Majority of a plug-in, expected those of lrurun's own"):
        manifest(task, task.options(), Path("data/Majority"))


@pytest.mark.slow
def test_finished_runs_on_other_data_than_the_prepared_ones_are_no_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are after an edit without a new version, a ladder on the old data, and --force."""
    edited(MAJORITY)
    written(MAJORITY.replace("sum(1) > 4", "sum(1) > 5"))
    Path("sizes.toml").write_text(LADDER)
    ladder = ("ladder", "m.toml", "--load", "mine.py", "--ladder", "sizes.toml", "--rung", "few", "--data-dir", "data")
    assert said(capsys, *ladder)[0] == 0
    assert said(capsys, *PREPARE, "--force")[0] == 0
    for more in ((), ("--seeds", "3")):
        code, out, err = said(capsys, *ladder, *more)
        assert (code, out) == (1, "")
        assert re.search(r"finished runs? \(.*\) had other data: sha256:\w+, those in .*data/Majority are sha256:", err)
        assert "hint: train them again with --fresh, or restore the data that they were trained on" in err
    assert said(capsys, *ladder, "--fresh")[0] == 0
    assert "nothing to do" in said(capsys, *ladder)[2]


@pytest.mark.slow
def test_force_prepares_the_data_of_an_edited_file_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(MAJORITY)
    written(MAJORITY + "# a comment\n")
    code, _, err = said(capsys, *PREPARE)
    assert (code, err.startswith("warning: mine.py has changed since data/Majority was prepared")) == (0, True)
    assert said(capsys, *PREPARE, "--force")[0] == 0
    assert "mine.py was not read; --force reads it" in said(capsys, *PREPARE, "--from", "mine.py")[2]
    assert said(capsys, *PREPARE) == (0, "data/Majority: train 64, validation 32, test 32; nine fair bits\n", "")


def test_hints_name_the_recipe_that_the_command_uses(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    edited(MAJORITY)
    written(MAJORITY + "# a comment\n")
    arguments = ("my recipe.toml", "--load", "mine.py", "--data-dir", "data")
    Path("m.toml").rename("my recipe.toml")
    again = "hint: run: lrurun data prepare 'my recipe.toml' --load mine.py"
    assert "lrurun data prepare 'my recipe.toml' --load mine.py --force" in said(capsys, "data", "check", *arguments)[2]
    written(MAJORITY.replace('version = "1"', 'version = "2"'))
    code, _, err = said(capsys, "data", "check", *arguments)
    assert (code, err.splitlines()[-1]) == (1, f"{again} --force")
    assert said(capsys, "ladder", *arguments[:3], "--data-dir", "none", "--dry-run")[0] == 2  # reads the recipe
    with pytest.raises(LrurunError) as caught:
        load(TASKS["Majority"], TASKS["Majority"].options(), Path("none/Majority"))
    assert caught.value.hint == again.removeprefix("hint: ")
    # in the process that prepares, which does not read the recipe
    TASKS["Majority"].recipe = ""
    preparation = Preparation(
        task="Majority",
        options={},
        data=Path("data/Majority").absolute(),
        from_path=None,
        recipe="my recipe.toml",
    )
    with pytest.raises(LrurunError) as caught:
        worker._prepare(preparation)
    assert caught.value.hint == f"{again.removeprefix('hint: ')} --force"
