"""A program that is stopped by a signal which lrurun did not send, as a cluster sends it to all processes of a job."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.harness.machine import Machine, wait_for

SCRIPT = """
import os, pathlib, time, lrurun
run = lrurun.this_run()
saved = pathlib.Path(run.folder) / "epoch"
first = int(saved.read_text()) + 1 if saved.exists() else 1
(pathlib.Path("pid")).write_text(str(os.getpid()))
for epoch in range(first, 41):
    run.log(epoch, **{"val/accuracy": epoch / 40, "test/accuracy": epoch / 40})
    saved.write_text(str(epoch))
    if run.should_stop:
        break
    time.sleep(0.05)
"""
RECIPE = f"""
task = "stopped"
seeds = 1
[program]
command = ["{sys.executable}", "stopped.py"]
metric = "val/accuracy"
[[rung]]
name = "only"
title = "the only one"
"""


def test_a_program_that_stops_at_a_signal_from_outside_is_not_done_but_continues(machine: Machine) -> None:
    (machine.folder / "stopped.py").write_text(SCRIPT)
    (machine.folder / "stopped.toml").write_text(RECIPE)
    process = machine.start("ladder", "stopped.toml", "--jobs", "1")
    number = machine.folder / "pid"
    wait_for(lambda: number.exists() and number.read_text() and _has_begun(machine.runs))
    os.kill(int(number.read_text()), signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    [attempts] = machine.attempts().values()
    assert [attempt.outcome for attempt in attempts] == ["failed", "done"]
    assert attempts[0].reason is not None
    assert attempts[0].reason.startswith("failed: the program has stopped at a SIGTERM that lrurun did not send")
    assert attempts[1].resumed_from
    [run] = machine.json("runs")["runs"]
    assert (run["step"], run["metrics"]["test/accuracy"]) == (40, 1.0)


def _has_begun(runs: Path) -> bool:
    """Whether the program has saved its second step, after it has looked at `should_stop`."""
    return any(file.read_text() not in ("", "1") for file in runs.glob("*/program/epoch"))
