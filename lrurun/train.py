"""Training as a generator: state, step, evaluation, and the events they give rise to.

Nothing here knows of ledgers, terminals or clocks on the wall: `train` yields what happened, and whoever iterates
decides what to write down, when to save and when to stop. A run is a pure function of its configuration and seed: the
step number is the whole state of its input.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from msgspec import Struct

from lrurun import optim
from lrurun.config import Execution, RunConfig, TrainConfig, program_key
from lrurun.model import Model
from lrurun.tasks.base import Data, Spec, Split

Tree = Any

RESIDENT_ACCELERATOR = 4_000_000_000
"""Bytes of training data that `feed = "auto"` puts on an accelerator: a quarter of the memory of the smaller cards, the
rest being for parameters and activations; the largest task of the Long Range Arena has 3.3e9."""

RESIDENT_CPU = 1_000_000_000
"""The same on a CPU, where each worker's copy lies in the machine's own memory, beside the file's cached pages that all
workers share."""

SLOW_SECONDS = 0.5
"""After a dispatch that took longer the host waits for the next one, lest a signal should wait for two."""

AHEAD = 2
"""Batches of an evaluation that are on their way to the device while one is evaluated."""


class Live(NamedTuple):
    """What a training step changes; donated from dispatch to dispatch."""

    step: jax.Array
    """() int32: steps taken."""
    params: Tree
    stats: Tree
    moments: Tree
    window: jax.Array
    """(3,) float32: summed loss, correct and examples since the last row of the training curve."""
    bad_step: jax.Array
    """() int32: the first step whose loss was not finite, or -1."""


class Seen(NamedTuple):
    """What the host reads of a dispatch, while the next one runs: copies, for `Live` is given away to that one."""

    window: jax.Array
    bad_step: jax.Array


class Best(NamedTuple):
    """The parameters and statistics of the best validation score; of two equal scores the earlier."""

    params: Tree
    stats: Tree


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything that a run needs to go on, on the host."""

    step: int
    score: float
    """Best validation score so far; -inf before the first evaluation."""
    best_step: int
    live: Live
    best: Best


class Began(Struct, frozen=True, kw_only=True):
    """The programs are compiled; training starts from `step`."""

    member: int = 0
    step: int
    parameters: int
    compile_seconds: float


class Measured(Struct, frozen=True, kw_only=True):
    """Numbers that belong to `step`. Only those under `machine/` differ from attempt to attempt."""

    member: int = 0
    step: int
    values: dict[str, float]


class Reached(Struct, frozen=True, kw_only=True):
    """A dispatch boundary: the place to save or to stop. `snapshot()` is valid until the next event is asked for.

    The dispatch may still be under way, and the row of the training curve that ends here be still to come: whoever goes
    on from the snapshot gets it again.
    """

    member: int = 0
    step: int
    snapshot: Callable[[], Snapshot]


class Ended(Struct, frozen=True, kw_only=True):
    """The last event of a run. `state` is "done", or "diverged" at `step`, the first whose loss was not finite."""

    member: int = 0
    state: str
    step: int
    result: dict[str, float]
    """Metrics at the best validation step, and what the machine did."""
    snapshot: Snapshot


Event = Began | Measured | Reached | Ended
"""Their `member` is the place of the run among those that are trained together."""


class Programs:
    """The compiled functions of one configuration; seeds and rates are data, so that all seeds of a rung share them.

    With `pack` above 1, they train so many runs at once: all that is a run's own has one more axis, the first.
    """

    def __init__(self, config: RunConfig, execution: Execution, spec: Spec, pack: int = 1) -> None:
        self.pack = pack
        self.model = Model(config.model, spec, backend=execution.scan_backend, remat=execution.remat)
        self.chunk = execution.steps_per_dispatch
        self.rows = max(2, self.chunk)  # XLA compiles a loop over one row into other sums
        abstract = jax.eval_shape(self.model.init, jax.random.key(0))
        groups = self.model.groups(abstract[0], decay_norm_bias=config.optim.decay_norm_bias)
        self.parameters = self.model.count(abstract[0])
        model = self.model
        drops = config.model.dropout > 0

        def init(seed: jax.Array) -> Live:
            params, stats = model.init(_key(seed, "init"))
            return Live(
                step=jnp.int32(0),
                params=params,
                stats=stats,
                moments=optim.init(params),
                window=jnp.zeros(3, jnp.float32),
                bad_step=jnp.int32(-1),
            )

        def loss_of(params: Tree, stats: Tree, batch: tuple[jax.Array, ...], key: jax.Array | None) -> Any:
            inputs, labels, lengths = batch
            logits, new_stats = model.apply(params, stats, inputs, lengths, train=True, key=key)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            correct = jnp.sum(jnp.argmax(logits, -1) == labels)
            return jnp.mean(losses), (new_stats, correct)

        def dispatch(
            live: Live, seed: jax.Array, index: jax.Array, rates: jax.Array, reset: jax.Array, n: jax.Array, split: Tree
        ) -> tuple[Live, Seen]:
            """`n` steps, at most as many as `index` (rows, batch) and `rates` (rows,) hold."""

            def body(i: jax.Array, live: Live) -> Live:
                batch = _gather(split, index[i])
                key = jax.random.fold_in(_key(seed, "dropout"), live.step) if drops else None
                (loss, (stats, correct)), grads = jax.value_and_grad(loss_of, has_aux=True)(
                    live.params, live.stats, batch, key
                )
                params, moments = optim.update(config.optim, groups, grads, live.moments, live.params, rates[i])
                step = live.step + 1
                size = jnp.float32(index.shape[1])
                window = live.window + jnp.stack([loss * size, correct.astype(jnp.float32), size])
                bad = jnp.where((live.bad_step < 0) & ~jnp.isfinite(loss), step, live.bad_step)
                return Live(step=step, params=params, stats=stats, moments=moments, window=window, bad_step=bad)

            if pack == 1:  # a run that has diverged stays where it has; of several, the others go on
                n, reset = jnp.where(live.bad_step < 0, n, 0), reset & (live.bad_step < 0)
            live = live._replace(window=jnp.where(reset, jnp.zeros_like(live.window), live.window))
            live = jax.lax.fori_loop(0, n, body, live)
            return live, Seen(live.window, live.bad_step)

        def evaluate(best: Best, batch: tuple[jax.Array, ...], weight: jax.Array) -> jax.Array:
            """(2,) float32: summed loss and summed correct of one batch, padding weighted with 0."""
            inputs, labels, lengths = batch
            logits, _ = model.apply(best.params, best.stats, inputs, lengths, train=False)
            losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
            correct = (jnp.argmax(logits, -1) == labels).astype(jnp.float32)
            return jnp.stack([jnp.sum(losses * weight), jnp.sum(correct * weight)])

        def norms(best: Best, batch: tuple[jax.Array, ...]) -> jax.Array:
            """(depth,) float32: mean length of the recurrent states."""
            inputs, _, lengths = batch
            return model.norms(best.params, best.stats, inputs, lengths)

        def keep(live: Live) -> Best:
            return Best(params=jax.tree.map(jnp.copy, live.params), stats=jax.tree.map(jnp.copy, live.stats))

        def better(best: Best, live: Live, is_better: jax.Array) -> Best:
            """Of each run the best so far."""
            return jax.tree.map(partial(jnp.where, is_better), Best(live.params, live.stats), best)

        def over_runs(function: Any, *axes: int | None) -> Any:
            return function if pack == 1 else jax.vmap(function, in_axes=axes)

        self._init_one = init
        self.init = jax.jit(over_runs(init, 0))
        self.dispatch = jax.jit(over_runs(dispatch, 0, 0, 0, 0, None, None, None), donate_argnums=0)
        self.evaluate = jax.jit(over_runs(evaluate, 0, None, None))
        self.norms = jax.jit(over_runs(norms, 0, None))
        self.keep = jax.jit(keep)
        self.better = jax.jit(over_runs(better, 0, 0, 0))

    def abstract(self) -> tuple[Live, Best]:
        """Shapes and dtypes of one run's snapshot, for restoring one."""
        live = jax.eval_shape(self._init_one, jnp.uint32(0))
        return live, Best(params=live.params, stats=live.stats)

    def together(self, parts: Sequence[Any] | np.ndarray) -> Any:
        """What belongs to each run, arrays or trees of them, as the functions take it."""
        return parts[0] if self.pack == 1 else jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    def member(self, tree: Any, number: int) -> Any:
        """What belongs to one run."""
        return tree if self.pack == 1 else jax.tree.map(lambda leaf: leaf[number], tree)


_KEPT: OrderedDict[str, Programs] = OrderedDict()


def programs(config: RunConfig, execution: Execution, spec: Spec, pack: int = 1) -> Programs:
    """The programs of a configuration, kept for the next run of the same rung."""
    key = program_key(config, execution) + f"|{execution.steps_per_dispatch}|{spec}|{pack}"
    if key not in _KEPT:
        _KEPT[key] = Programs(config, execution, spec, pack)
        while len(_KEPT) > 4:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(key)
    return _KEPT[key]


def train(
    config: RunConfig, execution: Execution, data: Data, *, resume: Snapshot | None = None, test: bool = True
) -> Iterator[Event]:
    """Trains one run, from `resume` or from the start, and evaluates it on test once at its best validation step.

    Args:
        test: False for tuning runs, which never see the test split.
    """
    return train_together([config], execution, data, resume=None if resume is None else [resume], test=test)


def train_together(
    configs: Sequence[RunConfig],
    execution: Execution,
    data: Data,
    *,
    resume: Sequence[Snapshot] | None = None,
    test: bool = True,
) -> Iterator[Event]:
    """Trains runs that differ in seed and rates alone, in one program, as `train` does one.

    Each has batches, events and an end of its own: one that diverges ends there, while the others go on.

    Args:
        resume: one snapshot a run, all of the same step.
    """
    pack = len(configs)
    if len({program_key(config, execution) for config in configs}) > 1 or len({r.step for r in resume or ()}) > 1:
        raise ValueError("runs that are trained together must differ in seed and rates alone, and be at one step")
    compiled = programs(configs[0], execution, data.spec, pack)
    schedule = configs[0].train
    seeds = compiled.together([jnp.uint32(config.seed) for config in configs])
    rates = [optim.rates(config.optim, schedule.steps) for config in configs]
    batches = [Batches(config.seed, schedule.batch, len(data.train.labels)) for config in configs]
    step = 0 if resume is None else resume[0].step
    feed = _streamed if streams(execution, data.train) else _resident
    plan = dispatches(schedule, compiled.chunk, step)
    blocks = feed(data.train, batches, plan, compiled.rows, _longest(schedule, compiled.chunk))

    def advance(live: Live, block: Block) -> tuple[Live, Seen]:
        step, n = block.step, block.n
        rate = np.zeros((pack, compiled.rows), np.float32)
        rate[:, :n] = [of_run[step : step + n] for of_run in rates]
        reset = np.bool_(n > 0 and step % schedule.log_every == 0)
        places = compiled.together(block.places)
        return compiled.dispatch(live, seeds, places, compiled.together(rate), reset, np.int32(n), block.split)

    with contextlib.closing(blocks):
        block = next(blocks)
        started = time.perf_counter()
        if resume is None:
            live = compiled.init(seeds)
            best = compiled.keep(live)
            scores, best_steps = [-math.inf] * pack, [0] * pack
        else:
            live, best = jax.tree.map(jnp.asarray, compiled.together([(r.live, r.best) for r in resume]))
            scores, best_steps = [r.score for r in resume], [r.best_step for r in resume]
        live, seen = advance(live, block)  # compiles, and takes no step
        jax.block_until_ready(live)
        seconds = time.perf_counter() - started
        for member in range(pack):
            yield Began(member=member, step=step, parameters=compiled.parameters, compile_seconds=seconds)

        began, first = time.perf_counter(), step
        apart = 0.0  # seconds of evaluation
        slow = True

        def snapshot(member: int, step: int) -> Snapshot:
            mine = compiled.member((live, best), member)
            # a copy, for on a CPU the host would see the device's own memory, which the next dispatch takes
            of_live, of_best = jax.tree.map(lambda leaf: np.array(leaf), mine)
            return Snapshot(step=step, score=scores[member], best_step=best_steps[member], live=of_live, best=of_best)

        def lost(step: int, seen: Seen) -> Iterator[Event]:
            """The ends of the runs that a dispatch to `step` has seen diverge."""
            bad_steps = np.asarray(seen.bad_step).reshape(pack)
            for member in [m for m in training if bad_steps[m] >= 0]:
                training.remove(member)
                bad = int(bad_steps[member])
                yield Measured(member=member, step=bad, values={"train/loss": math.nan})
                speed = _speed(time.perf_counter() - began - apart, step - first)
                yield Ended(member=member, state="diverged", step=bad, result=speed, snapshot=snapshot(member, step))

        training = list(range(pack))
        unread: tuple[int, Seen] | None = (step, seen)
        yield from lost(step, seen)
        while step < schedule.steps and training:
            clock = time.perf_counter()
            block = next(blocks)
            live, seen = advance(live, block)
            step += block.n
            if unread is not None:  # while the next dispatch runs
                yield from lost(*unread)
                for member in training:
                    if values := _row(unread, member, schedule):
                        yield Measured(member=member, step=unread[0], values=values)
            unread = (step, seen)
            evaluates = step % schedule.eval_every == 0 or step == schedule.steps
            if evaluates or slow:
                yield from lost(step, seen)
                rows = {member: _row(unread, member, schedule) for member in training}
                unread = None
                if evaluates and training:
                    now = time.perf_counter()
                    speed = _speed(now - began - apart, step - first)
                    measured = _evaluate(compiled, Best(live.params, live.stats), data.validation, schedule.batch)
                    norms = _norms(compiled, Best(live.params, live.stats), data.validation, schedule.batch)
                    apart += time.perf_counter() - now
                    is_better = np.zeros(pack, bool)
                    for member in training:
                        rows[member] |= speed | {f"val/{name}": value for name, value in measured[member].items()}
                        rows[member] |= norms[member]
                        if measured[member]["accuracy"] > scores[member]:
                            scores[member], best_steps[member] = measured[member]["accuracy"], step
                            is_better[member] = True
                    best = compiled.better(best, live, compiled.together(is_better))
                for member, values in rows.items():
                    if values:
                        yield Measured(member=member, step=step, values=values)
            slow = time.perf_counter() - clock > SLOW_SECONDS
            if step < schedule.steps:
                for member in list(training):
                    yield Reached(member=member, step=step, snapshot=partial(snapshot, member, step))
        speed = _speed(time.perf_counter() - began - apart, step - first)

    splits = {"val": data.validation} | ({"test": data.test} if test else {})
    found = {name: _evaluate(compiled, best, part, schedule.batch) for name, part in splits.items()} if training else {}
    for member in training:
        result = {"best_step": float(best_steps[member])}
        for name, of_runs in found.items():
            result |= {f"{name}/{key}": value for key, value in of_runs[member].items()}
        if test:
            scored = {key: value for key, value in result.items() if key.startswith("test/")}
            yield Measured(member=member, step=best_steps[member], values=scored)
        yield Ended(member=member, state="done", step=step, result=result | speed, snapshot=snapshot(member, step))


def _row(unread: tuple[int, Seen], member: int, schedule: TrainConfig) -> dict[str, float]:
    """A run's row of the training curve that ends with a dispatch, if one does."""
    step, seen = unread
    if step == 0 or (step % schedule.log_every and step < schedule.steps):
        return {}
    loss, correct, count = np.asarray(seen.window, np.float64).reshape(-1, 3)[member]
    return {"train/loss": float(loss / count), "train/accuracy": float(correct / count)}


class Batches:
    """Batch k as a pure function of (seed, k): permutations of the examples, one after another, cut into batches."""

    def __init__(self, seed: int, batch: int, examples: int) -> None:
        self.seed, self.batch, self.examples = seed, batch, examples
        self._epochs: OrderedDict[int, np.ndarray] = OrderedDict()

    def __call__(self, step: int) -> np.ndarray:
        """(batch,) int32 indices of the examples of step `step`, counted from 0."""
        positions = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, places = np.divmod(positions, self.examples)
        index = np.empty(self.batch, np.int32)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            index[inside] = self._order(int(epoch))[places[inside]]
        return index

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._epochs:
            # RandomState's stream is frozen for ever; a Generator's may change between NumPy versions
            self._epochs[epoch] = np.random.RandomState([self.seed, epoch]).permutation(self.examples)
            while len(self._epochs) > 2:
                self._epochs.popitem(last=False)
        return self._epochs[epoch]


def dispatches(schedule: TrainConfig, chunk: int, start: int) -> np.ndarray:
    """(k, 2): the first step and the number of steps of every dispatch from step `start` on.

    They end at multiples of `chunk`, at rows of the curve, at evaluations and at the end of training. The first one, of
    no steps, is there to compile.
    """
    cuts = (np.arange(start // n * n + n, schedule.steps, n) for n in (chunk, schedule.log_every, schedule.eval_every))
    ends = np.unique(np.concatenate([*cuts, [start, max(start, schedule.steps)]]))
    edges = np.concatenate([[start], ends])
    return np.stack([edges[:-1], np.diff(edges)], axis=1)


def _longest(schedule: TrainConfig, chunk: int) -> int:
    """At least as many steps as any dispatch takes, wherever training starts."""
    return min(chunk, schedule.log_every, schedule.eval_every, schedule.steps)


class Block(NamedTuple):
    """What one dispatch trains on."""

    step: int
    n: int
    places: np.ndarray
    """(runs, rows, batch) int32: where in `split` the examples of each step are; of rows past `n`, anywhere in it."""
    split: Tree


Feed = Generator[Block, None, None]


def streams(execution: Execution, split: Split) -> bool:
    """Whether batches are gathered on the host, from a split that stays where it is."""
    if execution.feed != "auto":
        return execution.feed == "stream"
    room = RESIDENT_CPU if jax.default_backend() == "cpu" else RESIDENT_ACCELERATOR
    return sum(array.nbytes for array in (split.inputs, split.labels, split.lengths) if array is not None) > room


def _resident(split: Split, batches: Sequence[Batches], plan: np.ndarray, rows: int, longest: int) -> Feed:
    """Blocks that are the whole split, on the device."""
    arrays = _device(split)
    for row in plan:
        step, n = row.tolist()
        places = np.zeros((len(batches), rows, batches[0].batch), np.int32)
        for run, of_run in enumerate(batches):
            for k in range(n):
                places[run, k] = of_run(step + k)
        yield Block(step, n, places, arrays)


def _streamed(split: Split, batches: Sequence[Batches], plan: np.ndarray, rows: int, longest: int) -> Feed:
    """Blocks of the examples of one dispatch, in their order, gathered by a thread two dispatches ahead.

    A block has room for `longest` steps; with those ahead, up to five are in memory. A mapped file is read example by
    example. The thread has ended when this generator has.
    """
    import grain  # here, because runs that fit the device need not pay for it

    runs, size = len(batches), batches[0].batch
    within = np.minimum(np.arange(rows * size, dtype=np.int32), longest * size - 1).reshape(rows, size)
    places = np.stack([run * longest * size + within for run in range(runs)])
    sources = ((split.inputs, split.inputs.dtype), (split.labels, np.int32), (split.lengths, np.int32))
    threads: set[threading.Thread] = set()
    over = threading.Event()

    def gather(number: int) -> Block:
        threads.add(threading.current_thread())
        step, n = plan[number].tolist()
        arrays = tuple(
            None if source is None else np.zeros((runs * longest * size, *source.shape[1:]), dtype)
            for source, dtype in sources
        )
        for run, k in product(range(runs), range(n)):
            if over.is_set():
                break  # nobody waits for the rest
            examples, first = batches[run](step + k), (run * longest + k) * size
            for array, (source, _) in zip(arrays, sources, strict=True):
                if array is not None and source is not None:
                    array[first : first + size] = source[examples]
        return Block(step, n, places, arrays)

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    iterator = iter(grain.MapDataset.range(len(plan)).map(gather).to_iter_dataset(options))
    try:
        yield from iterator
    finally:
        over.set()
        iterator.close()  # it does not wait
        for thread in tuple(threads):
            thread.join()


def _key(seed: jax.Array, name: str) -> jax.Array:
    return jax.random.fold_in(jax.random.key(seed), np.uint32(zlib.crc32(name.encode())))


def _device(split: Split) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    lengths = None if split.lengths is None else jnp.asarray(split.lengths, jnp.int32)
    return jnp.asarray(split.inputs), jnp.asarray(split.labels, jnp.int32), lengths


def _gather(split: Tree, index: jax.Array) -> tuple[jax.Array, ...]:
    return jax.tree.map(lambda array: jnp.take(array, index, axis=0), split)


def _evaluate(compiled: Programs, best: Best, split: Split, batch: int) -> list[dict[str, float]]:
    """Each run's mean loss and accuracy over a split, each example once.

    The last batch is padded, so nothing recompiles.
    """
    count = len(split.labels)
    sums = []
    for start in range(0, count, batch):
        index = np.minimum(np.arange(start, start + batch), count - 1)
        weight = (np.arange(start, start + batch) < count).astype(np.float32)
        part = Split(
            inputs=split.inputs[index],
            labels=split.labels[index],
            lengths=None if split.lengths is None else split.lengths[index],
        )
        sums.append(compiled.evaluate(best, _device(part), weight))
        if len(sums) > AHEAD:
            jax.block_until_ready(sums[-AHEAD])  # or the inputs of all batches would wait in memory
    means = np.sum(np.asarray(jax.device_get(sums), np.float64), axis=0).reshape(-1, 2) / count
    return [{"loss": loss, "accuracy": accuracy} for loss, accuracy in means.tolist()]


def _norms(compiled: Programs, best: Best, split: Split, batch: int) -> list[dict[str, float]]:
    """Each run's mean length of the recurrent states, layer by layer, on the first batch of a split.

    A program of its own: that of training stays what it is.
    """
    lengths = None if split.lengths is None else split.lengths[:batch]
    part = Split(inputs=split.inputs[:batch], labels=split.labels[:batch], lengths=lengths)
    found = np.asarray(compiled.norms(best, _device(part)), np.float64).reshape(compiled.pack, -1)
    return [{f"norm/layer{layer}": value for layer, value in enumerate(row)} for row in found.tolist()]


def _speed(busy: float, taken: int) -> dict[str, float]:
    return {"machine/steps_per_second": taken / busy} if taken and busy > 0 else {}
