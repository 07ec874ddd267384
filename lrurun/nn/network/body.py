"""The network around a recurrence (Orvieto et al. 2023, figure 1 and appendix D) as Flax modules.

Inside, sequences are time-major, (T, B, H). Inputs are transposed once, while they are still small integers; so are the
chunks of a sequence that a recurrence processes side by side, (T, K, B, H).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn.network import switch
from lrurun.nn.network.layers import Linear, ShortConvolution, expand, lecun_normals, norm_of
from lrurun.nn.recurrences import Recurrence
from lrurun.nn.sampling import Shapes
from lrurun.nn.scan import join, split

Tree = dict[str, Any]
"""Nested dictionaries of arrays."""


Places = int | Array
"""The positions that are decoded: the number of the last ones; or (B, K) their indices, counted from 0."""

Drop = Callable[[Array, int], Array]
"""Applies dropout to (..., B, H); the number is its place in the block, 0 or 1."""


_DENSE_MAPS = {"full": 2, "half": 1, "half2": 1, "linear": 1, "none": 0, "switch": 0}
"""Kind of GLU -> how many dense maps it has."""


class Block(nnx.Module):
    """x + dropout(GLU(dropout(GELU(recurrence(norm(x)))))), or with the norm outside; see `ModelConfig.glu`.

    With a branch it is x + dropout(outward(GELU(branch(norm(x))) recurrence(conv(inward(norm(x)))))), see
    `ModelConfig.branch`. With glu = "switch" it is z = x + dropout(recurrence(norm(x))), then
    z + dropout(Switch(second_norm(z))). With frame = "none" it is the recurrence alone.
    """

    def __init__(
        self,
        params: Tree,
        weights: Array | None,
        extra: dict[str, Array],
        config: ModelConfig,
        recurrence: Recurrence,
    ) -> None:
        """`params` are those of the recurrence, `weights` (1 or 2, H, H) those of the GLU, None if it has none.

        `extra` are the weights of the Switch layer, of the convolution and of the branch, none without them.
        """
        self.config = config
        self.layer = recurrence
        if config.frame == "blocks":
            self.norm = norm_of(config)
        self.recurrence = nnx.Dict({name: nnx.Param(value) for name, value in params.items()})
        if weights is not None and config.glu != "linear":
            self.gate = Linear(weights[0], config.precision)
        if weights is not None and config.glu in ("full", "linear"):
            self.value = Linear(weights[-1], config.precision)
        if "conv" in extra:
            self.conv = ShortConvolution(extra.pop("conv"), config.conv_activation == "silu")
        if config.branch != "none":
            self.inward, self.branch, self.outward = (
                Linear(extra.pop(name), config.precision) for name in ("inward", "branch", "outward")
            )
        if extra:
            self.second_norm = norm_of(config)
            self.switch = switch.Switch(extra, config.precision)

    def parameters(self) -> Tree:
        """The parameters of the recurrence."""
        return {name: param[...] for name, param in self.recurrence.items()}

    def __call__(self, x: Array, mask: Array | None, train: bool, drop: Drop, more: Tree | None = None) -> Array:
        """`more` are parameters of the recurrence that depend on those of other blocks, see `Recurrence.across`."""
        params = self.parameters() | (more or {})
        if self.config.frame == "none":
            return self.layer.scan(params, x, mask)
        before = self.config.norm_place == "pre"
        y = self._mixed(params, self.norm(x, mask, train) if before else x, mask)
        plain = self.config.glu == "switch" or self.config.branch != "none"
        z = x + (drop(y, 0) if plain else self._gated(y, drop))
        z = z if before else self.norm(z, mask, train)
        return self._switched(z, mask, train, drop) if self.config.glu == "switch" else z

    def _mixed(self, params: Tree, x: Array, mask: Array | None) -> Array:
        """The recurrence with the convolution and the branch around it, if there are any."""
        kind = self.config.branch
        y = x if kind == "none" else self.inward(x)
        y = self.layer.scan(params, self.conv(y) if self.config.conv else y, mask)
        if kind == "none":
            return y
        gate = self.branch(x)
        return self.outward((jax.nn.gelu(gate) if kind == "gelu" else jax.nn.silu(gate)) * y)

    def _switched(self, x: Array, mask: Array | None, train: bool, drop: Drop) -> Array:
        before = self.config.norm_place == "pre"
        y = self.switch(self.second_norm(x, mask, train) if before else x, mask, train)
        z = x + drop(y, 1)
        return z if before else self.second_norm(z, mask, train)

    def _gated(self, y: Array, drop: Drop) -> Array:
        active = drop(jax.nn.gelu(y), 0)
        kind = self.config.glu
        if kind == "none":
            return active
        if kind == "linear":
            return drop(self.value(active), 1)
        value = self.value(active) if kind == "full" else y if kind == "half2" else active
        return drop(value * jax.nn.sigmoid(self.gate(active)), 1)


def _mixing_shapes(config: ModelConfig) -> Shapes:
    """The weights of all convolutions and branches."""
    depth, width, inner = config.depth, config.width, config.inner
    shapes: dict[str, tuple[int, ...]] = {"conv": (depth, config.conv, inner)} if config.conv else {}
    if config.branch != "none":
        shapes |= {"inward": (depth, width, inner), "branch": (depth, width, inner), "outward": (depth, inner, width)}
    return shapes


class Network(nnx.Module):
    """Encoder, blocks, an optional final norm, pooling over real positions unless each is decoded, head."""

    def __init__(self, key: Array, config: ModelConfig, spec: Spec, recurrence: Recurrence, remat: bool) -> None:
        self.config = config
        self.remat = remat
        self.spec = spec
        self.recurrence = recurrence
        width, depth, maps = config.width, config.depth, _DENSE_MAPS[config.glu]
        framed = config.frame == "blocks"
        key_recurrence, key_weights = jax.random.split(key)
        shapes = {
            "encoder": (spec.features, width),
            "glu": (depth, maps, width, width),
            "head": (width, spec.classes),
        }
        if spec.pair:
            shapes["hidden"] = (4 * width, width)
        experts = switch.shapes(depth, width, config.experts) if config.glu == "switch" and framed else {}
        extra = {**experts, **_mixing_shapes(config)}
        weights = lecun_normals(key_weights, {**shapes, **extra})
        # a loop, so that the initialisation of one block is compiled, not of `depth` blocks
        params = jax.lax.map(recurrence.init, jax.random.split(key_recurrence, depth))
        if framed:
            self.encoder = Linear(weights["encoder"], config.precision)
            self.head = Linear(weights["head"], config.precision)
        self.blocks = nnx.List(
            [
                Block(
                    {name: x[i] for name, x in params.items()},
                    weights["glu"][i] if maps and framed else None,
                    {name: weights[name][i] for name in extra},
                    config,
                    recurrence,
                )
                for i in range(depth)
            ]
        )
        if config.final_norm:
            self.final = norm_of(config)
        if spec.pair:
            self.hidden = Linear(weights["hidden"], config.precision)

    def __call__(
        self, inputs: Array, lengths: Array | None, train: bool, key: Array | None, places: Places | None = None
    ) -> Array:
        if self.spec.pair:
            # both documents in one batch: all first ones, then all second ones
            inputs = inputs.swapaxes(0, 1).reshape(-1, *inputs.shape[2:])
            lengths = None if lengths is None else lengths.swapaxes(0, 1).reshape(-1)
        inputs = inputs.swapaxes(0, 1)
        mask = last = None
        if lengths is not None:
            steps, ends = jnp.arange(inputs.shape[0])[:, None], lengths.astype(jnp.int32)[None, :]
            mask = steps < ends
            last = steps == ends - 1 if self.config.pooling == "last" else None
        if self.spec.kind == "features" and inputs.ndim == 2:
            inputs = inputs[..., None]
        # everything else is pointwise in time, so the chunks that the recurrence wants are laid out once, here
        chunks = 1 if self.config.conv else self.recurrence.chunks(*inputs.shape[:2])
        if chunks > 1:
            inputs = split(inputs, chunks)
            mask = None if mask is None else split(mask, chunks)
            last = None if last is None else split(last, chunks)
        within = mask if self.config.parity == "none" else None
        x = self._encode(inputs)
        drops = self._drops(x, key if train else None)

        def through(drop: Drop, block: Block, x: Array, mask: Array | None, more: Tree | None = None) -> Array:
            return block(x, mask, train, drop, more)

        added = self.recurrence.across([block.parameters() for block in self.blocks])
        for i, (block, drop) in enumerate(zip(self.blocks, drops, strict=True)):
            call = partial(through, drop)
            x = (nnx.remat(call) if self.remat else call)(block, x, within, *([added[i]] if added else []))
        if self.config.final_norm:
            x = self.final(x, within, train)
        if self.spec.output.at == "positions":
            return self._decode(x, x[..., 0, 0].size if places is None else places)
        pooled = self._pool(x, mask if last is None else last)
        if self.spec.pair:
            a, b = jnp.split(pooled, 2)
            activation = jax.nn.gelu if self.config.head_activation == "gelu" else jax.nn.relu
            pooled = activation(self.hidden(jnp.concatenate([a, b, a - b, a * b], axis=-1)))
        return self._head(pooled)

    def _head(self, x: Array) -> Array:
        y: Array = self.head(x) if self.config.frame == "blocks" else x
        return y

    def _decode(self, x: Array, places: Places) -> Array:
        """(B, K, classes): the head at K positions, where nothing else is computed."""
        x = join(x) if x.ndim == 4 else x
        chosen = (
            x[len(x) - places :] if isinstance(places, int) else jnp.take_along_axis(x, places.T[..., None], axis=0)
        )
        return self._head(chosen).swapaxes(0, 1)

    def _drops(self, like: Array, key: Array | None) -> list[Drop]:
        """The dropout of each block, for arrays like `like`; none without a key."""
        rate, depth = self.config.dropout, self.config.depth
        if rate == 0.0 or key is None:
            return [lambda x, place: x] * depth
        batch, width = like.shape[-2:]

        def factor(key: Array, shape: tuple[int, ...]) -> Array:
            return jax.random.bernoulli(key, 1.0 - rate, shape).astype(jnp.float32) / (1.0 - rate)

        if self.config.dropout_mask == "sequence":
            factors = factor(key, (depth, 2, batch, width))  # sampled together: the generator is slow to compile
            return [lambda x, place, pair=pair: x * expand(pair[place], x) for pair in factors]  # type: ignore[misc]

        def drop(x: Array, place: int, block: int) -> Array:
            mask = factor(jax.random.fold_in(key, 2 * block + place), (x[..., 0, 0].size, batch, width))
            return x * (split(mask, x.shape[1]) if x.ndim == 4 else mask)

        return [partial(drop, block=block) for block in range(depth)]

    def _encode(self, inputs: Array) -> Array:
        if self.spec.kind == "tokens":
            y: Array = self.encoder.embed(inputs)
            return y
        x = inputs.astype(jnp.float32) * self.spec.scale
        if self.spec.mean:
            x = x - expand(jnp.asarray(self.spec.mean, jnp.float32), x)
        if self.spec.std:
            x = x / expand(jnp.asarray(self.spec.std, jnp.float32), x)
        z: Array = self.encoder(x) if self.config.frame == "blocks" else x
        return z

    def _pool(self, x: Array, mask: Array | None) -> Array:
        """Mean, maximum or sum over the positions where the mask is true, (B, H); zero if there are none.

        For pooling = "last" the mask is true only at the last position. Without a mask all positions are real.
        """
        times = tuple(range(x.ndim - 2))
        if self.config.pooling == "last":
            # of chunks side by side, the last step of the last one
            return x[(-1,) * len(times)] if mask is None else jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=times)
        if self.config.pooling == "max":
            seen = x if mask is None else jnp.where(mask[..., None], x, jnp.finfo(x.dtype).min)
            # by its index: the gradient of `max` compares x with it, and a fused program may round x differently there
            place = jnp.argmax(seen.reshape(-1, *x.shape[-2:]), axis=0)
            largest = jnp.take_along_axis(x.reshape(-1, *x.shape[-2:]), place[None], axis=0)[0]
            return largest if mask is None else jnp.where(jnp.any(mask, axis=times)[:, None], largest, 0.0)
        if mask is None:
            return jnp.mean(x, axis=times)
        count = jnp.maximum(jnp.sum(mask, axis=times, dtype=x.dtype), 1.0)
        return jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=times) / count[:, None]
