"""Lightning: versions of its CSVLogger, as the package wrote them, and damaged ones."""

from __future__ import annotations

import math
import shutil

import pytest

from lrurun import trackers
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source
from lrurun.trackers.lightning import LightningReader
from tests.trackers.make.environment import FILES

FOLDER = FILES / "lightning"


def read(path, curves=None, **options):
    reader = LightningReader(Source(name=str(path), **options))
    return {run.id: run for run in reader.runs(curves)}, list(reader.notes())


@pytest.fixture
def version(tmp_path):
    """A copy of the version that ended well."""
    return shutil.copytree(FOLDER / "lightning_logs" / "version_0", tmp_path / "lightning_logs" / "version_0")


def test_sparse_rows_are_curves():
    runs, notes = read(FOLDER / "lightning_logs")
    run = runs["version_0"]
    assert run.curves["train_loss"].steps.tolist() == [1, 3, 5, 7]
    assert run.curves["train_loss"].values.tolist() == [1 / (step + 1) + 0.001 for step in (1, 3, 5, 7)]
    assert run.curves["val_acc"].steps.tolist() == [3, 7]
    assert run.curves["val_acc"].values.tolist() == [0.1, 0.2]
    assert run.curves["test_acc"].steps.tolist() == [8]  # one after the last step of training
    assert run.last == {"epoch": 2, "train_loss": 0.126, "val_acc": 0.2, "test_acc": 0.75}
    assert (run.last_step, run.state, run.project, notes) == (8, "finished", "lightning_logs", [])


def test_a_metric_that_came_late_and_values_that_are_not_finite():
    run = read(FOLDER)[0]["lightning_logs/version_3"]
    assert run.curves["grad_norm"].steps.tolist() == [5, 7]
    assert run.curves["grad_norm"].values.tolist() == [math.inf, math.inf]
    assert math.isnan(run.last["train_loss"])
    assert math.isnan(run.curves["train_loss"].values[-1])


def test_settings_are_what_the_program_had():
    settings = read(FOLDER)[0]["lightning_logs/version_0"].settings
    assert settings == {
        "lr": 0.001,
        "lr_text": "1e-3",
        "small": 1e-05,
        "clock": "1:30",
        "octal": "010",
        "switch": "on",
        "nothing": "null",
        "missing": None,
        "flag": True,
        "seed": 0,
        "sizes": [16, 32],
        "optimizer.name": "sgd",
        "optimizer.momentum": 0.9,
        "optimizer.class": "torch.optim.sgd.SGD",
        "device": "torch.device(cpu)",
        "path": "data/digits",
        "title": "Größe: 3 × 3",
    }


def test_runs_that_broke_off():
    runs, _ = read(FOLDER)
    broken, killed = runs["lightning_logs/version_1"], runs["lightning_logs/version_2"]
    assert (broken.state, broken.last_step) == ("finished", 5)  # no file says more
    assert (killed.state, killed.state_text, killed.last) == ("running", "no metrics", {})
    assert killed.settings == {"lr": 0.001, "seed": 2}


def test_only_the_curves_that_were_asked_for():
    run = read(FOLDER, {"val_acc"})[0]["lightning_logs/version_0"]
    assert list(run.curves) == ["val_acc"]
    assert run.last.keys() == {"epoch", "train_loss", "val_acc", "test_acc"}
    assert read(FOLDER, ())[0]["lightning_logs/version_0"].curves == {}


def test_order_and_ids(version):
    for number in (10, 2):
        shutil.copytree(version, version.parent / f"version_{number}")
    assert list(read(version.parent)[0]) == ["version_0", "version_2", "version_10"]
    assert list(read(version)[0]) == ["version_0"]
    assert [run.project for run in read(version)[0].values()] == ["lightning_logs"]
    assert list(read(version.parents[1])[0]) == [f"lightning_logs/version_{number}" for number in (0, 2, 10)]


def test_source_is_recognised(version, tmp_path):
    for path in (version, version.parent, tmp_path):
        assert LightningReader.recognises(Source(name=str(path)))
    assert not LightningReader.recognises(Source(name=str(version / "metrics.csv")))
    with pytest.raises(UsageError, match="no reader that takes --metrics-file"):  # as Hydra's does
        trackers.recognise(Source(name=str(tmp_path), metrics_file="metrics.csv"))
    with pytest.raises(UsageError, match="Lightning has metrics in files of its own") as caught:
        trackers.opened(Source(name=str(tmp_path), metrics_file="metrics.csv"), "lightning")
    assert caught.value.hint == "leave --metrics-file out; it goes with --from hydra"


def test_folders_of_other_loggers_are_left_out(version):
    (version / "metrics.csv").unlink()
    (version / "events.out.tfevents.1.host").touch()
    assert not LightningReader.recognises(Source(name=str(version)))
    with pytest.raises(UsageError) as caught:
        read(version)
    assert caught.value.message == f"{version}: has no run of Lightning"


def test_half_written_last_line(version):
    with (version / "metrics.csv").open("a") as file:
        file.write("2,8,0.7")
    runs, notes = read(version)
    assert runs["version_0"].last["test_acc"] == 0.75
    assert notes == [f"{version}/metrics.csv: the last line is half written and left out"]
    with (version / "metrics.csv").open("a") as file:
        file.write(",,")  # all cells, but the last one may be half of it
    assert len(read(version)[1]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.csv", b"step,a\n0,1,2\n1,1\n", "line 2: has 3 cells, and the header has 2"),
        ("metrics.csv", b"step,a,a\n0,1,2\n", "two columns have the name 'a'"),
        ("metrics.csv", "step,Größe\n0,1\n".encode("latin-1"), "not UTF-8"),
        ("hparams.yaml", b"lr: [1, 2\n", "is not YAML"),
        ("hparams.yaml", b"- 1\n", "expected a table of settings, found list"),
        ("hparams.yaml", b"a: \xff\n", "not UTF-8"),
    ],
)
def test_damaged_files_are_named(version, name, content, message):
    (version / name).write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(version)
    assert caught.value.message.startswith(f"{version / name}")
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_missing_and_empty_files(version):
    (version / "hparams.yaml").write_text("")
    assert read(version)[0]["version_0"].settings == {}
    (version / "hparams.yaml").unlink()
    assert read(version)[0]["version_0"].last["test_acc"] == 0.75
    (version / "metrics.csv").write_text("")
    assert read(version)[0]["version_0"].state_text == "no metrics"


@pytest.mark.parametrize("path", ["", "missing", "file"])
def test_sources_without_runs(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        read(tmp_path / path)


def test_project(version):
    assert list(read(version.parent, project="lightning_logs")[0]) == ["version_0"]
    with pytest.raises(UsageError) as caught:
        read(version.parent, project="lightning_log")
    assert caught.value.hint == "did you mean 'lightning_logs'? projects: lightning_logs"


def test_links_are_not_followed(version):
    (version.parent / "version_1").symlink_to(version)
    runs, notes = read(version.parent)
    assert list(runs) == ["version_0"]
    assert notes == [f"{version.parent}: 1 link to other folders not followed"]


def test_folder_that_may_not_be_read(version, monkeypatch):
    import os

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(LrurunError) as caught:
        read(version.parent)
    assert caught.value.message == f"{version.parent}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("name", "content"), [("items.json", "[true, 0, 0.5]"), ("items.txt", "1\n0\n0.5\n"), ("items.npy", None)]
)
def test_per_item_results(version, name, content):
    if content is None:
        import numpy as np

        np.save(version / name, np.array([1, 0, 0.5]))
    else:
        (version / name).write_text(content)
    assert read(version, items=name)[0]["version_0"].items == [1, 0, 0.5]
    assert read(version, items="none.json")[0]["version_0"].items is None


@pytest.mark.parametrize(("name", "content"), [("i.json", b"[1, null]"), ("i.txt", b"a b"), ("i.npy", b"\x93NUMPY")])
def test_per_item_results_that_are_none(version, name, content):
    (version / name).write_bytes(content)
    with pytest.raises(UsageError):
        read(version, items=name)
