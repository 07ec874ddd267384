"""Schedule-free AdamW."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from lrurun.config.optimizers.base import Average, Declaration, Epsilon, OptimConfig


class ScheduleFreeAdamW(OptimConfig, frozen=True, kw_only=True):
    """AdamW that evaluates an average of its iterates, without a falling rate (Defazio et al. 2024, algorithm 1).

    Its momentum is an interpolation with that average. Defaults of that paper and of optax.
    """

    averages_itself: ClassVar[bool] = True

    name: Literal["schedule_free_adamw"]
    b1: Annotated[float, Meta(ge=0.01, lt=1)] = 0.9
    """The share of the average x in y = b1 x + (1 - b1) z, at which gradients are taken. Only y and z are kept, so that
    x = (y - (1 - b1) z) / b1 has the errors of float32 divided by b1: smaller values are refused."""
    b2: Average = 0.999
    eps: Epsilon = 1e-8
    weight_lr_power: Annotated[float, Meta(ge=0, le=10)] = 2.0
    """A step's weight in the average is the largest learning rate until then to this power."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule != "constant":
            raise ValueError(
                "schedule_free_adamw averages in place of a falling learning rate: it needs"
                f' schedule = "constant", found schedule = "{self.schedule}"'
            )


DECLARATIONS = [
    Declaration(
        name="schedule_free_adamw",
        settings=ScheduleFreeAdamW,
        implementation="lrurun.training.optimizers.schedule_free:ScheduleFreeAdamW",
        title="schedule-free AdamW",
        source="Defazio et al. 2024",
        evaluates="the optimiser's own average of its iterates",
    )
]
