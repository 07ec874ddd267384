"""The blocks of the network (Orvieto et al. 2023, figure 1 and appendix D): a recurrence and what is around it."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from lrurun.config.schema import ModelConfig
from lrurun.nn.axes import Array, Features, Mask
from lrurun.nn.network.layers import Dropout, FeedForward, Linear, ShortConvolution, norm_of
from lrurun.nn.network.switch import Switch
from lrurun.nn.recurrences import Params, Recurrence
from lrurun.nn.sampling import Shapes


class SequenceLayer(nnx.Module):
    """A recurrence with its parameters, each an attribute; what it computes is defined by its `Recurrence`."""

    def __init__(self, params: Params, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        for name, value in params.items():
            setattr(self, name, nnx.Param(value))

    def __call__(
        self, u: Features, mask: Mask | None, more: Params, counted: Array | None
    ) -> tuple[Features, Array | None]:
        """Compute outputs for inputs `u` (T, *K, B, H), and the mean norm () of the state.

        Args:
            u: inputs (T, *K, B, H), T steps of K chunks side by side.
            mask: (T, *K, B), true at real positions; without it, all are.
            more: parameters that depend on other layers, see `Recurrence.across`.
            counted: (T, B), never in chunks: true at the positions of the mean norm. Without it there is no norm; if it
                is true nowhere, the norm is 0 and costs nothing.
        """
        params = parameters(self) | more
        if counted is None:
            return self._recurrence.scan(params, u, mask), None
        y, norms = self._recurrence.scan_and_norms(params, u, mask)

        def mean() -> Array:
            return jnp.sum(jnp.where(counted, norms(), 0.0)) / jnp.sum(counted, dtype=jnp.float32)

        return y, jax.lax.cond(jnp.any(counted), mean, lambda: jnp.float32(0.0))


def parameters(layer: SequenceLayer) -> Params:
    """The arrays of a layer's parameters: no method, because parameters may have any name but `_recurrence`."""
    return {name: item[...] for name, item in vars(layer).items() if isinstance(item, nnx.Param)}


class Block(nnx.Module):
    """Norm, recurrence, GELU, dropout, GLU, dropout, and a residual connection (Orvieto et al. 2023, figure 1).

    With `ModelConfig.branch`, the recurrence has linear maps before and after it and is multiplied by a second branch,
    which take the place of GELU and GLU (De et al. 2024, figure 2). With glu = "switch" a Switch layer with a norm, a
    dropout and a residual connection of its own follows (Gupta et al. 2023, appendix A.6), and so do the layers of
    `ModelConfig.feed_forward`. With frame = "none" a block is the recurrence alone.
    """

    def __init__(self, params: Params, weights: dict[str, Array], config: ModelConfig, recurrence: Recurrence) -> None:
        """`params` are the recurrence's, `weights` the other layers', see `shapes`."""
        self.config = config
        self.recurrence = SequenceLayer(params, recurrence)
        if config.frame == "none":
            return
        linear = partial(Linear, precision=config.precision)
        self.norm = norm_of(config)
        if config.conv:
            self.conv = ShortConvolution(weights["conv"], silu=config.conv_activation == "silu")
        if config.branch != "none":
            self.inward = linear(weights["inward"])
            self.branch = linear(weights["branch"])
            self.outward = linear(weights["outward"])
        if config.glu in ("full", "half", "half2"):
            self.gate = linear(weights["glu"][0])
        if config.glu in ("full", "linear"):
            self.value = linear(weights["glu"][-1])
        if config.glu == "switch":
            self.second_norm = norm_of(config)
            self.switch = Switch(weights["router"], weights["enter"], weights["leave"], config.precision)
        if config.feed_forward:
            self.feed_norm = nnx.List(norm_of(config) for _ in range(config.feed_forward))
            self.feed = nnx.List(
                FeedForward(*layer, config.precision)
                for layer in zip(weights["feed_enter"], weights["feed_leave"], strict=True)
            )

    @staticmethod
    def shapes(config: ModelConfig) -> Shapes:
        """The shapes of the weights of the layers around the recurrence."""
        width, inner = config.width, config.inner
        maps = {"full": 2, "half": 1, "half2": 1, "linear": 1, "none": 0, "switch": 0}[config.glu]
        shapes: dict[str, tuple[int, ...]] = {"glu": (maps, width, width)}
        if config.glu == "switch":
            shapes |= Switch.shapes(width, config.experts)
        if layers := config.feed_forward:
            hidden = config.feed_forward_ratio * width
            shapes |= {"feed_enter": (layers, width, hidden), "feed_leave": (layers, hidden, width)}
        if config.conv:
            shapes["conv"] = (config.conv, inner)
        if config.branch != "none":
            shapes |= {"inward": (width, inner), "branch": (width, inner), "outward": (inner, width)}
        return shapes

    def __call__(
        self, x: Features, mask: Mask | None, more: Params, counted: Array | None, train: bool, drop: Dropout
    ) -> tuple[Features, Array | None]:
        """Compute outputs (T, *K, B, H), and the mean norm () of the state of the recurrence; see `SequenceLayer`."""
        config = self.config
        if config.frame == "none":
            return self.recurrence(x, mask, more, counted)
        is_pre = config.norm_place == "pre"

        u = self.norm(x, mask, train) if is_pre else x
        v = u if config.branch == "none" else self.inward(u)
        v = self.conv(v) if config.conv else v
        y, state_norm = self.recurrence(v, mask, more, counted)
        if config.branch != "none":
            activation = jax.nn.gelu if config.branch == "gelu" else jax.nn.silu
            y = drop(self.outward(activation(self.branch(u)) * y), 0)
        elif config.glu == "switch":
            y = drop(y, 0)
        else:
            g = drop(jax.nn.gelu(y), 0)
            y = g if config.glu == "none" else drop(self._glu(g, y), 1)
        x = x + y
        x = x if is_pre else self.norm(x, mask, train)

        if config.glu == "switch":
            u = self.second_norm(x, mask, train) if is_pre else x
            x = x + drop(self.switch(u, mask, train), 1)
            x = x if is_pre else self.second_norm(x, mask, train)

        for number in range(config.feed_forward):
            norm = self.feed_norm[number]
            x = x + drop(self.feed[number](norm(x, mask, train) if is_pre else x), 2 + number)
            x = x if is_pre else norm(x, mask, train)
        return x, state_norm

    def _glu(self, g: Features, y: Features) -> Features:
        """The gated linear unit (T, *K, B, H) of g = dropout(GELU(y)), see `ModelConfig.glu`.

        Its maps are attributes of the block, not of a module of their own, as they are named in checkpoints.
        """
        form = self.config.glu
        if form == "linear":
            return self.value(g)
        value = self.value(g) if form == "full" else g if form == "half" else y
        return value * jax.nn.sigmoid(self.gate(g))
