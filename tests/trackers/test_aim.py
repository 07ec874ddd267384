"""Runs of Aim 3.29.1, as it has written them (`make/aim.py`), where its package is installed.

It has none for Python 3.13, and CI never runs what needs it: after a change of the reader, run these tests by hand,
with Python 3.12 and `pip install aim`.
"""

from __future__ import annotations

import math
import sys
import tarfile
from pathlib import Path

import pytest

from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import TrackedRun
from tests.trackers.reader_output import FILES, points, read, recognised

NO_PACKAGE = "aim is not installed; it has no package for Python 3.13, so that CI never runs this test"
EXPORT = "export the runs as CSV from the table of Aim's browser view, and import that file"


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(FILES / "aim" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture
def indexed(tmp_path: Path) -> Path:
    return unpacked("indexed", tmp_path)


@pytest.fixture
def runs(indexed: Path) -> list[TrackedRun]:
    pytest.importorskip("aim", reason=NO_PACKAGE)
    return read("aim", indexed)[0]


def test_a_run_is_known_by_its_hash_and_named_by_its_name(runs: list[TrackedRun], indexed: Path) -> None:
    assert [run.name for run in runs] == ["first", "", ""]
    assert {len(run.id) for run in runs} == {24}
    assert {(run.project, run.place) for run in runs} == {("norms", str(indexed))}


def test_a_run_that_raised_is_finished_and_one_that_was_killed_is_active(runs: list[TrackedRun]) -> None:
    assert [(run.state, run.state_text) for run in runs] == [("finished", ""), ("finished", ""), ("running", "active")]
    assert [run.ended_at is None for run in runs] == [False, False, True]
    assert runs[0].started_at is not None
    assert runs[0].started_at > 1.79e9


def test_points_are_in_the_order_of_time_with_the_last_value_of_a_step(runs: list[TrackedRun]) -> None:
    for run in runs:
        assert points(run, "loss") == [(0, "nan"), (7, "3.0"), (3, "2.0"), (8, "9.0")]
        assert points(run, "low") == [(4, "0.25"), (2, "-inf")]
        assert points(run, "acc[subset=val]") == [(step * 10, str(step / 64)) for step in range(40)]
        assert run.last == {"acc[subset=val]": 39 / 64, "acc[subset=train]": 0.5, "loss": 9.0, "low": -math.inf}
        assert run.last_step == 390


def test_settings_are_what_was_assigned(runs: list[TrackedRun]) -> None:
    assert [run.settings for run in runs] == [
        {
            "hparams.norm": "layer",
            "hparams.seed": seed,
            "hparams.optim.lr": 0.001,
            "hparams.widths": [1, 2],
            "hparams.none": None,
        }
        for seed in range(3)
    ]


def test_curves_are_those_that_were_asked_for(runs: list[TrackedRun], indexed: Path) -> None:
    for curves, names in (((), []), (["low"], ["low"])):
        run = read("aim", indexed / ".aim", curves)[0][0]
        assert (list(run.curves), run.last, run.last_step) == (names, runs[0].last, 390)
    with pytest.raises(UsageError, match="has no project 'others'"):
        read("aim", indexed, project="others")


def test_runs_that_aim_has_not_indexed_look_empty_and_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("aim", reason=NO_PACKAGE)
    with pytest.raises(LrurunError) as refused:
        read("aim", unpacked("unindexed", tmp_path))
    assert refused.value.message == f"{tmp_path}: 3 of 3 runs are not in Aim's index, so that they look empty"
    assert refused.value.hint == f"aim storage --repo {tmp_path} reindex"


def test_a_repository_that_aim_cannot_read_is_refused(indexed: Path) -> None:
    pytest.importorskip("aim", reason=NO_PACKAGE)
    (indexed / ".aim" / "run_metadata.sqlite").write_bytes(b"x" * 4096)
    with pytest.raises(LrurunError, match=r"Aim cannot read it: .*file is not a database") as refused:
        read("aim", indexed)
    assert str(refused.value.hint).endswith(EXPORT)


def test_repositories_are_recognised_without_the_package(indexed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aim", None)
    assert recognised("aim", indexed)
    assert recognised("aim", indexed / ".aim")
    assert not recognised("aim", indexed.parent)
    with pytest.raises(LrurunError) as refused:
        read("aim", indexed)
    assert refused.value.message == f"{indexed}: a repository of Aim is read by its package, which is not installed"
    assert refused.value.hint == f"pip install aim, which needs Python 3.12 or earlier; or {EXPORT}"


def test_a_folder_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no repository of Aim") as refused:
        read("aim", tmp_path)
    assert refused.value.hint == "name the folder that has .aim in it"
