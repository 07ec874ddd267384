"""Folders of several trackers: each is recognised by one reader; large and odd folders."""

from __future__ import annotations

import shutil
from pathlib import PurePosixPath

import pytest

from lrurun import trackers
from lrurun.trackers import Source, folders
from lrurun.trackers.hydra import HydraReader
from lrurun.trackers.lightning import LightningReader
from lrurun.trackers.optuna import OptunaReader
from lrurun.trackers.ray_tune import RayTuneReader
from lrurun.trackers.transformers import TransformersReader
from tests.trackers.make.environment import FILES

SOURCES = {
    "lightning": LightningReader,
    "transformers": TransformersReader,
    "optuna/studies.db": OptunaReader,
    "optuna/journal.log": OptunaReader,
    "hydra": HydraReader,
    "ray": RayTuneReader,
}


@pytest.mark.parametrize("path", SOURCES)
def test_each_source_has_one_reader(path):
    source = Source(name=str(FILES / path))
    assert [reader for reader in dict.fromkeys(SOURCES.values()) if reader.recognises(source)] == [SOURCES[path]]
    assert not SOURCES[path].recognises(Source(name=str(FILES / path), frame=object()))


@pytest.mark.parametrize(
    ("path", "place"), [("ray/ladder", "*_0_*"), ("transformers", "whole"), ("lightning", "*/version_0")]
)
def test_files_of_tensorboard_beside_those_of_a_tool(path, place, tmp_path):
    """Ray Tune, transformers and Lightning write them, too."""
    [target] = shutil.copytree(FILES / path, tmp_path / "source").glob(place)
    [events] = (FILES / "tensorboard" / "values" / "simple").iterdir()
    shutil.copy(events, target)
    assert trackers.recognise(Source(name=str(tmp_path / "source"))) is SOURCES[path.partition("/")[0]]


@pytest.mark.parametrize("reader", dict.fromkeys(SOURCES.values()))
def test_a_reader_reads_nothing_before_it_is_asked(reader, tmp_path):
    assert reader(Source(name=str(tmp_path / "missing"))).notes() == []
    assert not reader.recognises(Source(name=str(tmp_path)))
    assert not reader.recognises(Source(name="https://host/project"))


def test_natural_order():
    names = ["b", "a10", "a9", "a", "10", "9", "a9b2", "a9b10", "²"]
    assert sorted(names, key=folders.natural) == ["9", "10", "a", "a9", "a9b2", "a9b10", "a10", "b", "²"]


def test_recognising_looks_into_few_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_SEEN_FIRST", 10)
    for number in range(20):
        (tmp_path / f"data{number}").mkdir()
    version = tmp_path / "z" / "version_0"
    shutil.copytree(FILES / "lightning" / "lightning_logs" / "version_0", version)
    assert not LightningReader.recognises(Source(name=str(tmp_path)))
    assert [run.id for run in LightningReader(Source(name=str(tmp_path))).runs()] == ["z/version_0"]


def test_hidden_folders_are_left_out(tmp_path):
    shutil.copytree(FILES / "lightning" / "lightning_logs", tmp_path / ".trash")
    assert not LightningReader.recognises(Source(name=str(tmp_path)))


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(FILES / "ray", tmp_path / "ray_results")
    source = Source(name="~/ray_results")
    assert RayTuneReader.recognises(source)
    assert len(list(RayTuneReader(source).runs())) == 10


def test_the_current_folder(tmp_path, monkeypatch):
    shutil.copytree(FILES / "lightning" / "lightning_logs", tmp_path / "lightning_logs")
    monkeypatch.chdir(tmp_path / "lightning_logs")
    runs = list(LightningReader(Source(name=".")).runs())
    assert [(run.id, run.project) for run in runs][:2] == [
        ("version_0", "lightning_logs"),
        ("version_1", "lightning_logs"),
    ]
    monkeypatch.chdir(tmp_path / "lightning_logs" / "version_0")
    assert [(run.id, run.project) for run in LightningReader(Source(name=".")).runs()] == [
        ("version_0", "lightning_logs")
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("none/seed0", {"folder.1": "none", "seed": 0}),
        ("none/seed_12", {"folder.1": "none", "seed": 12}),
        ("none/Seed-3/tb", {"folder.1": "none", "seed": 3, "folder.3": "tb"}),
        ("norm=none,seed=1", {"norm": "none", "seed": 1}),
        ("a/optim.lr=1e-3,+norm=none", {"folder.1": "a", "optim.lr": 0.001, "norm": "none"}),
        ("lr=0.1/x=", {"lr": 0.1, "x": ""}),
        ("n=nan,m=1_0", {"n": "nan", "m": "1_0"}),
        ("train_0_lr=0.1,seed", {"folder.1": "train_0_lr=0.1,seed"}),
        ("seeds/seed/seed1b", {"folder.1": "seeds", "folder.2": "seed", "folder.3": "seed1b"}),
        (".", {}),
    ],
)
def test_settings_in_the_names_of_folders(path, expected):
    assert folders.settings_in(PurePosixPath(path)) == expected


@pytest.mark.parametrize("layout", ["{norm}/seed{seed}", "norm={norm},seed={seed}"])
def test_folders_of_tensorboard_without_settings(layout, tmp_path):
    for norm in ("none", "layer"):
        for seed in range(3):
            target = tmp_path / layout.format(norm=norm, seed=seed)
            shutil.copytree(FILES / "tensorboard" / "values" / "simple", target)
    reader = trackers.opened(Source(name=str(tmp_path)))
    found = [tuple(run.settings.values()) for run in reader.runs()]
    assert sorted(found) == sorted((norm, seed) for norm in ("none", "layer") for seed in range(3))


def test_settings_of_the_tool_count_alone(tmp_path):
    shutil.copytree(FILES / "lightning", tmp_path / "norm=none")
    of_tool = list(LightningReader(Source(name=str(FILES / "lightning"))).runs())
    found = list(LightningReader(Source(name=str(tmp_path))).runs())
    assert [run.settings for run in found if "norm" not in run.settings] == [
        run.settings for run in of_tool if run.settings
    ]
