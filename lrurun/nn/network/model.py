"""A network of one configuration as pure functions on nested dictionaries of arrays.

The structure of the modules is determined once. Pure functions merge it with the arrays, always as a copy.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from lrurun.config.schema import ModelConfig
from lrurun.data.on_device import fixed_generator
from lrurun.data.task import Spec
from lrurun.nn import recurrences
from lrurun.nn.axes import Array
from lrurun.nn.network.body import Network, Positions

Tree = dict[str, Any]
"""Nested dictionaries of arrays, with the names of the attributes of `Network`."""


class Model:
    """A network of one configuration for one task, as pure functions on nested dictionaries of arrays."""

    def __init__(self, config: ModelConfig, spec: Spec, backend: str = "auto", remat: bool = False) -> None:
        """`backend` computes the scans; with `remat` the backward pass computes the blocks again to save memory.

        Allocates no arrays. Raises ValueError for an unknown kind or backend.
        """
        self.config = config
        self.remat = remat
        self.spec = spec
        self.recurrence = recurrences.build(
            config.recurrence.at_length(spec.length),
            width=config.inner,
            state=config.state,
            bidirectional=config.bidirectional,
            backend=backend,
            precision=config.precision,
        )
        self._graph: Any = None

    @cached_property
    def shapes(self) -> tuple[Tree, Tree]:
        """Shapes and dtypes of the parameters and norm statistics that `init` returns."""
        shapes: tuple[Tree, Tree] = jax.eval_shape(self.init, jax.random.key(0))
        return shapes

    @property
    def _structure(self) -> Any:
        """The structure of the modules, which `init` finds."""
        if self._graph is None:
            _ = self.shapes
        return self._graph

    def _network(self, key: Array) -> Network:
        return Network(key, self.config, self.spec, self.recurrence, self.remat)

    def _merged(self, params: Tree, stats: Tree) -> Network:
        network: Network = nnx.merge(
            self._structure, nnx.restore_int_paths(params), nnx.restore_int_paths(stats), copy=True
        )
        return network

    def init(self, key: Array) -> tuple[Tree, Tree]:
        """Parameters and norm statistics, a function of `key` that may be traced.

        The first call also notes the structure of the modules.
        """
        with fixed_generator():
            network = self._network(key)
        graph, params, stats = nnx.split(network, nnx.Param, nnx.BatchStat)
        if self._graph is None:
            self._graph = graph
        return _tree(params), _tree(stats)

    def apply(
        self,
        params: Tree,
        stats: Tree,
        inputs: Array,
        lengths: Array | None = None,
        *,
        train: bool,
        key: Array | None = None,
        positions: Positions | None = None,
    ) -> tuple[Array, Tree]:
        """Logits (B, classes), and the norm statistics after this batch.

        Where the task has outputs at positions, they are (B, K, classes) for the K of `positions`, all without it.

        `inputs` are integers, (B, L), (B, L, features), or (B, 2, L) for pairs; `lengths` (B,), or (B, 2) for pairs,
        the number of real positions, None if all are. With `train`, norms use and update the statistics of the batch,
        and dropout uses `key`; otherwise the statistics are returned unchanged.

        Raises ValueError if `train` is set, the model has dropout and there is no key.
        """
        if train and self.config.dropout > 0.0 and key is None:
            raise ValueError(f"training with dropout = {self.config.dropout} needs a key")
        network = self._merged(params, stats)
        logits, _ = network(inputs, lengths, train=train, key=key, positions=positions)
        return logits, _tree(nnx.state(network, nnx.BatchStat)) if train else stats

    def evaluate(
        self,
        params: Tree,
        stats: Tree,
        inputs: Array,
        lengths: Array | None,
        counted: Array,
        positions: Positions | None = None,
    ) -> tuple[Array, Array]:
        """Logits as of `apply`, and (depth,) the mean norm of the state of each layer over real positions.

        The mean is over the sequences where `counted` (B,) is true; if it is nowhere, the norms are 0 and cost nothing.
        The other arguments: see `apply`.
        """
        network = self._merged(params, stats)
        logits, norms = network(inputs, lengths, train=False, positions=positions, counted=counted)
        return logits, jnp.stack(norms)

    def count(self, params: Tree) -> int:
        """Number of trained scalars."""
        return sum(leaf.size for leaf in jax.tree.leaves(params))


def _tree(state: Any) -> Tree:
    """The arrays of a state of NNX; the numbers of blocks are strings, as checkpoints need them."""

    def named(tree: Any) -> Any:
        return {str(name): named(item) for name, item in tree.items()} if isinstance(tree, dict) else tree

    return named(nnx.to_pure_dict(state))
