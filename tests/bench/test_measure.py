"""`lrurun plan --measure` and `lrurun doctor --device`: time and memory of rungs, and recurrences on two devices."""

from __future__ import annotations

import math
import re
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import structs

from lrurun.bench import rungs
from lrurun.bench.rungs import DeviceCheck, DeviceComparison
from lrurun.config import planning
from lrurun.errors import LrurunError
from lrurun.instances.measurement import Measurement
from lrurun.machine import CORES
from tests.harness.machine import Machine, wait_for
from tests.harness.programs import write

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

    def measured(rung: Any, folder: Path, progress: Any) -> Measurement | LrurunError:
        asked.append(rung.name)
        return LrurunError(failing[rung.name]) if rung.name in failing else FOUND

    monkeypatch.setattr(rungs, "_measured", measured)
    return asked


def test_times_are_those_measured(machine: Machine, monkeypatch: pytest.MonkeyPatch, golden: Any) -> None:
    """And a rung that fails is named, and the others are measured."""
    unprepared = str(machine.folder / "share")  # other tests prepare the data, and plans name them then
    machine.env |= {"COLUMNS": "80", CORES: "1", "XDG_DATA_HOME": unprepared}
    measured_as(monkeypatch)
    done = machine.run(*PLAN, "--measure")
    figures = "10 ms a step, {} a run, compiled in 2.5 s, 1.8 MB for training"
    assert done.stderr == "".join(f"{name}: {figures.format('2 s')}\n" for name in ("ring-init", "small-phase"))
    measured_as(monkeypatch, **{"small-phase": "RESOURCE_EXHAUSTED: Out of memory"})
    failed = machine.run(*PLAN, "--measure", code=3)
    golden("plan-measure.txt", f"{done.stdout}\n--- a rung fails ---\n\n{failed.stdout}")
    assert machine.files() == []


def test_what_is_done_is_said_with_its_time_until_a_limit_stops_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first rung's figures are there before the second one is begun, and in the plan of a measuring that ends."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def measured(rung: Any, folder: Path, progress: Any) -> Measurement:
        for stage, seconds in (("starting", 3), ("compiling the training step", 25), ("timing", 2)):
            for _ in range(seconds):
                progress(stage)
                clock[0] += 1.0
        return FOUND

    monkeypatch.setattr(rungs, "_measured", measured)
    done = machine.run(*PLAN, "--measure", "--time-limit", "50", code=143)
    assert done.stderr.splitlines() == [
        "measuring ring-init: starting",
        "measuring ring-init: compiling the training step",
        "measuring ring-init: compiling the training step, 0:10 so far",
        "measuring ring-init: compiling the training step, 0:20 so far",
        "measuring ring-init: timing",
        "ring-init: 10 ms a step, 2 s a run, compiled in 2.5 s, 1.8 MB for training",
        "measuring small-phase: starting",
        "measuring small-phase: compiling the training step",
        "measuring small-phase: compiling the training step, 0:10 so far",
        "stopped by the time limit of 0:50: 1 of 2 rungs measured",
    ]
    assert re.search(r"^ring-init +1,850 .* 2.5 s ", done.stdout, re.MULTILINE)
    assert re.search(r"^small-phase +not measured$", done.stdout, re.MULTILINE)
    assert "Time left: unknown, because not all rungs were measured." in done.stdout
    clock[0] = 0.0
    stopped = machine.json(*PLAN, "--measure", "--time-limit", "50", code=143)
    assert [(row["measurement"] or {}).get("parameters") for row in stopped["rungs"]] == [1850, None]
    assert [row["measurement_error"] for row in stopped["rungs"]] == [None, None]


def test_an_interrupted_measuring_gives_what_was_found(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(rung: Any, folder: Path, progress: Any) -> Measurement:
        if rung.name == "small-phase":
            signal.raise_signal(signal.SIGINT)
        progress("starting")
        return FOUND

    monkeypatch.setattr(rungs, "_measured", measured)
    done = machine.run(*PLAN, "--measure", code=130)
    assert done.stderr.endswith("stopped by ^C: 1 of 2 rungs measured\n")
    assert re.search(r"^ring-init +1,850 ", done.stdout, re.MULTILINE)


def test_times_for_firm_verdicts_are_those_measured(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_as(monkeypatch)
    document = machine.json(*CLAIMED, "--measure")
    train = planning.make("sDigits").rungs[0].training.train
    seconds = train.steps * 0.01 + math.ceil(train.steps / train.eval_every) * 0.5
    [row, _] = document["rungs"]
    assert row["measurement"]["parameters"] == 1850
    assert row["seconds_per_run"] == pytest.approx(seconds)
    assert row["steps_per_second"] == pytest.approx(100)
    assert document["eta_seconds"] == pytest.approx(4 * seconds / document["workers"])
    assert document["firm"]["eta_seconds"] == pytest.approx(24 * seconds / document["workers"])


def test_rungs_of_one_program_are_measured_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measured_as(monkeypatch)
    made = planning.make("ListOps", ladder="lru")
    assert "ring-init" in made.same_as_base  # the whole disk
    machine.run("plan", "ListOps", "--measure")
    assert asked == [rung.name for rung in made.rungs if rung.name not in made.same_as_base]


def test_a_program_and_a_sweep_cannot_be_measured(machine: Machine) -> None:
    write(machine.folder)
    said = machine.refused("plan", "toy.toml", "--measure")
    assert "--measure: toy is trained by a program, whose steps lrurun cannot time" in said
    assert "leave --measure out" in said
    said = machine.refused(*PLAN, "--measure", "--sweep", "optim.lr=0.1,0.2")
    assert "--measure and --sweep exclude each other" in said


@pytest.mark.slow
def test_a_rung_is_measured_without_its_data(machine: Machine) -> None:
    small = ["model.depth=1", "model.width=8", "model.state=8", "train.batch=2", "execution.feed=stream"]
    options = [word for text in small for word in ("--set", text)]
    document = machine.json("plan", "Retrieval", "--rung", "small-phase", *options, "--measure")
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
def test_a_measuring_process_says_what_it_does_and_ends_with_the_command(machine: Machine) -> None:
    done = machine.run(*PLAN[:-2], "--measure")
    stages = re.findall(r"^measuring ring-init: ([a-z ]+)$", done.stderr, re.MULTILINE)
    assert stages == ["starting", "compiling the training step", "compiling the evaluation", "timing"]
    assert re.search(r"^ring-init: .* a step, .* a run, compiled in .*, .* for training$", done.stderr, re.MULTILINE)
    process = machine.start(*PLAN, "--measure", "--time-limit", "2")
    wait_for(lambda: psutil.Process(process.pid).children())
    [child] = psutil.Process(process.pid).children()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert err.endswith("stopped by the time limit of 0:02: 0 of 2 rungs measured\n")
    assert not child.is_running()


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


def test_doctor_without_an_accelerator_and_where_jax_cannot_start(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rungs, "found_device", lambda: ("a CPU", "cpu"))
    out = machine.run("doctor", "--device").stdout
    assert "No accelerator: jax sees the CPU alone, so that there is nothing to compare." in out

    def fails() -> None:
        raise LrurunError("the measuring process ended with code -9", "check that there is enough memory")

    monkeypatch.setattr(rungs, "found_device", fails)
    lines = [" ".join(line.split()) for line in machine.run("doctor", "--device", code=1).stdout.splitlines()]
    problem = "the measuring process ended with code -9; check that there is enough memory"
    assert f"PROBLEM recurrences {problem}" in lines
    assert any(line.startswith("ok versions") for line in lines)
    assert machine.files() == []


def test_doctor_shows_each_recurrence(machine: Machine, monkeypatch: pytest.MonkeyPatch, golden: Any) -> None:
    machine.env["COLUMNS"] = "80"
    checks = [
        DeviceCheck(kind="dense", result="ok", difference=2e-7, steps_per_second=1234.5),
        DeviceCheck(kind="s5", result="differs", difference=3e-3, steps_per_second=800.0),
        DeviceCheck(
            kind="rotrnn", result="failed", error="XlaRuntimeError: no memory", difference=None, steps_per_second=None
        ),
    ]
    found = DeviceComparison(device="a GPU", platform="gpu", tolerance=1e-4, recurrences=checks)
    monkeypatch.setattr(rungs, "found_device", lambda: ("a GPU", "gpu"))
    monkeypatch.setattr(rungs, "compare_devices", lambda kinds: found)
    done = machine.run("doctor", "--device", code=3)
    assert re.fullmatch(r"comparing \d+ recurrences on the accelerator and on the CPU\n", done.stderr)
    golden("doctor-device.txt", done.stdout[done.stdout.index("a GPU against the CPU") :])
    sound = structs.replace(found, recurrences=checks[:1])
    monkeypatch.setattr(rungs, "compare_devices", lambda kinds: sound)
    machine.run("doctor", "--device")
