"""Sweeps with real processes: one queue records the bits of instances that are trained one after another."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path

import pytest

from tests.harness.machine import LONG, Machine, stop, training, wait_for, workers_of

pytestmark = pytest.mark.slow

RUNGS = ("--rung", "ring-init", "--rung", "gamma-norm", "--seeds", "2")
RATES, BATCHES = ("0.004", "0.008"), ("50", "20")
SWEEP = ("--sweep", f"optim.lr={','.join(RATES)}", "--sweep", f"train.batch={','.join(BATCHES)}")


def instance_after_instance(machine: Machine, *arguments: str) -> Machine:
    """Trains the instances of SWEEP with `--set`."""
    for rate, batch in itertools.product(RATES, BATCHES):
        machine.run("ladder", "sDigits", *arguments, "--set", f"optim.lr={rate}", "--set", f"train.batch={batch}")
    return machine


def test_a_sweep_that_is_stopped_and_killed_has_the_bits_of_its_instances(machine: Machine, tmp_path: Path) -> None:
    """Rates share a program, batches do not."""
    alone = instance_after_instance(Machine(tmp_path / "alone"), *LONG, *RUNGS)
    command = ("ladder", "sDigits", *LONG, *RUNGS, *SWEEP)
    process = machine.start(*command)
    wait_for(training(machine, step=60))
    stop(process, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "of 16 runs remaining; the same command continues: lrurun ladder sDigits" in err
    assert machine.states().keys() <= {"done", "interrupted", "queued"}
    process = machine.start(*command)
    wait_for(training(machine, step=120))
    workers = workers_of(process)
    stop(process, signal.SIGKILL)
    process.communicate(timeout=30)
    wait_for(lambda: not any(worker.is_running() for worker in workers))
    limited = machine.run(*command, "--time-limit", "9", code=None)
    assert limited.returncode in (0, 143)
    assert limited.returncode == 0 or "stopped by the time limit of 0:09 with" in limited.stderr
    machine.run(*command)
    assert machine.histories() == alone.histories()


def test_a_tuned_sweep_chooses_what_its_instances_choose(machine: Machine, tmp_path: Path) -> None:
    """The final runs of an instance are trained beside the tuning runs of another."""
    tuned = ("--profile", "smoke", "--rung", "diagonal", "--seeds", "2", "--tune")
    alone = Machine(tmp_path / "alone")
    for batch in BATCHES:
        alone.run("ladder", "sDigits", *tuned, "--set", f"train.batch={batch}")
    done = machine.run("ladder", "sDigits", *tuned, "--sweep", f"train.batch={','.join(BATCHES)}")
    assert machine.histories() == alone.histories()
    chosen = [line for line in done.stderr.splitlines() if ": diagonal: chosen on validation" in line]
    names = {ladder["name"] for ladder in machine.json("status")["ladders"]}
    assert {line.partition(": ")[0] for line in chosen} == names
    for batch in BATCHES:
        report = ("report", "sDigits", *tuned[:4], "--tune", "--set", f"train.batch={batch}", "--json")
        of_both = (json.loads(one.run(*report).stdout)["rows"] for one in (machine, alone))
        first, second = ([(row["mean"], row["learning_rate"]) for row in rows] for rows in of_both)
        assert first == second


def test_a_sweep_that_chooses_trains_fresh_seeds_and_compares_by_them(machine: Machine) -> None:
    rungs = ("--rung", "ring-init", "--rung", "gamma-norm")
    command = ("ladder", "sDigits", "--profile", "smoke", *rungs, "--seeds", "2", "--sweep", "optim.lr=0.004,0.016")
    process = machine.start(*command, "--choose")
    wait_for(lambda: machine.states().get("done", 0) > 8)  # some of the fresh seeds
    stop(process, signal.SIGKILL)
    process.communicate(timeout=30)
    done = machine.run(*command, "--choose")
    report = machine.json("report", *command[1:4], *rungs, "--by", "optim.lr", "--choose")
    assert [(choice["seeds"], choice["judged"]) for choice in report["choice"]] == [([0, 1], 12)] * 2
    assert report["commands"] == []
    shown = machine.run("report", *command[1:4], *rungs, "--by", "optim.lr", "--choose").stdout
    assert done.stdout.endswith(shown)
    groups = {
        rate: [one["rung"] for one in report["choice"] if one["values"]["optim.lr"] == rate] for rate in (0.004, 0.016)
    }
    for rate, names in groups.items():
        assert not names or f"fresh seeds 2-13: {', '.join(names)}: optim.lr = {rate:g}\n" in done.stderr
    seeds = {run["seed"] for run in machine.json("runs")["runs"]}
    assert seeds == set(range(14))
    assert machine.states() == {"done": 8 + 24}
    assert " added " not in " ".join(note["text"] for note in report["notes"]), "it was one command"
    again = machine.run(*command, "--choose")
    assert again.stdout.endswith(shown)
    assert machine.states() == {"done": 8 + 24}
