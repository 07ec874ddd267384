"""The cell of HGRN (Qin et al. 2023, "Hierarchically Gated Recurrent Neural Network for Sequence Modeling"), real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp
from jax.nn import sigmoid

from lrurun.nn.axes import Array, expand
from lrurun.nn.recurrences.base import Params
from lrurun.nn.recurrences.gated import Numbers
from lrurun.nn.recurrences.min_gru import Minimal


@final
class HGRN(Minimal):
    """h = l h + (1 - l) SiLU(W_h u + b_h), l = g + (1 - g) sigma(W_z u + b_z) with the bound g of the layer.

    g is the sum of the softmax over layers of Gamma (N,), initially zero, up to this layer, without the first layer.
    """

    gates = "z"

    @property
    def recurrent_parameters(self) -> frozenset[str]:
        return frozenset({"Gamma"} if self.settings.bound == "layer" else ())

    def init(self, key: Array) -> Params:
        bound = {"Gamma": jnp.zeros((self.state,), jnp.float32)} if self.settings.bound == "layer" else {}
        return super().init(key) | bound

    def across(self, layers: Sequence[Params]) -> list[Params] | None:
        if self.settings.bound == "none":
            return None
        shares = jax.nn.softmax(jnp.stack([params["Gamma"] for params in layers]), axis=0)
        bounds = jnp.cumsum(shares, axis=0) - shares[:1]
        return [{"bound": bound} for bound in bounds]

    def coefficients(self, params: Params, u: Array, seen: Array, first: Array) -> tuple[Numbers, Numbers]:
        k = self.argument(params, seen, "z")
        # without the other layers, as the only one: 0
        bound = expand(params["bound"], u.ndim) if "bound" in params else 0.0
        rest = (1.0 - bound) * sigmoid(-k)
        return self.signed(1.0 - rest), rest * jax.nn.silu(self.argument(params, u, "h"))
