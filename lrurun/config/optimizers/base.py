"""The settings that every optimiser has, and the declaration of one. No jax here: its class is imported on use."""

from __future__ import annotations

import pkgutil
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, Struct

Average = Annotated[float, Meta(ge=0, lt=1)]
"""The decay of an exponential moving average: the share that each step keeps."""
Epsilon = Annotated[float, Meta(gt=0, le=1)]

WARMUP = 0.1
COOLDOWN = 0.2
AVERAGE_DECAY = 0.999


class OptimConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every `[optim]` table: rates, schedule, decay, clipping, accumulation and averaging.

    A subclass has the `name` of its optimiser, and the settings that it alone has. Parameters are trained in two groups
    (Orvieto et al. 2023, appendix D): the recurrent ones, at a rate of their own, and all others.
    """

    inherited: ClassVar[bool] = False
    """Whether the values that a recipe has for a rung also hold for the rungs that change it."""
    averages_itself: ClassVar[bool] = False
    """Whether the optimiser evaluates other parameters than those that train, in place of which no average can be."""

    name: str
    """The optimiser. What it does with gradients; all settings that are not its own hold for each."""
    lr: Annotated[float, Meta(gt=0, le=10)]
    recurrent_factor: Annotated[float, Meta(gt=0, le=100)]
    """The recurrent group trains at lr * recurrent_factor."""
    weight_decay: Annotated[float, Meta(ge=0, le=10)]
    decay_norm_bias: bool = True
    """Whether biases, and the scales and biases of norms, decay like the dense maps: they do in the code of S5, but not
    in that of S4; no paper says."""
    decay_recurrent: bool = False
    """Whether the recurrent group decays too; in the LRU paper it does not."""
    warmup: Annotated[float, Meta(ge=0, lt=1)] = WARMUP
    """Fraction of the steps during which the learning rate rises."""
    warmup_steps: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """The number of these steps, in place of the fraction; 0: the first step has the learning rate itself."""
    schedule: Literal["cosine", "constant", "linear", "wsd", "inverse-sqrt"] = "cosine"
    """After the warm-up: a half cosine or a line down to `floor`; the learning rate itself; "wsd" (warm-up, stable,
    decay): the learning rate, then over the last `cooldown` a line down to `floor`; "inverse-sqrt": the learning rate
    times the root of the warm-up's steps, at least one, over the step, and at least `floor`. See
    `lrurun.config.schedules`."""
    cooldown: Annotated[float, Meta(gt=0, le=1)] = COOLDOWN
    """For schedule = "wsd": the last fraction of the steps, in which the learning rate falls."""
    floor: Annotated[float, Meta(ge=0, le=1)] = 1e-7
    """The learning rate at the first step of a warm-up, and after the last step of a schedule that falls to it; of
    "inverse-sqrt", the lowest one."""
    clip: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """The largest norm of a gradient, which is scaled down to it; 0: none."""
    clip_by: Literal["global-norm", "block-rms"] = "global-norm"
    """Which norm: the Euclidean one of all parameters together (Pascanu et al. 2013), or the root mean square of each
    array of parameters, a block in optax's words, which is then scaled alone."""
    accumulate: Annotated[int, Meta(ge=1, le=65536)] = 1
    """The number of equal parts of a batch that go through the network one after another; a step has their mean
    gradient. Less memory; without batch norm and dropout, the result of the whole batch but for rounding."""
    average: Literal["none", "ema"] = "none"
    """"ema": an exponential moving average of the parameters and norm statistics is evaluated and kept in place of the
    ones that train. It starts as a copy of these."""
    average_decay: Average = AVERAGE_DECAY
    """The share of the average that step t = 1, 2, ... keeps, where (1 + t) / (10 + t) is not smaller."""

    def __post_init__(self) -> None:
        if self.floor > self.lr:
            raise ValueError(f"floor must not be larger than lr, found floor = {self.floor}, lr = {self.lr}")
        if self.warmup_steps is not None and self.warmup != WARMUP:
            values = f"warmup = {self.warmup}, warmup_steps = {self.warmup_steps}"
            raise ValueError(f"warmup_steps takes the place of warmup: only one of them can be set, found {values}")
        if self.cooldown != COOLDOWN and self.schedule != "wsd":
            values = f'schedule = "{self.schedule}", cooldown = {self.cooldown}'
            raise ValueError(f'cooldown needs schedule = "wsd", found {values}')
        if self.schedule == "wsd" and self.warmup_steps is None and self.warmup + self.cooldown > 1:
            values = f"warmup = {self.warmup}, cooldown = {self.cooldown}"
            raise ValueError(f"warmup and cooldown must not be larger than 1 together, found {values}")
        if self.clip_by != "global-norm" and not self.clip:
            raise ValueError(f'clip_by needs clip, found clip = 0, clip_by = "{self.clip_by}"')
        if self.averages_itself and self.average != "none":
            raise ValueError(
                f"{self.name} evaluates parameters of its own: it needs "
                f'average = "none", found average = "{self.average}"'
            )
        if self.average_decay != AVERAGE_DECAY and self.average == "none":
            raise ValueError(
                f'average_decay needs average = "ema", found average = "none", average_decay = {self.average_decay}'
            )


class Declaration(Struct, frozen=True, kw_only=True):
    """The facts about an optimiser that do not need its class."""

    name: str
    settings: type[OptimConfig]
    """Its field `name` takes this name alone."""
    implementation: str | type
    """The class, as "module:Class", which is imported on use; or the class itself, for plug-ins."""
    title: str = ""
    """What texts call it, as "AdamW"; without one, its name."""
    source: str = ""
    """The papers that it is from, as "Loshchilov and Hutter 2019"."""
    estimates_rate: bool = False
    """Whether it estimates a learning rate, which that of the schedule multiplies."""
    is_decay_in_gradient: bool = False
    """As `decay_in_gradient` of its class, for texts."""
    evaluates: str = ""
    """What is evaluated in place of the parameters that train, for texts; empty where these are evaluated."""
    variants: dict[str, dict[str, Any]] = {}
    """Name -> settings that are not the default, for the conformance checks: one for each other form. Without variants,
    they are derived from the settings."""

    def load(self) -> Any:
        """The class, a subclass of `lrurun.training.optimizers.Optimizer`. This imports jax."""
        implementation = self.implementation
        return pkgutil.resolve_name(implementation) if isinstance(implementation, str) else implementation
