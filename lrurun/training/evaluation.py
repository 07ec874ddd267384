"""Loss, metrics and state norms of packed runs over a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from lrurun.data.metric import Metric
from lrurun.data.task import Split
from lrurun.training.feed import label_type, to_devices
from lrurun.training.objective import own_sum
from lrurun.training.programs import Best, Programs

MAX_IN_FLIGHT = 2
"""Batches of an evaluation that are transferred to the device before one is finished."""


class Evaluation(NamedTuple):
    """One run on one split."""

    scores: dict[str, float]
    """Mean loss and every metric, each example counted once."""
    norms: dict[str, float]
    """Mean norm of the recurrent state, layer by layer, on the first batch."""


def evaluate(compiled: Programs, best: Best, split: Split, batch: int, metrics: Sequence[Metric]) -> list[Evaluation]:
    """Scores and norms of each run. The last batch is padded, so that nothing is compiled twice."""
    count = len(split.labels)
    outputs = []
    for start in range(0, count, batch):
        index = np.minimum(np.arange(start, start + batch), count - 1)
        real = np.arange(start, start + batch) < count
        part = Split(
            inputs=split.inputs[index],
            labels=split.labels[index],
            lengths=None if split.lengths is None else split.lengths[index],
        )
        counted = real if start == 0 else np.zeros_like(real)
        arrays = to_devices(part, compiled.placement.batch())
        outputs.append(compiled.evaluate(best, arrays, real.astype(np.float32), counted))
        if len(outputs) > MAX_IN_FLIGHT:
            jax.block_until_ready(outputs[-MAX_IN_FLIGHT])  # otherwise the inputs of all batches wait in memory
    sums, norms = zip(*jax.device_get(outputs), strict=True)
    layers = np.asarray(norms[0], np.float64).reshape(compiled.pack, -1).tolist()
    evaluations = []
    for member, row in enumerate(layers):
        of_run = [compiled.member(batch_sums, member) for batch_sums in sums]
        batches = {name: np.asarray([batch_sums[name] for batch_sums in of_run], np.float64) for name in of_run[0]}
        scores = {"loss": float(batches["loss"].sum() / batches["count"].sum())}
        for metric in metrics:
            known = batches | _own(metric, batches)
            scores |= {metric.name: metric.value(known), **metric.parts(known)}
        evaluations.append(Evaluation(scores, {f"norm/layer{layer}": value for layer, value in enumerate(row)}))
    return evaluations


def _own(metric: Metric, sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sums that a metric computes itself, under the names that it gave them."""
    prefix = own_sum(metric.name, "")
    return {name.removeprefix(prefix): value for name, value in sums.items() if name.startswith(prefix)}


def compile_for(compiled: Programs, split: Split, batch: int) -> None:
    """Compiles what `evaluate` of splits like this one calls; other threads may compile other programs meanwhile."""

    def like(array: np.ndarray, dtype: np.dtype | type) -> jax.ShapeDtypeStruct:
        shape, dtype = (batch, *array.shape[1:]), jax.dtypes.canonicalize_dtype(dtype)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=compiled.placement.batch())

    runs = () if compiled.pack == 1 else (compiled.pack,)
    best = Best(compiled.abstract.params, compiled.abstract.stats)
    everywhere = compiled.placement.everywhere
    best = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(runs + leaf.shape, leaf.dtype, sharding=everywhere), best)
    lengths = None if split.lengths is None else like(split.lengths, np.int32)
    inputs = (like(split.inputs, split.inputs.dtype), like(split.labels, label_type(split)), lengths)
    weight, counted = (jax.ShapeDtypeStruct((batch,), dtype) for dtype in (np.float32, np.bool_))
    compiled.evaluate.lower(best, inputs, weight, counted).compile()
