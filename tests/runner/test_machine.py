"""What is known of the machine, and the environment record of an attempt."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import lrurun
from lrurun import machine
from lrurun.runner import environment

ROOT = Path(lrurun.__file__).parents[1]


@pytest.mark.parametrize(
    ("visible", "devices"),
    [("", []), ("-1", []), ("3", ["3"]), ("2, 0", ["2", "0"]), ("1,-1,2", ["1"]), ("GPU-8932f937", ["GPU-8932f937"])],
)
def test_accelerators_are_those_that_the_user_left_visible(visible, devices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine.accelerators.cache_clear()
    try:
        assert machine.accelerators() == devices
    finally:
        machine.accelerators.cache_clear()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout")
def test_an_attempt_records_the_commit_of_the_checkout() -> None:
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert environment.record(1)["code"]["commit"] == commit.stdout.strip()
