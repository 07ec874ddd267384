"""The compiled functions of a configuration: initialise, train some steps, evaluate.

Seeds and learning rates are data, not constants, so all seeds of a rung share them.
"""

from __future__ import annotations

import contextlib
import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lrurun.config.fingerprint import compiled_key
from lrurun.config.schema import Execution, RunConfig
from lrurun.data.metric import Accuracy, Metric
from lrurun.data.on_device import fixed_generator, stream, training_batch
from lrurun.data.task import Data, Sampler, Spec
from lrurun.nn.devices import shared_by
from lrurun.nn.network import Model
from lrurun.training import COMPILED_KEPT, optimizer
from lrurun.training.objective import Objective
from lrurun.training.placement import placement

Tree = Any
"""Nested dictionaries of arrays."""

T = TypeVar("T")

Batch = tuple[jax.Array, ...]
"""Inputs, labels and lengths, which are None where every position is real."""


class Evaluated(NamedTuple):
    """Parameters and norm statistics of a network that is evaluated. The names are part of the names in checkpoints."""

    params: Tree
    stats: Tree


class TrainState(NamedTuple):
    """The state that a training step changes. Its buffers are donated from dispatch to dispatch.

    The names of the fields are part of the names in checkpoints.
    """

    step: jax.Array
    """() int32: steps taken."""
    params: Tree
    stats: Tree
    """Running statistics of the norms."""
    moments: Tree
    """State of the optimiser."""
    window: jax.Array
    """(3,) float32: summed loss, correct predictions and labels since the last row of the training curve."""
    bad_step: jax.Array
    """() int32: the first step whose loss was not finite, or -1."""

    def evaluated(self) -> Evaluated:
        """The parameters and statistics that evaluations, the best ones that are kept, and probes take."""
        return Evaluated(self.params, self.stats)


class Readings(NamedTuple):
    """Values that the host reads while the next dispatch runs: copies, because that one reuses the buffers of the
    state."""

    window: jax.Array
    bad_step: jax.Array


class Compiled:
    """The compiled functions of one configuration, for any number of runs that are trained together, its members.

    Every array that belongs to a member has a leading axis of members, also where there is one.

    Attributes:
        dispatch: states, seeds, index, rates, reset, n, split -> states, Readings; see `_dispatch`.
        evaluate: Evaluated, batch, weight, counted, with_items -> sums, (members, depth) float32, sums of items; see
            `_evaluate`.
        keep: best ones so far, states, is_better -> best ones, `Evaluated`.
        placement: the devices they run on.
    """

    def __init__(
        self,
        config: RunConfig,
        execution: Execution,
        spec: Spec,
        *,
        metrics: Sequence[Metric] = (Accuracy(),),
        sampler: Sampler | None = None,
    ) -> None:
        self.batch = config.train.batch
        self.sampler = sampler
        self.objective = Objective(spec, metrics)
        self.counts: set[int] = set()
        """The numbers of members for which this process has compiled them."""
        self.optim = config.optim
        self.drops = config.model.dropout > 0
        self.model = Model(config.model, spec, backend=execution.scan_backend, remat=execution.remat)
        self.rows = max(2, execution.steps_per_dispatch)  # XLA compiles a loop over one row into other sums
        self.optimizer = optimizer.make(config.optim, self.model.recurrence)
        self.abstract = jax.eval_shape(self._initial, jnp.uint32(0))
        """Shapes and dtypes of the state of one run."""
        self.groups = optimizer.groups(config.optim, self.model.recurrence, self.abstract.params)
        self.parameters = self.model.count(self.abstract.params)
        self.placement = placement(execution.devices)
        everywhere, batch = self.placement.everywhere, self.placement.batch()
        index = everywhere if sampler is not None else self.placement.batch(axis=2)
        self._init = jax.jit(partial(over_members, self._initial))
        self.dispatch = jax.jit(
            self._dispatch,
            donate_argnums=0,
            in_shardings=(everywhere, everywhere, index, *[everywhere] * 4),
            out_shardings=everywhere,
        )
        self.evaluate = jax.jit(
            self._evaluate,
            in_shardings=(everywhere, batch, batch, batch, everywhere),
            out_shardings=(everywhere, everywhere, self.placement.batch(axis=1)),
        )
        self.keep = jax.jit(_keep, in_shardings=everywhere, out_shardings=everywhere)

    def init(self, seeds: np.ndarray) -> TrainState:
        """The states before the first step, for `seeds` (members,)."""
        move = self.model.recurrence.init_on_cpu and jax.default_backend() != "cpu"
        with jax.default_device(jax.local_devices(backend="cpu")[0]) if move else contextlib.nullcontext():
            states = self._init(seeds)
        placed: TrainState = jax.device_put(jax.device_get(states) if move else states, self.placement.everywhere)
        return placed

    def _initial(self, seed: jax.Array) -> TrainState:
        """The state of one run before its first step."""
        params, stats = self.model.init(stream(seed, "init"))
        return TrainState(
            step=jnp.int32(0),
            params=params,
            stats=stats,
            moments=self.optimizer.init(params),
            window=jnp.zeros(3, jnp.float32),
            bad_step=jnp.int32(-1),
        )

    def _loss(self, params: Tree, stats: Tree, batch: Batch, key: jax.Array | None) -> Any:
        """Mean loss of a batch (), and: the new statistics, the numbers of correct predictions () and of labels ()."""
        inputs, labels, lengths = batch
        positions, labels = self.objective.positions(labels, inputs.shape[-2 if inputs.ndim == 3 else -1])
        outputs, new_stats = self.model.apply(params, stats, inputs, lengths, train=True, key=key, positions=positions)
        loss, correct, count = self.objective.loss(outputs, labels)
        return loss, (new_stats, correct, count)

    def _train_step(self, state: TrainState, seed: jax.Array, batch: Batch, rate: jax.Array) -> TrainState:
        key = jax.random.fold_in(stream(seed, "dropout"), state.step) if self.drops else None
        with shared_by(self.placement.mesh.abstract_mesh):
            (loss, (stats, correct, count)), grads = jax.value_and_grad(self._loss, has_aux=True)(
                state.params, state.stats, batch, key
            )
        changes, moments = self.optimizer.update(grads, state.moments, state.params, rate=rate)
        params = optax.apply_updates(state.params, changes)
        step = state.step + 1
        window = state.window + jnp.stack([loss * count, correct, count])
        bad_step = jnp.where((state.bad_step < 0) & ~jnp.isfinite(loss), step, state.bad_step)
        return TrainState(step=step, params=params, stats=stats, moments=moments, window=window, bad_step=bad_step)

    def _dispatch(
        self,
        states: TrainState,
        seeds: jax.Array,
        index: jax.Array,
        rates: jax.Array,
        reset: jax.Array,
        n: jax.Array,
        split: Batch,
    ) -> tuple[TrainState, Readings]:
        """Trains `n` steps, at most as many as `index` (members, rows, batch) and `rates` (members, rows) hold.

        Row i of `index` has the positions in `split` of the examples of step i; a sampler does not need them. `reset`
        starts a new row of the curve.
        """
        healthy = jnp.any(states.bad_step < 0)  # once all members have diverged, nothing changes
        n, reset = jnp.where(healthy, n, 0), reset & healthy

        def train(state: TrainState, seed: jax.Array, index: jax.Array, rates: jax.Array) -> TrainState:
            def body(i: jax.Array, state: TrainState) -> TrainState:
                if self.sampler is None:
                    batch = jax.tree.map(lambda array: jnp.take(array, index[i], axis=0), split)
                else:
                    batch = training_batch(self.sampler, seed, state.step, self.batch)
                    batch = jax.lax.with_sharding_constraint(batch, self.placement.batch())
                return self._train_step(state, seed, batch, rates[i])

            state = state._replace(window=jnp.where(reset, jnp.zeros_like(state.window), state.window))
            return jax.lax.fori_loop(0, n, body, state)

        with fixed_generator():
            states = over_members(train, states, seeds, index, rates)
        return states, Readings(states.window, states.bad_step)

    def _evaluate(
        self, evaluated: Evaluated, batch: Batch, weight: jax.Array, counted: jax.Array, with_items: jax.Array
    ) -> tuple[dict[str, jax.Array], jax.Array, dict[str, jax.Array]]:
        """Loss, labels and what the metrics need, summed over a batch with weights (B,), 0 for padding.

        And (members, depth) float32: the mean norm of the recurrent state of each layer, over the examples where
        `counted` (B,) is true. And what the metrics need of single items, (members, B), zeros without
        `with_items`. One function for all, because functions take long to compile.
        """
        inputs, labels, lengths = batch
        positions, labels = self.objective.positions(labels, inputs.shape[-2 if inputs.ndim == 3 else -1])

        def evaluate(member: Evaluated) -> tuple[dict[str, jax.Array], jax.Array, dict[str, jax.Array]]:
            with shared_by(self.placement.mesh.abstract_mesh):
                outputs, norms = self.model.evaluate(member.params, member.stats, inputs, lengths, counted, positions)
            sums = self.objective.sums(outputs, labels, weight)
            # Apart from the sums and after them: XLA would round them differently if it computed both together, or need
            # a copy of the outputs.
            sums, outputs = jax.lax.optimization_barrier((sums, outputs))
            of_items = self.objective.items
            shapes = jax.eval_shape(of_items, outputs, labels, weight)
            items = jax.lax.cond(
                with_items,
                of_items,
                lambda *_: jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes),
                *(outputs, labels, weight),
            )
            return sums, norms, items

        return over_members(evaluate, evaluated)


def _keep(bests: Evaluated, states: TrainState, is_better: jax.Array) -> Evaluated:
    def keep(best: Evaluated, state: TrainState, is_better: jax.Array) -> Evaluated:
        return jax.tree.map(partial(jnp.where, is_better), state.evaluated(), best)

    return over_members(keep, bests, states, is_better)


def over_members(function: Callable[..., T], *arguments: Tree) -> T:
    """`function` of each member's part of the arguments, which have a leading axis of members, as its results then do.

    One member is not vectorised: XLA makes slower code of that, which takes longer to compile and rounds differently.
    """
    if len(jax.tree.leaves(arguments)[0]) > 1:
        return jax.vmap(function)(*arguments)
    result: T = jax.tree.map(lambda leaf: leaf[None], function(*of_member(arguments, 0)))
    return result


def of_member(tree: Tree, number: int) -> Tree:
    """The part of `tree` that belongs to the member with this number."""
    return jax.tree.map(lambda leaf: leaf[number], tree)


_CACHE: OrderedDict[str, Compiled] = OrderedDict()


def compiled_for(config: RunConfig, execution: Execution, data: Data) -> Compiled:
    """The functions of a configuration on its data, cached for the next run of the same rung."""
    key = compiled_key(config, execution) + f"|{data.spec}|{data.metrics}"
    if key not in _CACHE:
        _CACHE[key] = Compiled(config, execution, data.spec, metrics=data.metrics, sampler=data.sampler)
        if len(_CACHE) > COMPILED_KEPT:
            _CACHE.popitem(last=False)
            gc.collect()  # they are part of cycles, and hold a tenth of a process's memory
    _CACHE.move_to_end(key)
    return _CACHE[key]
