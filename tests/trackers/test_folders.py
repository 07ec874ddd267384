"""Folders of several trackers: each is recognised by one reader; large and odd folders."""

from __future__ import annotations

import shutil

import pytest

from lrurun.errors import LrurunError
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
    assert len(list(RayTuneReader(source).runs())) == 7


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


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.touch()

    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(type(path), "read_bytes", refuse)
    with pytest.raises(LrurunError) as caught:
        folders.text(path)
    assert caught.value.message == f"{path}: cannot be read: Permission denied"
    assert caught.value.exit_code == 1
