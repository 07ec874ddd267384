"""Hydra: folders of jobs, as the package wrote them, with metrics in files of several forms."""

from __future__ import annotations

import math
import shutil

import pytest

from lrurun.errors import UsageError
from lrurun.trackers import Source
from lrurun.trackers.hydra import HydraReader
from tests.trackers.make.environment import FILES

FOLDER = FILES / "hydra"
MULTIRUN = FOLDER / "multirun"


def read(path, metrics_file="metrics.json", curves=None, **options):
    reader = HydraReader(Source(name=str(path), metrics_file=metrics_file, **options))
    return {run.id: run for run in reader.runs(curves)}, list(reader.notes())


@pytest.fixture
def jobs(tmp_path):
    """A copy of the multirun."""
    return shutil.copytree(MULTIRUN, tmp_path / "multirun") / "2026-11-28" / "12-00-00"


def test_jobs_of_a_multirun():
    runs, notes = read(MULTIRUN)
    assert list(runs) == [f"2026-11-28/12-00-00/{number}" for number in range(6)]
    scores = {(run.settings["seed"], run.settings["norm"]): run.last.get("test/acc") for run in runs.values()}
    assert scores == {
        (0, "layer"): 0.5,
        (0, "none"): 0.0,
        (1, "layer"): 0.6,
        (1, "none"): 0.1,
        (2, "layer"): None,
        (2, "none"): None,
    }
    run = runs["2026-11-28/12-00-00/3"]
    assert (run.project, run.name, run.state, run.last_step) == ("program", "norm=none,seed=1", "finished", None)
    assert math.isnan(run.last["loss"])
    assert notes == []


def test_failed_jobs_leave_a_folder_without_metrics():
    run = read(MULTIRUN)[0]["2026-11-28/12-00-00/4"]
    assert (run.state, run.state_text, run.last) == ("running", "no metrics file", {})
    assert run.settings["seed"] == 2


def test_values_of_a_yaml_file_are_those_of_the_program():
    settings = read(MULTIRUN)[0]["2026-11-28/12-00-00/0"].settings
    assert math.isnan(settings.pop("number"))
    assert settings == {
        "seed": 0,
        "norm": "layer",
        "lr": 0.001,
        "lr_text": "1e-3",
        "clock": 90,
        "octal": 8,
        "switch": True,
        "day": "2026-11-28",
        "nothing": None,
        "optimizer.name": "sgd",
        "optimizer.lr": "${lr}",
        "optimizer.betas": [0.9, 0.99],
        "value": 0,
    }


def test_values_of_a_command_line_are_those_of_the_program(tmp_path):
    """Not those of the same text in a YAML file: `010`, `on` and `1:30` are texts, and `nan` is a number."""
    folder = shutil.copytree(FOLDER / "values", tmp_path / "values")
    for job in folder.iterdir():
        (job / "m.json").write_text('{"acc": 1}')
    runs, _ = read(folder, "m.json")
    values = [runs[str(number)].settings["value"] for number in range(11)]
    assert math.isnan(values.pop(7))
    assert values == ["010", "on", 0.001, "1e-3", "1:30", "2026-11-28", None, ".nan", 1000, [1, "x"]]
    assert {run.project for run in runs.values()} == {""}  # these have no hydra.yaml


def test_metrics_by_step():
    run = read(MULTIRUN, "metrics.jsonl")[0]["2026-11-28/12-00-00/0"]
    assert run.curves["val_acc"].steps.tolist() == [0, 5, 10]
    assert run.curves["val_acc"].values.tolist() == [0, 0.25, 0.5]
    run = read(MULTIRUN, "metrics.csv", {"loss"})[0]["2026-11-28/12-00-00/0"]
    assert list(run.curves) == ["loss"]
    assert run.curves["loss"].values.tolist() == [1, 1 / 2, 1 / 3]
    assert run.last == {"loss": 1 / 3, "val_acc": 0.5}


def test_a_single_run_and_ids(jobs):
    run = read(FOLDER / "outputs")[0]["2026-11-28/13-00-00"]
    assert (run.settings["new.depth"], run.settings["tag"]) == (4, "${oc.env:HOME}")  # which is not looked up
    assert list(read(jobs / "3")[0]) == ["3"]
    assert list(read(jobs)[0]) == list("012345")
    shutil.move(jobs / "0" / "metrics.json", jobs / "0" / "logs.d")
    (jobs / "0" / "logs").mkdir()
    shutil.move(jobs / "0" / "logs.d", jobs / "0" / "logs" / "m.json")
    assert read(jobs, "logs/m.json")[0]["0"].last["test/acc"] == 0.5


def test_source_is_recognised(jobs):
    for path in (jobs.parents[1], jobs, jobs / "0"):
        assert HydraReader.recognises(Source(name=str(path)))
        assert HydraReader.recognises(Source(name=str(path), metrics_file="metrics.json"))
    assert not HydraReader.recognises(Source(name=str(jobs / "0" / ".hydra" / "config.yaml")))
    shutil.rmtree(jobs / "0" / ".hydra")
    assert not HydraReader.recognises(Source(name=str(jobs / "0")))


def test_metrics_file_is_asked_for():
    with pytest.raises(UsageError) as caught:
        read(MULTIRUN, "")
    assert "--metrics-file must name" in caught.value.message
    assert caught.value.hint == "the first job has metrics.csv, metrics.json, metrics.jsonl"
    with pytest.raises(UsageError) as caught:
        read(MULTIRUN, "metric.json")
    assert caught.value.message.startswith("--metrics-file metric.json: is in no folder of a job")
    assert caught.value.hint == "did you mean 'metrics.json'? files: metrics.csv, metrics.json, metrics.jsonl"


def test_a_job_that_was_killed_while_it_wrote(jobs):
    (jobs / "0" / "metrics.jsonl").write_text('{"step": 0, "val_acc": 0.25}\n{"step": 5, "va')
    (jobs / "1" / "metrics.jsonl").write_text("")
    (jobs / "2" / "metrics.jsonl").write_text('{"step": 0, "val')
    runs, notes = read(jobs, "metrics.jsonl")
    assert runs["0"].last == {"val_acc": 0.25}
    assert [(runs[job].state, runs[job].state_text) for job in "12"] == [("running", "no metrics")] * 2
    assert notes == [f"{jobs}/{job}/metrics.jsonl: the last line is half written and left out" for job in "02"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".hydra/config.yaml", b"a: [1"),
        (".hydra/config.yaml", b"a: \xe4"),
        (".hydra/hydra.yaml", b"- 1"),
        ("metrics.json", b'{"a": "\xe4"}'),
        ("metrics.json", b"[1]"),
    ],
)
def test_damaged_files_are_named(jobs, name, content):
    (jobs / "0" / name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(jobs)
    assert caught.value.message.startswith(str(jobs / "0" / name))


def test_odd_files_of_hydra(jobs):
    (jobs / "0" / ".hydra" / "hydra.yaml").write_text("hydra: {job: x}")
    (jobs / "1" / ".hydra" / "hydra.yaml").write_text("hydra: 3")
    (jobs / "2" / ".hydra" / "config.yaml").write_text("{}")
    runs, _ = read(jobs)
    assert (runs["0"].project, runs["1"].project, runs["2"].settings) == ("", "", {})


def test_per_item_results(jobs):
    (jobs / "0" / "metrics.json").write_text('{"acc": 0.5, "correct": [1, 0]}')
    (jobs / "1" / "correct").write_text("1\n1\n")
    runs, _ = read(jobs, items="correct")
    assert [runs[job].items for job in "012"] == [[1, 0], [1, 1], None]


@pytest.mark.parametrize("path", ["", "missing"])
def test_sources_without_jobs(tmp_path, path):
    for metrics_file in ("", "metrics.json"):
        with pytest.raises(UsageError) as caught:
            read(tmp_path / path, metrics_file)
        assert "--metrics-file" not in caught.value.message


def test_project(jobs):
    assert len(read(jobs, project="program")[0]) == 6
    with pytest.raises(UsageError, match="has no project 'programs'"):
        read(jobs, project="programs")
