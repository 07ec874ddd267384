"""minGRU and minLSTM (Feng et al. 2024, "Were RNNs all we needed?").

Their gates see the input and not the state, so that all steps can be computed at once.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid, sigmoid

from lrurun.nn.axes import Array, expand
from lrurun.nn.recurrences.base import Params
from lrurun.nn.recurrences.gated import Gated, Numbers
from lrurun.nn.sampling import normals


class Minimal(Gated):
    """h = a h + b with N real numbers, y = C h + b_C; gates and candidate are maps (N, H), N(0, 1 / H), with biases."""

    gates: ClassVar[str]
    """The letters of the gates' maps."""

    @property
    def _maps(self) -> str:
        return self.gates + "h"

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset()

    @property
    def variances(self) -> Mapping[str, float]:
        maps = {f"W_{name}": 1.0 / self.width for name in self._maps}
        return maps | ({"C": 1.0 / self.state} if self.settings.readout else {})

    def init(self, key: Array) -> Params:
        n, h = self.state, self.width
        params = {f"b_{name}": jnp.zeros((n,), jnp.float32) for name in self._maps}
        params |= {"b_C": jnp.zeros((h,), jnp.float32)} if self.settings.readout else {}
        sizes = {"C": (h, n), "h0": (n,)}
        shapes = {name: sizes.get(name, (n, h)) for name in self.variances}
        return params | normals(key, shapes, self.variances)

    def argument(self, params: Params, u: Array, name: str) -> Array:
        return self.product(u, params[f"W_{name}"]) + expand(params[f"b_{name}"], u.ndim)

    def outputs(self, params: Params, x: Numbers, u: Array, seen: Array) -> Array:
        return self.product(x, params["C"]) + expand(params["b_C"], u.ndim) if self.settings.readout else x


def positive(x: Array) -> Array:
    """g(x) of appendix B: x + 1/2, or sigma(x) below 0."""
    return jnp.where(x >= 0.0, x + 0.5, sigmoid(x))


def log_positive(x: Array) -> Array:
    """log g(x), accurate where g is small."""
    return jnp.where(x >= 0.0, jnp.log(jnp.maximum(x, 0.0) + 0.5), log_sigmoid(x))


class Positive(Minimal):
    """h = a h + b h~ with a and b from gates; with form = "log-space" from sums of logarithms (appendix B)."""

    @abc.abstractmethod
    def log_gates(self, params: Params, seen: Array) -> tuple[Array, Array]:
        """log a and log b of what the gates see."""

    @property
    def _maps(self) -> str:
        return self.gates + ("" if self.settings.candidate == "input" else "h")

    @property
    def undecayed_parameters(self) -> frozenset[str]:
        return frozenset({"h0"} if self.settings.initial == "learned" else ())

    @property
    def variances(self) -> Mapping[str, float]:
        return {**super().variances, **({"h0": 1.0} if self.settings.initial == "learned" else {})}

    def chunks(self, length: int, batch: int) -> int:
        return 1 if self.settings.form == "log-space" else super().chunks(length, batch)

    def start(self, params: Params) -> Array | None:
        if self.settings.initial == "zero":
            return None
        return positive(params["h0"]) if self.settings.candidate == "positive" else params["h0"]

    def coefficients(self, params: Params, u: Array, seen: Array, first: Array) -> tuple[Numbers, Numbers]:
        a, b = map(jnp.exp, self.log_gates(params, seen))
        candidate = u if self.settings.candidate == "input" else self.argument(params, u, "h")
        return self.signed(a), b * (positive(candidate) if self.settings.candidate == "positive" else candidate)

    def states(self, params: Params, u: Array, seen: Array, first: Array, before: Array | None) -> Numbers:
        if self.settings.form == "plain":
            return super().states(params, u, seen, first, before)
        log_a, log_b = self.log_gates(params, seen)
        log_b = log_b + log_positive(self.argument(params, u, "h"))
        if before is not None:
            least = jnp.finfo(before.dtype).tiny  # 0 has no logarithm; no other state is as small
            kept = log_a[:1] + jnp.log(jnp.maximum(before, least))[None]
            log_b = jnp.concatenate([jnp.logaddexp(kept, log_b[:1]), log_b[1:]])
        total = jnp.cumsum(log_a, axis=0)
        return jnp.exp(total + jax.lax.cumlogsumexp(log_b - total, axis=0))


@final
class MinGRU(Positive):
    """h = (1 - z) h + z h~, z = sigma(W_z u + b_z)."""

    gates = "z"

    def log_gates(self, params: Params, seen: Array) -> tuple[Array, Array]:
        k = self.argument(params, seen, "z")
        return log_sigmoid(-k), log_sigmoid(k)


@final
class MinLSTM(Positive):
    """h = f h + i h~, f = sigma(W_f u + b_f), i = sigma(W_i u + b_i), divided by f + i if they are normalised."""

    gates = "fi"

    def init(self, key: Array) -> Params:
        params = super().init(key)
        return params | {"b_f": params["b_f"] + self.settings.forget_bias}

    def log_gates(self, params: Params, seen: Array) -> tuple[Array, Array]:
        f, i = (log_sigmoid(self.argument(params, seen, name)) for name in "fi")
        return (log_sigmoid(f - i), log_sigmoid(i - f)) if self.settings.normalised else (f, i)
