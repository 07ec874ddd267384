"""`lrurun.ladder` in a real Jupyter kernel: the live table, the button that interrupts, and a kernel that is killed."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from nbclient.exceptions import CellExecutionError, DeadKernelError

from tests.harness import notebooks
from tests.harness.machine import LONG, Machine, training, wait_for
from tests.session.test_ladder_object import LONG_SETS

pytestmark = pytest.mark.slow

CELL = """
import lrurun

ladder = lrurun.ladder("sDigits", profile="smoke", rungs=["ring-init", "gamma-norm"], seeds=1, set={sets!r})
ladder.train(jobs=1)
"""
SMALL = {"train.steps": 10}


def test_a_cell_shows_a_table_that_changes(machine: Machine) -> None:
    shows = ["ladder.plan()", "ladder.report()", "ladder.plot()"]
    trained, *shown = notebooks.execute(
        notebooks.client([CELL.format(sets=SMALL), *shows], machine.folder), machine.env
    )
    [table] = [output for output in trained if output["output_type"] == "display_data"]
    assert "gamma-norm" in table["data"]["text/plain"]
    assert "2 of 2 done" in table["data"]["text/plain"]
    assert table["data"]["text/html"].startswith("<pre>")
    assert not any("seed 0 (" in output.get("text", "") for output in trained), "lines are for pipes"
    plan, report, figure = (outputs[-1]["data"] for outputs in shown)
    assert "0 runs left" in plan["text/plain"]
    assert report["text/html"].startswith("<iframe")
    assert "image/png" in figure


def test_the_same_cell_in_a_new_kernel_goes_on_where_one_was_killed(machine: Machine, long_history: Any) -> None:
    machine.env["XLA_FLAGS"] = ""
    cell = CELL.format(sets=LONG_SETS)
    client = notebooks.client([cell], machine.folder)

    def kill() -> None:
        wait_for(lambda: training(machine, step=60)() and machine.committed())
        os.kill(notebooks.kernel_process(client) or 0, signal.SIGKILL)

    with _meanwhile(kill), pytest.raises(DeadKernelError):
        notebooks.execute(client, machine.env)
    wait_for(lambda: "running" not in machine.states(), 30)
    notebooks.execute(notebooks.client([cell], machine.folder), machine.env)
    assert machine.history() == {key: value for key, value in long_history.items() if key[2] == 0}
    assert max(len(attempts) for attempts in machine.attempts().values()) == 2
    assert "nothing to do" in machine.run("ladder", "sDigits", *LONG, *RUNGS).stderr, "the command has the same runs"


RUNGS = ("--rung", "ring-init", "--rung", "gamma-norm", "--seeds", "1")


def test_an_interrupted_kernel_saves_its_runs_and_goes_on(machine: Machine) -> None:
    cell = CELL.format(sets=LONG_SETS | {"train.steps": 200_000})
    client = notebooks.client([cell], machine.folder)

    def interrupt() -> None:
        wait_for(training(machine))
        os.kill(notebooks.kernel_process(client) or 0, signal.SIGINT)

    with _meanwhile(interrupt), pytest.raises(CellExecutionError) as stopped:
        notebooks.execute(client, machine.env)
    assert stopped.value.ename == "Stopped"
    assert stopped.value.evalue == "stopped by ^C with 2 of 2 runs remaining; the same call continues"
    assert machine.states() == {"interrupted": 1, "queued": 1}


class _meanwhile:
    """A context manager in which a function is executed in another thread; it waits for its end."""

    def __init__(self, function: Any) -> None:
        self._thread = threading.Thread(target=function)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
