"""The RG-LRU (De et al. 2024, Griffin, section 2.4 and appendices A and B), and the steps to it from a real LRU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import sigmoid, softplus

from lrurun.nn.axes import Array, expand
from lrurun.nn.complex import Complex, polar
from lrurun.nn.recurrences.base import Params
from lrurun.nn.recurrences.gated import Gated, Numbers, root
from lrurun.nn.recurrences.lru import ring
from lrurun.nn.sampling import normals

C: Final = 8.0
"""The constant c of section 2.4."""


@final
class RGLRU(Gated):
    """x_k = a_k x_(k-1) + m_k i_k u_k, m_k = sqrt(1 - a_k^2), log a_k = -8 r_k softplus(Lambda), y_k = x_k.

    The gates are r = sigma(u W_a + b_a) and i = sigma(u W_x + b_x). Other settings of `decay`, `multiplier` and `first`
    are the steps from a real LRU to it.

    The maps of the gates are block-diagonal, G = `gate_blocks` blocks of neighbouring features: block g of r is
    sigma(u_g W_a,g + b_a,g) with the H / G features u_g of u.

    Trained: Lambda or nu_log (N,), the blocks W_a, W_x (G, H / G, N / G), N(0, G / H) or N(0, 1 / H), see `gate_fan`,
    and biases b_a, b_x (N,), initially zero; with `complex`, N / 2 in place of N, and theta (N / 2,), first uniform in
    [0, 0.1 pi]: the phase is r theta. With mixing = "dense", v = B u, B (N, H), takes the place of u in b, and
    y = C x + D u with C (H, N), D (H,).
    """

    @property
    def complex(self) -> bool:
        return bool(self.settings.complex)

    @property
    def numbers(self) -> int:
        return self.state // 2 if self.complex else self.state

    @property
    def _gates(self) -> str:
        return "a" * self.settings.recurrence_gate + "x" * self.settings.input_gate

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        names = {"sigmoid": set(), "softplus": {"Lambda"}, "exponential": {"nu_log"}}[self.settings.decay]
        names |= {"theta"} if self.complex else set()
        names |= {"gamma_log"} if self.settings.multiplier == "trained" else set()
        return frozenset(names | ({"B"} if self.settings.mixing == "dense" else set()))

    @property
    def undecayed_parameters(self) -> frozenset[str]:
        return frozenset({"D"} if self.settings.mixing == "dense" else ())

    @property
    def variances(self) -> Mapping[str, float]:
        of_gates = (self.settings.gate_blocks if self.settings.gate_fan == "block" else 1.0) / self.width
        dense = {"B": 1.0 / self.width, "C": 1.0 / self.state, "D": 1.0} if self.settings.mixing == "dense" else {}
        return {f"W_{name}": of_gates for name in self._gates} | dense

    def init(self, key: Array) -> Params:
        settings, n, h, blocks = self.settings, self.numbers, self.width, self.settings.gate_blocks
        key_decay, key_phase, key_normal = jax.random.split(key, 3)
        params = {f"b_{name}": jnp.zeros((n,), jnp.float32) for name in self._gates}
        u, low, high = jax.random.uniform(key_decay, (n,), jnp.float32), 0.9, 0.999
        on_ring = ring(key_decay, n, settings.r_min, settings.r_max, 1.0)[0]
        if settings.decay == "exponential":
            params["nu_log"] = jnp.log(on_ring)
        elif settings.decay == "softplus":
            rate = {
                "code": -0.5 * jnp.log(u * (high**2 - low**2) + low**2 + 1e-8),
                "paper": -jnp.log(low + u * (high - low)) / C,
                "ring": on_ring / (0.5 * C),
            }[settings.init]
            params["Lambda"] = jnp.log(jnp.expm1(rate))
        if self.complex:
            params["theta"] = 0.1 * jnp.pi * jax.random.uniform(key_phase, (n,), jnp.float32)
        if settings.multiplier == "trained":
            params["gamma_log"] = 0.5 * jnp.log(self._squared(self._log_decay(params, 0.5)))
        sizes = {"B": (n, h), "C": (h, n), "D": (h,), "W": (blocks, h // blocks, n // blocks)}
        shapes = {name: sizes[name[0]] for name in self.variances}
        return params | (normals(key_normal, shapes, self.variances) if shapes else {})

    def _argument(self, params: Params, seen: Array, name: str) -> Array:
        """The argument of a gate, (..., B, numbers)."""
        return self.blocks(seen, params[f"W_{name}"]) + expand(params[f"b_{name}"], seen.ndim)

    def _log_decay(self, params: Params, r: Array | float) -> Array:
        """log |a| for the gate r."""
        softplus_decay = self.settings.decay == "softplus"
        rate = C * softplus(params["Lambda"]) if softplus_decay else 2.0 * jnp.exp(params["nu_log"])
        return -r * (rate if isinstance(r, float) else expand(rate, r.ndim))

    def _squared(self, log_a: Array) -> Array:
        """1 - a^2 of the decay as it is used."""
        if self.settings.negative:  # 1 - (2a - 1)^2
            return -4.0 * jnp.exp(log_a) * jnp.expm1(log_a)
        return -jnp.expm1(2.0 * log_a)

    def coefficients(self, params: Params, u: Array, seen: Array, first: Array) -> tuple[Numbers, Numbers]:
        settings = self.settings
        v = self.product(u, params["B"]) if settings.mixing == "dense" else u
        k = self._argument(params, seen, "a") if settings.recurrence_gate else None
        r = 0.5 if k is None else sigmoid(k)
        log_a = self._log_decay(params, r) if k is None or settings.decay != "sigmoid" else -softplus(k)
        if settings.multiplier == "trained":
            m = jnp.exp(params["gamma_log"])
        elif settings.multiplier == "complement":
            m = -jnp.expm1(log_a)
        else:
            m = root(self._squared(self._log_decay(params, 0.5) if settings.multiplier == "fixed" else log_a))
        shape = (*u.shape[:-1], self.numbers)
        log_a, m = (x if x.ndim == u.ndim else jnp.broadcast_to(expand(x, u.ndim), shape) for x in (log_a, m))
        if settings.first == "plain":
            m = jnp.where(first[..., None], 1.0, m)
        if settings.input_gate:
            m = m * sigmoid(self._argument(params, seen, "x"))
        if not self.complex:
            return self.signed(jnp.exp(log_a)), m * v
        phase = jnp.broadcast_to(expand(params["theta"], u.ndim) * r, shape)
        return polar(-log_a, phase), m * Complex(*jnp.split(v, 2, axis=-1))

    def outputs(self, params: Params, x: Numbers, u: Array, seen: Array) -> Array:
        if isinstance(x, Complex):
            return jnp.concatenate([x.real, x.imag], axis=-1)
        if self.settings.mixing == "elementwise":
            return x
        return self.product(x, params["C"]) + expand(params["D"], u.ndim) * u

    def spectrum(self, params: Params) -> np.ndarray | None:
        """a, where no gate changes it."""
        if self.settings.recurrence_gate:
            return None
        a = np.asarray(self.signed(jnp.exp(self._log_decay(params, 0.5))), np.complex128)
        return a * np.exp(0.5j * np.asarray(params["theta"], np.float64)) if self.complex else a
