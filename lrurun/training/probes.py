"""Probes: gradients, eigenvalues and steps of the optimiser while a network is trained, as curves beside its scores.

They are computed at every evaluation and change nothing of the state, so that the run keeps its bits. The norm of the
recurrent state is not among them: every evaluation records it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from lrurun.config.optimizers import OptimConfig
from lrurun.config.optimizers.adamw import Adam, AdamW
from lrurun.nn.spectra import Spectra, eigenvalues
from lrurun.training import optimizer
from lrurun.training.compiled import Compiled, TrainState, Tree, of_member, over_members
from lrurun.training.feed import DispatchInput

QUANTILES = (0, 10, 50, 90, 100)
"""The quantiles of eigenvalues that are recorded, in percent."""


def measure(
    compiled: Compiled,
    state: TrainState,
    seeds: np.ndarray,
    last: DispatchInput,
    rates: Mapping[int, float],
) -> dict[int, dict[str, float]]:
    """The curve rows of each run in `rates`, after the dispatch that took the input `last`.

    * `gradient/GROUP`: Euclidean norm of the gradient with respect to the parameters of a group of the optimiser, on
      the batch of the last step, at the parameters after it, which train: the gradient of the loss alone, before
      clipping, and of the whole batch, however many parts it has.
    * `effective_step/GROUP`: see `effective_steps`; of AdamW and Adam alone.
    * `lambda/layerK/qQ` and `phase/layerK/qQ`: see `quantiles`; absent for kinds of recurrence without eigenvalues. Of
      the parameters that are evaluated, see `Compiled.evaluated`.

    Args:
        state: the state of all runs, which is not changed.
        rates: member -> learning rate of the last step.
    """
    optim, moments = _adam(compiled.optim), None
    if optim is not None:
        moments = tuple(optimizer.of_state(state.moments, name) for name in ("nu", "count"))
    gradients = _gradients(compiled, state, seeds, last)
    read = jax.device_get((moments, state.step))
    evaluated = compiled.evaluated_on_host(state)
    rows = {}
    for member, rate in rates.items():
        moment, step = of_member(read, member)
        parts = _parts(compiled, gradients[member])
        values = {f"gradient/{group}": float(np.linalg.norm(part)) for group, part in parts.items()}
        if optim is not None and moment is not None:
            nu, count = moment
            steps = effective_steps(optim, _parts(compiled, nu), int(count), rate)
            values |= {f"effective_step/{group}": step_size for group, step_size in steps.items()}
        layers = spectra(compiled, evaluated[member].params, int(step))
        rows[member] = values | quantiles(layers or ())
    return rows


def _adam(optim: OptimConfig) -> AdamW | Adam | None:
    """The settings of AdamW or Adam; None of others, also of those of a plug-in that extend these."""
    return optim if isinstance(optim, AdamW | Adam) and optim.name in ("adamw", "adam") else None


def _gradients(compiled: Compiled, state: TrainState, seeds: np.ndarray, last: DispatchInput) -> np.ndarray:
    """The gradients on the last batch, (members, size) float64, with the dropout masks of the last step."""
    optim = _adam(compiled.optim)
    if isinstance(optim, AdamW) and not optim.clip:  # of Adam, moments have the decay in them
        moments = np.asarray(_first_moments(compiled, state, seeds, last), np.float64)
        return moments / (1.0 - optim.b1)
    before = state._replace(step=state.step - 1)
    gradients = compiled.gradients(before, seeds, last.indices, np.int32(last.n - 1), last.split)
    return np.asarray(gradients, np.float64)


def _first_moments(compiled: Compiled, state: TrainState, seeds: np.ndarray, last: DispatchInput) -> Array:
    """(1 - b1) times the gradient on the last batch: the first moments of a new AdamW that takes its step again.

    With the function that trains, so that none is compiled a second time, and on a copy, which it may overwrite.
    """
    indices = np.zeros_like(last.indices)
    indices[:, 0] = last.indices[:, last.n - 1]
    rates = np.zeros((len(indices), compiled.rows), np.float32)
    before = _before(compiled.optimizer, state)
    repeated, _ = compiled.dispatch(before, seeds, indices, rates, np.bool_(False), np.int32(1), last.split)
    mu: Array = optimizer.of_state(repeated.moments, "mu")
    return mu


@partial(jax.jit, static_argnums=0)
def _before(new: optimizer.LayoutOptimizer, state: TrainState) -> TrainState:
    """A copy of the state, a step earlier and with a new optimiser."""
    copied = jax.tree.map(jnp.copy, state)
    return copied._replace(step=state.step - 1, moments=over_members(new.init, state.params))


def _parts(compiled: Compiled, vector: np.ndarray) -> dict[str, np.ndarray]:
    """The numbers in a vector of parameters (size,) of each group of the optimiser, as float64."""
    return {group: vector[part].astype(np.float64) for group, part in compiled.layout.segments.items()}


def effective_steps(optim: AdamW | Adam, second: Mapping[str, np.ndarray], count: int, rate: float) -> dict[str, float]:
    """Adam's effective step in each group: the median over its parameters of lr / (sqrt(v_hat) + eps).

    Adam multiplies the bias-corrected mean gradient by it (Zucchet and Orvieto 2024, Fig. 4C and D). lr is the rate of
    the group, and v_hat = v / (1 - b2^count). Parameters whose gradient has always been zero are left out.

    Args:
        second: group -> v, the second moments of its parameters after `count` steps.
        rate: learning rate of the last of these steps; the recurrent group has rate * recurrent_factor.
    """
    steps = {}
    for group, v in second.items():
        lr = rate * optim.recurrent_factor if group == "recurrent" else rate
        root = np.sqrt(v[v > 0] / (1.0 - optim.b2**count))
        if root.size:
            steps[group] = float(np.median(lr / (root + optim.eps)))
    return steps


def quantiles(layers: Sequence[np.ndarray]) -> dict[str, float]:
    """`QUANTILES` of |lambda| and of the phase, |arg lambda| in [0, pi], over the eigenvalues of each layer.

    `phase/layer0/q90` is the phase, in radians, that 90 % of the eigenvalues of the first layer do not exceed. NaN
    where parameters are not finite.
    """
    rows: dict[str, float] = {}
    for number, layer in enumerate(layers):
        for name, values in (("lambda", np.abs(layer)), ("phase", np.abs(np.angle(layer)))):
            at = np.percentile(values, QUANTILES)
            rows |= {f"{name}/layer{number}/q{q}": float(value) for q, value in zip(QUANTILES, at, strict=True)}
    return rows


def spectra(compiled: Compiled, params: Tree, step: int) -> Spectra | None:
    """The eigenvalues of one run's recurrences, computed on the host from a copy of `params`; None if it has none."""
    blocks = {number: {"recurrence": block["recurrence"]} for number, block in params["blocks"].items()}
    try:
        return eigenvalues(compiled.model.recurrence, {"blocks": jax.tree.map(np.array, blocks)})
    except Exception as error:  # of a plug-in: a run must not be lost for a figure
        problem = f"no eigenvalues at step {step}: {type(error).__name__}: {error}"
        warnings.warn(problem, RuntimeWarning, stacklevel=2)
        return None
