"""The network around a recurrence (Orvieto et al. 2023, figure 1 and appendix D) as Flax modules.

Inside, sequences are time-major, (T, B, H). Inputs are transposed once, while they are still small integers; so are the
chunks of a sequence that a recurrence processes side by side, (T, K, B, H).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.nn.axes import Array, Features, Mask, expand
from lrurun.nn.draws import over_keys
from lrurun.nn.network.block import Block, parameters
from lrurun.nn.network.layers import Linear, dropouts, lecun_normals, norm_of
from lrurun.nn.network.pooling import last_positions, pool, real_positions
from lrurun.nn.recurrences import Recurrence
from lrurun.nn.sampling import Shapes
from lrurun.nn.scan import join, split

Positions = int | Array
"""The positions that are decoded: the number of the last ones; or (B, K) their indices, counted from 0."""


class Network(nnx.Module):
    """Encoder, blocks, an optional final norm, pooling over real positions unless each is decoded, head."""

    def __init__(self, key: Array, config: ModelConfig, spec: Spec, recurrence: Recurrence, remat: bool) -> None:
        """Initial parameters are a pure function of `key`. `remat`: see `Model`."""
        self.config = config
        self.spec = spec
        self.recurrence = recurrence
        self.remat = remat
        width, depth, linear = config.width, config.depth, partial(Linear, precision=config.precision)
        key_recurrence, key_weights = jax.random.split(key)
        of_block = Block.shapes(config)

        def of_blocks(names: Iterable[str]) -> Shapes:
            return {f"{name} {i}": of_block[name] for name in names for i in range(depth)}

        # sampled together, in this order: another one would be another sample
        shapes = {"encoder": (spec.features, width), **of_blocks(["glu"]), "head": (width, spec.classes)}
        hidden = {"hidden": (4 * width, width)} if spec.pair else {}
        others = of_blocks(name for name in of_block if name != "glu")
        weights = lecun_normals(key_weights, {**shapes, **hidden, **others})
        params = over_keys(recurrence.init, jax.random.split(key_recurrence, depth))
        if config.frame == "blocks":
            self.encoder = linear(weights["encoder"])
            self.head = linear(weights["head"])
        self.blocks = nnx.List(
            Block(
                {name: array[i] for name, array in params.items()},
                {name: weights[f"{name} {i}"] for name in of_block},
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
        """Compute logits, and for each block the mean norm of the state at real positions of the sequences `counted`.

        Logits are (B, classes), or (B, K, classes) at K positions; each norm is (). Arguments: see `Model.apply` and
        `Model.evaluate`. Without `counted` there are no norms.
        """
        if self.spec.pair:
            # both documents in one batch: all first ones, then all second ones
            inputs, lengths = jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), (inputs, lengths))
            counted = None if counted is None else jnp.tile(counted, 2)
        inputs = inputs.swapaxes(0, 1)
        mask = last = None
        if lengths is not None:
            mask = real_positions(lengths, len(inputs))
            last = last_positions(lengths, len(inputs)) if self.config.pooling == "last" else None
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
        pooled = pool(x, mask if last is None else last, self.config.pooling)
        if self.spec.pair:
            a, b = jnp.split(pooled, 2)
            activation = jax.nn.gelu if self.config.head_activation == "gelu" else jax.nn.relu
            pooled = activation(self.hidden(jnp.concatenate([a, b, a - b, a * b], axis=-1)))
        return self._head(pooled), norms

    def _through_blocks(
        self, x: Features, mask: Mask | None, counted: Array | None, *, train: bool, key: Array | None
    ) -> tuple[Features, list[Array]]:
        """Outputs (T, *K, B, H) of the last block after an optional norm; the mean norm () of each block's states."""
        mask = mask if self.config.parity == "none" else None
        drops = dropouts(self.config, key if train else None, x)
        added = self.recurrence.across([parameters(block.recurrence) for block in self.blocks])
        call = nnx.remat(Block.__call__, static_argnums=(5, 6)) if self.remat else Block.__call__
        norms: list[Array] = []
        for block, drop, more in zip(self.blocks, drops, added or [{}] * len(drops), strict=True):
            # in memory before a block reads it: fused with what comes before, XLA would compile each block by itself
            x, norm = call(block, jax.lax.optimization_barrier(x), mask, more, counted, train, drop)
            norms += [] if norm is None else [norm]
        x = jax.lax.optimization_barrier(x)  # likewise: the last block, with a final norm, pooling or the head in it
        return self.final(x, mask, train) if self.config.final_norm else x, norms

    def _head(self, x: Array) -> Array:
        """Logits (..., classes) of features (..., H)."""
        y: Array = self.head(x) if self.config.frame == "blocks" else x
        return y

    def _decode(self, x: Features, positions: Positions) -> Array:
        """Logits (B, K, classes) at K positions of `x` (T, *K, B, H); the head is computed at no others."""
        x = join(x) if x.ndim == 4 else x
        if isinstance(positions, int):
            chosen = x[len(x) - positions :]
        else:
            chosen = jnp.take_along_axis(x, positions.T[..., None], axis=0)
        return self._head(chosen).swapaxes(0, 1)

    def _encode(self, inputs: Array) -> Features:
        """The inputs (T, *K, B, H) of the first block, for tokens (T, *K, B) or features (T, *K, B, features)."""
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
