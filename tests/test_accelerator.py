"""`benchmarks/accelerator.py` in its small form, on a CPU: what it writes, and that it ends. Nothing about speed."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "accelerator.py"
PARTS = ["machine", "correct", "pallas", "scan", "steps", "packing", "runner"]

if not SCRIPT.is_file():
    pytest.skip("the script is part of a checkout", allow_module_level=True)


def measured(folder: Path, *words: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LRURUN_", "PYTHON", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(folder), *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads((folder / "accelerator.json").read_text())
    assert document["finished"]
    for part, found in document["parts"].items():
        for item in found.get("items", {}):
            assert f"{part}, {item}: " in done.stdout  # as it came
    return document


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return measured(folder, "--small", "--minutes", "5"), (folder / "accelerator.md").read_text()


def test_every_part_has_numbers_or_a_reason(small):
    document, _ = small
    assert list(document["parts"]) == PARTS
    items = {part: found["items"] for part, found in document["parts"].items()}
    assert items["machine"]["copy"]["gb_s"] > 0
    assert items["machine"]["product tf32"] == {"left_out": "a CPU computes in float32"}
    assert all(row["right"] for row in items["correct"].values())
    (scan,) = items["scan"].values()
    assert scan["best"] in ("chunked", "associative")
    for form in ("chunked", "associative", "published"):
        assert scan["forms"][form]["ms"] > 0
    for item, row in items["steps"].items():
        assert row["ratio"] == pytest.approx(row["steps_per_second"] / row["published"]), item
    assert items["steps"]["Retrieval/gamma-norm/tf32/auto"]["published"] == 5.7
    assert items["packing"]["3 seeds"]["together"] > 0
    assert items["runner"]["ladder"]["code"] == items["runner"]["report"]["code"] == 0
    assert "training speed" in items["runner"]["report"]["text"]
    assert "left_out" in items["runner"]["loop"]


def test_what_fails_is_recorded_and_the_rest_goes_on(small):
    document, text = small
    items = {part: found["items"] for part, found in document["parts"].items()}
    for row in (*items["pallas"].values(), items["scan"]["sCIFAR"]["forms"]["pallas"]):
        assert row["error"].startswith("ValueError: scan backend 'pallas' needs an NVIDIA GPU")
    assert "* sCIFAR, pallas: failed: ValueError" in text


def test_aims_are_judged_by_full_sizes_alone(small):
    document, text = small
    *scans, step = document["aims"]
    assert [aim["at_least"] for aim in scans] == [0.6] * 3
    assert (step["aim"], step["at_least"]) == ("steps/s of sCIFAR in tf32", 60)
    assert step["found"] > 0
    assert step["met"] is None
    assert "the figures mean nothing" in text


def test_aims_are_met_or_not():
    aims = runpy.run_path(str(SCRIPT))["aims"]
    scan = {"best": "chunked", "forms": {"chunked": {"of_copy": 0.7}}}
    slow = {"best": "pallas", "forms": {"pallas": {"of_copy": 0.5}}}
    steps = {
        "sCIFAR/gamma-norm/tf32/auto": {"steps_per_second": 50.0},
        "sCIFAR/gamma-norm/tf32/pallas": {"steps_per_second": 61.0},
        "sCIFAR/gamma-norm/bf16/auto": {"error": "no memory"},
    }
    found = {"scan": {"sCIFAR": scan, "PathX": slow, "ListOps": {"error": "hangs"}}, "steps": steps}
    assert [aim["met"] for aim in aims(found, False)] == [True, None, False, True]
    assert [aim["found"] for aim in aims(found, False)] == [0.7, None, 0.5, 61.0]


def test_ends_in_time(tmp_path):
    began = time.monotonic()
    document = measured(tmp_path, "--minutes", "0.01")
    assert time.monotonic() - began < 20
    assert list(document["parts"]) == PARTS
    for found in document["parts"].values():
        assert found["items"]
        assert all("too few" in row["left_out"] for row in found["items"].values())
    assert [aim["met"] for aim in document["aims"]] == [None] * 4


def test_full_sizes_are_not_for_a_cpu(tmp_path):
    document = measured(tmp_path, "--minutes", "1", "--only", "packing")
    assert document["parts"]["packing"]["items"]["3 seeds"]["left_out"].startswith("the device is a CPU")
    assert document["parts"]["steps"] == {"left_out": "not asked for"}
