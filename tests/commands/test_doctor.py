"""`lrurun doctor`: which data are prepared."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.harness.machine import Machine


def test_data_of_own_tasks_are_counted_in_every_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(machine.folder)
    machine.env["XDG_DATA_HOME"] = str(machine.folder / "share")
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.normal(size=(60, 8, 1)).astype(np.float32))
    np.save("y.npy", rng.integers(0, 2, 60))
    machine.run("data", "import", "wells", "--inputs", "x.npy", "--labels", "y.npy")
    data = machine.folder / "share" / "lrurun"

    def prepared() -> str:
        [line] = [line for line in machine.run("doctor").stdout.splitlines() if "prepared data" in line]
        return " ".join(line.split())

    assert prepared().endswith("recipes: wells")  # which has a recipe in this folder
    shutil.rmtree("recipes")  # as in another folder
    machine.run("data", "prepare", "npDigits", "--profile", "smoke")
    assert prepared().endswith(
        f"in {data}, for 0 of 33 recipes: none; of own tasks and of profiles: npDigits-smoke, wells"
    )
    checks = {check["part"]: check for check in machine.json("doctor")["checks"]}
    assert checks["data in wells"]["ok"]
    assert checks["data in wells"]["detail"].startswith("of wells, from the imported arrays x.npy, y.npy")
    (data / "wells" / "test-labels.npy").unlink()
    done = machine.run("doctor", code=1)
    [problem] = [" ".join(line.split()) for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    assert problem.startswith(f"PROBLEM data in wells {Path(data, 'wells', 'test-labels.npy')}: No such file")
