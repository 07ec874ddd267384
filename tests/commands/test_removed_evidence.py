"""Runs that were forgotten are named wherever a verdict is that they might have changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once

SMOKE = ("npDigits", "--profile", "smoke")
LOW = [0.500 + 0.001 * k for k in range(14)]
HIGH = [score + 0.2 for score in LOW]


@pytest.fixture(scope="module")
def forgotten() -> Machine:
    """A ladder of which the last seeds were forgotten."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        fill(machine.ledger, "npDigits", {"tanh-rnn": LOW, "linear-rnn": HIGH}, profile="smoke")
        where = ("--where", "instance=npDigits-smoke and seed>11")
        machine.run("ledger", "forget", *where, "--why", "power cut", "--yes")

    return Machine(once("removed evidence", make))


@pytest.mark.parametrize("words", [(), ("--details",)])
def test_claims_name_the_runs_that_were_forgotten(forgotten: Machine, words: tuple[str, ...]) -> None:
    line = "Removed: npDigits-smoke: 4 runs were forgotten (linear-rnn, tanh-rnn): power cut."
    assert line in forgotten.run("claims", "npDigits", *words).stdout.splitlines()
    assert "Removed" not in forgotten.run("claims", "sCIFAR", *words).stdout


def test_the_json_of_claims_has_what_was_removed(forgotten: Machine) -> None:
    document = json.loads(forgotten.run("claims", "npDigits", "--json").stdout)
    [removed] = document["removed"]
    about = {name: removed[name] for name in ("task", "name", "kind", "stage", "runs", "why")}
    assert about == {
        "task": "npDigits",
        "name": "npDigits-smoke",
        "kind": "forgotten",
        "stage": "train",
        "runs": 4,
        "why": "power cut",
    }
    assert removed["instance"] in {claim["here"]["instance"] for claim in document["claims"]}
    assert json.loads(forgotten.run("claims", "sCIFAR", "--json").stdout)["removed"] == []


def test_a_table_of_claims_for_a_paper_names_them(forgotten: Machine) -> None:
    assert (
        "4 runs were deleted and are not counted: power cut." in forgotten.run("claims", "npDigits", "--plain").stdout
    )


def test_the_caption_of_a_figure_names_them(forgotten: Machine, tmp_path: Path) -> None:
    forgotten.run("plot", *SMOKE, "--out", str(tmp_path / "ladder.svg"))
    drawn = " ".join((tmp_path / "ladder.svg").read_text(encoding="utf-8").split())
    assert "power cut" in drawn
