"""Schedules of the learning rate, against optax's and against formulas of one step at a time."""

import math
import re
import subprocess
import sys
from typing import Any, get_args, get_type_hints

import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import pytest

from lrurun.config.optimizers import OptimConfig
from lrurun.config.optimizers.adamw import AdamW
from lrurun.config.phases import Phases, phases
from lrurun.config.schedules import SCHEDULES, learning_rates
from lrurun.training import loop
from lrurun.training.events import Ended
from tests.harness import toy
from tests.harness.toy import data

__all__ = ["data"]

PEAK, FLOOR = 4e-3, 1e-5
NAMES = ("cosine", "constant", "linear", "wsd", "inverse-sqrt")


def settings(**changes: Any) -> AdamW:
    values = {"lr": PEAK, "recurrent_factor": 0.5, "weight_decay": 0.05, "floor": FLOOR} | changes
    return msgspec.convert(values, AdamW)


def of_optax(name: str, warm: int, cooldown: int, steps: int) -> optax.Schedule:
    """The same schedule, joined of those of optax."""
    length = steps - warm
    falling = {
        "cosine": lambda: optax.cosine_decay_schedule(PEAK, length, alpha=FLOOR / PEAK),
        "constant": lambda: optax.constant_schedule(PEAK),
        "linear": lambda: optax.linear_schedule(PEAK, FLOOR, length),
        "wsd": lambda: optax.join_schedules(
            [optax.constant_schedule(PEAK), optax.linear_schedule(PEAK, FLOOR, cooldown)], [length - cooldown]
        ),
        "inverse-sqrt": lambda: lambda step: PEAK * jnp.sqrt(max(warm, 1) / jnp.maximum(step + warm, max(warm, 1))),
    }[name]()
    return optax.join_schedules([optax.linear_schedule(FLOOR, PEAK, warm), falling], [warm]) if warm else falling


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("steps", [1, 7, 300])
def test_rates_against_optax(name, warmup, steps):
    config = settings(warmup=warmup, schedule=name)
    wanted = of_optax(name, round(warmup * steps), round(0.2 * steps), steps)(jnp.arange(steps))
    np.testing.assert_allclose(learning_rates(config, steps), wanted, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warm", [0, 1, 30])
def test_a_warm_up_in_steps_against_optax(name, warm):
    wanted = of_optax(name, warm, 20, 100)(jnp.arange(100))
    np.testing.assert_allclose(
        learning_rates(settings(warmup_steps=warm, schedule=name), 100), wanted, rtol=1e-4, atol=1e-9
    )


def test_the_cosine_with_warm_up_is_that_of_optax():
    wanted = optax.warmup_cosine_decay_schedule(FLOOR, PEAK, warmup_steps=50, decay_steps=400, end_value=FLOOR)
    np.testing.assert_allclose(
        learning_rates(settings(warmup_steps=50), 400), wanted(jnp.arange(400)), rtol=1e-4, atol=1e-9
    )


def by_formula(name: str, step: int, warm: int, cooldown: int, steps: int) -> float:
    """The rate of one step, by the papers."""
    if step < warm:
        return FLOOR + (PEAK - FLOOR) * step / warm
    if name == "cosine":
        return FLOOR + 0.5 * (PEAK - FLOOR) * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))
    if name == "linear":
        return PEAK + (FLOOR - PEAK) * (step - warm) / (steps - warm)
    if name == "inverse-sqrt":
        return max(FLOOR, PEAK * math.sqrt(max(warm, 1) / max(step, warm, 1)))
    if name == "wsd" and step > steps - cooldown:
        return FLOOR + (PEAK - FLOOR) * (1 - (step - (steps - cooldown)) / cooldown)
    return PEAK


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("changes", "steps", "warm", "cooldown"),
    [
        ({}, 1, 0, 0),
        ({}, 2, 0, 0),
        ({}, 257, 26, 51),
        ({"warmup": 0.5}, 3, 2, 1),
        ({"warmup": 0.6, "cooldown": 0.4}, 1000, 600, 400),
        ({"warmup": 0.0, "cooldown": 1.0}, 40, 0, 40),
        ({"warmup": 0.0, "cooldown": 1.0}, 1, 0, 1),
        ({"warmup_steps": 0}, 40, 0, 8),
        ({"warmup_steps": 1, "cooldown": 0.5}, 2, 1, 1),
        ({"warmup_steps": 40, "cooldown": 0.001}, 40, 40, 0),
        ({"warmup_steps": 39, "cooldown": 0.025}, 40, 39, 1),
        # two shares that are rounded up overlap by a step, which is the warm-up's
        ({"warmup": 0.5, "cooldown": 0.5}, 3, 2, 1),
    ],
)
def test_rates_against_formulas(name, changes, steps, warm, cooldown):
    changes = {key: value for key, value in changes.items() if key != "cooldown" or name == "wsd"}
    config = settings(schedule=name, **changes)
    parts = phases(config, steps)
    assert parts == Phases(warm, steps - warm - parts.cooldown, cooldown if name == "wsd" else 0)
    assert parts.steps == steps
    wanted = [by_formula(name, step, warm, cooldown, steps) for step in range(steps)]
    np.testing.assert_allclose(learning_rates(config, steps), wanted, rtol=2e-7, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("changes", [{}, {"floor": 0.0}, {"floor": PEAK}, {"warmup_steps": 1000}, {"warmup": 0.0}])
def test_rates_are_between_floor_and_peak(name, changes):
    """And rise in the warm-up, and never after it. A floor that equals the peak is a constant rate."""
    config = settings(schedule=name, **({"warmup_steps": 800} if changes.get("warmup_steps") else changes))
    rates, warm = learning_rates(config, 1000), phases(config, 1000).warmup
    assert (rates.shape, rates.dtype) == ((1000,), np.float32)
    assert np.all(np.isfinite(rates))
    assert np.all(rates >= np.float32(config.floor))
    assert rates.max() == rates[warm] == np.float32(PEAK)
    if config.floor == PEAK:
        assert set(rates) == {np.float32(PEAK)}
    elif warm:
        assert rates[0] == np.float32(config.floor)
        assert np.all(np.diff(rates[: warm + 1]) > 0)
    assert np.all(np.diff(rates[warm:]) <= 0)
    assert (rates[-1] < rates.max()) == (SCHEDULES[name].falls and config.floor < PEAK)


def test_the_floor_is_the_lowest_rate_of_inverse_sqrt():
    rates = learning_rates(settings(schedule="inverse-sqrt", warmup_steps=4, floor=1e-3), 200)
    assert rates[16] == np.float32(PEAK / 2)
    assert rates[63] > np.float32(1e-3)
    assert set(rates[64:]) == {np.float32(1e-3)}


def test_every_schedule_is_a_row_of_the_table():
    assert tuple(SCHEDULES) == get_args(get_type_hints(OptimConfig)["schedule"]) == NAMES


def test_schedules_need_no_jax():
    code = "import sys, lrurun.config.schedules; print(sorted({'jax', 'optax', 'flax'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_run_trains_at_the_rates_of_its_schedule(name, data, monkeypatch):
    run = toy.config()
    config = msgspec.structs.replace(run.optim, schedule=name, warmup=0.3, floor=FLOOR, lr=PEAK)
    ends = {}
    for schedule in (name, "constant" if name == "cosine" else "cosine"):
        optim = msgspec.structs.replace(config, schedule=schedule)
        ends[schedule] = snapshot(msgspec.structs.replace(run, optim=optim), data)
    wanted = np.array([by_formula(name, step, 7, 5, 23) for step in range(23)], np.float32)
    monkeypatch.setattr(loop, "learning_rates", lambda *_: wanted)
    by_formulas = snapshot(run, data)
    trained, *others = ends.values()
    for leaf, expected in zip(toy.leaves(trained), toy.leaves(by_formulas), strict=True):
        np.testing.assert_allclose(leaf, expected, rtol=1e-4, atol=1e-6)
    for other in others:
        assert any(np.max(np.abs(a - b)) > 1e-4 for a, b in zip(toy.leaves(trained), toy.leaves(other), strict=True))


def snapshot(run, data):
    [end] = [event for event in loop.train(run, toy.EXECUTION, data) if isinstance(event, Ended)]
    return end.snapshot


def test_a_warm_up_and_a_cooldown_fit_into_the_training():
    refused = {
        "a warm-up cannot be longer than the training, found optim.warmup_steps = 24, train.steps = 23": {
            "warmup_steps": 24
        },
        "warm-up and cooldown cannot be longer than the training together, "
        "found optim.warmup_steps = 19, optim.cooldown = 0.2, train.steps = 23": {
            "warmup_steps": 19,
            "schedule": "wsd",
        },
    }
    run = toy.config()
    for message, changes in refused.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            msgspec.structs.replace(run, optim=settings(**changes))
        for fitting in ({"warmup_steps": 18}, {"schedule": "constant"}):
            if changes.keys() & fitting.keys():
                msgspec.structs.replace(run, optim=settings(**{"warmup_steps": 18, **changes, **fitting}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warmup": 0.2, "warmup_steps": 0}, "warmup_steps takes the place of warmup: only one of them can be set"),
        ({"cooldown": 0.1}, 'cooldown needs schedule = "wsd", found schedule = "cosine", cooldown = 0.1'),
        ({"schedule": "wsd", "cooldown": 1.0}, "warmup and cooldown must not be larger than 1 together, found warmup"),
        ({"floor": 0.1}, "floor must not be larger than lr, found floor = 0.1, lr = 0.004"),
        ({"schedule": "wsd", "cooldown": 0.0}, "Expected `float` > 0"),
        ({"warmup_steps": -1}, "Expected `int` >= 0"),
        ({"schedule": "one-cycle"}, "Invalid enum value 'one-cycle'"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(changes, message):
    with pytest.raises(msgspec.ValidationError, match=re.escape(message)):
        settings(**changes)
