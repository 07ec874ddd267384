"""The schedules of the learning rate. Training, plans, figures and reports take them from here; no jax is needed.

A new schedule needs a function and a row of `SCHEDULES`, its name among the values of `OptimConfig.schedule`, and its
formula in the documentation, `tests/docs/schedules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from lrurun.config.optimizers import OptimConfig
from lrurun.config.phases import Phases, phases


class Schedule(NamedTuple):
    """The learning rate after the warm-up."""

    rates: Callable[[OptimConfig, Phases, np.ndarray], np.ndarray]
    """(settings, phases, steps from the end of the warm-up on, as float64) -> the rates at these, of the same shape."""
    parts: tuple[str, ...]
    """What the rate does, for texts; `{last}` stands for the part of the steps that the cooldown has."""
    source: str = ""
    """The papers that it is from, as "Hu et al. 2024"."""
    falls: bool = True
    """Whether the rate ends below its peak."""


def learning_rates(config: OptimConfig, steps: int) -> np.ndarray:
    """The learning rate of every step, (steps,) float32, outside the recurrent group.

    A line from `config.floor` at step 0 to `config.lr` at the end of the warm-up, as `optax.linear_schedule`, then the
    schedule. One that falls to the floor would reach it at step `steps`, after the last. Computed on the host: learning
    rates are data of compiled functions, so runs that differ in them share the functions.

    Raises:
        ValueError: warm-up and cooldown do not fit into the steps.
    """
    parts = phases(config, steps)
    step = np.arange(steps, dtype=np.float64)
    rising = _between(config, step / max(parts.warmup, 1))
    after = SCHEDULES[config.schedule].rates(config, parts, step)
    return np.where(step < parts.warmup, rising, after).astype(np.float32)


def _between(config: OptimConfig, share: np.ndarray) -> np.ndarray:
    """From the floor, where the share is 0, to the peak, where it is 1."""
    return config.floor + (config.lr - config.floor) * share


def _cosine(config: OptimConfig, parts: Phases, step: np.ndarray) -> np.ndarray:
    """Equation 5 of Loshchilov and Hutter (2017), without restarts."""
    progress = np.pi * (step - parts.warmup) / max(parts.middle, 1)
    return _between(config, 0.5 * (1.0 + np.cos(progress)))


def _constant(config: OptimConfig, parts: Phases, step: np.ndarray) -> np.ndarray:
    return _between(config, np.ones_like(step))


def _linear(config: OptimConfig, parts: Phases, step: np.ndarray) -> np.ndarray:
    return _between(config, 1.0 - (step - parts.warmup) / max(parts.middle, 1))


def _wsd(config: OptimConfig, parts: Phases, step: np.ndarray) -> np.ndarray:
    """Section 4.2 of Hu et al. (2024), with the linear cooldown of Hägele et al. (2024), section 3."""
    left = (parts.steps - step) / max(parts.cooldown, 1)
    share: np.ndarray = np.minimum(left, 1.0)
    return _between(config, share)


def _inverse_sqrt(config: OptimConfig, parts: Phases, step: np.ndarray) -> np.ndarray:
    """Equation 3 of Vaswani et al. (2017), whose constant is `config.lr` times the root of the warm-up's steps.

    Without a warm-up, it is that of a warm-up of one step, which falls after step 1.
    """
    peak_at = max(parts.warmup, 1)
    rates: np.ndarray = np.maximum(config.lr * np.sqrt(peak_at / np.maximum(step, peak_at)), config.floor)
    return rates


SCHEDULES: Mapping[str, Schedule] = {
    "cosine": Schedule(_cosine, ("a cosine decay",), "Loshchilov and Hutter 2017"),
    "constant": Schedule(_constant, ("a constant rate",), falls=False),
    "linear": Schedule(_linear, ("a linear decay",)),
    "wsd": Schedule(
        _wsd,
        ("a constant rate", "a linear decay over the last {last}"),
        "Hu et al. 2024; Hägele et al. 2024",
    ),
    "inverse-sqrt": Schedule(_inverse_sqrt, ("an inverse square-root decay",), "Vaswani et al. 2017"),
}
"""The value of `optim.schedule` -> the schedule."""
