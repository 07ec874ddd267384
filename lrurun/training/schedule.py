"""The schedule of the learning rate: a linear warm-up, then a half cosine or a constant."""

from __future__ import annotations

import numpy as np

from lrurun.config.optimizers import OptimConfig


def learning_rates(config: OptimConfig, steps: int) -> np.ndarray:
    """The learning rate of every step, (steps,) float32.

    Linear from `config.floor` at step 0 to `config.lr` at step `round(config.warmup * steps)`, then a half cosine that
    would reach the floor at step `steps`, or `config.lr` if the schedule is constant. Computed on the host: learning
    rates are data of compiled functions, so runs that differ in them share the functions.
    """
    warm = round(config.warmup * steps)
    step = np.arange(steps, dtype=np.float64)
    rising = step / max(warm, 1)
    falling = 0.5 * (1.0 + np.cos(np.pi * (step - warm) / max(steps - warm, 1)))
    share = np.where(step < warm, rising, falling if config.schedule == "cosine" else 1.0)
    return (config.floor + (config.lr - config.floor) * share).astype(np.float32)
