"""`benchmarks/chaos.py` and `benchmarks/races.py` in their short forms."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parent.parent / "benchmarks"

if not SCRIPTS.is_dir():
    pytest.skip("the scripts are part of a checkout", allow_module_level=True)


def test_a_few_kills_at_chosen_moments_change_nothing(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("chaos", SCRIPTS / "chaos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.chaos(6, 2, 0, tmp_path, seeds=1)
    assert found["violations"] == []
    assert found["kills"] == 6
    assert found["stops"] == 1
    assert sum(sum(attacks.values()) for attacks in found["hits"].values()) >= 6
    assert found["hits"]["migration"]["supervisor KILL"] >= 1
    assert found["attempts"] > found["runs"] == 8 * found["ladders"]


def test_a_few_processes_at_one_file(tmp_path) -> None:
    arguments = ("--processes", "16", "--jobs", "200", "--transactions", "4000", "--json")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "races.py"), *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["violations"] == []
    ours = found["lrurun"]
    assert [(one["failed"], one["integrity"]) for one in ours["first_use"]] == [(0, "ok")] * 3
    assert (ours["queue"]["duplicates"], ours["queue"]["missing"]) == (0, 0)
    assert (ours["mixed"]["transactions"], ours["mixed"]["errors"]) == (4000, 0)
