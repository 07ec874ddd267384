"""What commands say of an instance or a run that was removed from the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lrurun.config import planning
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.times import when
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import SERVER, machine_with

FORGET, OTHER = ("ledger", "forget"), "npDigits"


@pytest.fixture(params=["file", SERVER])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """An instance of one rung beside another one."""
    for made in machine_with(request.param, tmp_path / "here", request):
        fill(made.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6]})
        fill(made.ledger, OTHER, {"gamma-norm": [0.5, 0.6, 0.7]})
        yield made


on_file = pytest.mark.parametrize("machine", ["file"], indirect=True)


def test_every_command_says_that_what_it_names_was_forgotten(machine: Machine) -> None:
    with Ledger.read(machine.ledger) as ledger:
        key = ledger.ladder(OTHER).key
        run = ledger.runs(key)[0].id
    machine.run(*FORGET, OTHER, "--yes", "--why", "a trial", "--keep-shared")
    with Ledger.read(machine.ledger) as ledger:
        [removal] = ledger.removals()
        assert key not in {instance.key for instance in ledger.ladders()}
    happened = f"it was forgotten at {when(removal.time)} by {removal.user}: a trial"
    hint = "hint: lrurun ledger forgotten lists what was removed, and why"
    for command in (("report",), ("plan",), ("status",), ("runs",), ("claims",), ("ledger", "backup", "--out", "x.db")):
        for name in (OTHER, key):
            assert machine.refused(*command, "--instance", name, code=4).splitlines()[-2:] == [
                f"error: no ladder instance {name!r} in this ledger: {happened}", hint
            ]  # fmt: skip
    assert f"in this ledger: {happened}\n" in machine.refused("ledger", "rename", OTHER, "new", code=4)
    for name in (run, run[:6]):
        assert machine.refused("show", name, code=4).splitlines()[-2:] == [
            f"error: no run {name!r} in this ledger: {happened}", hint
        ]  # fmt: skip
    assert "forgotten at" not in machine.refused("report", "--instance", f"{OTHER}x", code=4)
    assert "forgotten at" not in machine.refused("show", "0" * 12, code=4)


@on_file
def test_without_a_ledger_nothing_is_listed_as_forgotten(machine: Machine) -> None:
    said = machine.refused("--ledger", "nosuch.db", "ledger", "forgotten", code=4)
    assert "error: there is no ledger at" in said


@on_file
def test_an_instance_that_had_no_runs_is_known_as_forgotten_too(machine: Machine) -> None:
    plan = planning.make("npDigits", sets={"optim.lr": 0.5})
    with Ledger.open(machine.ledger) as ledger:
        ledger.add_ladder("lru", "npDigits", None, plan.spec, plan.short_name)
    machine.run(*FORGET, plan.short_name, "--yes")
    assert "in this ledger: it was forgotten at" in machine.refused("report", "--instance", plan.short_name, code=4)


def test_a_run_that_a_copy_does_not_have_was_left_out_of_it(machine: Machine) -> None:
    with Ledger.read(machine.ledger) as ledger:
        run = next(run.id for run in ledger.runs(ledger.ladder(OTHER).key) if run.seed == 2)
    machine.run("ledger", "backup", "--out", "part.db", "--where", f"instance={OTHER} and seed<2")
    said = machine.refused("--ledger", "part.db", "show", run, code=4)
    assert f"no run {run!r} in this ledger: it was left out of this copy of a part of a ledger\n" in said
