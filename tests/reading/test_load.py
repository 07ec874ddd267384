"""`lrurun.load`: the trained model of a run, in Python."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

import lrurun
from lrurun.config import planning
from lrurun.data import task_data
from lrurun.data.task import Spec
from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger.ledger import Ledger
from lrurun.nn.network import Model
from lrurun.trained import Trained
from lrurun.training.checkpoint_verification import digest
from tests.harness import networks
from tests.harness.machine import Machine


def untrained(spec: Spec) -> Trained:
    """A small model with its initial values."""
    config = planning.make("sDigits", profile="smoke").rungs[0].config
    model = Model(networks.config(), spec)
    params, stats = model.init(jax.random.key(0))
    return Trained(
        id="abcdef012345", config=config, spec=spec, step=0, score=0.0, model=model, params=params, stats=stats
    )


def test_a_model_is_traced_once_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    model = untrained(networks.tokens())
    ids = np.arange(24).reshape(2, 12) % 3
    lengths = np.array([12, 5])
    expected, _ = model.model.apply(model.params, model.stats, ids, lengths, train=False)
    traced: list[tuple[int, ...]] = []
    apply = Model.apply

    def counting(self: Model, params: Any, stats: Any, inputs: Any, *others: Any, **options: Any) -> Any:
        traced.append(inputs.shape)
        return apply(self, params, stats, inputs, *others, **options)

    monkeypatch.setattr(Model, "apply", counting)
    np.testing.assert_allclose(model(ids, lengths), expected, rtol=1e-5, atol=1e-6)
    model(ids[:, ::-1].copy(), lengths - 1)
    assert traced == [(2, 12)]
    model(ids[:1], lengths[:1])
    assert traced == [(2, 12), (1, 12)]


@pytest.mark.parametrize(
    ("spec", "inputs", "lengths", "message"),
    [
        ({}, [[0, 7]], None, "ids from 0 to 6, found 7"),
        ({}, [[-1, 2]], None, "ids from 0 to 6, found -1"),
        ({}, [[2**40, 2]], None, f"ids from 0 to 6, found {2**40}"),
        ({}, [[0.0, 1.0]], None, "ids that are integers, found float64"),
        ({}, [["a", "b"]], None, "ids that are integers, found <U1"),
        ({}, [[1, 2], [1]], None, "inputs that are an array, found rows of different lengths"),
        ({}, [[1, 2]], [0], "lengths from 1 to 2, found 0"),
        ({}, [[1, 2]], [3], "lengths from 1 to 2, found 3"),
        ({}, [[1, 2]], [-1], "lengths from 1 to 2, found -1"),
        ({}, [[1, 2]], [1.5], "lengths that are integers, found float64"),
        ({}, [[1, 2]] * 4, [2], r"lengths (4,), found (1,)"),
        ({}, [[1, 2]] * 4, 2, r"lengths (4,), found ()"),
        ({"pair": True}, [[[1, 2], [1, 2]]], [2], r"lengths (1, 2), found (1,)"),
        ({"pair": True}, [[[1, 2], [1, 2]]], [[2, 3]], "lengths from 1 to 2, found 3"),
        (None, [[1j, 2.0]], None, "inputs that are real numbers, found complex128"),
        (None, [["a", "b"]], None, "inputs that are real numbers, found <U1"),
        (None, [[1.0, 2.0, 3.0]], [4], "lengths from 1 to 3, found 4"),
    ],
)
def test_a_loaded_model_refuses_what_its_task_cannot_have(
    spec: dict[str, Any] | None, inputs: Any, lengths: Any, message: str
) -> None:
    model = untrained(networks.features() if spec is None else networks.tokens(**spec))
    with pytest.raises(UsageError) as refused:
        model(inputs, lengths)
    assert refused.value.message == f"run abcdef012345: expected {message}"


def test_a_loaded_model_takes_lists_and_numbers_of_any_type() -> None:
    model = untrained(networks.features())
    numbers = np.arange(24).reshape(2, 12)
    expected = model(numbers, np.array([12, 5]))
    assert not np.array_equal(expected, model(numbers))
    for inputs in (numbers.tolist(), numbers.astype(np.uint8), numbers.astype(float), jnp.bfloat16(numbers)):
        np.testing.assert_array_equal(model(inputs, [12, 5]), expected)


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
