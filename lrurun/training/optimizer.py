"""The optimiser, an optax transformation: AdamW in three groups of parameters (Orvieto et al. 2023, appendix D).

`groups` says which parameters have weight decay, and which have the learning rate of the recurrence. No other module
knows the optimiser's state: `of_state` takes a part of it.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from lrurun.config.schema import OptimConfig
from lrurun.nn.recurrences import Recurrence
from lrurun.training.layout import Layout

Tree = Any
"""Nested dictionaries of arrays."""

Group = Literal["recurrent", "regular", "undecayed"]
"""Group of parameters: "recurrent" ones have a learning rate of their own, and only "regular" ones weight decay."""


def make(config: OptimConfig, layout: Layout) -> optax.GradientTransformationExtraArgs:
    """AdamW (Loshchilov and Hutter 2019) for parameters in a vector, whose layout knows the group of each.

    Its `update` takes the learning rate of the step as `rate`, a float32 scalar: rates are data, so runs that differ in
    them share compiled functions. The recurrent group is trained at rate * recurrent_factor.
    """
    adam = optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps)
    recurrent, regular = (layout.segments.get(group, slice(0, 0)) for group in ("recurrent", "regular"))

    def update(grads: Array, state: Tree, params: Array, *, rate: Array, **_: Any) -> tuple[Array, Tree]:
        direction, state = adam.update(grads, state, params)
        # compared, not stored: factors of millions of parameters would be constants of the compiled function
        index = jnp.arange(layout.size)
        factor = jnp.where(_within(index, recurrent), jnp.float32(config.recurrent_factor), 1.0)
        decay = jnp.where(_within(index, regular), jnp.float32(config.weight_decay), 0.0)
        return -rate * factor * (direction + decay * params), state

    return optax.GradientTransformationExtraArgs(adam.init, update)


def _within(index: Array, part: slice) -> Array:
    return (index >= part.start) & (index < part.stop)


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
