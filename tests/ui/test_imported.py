"""The browser view of imported runs: no page offers or shows what only trainings have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.ledger.ledger import Ledger
from tests.harness.browsing import View, closed, words
from tests.harness.imported import SCORES, fill, write
from tests.harness.machine import Machine

__all__ = ["closed"]  # a fixture


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    fill(machine.ledger, write(tmp_path))
    machine.runs.mkdir()
    return machine


def test_the_pages_of_an_import(machine: Machine) -> None:
    view = View(machine.ledger, machine.runs)
    first = words(view.page("/"))
    assert "Helps: batch scores 10.00 points more than none" in first
    assert "2 missing" in first
    [ladder] = [row["instance"] for row in machine.json("status")["ladders"]]
    page = words(view.page(f"/ladders/{ladder}"))
    assert "2 runs missing (batch): unequal shares may favour a rung" in page
    assert "2 of 6 of batch: c5ca9d363c94 (killed), fda178a9f364 (exit code 1)" in page
    assert "Eigenvalues" not in page
    assert "Norms" not in page
    assert "Learning rates" not in page
    assert view.get(f"/data/ladders/{ladder}?kind=curves").status == 200
    [run] = machine.json("runs", "--where", "rung=layer and seed=0")["runs"]
    page = words(view.page(f"/runs/{run['id']}"))
    for text in ("Origin", "name of layer-0", "digits-v2", "0123abcd", "imported from csv runs"):
        assert text in page, text
    for text in ("Attempts", "Log", "Train it again", "Checkpoints", "Eigenvalues"):
        assert text not in page, text
    assert view.get(f"/data/runs?run={run['id']}").status == 200
    assert "origin.run" in view.page("/runs?where=origin.tracker+%3D+%27csv%27&column=origin.run")
    view.page("/claims")


def test_a_second_import_changes_the_first_page(machine: Machine) -> None:
    """Also where as many runs are finished as before."""
    view = View(machine.ledger, machine.runs)
    assert "Helps: batch scores 10.00 points" in words(view.page("/"))
    better = {**SCORES, "batch": (0.91, 0.92, 0.90, 0.93, "killed", "exit code 1")}
    fill(machine.ledger, machine.folder / "runs.toml", better)
    with Ledger.read(machine.ledger) as ledger:
        assert len(ledger.ladders()) == 1
    assert "Helps: batch scores 20.00 points" in words(view.page("/"))
