"""Ladders whose ledger is lost, and made again from the records in the runs folder."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.harness.machine import LONG, Machine, stop, training, wait_for
from tests.ledger.test_rebuilding import lose, rows_of


def documents(machine: Machine, ladder: tuple[str, ...]) -> list[dict[str, Any]]:
    """What commands say of all runs."""
    runs = machine.json("runs")
    shown = [machine.json("show", run["id"]) for run in runs["runs"]]
    return [runs, machine.json("report", *ladder), machine.json("status"), *shown]


@pytest.mark.slow
def test_a_ledger_that_is_deleted_after_a_ladder(machine: Machine) -> None:
    ladder = ("sDigits", "--profile", "smoke", "--tune")
    command = ("ladder", *ladder, "--rung", "tanh-rnn", "--rung", "gamma-norm", "--seeds", "2")
    machine.run(*command)
    machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "3")
    before, rows = documents(machine, ladder), rows_of(machine.ledger)
    lose(machine.ledger)
    machine.run("ledger", "rebuild")
    assert documents(machine, ladder) == before
    assert rows_of(machine.ledger) == rows
    run = before[0]["runs"][0]["id"]
    assert machine.json("verify", run)["verdict"] == "equal"
    assert "nothing to do" in machine.run(*command).stderr


@pytest.mark.slow
def test_a_ledger_that_is_damaged_while_a_ladder_trains(machine: Machine, long_history: dict[Any, Any]) -> None:
    command = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--jobs", "1")
    process = machine.start(*command)
    wait_for(lambda: training(machine)() and list(machine.runs.glob("*/1/checkpoints/[1-9]*")))
    wait_for(training(machine, step=200))
    stop(process, signal.SIGKILL)
    process.communicate(timeout=60)
    with machine.ledger.open("r+b") as file:
        file.write(b"\xa5" * 4096)
    for name in ("ledger.db-wal", "ledger.db-shm"):
        (machine.folder / name).unlink()
    assert "lrurun ledger rebuild" in machine.run("status", code=5).stderr
    for file in machine.folder.glob("ledger.db*"):
        file.rename(machine.folder / f"damaged-{file.name}")
    machine.run("ledger", "rebuild")
    assert machine.states() == {"interrupted": 1}
    machine.run(*command)
    assert machine.history() == {key: long_history[key] for key in [("gamma-norm", "train", 0)]}
    [attempts] = machine.attempts().values()
    assert attempts[-1].n == 2
    assert attempts[-1].resumed_from
