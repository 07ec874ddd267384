"""The layers around a recurrence: linear maps, a convolution, norms, dropout, and how weights are initialised."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from lrurun.config.schema import ModelConfig
from lrurun.nn.axes import Array, Features, Mask, expand
from lrurun.nn.convolution.short import short
from lrurun.nn.devices import flat
from lrurun.nn.products import Precision, product
from lrurun.nn.sampling import Shapes, truncated_normals
from lrurun.nn.scan import split

EPSILON = 1e-5
"""Added to the variance in both kinds of norm."""


def lecun_normals(key: Array, shapes: Shapes) -> dict[str, Array]:
    """Weights (..., in, out) from a truncated normal with variance 1 / in (LeCun)."""
    # XLA multiplies by the rounded inverse where a program divides by a constant
    scales = {name: float(np.float32(1.0) / np.float32(shape[-2] ** 0.5)) for name, shape in shapes.items()}
    return truncated_normals(key, shapes, scales)


class Linear(nnx.Module):
    """x W + b with W (in, out) and b (out,), initially zero; `embed` takes ids and selects rows of W instead.

    W is called `kernel` in checkpoints.
    """

    def __init__(self, weights: Array, precision: Precision) -> None:
        self.precision = precision
        self.kernel = nnx.Param(weights)
        self.bias = nnx.Param(jnp.zeros(weights.shape[1:], jnp.float32))

    def __call__(self, x: Array) -> Array:
        """(..., B, in) to (..., B, out), for any leading axes."""
        y = product(x, self.kernel[...], self.precision)
        return y + expand(self.bias[...], y.ndim)

    def embed(self, ids: Array) -> Array:
        """Applies the map to one-hot vectors without making them: integers (..., B) to (..., B, out)."""
        y = _rows(self.kernel[...], ids)
        return y + expand(self.bias[...], y.ndim)


class FeedForward(nnx.Module):
    """V GELU(W x + b) + c, a network of one hidden layer at each position, see `ModelConfig.feed_forward`."""

    def __init__(self, enter: Array, leave: Array, precision: Precision) -> None:
        """W (H, hidden) and V (hidden, H)."""
        self.enter = Linear(enter, precision)
        self.leave = Linear(leave, precision)

    def __call__(self, x: Features) -> Features:
        y: Features = self.leave(jax.nn.gelu(self.enter(x)))
        return y


class ShortConvolution(nnx.Module):
    """A causal convolution of each feature, see `lrurun.nn.convolution.short`, then SiLU if `silu`.

    Its weights are called `kernel` (taps, H) and `bias`, initially zero.
    """

    def __init__(self, weights: Array, silu: bool) -> None:
        self.silu = silu
        self.kernel = nnx.Param(weights)
        self.bias = nnx.Param(jnp.zeros(weights.shape[1:], jnp.float32))

    def __call__(self, x: Features) -> Features:
        y = short(x, self.kernel[...], self.bias[...])
        return jax.nn.silu(y) if self.silu else y


@jax.custom_vjp
def _rows(table: Array, ids: Array) -> Array:
    """table[ids]. The gradient is a product with one-hot vectors; otherwise XLA adds rows in any order."""
    return table[ids]


def _rows_forward(table: Array, ids: Array) -> tuple[Array, tuple[Array, Array]]:
    # the table is kept only for its shape
    return table[ids], (table, ids)


def _rows_backward(kept: tuple[Array, Array], g: Array) -> tuple[Array, None]:
    table, ids = kept
    one_hot = jax.nn.one_hot(flat(ids[..., None])[:, 0], table.shape[0], dtype=g.dtype)
    return product(one_hot.T, flat(g), "float32"), None


_rows.defvjp(_rows_forward, _rows_backward)


class BatchNorm(nnx.Module):
    """Batch norm over the real positions of a batch, with bias-corrected running averages for evaluation.

    The averages start at zero, and so does `weight`, the sum of the coefficients in them. Before the first training
    step evaluation uses mean 0 and variance 1.
    """

    def __init__(self, width: int, momentum: float) -> None:
        self.momentum = momentum
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros((width,), jnp.float32))
        self.var = nnx.BatchStat(jnp.zeros((width,), jnp.float32))
        self.weight = nnx.BatchStat(jnp.zeros((), jnp.float32))

    def __call__(self, x: Features, mask: Mask | None, train: bool) -> Features:
        if train:
            y, mean, var = _normalized(x, self.scale[...], self.bias[...], mask)
            kept, new = self.momentum, 1.0 - self.momentum
            self.mean[...] = kept * self.mean[...] + new * mean
            self.var[...] = kept * self.var[...] + new * var
            self.weight[...] = kept * self.weight[...] + new
            return y
        weight = self.weight[...]
        seen = weight > 0.0
        divisor = jnp.where(seen, weight, 1.0)
        mean, var = self.mean[...] / divisor, jnp.where(seen, self.var[...] / divisor, 1.0)
        return _affine(x, mean, self.scale[...] * jax.lax.rsqrt(var + EPSILON), self.bias[...])


def _affine(x: Features, centre: Array, factor: Array, offset: Array) -> Features:
    """(x - centre) * factor + offset, of (H,) numbers each."""
    return (x - expand(centre, x.ndim)) * expand(factor, x.ndim) + expand(offset, x.ndim)


@jax.custom_vjp
def _normalized(x: Features, scale: Array, bias: Array, mask: Mask | None) -> tuple[Features, Array, Array]:
    """Batch norm of `x`, and the mean and the biased variance (H,) of its real positions.

    The gradient needs two sums over `x` and its cotangent, and one pass for the gradient of `x`: autodiff takes a third
    sum and keeps two arrays more.
    """
    return _normalized_forward(x, scale, bias, mask)[0]


_KeptByNorm = tuple[Features, Array, Array, Array, Mask | None]


def _normalized_forward(
    x: Features, scale: Array, bias: Array, mask: Mask | None
) -> tuple[tuple[Features, Array, Array], _KeptByNorm]:
    mean = _mean(x, mask)
    var = _mean(jnp.square(x - expand(mean, x.ndim)), mask)
    rate = jax.lax.rsqrt(var + EPSILON)
    return (_affine(x, mean, scale * rate, bias), mean, var), (x, mean, rate, scale, mask)


def _normalized_backward(
    kept: _KeptByNorm, cotangents: tuple[Features, Array, Array]
) -> tuple[Features, Array, Array, None]:
    x, mean, rate, scale, mask = kept
    g, mean_cotangent, var_cotangent = cotangents
    leading = tuple(range(x.ndim - 1))
    bias_gradient = jnp.sum(g, axis=leading)
    scale_gradient = rate * jnp.sum(g * (x - expand(mean, x.ndim)), axis=leading)
    factor, count = scale * rate, _count(x, mask)
    # every real position has its share in the mean and in the variance; the variance does not depend on the mean
    offset = (mean_cotangent - factor * bias_gradient) / count
    slope = (2.0 * var_cotangent - factor * rate * scale_gradient) / count
    shared = _affine(x, mean, slope, offset)
    shared = shared if mask is None else jnp.where(mask[..., None], shared, 0.0)
    return g * expand(factor, x.ndim) + shared, scale_gradient, bias_gradient, None


_normalized.defvjp(_normalized_forward, _normalized_backward)


def _count(x: Features, mask: Mask | None) -> Array:
    """The number () of real positions, at least 1."""
    if mask is None:
        return jnp.float32(math.prod(x.shape[:-1]))
    return jnp.maximum(jnp.sum(mask, dtype=x.dtype), 1.0)


def _mean(x: Features, mask: Mask | None) -> Array:
    """The mean (H,) over real positions."""
    real = x if mask is None else jnp.where(mask[..., None], x, 0.0)
    return jnp.sum(real, axis=range(x.ndim - 1)) / _count(x, mask)


class LayerNorm(nnx.Module):
    """Layer norm over the features of each position."""

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))

    def __call__(self, x: Features, mask: Mask | None, train: bool) -> Features:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        centred = x - mean
        var = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(var + EPSILON) * expand(self.scale[...], x.ndim) + expand(self.bias[...], x.ndim)


def norm_of(config: ModelConfig) -> BatchNorm | LayerNorm:
    """The kind of norm that `config` asks for, newly initialised."""
    return BatchNorm(config.width, config.norm_momentum) if config.norm == "batch" else LayerNorm(config.width)


Dropout = Callable[[Features, int], Features]
"""Applies dropout to the features of a block; the number is its index there: 0 or 1, then of feed-forward layers."""


def dropouts(config: ModelConfig, key: Array | None, like: Features) -> list[Dropout]:
    """The dropout of each block, for features such as `like`; without a key, the identity."""
    rate, depth, count = config.dropout, config.depth, 2 + config.feed_forward
    if rate == 0.0 or key is None:
        return [lambda x, index: x] * depth
    batch, width = like.shape[-2:]

    def factor(key: Array, shape: tuple[int, ...]) -> Array:
        """0 or 1 / (1 - rate), of this shape."""
        return jax.random.bernoulli(key, 1.0 - rate, shape).astype(jnp.float32) / (1.0 - rate)

    if config.dropout_mask == "sequence":
        factors = factor(key, (depth, count, batch, width))  # sampled together: the generator is slow to compile
        return [lambda x, index, pair=pair: x * expand(pair[index], x.ndim) for pair in factors]  # type: ignore[misc]

    def drop(x: Features, index: int, block: int) -> Features:
        """`x` (T, *K, B, H) after dropout number `index` of a block."""
        mask = factor(jax.random.fold_in(key, count * block + index), (x[..., 0, 0].size, batch, width))
        return x * (split(mask, x.shape[1]) if x.ndim == 4 else mask)

    return [partial(drop, block=block) for block in range(depth)]
