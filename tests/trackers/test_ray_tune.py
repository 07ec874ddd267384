"""Ray Tune: experiments as the package wrote them, and damaged ones."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil

import pytest

from lrurun.errors import UsageError
from lrurun.trackers import Source
from lrurun.trackers.ray_tune import RayTuneReader
from tests.trackers.make.environment import FILES

FOLDER = FILES / "ray"


def read(path, curves=None, **options):
    reader = RayTuneReader(Source(name=str(path), **options))
    return list(reader.runs(curves)), list(reader.notes())


def by_seed(path, curves=None):
    return {run.settings["seed"]: run for run in read(path, curves)[0]}


@pytest.fixture
def results(tmp_path):
    """A copy of all experiments."""
    return shutil.copytree(FOLDER, tmp_path / "ray_results")


def trial(results, seed, experiment="ladder"):
    [folder] = (results / experiment).glob(f"*seed={seed}*")
    return folder


def test_reports_are_curves():
    run = by_seed(FOLDER / "ladder")[0]
    assert run.curves["acc"].steps.tolist() == [1, 2, 3]
    assert run.curves["acc"].values.tolist() == [0.01, 0.02, 0.03]
    assert run.curves["nested/loss"].values.tolist() == [1, 1 / 2, 1 / 3]
    assert run.last.keys() == {"acc", "nested/loss", "time_this_iter_s", "time_total_s"}
    assert run.last_step == 3
    assert run.settings == {"seed": 0, "model.norm": "layer", "model.depth": 4, "lr": 0.001}
    assert (run.project, run.name) == ("ladder", "0_seed=0")
    assert run.id.endswith("_00000")
    assert run.started_at < run.ended_at < run.started_at + 60


def test_metrics_that_came_late_are_in_result_json_alone():
    run = by_seed(FOLDER / "ladder")[1]
    [folder] = (FOLDER / "ladder").glob("*seed=1*")
    assert "late" not in (folder / "progress.csv").read_text()
    assert (run.curves["late"].steps.tolist(), run.last["late"]) == ([2], 5.0)
    assert math.isnan(run.curves["acc"].values[1])
    assert run.last["infinite"] == math.inf
    assert run.last["acc"] == 0.13


def test_states():
    runs = by_seed(FOLDER / "ladder")
    assert {seed: (run.state, run.state_text) for seed, run in runs.items()} == {
        0: ("finished", "TERMINATED"),
        1: ("finished", "TERMINATED"),
        2: ("crashed", "ERROR"),
        3: ("crashed", "ERROR"),
    }
    assert (runs[2].last, runs[3].last_step) == ({}, 2)


def ends(experiment):
    """Seed of each trial -> `done` in its last report, and how many it has."""
    rows = {
        path.parent.name.split("_seed=")[1][0]: path.read_text().splitlines()
        for path in (FOLDER / experiment).glob("*/result.json")
    }
    return {seed: (json.loads(lines[-1])["done"], len(lines)) for seed, lines in rows.items()}


def test_a_trial_that_a_scheduler_stopped():
    assert ends("stopped") == {"5": (False, 3), "1": (True, 1)}
    runs, notes = read(FOLDER / "stopped")
    assert {run.settings["seed"]: (run.state, run.state_text) for run in runs} == {
        5: ("finished", "TERMINATED"),
        1: ("running", "TERMINATED, ended after 1 of 3 reports"),
    }
    [note] = notes
    assert "1 trial ended before others, and the state of the experiment does not say why" in note


def test_a_trial_that_meets_the_rule_of_its_experiment_is_finished():
    """`stop={"acc": 0.5}`: the best trials have the fewest reports. One that reports `done` itself looks as one that a
    scheduler stopped."""
    assert ends("rule") == {"5": (True, 1), "0": (False, 3), "1": (True, 2)}
    runs, notes = read(FOLDER / "rule")
    assert {run.settings["seed"]: (run.state, run.state_text) for run in runs} == {
        5: ("finished", "TERMINATED"),
        0: ("finished", "TERMINATED"),
        1: ("running", "TERMINATED, ended after 2 of 3 reports"),
    }
    assert [run.last["acc"] for run in runs[:2]] == [0.51, 0.03]
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("rule", "is_met"),
    [
        ({"nested/loss": 1.0}, True),
        ({"training_iteration": 1}, True),
        ({"training_iteration": 2, "acc": 0.11}, True),
        ({"training_iteration": 2, "acc": 0.2, "absent": 0}, False),
        ({"flag": True}, True),
        ({"text": 0, "nested": 0}, False),
        ({"acc": float("nan")}, False),
        (None, False),
    ],
)
def test_rules(results, rule, is_met):
    """Against the trial of one report, with acc 0.11 and a loss of 1, that a scheduler stopped."""
    [path] = (results / "stopped").glob("experiment_state-*")
    table = json.loads(path.read_text())
    for pair in table["trial_data"]:
        pair[0] = json.dumps(json.loads(pair[0]) | {"stopping_criterion": rule})
    path.write_text(json.dumps(table))
    assert by_seed(results / "stopped")[1].state == ("finished" if is_met else "running")


def test_a_stopping_rule_that_all_trials_meet_is_an_end(results):
    for path in (results / "ladder").glob("*/result.json"):
        path.write_text(path.read_text().replace('"done": false', '"done": true'))
    assert [run.state for seed, run in sorted(by_seed(results / "ladder").items())][:2] == ["finished"] * 2


def test_a_killed_experiment_has_trials_without_reports():
    [run] = read(FOLDER / "killed")[0]
    assert (run.state, run.state_text, run.last, run.settings["seed"]) == ("running", "PENDING", {}, 0)


def test_without_a_state_of_the_experiment(results):
    for path in results.glob("*/experiment_state-*"):
        path.unlink()
    runs = by_seed(results / "ladder")
    assert {seed: run.state for seed, run in runs.items()} == {0: "running", 1: "running", 2: "crashed", 3: "crashed"}
    assert runs[0].state_text == "no state of the experiment"
    assert runs[0].id.endswith("_00000")
    assert runs[2].id.startswith("program_")  # no report has its id
    trial(results, 3).joinpath("error.txt").unlink()
    assert by_seed(results / "ladder")[3].state == "running"


def test_a_folder_without_the_last_reports(results):
    path = trial(results, 0) / "result.json"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    run = by_seed(results / "ladder")[0]
    assert (run.state, run.state_text) == ("running", "TERMINATED, 2 of 3 reports in the folder")


def test_the_newest_state_that_is_whole_counts(results):
    folder = results / "ladder"
    [path] = folder.glob("experiment_state-*")
    newer = folder / "experiment_state-2999-01-01_00-00-00.json"
    newer.write_text(path.read_text().replace('\\"ERROR\\"', '\\"TERMINATED\\"'))
    assert by_seed(folder)[3].state == "finished"
    newer.write_text(path.read_text()[:100])
    runs, notes = read(folder)
    assert [run.state for run in runs] == ["finished", "finished", "crashed", "crashed"]
    assert notes == [f"{newer}: is not whole and passed over"]


def test_states_of_another_form_are_refused(results):
    [path] = (results / "ladder").glob("experiment_state-*")
    for content in ("{}", '{"trial_data": [1]}', '{"trial_data": [["{}", "{}"]]}', '{"trial_data": [["{", "{}"]]}'):
        path.write_text(content)
        with pytest.raises(UsageError) as caught:
            read(results)
        assert "is not of the form that Ray Tune 2 writes" in caught.value.message
        assert "to_csv" in caught.value.hint


def test_sources_and_ids(results):
    runs, _ = read(results)
    assert [(run.project, run.settings["seed"]) for run in runs] == [
        ("killed", 0),
        ("ladder", 0),
        ("ladder", 1),
        ("ladder", 2),
        ("ladder", 3),
        ("rule", 5),
        ("rule", 0),
        ("rule", 1),
        ("stopped", 5),
        ("stopped", 1),
    ]
    assert len({run.id for run in runs}) == 10
    one = trial(results, 1)
    [alone] = read(one)[0]
    assert (alone.id, alone.project, alone.state) == (runs[2].id, "ladder", "finished")
    for path in (results.parent, results, results / "ladder", one):
        assert RayTuneReader.recognises(Source(name=str(path)))
    assert not RayTuneReader.recognises(Source(name=str(one / "result.json")))
    assert [run.project for run in read(results, project="stopped")[0]] == ["stopped"] * 2
    with pytest.raises(UsageError) as caught:
        read(results, project="stoped")
    assert caught.value.hint.startswith("did you mean 'stopped'?")


def test_a_restored_trial_goes_back(results):
    path = trial(results, 0) / "result.json"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[1]]))
    run = by_seed(results / "ladder", {"acc"})[0]
    assert run.curves.keys() == {"acc"}
    assert run.curves["acc"].steps.tolist() == [1, 2, 3, 2]
    assert (run.last["acc"], run.last_step) == (0.02, 3)


def test_half_written_last_line(results):
    path = trial(results, 0) / "result.json"
    path.write_text(path.read_text() + '{"acc": 0.9, "training_it')
    runs, notes = read(results / "ladder")
    assert runs[0].last["acc"] == 0.03
    assert notes == [f"{path}: the last line is half written and left out"]


def test_pickles_are_never_read(results):
    class Call:
        def __reduce__(self):
            return (os.mkdir, (str(results / "called"),))

    content = pickle.dumps(Call())
    for name in ("params.pkl", "error.pkl"):
        trial(results, 0).joinpath(name).write_bytes(content)
    results.joinpath("ladder", "tuner.pkl").write_bytes(content)
    [state] = (results / "killed").glob("experiment_state-*")
    table = json.loads(state.read_text())
    first = json.loads(table["trial_data"][0][0])
    first["config"]["call"] = {"_type": "CLOUDPICKLE_FALLBACK", "value": content.hex()}
    table["trial_data"][0][0] = json.dumps(first)
    state.write_text(json.dumps(table))
    runs, _ = read(results)
    assert not (results / "called").exists()
    assert runs[0].settings["call"] == "pickle"
    assert runs[1].state == "finished"  # by its state; the error is of an attempt before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("params.json", b"{", "not valid JSON"),
        ("params.json", b"[]", "expected a table"),
        ("params.json", b'{"a": "\xe4"}', "not UTF-8"),
        ("result.json", b'1\n{"acc": 1}\n', "line 1: expected a JSON object"),
        ("result.json", b'{"acc"\n{"acc": 1}\n', "line 1: is not JSON"),
    ],
)
def test_damaged_files_are_named(results, name, content, message):
    path = trial(results, 0) / name
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(results)
    assert caught.value.message.startswith(str(path))
    assert message in caught.value.message


def test_missing_and_empty_parameters(results):
    path = trial(results, 0) / "params.json"
    path.write_text("")
    assert by_seed(results / "ladder")[0].settings["lr"] == 0.001  # of the state
    for state in (results / "ladder").glob("experiment_state-*"):
        state.unlink()
    assert by_seed(results / "ladder")[0].settings["lr"] == 0.001  # of the reports


@pytest.mark.parametrize("path", ["", "missing"])
def test_sources_without_trials(tmp_path, path):
    assert not RayTuneReader.recognises(Source(name=str(tmp_path / path)))
    with pytest.raises(UsageError):
        read(tmp_path / path)
