"""`lrurun data remove`: what goes, what is refused, and that half of it looks like nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lrurun import files
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import raw


@pytest.fixture
def prepared(machine: Machine, tmp_path: Path) -> Machine:
    machine.env["XDG_DATA_HOME"] = str(tmp_path / "share")
    machine.run("data", "prepare", "npDigits")
    return machine


def folder_of(machine: Machine) -> Path:
    return Path(machine.env["XDG_DATA_HOME"]) / "lrurun" / "npDigits"


def test_the_data_go_and_can_be_prepared_again(prepared: Machine) -> None:
    folder = folder_of(prepared)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    size = sum(map(len, before.values())) / 1e6
    planned = prepared.run("data", "remove", "npDigits", "--dry-run").stdout
    assert planned.splitlines() == [
        f"{folder}: {size:.1f} MB, 1,797 examples from scikit-learn load_digits, then lrurun noise 1, seed 0",
        "lrurun data prepare makes them again",
    ]
    assert folder.exists()
    done = prepared.run("data", "remove", "npDigits", "--yes").stdout
    assert done == f"{planned}removed: {folder}, {size:.1f} MB\n"
    assert list(folder.parent.iterdir()) == []
    prepared.run("data", "prepare", "npDigits")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_refused_says_why(prepared: Machine, tmp_path: Path) -> None:
    folder = folder_of(prepared)
    before = sorted(path.name for path in folder.iterdir())
    assert prepared.refused("data", "remove", "npDigits") == (
        "error: data remove: asks before it removes anything, and there is no terminal: nothing was removed\n"
        "hint: --yes removes without asking, --dry-run only says what\n"
    )
    assert "did you mean 'npDigits'?" in prepared.refused("data", "remove", "npDigit", "--yes")
    assert prepared.refused("data", "remove", "sDigits", "--yes", code=1) == (
        f"error: {folder.with_name('sDigits')}: there are no prepared data for sDigits\n"
        "hint: nothing has to be removed\n"
    )
    fill(prepared.ledger, "npDigits", {"gamma-norm": [0.5]})
    [(run,)] = raw(prepared.ledger, "SELECT id FROM stored_runs")
    raw(prepared.ledger, "DROP TRIGGER runs_finished_stay")
    raw(prepared.ledger, "UPDATE stored_runs SET state = 'running', result = NULL, finished_at = NULL")
    live = "host = 'far', ended_at = NULL, outcome = NULL, heartbeat_at = 9e9, seen_at = 9e9"
    raw(prepared.ledger, f"UPDATE stored_attempts SET {live}")
    assert prepared.refused("data", "remove", "npDigits", "--yes", code=1) == (
        f"error: {folder}: 1 running run reads these data: {run}\n"
        "hint: stop the command that trains, or wait until it is done\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == before
    raw(prepared.ledger, "UPDATE stored_runs SET state = 'interrupted'")
    raw(prepared.ledger, "UPDATE stored_attempts SET ended_at = 1, outcome = 'interrupted'")
    elsewhere = folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(elsewhere)
    assert f"error: {folder}: is a link to {elsewhere}" in prepared.refused("data", "remove", "npDigits", code=1)
    folder.unlink()
    folder.mkdir()
    (folder / "mine.txt").write_text("notes")
    assert "has no manifest: it is not known what it has" in prepared.refused("data", "remove", "npDigits", code=1)


@pytest.mark.slow
def test_half_removed_data_look_like_nothing(prepared: Machine, monkeypatch) -> None:
    folder = folder_of(prepared)

    class Killed(BaseException):
        pass

    count, unlink = len(list(folder.iterdir())), os.unlink
    for step in (0, count // 2, count - 1):
        removed: list[str] = []

        def stop(path: str, removed: list[str] = removed, step: int = step) -> None:
            if len(removed) == step:
                raise Killed
            unlink(path)
            removed.append(path)

        with monkeypatch.context() as patch:
            patch.setattr(files.os, "unlink", stop)
            with pytest.raises(Killed):
                prepared.run("data", "remove", "npDigits", "--yes")
        assert not folder.exists()
        assert "there are no prepared data" in prepared.run("data", "remove", "npDigits", "--yes", code=1).stderr
        assert prepared.json("data", "info", "npDigits")["prepared"] is None
        prepared.run("data", "prepare", "npDigits")
        assert [path.name for path in folder.parent.iterdir()] == ["npDigits"]
        assert "every array has the digest" in prepared.run("data", "check", "npDigits").stdout


def test_imported_arrays_cannot_be_made_again(machine: Machine, tmp_path: Path) -> None:
    import numpy as np

    machine.env["XDG_DATA_HOME"] = str(tmp_path / "share")
    np.save(machine.folder / "x.npy", np.random.default_rng(0).random((60, 8, 2), dtype=np.float32))
    np.save(machine.folder / "y.npy", np.arange(60) % 3)
    machine.run("data", "import", "mine", "--inputs", "x.npy", "--labels", "y.npy")
    said = machine.run("data", "remove", "mine", "--dry-run").stdout
    assert (
        "imported arrays cannot be made again: lrurun data import needs the files from which they were copied" in said
    )
    machine.run("data", "remove", "mine", "--yes")
    assert (machine.folder / "x.npy").exists()
