"""Each optimiser once more: in float64 NumPy from its paper, array by array, and in optax's own composition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import optax

from lrurun.config.optimizers import OptimConfig
from tests.harness.optims import NEEDED, optim

Arrays = dict[str, np.ndarray]
"""Dotted path of a parameter -> its array, float64."""

RECURRENCE: Any = SimpleNamespace(recurrent_parameters={"nu", "B"}, undecayed_parameters={"D", "E"})
SHAPES: dict[str, Any] = {
    "recurrence": {"nu": (3,), "B": (3, 4), "D": (4,), "E": (2, 3), "C": (4, 3)},
    "dense": {"kernel": (5, 2), "bias": (2,), "heads": (2, 2, 3)},
}
GROUPS = {
    "recurrence.nu": "recurrent", "recurrence.B": "recurrent", "recurrence.D": "undecayed",
    "recurrence.E": "undecayed", "recurrence.C": "regular",
    "dense.kernel": "regular", "dense.bias": "undecayed", "dense.heads": "regular",
}  # fmt: skip
"""Of each parameter, where `decay_norm_bias` is false: in each group one with one axis or three, and one with two."""


def settings(name: str, **changes: Any) -> OptimConfig:
    """Settings that all optimisers have, none at a value that would hide it, and `changes`."""
    common = {"lr": 0.02, "recurrent_factor": 0.25, "weight_decay": 0.3, "decay_norm_bias": False}
    return optim(name, **common | NEEDED.get(name, {}) | ({"estim_lr0": 1e-2} if name == "prodigy" else {}) | changes)


def decays(config: OptimConfig, path: str) -> float:
    group = GROUPS[path]
    return config.weight_decay if group == "regular" or (group == "recurrent" and config.decay_recurrent) else 0.0


def factor(config: OptimConfig, path: str) -> float:
    return config.recurrent_factor if GROUPS[path] == "recurrent" else 1.0


Reference = Callable[[Any, Arrays, list[Arrays], list[float]], Iterator[Arrays]]
"""settings, initial parameters, gradients and rates of each step -> the parameters after each step."""


def adam_direction(m: Any, v: Any, g: Any, step: int, b1: float, b2: float, eps: float) -> tuple[Any, Any, Any]:
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    return m, v, m / (1 - b1**step) / (np.sqrt(v / (1 - b2**step)) + eps)


def adam(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """Kingma and Ba 2015, algorithm 1, the decay in the gradient; adamw: Loshchilov and Hutter 2019, algorithm 2."""
    m, v = dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)
    for step, (grads, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        new = {}
        for path, p in params.items():
            penalty = decays(config, path) * p
            g = grads[path] + (penalty if config.name == "adam" else 0.0)
            m[path], v[path], direction = adam_direction(m[path], v[path], g, step, config.b1, config.b2, config.eps)
            if config.name == "adamw":
                direction = direction + penalty
            new[path] = p - rate * factor(config, path) * direction
        yield (params := new)


def sgd(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """Sutskever et al. 2013 in torch's form."""
    velocity = dict.fromkeys(params, 0.0)
    for grads, rate in zip(gradients, rates, strict=True):
        new = {}
        for path, p in params.items():
            g = grads[path] + decays(config, path) * p
            velocity[path] = config.momentum * velocity[path] + g
            step = g + config.momentum * velocity[path] if config.nesterov else velocity[path]
            new[path] = p - rate * factor(config, path) * step
        yield (params := new)


def lion(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """Chen et al. 2023, algorithm 2."""
    m = dict.fromkeys(params, 0.0)
    for grads, rate in zip(gradients, rates, strict=True):
        new = {}
        for path, p in params.items():
            sign = np.sign(config.b1 * m[path] + (1 - config.b1) * grads[path])
            m[path] = config.b2 * m[path] + (1 - config.b2) * grads[path]
            new[path] = p - rate * factor(config, path) * (sign + decays(config, path) * p)
        yield (params := new)


def adopt(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """Taniguchi et al. 2024, algorithm 2: the gradient of step 0 only begins v, then c_t = t^(1/4)."""
    m: Any = {path: np.zeros_like(p) for path, p in params.items()}
    v: Any = {}
    for t, (grads, rate) in enumerate(zip(gradients, rates, strict=True)):
        new = {}
        for path, p in params.items():
            g = grads[path]
            if t:
                bounded = np.clip(g / np.maximum(np.sqrt(v[path]), config.eps), -(t**0.25), t**0.25)
                m[path] = config.b1 * m[path] + (1 - config.b1) * bounded
            v[path] = config.b2 * v[path] + (1 - config.b2) * g**2 if t else g**2
            new[path] = p - rate * factor(config, path) * (m[path] + decays(config, path) * p)
        yield (params := new)


def lamb(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """You et al. 2020, algorithm 2, with phi(x) = x."""
    m, v = dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)
    for step, (grads, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        new = {}
        for path, p in params.items():
            m[path], v[path], direction = adam_direction(
                m[path], v[path], grads[path], step, config.b1, config.b2, config.eps
            )
            direction = direction + decays(config, path) * p
            norms = math.sqrt((p**2).sum()), math.sqrt((direction**2).sum())
            trust = norms[0] / norms[1] if all(norms) else 1.0
            new[path] = p - rate * factor(config, path) * trust * direction
        yield (params := new)


def muon(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """Jordan et al. 2024 by singular values: an odd polynomial of a matrix changes these alone. Moments are corrected
    as optax does (Dozat 2016). The scale: Liu et al. 2025, eq. 4."""
    m, v = dict.fromkeys(params, 0.0), dict.fromkeys(params, 0.0)
    for step, (grads, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        new = {}
        for path, p in params.items():
            g, beta = grads[path], config.beta
            if p.ndim == 2:
                m[path] = beta * m[path] + (1 - beta) * g
                direction = m[path] / (1 - beta**step)
                if config.nesterov:
                    direction = beta * m[path] / (1 - beta ** (step + 1)) + (1 - beta) * g / (1 - beta**step)
                left, s, right = np.linalg.svd(direction, full_matrices=False)
                s = s / (math.sqrt((direction**2).sum()) + config.eps)
                for _ in range(config.ns_steps):
                    s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
                rows, columns = p.shape
                scale = config.consistent_rms * math.sqrt(max(rows, columns)) or math.sqrt(max(1, columns / rows))
                direction = scale * (left * s) @ right
            else:
                m[path], v[path], direction = adam_direction(
                    m[path], v[path], g, step, config.adam_b1, config.adam_b2, config.eps
                )
            new[path] = p - rate * factor(config, path) * (direction + decays(config, path) * p)
        yield (params := new)


def schedule_free(
    config: Any, params: Arrays, gradients: list[Arrays], rates: list[float], *, evaluated: bool = False
) -> Iterator[Arrays]:
    """Defazio et al. 2024, algorithm 1: y, which trains, or x, which is evaluated."""
    z, x, y = (dict(params) for _ in range(3))
    v, total, largest = dict.fromkeys(params, 0.0), 0.0, 0.0
    for step, (grads, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        largest = max(largest, rate)
        total += largest**config.weight_lr_power
        share = largest**config.weight_lr_power / total
        for path in params:
            v[path] = config.b2 * v[path] + (1 - config.b2) * grads[path] ** 2
            direction = grads[path] / (np.sqrt(v[path] / (1 - config.b2**step)) + config.eps)
            z[path] = z[path] - rate * factor(config, path) * (direction + decays(config, path) * y[path])
            x[path] = (1 - share) * x[path] + share * z[path]
            y[path] = (1 - config.b1) * z[path] + config.b1 * x[path]
        yield dict(x if evaluated else y)


def prodigy(config: Any, params: Arrays, gradients: list[Arrays], rates: list[float]) -> Iterator[Arrays]:
    """Mishchenko and Defazio 2023, algorithm 4, with the bias correction and the decay of its published code."""
    initial, d, r = dict(params), config.estim_lr0, 0.0
    m, v, s = (dict.fromkeys(params, 0.0) for _ in range(3))
    beta3 = math.sqrt(config.b2) if config.beta3 is None else config.beta3
    for step, (grads, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        scaled = d * rate * math.sqrt(1 - config.b2**step) / (1 - config.b1**step)
        inner = sum(float((grads[path] * (initial[path] - p)).sum()) for path, p in params.items())
        r = beta3 * r + d / config.estim_lr0 * scaled * inner
        for path in params:
            g = d * grads[path]
            m[path], v[path] = config.b1 * m[path] + (1 - config.b1) * g, config.b2 * v[path] + (1 - config.b2) * g**2
            s[path] = beta3 * s[path] + (d if config.safeguard_warmup else scaled) / config.estim_lr0 * g
        new_d = max(d, config.estim_lr_coef * r / sum(float(np.abs(s[path]).sum()) for path in params))
        params = {
            path: p - scaled * (m[path] / (np.sqrt(v[path]) + new_d * config.eps) + decays(config, path) * p)
            for path, p in params.items()
        }
        d = new_d
        yield params


REFERENCES: dict[str, Reference] = {
    "adamw": adam, "adam": adam, "sgd": sgd, "lion": lion, "muon": muon, "adopt": adopt,
    "schedule_free_adamw": schedule_free, "prodigy": prodigy, "lamb": lamb,
}  # fmt: skip


def composition(config: Any, schedule: Callable[[Any], Any]) -> optax.GradientTransformation:
    """The whole optimiser by optax alone, a copy of it for each group, with the rates `schedule` of steps 0, 1, ..."""

    def of(group: str) -> optax.GradientTransformation:
        decay = decays(config, next(path for path in GROUPS if GROUPS[path] == group))
        share = config.recurrent_factor if group == "recurrent" else 1.0

        def rate(step: Any) -> Any:
            return share * schedule(step)

        if config.name == "adamw":
            return optax.adamw(rate, config.b1, config.b2, config.eps, weight_decay=decay)
        if config.name == "adam":
            return optax.chain(optax.add_decayed_weights(decay), optax.adam(rate, config.b1, config.b2, config.eps))
        if config.name == "sgd":
            sgd = optax.sgd(rate, config.momentum or None, config.nesterov)
            return optax.chain(optax.add_decayed_weights(decay), sgd)
        if config.name == "lion":
            return optax.lion(rate, config.b1, config.b2, weight_decay=decay)
        if config.name == "lamb":
            return optax.lamb(rate, config.b1, config.b2, config.eps, weight_decay=decay)
        if config.name == "adopt":
            return optax.contrib.adopt(rate, config.b1, config.b2, config.eps)
        if config.name == "muon":
            return optax.contrib.muon(
                rate, beta=config.beta, eps=config.eps, ns_steps=config.ns_steps, nesterov=config.nesterov,
                adam_b1=config.adam_b1, adam_b2=config.adam_b2, consistent_rms=config.consistent_rms or None,
                weight_decay=decay, adam_weight_decay=decay,
            )  # fmt: skip
        return optax.contrib.schedule_free_adamw(
            rate(0), b1=config.b1, b2=config.b2, eps=config.eps, weight_decay=decay,
            weight_lr_power=config.weight_lr_power,
        )  # fmt: skip

    if config.name == "prodigy":  # one estimate for all
        return optax.contrib.prodigy(
            schedule, (config.b1, config.b2), config.beta3, config.eps, config.estim_lr0, config.estim_lr_coef,
            config.weight_decay, config.safeguard_warmup,
        )  # fmt: skip
    return optax.partition({group: of(group) for group in sorted(set(GROUPS.values()))}, tree(GROUPS))


def paths(nested: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(nested, is_leaf=lambda x: isinstance(x, tuple))
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def tree(flat: dict[str, Any]) -> Any:
    nested: Any = {}
    for path, leaf in flat.items():
        outer, name = path.split(".")
        nested.setdefault(outer, {})[name] = leaf
    return nested
