"""`benchmarks/chaos.py`, `benchmarks/races.py` and `benchmarks/capacity.py` in their short forms."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.harness.machine import RUNGS

CACHE = Path(os.environ["XDG_CACHE_HOME"])
SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks"

if not SCRIPTS.is_dir():
    pytest.skip("the scripts are part of a checkout", allow_module_level=True)


def chaos() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chaos", SCRIPTS / "chaos.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.rare
def test_a_few_kills_and_a_fault_of_a_server_change_nothing(tmp_path, postgres) -> None:
    found = chaos().chaos(4, 2, 0, tmp_path, seeds=3, rungs=RUNGS, postgres=postgres, cache=CACHE)
    assert found["violations"] == []
    assert found["kills"] == 4
    assert sum(found["server_faults"].values()) == 1
    assert found["attempts"] > found["runs"] == 6 * found["ladders"]


@pytest.mark.slow
def test_a_few_kills_at_chosen_moments_change_nothing(tmp_path) -> None:
    found = chaos().chaos(4, 2, 0, tmp_path, seeds=2, rungs=RUNGS, cache=CACHE)
    assert found["violations"] == []
    assert found["kills"] == 4
    assert found["stops"] == 1
    assert sum(sum(attacks.values()) for attacks in found["hits"].values()) >= 4
    assert found["hits"]["migration"]["supervisor KILL"] >= 1
    assert found["attempts"] > found["runs"] == 4 * found["ladders"]


@pytest.mark.slow
def test_a_few_processes_at_one_file(tmp_path) -> None:
    arguments = ("--processes", "2", "--jobs", "20", "--transactions", "200", "--json")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "races.py"), *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["violations"] == []
    ours = found["lrurun"]
    assert [(one["failed"], one["integrity"]) for one in ours["first_use"]] == [(0, "ok")] * 3
    assert (ours["queue"]["duplicates"], ours["queue"]["missing"]) == (0, 0)
    assert (ours["mixed"]["transactions"], ours["mixed"]["errors"]) == (200, 0)


@pytest.mark.slow
def test_a_few_simulated_nodes_lose_nothing(tmp_path) -> None:
    load = ("--workers", "6", "--nodes-of", "4", "--seconds", "2", "--run-seconds", "1", "--json")
    clients = ("--processes", "2", "--threads", "2", "--ledgers", "sqlite")
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "capacity.py"), *load, *clients], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["ledgers"]
    assert list(found) == ["sqlite"]
    for (level,) in found.values():
        assert level["violations"] == []
        assert (level["workers"], level["nodes"]) == (6, 2)
        assert level["runs"] >= 6
        assert level["rows"] > 0
        assert {"hold", "record", "finish", "tick"} <= level["calls"].keys()
