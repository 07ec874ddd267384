"""How the settings of a training are worded, in plans and in methods paragraphs.

Each function returns a phrase, empty where there is nothing to say. `number` words a value of a setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lrurun.config.optimizers import OPTIMIZERS, Declaration, OptimConfig
from lrurun.config.phases import phases
from lrurun.config.schedules import SCHEDULES
from lrurun.config.schema import TrainConfig
from lrurun.errors import plural

Number = Callable[[Any], str]

FLOOR = next(field.default for field in msgspec.structs.fields(OptimConfig) if field.name == "floor")


def declaration(name: str) -> Declaration | None:
    """What is known of an optimiser; None of a plug-in that is not loaded."""
    declarations: Mapping[str, Declaration] = OPTIMIZERS
    return declarations[name] if name in declarations else None


def estimates_rate(config: OptimConfig) -> bool:
    """Whether the optimiser estimates a learning rate, which that of the schedule multiplies."""
    known = declaration(config.name)
    return known is not None and known.estimates_rate


def optimizer(config: OptimConfig, number: Number, *, every: bool) -> str:
    """The optimiser and the settings that it alone has, as "AdamW (Loshchilov and Hutter 2019) with b1 = 0.8".

    Args:
        every: whether the settings at their defaults are named too, and the paper is not.
    """
    known = declaration(config.name)
    text = config.name if known is None else known.title or config.name
    if not every and known is not None and known.source:
        text += f" ({known.source})"
    own = [
        f"{field.name} = {number(value)}"
        for field in msgspec.structs.fields(type(config))
        if field.name not in OptimConfig.__struct_fields__
        and (value := getattr(config, field.name)) is not None
        and (every or value != field.default)
    ]
    if own:
        text += f" with {_listed(own)}"
    if estimates_rate(config):
        text += ", whose estimate of the learning rate the schedule multiplies"
    return text


def schedule(config: OptimConfig, number: Number, *, steps: int | None = None) -> str:
    """The warm-up and what follows, as "a linear warm-up over the first 10 % of the steps and a cosine decay".

    Args:
        steps: the number of all steps, to name those of the parts in place of shares, and the floor where it is the
            default too. Without it, the papers are named.
    """
    row = SCHEDULES[config.schedule]
    if steps is None:
        warmup: float = config.warmup if config.warmup_steps is None else config.warmup_steps
        first = _share(config.warmup, number) if config.warmup_steps is None else _steps(config.warmup_steps)
        cooldown, last = config.cooldown, _share(config.cooldown, number)
    else:
        parts = phases(config, steps)
        warmup, first, cooldown, last = parts.warmup, _steps(parts.warmup), parts.cooldown, _steps(parts.cooldown)
    after = [part.format(last=last) for part in row.parts if cooldown or "{last}" not in part]
    names_floor = steps is not None or config.floor != FLOOR
    if names_floor and row.falls and len(after) == len(row.parts):
        after[-1] += f"{', not below' if config.schedule == 'inverse-sqrt' else ' to'} {number(config.floor)}"
    if warmup:
        beginning = f" from {number(config.floor)}" if steps is not None else ""
        after = [f"a linear warm-up{beginning} over the first {first}", *after]
    return _listed(after) + (f" ({row.source})" if row.source and steps is None else "")


def _steps(count: int) -> str:
    return "step" if count == 1 else f"{count:,} steps"


def _share(share: float, number: Number) -> str:
    return f"{number(100 * share)}\xa0% of the steps"


def decay(config: OptimConfig, number: Number) -> str:
    """The weight decay, as "a weight decay of 0.05 (recurrent parameters do not decay)"."""
    if not config.weight_decay:
        return "no weight decay"
    known = declaration(config.name)
    inside = " as a part of the gradient" if known is not None and known.is_decay_in_gradient else ""
    undecayed = [*([] if config.decay_recurrent else ["recurrent parameters"])]
    undecayed += [] if config.decay_norm_bias else ["biases", "norms"]
    but = f" ({_listed(undecayed)} do not decay)" if undecayed else ""
    return f"a weight decay of {number(config.weight_decay)}{inside}{but}"


def recurrent_rate(config: OptimConfig, number: Number) -> str:
    """The learning rate of the recurrent parameters, as "recurrent parameters at 0.5 times the learning rate"."""
    if config.recurrent_factor == 1:
        return ""
    return f"recurrent parameters at {number(config.recurrent_factor)} times the learning rate"


def clipping(config: OptimConfig, number: Number, *, source: bool = False) -> str:
    """What is done to large gradients, as "gradients clipped to a global norm of 1"."""
    if not config.clip:
        return ""
    if config.clip_by == "global-norm":
        return (
            f"gradients clipped to a global norm of {number(config.clip)}{' (Pascanu et al. 2013)' if source else ''}"
        )
    return f"the gradient of each array of parameters clipped to a root mean square of {number(config.clip)}"


def accumulation(config: OptimConfig) -> str:
    """How a batch is divided, as "gradients accumulated over 4 parts of each batch"."""
    return "" if config.accumulate == 1 else f"gradients accumulated over {config.accumulate:,} parts of each batch"


def average(config: OptimConfig, number: Number) -> str:
    """What is evaluated in place of the parameters that train, as "an exponential moving average ..."."""
    if config.average == "none":
        known = declaration(config.name)
        return (
            "parameters that are not known here, because the code of its optimiser is not"
            if known is None
            else known.evaluates
        )
    return f"an exponential moving average of the parameters with a decay of {number(config.average_decay)}"


def training(config: OptimConfig, train: TrainConfig, number: Number) -> str:
    """All of it in clauses, with numbers of steps and every setting of the optimiser, but without the peak."""
    clauses = (
        optimizer(config, number, every=True),
        f"{plural(train.steps, 'step')} on batches of {train.batch:,}",
        schedule(config, number, steps=train.steps),
        recurrent_rate(config, number),
        decay(config, number),
        clipping(config, number),
        accumulation(config),
        average(config, number),
    )
    return "; ".join(filter(None, clauses))


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
