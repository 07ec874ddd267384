"""Hugging Face transformers: output folders of its Trainer, as the package wrote them, and damaged ones."""

from __future__ import annotations

import json
import math
import pickle
import shutil

import pytest

from lrurun.errors import UsageError
from lrurun.trackers import Source
from lrurun.trackers.transformers import TransformersReader
from tests.trackers.make.environment import FILES

FOLDER = FILES / "transformers"


def read(path, curves=None, **options):
    reader = TransformersReader(Source(name=str(path), **options))
    return {run.id: run for run in reader.runs(curves)}, list(reader.notes())


@pytest.fixture
def outputs(tmp_path):
    """A copy of all output folders."""
    return shutil.copytree(FOLDER, tmp_path / "outputs")


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_log_history():
    run = read(FOLDER)[0]["whole"]
    loss, accuracy = run.curves["loss"], run.curves["eval_accuracy"]
    assert loss.steps.tolist() == [2, 4, 6, 8, 10, 12]
    # the mean of the two steps since the last row
    assert loss.values.tolist() == [(0.5 ** (step - 2) + 0.5 ** (step - 1)) / 2 for step in (2, 4, 6, 8, 10, 12)]
    assert (accuracy.steps.tolist(), accuracy.values.tolist()) == ([4, 8, 12], [0.04, 0.08, 0.12])
    assert run.last["eval_loss"] == 0.5**12
    assert run.last_step == 12


def test_metrics_that_were_saved_apart_from_the_log():
    runs, notes = read(FOLDER / "whole")
    assert runs["whole"].last["test_accuracy"] == 0.5
    assert "test_accuracy" not in runs["whole"].curves
    assert runs["whole"].last["eval_accuracy"] == 0.12
    path = FOLDER / "whole" / "all_results.json"
    assert notes == [f"{path}: eval_accuracy is 0.5, and 0.12 at the end of the log, which counts"]


def test_nan_is_a_bare_token():
    run = read(FOLDER)[0]["nan"]
    assert math.isnan(run.last["loss"])
    assert math.isnan(run.last["eval_loss"])
    assert run.state == "finished"


def test_nan_is_logged_as_0_by_default():
    runs, notes = read(FOLDER)
    run = runs["filtered"]
    assert run.curves["loss"].values.tolist() == [0.75, 0.1875, 0, 0, 0, 0]
    assert math.isnan(run.last["eval_loss"])
    path = FOLDER / "filtered" / "checkpoint-12" / "trainer_state.json"
    assert f"{path}: the last loss is exactly 0, as Trainer logs one that is NaN or infinite" in notes


def test_states():
    assert {id: (run.state, run.state_text) for id, run in read(FOLDER)[0].items()} == {
        "whole": ("finished", "step 12 of 12"),
        "early": ("finished", "step 8 of 12, stopped early"),
        "killed": ("running", "step 4 of 12"),
        "nan": ("finished", "step 12 of 12"),
        "filtered": ("finished", "step 12 of 12"),
        "resumed": ("finished", "step 8 of 8"),
    }


def test_a_checkpoint_at_which_training_was_stopped():
    run = read(FOLDER / "early" / "checkpoint-8")[0]["checkpoint-8"]
    assert (run.state, "train_runtime" in run.last) == ("finished", False)


def test_states_of_older_versions_have_no_control(outputs):
    folder = outputs / "early"
    for path in folder.rglob("trainer_state.json"):
        edit(path, stateful_callbacks=None)
    assert read(folder)[0]["early"].state == "finished"  # by the times of the whole training
    assert read(folder / "checkpoint-8")[0]["checkpoint-8"].state == "running"


def test_a_resumed_run_has_each_step_once():
    run = read(FOLDER)[0]["resumed"]
    assert run.curves["loss"].steps.tolist() == [2, 4, 6, 8]


def test_settings_without_the_pickle(outputs):
    class Call:
        def __reduce__(self):
            return (outputs.joinpath("called").touch, ())

    (outputs / "whole" / "training_args.bin").write_bytes(pickle.dumps(Call()))
    (outputs / "whole" / "args.json").write_text('{"lr": 0.001, "optimizer": {"name": "adam"}}')
    edit(outputs / "whole" / "trainer_state.json", trial_params={"seed": 7})
    runs, _ = read(outputs)
    assert not (outputs / "called").exists()
    settings = runs["whole"].settings
    assert {name: value for name, value in settings.items() if not name.startswith("config.")} == {
        "folder": "whole",
        "max_steps": 12,
        "num_train_epochs": 12,
        "train_batch_size": 8,
        "lr": 0.001,
        "optimizer.name": "adam",
        "seed": 7,
    }
    assert all(run.settings["config.width"] == 3 for run in runs.values())  # also where only a checkpoint has it


def test_the_state_of_the_most_steps_counts(outputs):
    folder = outputs / "whole"
    assert "train_runtime" in read(folder)[0]["whole"].last  # of equal states, that of the output folder
    edit(folder / "trainer_state.json", global_step=10)
    assert "train_runtime" not in read(folder)[0]["whole"].curves
    shutil.copytree(folder / "checkpoint-8", folder / "checkpoint-100")
    edit(folder / "checkpoint-100" / "trainer_state.json", global_step=100)
    assert read(folder)[0]["whole"].state_text == "step 100 of 12"


def test_ids_and_sources(outputs):
    assert list(read(outputs)[0]) == ["early", "filtered", "killed", "nan", "resumed", "whole"]
    assert list(read(outputs / "whole")[0]) == ["whole"]
    run = read(outputs / "whole" / "checkpoint-8")[0]["checkpoint-8"]
    assert (run.last_step, run.state) == (8, "running")
    for path in (outputs.parent, outputs, outputs / "whole", outputs / "whole" / "checkpoint-8"):
        assert TransformersReader.recognises(Source(name=str(path)))
    assert not TransformersReader.recognises(Source(name=str(outputs / "whole" / "config.json")))


@pytest.mark.parametrize("content", ["", '{"global_step": 12, "log_', "{}", '{"global_step": "x"}'])
def test_half_written_states_are_passed_over(outputs, content):
    folder = outputs / "resumed"
    (folder / "checkpoint-8" / "trainer_state.json").write_text(content)
    runs, notes = read(folder)
    assert runs["resumed"].last_step == 4
    assert notes == [f"{folder}/checkpoint-8/trainer_state.json: is not whole and passed over"]
    shutil.rmtree(folder / "checkpoint-4")
    with pytest.raises(UsageError) as caught:
        read(folder)
    assert str(folder / "checkpoint-8" / "trainer_state.json") in caught.value.message


@pytest.mark.parametrize(
    "changes",
    [
        {"log_history": None},
        {"log_history": [1]},
        {"log_history": "x"},
    ],
)
def test_states_of_another_form(outputs, changes):
    edit(outputs / "early" / "trainer_state.json", **changes)
    with pytest.raises(UsageError, match="has no list of rows log_history"):
        read(outputs)


def test_odd_values_are_no_fault(outputs):
    path = outputs / "early" / "trainer_state.json"
    rows = [{"step": 8, "a": True, "b": "x", "c": [1], "d": {"e": 1}, "f": None, "g": 10**400}, {"no_step": 2}, {}]
    edit(path, log_history=rows, stateful_callbacks=[], max_steps=None, trial_params=3)
    run = read(outputs / "early")[0]["early"]
    assert run.last == {"d/e": 1, "g": math.inf, "no_step": 2}
    assert run.curves.keys() == {"d/e", "g"}
    edit(path, stateful_callbacks={"TrainerControl": {"args": None}}, max_steps=20)
    assert read(outputs / "early")[0]["early"].state_text == "step 8 of 20"


def test_not_utf8(outputs):
    (outputs / "killed" / "config.json").write_bytes(b'{"name": "\xe4"}')
    with pytest.raises(UsageError, match="line 1: is not UTF-8"):
        read(outputs)


@pytest.mark.parametrize("path", ["", "missing"])
def test_sources_without_runs(tmp_path, path):
    with pytest.raises(UsageError):
        read(tmp_path / path)
