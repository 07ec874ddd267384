"""A network of one configuration as pure functions on nested dictionaries of arrays.

Flax NNX is used as a shell: modules are built once, split into plain nested dictionaries of arrays, and merged, always
as a copy, inside pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from lrurun.config.schema import ModelConfig
from lrurun.data.on_device import fixed_generator
from lrurun.data.task import Spec
from lrurun.nn import recurrences
from lrurun.nn.network.body import Network, Places, Tree
from lrurun.nn.recurrences import Recurrence
from lrurun.nn.scan import join


class _NormProbe:
    """Replaces the recurrence of a network and collects the mean norms of its states, layer by layer."""

    def __init__(self, recurrence: Recurrence, counted: Array) -> None:
        """`counted` (L, B) is true at the positions of the mean; if it is nowhere, no norm is computed."""
        self.recurrence = recurrence
        self.counted = counted
        self.found: list[Array] = []

    def chunks(self, length: int, batch: int) -> int:
        return self.recurrence.chunks(length, batch)

    def across(self, layers: Sequence[Tree]) -> list[Tree] | None:
        return self.recurrence.across(layers)

    def scan(self, params: Tree, u: Array, mask: Array | None = None) -> Array:
        def mean() -> Array:
            norms = self.recurrence.norms(params, u if u.ndim == 3 else join(u))
            return jnp.sum(jnp.where(self.counted, norms, 0.0)) / jnp.sum(self.counted, dtype=jnp.float32)

        self.found.append(jax.lax.cond(jnp.any(self.counted), mean, lambda: jnp.float32(0.0)))
        return self.recurrence.scan(params, u, mask)


def _plain(tree: Any) -> Any:
    """An NNX state as nested dictionaries whose keys are strings, as checkpoints need them."""
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
        """`backend` is that of the scan; with `remat` the backward pass computes the blocks again to save memory.

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
        self._abstract = jax.eval_shape(self._split, jax.random.key(0))

    def _split(self, key: Array) -> tuple[Any, Any]:
        network = Network(key, self.config, self.spec, self.recurrence, self.remat)
        self._graph, params, stats = nnx.split(network, nnx.Param, nnx.BatchStat)
        return params, stats

    def init(self, key: Array) -> tuple[Tree, Tree]:
        """Parameters and norm statistics, a pure function of `key` that may be traced."""
        with fixed_generator():
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
        places: Places | None = None,
    ) -> tuple[Array, Tree]:
        """Logits (B, classes), and the norm statistics after this batch.

        Where the task has outputs at positions, they are (B, K, classes) for the K positions of `places`, which are all
        without it.

        `inputs` are integers, (B, L), (B, L, features), or (B, 2, L) for pairs; `lengths` (B,), or (B, 2) for pairs,
        the number of real positions, None if all are. With `train`, norms use and update the statistics of the batch,
        and dropout uses `key`; otherwise the statistics are returned unchanged.

        Raises ValueError if `train` is set, the model has dropout and there is no key.
        """
        if train and self.config.dropout > 0.0 and key is None:
            raise ValueError(f"training with dropout = {self.config.dropout} needs a key")
        network = nnx.merge(self._graph, _fill(self._abstract[0], params), _fill(self._abstract[1], stats), copy=True)
        logits = network(inputs, lengths, train, key, places)
        if not train:
            return logits, stats
        return logits, _plain(nnx.to_pure_dict(nnx.state(network, nnx.BatchStat)))

    def evaluate(
        self,
        params: Tree,
        stats: Tree,
        inputs: Array,
        lengths: Array | None,
        counted: Array,
        places: Places | None = None,
    ) -> tuple[Array, Array]:
        """Logits as of `apply`, and (depth,) the mean norm of the state of each layer over real positions.

        The mean is over the sequences where `counted` (B,) is true; if it is nowhere, the norms are 0 and cost nothing.
        The other arguments are those of `apply`.
        """
        network = nnx.merge(self._graph, _fill(self._abstract[0], params), _fill(self._abstract[1], stats), copy=True)
        network.remat = False  # the norms must not belong to an inner trace
        length = inputs.shape[2 if self.spec.pair else 1]
        ends = jnp.full(inputs.shape[: 2 if self.spec.pair else 1], length) if lengths is None else lengths
        positions = jnp.where(counted.reshape(-1, *[1] * (ends.ndim - 1)), ends.astype(jnp.int32), 0)
        real = jnp.arange(length)[:, None] < positions.swapaxes(0, -1).reshape(-1)[None, :]
        network.recurrence = probe = _NormProbe(self.recurrence, real)
        for block in network.blocks:
            block.layer = probe
        logits = network(inputs, lengths, False, None, places)
        return logits, jnp.stack(probe.found)

    def groups(self, params: Tree, *, decay_norm_bias: bool = True) -> Tree:
        """A tree like `params` with the parameter group of each leaf: "recurrent", "regular" or "undecayed".

        Without `decay_norm_bias`, biases and norms outside recurrences are "undecayed" too.
        """

        def group(name: str, parent: str) -> str:
            if parent == "recurrence":
                undecayed = "undecayed" if name in self.recurrence.undecayed_parameters else "regular"
                return "recurrent" if name in self.recurrence.recurrent_parameters else undecayed
            # only norms have a scale
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
        """Number of trained scalars."""
        return sum(leaf.size for leaf in jax.tree.leaves(params))


def _fill(state: Any, values: Tree) -> Any:
    """An NNX state with the structure of `state` and the arrays of a plain tree."""

    def pick(path: tuple[Any, ...], _: Any) -> Array:
        node: Any = values
        for entry in path:
            if isinstance(entry, jax.tree_util.DictKey):
                node = node[str(entry.key)]
        return node

    return jax.tree_util.tree_map_with_path(pick, state)
