"""Ladders on a real Slurm cluster. `benchmarks/slurm.py` has every fault; a short schedule of it is here."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import slurm_cluster
from tests.harness.machine import LONG, RUNGS, Machine, stop, training, wait_for

pytestmark = pytest.mark.slow

slurm = pytest.importorskip("benchmarks.slurm", reason="the scripts are part of a checkout")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[slurm_cluster.SlurmCluster]:
    slurm_cluster.require()
    with slurm_cluster.SlurmCluster(tmp_path / "slurm", down_seconds=60) as found:  # no node is lost here
        yield found
        print(found.account())  # which pytest shows if the test fails


def test_one_node_with_an_sqlite_ledger_that_is_stopped_and_resumed(
    machine: Machine, cluster: slurm_cluster.SlurmCluster
) -> None:
    machine.env |= cluster.env | {"PYTHONPATH": str(ROOT)}
    steps = ("--set", "train.steps=1500", "--set", "execution.checkpoint_seconds=3600")
    ladder = ("ladder", "sDigits", *LONG, *steps, "--rung", "gamma-norm", "--seeds", "1")
    process = machine.start(*ladder, "--on", "slurm")
    wait_for(lambda: process.poll() is not None or training(machine, step=1)())
    assert process.poll() is None, process.communicate()
    stop(process, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "with 1 of 1 run remaining; the same command continues: lrurun ladder" in err
    assert cluster.jobs() == {}, "^C stops the tasks"
    [[attempt]] = machine.attempts().values()
    assert attempt.reason == "interrupted: SIGTERM"
    assert attempt.host.partition("@")[0] in slurm_cluster.NODES
    machine.run("resume", "--on", "slurm", "--detach", apart=True)
    done = machine.run("status", "--watch", apart=True)
    assert "done" in done.stderr
    calm = Machine(machine.folder.parent / "calm")
    calm.run(*ladder)
    assert machine.history() == calm.history()
    [[_, resumed]] = machine.attempts().values()
    assert resumed.resumed_from > 0
    assert resumed.environment["node"]["start"] == 0


def test_a_gpu_that_slurm_keeps_for_others_is_hidden(machine: Machine, cluster: slurm_cluster.SlurmCluster) -> None:
    machine.env |= cluster.env | {"PYTHONPATH": str(ROOT)}
    outputs = machine.folder / "runs" / "nodes"
    outputs.mkdir(parents=True)
    look = (
        "import os; from lrurun import machine; print(os.environ.get('CUDA_VISIBLE_DEVICES'), machine.nvidia_devices())"
    )
    seen = {}
    for gpus in ("", ",gres=gpu:1", ",gpus-per-node=1"):
        on = f"slurm:nodelist=node1{gpus}"
        script = machine.run("ladder", "sDigits", "--profile", "smoke", "--on", on, "--dry-run", apart=True).stdout
        lines = [*script.splitlines()[:-1], shlex.join([sys.executable, "-c", look]), ""]
        job = cluster.run("sbatch", "--parsable", given="\n".join(lines)).stdout.strip()
        output = outputs / f"{job}_0.log"
        wait_for(lambda output=output: output.exists() and output.read_text().endswith("]\n"), 60)
        seen[gpus] = output.read_text()
    assert seen == {"": "-1 []\n", ",gres=gpu:1": "0 ['0']\n", ",gpus-per-node=1": "0 ['0']\n"}
    ladder = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn", "--seeds", "1", "--detach")
    note = "--on slurm: asks for no GPU, although the cluster has some; runs use CPUs, and gres=gpu:1 asks for one"
    assert note in machine.run(*ladder, "--on", "slurm", apart=True).stderr
    assert note not in machine.run(*ladder, "--on", "slurm:gres=gpu:1", apart=True).stderr


def test_a_node_that_is_taken_changes_nothing(tmp_path: Path) -> None:
    """A run whose node Slurm takes is continued on another."""
    slurm_cluster.require()
    cache = Path(os.environ["XDG_CACHE_HOME"])
    found = slurm.disturb(["preempt"], tmp_path, seeds=2, rungs=RUNGS[:1], cache=cache, say=print)
    assert found["violations"] == []
    assert found["runs"] == 2
    assert found["attempts"] > 2
