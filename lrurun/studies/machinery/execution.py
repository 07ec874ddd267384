"""Runs the cells of studies that a worker holds. A cell that was interrupted starts again from its first step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import Any

import numpy as np

from lrurun import studies
from lrurun.ledger.values import SCORE
from lrurun.runner import logs
from lrurun.runner.attempt import ActiveAttempt, StopRequest
from lrurun.runner.recorder import LedgerThread, Recorder
from lrurun.studies.machinery.planning import StudyPlan, cell_of
from lrurun.studies.machinery.study import Array, CellResult, Results, Study, Values


def execute(attempt: ActiveAttempt, stop: StopRequest) -> None:
    """Computes a cell and records its numbers, or interrupts it at a stop request."""
    run, ledger, held = attempt.held.run, attempt.ledger, attempt.held
    study = studies.of_task(run.task)
    cell = cell_of(study, run.config, f"run {run.id}")
    ledger.describe(held, environment=_device(study))
    ledger.rewind(held, None)
    logs.write(f"run {run.id}, attempt {held.attempt}: study {study.name}, {study.label(cell)}, seed {run.seed}")
    began = time.monotonic()
    values = _computed(study.simulate(cell, run.seed), attempt, stop)
    if values is None:
        return
    numbers, curves = _parts(values)
    rows = [(index, name, float(value)) for name, curve in curves.items() for index, value in enumerate(curve)]
    ledger.record(held, rows, run.steps)
    state = "done" if all(map(np.isfinite, numbers.values())) else "diverged"
    ledger.finish(held, state, result=numbers, reason=state, step=run.steps)
    logs.write(f"{state} in {time.monotonic() - began:.2f} s")


def in_process(plan: StudyPlan) -> Results[Any]:
    """The cells of a plan, computed here and recorded nowhere."""
    with _float64(plan.study):
        cells = [_result(plan.study, cell, seed) for cell in plan.cells for seed in plan.seeds]
    return Results(cells, plan.profile)


def _float64(study: Study[Any]) -> contextlib.AbstractContextManager[object]:
    """jax in float64, if the study simulates with it."""
    if not study.simulates:
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


def _result(study: Study[Any], cell: Any, seed: int) -> CellResult[Any]:
    values = study.simulate(cell, seed)
    while isinstance(values, Generator):
        try:
            next(values)
        except StopIteration as end:
            values = end.value
    numbers, curves = _parts(values)
    diverged = not all(map(np.isfinite, numbers.values()))
    return CellResult(cell=cell, seed=seed, run="", diverged=diverged, values=numbers, curves=curves)


def _parts(values: Values) -> tuple[dict[str, float], dict[str, Array]]:
    """Single numbers, and curves."""
    numbers = {name: float(value) for name, value in values.items() if np.ndim(value) == 0}
    return numbers, {name: np.asarray(value, float) for name, value in values.items() if np.ndim(value)}


def _device(study: Study[Any]) -> dict[str, Any]:
    """The device that computes the cell. With jax it also selects float64 for this process, which runs nothing else."""
    if not study.simulates:
        return {"device": "NumPy", "platform": "cpu"}
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    device = jax.devices()[0]
    return {"device": device.device_kind, "platform": device.platform, "devices": jax.device_count()}


def _computed(
    simulation: Values | Generator[int, None, Values], attempt: ActiveAttempt, stop: StopRequest
) -> Values | None:
    """The values that a simulation returns; None if it was stopped. The step is recorded about twice a second."""
    if not isinstance(simulation, Generator):
        return simulation
    thread = LedgerThread()
    recorder = Recorder(attempt.ledger, attempt.held, thread, SCORE)
    try:
        while True:
            thread.poll()
            try:
                step = next(simulation)
            except StopIteration as end:
                values: Values = end.value
                thread.drain()
                return values
            if stop.requested:
                simulation.close()
                thread.drain()
                attempt.interrupt("SIGTERM")
                return None
            recorder.write_soon(step)
    finally:
        thread.close()
