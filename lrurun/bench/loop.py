"""A worker's training loop against a bare loop of the same compiled function.

The worker's loop is an attempt at a run: it writes rows to a ledger and checkpoints by the clock, and a display in
another process reads that ledger. The bare loop only calls the same function. Neither evaluates. Both wait for the
device at the end of a turn.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.bench import LOOP_MODELS, LOOP_RUNG, LOOP_TASK
from lrurun.bench.steps import SEEDS
from lrurun.config import planning
from lrurun.config.planning import final_runs
from lrurun.config.schema import RunConfig, decode
from lrurun.data import task_data
from lrurun.ledger import owner
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.values import HeldRun
from lrurun.runner import attempt, orders
from lrurun.training.compiled import compiled_for
from lrurun.training.events import Reached

Turn = Callable[[float], float]
"""Runs for at least the given seconds and returns the seconds per step."""

STEPS = 1_000_000
"""Steps of the measured run: more than any measurement takes."""


class _Paced(attempt.StopRequest):
    """Lets an attempt continue only during its turns."""

    def __init__(self) -> None:
        super().__init__()
        self._may, self._has = threading.Semaphore(0), threading.Semaphore(0)
        self._ends = 0.0
        self._began: tuple[float, int] | None = None
        self._speed = 0.0
        self.over: str | None = None

    def at(self, event: Any) -> bool:
        if not isinstance(event, Reached):
            return False
        if self._began is None:
            self._turn(event.step)
        elif time.perf_counter() >= self._ends:
            for array in jax.live_arrays():
                array.block_until_ready()
            start, first = self._began
            self._speed = (time.perf_counter() - start) / (event.step - first)
            self._has.release()
            self._turn(event.step)
        return False

    def _turn(self, step: int) -> None:
        self._may.acquire()
        self._began = time.perf_counter(), step

    def __call__(self, seconds: float) -> float:
        self._ends = time.perf_counter() + seconds
        self._may.release()
        self._has.acquire()
        if self.over:
            raise RuntimeError(self.over)
        return self._speed


def held_run(folder: Path, model: str) -> tuple[Ledger, HeldRun, planning.Plan]:
    """A ledger in the new folder `folder` with a run that this process holds, with its data in the same folder."""
    sets = {**LOOP_MODELS[model], "train.steps": STEPS, "train.eval_every": STEPS}
    plan = planning.make(LOOP_TASK, sets=sets)
    task_data.prepare(plan.task, plan.options, folder / plan.data_name)
    ledger = Ledger.open(folder / "ledger.db")
    instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec, plan.short_name)
    (rung,) = planning.choose_rungs(plan, [LOOP_RUNG])
    ledger.enqueue(instance.key, final_runs(plan, rung, [0]))
    held = ledger.hold(instance.key, owner.this_process(), environment={})
    assert held
    return ledger, held, plan


def ours(folder: Path, model: str) -> Turn:
    """Times a worker's attempt, whose ledger is `ledger.db` in the new folder `folder`."""
    ledger, held, plan = held_run(folder, model)
    pace = _Paced()

    def run() -> None:
        try:
            with (folder / "log.txt").open("w") as log, contextlib.redirect_stdout(log):
                orders.train_attempts(
                    [attempt.ActiveAttempt(ledger, held, folder / "runs", folder / plan.data_name)], pace
                )
            pace.over = "the run has ended"
        finally:
            ledger.close()
            pace.over = pace.over or "the run has stopped"
            pace._has.release()

    threading.Thread(target=run, daemon=True).start()
    return pace


def bare(model: str) -> Turn:
    """Times the same compiled function in a loop that keeps one dispatch ahead, over the same data."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, held, plan = held_run(Path(folder), model)
        config = decode(held.run.config, RunConfig, "bench")
        execution = held.run.execution
        data = task_data.load(plan.task, plan.options, Path(folder) / plan.data_name)
        ledger.close()
    compiled = compiled_for(config, execution, data)
    n = min(execution.steps_per_dispatch, config.train.log_every)
    index = np.arange(compiled.rows * config.train.batch, dtype=np.int32).reshape(1, compiled.rows, -1)
    arrays = (jnp.asarray(data.train.inputs), jnp.asarray(data.train.labels, jnp.int32), None)
    rates = np.full((1, compiled.rows), 1e-4, np.float32)
    arguments = (SEEDS, index % len(data.train.labels), rates, np.bool_(False), np.int32(n), arrays)
    live = compiled.init(config.model, SEEDS)
    live, seen = compiled.dispatch(live, *arguments)

    def turn(seconds: float) -> float:
        nonlocal live, seen
        calls, began = 0, time.perf_counter()
        while calls == 0 or time.perf_counter() - began < seconds:
            live, following = compiled.dispatch(live, *arguments)
            jax.block_until_ready(seen)
            seen = following
            calls += 1
        jax.block_until_ready((live, seen))
        return (time.perf_counter() - began) / (calls * n)

    return turn
