"""The input of training: which examples each step takes, and how they get to the device.

Batch k is a pure function of (seed, k), so the step number is the whole state of the input.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
from itertools import product
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding

from lrurun.config.schema import Execution, TrainConfig
from lrurun.data.task import Data, Split
from lrurun.training.compiled import Tree
from lrurun.training.placement import placement

RESIDENT_ACCELERATOR = 4_000_000_000
"""Bytes of training data that `feed = "auto"` puts on an accelerator: a quarter of the memory of the smaller cards, the
rest being for parameters and activations; the largest task of the Long Range Arena has 3.3e9."""

RESIDENT_CPU = 1_000_000_000
"""Bytes of training data that `feed = "auto"` holds on a CPU, where each worker has a copy in the machine's memory,
beside the file's cached pages, which all workers share."""


class Batches:
    """Batch k as a pure function of (seed, k): permutations of the examples, one after another, cut into batches."""

    def __init__(self, seed: int, batch: int, examples: int) -> None:
        self.seed, self.batch, self.examples = seed, batch, examples
        self._epochs: OrderedDict[int, np.ndarray] = OrderedDict()

    def __call__(self, step: int) -> np.ndarray:
        """(batch,) int32: indices of the examples of step `step`, counted from 0."""
        numbers = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, positions = np.divmod(numbers, self.examples)
        index = np.empty(self.batch, np.int32)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            index[inside] = self._order(int(epoch))[positions[inside]]
        return index

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._epochs:
            # the stream of RandomState is frozen; that of a Generator may change between NumPy versions
            self._epochs[epoch] = np.random.RandomState([self.seed, epoch]).permutation(self.examples)
            while len(self._epochs) > 2:
                self._epochs.popitem(last=False)
        return self._epochs[epoch]


def dispatches(schedule: TrainConfig, chunk: int, start: int) -> np.ndarray:
    """(k, 2): the first step and the number of steps of every dispatch from step `start` on.

    They end at multiples of `chunk`, at rows of the curve, at evaluations and at the end of training. The first one has
    no steps; it compiles.
    """
    cuts = (np.arange(start // n * n + n, schedule.steps, n) for n in (chunk, schedule.log_every, schedule.eval_every))
    ends = np.unique(np.concatenate([*cuts, [start, max(start, schedule.steps)]]))
    edges = np.concatenate([[start], ends])
    return np.stack([edges[:-1], np.diff(edges)], axis=1)


def longest(schedule: TrainConfig, chunk: int) -> int:
    """A number of steps that no dispatch exceeds, whatever step training starts from."""
    return min(chunk, schedule.log_every, schedule.eval_every, schedule.steps)


class DispatchInput(NamedTuple):
    """The input of one dispatch."""

    step: int
    n: int
    indices: np.ndarray
    """(runs, rows, batch) int32: positions in `split` of the examples of each step; beyond row `n`, any valid ones."""
    split: Tree


DispatchInputs = Generator[DispatchInput, None, None]


def dispatch_inputs(
    execution: Execution, data: Data, batches: Sequence[Batches], schedule: TrainConfig, start: int, rows: int
) -> DispatchInputs:
    """The input of every dispatch from step `start` on; the caller closes the generator.

    Args:
        batches: the batches of each run.
        rows: of `DispatchInput.indices`, at least as many as a dispatch has steps.
    """
    plan = dispatches(schedule, execution.steps_per_dispatch, start)
    if data.sampler is not None:
        return sampled(len(batches), plan, rows)
    if streams(execution, data.train):
        return streamed(data.train, batches, plan, rows, longest(schedule, execution.steps_per_dispatch))
    return resident(data.train, batches, plan, rows, placement(execution.devices).everywhere)


def sampled(runs: int, plan: np.ndarray, rows: int) -> DispatchInputs:
    """Inputs without arrays: the device samples the examples of each step."""
    for step, n in plan.tolist():
        yield DispatchInput(step, n, np.zeros((runs, rows, 1), np.int32), ())


def streams(execution: Execution, split: Split) -> bool:
    """Whether batches are gathered on the host, from arrays that stay there."""
    if execution.feed != "auto":
        return execution.feed == "stream"
    room = RESIDENT_CPU if jax.default_backend() == "cpu" else RESIDENT_ACCELERATOR
    return sum(array.nbytes for array in (split.inputs, split.labels, split.lengths) if array is not None) > room


def to_devices(split: Split, sharding: NamedSharding) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Inputs, labels and lengths as arrays on devices."""
    lengths = None if split.lengths is None else np.asarray(split.lengths, np.int32)
    arrays: Tree = (split.inputs, np.asarray(split.labels, label_type(split)), lengths)
    placed: tuple[jax.Array, jax.Array, jax.Array | None] = jax.device_put(arrays, sharding)
    return placed


def label_type(split: Split) -> type:
    """The type of labels on the device: int32 for classes, float32 for real values."""
    return np.float32 if split.labels.dtype.kind == "f" else np.int32


def resident(
    split: Split, batches: Sequence[Batches], plan: np.ndarray, rows: int, sharding: NamedSharding
) -> DispatchInputs:
    """Inputs whose arrays are the whole split, on the device; on each of several."""
    arrays = to_devices(split, sharding)
    for row in plan:
        step, n = row.tolist()
        indices = np.zeros((len(batches), rows, batches[0].batch), np.int32)
        for run, of_run in enumerate(batches):
            for k in range(n):
                indices[run, k] = of_run(step + k)
        yield DispatchInput(step, n, indices, arrays)


def streamed(split: Split, batches: Sequence[Batches], plan: np.ndarray, rows: int, steps: int) -> DispatchInputs:
    """Inputs with the examples of one dispatch, in order, gathered by a thread two dispatches ahead.

    An input has room for `steps` steps; with those ahead, up to five are in memory. A mapped file is read example by
    example. The thread ends with this generator.
    """
    import grain  # here, because runs whose data fit the device do not need it

    runs, size = len(batches), batches[0].batch
    within = np.minimum(np.arange(rows * size, dtype=np.int32), steps * size - 1).reshape(rows, size)
    indices = np.stack([run * steps * size + within for run in range(runs)])
    sources = ((split.inputs, split.inputs.dtype), (split.labels, label_type(split)), (split.lengths, np.int32))
    threads: set[threading.Thread] = set()
    closed = threading.Event()

    def gather(number: int) -> DispatchInput:
        threads.add(threading.current_thread())
        step, n = plan[number].tolist()
        arrays = tuple(
            None if source is None else np.zeros((runs * steps * size, *source.shape[1:]), dtype)
            for source, dtype in sources
        )
        for run, k in product(range(runs), range(n)):
            if closed.is_set():
                break  # nobody waits for the rest
            examples, first = batches[run](step + k), (run * steps + k) * size
            for array, (source, _) in zip(arrays, sources, strict=True):
                if array is not None and source is not None:
                    array[first : first + size] = source[examples]
        return DispatchInput(step, n, indices, arrays)

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    iterator = iter(grain.MapDataset.range(len(plan)).map(gather).to_iter_dataset(options))
    try:
        yield from iterator
    finally:
        closed.set()
        iterator.close()  # it does not wait
        for thread in tuple(threads):
            thread.join()
