"""The base of an optimiser."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any, ClassVar, NamedTuple

import jax
import optax

from lrurun.config.fingerprint import RATES

Tree = Any
"""Nested dictionaries of arrays, one for each parameter; or one vector of all, see `Optimizer.on_vector`."""


class Groups(NamedTuple):
    """What the groups of parameters do to an update. Both functions take and return a `Tree`."""

    decay: Callable[[Tree, Tree], Tree]
    """(tree, parameters) -> the tree, and for each parameter that decays weight_decay times the parameter."""
    scale: Callable[[Tree, jax.Array], Tree]
    """(tree, rate) -> the tree times the rate, and in the recurrent group times recurrent_factor."""


class WithoutRates:
    """A table `[optim]` that an optimiser reads: learning rates are data of compiled functions, which runs share."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError for settings of learning rates."""
        if name in ("lr", *RATES):
            raise AttributeError(
                f"optim.{name} is not known to an optimiser: runs with other rates share what is compiled. "
                "A direction has no learning rate; `update` has that of the step as an argument"
            )
        attribute = getattr_static(type(self._table), name, None)
        if hasattr(attribute, "__get__") and not isinstance(attribute, MemberDescriptorType):
            # a property or method of the table reads this object in its place, so that it has no learning rates either
            return attribute.__get__(self, type(self._table))
        return getattr(self._table, name)


class Optimizer(ABC):
    """What is made of gradients: `optim.name` chooses it.

    `transformation` is all that most have. Weight decay, learning rates and their schedule, clipping, accumulation and
    averages are added to it, the same for each optimiser.
    """

    on_vector: ClassVar[bool] = False
    """Whether all parameters come as one vector (size,), not as a tree: for optimisers that treat each number alone, or
    all together, but no array by itself. Compiling is then faster."""
    decay_in_gradient: ClassVar[bool] = False
    """Whether weight decay is added to gradients before they are transformed (an L2 penalty), not to what becomes of
    them (decoupled decay, Loshchilov and Hutter 2019)."""

    title: ClassVar[str] = ""
    """What plans and reports call it, as "AdamW"; without one, its name."""
    source: ClassVar[str] = ""
    """The paper that it is from, as "Loshchilov and Hutter 2019"."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings if isinstance(settings, WithoutRates) else WithoutRates(settings)
        """The table `[optim]` of the run, without what decides about the learning rates of steps alone."""

    @abstractmethod
    def transformation(self) -> optax.GradientTransformation:
        """Gradients -> the direction in which parameters are moved *down*, without learning rate and weight decay.

        As `optax.scale_by_adam()`: the change of parameters is minus the learning rate times the direction.
        """

    def init(self, params: Tree) -> Tree:
        """The state before the first step, for the initial parameters."""
        return self.transformation().init(params)

    def update(self, gradient: Tree, state: Tree, params: Tree, rate: jax.Array, groups: Groups) -> tuple[Tree, Tree]:
        """What is added to the parameters, and the new state.

        Args:
            rate: () float32, the learning rate of the step.
        """
        if self.decay_in_gradient:
            gradient = groups.decay(gradient, params)
        direction, state = self.transformation().update(gradient, state, params)
        if not self.decay_in_gradient:
            direction = groups.decay(direction, params)
        return groups.scale(direction, -rate), state

    def evaluated(self, params: Tree, state: Tree) -> Tree:
        """The parameters that are evaluated and kept, if they are not those that train; of NumPy, on the host."""
        return params
