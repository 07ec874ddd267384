"""The compiled functions of a configuration: initialise, train some steps, evaluate.

Seeds and learning rates are data, not constants, so all seeds of a rung share them.
"""

from __future__ import annotations

import contextlib
import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax

from lrurun.config.fingerprint import program_key
from lrurun.config.schema import Execution, ModelConfig, RunConfig
from lrurun.data.metric import Accuracy, Metric
from lrurun.data.on_device import fixed_generator, stream, training_batch
from lrurun.data.task import Data, Sampler, Spec
from lrurun.nn.devices import shared_by
from lrurun.nn.draws import Parts
from lrurun.nn.network import Model
from lrurun.training import COMPILED_KEPT, optimizer
from lrurun.training.clipping import clipped
from lrurun.training.layout import Layout, Starts
from lrurun.training.objective import Objective
from lrurun.training.placement import Placement, placement

Tree = Any
"""Nested dictionaries of arrays."""

T = TypeVar("T")

SMALL_LAYER = 2**18
"""Numbers of a layer, batch times length times width, from which on XLA optimises fully, see `compiler_options`.

Measured with two layers of the LRU, width 64: steps take 1.00 of the time with 80,000 to 2^18 numbers, and 1.03 with
2^19 and 2^20.
"""

_LESS_OPTIMISED = {"xla_backend_optimization_level": 1}

AnyArray = Any
"""An array of the host, of a device, or traced."""

Batch = tuple[jax.Array, ...]
"""Inputs, labels and lengths, which are None where every position is real."""


class Evaluated(NamedTuple):
    """Parameters and norm statistics of a network that is evaluated. The names are part of the names in checkpoints."""

    params: Tree
    stats: Tree


class TrainState(NamedTuple):
    """The state that a training step changes. Its buffers are donated from dispatch to dispatch.

    Parameters and what the optimiser keeps of them are vectors on the device, trees on the host, see `Compiled.named`.
    The names of the fields are part of the names in checkpoints.
    """

    step: AnyArray
    """() int32: steps taken."""
    params: Tree
    stats: Tree
    """Running statistics of the norms."""
    moments: Tree
    """State of the optimiser."""
    window: AnyArray
    """(3,) float32: summed loss, correct predictions and labels since the last row of the training curve."""
    bad_step: AnyArray
    """() int32: the first step whose loss was not finite, or -1."""
    average: Evaluated | None = None
    """The averages of parameters and statistics, with `optim.average`: of `params` and `stats` in the same form."""


class Readings(NamedTuple):
    """Values that the host reads while the next dispatch runs: copies, because that one reuses the buffers of the
    state."""

    window: jax.Array
    bad_step: jax.Array


class Initial:
    """The initial values of a model, and the compiled function that computes them."""

    def __init__(self, model: Model) -> None:
        self.counts: set[int] = set()
        """The numbers of members for which this process has compiled the function."""
        self._parts = Parts(lambda seed: model.init(stream(seed, "init")), jax.ShapeDtypeStruct((), jnp.uint32))
        self.shapes = self._parts.shapes
        """Shapes and dtypes of parameters and norm statistics."""
        self._on_cpu = model.recurrence.init_on_cpu
        self._compute = jax.jit(partial(over_members, self._parts.compute))

    def values(self, seeds: np.ndarray) -> list[tuple[Tree, Tree]]:
        """Parameters and norm statistics for each of `seeds` (members,), on the host."""
        move = self._on_cpu and jax.default_backend() != "cpu"
        with jax.default_device(jax.local_devices(backend="cpu")[0]) if move else contextlib.nullcontext():
            drawn = jax.tree.map(lambda *arrays: np.stack(arrays), *[self._parts.draw([seed]) for seed in seeds])
            computed = jax.device_get(self._compute(drawn))
        self.counts.add(len(seeds))
        return [self._parts.arrange(*of_member((drawn, computed), number)) for number in range(len(seeds))]


class Compiled:
    """The compiled functions of a configuration, for any number of runs that are trained together, its members.

    Configurations that differ in settings of initial values alone share them, as they share `model`, which is that of
    the first one. Every array that belongs to a member has a leading axis of members, also where there is one.

    Attributes:
        dispatch: states, seeds, index, rates, reset, n, split -> states, Readings; see `_dispatch`.
        gradients: states, seeds, index, row, split -> (members, size) float32; see `_gradients`.
        outputs: Evaluated, inputs, labels, lengths, counted -> outputs, (members, depth) float32; see `_outputs`.
        scores: outputs, labels, weight, with_items -> sums, sums of items; see `_scores_of`. All rungs share it.
        placement: the devices they run on.
        layout: where each parameter lies in the vectors of a state on the device.
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
        """Of the configuration for which they were made: others that share them may have other learning rates."""
        self.drops = config.model.dropout > 0
        self._initial = OrderedDict[Hashable, Initial]()
        self.rows = max(2, execution.steps_per_dispatch)  # XLA compiles a loop over one row into other sums
        self._model_of = partial(Model, spec=spec, backend=execution.scan_backend, remat=execution.remat)
        self.model = self._model_of(config.model)
        params, stats = self.initial(config.model, self.model).shapes
        self.layout = Layout(params, optimizer.groups(config.optim, self.model.recurrence, params))
        self.optimizer = optimizer.LayoutOptimizer(config.optim, self.layout)
        self.vector_shapes = jax.eval_shape(
            self._beginning, jax.ShapeDtypeStruct((self.layout.size,), jnp.float32), stats
        )
        """Shapes and dtypes of the state of one run on the device."""
        self.abstract: TrainState = jax.eval_shape(self.named, self.vector_shapes)
        """The same on the host and in checkpoints."""
        self.abstract_evaluated = Evaluated(self.abstract.params, self.abstract.stats)
        """Shapes and dtypes of the parameters and statistics that are evaluated and kept, see `evaluated`."""
        self.parameters = self.layout.size
        self.placement = placement(execution.devices)
        everywhere, batch = self.placement.everywhere, self.placement.batch()
        index = everywhere if sampler is not None else self.placement.batch(axis=2)
        options = compiler_options(self.batch // config.optim.accumulate * spec.length * config.model.width)
        self.dispatch = jax.jit(
            self._dispatch,
            donate_argnums=0,
            compiler_options=options,
            in_shardings=(everywhere, everywhere, index, *[everywhere] * 4),
            out_shardings=everywhere,
        )
        self.gradients = jax.jit(  # compiled where it is used: by the probes of some optimisers
            self._gradients,
            compiler_options=options,
            in_shardings=(everywhere, everywhere, index, everywhere, everywhere),
            out_shardings=everywhere,
        )
        self.outputs = jax.jit(
            self._outputs,
            compiler_options=options,
            in_shardings=(everywhere, batch, batch, batch, batch),
            out_shardings=(self.placement.batch(axis=1), everywhere),
        )
        shared = (spec.output, spec.classes, _metrics_key(metrics), self.placement)
        self.scores = _kept(_SCORES, shared, lambda: _scores_of(self.objective, self.placement))

    def initial(self, config: ModelConfig, model: Model | None = None) -> Initial:
        """Look up or make the initial values of a configuration, whose `model` is built where it is not given."""
        key = msgspec.json.encode(config).decode()
        return _kept(self._initial, key, lambda: Initial(model or self._model_of(config)))

    def is_compiled(self, config: ModelConfig, members: int, *, begins: bool) -> bool:
        """Whether this process has compiled what so many members need, with initial values where training `begins`."""
        return members in self.counts and (not begins or members in self.initial(config).counts)

    def init(self, config: ModelConfig, seeds: np.ndarray) -> TrainState:
        """The states before the first step, for `seeds` (members,); the host has them on their way to the devices."""
        values = self.initial(config).values(seeds)
        return self.on_device([self._beginning(self.layout.vector(params), stats) for params, stats in values])

    def _beginning(self, vector: Tree, stats: Tree) -> TrainState:
        """The state of one run before its first step, of parameters (size,) and statistics."""
        return TrainState(
            step=np.int32(0),
            params=vector,
            stats=stats,
            moments=jax.device_get(self.optimizer.init(vector)),
            window=np.zeros(3, np.float32),
            bad_step=np.int32(-1),
            average=None if self.optim.average == "none" else Evaluated(vector, stats),
        )

    def named(self, state: TrainState) -> TrainState:
        """The state of one run with the names and shapes of each parameter, in place of vectors."""
        moments = jax.tree.map(lambda part: self.layout.tree(part) if self._is_vector(part) else part, state.moments)
        average = state.average and state.average._replace(params=self.layout.tree(state.average.params))
        return state._replace(params=self.layout.tree(state.params), moments=moments, average=average)

    def vectors(self, named: TrainState) -> TrainState:
        """The state of one run on the host with vectors, as it is on the device: the inverse of `named`."""
        moments = jax.tree.map(  # where the first tree has a vector, the second one has a tree of parameters
            lambda shape, part: self.layout.vector(part) if self._is_vector(shape) else part,
            self.vector_shapes.moments,
            named.moments,
        )
        average = named.average and named.average._replace(params=self.layout.vector(named.average.params))
        return named._replace(params=self.layout.vector(named.params), moments=moments, average=average)

    def _is_vector(self, part: Any) -> bool:
        """Whether a part of the optimiser's state, or its shape and dtype, has a number for every parameter."""
        return self.optimizer.on_vector and bool(part.shape == (self.layout.size,))

    def on_host(self, states: TrainState) -> list[TrainState]:
        """The named state of each member; on a CPU, views of the device's own memory, which a dispatch reuses.

        It costs little more to read the same states again: JAX keeps what it has read.
        """
        read = jax.device_get(states)
        return [self.named(of_member(read, number)) for number in range(len(read.step))]

    def evaluated(self, state: TrainState) -> Evaluated:
        """What evaluations, the best parameters that are kept, spectra and probes take of the state of one run.

        The averages, where the run or its optimiser has some; otherwise what is trained.

        Args:
            state: on the host, with vectors.
        """
        if state.average is not None:
            params, stats = state.average
        else:
            params, stats = self.optimizer.evaluated(state.params, state.moments), state.stats
        return Evaluated(self.layout.tree(params), stats)

    def evaluated_on_host(self, states: TrainState) -> list[Evaluated]:
        """`evaluated` of each member, as `on_host`: no more of the states is read than that needs."""
        if states.average is not None:
            states = states._replace(params=None, stats=None, moments=None)
        elif not self.optimizer.evaluates_other:
            states = states._replace(moments=None)
        read = jax.device_get(states)
        return [self.evaluated(of_member(read, number)) for number in range(len(read.step))]

    def on_device(self, of_members: Sequence[T]) -> T:
        """Trees of the host, one for each member, as one on the devices with a leading axis of members."""
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *of_members)
        placed: T = jax.device_put(stacked, self.placement.everywhere)
        return placed

    def _loss(
        self, params: Tree, stats: Tree, batch: Batch, key: jax.Array | None, shares: jax.Array | None = None
    ) -> Any:
        """Mean loss of a batch (), and: the new statistics, the numbers of correct predictions () and of labels ().

        With the `shares` of the labels of a part of a batch, its part of the loss of the whole, see `Objective.shares`.
        """
        inputs, labels, lengths = batch
        positions = self.objective.positions(labels, inputs.shape[-2 if inputs.ndim == 3 else -1])
        outputs, new_stats = self.model.apply(params, stats, inputs, lengths, train=True, key=key, positions=positions)
        chosen = self.objective.labels_at(labels)
        if shares is None:
            loss, correct, count = self.objective.loss(outputs, chosen)
        else:
            loss, correct, count = self.objective.loss_of_part(outputs, chosen, shares)
        return loss, (new_stats, correct, count)

    def _gradient(
        self, params: Tree, stats: Tree, batch: Batch, key: jax.Array | None, shares: jax.Array | None = None
    ) -> tuple[jax.Array, Tree, jax.Array, jax.Array, jax.Array]:
        """Loss, new statistics, correct predictions and labels as of `_loss`, and the gradient (size,)."""
        with shared_by(self.placement.mesh.abstract_mesh):
            (loss, (stats, correct, count)), grads = jax.value_and_grad(self._loss, has_aux=True)(
                params, stats, batch, key, shares
            )
        # in memory before it is read: otherwise each kernel that reads it would work out, for every number, which
        # parameter's gradient it comes from
        return loss, stats, correct, count, jax.lax.optimization_barrier(self.layout.vector(grads))

    def _accumulated(
        self, params: Tree, stats: Tree, batch: Batch, key: jax.Array | None
    ) -> tuple[jax.Array, Tree, jax.Array, jax.Array, jax.Array]:
        """As `_gradient`, of a batch whose parts go through the network one after another.

        Part i of k has the examples i, i + k, ..., so that each device has an equal share of each part.
        """
        k = self.optim.accumulate
        shares = self.objective.shares(self.objective.labels_at(batch[1]))
        split = jax.tree.map(
            lambda array: jax.lax.with_sharding_constraint(
                array.reshape(len(array) // k, k, *array.shape[1:]), self.placement.batch()
            ),
            (batch, shares),
        )

        def add(i: jax.Array, sums: Any) -> Any:
            stats, totals = sums
            part, part_shares = jax.tree.map(
                lambda array: jax.lax.dynamic_index_in_dim(array, i, axis=1, keepdims=False), split
            )
            part_key = None if key is None else jax.random.fold_in(key, i)
            loss, stats, *others = self._gradient(params, stats, part, part_key, part_shares)
            return stats, jax.tree.map(jnp.add, totals, (loss, *others))

        zero = jnp.float32(0.0)
        totals = (zero, zero, zero, jnp.zeros(self.layout.size, jnp.float32))
        stats, (loss, correct, count, gradient) = jax.lax.fori_loop(0, k, add, (stats, totals))
        return loss, stats, correct, jnp.maximum(count, 1.0), gradient

    def _gradient_of_step(
        self, state: TrainState, seed: jax.Array, batch: Batch, starts: Starts
    ) -> tuple[jax.Array, Tree, jax.Array, jax.Array, jax.Array]:
        """As `_gradient`, of the whole batch of the step that follows the state: before clipping."""
        key = jax.random.fold_in(stream(seed, "dropout"), state.step) if self.drops else None
        params = self.layout.arrays(state.params, starts)
        if self.optim.accumulate == 1:
            return self._gradient(params, state.stats, batch, key)
        return self._accumulated(params, state.stats, batch, key)

    def _train_step(
        self, state: TrainState, seed: jax.Array, batch: Batch, rate: jax.Array, starts: Starts
    ) -> TrainState:
        loss, stats, correct, count, gradient = self._gradient_of_step(state, seed, batch, starts)
        gradient = clipped(gradient, self.optim, self.layout, starts)
        changes, moments = self.optimizer.update(gradient, state.moments, state.params, rate=rate, starts=starts)
        params = optax.apply_updates(state.params, changes)
        step = state.step + 1
        window = state.window + jnp.stack([loss * count, correct, count])
        bad_step = jnp.where((state.bad_step < 0) & ~jnp.isfinite(loss), step, state.bad_step)
        return TrainState(
            step=step,
            params=params,
            stats=stats,
            moments=moments,
            window=window,
            bad_step=bad_step,
            average=self._averaged(state.average, Evaluated(params, stats), step),
        )

    def _averaged(self, average: Evaluated | None, trained: Evaluated, step: jax.Array) -> Evaluated | None:
        """The averages after step `step`, counted from 1, which has trained these parameters and statistics."""
        if average is None:
            return None
        # one minus the share that is kept: 1 - (1 + t) / (10 + t) is 9 / (10 + t)
        new = jnp.maximum(jnp.float32(1.0 - self.optim.average_decay), 9.0 / (10.0 + step.astype(jnp.float32)))
        averages: Evaluated = optax.incremental_update(trained, average, new)
        return averages

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
        starts = self.layout.starts()

        def train(state: TrainState, seed: jax.Array, index: jax.Array, rates: jax.Array) -> TrainState:
            def body(i: jax.Array, state: TrainState) -> TrainState:
                batch = self._batch(split, index, i, seed, state.step)
                return self._train_step(state, seed, batch, rates[i], starts)

            state = state._replace(window=jnp.where(reset, jnp.zeros_like(state.window), state.window))
            return jax.lax.fori_loop(0, n, body, state)

        with fixed_generator():
            states = over_members(train, states, seeds, index, rates)
        return states, Readings(states.window, states.bad_step)

    def _batch(self, split: Batch, index: jax.Array, row: AnyArray, seed: jax.Array, step: jax.Array) -> Batch:
        """The batch of a step: the examples of a row of `index` (rows, batch), or those of the sampler."""
        if self.sampler is None:
            examples: Batch = jax.tree.map(lambda array: jnp.take(array, index[row], axis=0), split)
            return examples
        batch: Batch = training_batch(self.sampler, seed, step, self.batch)
        batch = jax.lax.with_sharding_constraint(batch, self.placement.batch())
        return batch

    def _gradients(
        self, states: TrainState, seeds: jax.Array, index: jax.Array, row: jax.Array, split: Batch
    ) -> jax.Array:
        """The gradients of a step that would follow the states, (members, size), before clipping.

        Row `row` of `index`, as in `_dispatch`, has its examples.
        """
        starts = self.layout.starts()

        def gradient(state: TrainState, seed: jax.Array, index: jax.Array) -> jax.Array:
            batch = self._batch(split, index, row, seed, state.step)
            return self._gradient_of_step(state, seed, batch, starts)[-1]

        with fixed_generator():
            return over_members(gradient, states, seeds, index)

    def _outputs(
        self, evaluated: Evaluated, inputs: jax.Array, labels: jax.Array, lengths: jax.Array | None, counted: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """What the networks put out for a batch, (members, B, classes), or (members, B, K, classes) at positions.

        And (members, depth) float32: the mean norm of the recurrent state of each layer, over the examples where
        `counted` (B,) is true. One function for all, because functions take long to compile.
        """
        positions = self.objective.positions(labels, inputs.shape[-2 if inputs.ndim == 3 else -1])

        def outputs(member: Evaluated) -> tuple[jax.Array, jax.Array]:
            with shared_by(self.placement.mesh.abstract_mesh):
                return self.model.evaluate(member.params, member.stats, inputs, lengths, counted, positions)

        return over_members(outputs, evaluated)


def _scores_of(objective: Objective, placement: Placement) -> Any:
    """See `Compiled.scores`."""

    def scores(
        outputs: jax.Array, labels: jax.Array, weight: jax.Array, with_items: jax.Array
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        """Loss, labels and what the metrics need of a batch's outputs, summed with weights (B,), 0 for padding.

        And what the metrics need of single items, (members, B), zeros without `with_items`.
        """
        chosen = objective.labels_at(labels)

        def member_scores(outputs: jax.Array) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
            sums = objective.sums(outputs, chosen, weight)
            shapes = jax.eval_shape(objective.items, outputs, chosen, weight)
            items = jax.lax.cond(
                with_items,
                objective.items,
                lambda *_: jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes),
                *(outputs, chosen, weight),
            )
            return sums, items

        return over_members(member_scores, outputs)

    everywhere, batch, of_members = placement.everywhere, placement.batch(), placement.batch(axis=1)
    return jax.jit(
        scores,
        compiler_options=_LESS_OPTIMISED if jax.default_backend() == "cpu" else None,
        in_shardings=(of_members, batch, batch, everywhere),
        out_shardings=(everywhere, of_members),
    )


def compiler_options(numbers: int) -> dict[str, int] | None:
    """Options of XLA for layers of so many numbers, batch times length times width; None for its own.

    On a CPU, small ones are compiled with the second lowest level of optimisation, in 0.8 of the processor time;
    `SMALL_LAYER` says what that does to steps.
    """
    return _LESS_OPTIMISED if numbers < SMALL_LAYER and jax.default_backend() == "cpu" else None


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


_CACHE: OrderedDict[Hashable, Compiled] = OrderedDict()
_SCORES: OrderedDict[Hashable, Any] = OrderedDict()


def compiled_for(config: RunConfig, execution: Execution, data: Data) -> Compiled:
    """The functions of a configuration on its data, kept for the next run that shares them."""
    key = program_key(config, execution), str(data.spec), _metrics_key(data.metrics)
    return _kept(
        _CACHE, key, lambda: Compiled(config, execution, data.spec, metrics=data.metrics, sampler=data.sampler)
    )


def _metrics_key(metrics: Sequence[Metric]) -> Hashable:
    """A key that is equal for metrics with the same functions: of a file that was edited and loaded again, others."""
    return tuple((type(metric), str(metric)) for metric in metrics)


def _kept(cache: OrderedDict[Hashable, T], key: Hashable, make: Callable[[], T]) -> T:
    """What a cache has under `key`, made where it is missing; of others, the ones that were used last stay."""
    if key not in cache:
        cache[key] = make()
        if len(cache) > COMPILED_KEPT:
            cache.popitem(last=False)
            gc.collect()  # they are part of cycles, and hold a tenth of a process's memory
    cache.move_to_end(key)
    return cache[key]
