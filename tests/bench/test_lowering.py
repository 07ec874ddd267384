"""Programs lower for GPUs and TPUs on a machine without one: accelerators have all operations that they need."""

from __future__ import annotations

import json
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from msgspec import structs

from lrurun import paths
from lrurun.bench import steps
from lrurun.config import plan as planning
from lrurun.config.ladder import load_ladder
from lrurun.config.recurrences import KINDS
from lrurun.config.recurrences.rnn import RNNRecurrence
from lrurun.config.schema import Execution, program_key
from lrurun.nn import conformance, lowering, recurrences
from lrurun.nn.recurrences.rnn import RNN
from lrurun.training.probes import _before
from lrurun.training.programs import Best, Programs

FORMS = (lowering.BACKEND, "sequential")
TASKS = {"language": "sSource", "depth": "Shift", "dlr": "Shift"}
"""Ladder -> the task on which its rungs are lowered, where it is neither the first of its recipes nor sDigits."""
SMALL = ["model.depth=1", "train.batch=4"]
"""Settings that decide how much is traced, not which operations."""


def test_an_operation_that_accelerators_lack_is_found() -> None:
    matrix = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    assert "primitive 'eig' not found for platforms ['tpu']" in lowering.problem(jnp.linalg.eigvals, matrix)
    assert "['cuda', 'tpu']" in lowering.problem(jax.jit(jax.scipy.linalg.schur), matrix)
    assert lowering.problem(jax.scipy.linalg.expm, matrix) == ""


def test_conformance_has_a_finding_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of initial values that are not declared as those of the CPU."""
    case = conformance._Case(
        recurrences.build(RNNRecurrence(activation="identity", draw="remapped"), width=3, state=4), jax.random.key(0)
    )
    assert conformance._lowers(case) == (True, "accelerators have all operations")
    monkeypatch.setattr(RNN, "init_on_cpu", False)
    passed, detail = conformance._lowers(case)
    assert not passed
    assert detail.startswith("init: MLIR translation rule for primitive 'eig' not found for platforms ['tpu']")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_recurrences_lower(kind: str) -> None:
    """Every variant, in one direction and in both, with both forms of the scans where they differ."""
    for name, settings in conformance.variants(kind).items():
        for two_way in (False, *[True] * (not KINDS[kind].load().causal_only)):
            for backend in FORMS:
                width = 16 if settings.elementwise else 12
                recurrence = recurrences.build(settings, width=width, state=16, bidirectional=two_way, backend=backend)
                assert lowering.problems(recurrence, 24, 3) == {}, (name, two_way, backend)


@cache
def seen() -> set[str]:
    """The programs that were lowered: ladders share rungs."""
    return set()


def check(ladder: str, task: str, backend: str) -> None:
    """Initialisation, training step, evaluation, and what probes compute beside the training step."""
    made = planning.make(task, ladder=ladder, sets=SMALL)
    sampler, spec = made.task.sampler(made.options), made.task.spec(made.options)
    if sampler is None:
        spec = structs.replace(spec, length=64)
    execution = Execution(scan_backend=backend, steps_per_dispatch=2)  # type: ignore[arg-type]
    split = steps.stand_in(spec, 4, sampler)
    for rung in made.rungs:
        # real numbers change no operations, unless they are 0
        settings = json.loads(program_key(rung.training, execution), parse_float=lambda text: float(text) != 0)
        key = f"{settings}|{spec}"
        if key in seen():
            continue
        seen().add(key)
        programs = Programs(rung.training, execution, spec, metrics=made.task.metrics, sampler=sampler)
        state = jax.eval_shape(programs.init, steps.SEEDS)
        arguments = steps.dispatch_arguments(programs, split, 1)
        functions = {
            "training": (programs.dispatch, state, *arguments),
            "evaluation": (
                programs.evaluate,
                Best(state.params, state.stats),
                *steps.evaluate_arguments(programs, split),
            ),
            "probes": (_before, state),
        }
        if not programs.model.recurrence.init_on_cpu:
            functions["init"] = (programs.model.init, jax.random.key(0))
        for name, call in functions.items():
            assert lowering.problem(*call) == "", (ladder, rung.name, name)


def test_the_rungs_of_lru_lower() -> None:
    check("lru", "sDigits", lowering.BACKEND)


@pytest.mark.slow
@pytest.mark.parametrize("backend", FORMS)
def test_pairs_lower(backend: str) -> None:
    check("lru", "Retrieval", backend)


@pytest.mark.slow
@pytest.mark.parametrize("ladder", paths.names("ablations"))
def test_the_rungs_of_every_ladder_lower(ladder: str) -> None:
    """In one form of the scans: each recurrence lowers in both above, and pairs do within a whole network."""
    task = TASKS.get(ladder) or next(iter(load_ladder(ladder).recipes), "sDigits")
    check(ladder, task, lowering.BACKEND)
