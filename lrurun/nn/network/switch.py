"""The Switch feed-forward layer of DLR's language models: experts that choose their positions."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from flax import nnx

from lrurun.nn.axes import Array, Features, Mask
from lrurun.nn.products import Precision, product
from lrurun.nn.sampling import Shapes
from lrurun.nn.scan import join, split

HIDDEN = 4
"""Hidden features of an expert, over the width: the published numbers of parameters, 312 and 318 million, need it."""


class Switch(nnx.Module):
    """E feed-forward networks of one hidden layer, each for the positions where its router probability is largest.

    p = softmax(x R) over the experts. Of a sequence of l real positions, each expert takes the ceil(l / E) with the
    largest p of its own, in evaluation ceil(2 l / E); of equal ones, earlier ones. The output of a position is the sum
    of p V GELU(W x) over the experts that took it, zero without any (Gupta et al. 2023, appendix A.6, after Zhou et al.
    2022, Expert Choice). Each expert has the same load, so that no loss must balance them.

    As in the paper, which experts take a position depends on later positions. Not published, and so ours: GELU, no
    biases, and that positions compete within their sequence, so that no output depends on the rest of a batch.
    """

    def __init__(self, router: Array, enter: Array, leave: Array, precision: Precision) -> None:
        """R of all experts together, and W and V of each, see `shapes`."""
        self.precision = precision
        self.router = nnx.Param(router)
        self.enter = nnx.Param(enter)
        self.leave = nnx.Param(leave)

    @staticmethod
    def shapes(width: int, experts: int) -> Shapes:
        """The shapes of the weights."""
        hidden = HIDDEN * width
        return {"router": (width, experts), "enter": (experts, width, hidden), "leave": (experts, hidden, width)}

    def __call__(self, x: Features, mask: Mask | None, train: bool) -> Features:
        if x.ndim == 4:
            return split(self(join(x), None if mask is None else join(mask), train), x.shape[1])
        length, experts = len(x), self.router.shape[1]
        scores = jax.nn.softmax(product(x, self.router[...], self.precision), axis=-1)  # (T, B, E)
        real = jnp.ones(x.shape[:2], bool) if mask is None else mask
        share = 1 if train else 2
        most = min(length, math.ceil(share * length / experts))
        capacity = -(-share * jnp.sum(real, axis=0, dtype=jnp.int32) // experts)[None, :, None]
        # padding comes last, also behind a probability of zero; (E, B, most)
        chances, positions = jax.lax.top_k(jnp.where(real[..., None], scores, -1.0).T, most)
        factors = jnp.where(jnp.arange(most)[None, None] < capacity, jnp.maximum(chances, 0.0), 0.0)
        rows, sequences = jnp.arange(x.shape[1])[:, None], x.swapaxes(0, 1)

        def add(total: Array, expert: tuple[Array, ...]) -> tuple[Array, None]:
            """Add one expert's outputs, at `position` (B, most), to `total` (B, T, H)."""
            # one expert after the other: a position occurs once in each, so that sums have one order on every device
            enter, leave, factor, position = expert
            inner = jax.nn.gelu(product(sequences[rows, position], enter, self.precision))
            y = product(inner, leave, self.precision) * factor[..., None]
            return total.at[rows, position].add(y, unique_indices=True), None

        parts = (self.enter[...], self.leave[...], factors, positions)
        return jax.lax.scan(add, jnp.zeros_like(sequences), parts)[0].swapaxes(0, 1)
