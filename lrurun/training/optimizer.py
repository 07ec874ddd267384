"""AdamW in groups under one schedule (Orvieto et al. 2023, appendix D)."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
from jax import Array

from lrurun.config.schema import OptimConfig


def rates(config: OptimConfig, steps: int) -> np.ndarray:
    """The learning rate of every step, (steps,) float32.

    Linear from `config.floor` at step 0 to `config.lr` at step `round(config.warmup * steps)`, then a half cosine that
    would reach the floor at step `steps`, or `config.lr` if the schedule is constant. Computed on the host: learning
    rates are data of a program, so runs that differ in them share one.
    """
    warm = round(config.warmup * steps)
    step = np.arange(steps, dtype=np.float64)
    rising = step / max(warm, 1)
    falling = 0.5 * (1.0 + np.cos(np.pi * (step - warm) / max(steps - warm, 1)))
    share = np.where(step < warm, rising, falling if config.schedule == "cosine" else 1.0)
    return (config.floor + (config.lr - config.floor) * share).astype(np.float32)


def init(params: Any) -> Any:
    """The initial state of the optimiser: first and second moments of `params`, and a count."""
    return optax.scale_by_adam().init(params)


def update(config: OptimConfig, groups: Any, grads: Any, state: Any, params: Any, rate: Array) -> tuple[Any, Any]:
    """Parameters and optimiser state after one step of AdamW (Loshchilov and Hutter 2019).

    `groups` has the structure of `params` with "recurrent", "regular" or "undecayed" at each leaf, see `Model.groups`.
    `rate` is the learning rate, a float32 scalar; that of the recurrent group is rate * recurrent_factor. Only the
    regular group has weight decay.
    """
    adam = optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps)
    directions, state = adam.update(grads, state, params)

    def updated(group: str, param: Array, direction: Array) -> Array:
        if group == "recurrent":
            return param - rate * config.recurrent_factor * direction
        if group == "undecayed":
            return param - rate * direction
        return param - rate * (direction + config.weight_decay * param)

    return jax.tree.map(updated, groups, params, directions), state
