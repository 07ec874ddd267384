"""Random numbers are those of this release in every environment, and a run records which examples it starts with."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.recurrences.rnn import RNNSettings
from lrurun.config.schema import ModelConfig
from lrurun.data import on_device, task_data
from lrurun.data.tasks import TASKS
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.machine import NOT_ON_CPU
from lrurun.nn.network import Model
from lrurun.runner import execute
from lrurun.runner.attempt import ActiveAttempt
from lrurun.runner.processes import worker_environment

BITS = "sha256:48743272a3d654ba15d26afb81fabd70fb1b29ef87744cf46a773368f22083d8"
"""Of Parity with its own settings, seed 3, a batch of 4: whole numbers, the same on every machine."""
PRINT = "from tests.nn.test_generator import values; print(*values())"


def values() -> list[str]:
    """Digests of examples and of initial parameters."""
    parity, sums = TASKS["Parity"], TASKS["CumSum"]
    samplers = [task.sampler(task.options()) for task in (parity, sums)]
    model = Model(ModelConfig(recurrence=RNNSettings(), width=4, state=4, depth=1), parity.spec(parity.options()))
    leaves = jax.tree.leaves(jax.jit(lambda seed: model.init(on_device.stream(seed, "init")))(np.uint32(0)))
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
    return [*(on_device.batch_digest(sampler, 3, 4) for sampler in samplers if sampler), digest]


@pytest.mark.slow
def test_the_environment_changes_no_random_number() -> None:
    """Neither examples nor initial parameters."""
    env = os.environ | {"JAX_THREEFRY_PARTITIONABLE": "0", "JAX_DEFAULT_PRNG_IMPL": "rbg"}
    found = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, text=True, check=True).stdout
    assert found.split() == values()
    assert found.split()[0] == BITS


def test_a_worker_has_its_own_seed_offset_types_and_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_RANDOM_SEED_OFFSET", "7")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    env = worker_environment(2)
    assert (env["JAX_RANDOM_SEED_OFFSET"], env["JAX_ENABLE_X64"], env["JAX_PLATFORMS"]) == ("0", "0", "cuda,cpu")
    assert env[NOT_ON_CPU] == "cuda"
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert worker_environment(2)["JAX_PLATFORMS"] == "cpu"
    assert NOT_ON_CPU not in worker_environment(2)


def described(ledger: Ledger, plan: planning.Plan, rung: str, seed: int, place: Path) -> tuple[str, dict[str, Any]]:
    """The id of a run that a worker has begun, and the environment that it recorded."""
    instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
    (chosen,) = planning.choose_rungs(plan, [rung])
    ledger.requeue(run.id for run in ledger.enqueue(instance.key, final_runs(plan, chosen, [seed])))
    held = ledger.hold(instance.key, owner.this_process(), environment={})
    assert held is not None
    attempt = ActiveAttempt(ledger, held, place, place / plan.data_name)
    attempt.load()
    execute._describe(attempt)
    attempt.interrupt("stopped")
    return held.run.id, dict(ledger.attempts(held.run.id)[-1].environment)


@pytest.mark.slow
def test_a_run_records_the_digest_of_its_own_first_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planning.make("Parity", ladder="lru", profile="smoke")
    task_data.prepare(plan.task, plan.options, tmp_path / plan.data_name)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        run, first = described(ledger, plan, "gamma-norm", 0, tmp_path)
        sampler, batch = plan.task.sampler(plan.options), plan.rungs[0].config.train.batch
        assert sampler is not None
        assert first["batch_sha256"] == on_device.batch_digest(sampler, 0, batch)
        assert first["batch_sha256"] != on_device.batch_digest(sampler, 1, batch)
        assert first["batch_sha256"] != on_device.batch_digest(sampler, 0, batch + 1)
        monkeypatch.setattr(on_device, "PARTITIONABLE", False)  # as another release of jax could
        on_device._compiled.cache_clear()
        again, second = described(ledger, plan, "gamma-norm", 0, tmp_path)
        on_device._compiled.cache_clear()
        assert again == run
        assert second["batch_sha256"] != first["batch_sha256"]
        (changed,) = [event.text for event in ledger.events(run=run) if event.kind == "changed"]
        assert f"batch 0 {first['batch_sha256'][:19]} before, {second['batch_sha256'][:19]} now" in changed
