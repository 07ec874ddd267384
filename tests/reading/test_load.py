"""`lrurun.load`: the trained model of a run, in Python."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import lrurun
from lrurun.config import planning
from lrurun.data import task_data
from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger.ledger import Ledger
from lrurun.training.checkpoint_verification import digest
from tests.harness.machine import Machine


@pytest.mark.slow
def test_a_loaded_model_scores_what_its_run_scored(finished: Machine, tmp_path: Path) -> None:
    [run, *_] = finished.json("runs", "--where", "rung=gamma-norm and stage=train")["runs"]
    loaded = lrurun.load(run["id"][:6], ledger=finished.ledger, runs_dir=finished.runs)
    assert (loaded.id, loaded.step) == (run["id"], run["metrics"]["best_step"])
    assert loaded.score == run["metrics"]["val/accuracy"]
    plan = planning.make("sDigits", profile="smoke")
    data = task_data.load(plan.task, plan.options, Path(finished.env["XDG_DATA_HOME"]) / "lrurun" / plan.data_name)
    for split, name in ((data.validation, "val/accuracy"), (data.test, "test/accuracy")):
        right = np.argmax(loaded(split.inputs), -1) == split.labels
        assert right.mean() == pytest.approx(run["metrics"][name], abs=1e-6)
    assert loaded.spec == plan.task.spec(plan.options)
    with pytest.raises(UsageError, match=r"expected inputs \(B, L\), found \(64,\)"):
        loaded(data.test.inputs[0])
    with pytest.raises(NotFoundError, match="no run 'ffff'"):
        lrurun.load("ffff", ledger=finished.ledger)
    with pytest.raises(NotFoundError, match="no ledger"):
        lrurun.load("ffff", ledger=tmp_path / "none.db")
    with pytest.raises(LrurunError, match=r"no checkpoint to read: .* is missing"):
        lrurun.load(run["id"], ledger=finished.ledger, runs_dir=tmp_path)


@pytest.mark.slow
def test_a_checkpoint_of_other_code_is_refused_by_the_name_of_an_array(finished: Machine, tmp_path: Path) -> None:
    """Wherever it is read: for a model, and for the eigenvalues of a run that has not recorded them."""
    [run, *_] = finished.json("runs", "--where", "rung=gamma-norm and stage=train")["runs"]
    ledger, runs = tmp_path / "ledger.db", tmp_path / "runs"
    shutil.copy(finished.ledger, ledger)
    shutil.copytree(finished.runs / run["id"], runs / run["id"])
    with Ledger.open(ledger) as opened:
        [entry, *others] = opened.checkpoints(run["id"], "committed")
    assert others == []
    folder = runs / entry.path
    recorded, tree = ocp.metadata(folder).custom_metadata, ocp.load(folder)
    name = "['params']['blocks']['0']['recurrence']['nu_log']"
    size = len(tree["live"][name])
    tree["live"][name] = tree["live"][name][1:]
    shutil.rmtree(folder)
    ocp.save(folder, tree, custom_metadata=recorded)
    database = sqlite3.connect(ledger)
    with database:
        database.execute("UPDATE checkpoints SET sha256 = ? WHERE id = ?", (digest(folder)[1], entry.id))
        database.execute("DELETE FROM eigenvalues")
    database.close()
    message = f"{folder}: live{name}: expected float32 of shape ({size},), found float32 of shape ({size - 1},)"
    with pytest.raises(LrurunError) as refused:
        lrurun.load(run["id"], ledger=ledger, runs_dir=runs)
    assert refused.value.message == message
    places = ("--ledger", str(ledger), "--runs-dir", str(runs))
    done = finished.run(*places, "plot", run["id"], "--kind", "eigenvalues", "--out", str(tmp_path / "e.pdf"), code=1)
    assert f"error: {message}\nhint: the checkpoint was saved by other code: " in done.stderr
