"""Descent: many updates of an optimiser in one scan, for the studies that train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Carry = tuple[Any, Any]
"""Parameters, and the state of the optimiser."""


class Descent(NamedTuple):
    """The end of n updates, and the way there."""

    carry: Carry
    losses: Any
    """The loss before each update, (n,)."""
    path: Any
    """The parameters before each update: the tree of the parameters, with arrays (n, ...)."""


def descent(
    loss: Callable[..., Any],
    optimizer: Any,
    start: Carry,
    rates: Any,
    batches: tuple[Any, ...] = (),
) -> Descent:
    """Makes an update for each of the learning rates. It is part of a function that jax compiles.

    Args:
        loss: (parameters, *batch) -> the loss.
        optimizer: an optax transformation without a learning rate, as `scale_by_adam`.
        start: parameters, and the state of the optimiser.
        rates: the learning rate of each update, (n,).
        batches: arrays (n, ...), of which the loss of an update has one row each.
    """
    import jax

    def update(carry: Carry, inputs: tuple[Any, ...]) -> tuple[Carry, tuple[Any, Any]]:
        (parameters, state), (rate, *batch) = carry, inputs
        value, slope = jax.value_and_grad(loss)(parameters, *batch)
        change, state = optimizer.update(slope, state)
        moved = jax.tree.map(lambda p, d: p - rate * d, parameters, change)
        return (moved, state), (value, parameters)

    carry, (losses, path) = jax.lax.scan(update, start, (rates, *batches))
    return Descent(carry, losses, path)
