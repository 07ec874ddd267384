"""How the parameters of a network are trained: what an optimiser makes of gradients, the groups of parameters with
rates and decay of their own (Orvieto et al. 2023, appendix D), and clipping.

`groups` says which parameters have weight decay, and which have the learning rate of the recurrence. No other module
knows the optimiser's state: `of_state` takes a part of it.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lrurun.config.optimizers import OPTIMIZERS, OptimConfig
from lrurun.nn.recurrences import Recurrence
from lrurun.training.layout import Layout, Starts
from lrurun.training.optimizers import Optimizer
from lrurun.training.optimizers.base import Groups, WithoutRates

Tree = Any
"""Nested dictionaries of arrays."""

Group = Literal["recurrent", "regular", "undecayed"]
"""Group of parameters: "recurrent" ones have a learning rate of their own, and only "regular" ones weight decay, unless
`decay_recurrent` gives it to the recurrent ones too."""


class LayoutOptimizer:
    """The optimiser of a configuration for parameters in a vector, whose layout knows the group of each.

    The learning rate of a step is an argument: rates are data, so runs that differ in them share compiled functions.
    """

    def __init__(self, config: OptimConfig, layout: Layout) -> None:
        self.config, self.layout = config, layout
        self._optimizer: Optimizer = OPTIMIZERS[config.name].load()(WithoutRates(config))
        self._groups = _of_vector(config, layout) if self.on_vector else _of_tree(config, layout)

    @property
    def on_vector(self) -> bool:
        """Whether the state has vectors like that of the parameters, not trees."""
        return self._optimizer.on_vector

    @property
    def evaluates_other(self) -> bool:
        """Whether the parameters that are evaluated are not those that train, see `evaluated`."""
        return type(self._optimizer).evaluated is not Optimizer.evaluated

    def init(self, params: Array) -> Tree:
        """The state before the first step."""
        return self._optimizer.init(params if self.on_vector else self.layout.tree(params))

    def update(
        self, gradient: Array, state: Tree, params: Array, *, rate: Array, starts: Starts = ()
    ) -> tuple[Array, Tree]:
        """What is added to the parameters (size,), and the new state. `starts` are those of the layout,
        which optimisers of vectors do not need."""
        if self.on_vector:
            return self._optimizer.update(gradient, state, params, rate, self._groups)
        gradients, parameters = (
            self.layout.arrays(vector, starts) if starts else self.layout.tree(vector) for vector in (gradient, params)
        )
        changes, state = self._optimizer.update(gradients, state, parameters, rate, self._groups)
        return self.layout.vector(changes), state

    def evaluated(self, params: Any, state: Tree) -> Any:
        """The parameters that are evaluated and kept, (size,); all of NumPy, on the host."""
        if self.on_vector:
            return self._optimizer.evaluated(params, state)
        return self.layout.vector(self._optimizer.evaluated(self.layout.tree(params), state))


def _of_vector(config: OptimConfig, layout: Layout) -> Groups:
    recurrent, regular = (layout.segments.get(group, slice(0, 0)) for group in ("recurrent", "regular"))

    # compared, not stored: factors of millions of parameters would be constants of the compiled function
    def decay(vector: Array, params: Array) -> Array:
        index = jnp.arange(layout.size)
        share = jnp.where(_within(index, regular), jnp.float32(config.weight_decay), 0.0)
        if config.decay_recurrent:
            share = jnp.where(_within(index, recurrent), jnp.float32(config.weight_decay), share)
        return vector + share * params

    def scale(vector: Array, rate: Array) -> Array:
        factor = jnp.where(_within(jnp.arange(layout.size), recurrent), jnp.float32(config.recurrent_factor), 1.0)
        return rate * factor * vector

    return Groups(decay, scale)


def _within(index: Array, part: slice) -> Array:
    return (index >= part.start) & (index < part.stop)


def _of_tree(config: OptimConfig, layout: Layout) -> Groups:
    decaying = ("regular", "recurrent") if config.decay_recurrent else ("regular",)

    def decay(tree: Tree, params: Tree) -> Tree:
        return jax.tree.map(
            lambda group, array, values: array + config.weight_decay * values if group in decaying else array,
            *(layout.groups, tree, params),
        )

    def scale(tree: Tree, rate: Array) -> Tree:
        return jax.tree.map(
            lambda group, array: (rate * config.recurrent_factor if group == "recurrent" else rate) * array,
            *(layout.groups, tree),
        )

    return Groups(decay, scale)


def groups(config: OptimConfig, recurrence: Recurrence, params: Tree) -> Tree:
    """A tree like `params`, the parameters of a network, with the `Group` of each leaf.

    Without `decay_norm_bias`, biases and norms outside recurrences are "undecayed" too.
    """

    def group(path: tuple[Any, ...], _: Any) -> Group:
        *_, parent, name = (entry.key for entry in path)
        if parent == "recurrence":
            if name in recurrence.recurrent_parameters:
                return "recurrent"
            return "undecayed" if name in recurrence.undecayed_parameters else "regular"
        # only norms have a scale
        return "regular" if config.decay_norm_bias or name not in ("bias", "scale") else "undecayed"

    tree: Tree = jax.tree_util.tree_map_with_path(group, params)
    return tree


def listing(config: OptimConfig, recurrence: Recurrence, params: Tree) -> list[tuple[str, tuple[int, ...], Group]]:
    """Dotted path, shape and group of every parameter, in the order of the paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), tuple(leaf.shape), group)
        for (path, leaf), group in zip(leaves, jax.tree.leaves(groups(config, recurrence, params)), strict=True)
    ]


def of_state(state: Tree, name: str) -> Tree:
    """A part of an optimiser's state by the name that optax gives it: "mu", "nu" or "count" of Adam.

    Raises:
        KeyError: the optimiser has no such part, or several.
    """

    def is_field(path: Any, _: Any) -> bool:
        return isinstance(path[-1], optax.tree_utils.NamedTupleKey)  # parameters may have any name, as nu

    part = optax.tree.get(state, name, filtering=is_field)
    if part is None:
        raise KeyError(name)
    return part
