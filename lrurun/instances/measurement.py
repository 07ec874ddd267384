"""Time and memory of a rung, as `lrurun plan --measure` finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from lrurun.config.schema import TrainConfig


class Measurement(Struct, frozen=True, kw_only=True):
    """Time and memory of the training steps and evaluations of a rung, on this machine."""

    device: str
    parameters: int
    seconds_per_step: float
    """The median of several dispatches."""
    steps: int
    """Training steps that were timed."""
    seconds_per_evaluation: float
    """On the validation split."""
    compile_seconds: float
    """0 or little where the cache has the programs."""
    training_bytes: int
    """Memory that XLA plans for arguments, with the training data that are on the device, and temporaries, on each
    device."""
    evaluation_bytes: int
    synthetic: bool
    """Whether the inputs were random ones of the task's shapes, because its data are not prepared."""

    def seconds(self, train: TrainConfig) -> float:
        """The time of a run, without compiling."""
        evaluations = -(-train.steps // train.eval_every)
        return train.steps * self.seconds_per_step + evaluations * self.seconds_per_evaluation
