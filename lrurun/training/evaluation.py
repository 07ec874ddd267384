"""Loss, metrics and state norms over a split."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from lrurun.data.metric import ItemSums, Metric
from lrurun.data.task import Split
from lrurun.items import ItemResults, TestSet
from lrurun.training.compiled import Compiled, Evaluated
from lrurun.training.feed import label_type, to_devices
from lrurun.training.objective import own_sum

MAX_IN_FLIGHT = 2
"""Batches of an evaluation that are transferred to the device before one is finished."""


class Evaluation(NamedTuple):
    """One run on one split."""

    scores: dict[str, float]
    """Mean loss and every metric, each example counted once."""
    norms: dict[str, float]
    """Mean norm of the recurrent state, layer by layer, on the first batch."""
    items: dict[str, ItemResults]
    """Metric -> its per-item results, where they were asked for and it has some."""
    faults: dict[str, str]
    """Metric -> why the per-item results that it gives are not used."""
    labels: int
    """How many labels were predicted."""


def evaluate(
    compiled: Compiled,
    evaluated: Evaluated,
    split: Split,
    batch: int,
    metrics: Sequence[Metric],
    order: str | None = None,
) -> list[Evaluation]:
    """Scores and norms of each member. The last batch is padded, so that nothing is compiled twice.

    Args:
        order: a digest of the examples and their order: then per-item results too, which otherwise stay on the
            device.
    """
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
        inputs, labels, lengths = to_devices(part, compiled.placement.batch())
        predicted, norms_of_batch = compiled.outputs(evaluated, inputs, labels, lengths, counted)
        sums_of_batch, items_of_batch = compiled.scores(
            predicted, labels, real.astype(np.float32), np.bool_(order is not None)
        )
        outputs.append((sums_of_batch, norms_of_batch, {} if order is None else items_of_batch))
        if len(outputs) > MAX_IN_FLIGHT:
            jax.block_until_ready(outputs[-MAX_IN_FLIGHT])  # otherwise the inputs of all batches wait in memory
    of_batches, norms, items_of_batches = zip(*jax.device_get(outputs), strict=True)
    sums = {name: np.stack([of_batch[name] for of_batch in of_batches], axis=1) for name in of_batches[0]}
    item_sums = {
        name: np.concatenate([part[name] for part in items_of_batches], axis=1) for name in items_of_batches[0]
    }
    evaluations = []
    for member, layers in enumerate(norms[0].tolist()):
        of_run = {name: batches[member].astype(np.float64) for name, batches in sums.items()}
        scores = {"loss": float(of_run["loss"].sum() / of_run["count"].sum())}
        for metric in metrics:
            known = of_run | _own(metric, of_run)
            scores |= {metric.name: metric.value(known), **_parts(metric, known)}
        norms_of_run = {f"norm/layer{layer}": value for layer, value in enumerate(layers)}
        items: dict[str, ItemResults] = {}
        faults: dict[str, str] = {}
        if order is not None:
            of_items = {name: arrays[member, :count].astype(np.float64) for name, arrays in item_sums.items()}
            for metric in metrics:
                try:
                    found = _items(metric, of_items | _own(metric, of_items), split, order, scores[metric.name])
                except Exception as error:  # of a plug-in: its score is worth having all the same
                    faults[metric.name] = str(error) if isinstance(error, ValueError) else repr(error)
                else:
                    items |= {metric.name: found} if found is not None else {}
        evaluations.append(Evaluation(scores, norms_of_run, items, faults, round(of_run["count"].sum())))
    return evaluations


TOLERANCE = 1e-4
"""How far a score may be from what its items give, relative where it is above 1: sums over a batch are of 32 bits."""


def tolerance(metric: Metric, score: float, count: int) -> float:
    """The largest distance of an evaluation from a score on `count` labels or sequences: half a step, or rounding."""
    step = metric.step(count)
    return TOLERANCE * max(1.0, abs(score)) if step is None else step / 2


def _items(metric: Metric, sums: ItemSums, split: Split, order: str, score: float) -> ItemResults | None:
    """The per-item results that a metric gives; None if it gives none, or the score is not finite.

    Raises:
        ValueError: they do not give the score.
    """
    labels = split.labels
    found = metric.items(sums, labels) if math.isfinite(score) else None
    if found is None:
        return None
    values, weights = (np.asarray(part, np.float64) for part in found)
    for part in (values, weights):
        if part.shape != (len(labels),):
            raise ValueError(f"items returns an array of shape {part.shape}, expected {(len(labels),)}, one per item")
    if not (weights >= 0).all() or not weights.any():
        raise ValueError("items returns weights that are negative, NaN, or all zero")
    tests = TestSet(
        count=len(labels),
        order=order,
        weights=None if (weights == 1).all() else weights,
        groups=None if split.groups is None else np.asarray(split.groups, np.int64),
    )
    results = ItemResults(test_set=tests, sums=values)
    if not abs(metric.of_mean(results.mean) - score) <= tolerance(metric, score, round(weights.sum())):
        raise ValueError(f"the mean over items gives {metric.of_mean(results.mean):.6g}, the score is {score:.6g}")
    return results


_PART = re.compile(r"[A-Za-z][\w.-]{0,49}(?:/\.*[\w-][\w.-]*)*", re.ASCII)
"""The names of parts of a score, which other programs take for paths."""


def _parts(metric: Metric, sums: dict[str, np.ndarray]) -> dict[str, float]:
    """The scores of parts of the labels.

    Raises:
        ValueError: a curve cannot have the name of one of them.
    """
    parts = metric.parts(sums)
    for name in parts:
        if not _PART.fullmatch(name):
            rule = "expected letters, digits, '.', '_', '-' and '/', with more than dots on each side of a '/'"
            raise ValueError(f"metric {metric.name}: parts returns the name {name!r}, {rule}")
    return parts


def _own(metric: Metric, sums: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sums that a metric computes itself, under the names that it gave them."""
    prefix = own_sum(metric.name, "")
    return {name.removeprefix(prefix): value for name, value in sums.items() if name.startswith(prefix)}


@contextlib.contextmanager
def compiling(compiled: Compiled, members: int, split: Split, batch: int) -> Iterator[None]:
    """Another thread compiles what `evaluate` calls for splits like this one, while the caller compiles the rest.

    Neither is needed where this process has compiled them for as many members before.
    """
    if members in compiled.counts:
        yield
        return
    with ThreadPoolExecutor(max_workers=1) as thread:
        compilation = thread.submit(_compile, compiled, members, split, batch)
        yield
        compilation.result()
    compiled.counts.add(members)


def _compile(compiled: Compiled, members: int, split: Split, batch: int) -> None:
    def like(array: np.ndarray, dtype: np.dtype | type) -> jax.ShapeDtypeStruct:
        shape, dtype = (batch, *array.shape[1:]), jax.dtypes.canonicalize_dtype(dtype)
        return jax.ShapeDtypeStruct(shape, dtype, sharding=compiled.placement.batch())

    def with_members(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((members, *leaf.shape), leaf.dtype, sharding=compiled.placement.everywhere)

    evaluated = jax.tree.map(with_members, compiled.abstract_evaluated)
    lengths = None if split.lengths is None else like(split.lengths, np.int32)
    inputs, labels = like(split.inputs, split.inputs.dtype), like(split.labels, label_type(split))
    weight, counted = (jax.ShapeDtypeStruct((batch,), dtype) for dtype in (np.float32, np.bool_))
    lowered = compiled.outputs.lower(evaluated, inputs, labels, lengths, counted)
    lowered.compile()
    shape = lowered.out_info[0]
    outputs = jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=compiled.placement.batch(axis=1))
    compiled.scores.lower(outputs, labels, weight, jax.ShapeDtypeStruct((), np.bool_)).compile()
