"""Probes: the run keeps its bits, and the curves are what their definitions say."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import jax
import numpy as np
import optax
import pytest
from msgspec.structs import replace

from lrurun.config import planning
from lrurun.config.optimizers import OPTIMIZERS, Declaration, OptimConfig
from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.schedules import learning_rates
from lrurun.config.schema import RunConfig
from lrurun.data.on_device import stream
from lrurun.data.task import Data
from lrurun.errors import UsageError
from lrurun.training import optimizer
from lrurun.training.compiled import compiled_for
from lrurun.training.events import Ended, Event, Reached, Snapshot
from lrurun.training.feed import Batches, label_type
from lrurun.training.loop import train, train_together
from lrurun.training.optimizers import Optimizer
from tests.harness.machine import FINISHED_LADDER, Machine
from tests.harness.optims import optim
from tests.harness.toy import EXECUTION, assert_same, config, data, history

__all__ = ["data"]  # a fixture

PROBED = replace(EXECUTION, probes=True)
LAMBDA = [f"{name}/layer0/q{q}" for name in ("lambda", "phase") for q in (0, 10, 50, 90, 100)]
OF_GROUPS = [f"{name}/{group}" for name in ("gradient", "effective_step") for group in ("recurrent", "regular")]


@pytest.fixture(scope="module")
def probed(data: Data) -> list[Event]:
    return list(train(config(), PROBED, data))


def rows(events: list[Event]) -> dict[tuple[int, str], float]:
    """The curves of probes alone."""
    names = ("gradient/", "effective_step/", "lambda/", "phase/")
    return {key: value for key, value in history(events).items() if key[1].startswith(names)}


def end(events: list[Event]) -> Snapshot:
    last = events[-1]
    assert isinstance(last, Ended)
    return last.snapshot


@pytest.mark.slow
def test_probes_change_no_bit_and_compile_no_second_training_program(probed: list[Event], data: Data) -> None:
    plain = list(train(config(), EXECUTION, data))
    curves = rows(probed)
    assert {step for step, _ in curves} == {9, 18, 23}
    assert {name for _, name in curves} == {*OF_GROUPS, *LAMBDA}
    assert rows(plain) == {}
    assert {key: value for key, value in history(probed).items() if key not in curves} == history(plain)
    assert_same(end(probed), end(plain))
    assert compiled_for(config(), PROBED, data).dispatch._cache_size() == 1


def test_a_resumed_run_has_the_same_curves(probed: list[Event], data: Data) -> None:
    first: list[Event] = []
    for event in train(config(), PROBED, data):
        first.append(event)
        if isinstance(event, Reached) and event.step == 12:
            snapshot = event.snapshot()
            break
    kept = {key: value for key, value in history(first).items() if key[0] <= 12}
    second = list(train(config(), PROBED, data, resume=snapshot))
    assert kept | history(second) == history(probed)
    assert_same(end(second), end(probed))


def expected_gradients(run: RunConfig, events: list[Event], data: Data) -> dict[str, float]:
    """The norms of the last step's gradient, by automatic differentiation of the loss, with its dropout mask."""
    compiled, live = compiled_for(run, PROBED, data), end(events).live
    index, split = Batches(run.seed, 8, 50)(22), data.train
    assert split.lengths is not None
    batch = (split.inputs[index], split.labels[index].astype(label_type(split)), split.lengths[index].astype(np.int32))
    key = jax.random.fold_in(stream(np.uint32(run.seed), "dropout"), 22) if run.model.dropout else None
    gradient = jax.jit(jax.grad(lambda params, stats, batch: compiled._loss(params, stats, batch, key)[0]))
    found = gradient(live.params, live.stats, batch)
    squares = dict.fromkeys(("recurrent", "regular"), 0.0)
    groups = optimizer.groups(run.optim, compiled.model.recurrence, live.params)
    for group, leaf in zip(jax.tree.leaves(groups), jax.tree.leaves(found), strict=True):
        squares[group] += float(np.sum(np.square(np.asarray(leaf, np.float64))))
    return {group: square**0.5 for group, square in squares.items()}


def assert_gradients(run: RunConfig, events: list[Event], data: Data) -> None:
    for group, norm in expected_gradients(run, events, data).items():
        assert history(events)[23, f"gradient/{group}"] == pytest.approx(norm, rel=1e-4)


def test_gradients_are_those_of_the_last_batch(probed: list[Event], data: Data) -> None:
    assert_gradients(config(), probed, data)


slow = pytest.mark.slow
OTHERS = [
    pytest.param(optim("sgd"), id="sgd"),
    pytest.param(optim("adamw", clip=1e-3), id="clip"),
    pytest.param(optim("adamw", accumulate=2), marks=slow, id="accumulate"),
    pytest.param(optim("sgd", accumulate=4, clip=1e-3), marks=slow, id="accumulate and clip"),
    *(pytest.param(optim(name), marks=slow, id=name) for name in OPTIMIZERS if name not in ("adamw", "sgd")),
]


@pytest.mark.parametrize("settings", OTHERS)
def test_gradients_are_those_of_the_loss_with_any_optimiser(settings: OptimConfig, data: Data) -> None:
    """Before clipping, of all parts of a batch, without the weight decay that is a part of some optimisers' gradients.

    With a layer norm and without dropout, because parts of a batch have statistics and masks of their own.
    """
    run = config(optim=settings, norm="layer", dropout=0.0)
    events = list(train(run, PROBED, data))
    assert_gradients(run, events, data)
    steps = {name for _, name in history(events) if name.startswith("effective_step/")}
    of_adam = {"effective_step/recurrent", "effective_step/regular"}
    assert steps == (of_adam if settings.name in ("adamw", "adam") else set())


@pytest.mark.slow
class Extended(AdamW, frozen=True, kw_only=True):
    """The settings of an optimiser of a plug-in, which has those of AdamW too."""

    name: Literal["extended"]  # type: ignore[assignment]


class Plain(Optimizer):
    on_vector = True

    def transformation(self) -> optax.GradientTransformation:
        return optax.scale(1.0 - self.settings.b1)


def test_settings_that_extend_those_of_adam_do_not_make_an_adam(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose state would have moments."""
    monkeypatch.setitem(OPTIMIZERS, "extended", Declaration(name="extended", settings=Extended, implementation=Plain))
    settings = Extended(name="extended", lr=0.01, recurrent_factor=0.5, weight_decay=0.05)
    run = config(optim=settings, norm="layer", dropout=0.0)
    events = list(train(run, PROBED, data))
    assert_gradients(run, events, data)
    assert not [name for _, name in rows(events) if name.startswith("effective_step/")]


def test_a_second_program_for_gradients_changes_no_bit(data: Data) -> None:
    """Of two seeds together, with an optimiser whose state starts as the parameters themselves."""
    configs = [config(optim=optim("prodigy"), seed=seed) for seed in (3, 4)]
    with_probes, plain = (list(train_together(configs, execution, data)) for execution in (PROBED, EXECUTION))
    for member in (0, 1):
        one, other = ([e for e in events if e.member == member] for events in (with_probes, plain))
        assert_same(end(one), end(other))


def test_effective_steps_and_quantiles_are_those_of_the_parameters(probed: list[Event], data: Data) -> None:
    run, live, found = config(), end(probed).live, history(probed)
    rate = float(learning_rates(run.optim, 23)[22])
    second = optimizer.of_state(live.moments, "nu")
    steps: dict[str, list[float]] = {"recurrent": [], "regular": []}
    groups = optimizer.groups(run.optim, compiled_for(run, PROBED, data).model.recurrence, live.params)
    for group, leaf in zip(jax.tree.leaves(groups), jax.tree.leaves(second), strict=True):
        for v in np.asarray(leaf, float).ravel().tolist():
            factor = {"recurrent": 0.5, "regular": 1.0}[group]
            steps[group] += [factor * rate / ((v / (1 - run.optim.b2**23)) ** 0.5 + run.optim.eps)] if v else []
    for group, values in steps.items():
        assert found[23, f"effective_step/{group}"] == pytest.approx(float(np.median(values)), rel=1e-6)
    recurrence = live.params["blocks"]["0"]["recurrence"]
    radius = np.sort(np.exp(-np.exp(np.asarray(recurrence["nu_log"], float))))
    phase = np.sort(np.abs(np.angle(np.exp(1j * np.asarray(recurrence["theta"], float)))))
    for name, values in (("lambda", radius), ("phase", phase)):
        # of five numbers, those at positions 0, 0.4, 2, 3.6 and 4
        expected = np.interp([0, 0.4, 2, 3.6, 4], range(5), values)
        at = [found[23, f"{name}/layer0/q{q}"] for q in (0, 10, 50, 90, 100)]
        np.testing.assert_allclose(at, expected, rtol=1e-5)


def test_probes_are_a_setting_of_execution() -> None:
    plan, plain = (planning.make("sDigits", profile="smoke", sets=sets) for sets in ({"execution.probes": True}, {}))
    assert {rung.execution.probes for rung in plan.rungs} == {True}
    assert {rung.execution.probes for rung in plain.rungs} == {False}
    assert plan.spec == plain.spec
    with pytest.raises(UsageError) as caught:
        planning.make("sDigits", profile="smoke", sets={"execution.probes": "gradients"})
    assert caught.value.message == '--set execution.probes: expected true or false, found "gradients"'


@pytest.mark.slow
def test_probes_of_finished_runs_need_fresh(finished: Machine, tmp_path: Path) -> None:
    done = finished.copy(tmp_path / "copy").run(*FINISHED_LADDER, "--set", "execution.probes=true")
    assert "nothing to do: every run of this ladder is finished" in done.stderr
    assert "execution.probes: runs that were trained without it have none; --fresh trains them again" in done.stderr
