"""The parts of a training, by its schedule of the learning rate."""

from __future__ import annotations

from typing import NamedTuple

from lrurun.config.optimizers import OptimConfig


class Phases(NamedTuple):
    """The numbers of steps of the parts of a training."""

    warmup: int
    """Steps before the one that has the peak."""
    middle: int
    """Steps from the peak to the cooldown, or to the end."""
    cooldown: int
    """The last steps of the schedule "wsd"; of the others 0."""

    @property
    def steps(self) -> int:
        """All steps."""
        return sum(self)


def phases(config: OptimConfig, steps: int) -> Phases:
    """The parts of a training of `steps` steps. Shares are rounded to whole steps, half of one to the even number.

    Raises:
        ValueError: they do not fit into it.
    """
    warmup = round(config.warmup * steps) if config.warmup_steps is None else config.warmup_steps
    if warmup > steps:
        raise ValueError(
            f"a warm-up cannot be longer than the training, found optim.warmup_steps = {warmup}, train.steps = {steps}"
        )
    if config.schedule != "wsd":
        return Phases(warmup, steps - warmup, 0)
    cooldown = round(config.cooldown * steps)
    if config.warmup_steps is None:
        cooldown = min(cooldown, steps - warmup)  # both shares may be rounded up
    elif warmup + cooldown > steps:
        values = f"optim.warmup_steps = {warmup}, optim.cooldown = {config.cooldown}, train.steps = {steps}"
        raise ValueError(f"warm-up and cooldown cannot be longer than the training together, found {values}")
    return Phases(warmup, steps - warmup - cooldown, cooldown)
