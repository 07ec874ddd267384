"""Reports name the seeds that a later command added to a ladder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.config import plan as planning
from lrurun.ledger.store import Ledger
from lrurun.report.tables import loaded_instance
from tests.harness.machine import Machine
from tests.harness.results import fill

FAST = ("sDigits", "--profile", "smoke", "--set", "train.steps=4", "--set", "train.eval_every=2")
WHY = ": the error rate of verdicts holds only if earlier results are not the reason"
RUNGS = ("--rung", "ring-init", "--rung", "gamma-norm")


def added(machine: Machine) -> list[str]:
    notes = machine.json("report", *FAST)["notes"]
    return [note["text"] for note in notes if "later command" in note["text"]]


@pytest.mark.slow
def test_seeds_of_a_later_command_are_named(machine: Machine) -> None:
    machine.run("ladder", *FAST, *RUNGS, "--seeds", "1")
    assert added(machine) == []
    machine.run("ladder", *FAST, *RUNGS, "--seeds", "1")
    machine.run("ladder", *FAST, "--rung", "diagonal", "--seeds", "7,")  # the first of this rung
    assert added(machine) == []
    machine.run("ladder", *FAST, *RUNGS, "--seeds", "0,100-101")
    assert added(machine) == [f"seeds 100 to 101 of ring-init, gamma-norm were added in a later command{WHY}"]
    machine.run("ladder", *FAST, "--rung", "gamma-norm", "--seeds", "3,")
    assert added(machine) == [
        "seeds 100 to 101 of ring-init were added in a later command",
        f"seeds 3, 100 to 101 of gamma-norm were added in a later command{WHY}",
    ]
    runs = machine.json("runs", "--where", "rung=gamma-norm and seed=3")["runs"]
    machine.run("mark", runs[0]["id"], "--exclude", "a test")
    assert added(machine) == [f"seeds 100 to 101 of ring-init, gamma-norm were added in a later command{WHY}"]
    assert "seeds 100 to 101 of ring-init" in " ".join(machine.run("report", *FAST).stdout.split())


def test_seeds_after_a_sequential_design_are_named(tmp_path: Path) -> None:
    fill(tmp_path / "ledger.db", "sDigits", {"gamma-norm": [0.5] * 22})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        plan, [instance] = planning.make("sDigits"), ledger.ladders()
        for more in ({"seeds": None, "max_seeds": 20}, {"seeds": "20-21"}):
            asked = {"task": "sDigits", "ladder": "lru", "profile": None, "tune": False, "sets": [], **more}
            ledger.event("asked", "requested", asked, ladder=instance.key)
        found = loaded_instance.LoadedInstance(plan, instance, ledger).added_seeds()
    assert found == ["seeds 20 to 21 of gamma-norm were added in a later command"]
