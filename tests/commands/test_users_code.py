"""Recurrences and tasks of the user's own: faults and edits of their files, and all commands on what was trained."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun import plugins
from lrurun.config.planning import final_runs
from lrurun.data.task_data import Manifest, load, manifest, prepare
from lrurun.data.tasks import TASKS
from lrurun.errors import LrurunError
from lrurun.instances import documents, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.ledger import Ledger
from lrurun.runner import orders
from lrurun.runner.work import Preparation
from tests.harness import scored
from tests.harness.machine import Machine
from tests.harness.plug_ins import AVERAGES, LADDER, MAJORITY, RECIPE, forget, forgotten

__all__ = ["forgotten"]  # a fixture
PREPARE = ("data", "prepare", "m.toml", "--load", "mine.py", "--data-dir", "data")
FILL = "        def fill(writer, tell):\n"
LINE = MAJORITY[: MAJORITY.index(FILL)].count("\n") + 2
"""The first line in `fill`."""
OTHER = MAJORITY.replace("sum(1) > 4", "sum(1) > 5")


def written(text: str) -> None:
    """Saves the task in the working directory; it is loaded later, as in a new process."""
    Path("m.toml").write_text(RECIPE)
    Path("mine.py").write_text(text)
    forget()


def edited(text: str, *, force: bool = False) -> Manifest:
    """The manifest after preparing the data with this text of the plug-in."""
    written(text)
    plugins.load("mine.py")
    task = TASKS["Majority"]
    return prepare(task, task.options(), Path("data/Majority"), force=force)


def versioned(text: str) -> str:
    return text.replace('version = "1"', 'version = "2"')


def test_exceptions_of_a_task_are_reported_with_file_line_and_cause(here: Machine, monkeypatch) -> None:
    written(MAJORITY.replace(FILL, f"{FILL}            self.nothing\n"))
    err = here.run(*PREPARE, "--debug", code=1).stderr
    nothing = "raised AttributeError: 'Majority' object has no attribute 'nothing'"
    assert err.endswith(f"error: mine.py, line {LINE}: {nothing}\nhint: --debug shows the traceback\n")
    assert "In the worker process:\nTraceback (most recent call last):\n" in err
    assert f'mine.py", line {LINE}, in fill\n' in err
    assert not Path("data").exists()
    written(MAJORITY.replace("return Spec(name=self.name", "return Spec(name=self.nothing"))
    said = here.refused("data", "info", "m.toml", "--load", "mine.py", code=1)
    assert nothing in said
    assert "bug in lrurun" not in said
    with pytest.raises(LrurunError, match=rf"mine\.py, line {LINE}: raised FileNotFoundError: .*'nowhere'"):
        edited(MAJORITY.replace(FILL, f"{FILL}            open('nowhere')\n"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "train-inputs.npy")

    monkeypatch.setattr("lrurun.data.arrays._write", full)  # called by the plug-in's fill, but not its fault
    with pytest.raises(LrurunError, match=r"^train-inputs\.npy: No space left on device$"):
        edited(MAJORITY)


def test_an_edit_without_a_new_version_keeps_the_data_with_a_note(here: Machine) -> None:
    made, noted, where = edited(MAJORITY), edited(MAJORITY + "# a comment\n"), Path("data/Majority")
    assert noted.sha256 == made.sha256
    [note] = noted.notes
    assert note.startswith("mine.py has changed since data/Majority was prepared, but not its version '1'")
    assert note.endswith("run: lrurun data prepare RECIPE.toml --load mine.py --force")
    assert load(TASKS["Majority"], TASKS["Majority"].options(), where).sha256
    again = edited(OTHER, force=True)
    assert (again.sha256 != made.sha256, again.notes) == (True, [])
    assert [path.name for path in Path("data").glob("*[!k]")] == ["Majority"]
    with pytest.raises(LrurunError, match="expected finite"):
        edited(MAJORITY.replace(".astype(np.uint8)\n", ".astype(np.float32) + np.inf\n", 1), force=True)
    with pytest.raises(LrurunError, match="expected Majority version 2, found Majority version 1") as caught:
        edited(versioned(OTHER))
    assert caught.value.hint == "run: lrurun data prepare RECIPE.toml --load mine.py --force"
    assert json.loads((where / "manifest.json").read_text())["sha256"] == again.sha256
    assert edited(versioned(OTHER), force=True).version == "2"
    task = TASKS["Majority"]
    task.code = ""  # as if lrurun had this task
    with pytest.raises(LrurunError, match="of the task Majority of a plug-in, expected those of lrurun's own"):
        manifest(task, task.options(), where)


def test_force_replaces_nothing_but_prepared_data(here: Machine) -> None:
    letters = Path("data/Majority/letters")
    letters.parent.mkdir(parents=True)
    letters.write_text("mine")
    with pytest.raises(LrurunError, match="this folder exists, but has no manifest"):
        edited(MAJORITY, force=True)
    assert letters.read_text() == "mine"


def test_hints_name_the_recipe_that_the_command_uses(here: Machine) -> None:
    edited(MAJORITY)
    written(MAJORITY + "# a comment\n")
    words = ("my recipe.toml", "--load", "mine.py", "--data-dir", "data")
    Path("m.toml").rename("my recipe.toml")
    again = "run: lrurun data prepare 'my recipe.toml' --load mine.py"
    assert f"{again} --force" in here.run("data", "check", *words).stderr
    written(versioned(MAJORITY))
    assert f"hint: {again} --force\n" in here.refused("data", "check", *words, code=1)
    with pytest.raises(LrurunError) as caught:
        load(TASKS["Majority"], TASKS["Majority"].options(), Path("none/Majority"))
    assert caught.value.hint == again
    # in the process that prepares, which does not read the recipe
    TASKS["Majority"].recipe = ""
    data = Path("data/Majority").absolute()
    with pytest.raises(LrurunError) as caught:
        orders._prepare(Preparation(task="Majority", options={}, data=data, from_path=None, recipe="my recipe.toml"))
    assert caught.value.hint == f"{again} --force"


@pytest.mark.slow
def test_finished_runs_on_other_data_than_the_prepared_ones_are_no_result(here: Machine) -> None:
    """As they are after an edit without a new version, a ladder on the old data, and --force."""
    edited(MAJORITY)
    written(OTHER)
    Path("sizes.toml").write_text(scored.LADDER)
    ladder = ("ladder", "m.toml", "--load", "mine.py", "--ladder", "sizes.toml", "--rung", "few", "--data-dir", "data")
    here.run(*ladder, "--seeds", "1")
    said = here.run(*PREPARE).stderr
    assert said.startswith("warning: mine.py has changed since data/Majority was prepared")
    here.run(*PREPARE, "--force")
    assert "mine.py was not read; --force reads it" in here.run(*PREPARE, "--from", "mine.py").stderr
    assert here.run(*PREPARE).stdout == "data/Majority: train 64, validation 32, test 32; nine fair bits\n"
    for more in (("--seeds", "1"), ("--seeds", "3")):
        said = here.run(*ladder, *more, code=1).stderr
        assert re.search(
            r"finished runs? \(.*\) had other data: sha256:\w+, those in .*data/Majority are sha256:", said
        )
        assert "hint: train them again with --fresh, or restore the data that they were trained on" in said
    here.run(*ladder, "--seeds", "1", "--fresh")


@pytest.mark.slow
def test_all_commands_work_on_a_run_of_a_plug_in(machine: Machine) -> None:
    """Ladder, report, show, plot, load and train again work; errors are clear after the file has changed or is gone."""
    forget()  # examples of the docs register the same names
    here, file = machine.folder, machine.folder / "own" / "mine.py"
    file.parent.mkdir()
    file.write_text(AVERAGES + MAJORITY)
    ladder = LADDER.replace("averages.py", "mine.py")
    file.with_suffix(".toml").write_text(
        ladder.replace('"averages"\ntitle = "running averages i', '"mine"\ntitle = "i')
    )
    (here / "Majority.toml").write_text(RECIPE)
    machine.env["XDG_DATA_HOME"] = str(here / "share")
    words = ("Majority.toml", "--ladder", "own/mine.toml")
    machine.run("ladder", *words, "--seeds", "1")

    table = machine.json("report", *words)
    assert (table["task"], table["ladder"]) == ("Majority", "mine")
    assert [(row["rung"], row["n"]) for row in table["rows"]] == [("lru", 1), ("averages", 1)]
    runs = {run["rung"]: run for run in machine.json("runs")["runs"]}
    shown = {rung: machine.json("show", run["id"]) for rung, run in runs.items()}
    assert set(shown["lru"]["config"]["code"]) == {"task"}
    assert set(shown["averages"]["config"]["code"]) == {"task", "recurrence"}
    assert shown["averages"]["provenance"]["code.recurrence"] == "own/mine.py"
    assert shown["averages"]["config"]["model"]["recurrence"] == {"kind": "averages", "longest": 64.0}
    where = ("runs", "--where", "model.recurrence.longest > 63", "--load", "own/mine.py")
    assert [run["rung"] for run in machine.json(*where)["runs"]] == ["averages"]
    machine.run("plan", "sDigits", "--profile", "smoke")  # looks for past speeds among all runs
    machine.run("plot", *words, "--out", "ladder.svg")

    run = runs["averages"]["id"]
    forget()
    said = machine.refused("show", run, "--toml", code=1)
    assert "the recipe of Majority has changed its data, or was not found" in said
    (here / "recipes").mkdir()
    (here / "Majority.toml").rename(here / "recipes" / "Majority.toml")
    text = machine.run("show", run, "--toml").stdout
    (here / "again.toml").write_text(text)
    again = shlex.split(text.splitlines()[1].removeprefix("# lrurun ").replace("FILE.toml", "again.toml"))
    assert "nothing to do" in machine.run(*again).stderr

    forget()
    places: dict[str, Any] = {"ledger": machine.ledger, "runs_dir": machine.runs}
    trained = lrurun.load(run, **places)
    bits = np.random.RandomState(2).randint(2, size=(32, 9)).astype(np.uint8)  # its test split
    hits = np.mean(trained(bits).argmax(1) == (bits.sum(1) > 4))
    assert hits == runs["averages"]["metrics"]["test/accuracy"]

    file.write_text(AVERAGES + MAJORITY + "# another version\n")
    forget()
    with pytest.raises(LrurunError, match="is not loaded"):
        lrurun.load(run, **places)
    said = machine.refused("show", run, "--toml", "--load", "own/mine.py", code=1)
    assert f"run {run}: own/mine.py, which has recurrence 'averages', has changed since: sha256:" in said
    instance = machine.json("status")["ladders"][0]
    assert f"--instance {instance['name']} (" in machine.refused("report", "Majority", *words[1:], code=4)
    table = machine.json("report", "Majority", "--instance", instance["instance"], "--load", "own/mine.py")
    assert [row["n"] for row in table["rows"]] == [1, 1]
    note = "own/mine.py changed after these runs: they are shown as recorded"
    assert table["notes"] == [{"text": note, "runs": []}]
    assert "warning: own/mine.py has changed since " in machine.run("ladder", "Majority", *words[1:]).stderr
    file.unlink()
    forget()
    said = machine.refused("report", "Majority", *words[1:])
    assert said == "error: own/mine.toml, load: there is no file own/mine.py\nhint: paths are relative to own\n"
    assert machine.json("show", run)["config"] == shown["averages"]["config"]


@pytest.mark.slow
def test_resume_after_the_file_has_changed_trains_its_present_code(here: Machine) -> None:
    file = Path("averages.py")
    file.write_text(AVERAGES)
    Path("averages.toml").write_text(LADDER)
    sets = {"train.steps": 9, "train.eval_every": 9}
    wanted = LadderRequest(
        task="sDigits", ladder="averages.toml", profile="smoke", rungs=["averages"], tune=False, sets=sets
    )
    plan = wanted.plan()
    with Ledger.open(here.ledger) as ledger:  # a command that was stopped before it trained
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name)
        requests.remember(ledger, instance, wanted, plan, [0])
        documents.record(ledger, instance, plan)
        [rung] = [rung for rung in plan.rungs if rung.name == "averages"]
        ledger.enqueue(instance.key, final_runs(plan, rung, [0]))
    forget()
    file.rename("gone.py")
    assert "error: averages.toml, load: there is no file averages.py" in here.run("resume", code=2).stderr
    Path("gone.py").rename(file)
    file.write_text(AVERAGES + "# changed\n")
    said = here.run("resume").stderr
    assert "its ladder, recipe or code has changed since; training another instance" in said
    old, new = sorted(here.json("runs")["runs"], key=lambda run: run["state"], reverse=True)
    assert (old["state"], new["state"]) == ("queued", "done")
    assert old["fingerprint"] != new["fingerprint"]
    assert len(here.json("status")["ladders"]) == 2
