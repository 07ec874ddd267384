"""`lrurun.load`: the trained model of a run, in Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lrurun
from lrurun.config import plan as planning
from lrurun.data import store
from lrurun.errors import LrurunError, NotFoundError, UsageError
from tests.harness.machine import Machine


@pytest.mark.slow
def test_a_loaded_model_scores_what_its_run_scored(finished: Machine, tmp_path: Path) -> None:
    [run, *_] = finished.json("runs", "--where", "rung=gamma-norm and stage=train")["runs"]
    loaded = lrurun.load(run["id"][:6], ledger=finished.ledger, runs_dir=finished.runs)
    assert (loaded.id, loaded.step) == (run["id"], run["metrics"]["best_step"])
    assert loaded.score == run["metrics"]["val/accuracy"]
    plan = planning.make("sDigits", profile="smoke")
    data = store.load(plan.task, plan.options, Path(finished.env["XDG_DATA_HOME"]) / "lrurun" / plan.data_name)
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
