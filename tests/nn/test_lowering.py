"""Programs lower for GPUs and TPUs on a machine without one: accelerators have all operations that they need.

Recurrences alone are lowered by `tests/nn/test_conformance.py`; here whole compiled, with what is around a recurrence.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import msgspec
import numpy as np
import pytest
from msgspec import structs

from lrurun import paths
from lrurun.bench import steps
from lrurun.config import planning
from lrurun.config.ladder import load_ladder
from lrurun.config.schema import Execution
from lrurun.nn import lowering
from lrurun.training.compiled import Compiled
from lrurun.training.probes import _before

TASKS = {"language": "sSource", "depth": "Shift", "dlr": "Shift"}
"""Ladder -> the task on which its rungs are lowered, where it is neither the first of its recipes nor sDigits."""
SMALL = {"model.depth": 1, "train.batch": 4}
"""Settings that decide how much is traced, not which operations."""


def check(made: planning.Plan, rung: Any) -> None:
    """Initialisation, training step, evaluation, and what probes compute beside the training step."""
    sampler, spec = made.task.sampler(made.options), made.task.spec(made.options)
    if sampler is None:
        spec = structs.replace(spec, length=64)
    execution = Execution(scan_backend=lowering.BACKEND, steps_per_dispatch=2)  # type: ignore[arg-type]
    split = steps.stand_in(spec, 4, sampler)
    compiled = Compiled(rung.training, execution, spec, metrics=made.task.metrics, sampler=sampler)
    state, live = (
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), of)
        for of in (compiled.vector_shapes, compiled.abstract_evaluated)
    )
    arguments = steps.dispatch_arguments(compiled, split, 1)
    evaluated = steps.evaluate_arguments(compiled, split)
    predicted, _ = jax.eval_shape(compiled.outputs, live, *evaluated)
    functions = {
        "training": (compiled.dispatch, state, *arguments),
        "evaluation": (compiled.outputs, live, *evaluated),
        "scores": (compiled.scores, predicted, evaluated[1], np.ones(compiled.batch, np.float32), np.bool_(False)),
        "probes": (partial(_before, compiled.optimizer), state),
    }
    if not compiled.model.recurrence.init_on_cpu:
        functions["init"] = (compiled.model.init, jax.random.key(0))
    for name, call in functions.items():
        assert lowering.problem(*call) == "", (made.ladder.name, rung.name, name)


@pytest.mark.slow
def test_the_last_rung_of_lru_lowers() -> None:
    made = planning.make("sDigits", ladder="lru", sets=SMALL)
    check(made, made.rungs[-1])


def choices(made: planning.Plan, rung: Any) -> set[tuple[str, object]]:
    """Every setting with its value that decides about operations around the recurrence, numbers left out."""
    spec = made.task.spec(made.options)
    model = {name: value for name, value in msgspec.to_builtins(rung.training.model).items() if name != "recurrence"}
    of_task = {
        "kind": spec.kind,
        "pair": spec.pair,
        "output": spec.output,
        "sampled": bool(made.task.sampler(made.options)),
    }
    # whether a number is zero decides
    return {
        (name, bool(value) if isinstance(value, int | float) else str(value))
        for name, value in (model | of_task).items()
    }


@pytest.mark.slow
def test_every_setting_of_a_network_and_of_a_task_lowers() -> None:
    """Of all rungs of all ladders, those that are needed to have every value of every setting once."""
    plans = [planning.make("Retrieval", ladder="lru", sets=SMALL)]
    for ladder in paths.names("ablations"):
        task = TASKS.get(ladder) or next(iter(load_ladder(ladder).recipes), "sDigits")
        plans.append(planning.make(task, ladder=ladder, sets=SMALL))
    rungs = [(made, rung, choices(made, rung)) for made in plans for rung in made.rungs]
    missing = set().union(*(found for *_, found in rungs))
    while missing:
        made, rung, found = max(rungs, key=lambda one: len(one[2] & missing))
        check(made, rung)
        missing -= found
