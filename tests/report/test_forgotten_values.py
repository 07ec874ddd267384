"""What reports on a sweep say of values whose instances were forgotten, and commands of an instance that was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lrurun.config import planning
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.times import when
from lrurun.ledger.values import Removal
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import SERVER, keep_all, machine_with

FAST = ("sDigits", "--profile", "smoke")
BY = ("report", *FAST, "--by", "optim.lr")
CHOOSE = (*BY, "--choose", "--rung", "ring-init")
CAUTION = "1 value was forgotten: optim.lr 0.004 (a trial)"
FULL = f"{CAUTION}. The values that are left were chosen among more."
FORGET = ("ledger", "forget", "sDigits-smoke-lr0.004", "--why", "a trial", "--yes")


def train(machine: Machine, rate: float, seeds: int = 3) -> None:
    scores = {"ring-init": [0.5 + rate] * seeds}
    fill(machine.ledger, "sDigits", scores, profile="smoke", sets={"optim.lr": rate}, validation=scores)


@pytest.fixture(params=["file", SERVER])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """Three rates, of which one is forgotten; another sweep of which one goes too."""
    for machine in machine_with(request.param, tmp_path / "here", request):
        for rate in (0.001, 0.002, 0.004):
            train(machine, rate)
        fill(machine.ledger, "npDigits", {"ring-init": [0.5]}, profile="smoke", sets={"optim.lr": 0.5})
        machine.run("ledger", "forget", "--where", "optim.lr=0.5", "--why", "another sweep", "--yes")
        machine.run(*FORGET)
        yield machine


def removal_of(machine: Machine) -> Removal:
    with Ledger.read(machine.ledger) as ledger:
        return ledger.removals()[-1]


def test_a_value_that_was_forgotten_is_named_in_every_format(machine: Machine) -> None:
    for command in (BY, CHOOSE):
        for name in ("table", "md", "latex", "html"):
            more = ["--details"] if command is CHOOSE and name == "table" else []
            assert FULL in " ".join(machine.run(*command, *more, "--format", name).stdout.split()), (command, name)
        removal = removal_of(machine)
        [value] = machine.json(*command)["forgotten_values"]
        assert value.pop("instance") == removal.instances[0].key
        assert value == {
            "name": "sDigits-smoke-lr0.004",
            "by": {"optim.lr": 0.004},
            "why": "a trial",
            "removed_at": removal.time,
            "removed_by": removal.user,
        }
    assert CAUTION in " ".join(machine.run(*CHOOSE).stdout.split())
    caption = " ".join(machine.run(*CHOOSE, "--format", "latex", "--plain").stdout.split())
    assert "The value optim.lr 0.004 was tried and deleted: a trial." in caption


def test_a_value_that_is_back_or_had_no_run_is_not_named(machine: Machine) -> None:
    train(machine, 0.008)
    machine.run("ledger", "forget", "sDigits-smoke-lr0.008", "--yes")
    plan = planning.make("sDigits", profile="smoke", sets={"optim.lr": 0.032})
    with Ledger.open(machine.ledger) as ledger:
        ledger.add_ladder("lru", "sDigits", "smoke", plan.spec, plan.short_name)
    machine.run("ledger", "forget", plan.short_name, "--yes")
    values = [value["by"]["optim.lr"] for value in machine.json(*BY)["forgotten_values"]]
    assert values == [0.004, 0.008]
    assert "2 values were forgotten: optim.lr 0.004 (a trial); optim.lr 0.008." in machine.shown(*BY, width=300)
    train(machine, 0.004)
    train(machine, 0.008)
    assert machine.json(*BY)["forgotten_values"] == machine.json(*CHOOSE)["forgotten_values"] == []
    assert "forgotten" not in machine.run(*BY).stdout
    with Ledger.read(machine.ledger) as ledger:
        assert [instance.task for instance, _ in ledger.forgotten_instances()] == ["npDigits"]


def test_without_any_value_left_the_error_names_those_that_were_forgotten(machine: Machine) -> None:
    for rate in (0.001, 0.002):
        machine.run("ledger", "forget", f"sDigits-smoke-lr{rate}", "--yes", "--why", "junk")
    said = machine.refused(*BY, code=4)
    assert (
        "not in this ledger, with any value of optim.lr; 3 values were forgotten: optim.lr 0.004 (a trial); "
        "optim.lr 0.001 (junk); optim.lr 0.002 (junk)\n"
    ) in said


def test_an_instance_that_was_forgotten_is_named_with_the_reason(machine: Machine) -> None:
    removal = removal_of(machine)
    happened = f"sDigits-smoke-lr0.004 was forgotten at {when(removal.time)} by {removal.user}: a trial"
    said = machine.refused("report", *FAST, "--set", "optim.lr=0.004", code=4).splitlines()
    asked = "ladder lru on sDigits, profile smoke, without --tune, optim.lr=0.004"
    assert said[0] == f"error: {asked}: not in this ledger; {happened}"
    assert "forgotten" not in machine.refused("report", *FAST, "--set", "optim.lr=0.016", code=4)


def test_every_copy_of_the_ledger_has_what_was_forgotten(machine: Machine, tmp_path: Path) -> None:
    def of(ledger: str) -> Any:
        return machine.json("--ledger", ledger, *BY)["forgotten_values"]

    there = machine.json(*BY)["forgotten_values"]
    assert len(there) == 1
    machine.run("ledger", "backup", "--out", "part.db", "--where", "task=sDigits")
    machine.run("ledger", "backup", "--out", "other.db", "--where", "optim.lr=0.001")
    machine.run("--ledger", "merged.db", "ledger", "merge", "part.db")
    machine.run(
        "ledger", "export", "--to", "publication", "record", "--instance", "sDigits-smoke-lr0.001", "--anonymous"
    )
    for name in ("part.db", "other.db", "merged.db", "record/ledger.db"):
        for value in (*there, *(found := of(name))):
            value["removed_by"] = None
        assert found == there, name
    assert [one.why for one in removals_of(machine, "part.db")] == ["a trial"], "nothing of another sweep"


def removals_of(machine: Machine, name: str) -> list[Removal]:
    with Ledger.read(machine.folder / name) as ledger:
        return ledger.removals()


@pytest.mark.parametrize("machine", ["file"], indirect=True)
def test_a_rebuilt_ledger_has_what_was_forgotten(machine: Machine) -> None:
    removal = removal_of(machine)
    there = machine.json(*BY)["forgotten_values"]
    with Ledger.open(machine.ledger) as ledger:
        for run in ledger.run_ids():
            (machine.runs / run).mkdir(parents=True, exist_ok=True)
        keep_all(ledger, machine.runs)
    for file in machine.folder.glob("ledger.db*"):
        file.unlink()
    machine.run("ledger", "rebuild")
    assert removal_of(machine).instances == removal.instances != ()
    assert machine.json(*BY)["forgotten_values"] == there
