"""A ladder with a recurrence and a task of the user's own: trained, reported, shown, resumed."""

from __future__ import annotations

import shlex
import signal

import numpy as np
import pytest

import lrurun
from lrurun.errors import LrurunError
from tests.harness.machine import Machine, stop, training, wait_for
from tests.harness.plug_ins import AVERAGES, LADDER, MAJORITY, RECIPE, forget, forgotten

__all__ = ["forgotten"]  # a fixture


def users_ladder(machine: Machine, *options: str) -> tuple[str, ...]:
    """Trains a ladder with a new recurrence on a new task; the arguments that name it."""
    forget()  # examples of the docs register the same names
    here = machine.folder
    (here / "own").mkdir()
    (here / "own" / "mine.py").write_text(AVERAGES + MAJORITY)
    (here / "own" / "mine.toml").write_text(
        LADDER.replace("averages.py", "mine.py").replace(
            '"averages"\ntitle = "running averages i', '"mine"\ntitle = "i'
        )
    )
    (here / "Majority.toml").write_text(RECIPE)
    arguments = ("Majority.toml", "--ladder", "own/mine.toml")
    machine.env["XDG_DATA_HOME"] = str(here / "share")
    machine.run("ladder", *arguments, "--seeds", "1", *options)
    return arguments


@pytest.mark.slow
def test_a_users_ladder_from_file_to_report(machine: Machine) -> None:
    arguments = users_ladder(machine, "--rung", "averages")
    table = machine.json("report", *arguments)
    assert (table["task"], table["ladder"]) == ("Majority", "mine")
    assert [(row["rung"], row["n"]) for row in table["rows"]] == [("lru", 0), ("averages", 1)]
    assert 0 <= table["rows"][1]["mean"] <= 1
    assert "nothing to do" in machine.run("ladder", *arguments, "--seeds", "1", "--rung", "averages").stderr


@pytest.mark.slow
def test_other_commands_work_on_a_run_of_a_plug_in(machine: Machine) -> None:
    """Show, plot, load and train again work, with clear errors after the file has changed or was removed."""
    arguments, here = users_ladder(machine), machine.folder
    runs = {run["rung"]: run for run in machine.json("runs")["runs"]}
    shown = {rung: machine.json("show", run["id"]) for rung, run in runs.items()}
    assert set(shown["lru"]["config"]["code"]) == {"task"}
    assert set(shown["averages"]["config"]["code"]) == {"task", "recurrence"}
    assert shown["averages"]["provenance"]["code.recurrence"] == "own/mine.py"
    assert shown["averages"]["config"]["model"]["recurrence"] == {"kind": "averages", "longest": 64.0}
    where = ("runs", "--where", "model.recurrence.longest > 63", "--load", "own/mine.py")
    assert [run["rung"] for run in machine.json(*where)["runs"]] == ["averages"]
    machine.run("plan", "sDigits", "--profile", "smoke")  # looks for past speeds among all runs
    machine.run("plot", *arguments, "--out", "ladder.svg")

    run = runs["averages"]["id"]
    forget()
    error = machine.run("show", run, "--toml", code=1).stderr
    assert "the recipe of Majority has changed its data, or was not found" in error
    (here / "recipes").mkdir()
    (here / "Majority.toml").rename(here / "recipes" / "Majority.toml")
    text = machine.run("show", run, "--toml").stdout
    (here / "again.toml").write_text(text)
    again = shlex.split(text.splitlines()[1].removeprefix("# lrurun ").replace("FILE.toml", "again.toml"))
    assert "nothing to do" in machine.run(*again).stderr

    forget()
    load = {"ledger": machine.ledger, "runs_dir": machine.runs}
    trained = lrurun.load(run, **load)
    bits = np.random.RandomState(2).randint(2, size=(32, 9)).astype(np.uint8)  # its test split
    hits = np.mean(trained(bits).argmax(1) == (bits.sum(1) > 4))
    assert hits == runs["averages"]["metrics"]["test/accuracy"]

    (here / "own" / "mine.py").write_text(AVERAGES + MAJORITY + "# another version\n")
    forget()
    with pytest.raises(LrurunError, match="is not loaded"):
        lrurun.load(run, **load)
    error = machine.run("show", run, "--toml", "--load", "own/mine.py", code=1).stderr
    assert f"run {run}: own/mine.py, which has recurrence 'averages', has changed since: sha256:" in error
    instance = machine.json("status")["ladders"][0]
    error = machine.run("report", "Majority", *arguments[1:], code=4).stderr
    assert f"--instance {instance['name']} (" in error
    named = ("--instance", instance["instance"], "--load", "own/mine.py")
    table = machine.json("report", "Majority", *named)
    assert [row["n"] for row in table["rows"]] == [1, 1]
    said = "own/mine.py changed after these runs: they are shown as recorded"
    assert table["notes"] == [{"text": said, "runs": []}]
    error = machine.run("ladder", "Majority", *arguments[1:]).stderr
    assert "warning: own/mine.py has changed since " in error
    (here / "own" / "mine.py").unlink()
    forget()
    error = machine.run("report", "Majority", *arguments[1:], code=2).stderr.splitlines()
    assert error == [
        "error: own/mine.toml, load: there is no file own/mine.py",
        "hint: paths are relative to own",
    ]
    assert machine.json("show", run)["config"] == shown["averages"]["config"]


@pytest.mark.slow
def test_resume_after_the_file_has_changed_trains_its_present_code(machine: Machine) -> None:
    (machine.folder / "averages.py").write_text(AVERAGES)
    (machine.folder / "averages.toml").write_text(LADDER)
    arguments = ("sDigits", "--profile", "smoke", "--ladder", "averages.toml", "--rung", "averages")
    begun = machine.start("ladder", *arguments, "--set", "train.steps=20000", "--set", "train.eval_every=20000")
    wait_for(training(machine))
    stop(begun, signal.SIGTERM)
    begun.communicate()
    (machine.folder / "averages.py").write_text(AVERAGES + "# changed\n")
    (machine.folder / "averages.py").rename(machine.folder / "gone.py")
    error = machine.run("resume", code=2).stderr
    assert "error: averages.toml, load: there is no file averages.py" in error
    assert machine.states() == {"interrupted": 1}
    (machine.folder / "gone.py").rename(machine.folder / "averages.py")
    again = machine.start("resume")
    wait_for(lambda: machine.states().get("running", 0) == 1)
    wait_for(training(machine))
    old, new = sorted(machine.json("runs")["runs"], key=lambda run: run["state"])
    assert (old["state"], new["state"]) == ("interrupted", "running")
    assert old["fingerprint"] != new["fingerprint"]
    stop(again, signal.SIGTERM)
    said = again.communicate()[1]
    assert "its ladder, recipe or plug-ins have changed since; training another instance" in said
    assert len(machine.json("status")["ladders"]) == 2
