"""Runs on several devices: results as on one device, and what is refused before anything runs.

The devices are parts of a CPU, which jax makes in processes of their own.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

import lrurun
from lrurun import machine
from lrurun.commands import doctor
from lrurun.config import planning
from lrurun.config.settings import parse_sets
from lrurun.errors import UsageError
from lrurun.nn.devices import flat, shared_by, unflat
from lrurun.runner.preparation import TooFewDevices, check_devices
from tests.harness.machine import LONG, Machine, stop, training, wait_for

ROOT = Path(lrurun.__file__).parent.parent
FOUR = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"}


@pytest.mark.rare
def test_losses_are_those_of_one_device_and_memory_is_a_quarter(tmp_path: Path) -> None:
    """Batch norm, dropout, padding, pairs, streams, sampling, packing, convolutions, parts; also after a resume."""
    code = f"from tests.training import placements; print(placements.measure({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | FOUR, cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    one, four = found.pop("bytes")
    assert four < 0.3 * one
    one_of_parts, four_of_parts = found.pop("bytes of parts")
    assert one_of_parts < 0.6 * one
    assert four_of_parts < 0.35 * one_of_parts
    assert len(found) == 9
    for name, difference in found.items():
        assert difference < 1e-5, name
    assert any(found.values()), "sums are in another order"


@pytest.mark.slow
def test_a_run_continues_with_another_number_of_devices(machine: Machine) -> None:
    arguments = ("ladder", "sDigits", *LONG, "--rung", "gamma-norm", "--seeds", "1", "--set", "train.steps=1200")
    arguments += ("--set", "train.batch=24")
    process = machine.start(*arguments, "--set", "execution.devices=4", env=FOUR)
    wait_for(training(machine, step=20))
    stop(process, signal.SIGTERM)
    process.communicate(timeout=20)
    refused = machine.run("resume", code=2).stderr
    assert "execution.devices = 4: a run needs 4 devices, this machine has 1" in refused
    [hint] = [line for line in refused.splitlines() if line.startswith("hint: ")]
    assert hint.startswith(
        "hint: let the CPU count as 4: export XLA_FLAGS=--xla_force_host_platform_device_count=4, or "
    )
    command = shlex.split(hint.partition("use fewer: ")[2])
    assert command[:3] == ["lrurun", *arguments[:2]]
    assert command[command.index("--seeds") + 1] == "0,"
    assert "execution.devices=1" in command
    assert "execution.devices=4" not in command
    planned = machine.json("plan", *command[2:])
    assert [row["rung"] for row in planned["rungs"] if row["seeds_left"]] == ["gamma-norm"]
    machine.run(*arguments, "--set", "execution.devices=2", env=FOUR)
    [run] = machine.json("runs")["runs"]
    assert run["state"] == "done"
    shown = machine.json("show", run["id"])
    changes = [event["text"] for event in shown["events"] if event["kind"] == "changed"]
    assert "resumed with a different number of devices: 4 before, 2 now" in changes
    names = [attempt["environment"]["placement"]["names"] for attempt in shown["attempts"]]
    assert list(map(len, names)) == [4, 2]
    assert names[0][:2] == names[1]
    assert "cpu, on 4 devices" in machine.run("show", run["id"]).stdout
    model = lrurun.load(run["id"], ledger=machine.ledger, runs_dir=machine.runs)
    assert model.config.train.batch == 24
    assert machine.run("verify", run["id"], code=2).stderr == (
        "error: execution.devices = 2: a run needs 2 devices, this machine has 1 (a CPU is one)\n"
        "hint: let the CPU count as 2: export XLA_FLAGS=--xla_force_host_platform_device_count=2\n"
    )
    assert "--set execution.devices" in machine.run("show", run["id"]).stdout


def test_rows_are_in_the_order_of_the_devices() -> None:
    arrays = [np.arange(np.prod(shape)).reshape(shape) for shape in ((3, 8, 2), (5,), (8, 2), (2, 0, 4, 3), (3, 6, 2))]
    mesh = AbstractMesh((4,), ("batch",), axis_types=(AxisType.Auto,))

    @jax.jit
    def both(arrays: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array], jax.Array]:
        with shared_by(mesh):
            rows = [flat(x) for x in arrays]
            back = [unflat(y, x.shape) for y, x in zip(rows, arrays, strict=True)]
        return rows, back, flat(arrays[0])

    rows, back, alone = both(arrays)
    np.testing.assert_array_equal(rows[0][:6], arrays[0][:, :2].reshape(6, 2))
    for x, y in zip(arrays, back, strict=True):
        np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(alone, arrays[0].reshape(24, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["execution.devices=3", "train.batch=50"],
            "--set train.batch: each device of a run needs an equal part of each batch, found train.batch = 50, "
            "execution.devices = 3; execution.devices = 2 divides the batch, or choose a multiple of 3 for train.batch",
        ),
        (
            ["train.batch=32", "execution.devices=4", "optim.accumulate=16"],
            "--set optim.accumulate: each device of a run needs an equal part of each part of a batch, found "
            "train.batch = 32, optim.accumulate = 16, execution.devices = 4; execution.devices = 2 divides the part, "
            "or choose a multiple of 64 for train.batch",
        ),
        (["optim.accumulate=0"], "--set optim.accumulate: expected a whole number >= 1, found 0; "),
        (
            ["optim.accumulate=12", "train.batch=50"],
            "--set train.batch: optim.accumulate divides a batch into equal parts, found train.batch = 50, "
            "optim.accumulate = 12; ",
        ),
        (["execution.devices=0"], "--set execution.devices: expected a whole number >= 1, found 0; "),
    ],
)
def test_a_number_of_devices_that_cannot_be(settings: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", profile="smoke", sets=parse_sets(settings))
    assert f"{caught.value.message}; {caught.value.hint}".startswith(message)


def test_more_devices_than_there_are(machine: Machine) -> None:
    """Refused before data are prepared or a ledger is made."""
    done = machine.run("ladder", "sDigits", "--profile", "smoke", "--set", "execution.devices=2", code=2)
    assert done.stderr == (
        "error: execution.devices = 2: a run needs 2 devices, this machine has 1 (a CPU is one)\n"
        "hint: use at most 1: --set execution.devices=1\n"
    )
    assert list(machine.folder.iterdir()) == []


def test_devices_are_counted_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jax.local_device_count() == 1  # jax has read the variables that change here
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "accelerators", lambda: ["0", "3"])
    check_devices(2)
    with pytest.raises(TooFewDevices) as refused:
        check_devices(3)
    assert (refused.value.found, refused.value.elsewhere) == (2, "use a machine that has 3")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with pytest.raises(TooFewDevices, match=r"this machine has 1 \(a CPU is one\)"):
        check_devices(2)
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1 --xla_force_host_platform_device_count=8")
    assert machine.devices() == 8
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
    check_devices(2)
    monkeypatch.setattr(machine, "accelerators", list)
    monkeypatch.setenv("JAX_PLATFORMS", "tpu")
    assert machine.devices() is None
    check_devices(2)


@pytest.mark.slow
@pytest.mark.skipif(bool(machine.nvidia_devices()), reason="has the device that is asked for")
@pytest.mark.parametrize(("platform", "found"), [("cuda", "jax finds no such device, only the CPU"), ("tpu", "Unable")])
def test_nothing_trains_on_the_cpu_where_an_accelerator_is_asked_for(
    machine: Machine, platform: str, found: str
) -> None:
    words = ("ladder", "npDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "1")
    done = machine.run(*words, env={"JAX_PLATFORMS": platform}, apart=True, code=1)
    assert f"error: JAX_PLATFORMS={platform}: {found}" in done.stderr
    [run] = machine.json("runs")["runs"]
    assert machine.json("show", run["id"])["attempts"] == []


def test_doctor_finds_that_devices_are_miscounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "devices", jax.local_device_count)
    assert doctor._devices().ok
    assert doctor._devices().detail.endswith("; execution.devices: at most 1")
    monkeypatch.setattr(machine, "devices", lambda: 3)
    assert not doctor._devices().ok
    assert "lrurun counts 3, by /dev, CUDA_VISIBLE_DEVICES and XLA_FLAGS" in doctor._devices().detail
