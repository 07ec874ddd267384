"""`lrurun.load`: the trained model of a run, in Python."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import lrurun
from lrurun.config import plan as planning
from lrurun.config.runs import final_runs
from lrurun.data import store
from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger import owner
from lrurun.ledger.store import Ledger
from tests.machine import Machine


@pytest.mark.slow
def test_a_run_whose_scan_backend_was_removed_is_shown_resumed_and_loaded(machine: Machine) -> None:
    """Rows of release 0.1.0 may name "pallas"; it is decoded as "auto"."""
    plan = planning.make("sDigits", profile="smoke")
    (rung,) = planning.choose_rungs(plan, ["gamma-norm"])
    (wanted,) = final_runs(plan, rung, [0])
    execution = wanted.execution | {"scan_backend": "pallas"}
    with Ledger.open(machine.ledger) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        ledger.enqueue(instance.key, [msgspec.structs.replace(wanted, execution=execution)])
        claim = ledger.claim(instance.key, owner.here(), environment={})
        assert claim is not None
        ledger.finish(claim, "interrupted", reason="interrupted: SIGTERM")
    machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--seeds", "1")
    (run,) = machine.json("runs")["runs"]
    assert run["state"] == "done"
    assert machine.json("show", run["id"])["execution"]["scan_backend"] == "pallas"  # as it was recorded
    warning = f"run {run['id']}: scan backend 'pallas' no longer exists; execution.scan_backend is 'auto' instead"
    (log,) = machine.runs.glob("*/2/log.txt")
    assert warning in log.read_text()
    shown = machine.run("show", run["id"], "--toml")
    assert f"warning: {warning}" in shown.stderr
    assert "pallas" not in shown.stdout
    assert lrurun.load(run["id"], ledger=machine.ledger, runs_dir=machine.runs).score == run["metrics"]["val/accuracy"]


def test_a_recipe_with_a_removed_scan_backend_gets_auto(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planning.make("sDigits", profile="smoke", sets={"execution.scan_backend": "pallas"})
    assert {rung.execution.scan_backend for rung in plan.rungs} == {"auto"}
    warning = "--set execution.scan_backend: scan backend 'pallas' no longer exists"
    assert capsys.readouterr().err.count(warning) == 1


@pytest.mark.slow
def test_a_loaded_model_scores_what_its_run_scored(machine: Machine) -> None:
    machine.run("ladder", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--seeds", "1")
    (run,) = machine.json("runs")["runs"]
    loaded = lrurun.load(run["id"][:6], ledger=machine.ledger, runs_dir=machine.runs)
    assert (loaded.id, loaded.step) == (run["id"], run["metrics"]["best_step"])
    assert loaded.score == run["metrics"]["val/accuracy"]
    plan = planning.make("sDigits", profile="smoke")
    data = store.load(plan.task, plan.options, Path(machine.env["XDG_DATA_HOME"]) / "lrurun" / plan.data_name)
    for split, name in ((data.validation, "val/accuracy"), (data.test, "test/accuracy")):
        right = np.argmax(loaded(split.inputs), -1) == split.labels
        assert right.mean() == pytest.approx(run["metrics"][name], abs=1e-6)
    with pytest.raises(NotFoundError, match="no run 'ffff'"):
        lrurun.load("ffff", ledger=machine.ledger)
    with pytest.raises(NotFoundError, match="no ledger"):
        lrurun.load("ffff", ledger=machine.folder / "none.db")
    (kept,) = machine.runs.glob("*/1/checkpoints/*")
    kept.rename(kept.with_name("elsewhere"))
    with pytest.raises(LrurunError, match=r"no checkpoint to read: .* is missing"):
        lrurun.load(run["id"], ledger=machine.ledger, runs_dir=machine.runs)
