"""Where the parameters of a network lie in one vector.

Training keeps parameters and moments as vectors, so that an elementwise optimiser is a few operations on all of them.
What takes long to compile is not each operation but each different one: of arrays that are optimised one by one, every
shape needs kernels of its own.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lrurun.errors import LrurunError

Tree = Any
"""Nested dictionaries of arrays."""

Starts = tuple[Array, ...]
"""Where each array begins, () int32 each, see `Layout.starts`."""


class Layout:
    """The parameters of a network one after another, those of one group of the optimiser next to each other.

    Attributes:
        size: the number of parameters, the length of the vector.
        groups: the name of each one's group, in a tree like the parameters.
        segments: group -> the part of the vector that has its parameters.
    """

    def __init__(self, tree: Tree, groups: Tree) -> None:
        """Takes parameters, or their shapes and types; `groups` is a tree like it with the name of each one's group.

        Raises:
            LrurunError: a parameter is not of float32.
        """
        named, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        for path, leaf in named:
            if leaf.dtype != np.float32:
                name = jax.tree_util.keystr(path, simple=True, separator=".")
                raise LrurunError(
                    f"parameter {name}: expected float32, found {leaf.dtype}",
                    hint="all parameters are float32; to check a recurrence: lrurun check recurrence NAME",
                )
        self.groups, group_names = groups, jax.tree.leaves(groups)
        self._shapes = [tuple(leaf.shape) for _, leaf in named]
        self._order = sorted(range(len(named)), key=group_names.__getitem__)
        self._starts = [0] * len(named)
        self.size, self.segments = 0, dict[str, slice]()
        for number in self._order:
            group, self._starts[number] = group_names[number], self.size
            self.size += math.prod(self._shapes[number])
            first = self.segments[group].start if group in self.segments else self._starts[number]
            self.segments[group] = slice(first, self.size)

    def vector(self, tree: Tree) -> Any:
        """The parameters of a tree as one vector (size,), of NumPy if they are; otherwise traced or on the device."""
        leaves = jax.tree.leaves(tree)
        numpy: Any = np if all(isinstance(leaf, np.ndarray) for leaf in leaves) else jnp
        return numpy.concatenate([leaves[number].reshape(-1) for number in self._order])

    def tree(self, vector: Any) -> Tree:
        """The parameters in a vector (size,): views of it, if it is of NumPy."""
        parts = zip(self._starts, self._shapes, strict=True)
        leaves = [vector[start : start + math.prod(shape)].reshape(shape) for start, shape in parts]
        return jax.tree_util.tree_unflatten(self._structure, leaves)

    def starts(self) -> Starts:
        """Where each parameter begins, for `arrays`; traced outside of the loop over steps.

        As data, not as constants: XLA then makes one kernel for all parameters of a shape, not one for each.
        """
        starts: Starts = jax.lax.optimization_barrier(tuple(jnp.int32(start) for start in self._starts))
        return starts

    def arrays(self, vector: Array, starts: Starts) -> Tree:
        """The parameters in a traced vector (size,), as `tree` returns them, but each in memory of its own."""
        leaves = [
            jax.lax.dynamic_slice(vector, (start,), (math.prod(shape),), allow_negative_indices=False).reshape(shape)
            for start, shape in zip(starts, self._shapes, strict=True)
        ]
        return jax.tree_util.tree_unflatten(self._structure, jax.lax.optimization_barrier(leaves))
