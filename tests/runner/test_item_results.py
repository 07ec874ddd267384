"""Per-item results of real runs: recorded with the score or not at all, and evaluated again."""

from __future__ import annotations

import shutil
import sqlite3

import numpy as np
import pytest

from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.plug_ins import AVERAGES, LADDER

pytestmark = pytest.mark.slow

ACCURACY = "test/accuracy"
SMOKE = ("--profile", "smoke")

KILLER = """
import os
import pathlib
import signal

import psutil

import lrurun.data.metric as metric
from lrurun.ledger import attempt

FLAGS = pathlib.Path(__file__).parent
evaluated, recorded = metric.Accuracy.items, attempt.add_event


def kill_once(name):
    flag = FLAGS / name
    if not flag.exists():
        flag.touch()
        for above in psutil.Process().parents():
            if "ladder" in above.cmdline():  # the command, which would continue at once
                above.kill()
        os.kill(os.getpid(), signal.SIGKILL)


def items(self, sums, labels):
    kill_once("after the evaluation")
    return evaluated(self, sums, labels)


def add_event(connection, time, kind, *rest, **more):
    if kind == "done":
        kill_once("within the transaction")
    return recorded(connection, time, kind, *rest, **more)


metric.Accuracy.items = items
attempt.add_event = add_event
"""
"""Kills command and worker twice: between evaluation and record, and in the transaction after score and items."""


def test_a_kill_leaves_score_and_items_or_neither(machine: Machine) -> None:
    (machine.folder / "averages.py").write_text(AVERAGES + KILLER)
    (machine.folder / "averages.toml").write_text(LADDER)
    options = ("--ladder", "averages.toml", "--rung", "averages", "--seeds", "1", "--jobs", "1")
    command = ("ladder", "sDigits", *SMOKE, *options)
    seen = []
    for _ in range(4):
        process = machine.start(*command)  # in this process the plug-in would change what other tests use
        process.communicate(timeout=120)
        with Ledger.open(machine.ledger) as ledger:
            [run] = ledger.runs()
            seen.append((run.result is not None, bool(ledger.item_names([run.id]))))
            attempts = len(ledger.attempts(run.id))
        if run.state == "done":
            break
    assert {"after the evaluation", "within the transaction"} <= {path.name for path in machine.folder.iterdir()}
    assert attempts >= 3
    assert seen == [(False, False), (False, False), (True, True)]
    with Ledger.open(machine.ledger) as ledger:
        assert ledger.items([run.id], ACCURACY)[run.id].mean == run.result[ACCURACY]
        assert ledger.check() == []


def test_final_checkpoints_give_the_items_that_training_recorded(finished: Machine, tmp_path) -> None:
    shutil.copytree(finished.folder, tmp_path / "copy")
    machine = Machine(tmp_path / "copy")
    with Ledger.open(machine.ledger) as ledger:
        [instance] = ledger.ladders()
        ids = [run.id for run in ledger.runs() if run.state == "done" and run.memberships[0].stage == "train"]
        before = ledger.items(ids, ACCURACY)
        assert before.keys() == set(ids)
        for run in ids:
            assert before[run].mean == ledger.run(run).result[ACCURACY]
            assert set(before[run].sums) <= {0.0, 1.0}
        assert len({one.test_set.sha256 for one in before.values()}) == 1
        said = machine.run("verify", "--items", ids[0]).stdout
        assert said == f"run {ids[0]}: per-item results recorded already\n1 run: 1 had them before\n"
        ledger.drop_items(ids)
        lost, other, *_ = ids
        for checkpoint in ledger.checkpoints(lost):
            shutil.rmtree(machine.runs / checkpoint.path)
    found = machine.json("verify", "--items", "--instance", instance.short_name)["runs"]
    statuses = {one["run"]: one["status"] for one in found}
    assert statuses == {run: "no checkpoint" if run == lost else "added" for run in ids}
    [missing] = [one["detail"] for one in found if one["run"] == lost]
    assert missing.startswith("no checkpoint to read")
    with Ledger.open(machine.ledger) as ledger:
        after = ledger.items(ids, ACCURACY)
        assert after.keys() == set(ids[1:])
        assert all(np.array_equal(after[run].sums, before[run].sums) for run in after)
        assert {one.test_set.sha256 for one in after.values()} == {before[lost].test_set.sha256}
        ledger.drop_items(ids)
    with sqlite3.connect(machine.ledger) as connection:  # a score that the model does not have
        connection.execute("DROP TRIGGER runs_finished_stay")
        changed = "UPDATE stored_runs SET result = json_set(result, '$.\"test/accuracy\"', 0.5) WHERE id = ?"
        connection.execute(changed, (other,))
    connection.close()
    done = machine.run("verify", "--items", other, code=3)
    assert done.stdout.startswith(f"run {other}: per-item results not added: test/accuracy is 0.")
    assert "in the evaluation, 0.5 in the run" in done.stdout.replace("\n", " ")
    with Ledger.read(machine.ledger) as ledger:
        assert ledger.items([other], ACCURACY) == {}


HALVED = """
import lrurun.data.metric as metric

metric.Accuracy.items = lambda self, sums, labels: (sums["correct"] / 2, sums["count"])
"""


def test_items_that_do_not_give_the_score_are_refused_aloud(machine: Machine) -> None:
    """By the command that trains, the report, and in the events of the run."""
    (machine.folder / "averages.py").write_text(AVERAGES + HALVED)
    (machine.folder / "averages.toml").write_text(LADDER)
    options = ("--ladder", "averages.toml", "--rung", "averages", "--seeds", "1", "--jobs", "1")
    said = machine.run("ladder", "sDigits", *SMOKE, *options, apart=True).stderr  # another process has the plug-in
    with Ledger.read(machine.ledger) as ledger:
        [run] = ledger.runs()
        score = run.result[ACCURACY]
        [event] = [event for event in ledger.events(run=run.id) if "item" in event.kind]
    text = f"per-item results of test/accuracy are not recorded: the mean over items gives {score / 2:.6g}, "
    assert (event.kind, event.text) == ("items-refused", f"{text}the score is {score:.6g}")
    assert f"{run.id}: {event.text}" in " ".join(said.split())
    report = machine.run("report", "sDigits", *SMOKE, "--ladder", "averages.toml", apart=True).stdout
    assert f"{event.text} (run {run.id})" in " ".join(report.split())


def test_what_verify_items_refuses(machine: Machine, finished: Machine) -> None:
    assert "expected RUNs, or --instance" in machine.refused("verify", "--items")
    assert "there is no ledger" in machine.refused("verify", "--items", "abc", code=4)
    assert "no run 'zzz'" in finished.refused("verify", "--items", "zzz", code=4)
    assert "expected one RUN, found none" in finished.refused("verify")
    assert "--instance: belongs to --items" in finished.refused("verify", "--instance", "x")
