"""`lrurun plan --measure` and `lrurun doctor --device`: time and memory of rungs, and recurrences on two devices."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from lrurun.bench import rungs
from lrurun.bench.rungs import DeviceCheck, DeviceComparison, Measurement
from lrurun.config import plan as planning
from lrurun.errors import LrurunError
from tests.harness.commands import answered, folder, lrurun, said
from tests.harness.machine import Machine
from tests.harness.programs import write

__all__ = ["folder"]  # a fixture

PLAN = ("plan", "sDigits", "--profile", "smoke", "--seeds", "2", "--rung", "ring-init", "--rung", "small-phase")
CLAIMED = ("plan", "sDigits", "--seeds", "2", "--rung", "ring-init", "--rung", "gamma-norm")
"""Rungs between which the ladder has a question."""
FOUND = Measurement(
    device="a device",
    parameters=1850,
    seconds_per_step=0.01,
    steps=300,
    seconds_per_evaluation=0.5,
    compile_seconds=2.5,
    training_bytes=1_800_000,
    evaluation_bytes=2_700_000_000,
    synthetic=True,
)


def measured_as(monkeypatch: pytest.MonkeyPatch, **failing: str) -> list[str]:
    """Every rung is measured as `FOUND`, except those that fail; the names of those that are measured."""
    asked: list[str] = []

    def measured(rung: Any, folder: Path) -> Measurement | LrurunError:
        asked.append(rung.name)
        return LrurunError(failing[rung.name]) if rung.name in failing else FOUND

    monkeypatch.setattr(rungs, "_measured", measured)
    return asked


def test_times_are_those_measured(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    measured_as(monkeypatch)
    code, out, err = lrurun(capsys, *PLAN, "--measure")
    assert (code, err) == (0, "measuring ring-init\nmeasuring small-phase\n")
    steps = planning.make("sDigits", profile="smoke").rungs[0].steps
    seconds = steps * 0.01 + 2 * 0.5
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1:4] == [
        "rung done time left what changes",
        f"ring-init 0/2 0:0{round(2 * seconds / 2)} r_min = 0.5; r_max = 0.99",
        f"small-phase 0/2 0:0{round(2 * seconds / 2)} phase = log; max_phase = 0.314159; optim.lr = 0.016",
    ]
    start = lines.index("rung parameters step all runs compiling training evaluation")
    for line, rung in zip(lines[start + 1 : start + 3], ("ring-init", "small-phase"), strict=True):
        assert line == f"{rung} 1,850 10 ms {round(2 * seconds)} s 2.5 s 1.8 MB 2.7 GB"
    assert lines[start + 3].startswith(
        "Measured on a device (1 thread, 1 device), one rung after another, the median over 300 steps."
    )
    assert lines[start + 3].endswith("Inputs were random: the data are not prepared.")


def test_times_for_firm_verdicts_are_those_measured(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    measured_as(monkeypatch)
    code, out, _ = said(capsys, *CLAIMED, "--measure", "--json")
    assert code == 0
    document = json.loads(out)
    train = planning.make("sDigits").rungs[0].training.train
    seconds = train.steps * 0.01 + math.ceil(train.steps / train.eval_every) * 0.5
    [row, _] = document["rungs"]
    assert row["measurement"]["parameters"] == 1850
    assert row["seconds_per_run"] == pytest.approx(seconds)
    assert row["steps_per_second"] == pytest.approx(100)
    assert document["eta_seconds"] == pytest.approx(4 * seconds / document["workers"])
    assert document["firm"]["eta_seconds"] == pytest.approx(24 * seconds / document["workers"])


def test_rungs_of_one_program_are_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = measured_as(monkeypatch)
    made = planning.make("ListOps", ladder="lru")
    assert "ring-init" in made.same_as_base  # the whole disk
    assert said(capsys, "plan", "ListOps", "--measure")[0] == 0
    assert asked == [rung.name for rung in made.rungs if rung.name not in made.same_as_base]


def test_a_rung_that_fails_is_named_and_the_others_are_measured(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    measured_as(monkeypatch, **{"small-phase": "RESOURCE_EXHAUSTED: Out of memory"})
    code, out, _ = said(capsys, *PLAN, "--measure")
    assert code == 3
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "small-phase failed failed failed failed failed failed" in lines
    assert "small-phase: RESOURCE_EXHAUSTED: Out of memory" in lines
    assert "Time left: unknown, because not all rungs could be measured." in lines


def test_a_program_and_a_sweep_cannot_be_measured(folder: Path, capsys: Any) -> None:
    write(folder)
    assert said(capsys, "plan", "toy.toml", "--measure")[::2] == (
        2,
        "error: --measure: toy is trained by a program, whose steps lrurun cannot time\n"
        "hint: leave --measure out: plan knows the time of a run when the first one is finished\n",
    )
    assert said(capsys, *PLAN, "--measure", "--sweep", "optim.lr=0.1,0.2")[::2] == (
        2,
        "error: --measure and --sweep exclude each other\nhint: measure one instance, with --set\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "sets"),
    [
        ("sDigits", []),
        ("Copy", ["train.batch=4"]),
        ("Retrieval", ["train.batch=2", "execution.feed=stream"]),
    ],
)
def test_a_rung_is_measured_without_its_data(machine: Machine, task: str, sets: list[str]) -> None:
    small = ["model.depth=1", "model.width=8", "model.state=8", *sets]
    options = [word for text in small for word in ("--set", text)]
    document = machine.json("plan", task, "--rung", "small-phase", *options, "--measure")
    [row] = document["rungs"]
    assert row["measurement_error"] is None
    found = row["measurement"]
    assert found["synthetic"]
    assert 100 < found["parameters"] < 10_000
    assert 0 < found["seconds_per_step"] < 60
    assert found["steps"] >= 3
    assert found["training_bytes"] > found["evaluation_bytes"] > 4 * found["parameters"]
    assert not list(machine.folder.iterdir())


@pytest.mark.slow
def test_prepared_data_are_used(finished: Machine) -> None:
    document = finished.json("plan", "sDigits", "--profile", "smoke", "--rung", "gamma-norm", "--measure")
    [row] = document["rungs"]
    assert not row["measurement"]["synthetic"]
    [run, *_] = finished.json("runs", "--where", "rung=gamma-norm")["runs"]
    assert row["measurement"]["parameters"] == run["parameters"]


@pytest.mark.slow
def test_the_forms_of_scans_agree_in_short_runs() -> None:
    found = rungs.compare_devices(["diagonal", "dense"])
    assert [(check.kind, check.result) for check in found.recurrences] == [("diagonal", "ok"), ("dense", "ok")]
    assert found.platform == "cpu"
    assert 0 < (found.recurrences[0].difference or 0) < 1e-5
    assert all((check.steps_per_second or 0) > 1 for check in found.recurrences)


def test_a_difference_is_relative_to_its_array() -> None:
    wanted = [[100.0, -200.0], [1e-9, 0.0], [2.0]]
    assert rungs.deviation(wanted, wanted) == 0
    assert rungs.deviation([[100.0, -200.2], [1e-9, 0.0], [2.0]], wanted) == pytest.approx(1e-3)
    assert rungs.deviation([[100.0, -200.0], [0.0, 1e-9], [2.0]], wanted) < 1e-8
    assert rungs.deviation([[100.0, -200.0], [1e-9, 0.0], [2.02]], wanted) == pytest.approx(1e-2)
    assert rungs.deviation([[100.0, float("nan")], [1e-9, 0.0], [2.0]], wanted) == float("inf")


RUN = {"values": {"losses": [[2.0, 1.0]], "gradients": [[1.0], [2.0]]}, "steps_per_second": 50.0}


def test_a_run_that_differs_and_one_that_fails() -> None:
    other = {**RUN, "values": {"losses": [[2.0, 1.0]], "gradients": [[1.0], [2.001]]}}
    assert rungs._check("a", RUN, RUN) == DeviceCheck(kind="a", result="ok", difference=0.0, steps_per_second=50.0)
    differing = rungs._check("a", other, RUN)
    assert (differing.result, differing.difference) == ("differs", pytest.approx(5e-4))
    failed = rungs._check("a", {"error": "no memory"}, RUN)
    assert (failed.result, failed.error) == ("failed", "no memory")
    assert rungs._check("a", RUN, {"error": "no memory"}).error == "on the CPU: no memory"


def test_doctor_without_an_accelerator_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(rungs, "found_device", lambda: ("a CPU", "cpu"))
    code, out, _ = lrurun(capsys, "doctor", "--device")
    assert code == 0
    assert out.endswith(
        "No accelerator: jax sees the CPU alone, so that there is nothing to compare. lrurun check recurrence NAME "
        "finds on any machine whether accelerators have the operations of a recurrence.\n"
    )
    assert answered(capsys, "doctor", "--device")["device"] is None


def test_doctor_has_its_other_checks_where_jax_cannot_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fails() -> None:
        raise LrurunError("the measuring process ended with code -9", "check that there is enough memory")

    monkeypatch.setattr(rungs, "found_device", fails)
    code, out, _ = lrurun(capsys, "doctor", "--device")
    assert code == 1
    lines = [" ".join(line.split()) for line in out.splitlines()]
    problem = "the measuring process ended with code -9; check that there is enough memory"
    assert f"PROBLEM recurrences {problem}" in lines
    assert any(line.startswith("ok versions") for line in lines)


def test_doctor_shows_each_recurrence(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    checks = [
        DeviceCheck(kind="dense", result="ok", difference=2e-7, steps_per_second=1234.5),
        DeviceCheck(kind="s5", result="differs", difference=3e-3, steps_per_second=800.0),
        DeviceCheck(
            kind="rotrnn",
            result="failed",
            error="XlaRuntimeError: no memory",
            difference=None,
            steps_per_second=None,
        ),
    ]
    found = DeviceComparison(device="a GPU", platform="gpu", tolerance=1e-4, recurrences=checks)
    monkeypatch.setattr(rungs, "found_device", lambda: ("a GPU", "gpu"))
    monkeypatch.setattr(rungs, "compare_devices", lambda kinds: found)
    code, out, err = lrurun(capsys, "doctor", "--device")
    assert code == 3
    assert re.fullmatch(r"comparing \d+ recurrences on the accelerator and on the CPU\n", err)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    start = lines.index("a GPU against the CPU")
    assert lines[start + 1 :] == [
        "recurrence result difference steps/s",
        "dense ok 2.0e-07 1234",
        "s5 differs 3.0e-03 800",
        "rotrnn failed",
        "rotrnn: XlaRuntimeError: no memory",
        "The difference is the largest one of the losses of a few steps and of the first gradient, in float32, "
        "relative to the largest number of its array. It may be 0.0001.",
    ]
    sound = structs.replace(found, recurrences=checks[:1])
    monkeypatch.setattr(rungs, "compare_devices", lambda kinds: sound)
    assert lrurun(capsys, "doctor", "--device")[0] == 0
