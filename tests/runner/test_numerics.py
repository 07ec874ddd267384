"""Runs that began with another numerics version: an earlier one starts again, a later one stays as it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import lrurun
from lrurun.commands import resume
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.errors import LedgerError
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import REQUEST, HeldRun, LadderInstance
from lrurun.runner import environment
from lrurun.session import resuming
from lrurun.session.training import LadderTraining
from lrurun.version import NUMERICS
from tests.harness.machine import FINISHED_LADDER, Machine

ARGUMENTS = ("sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--seeds", "1")


def held_run(ledger: Ledger, instance: LadderInstance, numerics: int) -> HeldRun:
    held = ledger.hold(instance.key, owner.this_process(), environment={**environment.record(1), "numerics": numerics})
    assert held is not None
    return held


def begin(machine: Machine, numerics: int) -> str:
    """A run that was interrupted after its first steps; returns its id."""
    plan = planning.make("sDigits", profile="smoke")
    (rung,) = planning.choose_rungs(plan, ["gamma-norm"])
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        (run,) = ledger.enqueue(instance.key, final_runs(plan, rung, [0]))
        held = held_run(ledger, instance, numerics)
        ledger.record(held, [(1, "train/loss", 1.0)], 1)
        ledger.finish(held, "interrupted")
    return run.id


def test_a_finished_run_of_an_earlier_version_stays(finished: Machine, tmp_path: Path) -> None:
    machine = finished.copy(tmp_path / "copy")
    with sqlite3.connect(machine.ledger) as connection:
        connection.execute("update stored_attempts set numerics = 1 where run = 1")
    connection.close()
    before = machine.json("runs"), machine.files()
    assert "nothing to do" in machine.run(*FINISHED_LADDER).stderr
    assert (machine.json("runs"), machine.files()) == before
    versions = {run["id"]: run["numerics"] for run in machine.json("runs")["runs"]}
    assert sorted(versions.values()) == [1] + [NUMERICS] * (len(versions) - 1)
    assert "numerics" in machine.run("runs").stdout.splitlines()[0]
    (old_one,) = machine.json("runs", "--where", "numerics=1")["runs"]
    assert versions[old_one["id"]] == 1
    old, new = (next(run for run, known in versions.items() if known == wanted) for wanted in (1, NUMERICS))
    differs = {one["path"]: one["values"] for one in machine.json("compare", old, new)["differs"]}
    assert differs["numerics"] == [1, NUMERICS]
    assert "runs of 2 numerics versions" in machine.run("report", "sDigits", "--profile", "smoke").stdout


def test_a_run_of_a_later_version_stays_as_it_is(machine: Machine) -> None:
    run = begin(machine, NUMERICS + 1)
    before = machine.json("show", run)
    (rung,) = machine.json("plan", *ARGUMENTS)["rungs"]
    assert (rung["starts_again"], rung["refused"]) == ([], [run])
    assert "Begun with a later lrurun, which is needed to continue: 1 run" in machine.run("plan", *ARGUMENTS).stdout
    refused = machine.run("ladder", *ARGUMENTS, code=5)
    assert f"run {run} began with numerics version {NUMERICS + 1}, this lrurun has {NUMERICS}" in refused.stderr
    assert f"install the lrurun that began it (lrurun {lrurun.__version__}" in refused.stderr
    assert machine.json("show", run) == before
    with Ledger.open(machine.ledger) as ledger:
        ledger.requeue([run])
        with pytest.raises(LedgerError, match="too old to continue"):  # if it was interrupted after the command began
            held_run(ledger, ledger.ladders()[0], NUMERICS)
        assert [attempt.numerics for attempt in ledger.attempts(run)] == [NUMERICS + 1]
        assert ledger.run(run).state == "queued"


def test_resume_finishes_the_other_ladders(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    run, plan = begin(machine, NUMERICS + 1), planning.make("sDigits", profile="smoke")
    machine.run("ladder", *ARGUMENTS, code=5)
    repeated: list[str] = []

    nothing = LadderTraining(places=None, request=None, plan=None, options=None, signals=None)  # type: ignore[arg-type]
    """The training of a ladder that is only to be reached."""

    def training(places: Any, instance: LadderInstance, *others: Any) -> LadderTraining:
        repeated.append(instance.name)
        return nothing if instance.name == "other" else real_training(places, instance, *others)

    real_training, train = resuming.training, resume.train
    monkeypatch.setattr(resuming, "training", training)
    monkeypatch.setattr(resume, "train", lambda training: 0 if training is nothing else train(training))
    with Ledger.open(machine.ledger) as ledger:
        ledger.requeue([run])
        (known,) = ledger.ladders()
        other = ledger.add_ladder("other", known.task, known.profile, known.spec)
        (asked,) = [event.payload for event in ledger.events(ladder_key=known.key) if event.kind == REQUEST]
        ledger.event(REQUEST, "requested", {**asked, "ladder": "other"}, ladder=other.key)
        (rung,) = planning.choose_rungs(plan, ["diagonal"])
        ledger.enqueue(other.key, final_runs(plan, rung, [0]))
    refused = machine.run("resume", code=5)
    assert f"run {run} began with numerics version {NUMERICS + 1}" in refused.stderr
    assert repeated == [known.name, "other"]
