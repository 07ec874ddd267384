"""The network around a recurrence (Orvieto et al. 2023, figure 1 and appendix D): the only file that knows Flax.

Flax NNX is used as a shell: modules are built once, split into plain nested dictionaries of arrays, and merged, always
as a copy, inside pure functions. Inside, sequences are time-major, (T, B, H); inputs are transposed once, while they
are still small integers, and so are stretches of a sequence that a recurrence takes side by side, (T, K, B, H).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from lrurun import recurrences
from lrurun.config import ModelConfig
from lrurun.products import Precision, product
from lrurun.recurrences import Recurrence
from lrurun.scan import split
from lrurun.tasks.base import Spec

EPSILON = 1e-5
"""Added to the variance in both kinds of norm."""

TRUNCATED_DEVIATION = 0.8796256610342398
"""Standard deviation of a standard normal truncated to [-2, 2]."""

Tree = dict[str, Any]
"""Nested dictionaries of arrays."""


def _spread(vector: Array, like: Array) -> Array:
    """An array with leading axes of size 1, to be broadcast over the leading axes of `like`."""
    return vector.reshape((1,) * (like.ndim - vector.ndim) + vector.shape)


def _kernels(key: Array, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Weights (..., in, out) from a normal truncated at two deviations and rescaled to the variance 1 / in (LeCun).

    All come from one draw: the generator is most of what there is to compile in an initialisation.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    pool = jax.random.truncated_normal(key, -2.0, 2.0, (int(ends[-1]),), jnp.float32) / TRUNCATED_DEVIATION
    pieces = jnp.split(pool, ends[:-1])
    return {
        name: piece.reshape(shape) / shape[-2] ** 0.5
        for piece, (name, shape) in zip(pieces, shapes.items(), strict=True)
    }


class _Linear(nnx.Module):
    """x W + b with W (in, out) and b (out,), at first zero; `embed` takes ids and picks rows of W instead."""

    def __init__(self, kernel: Array, precision: Precision) -> None:
        self.precision = precision
        self.kernel = nnx.Param(kernel)
        self.bias = nnx.Param(jnp.zeros(kernel.shape[1:], jnp.float32))

    def __call__(self, x: Array) -> Array:
        y = product(x, self.kernel[...], self.precision)
        return y + _spread(self.bias[...], y)

    def embed(self, ids: Array) -> Array:
        """The same map of one-hot vectors, without making them: (..., B) integers to (..., B, out)."""
        y = _rows(self.kernel[...], ids)
        return y + _spread(self.bias[...], y)


@jax.custom_vjp
def _rows(table: Array, ids: Array) -> Array:
    """table[ids]. The gradient is a product with one-hot vectors: XLA adds row after row otherwise, in any order."""
    return table[ids]


def _rows_forward(table: Array, ids: Array) -> tuple[Array, tuple[Array, Array]]:
    # The table is kept for its shape alone.
    return table[ids], (table, ids)


def _rows_backward(kept: tuple[Array, Array], g: Array) -> tuple[Array, None]:
    table, ids = kept
    one_hot = jax.nn.one_hot(ids.reshape(-1), table.shape[0], dtype=g.dtype)
    return product(one_hot.T, g.reshape(-1, g.shape[-1]), "float32"), None


_rows.defvjp(_rows_forward, _rows_backward)


class _BatchNorm(nnx.Module):
    """Batch norm over the true positions of a batch, with bias-corrected running averages for evaluation.

    The averages start at zero with `weight` zero, the share of them that has been seen; before any training step the
    statistics of evaluation are mean 0 and variance 1.
    """

    def __init__(self, width: int, momentum: float) -> None:
        self.momentum = momentum
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros((width,), jnp.float32))
        self.var = nnx.BatchStat(jnp.zeros((width,), jnp.float32))
        self.weight = nnx.BatchStat(jnp.zeros((), jnp.float32))

    def __call__(self, x: Array, mask: Array | None, train: bool) -> Array:
        if train:
            mean, var = self._moments(x, mask)
            kept, new = self.momentum, 1.0 - self.momentum
            self.mean[...] = kept * self.mean[...] + new * mean
            self.var[...] = kept * self.var[...] + new * var
            self.weight[...] = kept * self.weight[...] + new
        else:
            weight = self.weight[...]
            seen = weight > 0.0
            divisor = jnp.where(seen, weight, 1.0)
            mean, var = self.mean[...] / divisor, jnp.where(seen, self.var[...] / divisor, 1.0)
        factor = self.scale[...] * jax.lax.rsqrt(var + EPSILON)
        return (x - _spread(mean, x)) * _spread(factor, x) + _spread(self.bias[...], x)

    @staticmethod
    def _moments(x: Array, mask: Array | None) -> tuple[Array, Array]:
        """Mean and biased variance, (H,) each."""
        leading = tuple(range(x.ndim - 1))
        if mask is None:
            mean = jnp.mean(x, axis=leading)
            # The variance is stationary in the mean: leaving that path out of the gradient changes only its cost.
            return mean, jnp.mean(jnp.square(x - _spread(jax.lax.stop_gradient(mean), x)), axis=leading)
        count = jnp.maximum(jnp.sum(mask, dtype=x.dtype), 1.0)
        true = mask[..., None]
        mean = jnp.sum(jnp.where(true, x, 0.0), axis=leading) / count
        centred = jnp.where(true, x - _spread(jax.lax.stop_gradient(mean), x), 0.0)
        return mean, jnp.sum(jnp.square(centred), axis=leading) / count


class _LayerNorm(nnx.Module):
    """Layer norm over the features of each position."""

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))

    def __call__(self, x: Array, mask: Array | None, train: bool) -> Array:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        var = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(var + EPSILON) * _spread(self.scale[...], x) + _spread(self.bias[...], x)


_Drop = Callable[[Array, int], Array]
"""Drops out entries of (..., B, H), in the block's first or second place."""


_GATED = {"full": 2, "half": 1, "half2": 1, "none": 0}
"""Dense maps of each kind of GLU."""


def _norm(config: ModelConfig) -> _BatchNorm | _LayerNorm:
    return _BatchNorm(config.width, config.norm_momentum) if config.norm == "batch" else _LayerNorm(config.width)


class _Block(nnx.Module):
    """x + dropout(GLU(dropout(GELU(recurrence(norm(x)))))), or the norm of all of it; see `ModelConfig.glu`."""

    def __init__(self, params: Tree, kernels: Array | None, config: ModelConfig, recurrence: Recurrence) -> None:
        """`params` are the recurrence's, `kernels` (1 or 2, H, H) the GLU's, None where it has none."""
        self.config = config
        self.layer = recurrence
        self.norm = _norm(config)
        self.recurrence = nnx.Dict({name: nnx.Param(value) for name, value in params.items()})
        if kernels is not None:
            self.gate = _Linear(kernels[0], config.precision)
        if kernels is not None and config.glu == "full":
            self.value = _Linear(kernels[1], config.precision)

    def __call__(self, x: Array, mask: Array | None, train: bool, drop: _Drop) -> Array:
        params = {name: param[...] for name, param in self.recurrence.items()}
        before = self.config.norm_place == "pre"
        y = self.layer.scan(params, self.norm(x, mask, train) if before else x, mask)
        z = x + self._gated(y, drop)
        return z if before else self.norm(z, mask, train)

    def _gated(self, y: Array, drop: _Drop) -> Array:
        active = drop(jax.nn.gelu(y), 0)
        kind = self.config.glu
        if kind == "none":
            return active
        value = self.value(active) if kind == "full" else y if kind == "half2" else active
        return drop(value * jax.nn.sigmoid(self.gate(active)), 1)


class _Network(nnx.Module):
    """Encoder, blocks, a norm where there is a final one, pooling over true positions, head."""

    def __init__(self, key: Array, config: ModelConfig, spec: Spec, recurrence: Recurrence, remat: bool) -> None:
        self.config = config
        self.remat = remat
        self.spec = spec
        self.recurrence = recurrence
        width, depth = config.width, config.depth
        key_recurrence, key_kernels = jax.random.split(key)
        shapes = {
            "encoder": (spec.features, width),
            "glu": (depth, _GATED[config.glu], width, width),
            "head": (width, spec.classes),
        }
        if spec.pair:
            shapes["hidden"] = (4 * width, width)
        kernels = _kernels(key_kernels, shapes)
        # A loop, so that one block's initialisation is compiled, not `depth` of them.
        params = jax.lax.map(recurrence.init, jax.random.split(key_recurrence, depth))
        self.encoder = _Linear(kernels["encoder"], config.precision)
        self.blocks = nnx.List(
            [
                _Block(
                    {name: x[i] for name, x in params.items()},
                    kernels["glu"][i] if _GATED[config.glu] else None,
                    config,
                    recurrence,
                )
                for i in range(depth)
            ]
        )
        if config.final_norm:
            self.final = _norm(config)
        if spec.pair:
            self.hidden = _Linear(kernels["hidden"], config.precision)
        self.head = _Linear(kernels["head"], config.precision)

    def __call__(self, inputs: Array, lengths: Array | None, train: bool, key: Array | None) -> Array:
        if self.spec.pair:
            # Both documents in one batch: all first ones, then all second ones.
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
        # All but the recurrence is pointwise in time: stretches that it wants side by side are laid out once, here.
        chunks = self.recurrence.chunks(*inputs.shape[:2])
        if chunks > 1:
            inputs = split(inputs, chunks)
            mask = None if mask is None else split(mask, chunks)
            last = None if last is None else split(last, chunks)
        within = mask if self.config.parity == "none" else None
        x = self._encode(inputs)
        drops = self._drops(x, key if train else None)

        def through(drop: _Drop, block: _Block, x: Array, mask: Array | None) -> Array:
            return block(x, mask, train, drop)

        for block, drop in zip(self.blocks, drops, strict=True):
            call = partial(through, drop)
            x = (nnx.remat(call) if self.remat else call)(block, x, within)
        if self.config.final_norm:
            x = self.final(x, within, train)
        pooled = self._pool(x, mask if last is None else last)
        if self.spec.pair:
            a, b = jnp.split(pooled, 2)
            pooled = jax.nn.relu(self.hidden(jnp.concatenate([a, b, a - b, a * b], axis=-1)))
        logits: Array = self.head(pooled)
        return logits

    def _drops(self, like: Array, key: Array | None) -> list[_Drop]:
        """What each block drops out of arrays like `like`; nothing without a key."""
        rate, depth = self.config.dropout, self.config.depth
        if rate == 0.0 or key is None:
            return [lambda x, place: x] * depth
        batch, width = like.shape[-2:]

        def factor(key: Array, shape: tuple[int, ...]) -> Array:
            return jax.random.bernoulli(key, 1.0 - rate, shape).astype(jnp.float32) / (1.0 - rate)

        if self.config.dropout_mask == "sequence":
            factors = factor(key, (depth, 2, batch, width))  # in one draw
            return [lambda x, place, of=of: x * _spread(of[place], x) for of in factors]  # type: ignore[misc]

        def drop(x: Array, place: int, block: int) -> Array:
            drawn = factor(jax.random.fold_in(key, 2 * block + place), (x[..., 0, 0].size, batch, width))
            return x * (split(drawn, x.shape[1]) if x.ndim == 4 else drawn)

        return [partial(drop, block=block) for block in range(depth)]

    def _encode(self, inputs: Array) -> Array:
        if self.spec.kind == "tokens":
            y: Array = self.encoder.embed(inputs)
            return y
        x = inputs.astype(jnp.float32) * self.spec.scale
        if self.spec.mean:
            x = x - _spread(jnp.asarray(self.spec.mean, jnp.float32), x)
        if self.spec.std:
            x = x / _spread(jnp.asarray(self.spec.std, jnp.float32), x)
        z: Array = self.encoder(x)
        return z

    def _pool(self, x: Array, mask: Array | None) -> Array:
        """Mean, maximum or sum over the positions of the mask, (B, H); zero where there are none.

        To pool the last position, the mask is true there alone. Without a mask every position is true.
        """
        times = tuple(range(x.ndim - 2))
        if self.config.pooling == "last":
            # of stretches side by side, the last step of the last one
            return x[(-1,) * len(times)] if mask is None else jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=times)
        if self.config.pooling == "max":
            seen = x if mask is None else jnp.where(mask[..., None], x, jnp.finfo(x.dtype).min)
            # By its place: the gradient of `max` asks which x equals it, and a fused program may round x anew there.
            place = jnp.argmax(seen.reshape(-1, *x.shape[-2:]), axis=0)
            largest = jnp.take_along_axis(x.reshape(-1, *x.shape[-2:]), place[None], axis=0)[0]
            return largest if mask is None else jnp.where(jnp.any(mask, axis=times)[:, None], largest, 0.0)
        if mask is None:
            return jnp.mean(x, axis=times)
        count = jnp.maximum(jnp.sum(mask, axis=times, dtype=x.dtype), 1.0)
        return jnp.sum(jnp.where(mask[..., None], x, 0.0), axis=times) / count[:, None]


class _Probe:
    """A recurrence in a network that notes the length of each of its states, (T, B), layer after layer."""

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self.found: list[Array] = []

    def chunks(self, length: int, batch: int) -> int:
        return 1

    def scan(self, params: Tree, u: Array, mask: Array | None = None) -> Array:
        self.found.append(self.recurrence.norms(params, u))
        return self.recurrence.scan(params, u, mask)


def _plain(tree: Any) -> Any:
    """An NNX state as nested dictionaries with text for keys, as checkpoints want them."""
    return {str(k): _plain(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


def _walk(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, item in tree.items():
        if isinstance(item, dict):
            yield from _walk(item, (*path, name))
        else:
            yield (*path, name), item


class Model:
    """A network of one configuration for one task, as pure functions on nested dictionaries of arrays."""

    def __init__(self, config: ModelConfig, spec: Spec, backend: str = "auto", remat: bool = False) -> None:
        """`backend` chooses among the scans; with `remat` the backward pass computes the inside of the blocks again.

        Allocates nothing. Raises ValueError for an unknown kind or backend.
        """
        self.config = config
        self.remat = remat
        self.spec = spec
        self.recurrence = recurrences.build(
            config.recurrence,
            width=config.width,
            state=config.state,
            bidirectional=config.bidirectional,
            backend=backend,
            precision=config.precision,
        )
        self._graph: Any = None
        self._abstract = jax.eval_shape(self._split, jax.random.key(0))

    def _split(self, key: Array) -> tuple[Any, Any]:
        network = _Network(key, self.config, self.spec, self.recurrence, self.remat)
        self._graph, params, stats = nnx.split(network, nnx.Param, nnx.BatchStat)
        return params, stats

    def init(self, key: Array) -> tuple[Tree, Tree]:
        """Parameters and norm statistics, a pure function of `key` that may be traced."""
        params, stats = self._split(key)
        return _plain(nnx.to_pure_dict(params)), _plain(nnx.to_pure_dict(stats))

    def apply(
        self,
        params: Tree,
        stats: Tree,
        inputs: Array,
        lengths: Array | None = None,
        *,
        train: bool,
        key: Array | None = None,
    ) -> tuple[Array, Tree]:
        """Logits (B, classes), and the norm statistics after this batch.

        `inputs` are integers, (B, L), (B, L, features), or (B, 2, L) for pairs; `lengths` (B,), or (B, 2) for pairs,
        the true lengths, None where all is true. `train` takes the norm's statistics from the batch, updates them,
        and drops out with `key`; otherwise the statistics come back as they are.

        Raises ValueError where there is dropout, `train` is set, and there is no key.
        """
        if train and self.config.dropout > 0.0 and key is None:
            raise ValueError(f"training with dropout = {self.config.dropout} needs a key")
        network = nnx.merge(self._graph, _fill(self._abstract[0], params), _fill(self._abstract[1], stats), copy=True)
        logits = network(inputs, lengths, train, key)
        if not train:
            return logits, stats
        return logits, _plain(nnx.to_pure_dict(nnx.state(network, nnx.BatchStat)))

    def norms(self, params: Tree, stats: Tree, inputs: Array, lengths: Array | None = None) -> Array:
        """(depth,): each layer's mean length of the state over a batch, all its true positions counting alike.

        The network is that of evaluation; the arguments are as for `apply`.
        """
        network = nnx.merge(self._graph, _fill(self._abstract[0], params), _fill(self._abstract[1], stats), copy=True)
        network.remat = False  # what is kept must not be of an inner trace
        network.recurrence = probe = _Probe(self.recurrence)
        for block in network.blocks:
            block.layer = probe
        network(inputs, lengths, False, None)
        if lengths is None:
            return jnp.stack([jnp.mean(norms) for norms in probe.found])
        ends = lengths.swapaxes(0, 1).reshape(-1) if self.spec.pair else lengths
        mask = jnp.arange(inputs.shape[2 if self.spec.pair else 1])[:, None] < ends.astype(jnp.int32)[None, :]
        count = jnp.maximum(jnp.sum(mask, dtype=jnp.float32), 1.0)
        return jnp.stack([jnp.sum(jnp.where(mask, norms, 0.0)) / count for norms in probe.found])

    def groups(self, params: Tree, *, decay_norm_bias: bool = True) -> Tree:
        """A tree like `params` with the group that each leaf is trained in: "recurrent" or "regular".

        Without `decay_norm_bias`, biases and norms are "undecayed"; what a recurrence calls so is its own affair.
        """

        def group(name: str, parent: str) -> str:
            if parent == "recurrence":
                return "recurrent" if name in self.recurrence.slow else "regular"
            # a norm has a scale, and nothing else has
            return "regular" if decay_norm_bias or name not in ("bias", "scale") else "undecayed"

        def mark(tree: Tree, parent: str) -> Tree:
            return {
                name: mark(item, name) if isinstance(item, dict) else group(name, parent) for name, item in tree.items()
            }

        return mark(params, "")

    def listing(self, params: Tree, *, decay_norm_bias: bool = True) -> list[tuple[str, tuple[int, ...], str]]:
        """Dotted path, shape and group of every parameter, in the order of the tree."""
        group = dict(_walk(self.groups(params, decay_norm_bias=decay_norm_bias)))
        return [(".".join(path), tuple(leaf.shape), group[path]) for path, leaf in _walk(params)]

    def count(self, params: Tree) -> int:
        """How many numbers are trained."""
        return sum(leaf.size for leaf in jax.tree.leaves(params))


def _fill(state: Any, values: Tree) -> Any:
    """An NNX state of the structure of `state` with the arrays of a plain tree."""

    def pick(path: tuple[Any, ...], _: Any) -> Array:
        node: Any = values
        for entry in path:
            if isinstance(entry, jax.tree_util.DictKey):
                node = node[str(entry.key)]
        return node

    return jax.tree_util.tree_map_with_path(pick, state)
