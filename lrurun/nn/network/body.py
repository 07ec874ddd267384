"""The network around a recurrence (Orvieto et al. 2023, figure 1 and appendix D) as Flax modules.

Inside, sequences are time-major, (T, B, H). Inputs are transposed once, while they are still small integers; so are the
chunks of a sequence that a recurrence processes side by side, (T, K, B, H).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn.axes import Array, Features, Mask, expand
from lrurun.nn.network.block import Block, parameters
from lrurun.nn.network.layers import Linear, dropouts, lecun_normals, norm_of
from lrurun.nn.recurrences import Recurrence
from lrurun.nn.scan import join, split

Positions = int | Array
"""The positions that are decoded: the number of the last ones; or (B, K) their indices, counted from 0."""


class Network(nnx.Module):
    """Encoder, blocks, an optional final norm, pooling over real positions unless each is decoded, head."""

    def __init__(self, key: Array, config: ModelConfig, spec: Spec, recurrence: Recurrence, remat: bool) -> None:
        """Initial parameters are a pure function of `key`. `remat` is that of `Model`."""
        self.config = config
        self.spec = spec
        self.recurrence = recurrence
        self.remat = remat
        width, depth, linear = config.width, config.depth, partial(Linear, precision=config.precision)
        key_recurrence, key_weights = jax.random.split(key)
        of_blocks = {name: (depth, *shape) for name, shape in Block.shapes(config).items()}
        # sampled together, in this order: another one would be another sample
        shapes = {"encoder": (spec.features, width), "glu": of_blocks.pop("glu"), "head": (width, spec.classes)}
        hidden = {"hidden": (4 * width, width)} if spec.pair else {}
        weights = lecun_normals(key_weights, {**shapes, **hidden, **of_blocks})
        # a loop, so that the initialisation of one block is compiled, not of `depth` blocks
        params = jax.lax.map(recurrence.init, jax.random.split(key_recurrence, depth))
        if config.frame == "blocks":
            self.encoder = linear(weights["encoder"])
            self.head = linear(weights["head"])
        self.blocks = nnx.List(
            Block(
                {name: array[i] for name, array in params.items()},
                {name: weights[name][i] for name in Block.shapes(config)},
                config,
                recurrence,
            )
            for i in range(depth)
        )
        if config.final_norm:
            self.final = norm_of(config)
        if spec.pair:
            self.hidden = linear(weights["hidden"])

    def __call__(
        self,
        inputs: Array,
        lengths: Array | None,
        *,
        train: bool,
        key: Array | None = None,
        positions: Positions | None = None,
        counted: Array | None = None,
    ) -> tuple[Array, list[Array]]:
        """Logits, and for each block the mean norm of the state at real positions of the sequences `counted`.

        Arguments are those of `Model.apply` and `Model.evaluate`. Without `counted` there are no norms.
        """
        if self.spec.pair:
            # both documents in one batch: all first ones, then all second ones
            inputs, lengths = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), (inputs, lengths))
            counted = None if counted is None else jnp.tile(counted, 2)
        inputs = inputs.swapaxes(0, 1)
        steps = jnp.arange(len(inputs))[:, None]
        mask = last = None
        if lengths is not None:
            ends = lengths.astype(jnp.int32)[None, :]
            mask = steps < ends
            last = steps == ends - 1 if self.config.pooling == "last" else None
        if counted is not None:
            counted = counted[None, :] & (jnp.ones((len(inputs), 1), bool) if mask is None else mask)
        if self.spec.kind == "features" and inputs.ndim == 2:
            inputs = inputs[..., None]
        # everything else is pointwise in time, so the chunks that the recurrence wants are laid out once, here
        chunks = 1 if self.config.conv else self.recurrence.chunks(*inputs.shape[:2])
        if chunks > 1:
            inputs, mask, last = jax.tree.map(lambda x: split(x, chunks), (inputs, mask, last))

        x, norms = self._through_blocks(self._encode(inputs), mask, counted, train=train, key=key)
        if self.spec.output.at == "positions":
            return self._decode(x, x[..., 0, 0].size if positions is None else positions), norms
        pooled = self._pool(x, mask if last is None else last)
        if self.spec.pair:
            a, b = jnp.split(pooled, 2)
            activation = jax.nn.gelu if self.config.head_activation == "gelu" else jax.nn.relu
            pooled = activation(self.hidden(jnp.concatenate([a, b, a - b, a * b], axis=-1)))
        return self._head(pooled), norms

    def _through_blocks(
        self, x: Features, mask: Mask | None, counted: Array | None, *, train: bool, key: Array | None
    ) -> tuple[Features, list[Array]]:
        """The outputs of the last block after an optional norm, and the norms of the states of all blocks."""
        mask = mask if self.config.parity == "none" else None
        drops = dropouts(self.config, key if train else None, x)
        added = self.recurrence.across([parameters(block.recurrence) for block in self.blocks])
        call = nnx.remat(Block.__call__, static_argnums=(5, 6)) if self.remat else Block.__call__
        norms: list[Array] = []
        for block, drop, more in zip(self.blocks, drops, added or [{}] * len(drops), strict=True):
            x, norm = call(block, x, mask, more, counted, train, drop)
            norms += [] if norm is None else [norm]
        return self.final(x, mask, train) if self.config.final_norm else x, norms

    def _head(self, x: Array) -> Array:
        y: Array = self.head(x) if self.config.frame == "blocks" else x
        return y

    def _decode(self, x: Features, positions: Positions) -> Array:
        """(B, K, classes): the head at K positions, where nothing else is computed."""
        x = join(x) if x.ndim == 4 else x
        if isinstance(positions, int):
            chosen = x[len(x) - positions :]
        else:
            chosen = jnp.take_along_axis(x, positions.T[..., None], axis=0)
        return self._head(chosen).swapaxes(0, 1)

    def _encode(self, inputs: Array) -> Features:
        """The inputs of the first block, for tokens (T, ..., B) or features (T, ..., B, features)."""
        if self.spec.kind == "tokens":
            y: Array = self.encoder.embed(inputs)
            return y
        x = inputs.astype(jnp.float32) * self.spec.scale
        if self.spec.mean:
            x = x - expand(jnp.asarray(self.spec.mean, jnp.float32), x.ndim)
        if self.spec.std:
            x = x / expand(jnp.asarray(self.spec.std, jnp.float32), x.ndim)
        z: Array = self.encoder(x) if self.config.frame == "blocks" else x
        return z

    def _pool(self, x: Features, mask: Mask | None) -> Array:
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
