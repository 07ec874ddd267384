"""S6, the selective state space of Mamba (Gu and Dao 2023), and the decay per head of Mamba-2 (Dao and Gu 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from lrurun.nn.axes import Array, expand
from lrurun.nn.recurrences.base import Params
from lrurun.nn.recurrences.gated import Gated, Numbers

SHORTEST = 1e-4
"""Least initial Delta."""


@final
class S6(Gated):
    """x_n = exp(Delta A_n) x_n + Delta B_n u, y = sum C_n x_n + D u, for each of H channels, n = 1 ... N.

    Delta = softplus(W_dt W_r u + b_dt) with W_r (R, H), W_dt (H, R); B = W_B u, C = W_C u with maps (N, H). Maps are
    first uniform in +-1 / sqrt(fan-in). A = -exp(A_log) (H, N), first -1 ... -N; D (H,), ones; b_dt (H,). With
    `heads`, A_log, b_dt and D are (heads,), and the initial A is uniform in [-16, -1].
    """

    @property
    def numbers(self) -> int:
        return self.width * self.state

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({"A_log", "b_dt"})

    @property
    def undecayed_parameters(self) -> frozenset[str]:
        return frozenset({"D"} if self.settings.skip else ())

    @property
    def _maps(self) -> dict[str, tuple[int, int]]:
        """The maps of the input, (out, in) each."""
        settings, h, steps = self.settings, self.width, self.settings.heads or self.width
        rank = settings.rank or -(-h // 16)
        of_delta = {
            "low-rank": {"W_r": (rank, h), "W_dt": (steps, rank)},
            "dense": {"W_dt": (steps, h)},
            "constant": {},
        }[settings.delta]
        chosen = {"W_B": settings.b, "W_C": settings.c}
        return of_delta | {name: (self.state, h) for name, kind in chosen.items() if kind == "selective"}

    @property
    def variances(self) -> Mapping[str, float]:
        return {name: 1.0 / (3.0 * shape[1]) for name, shape in self._maps.items()}

    def init(self, key: Array) -> Params:
        settings, h, n, heads = self.settings, self.width, self.state, self.settings.heads
        key_maps, key_steps, key_decay, key_c = jax.random.split(key, 4)
        keys = jax.random.split(key_maps, 4)
        params = {
            name: jax.random.uniform(k, shape, jnp.float32, -1.0, 1.0) / shape[1] ** 0.5
            for k, (name, shape) in zip(keys, self._maps.items(), strict=False)
        }
        ends = np.log([settings.dt_min, settings.dt_max])
        dt = jnp.exp(jax.random.uniform(key_steps, (heads or h,), jnp.float32, *map(float, ends)))
        dt = jnp.maximum(dt, SHORTEST)
        params["b_dt"] = dt + jnp.log(-jnp.expm1(-dt))  # softplus of it is dt
        if heads:
            params["A_log"] = jnp.log(jax.random.uniform(key_decay, (heads,), jnp.float32, 1.0, 16.0))
        else:
            params["A_log"] = jnp.tile(jnp.log(jnp.arange(1, n + 1, dtype=jnp.float32))[None], (h, 1))
        if settings.b == "constant":
            params["B"] = jnp.ones((h, n), jnp.float32)
        if settings.c == "constant":
            params["C"] = jax.random.normal(key_c, (h, n), jnp.float32) if n > 1 else jnp.ones((h, 1), jnp.float32)
        return params | ({"D": jnp.ones((heads or h,), jnp.float32)} if settings.skip else {})

    def _matrix(self, params: Params, name: str, seen: Array) -> Array:
        """B or C, (..., B, 1, N) if it is selective, and else (1, ..., H, N)."""
        if {"B": self.settings.b, "C": self.settings.c}[name] == "constant":
            return expand(params[name], seen.ndim + 1)
        return self.product(seen, params[f"W_{name}"])[..., None, :]

    def _expanded(self, heads: Array) -> Array:
        """Numbers (..., heads) of heads, repeated for each channel: (..., H)."""
        count = heads.shape[-1]
        return heads if count == self.width else jnp.repeat(heads, self.width // count, axis=-1)

    def coefficients(self, params: Params, u: Array, seen: Array, first: Array) -> tuple[Numbers, Numbers]:
        delta = expand(params["b_dt"], u.ndim)
        if self.settings.delta != "constant":
            low = self.product(seen, params["W_r"]) if self.settings.delta == "low-rank" else seen
            delta = delta + self.product(low, params["W_dt"])
        delta = self._expanded(jax.nn.softplus(delta))[..., None]
        rate = -jnp.exp(params["A_log"])
        rate = expand(self._expanded(rate)[:, None] if self.settings.heads else rate, u.ndim + 1)
        decay = delta * rate
        b = delta if self.settings.discretization == "euler" else jnp.expm1(decay) / rate
        b = b * self._matrix(params, "B", seen) * u[..., None]
        shape = (*u.shape, self.state)
        a, b = (jnp.broadcast_to(x, shape).reshape(*u.shape[:-1], -1) for x in (self.signed(jnp.exp(decay)), b))
        return a, b

    def outputs(self, params: Params, x: Numbers, u: Array, seen: Array) -> Array:
        y = jnp.sum(x.reshape(*u.shape, self.state) * self._matrix(params, "C", seen), axis=-1)
        return y + expand(self._expanded(params["D"]), u.ndim) * u if self.settings.skip else y

    def spectrum(self, params: Params) -> np.ndarray | None:
        """exp(Delta A), where Delta does not depend on the input."""
        if self.settings.delta != "constant":
            return None
        zero = jnp.zeros((1, self.width), jnp.float32)
        unit_input = zero if self.settings.b == "constant" else zero + 1.0
        a, _ = self.coefficients(params, unit_input, unit_input, jnp.zeros((1,), bool))
        return np.asarray(a, np.complex128).ravel()
