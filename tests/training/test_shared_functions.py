"""Functions that configurations share which differ in settings of initial values alone."""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import ShapeDtypeStruct
from msgspec import structs

from lrurun.config.fingerprint import RATES, program_key
from lrurun.config.recurrences import KINDS
from lrurun.config.recurrences.lru import LRUSettings
from lrurun.config.schema import RunConfig
from lrurun.data.metric import Metric
from lrurun.data.task import Data
from lrurun.nn.network import Model
from lrurun.training import COMPILED_KEPT
from lrurun.training.compiled import Compiled, compiled_for
from lrurun.training.events import Ended
from lrurun.training.loop import train
from lrurun.training.objective import own_sum
from tests.harness.toy import EXECUTION, assert_same, config, data, history

__all__ = ["data"]  # a fixture

STEPS = {"dt_min": 0.01, "dt_max": 0.05}
RING = {"r_min": 0.4, "r_max": 0.7}

# kind -> settings, and other values of what they declare as settings of initial values alone
INITIAL: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "block-diagonal": [({}, {"r_min": 0.4, "max_phase": 1.0}), ({"tied": True}, {**RING, "max_phase": 1.0})],
    "dense": [
        ({}, {"draw": "truncated", "radius": 0.5}),
        ({"activation": "tanh"}, {"draw": "remapped", "radius": 1.5}),
    ],
    "diagonal": [
        ({}, {**RING, "max_phase": 1.0}),
        ({"normalize": True, "train_gamma": False, "phase": "log"}, {**RING, "max_phase": 1.0}),
        ({"normalize": True, "conjugate": True, "heads": 2}, {**RING, "max_phase": 1.0}),
        ({"parametrization": "cartesian"}, {**RING, "max_phase": 1.0}),
    ],
    "dlr": [
        ({}, {**STEPS, "phases": "normal"}),
        ({"cast": "prod", "kernel_length": 5}, {**STEPS, "phases": "normal"}),
        ({"poles": "unit"}, {**STEPS, "phases": "normal"}),
        ({"poles": "real", "weights": "real"}, {**STEPS, "phases": "normal"}),
    ],
    "dss": [({}, {**STEPS, "init": "hippo"})],
    "gru": [({}, {"t_max": 64.0}), ({"t_max": 64.0}, {"t_max": 32.0, "t_min": 4.0})],
    "lstm": [({}, {"t_max": 64.0}), ({"t_max": 64.0}, {"t_max": 32.0, "t_min": 4.0})],
    "minlstm": [({}, {"forget_bias": 1.0}), ({"form": "log-space", "normalised": True}, {"forget_bias": 1.0})],
    "rg-lru": [
        ({"gate_blocks": 2}, {**RING, "init": "paper", "gate_fan": "width"}),
        ({"gate_blocks": 2, "complex": True}, {**RING, "init": "ring", "gate_fan": "width"}),
        ({"gate_blocks": 2, "decay": "exponential", "multiplier": "trained"}, {**RING, "gate_fan": "width"}),
        ({"gate_blocks": 2, "decay": "sigmoid"}, {**RING, "init": "ring", "gate_fan": "width"}),
    ],
    "rotrnn": [
        ({"heads": 2, "normalizer": normalizer}, {**RING, "draw": "ring", "max_phase": 1.0})
        for normalizer in ("trace", "naive", "gamma", "none")
    ],
    "s4": [({}, {**STEPS, "clip_b": True})],
    "s4d": [
        *[({}, {**STEPS, "init": init}) for init in ("legs", "real")],
        ({"train_b": False, "init": "legs"}, STEPS),
        ({"shared_dt": False, "discretization": "euler"}, {**STEPS, "init": "legs"}),
    ],
    "s5": [
        ({}, {**STEPS, "blocks": 2, "c_init": "lecun"}),
        ({"conj_sym": False, "clip_eigs": True}, {**STEPS, "blocks": 4, "c_init": "complex"}),
    ],
    "s6": [({}, STEPS), ({"delta": "constant", "b": "constant", "c": "constant", "heads": 2}, STEPS)],
}

# settings that may seem to be of initial values alone, but that functions use
USED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("s4d", {"train_b": False}, {"init": "legs"}),
    ("sgconv", {"kernel_length": 24}, {"alpha_max": 0.9}),
    ("sgconv", {"kernel_length": 24, "train_alpha": True}, {"alpha_max": 0.9}),
    ("sgconv", {"kernel_length": 24}, {"init": "state"}),
    ("hgrn", {}, {"bound": "none"}),
    ("mingru", {}, {"initial": "zero"}),
]


def run_of(kind: str, settings: dict[str, Any]) -> RunConfig:
    made = config()
    model = structs.replace(made.model, recurrence=KINDS[kind].settings(**settings), width=8, state=8)
    return structs.replace(made, model=model)


def functions(run: RunConfig, data: Data) -> list[Any]:
    """What is compiled to train and to evaluate a run, its groups of parameters, and eigenvalues of some parameters."""
    compiled = Compiled(run, EXECUTION, data.spec, metrics=data.metrics)

    def with_members(leaf: Any) -> ShapeDtypeStruct:
        return ShapeDtypeStruct((1, *leaf.shape), leaf.dtype)

    states, shape = jax.tree.map(with_members, compiled.vector_shapes), (1, compiled.rows)
    batch, split = run.train.batch, data.train
    training = compiled.dispatch.lower(
        states,
        np.zeros(1, np.uint32),
        np.zeros((*shape, batch), np.int32),
        np.zeros(shape, np.float32),
        np.bool_(False),
        np.int32(1),
        (split.inputs, split.labels, split.lengths),
    )
    evaluated = jax.tree.map(with_members, compiled.abstract_evaluated)
    assert split.lengths is not None
    evaluation = compiled.outputs.lower(
        evaluated, split.inputs[:batch], split.labels[:batch], split.lengths[:batch], np.ones(batch, np.bool_)
    )
    layer = compiled.abstract.params["blocks"]["0"]["recurrence"]
    spectrum = compiled.model.recurrence.spectrum(
        {name: np.linspace(0.1, 0.4, leaf.size, dtype=np.float32).reshape(leaf.shape) for name, leaf in layer.items()}
    )
    listed = None if spectrum is None else spectrum.tolist()
    return [training.as_text(), evaluation.as_text(), compiled.layout.segments, listed]


@pytest.mark.parametrize("kind", INITIAL)
def test_settings_of_initial_values_change_no_function(kind: str, data: Data) -> None:
    known: dict[str, list[Any]] = {}
    for settings, others in INITIAL[kind]:
        run, changed = run_of(kind, settings), run_of(kind, settings | others)
        assert others.keys() <= run.model.recurrence.initial_only & changed.model.recurrence.initial_only
        if str(settings) not in known:
            known[str(settings)] = functions(run, data)
        for before, after in zip(known[str(settings)], functions(changed, data), strict=True):
            assert before == after


def test_every_setting_of_initial_values_alone_is_tried() -> None:
    declared = {
        kind: {
            name
            for settings in (declaration.variants or {"": {}}).values()
            for name in declaration.settings(**settings).initial_only
        }
        for kind, declaration in KINDS.items()
    }
    tried = {kind: {name for _, others in cases for name in others} for kind, cases in INITIAL.items()}
    assert {kind: names for kind, names in declared.items() if names} == tried


@pytest.mark.parametrize(("kind", "settings", "others"), USED)
def test_settings_that_functions_use_are_not_declared(
    kind: str, settings: dict[str, Any], others: dict[str, Any], data: Data
) -> None:
    """And the comparison above would notice if they were."""
    run, changed = run_of(kind, settings), run_of(kind, settings | others)
    assert not others.keys() & run.model.recurrence.initial_only
    assert functions(run, data)[:2] != functions(changed, data)[:2]


def test_a_rung_with_other_initial_values_compiles_nothing_else(
    data: Data, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After another rung, it traces and compiles the function of its initial values alone, and has its own bits."""
    first, second = (config(recurrence=LRUSettings(normalize=True, r_min=r_min)) for r_min in (0.31, 0.62))
    execution = structs.replace(EXECUTION, probes=True)
    alone = list(train(second, execution, data))
    monkeypatch.setattr("lrurun.training.compiled._CACHE", OrderedDict())
    before = list(train(first, execution, data))
    for name in ("apply", "evaluate"):
        monkeypatch.delattr(Model, name)  # they are called where functions are traced
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        shared = list(train(second, execution, data))
    assert set(re.findall(r"Compiling (?:jit\()?(\w+)", caplog.text)) == {"over_members"}
    assert history(shared) == history(alone) != history(before)
    ends = [events[-1] for events in (shared, alone)]
    assert all(isinstance(end, Ended) for end in ends)
    assert_same(*[end.snapshot for end in ends])  # type: ignore[union-attr]


SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "cosine"},
    {"schedule": "wsd", "cooldown": 0.5, "warmup_steps": 3, "floor": 1e-3, "lr": 0.03},
    {"schedule": "constant", "warmup": 0.0},
    {"schedule": "inverse-sqrt", "warmup": 0.3},
    {"schedule": "linear", "warmup": 0.5},
]


@pytest.mark.parametrize("average", ["none", "ema"])
def test_a_rung_with_another_schedule_compiles_nothing(
    average: str, data: Data, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After another rung, or a longer training, it has the bits that it has alone; rungs that differ in more of `optim`
    share nothing."""

    def run_with(**changes: Any) -> RunConfig:
        run = config()
        return structs.replace(run, optim=structs.replace(run.optim, average=average, **changes))

    assert {name for changes in SCHEDULES for name in changes} == {*RATES, "lr"}
    execution = structs.replace(EXECUTION, probes=True)
    cache: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr("lrurun.training.compiled._CACHE", cache)
    alone = list(train(run_with(**SCHEDULES[1]), execution, data))
    cache.clear()
    others = [history(list(train(run_with(**SCHEDULES[0]), execution, data)))]
    for name in ("apply", "evaluate"):
        monkeypatch.delattr(Model, name)  # they are called where functions are traced
    with caplog.at_level(logging.WARNING), jax.log_compiles():
        shared = list(train(run_with(**SCHEDULES[1]), execution, data))
        others += [history(list(train(run_with(**changes), execution, data))) for changes in SCHEDULES[2:]]
        longer = structs.replace(run_with(**SCHEDULES[1]), train=structs.replace(config().train, steps=29))
        others.append(history(list(train(longer, execution, data))))
    assert not re.findall(r"Compiling (?:jit\()?(\w+)", caplog.text)
    assert len(cache) == 1
    assert history(shared) == history(alone)
    assert all(rows != history(alone) for rows in others)
    ends = [events[-1] for events in (shared, alone)]
    assert all(isinstance(end, Ended) for end in ends)
    assert_same(*[end.snapshot for end in ends])  # type: ignore[union-attr]
    for changes in ({"recurrent_factor": 0.25}, {"weight_decay": 0.1}, {"clip": 1.0}, {"accumulate": 2}, {"b1": 0.8}):
        assert program_key(run_with(**changes), execution) != program_key(run_with(), execution)


def test_a_metric_that_was_loaded_again_has_the_functions_of_its_new_form(data: Data) -> None:
    """Although its name and settings are those of the old one; a rung of another width shares its scores."""

    def loaded(factor: float) -> Data:
        class Scaled(Metric, frozen=True, kw_only=True):
            def measure(self, outputs: Any, labels: Any, weight: Any) -> dict[str, Any]:
                return {"scaled": factor * jnp.sum(weight)}

        return structs.replace(data, metrics=(Scaled(name="scaled", unit="points"),))

    before, after = loaded(1.0), loaded(2.0)
    assert str(before.metrics) == str(after.metrics)
    first, second, wider = (
        compiled_for(config(**sizes), EXECUTION, of)
        for sizes, of in (({}, before), ({}, after), ({"width": 12}, after))
    )
    assert first is compiled_for(config(), EXECUTION, before)
    assert second.scores is wider.scores is not first.scores
    outputs, labels, weight = (
        np.zeros((1, 8, data.spec.classes), np.float32),
        np.zeros(8, np.int32),
        np.ones(8, np.float32),
    )
    found = [compiled.scores(outputs, labels, weight, np.bool_(False))[0] for compiled in (first, second)]
    assert [float(sums[own_sum("scaled", "scaled")][0]) for sums in found] == [8.0, 16.0]


def test_configurations_share_functions_but_no_initial_values(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrurun.training.compiled._CACHE", OrderedDict())
    runs = [config(recurrence=LRUSettings(r_min=0.1 * k)) for k in range(COMPILED_KEPT + 1)]
    compiled = [compiled_for(run, EXECUTION, data) for run in runs]
    assert all(one is compiled[0] for one in compiled)
    assert compiled_for(config(recurrence=LRUSettings(normalize=True)), EXECUTION, data) is not compiled[0]
    seeds = np.array([4], np.uint32)
    for run in runs:
        assert not compiled[0].is_compiled(run.model, 1, begins=True)
        [state] = compiled[0].on_host(compiled[0].init(run.model, seeds))
        own = Compiled(run, EXECUTION, data.spec)
        jax.tree.map(np.testing.assert_array_equal, state, own.on_host(own.init(run.model, seeds))[0])
    compiled[0].counts.add(1)
    assert [compiled[0].is_compiled(run.model, 1, begins=True) for run in runs[::-1]] == [True] * COMPILED_KEPT + [
        False
    ]
    assert compiled[0].is_compiled(runs[0].model, 1, begins=False)
    assert not compiled[0].is_compiled(runs[-1].model, 2, begins=False)
