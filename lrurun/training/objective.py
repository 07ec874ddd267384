"""The loss of a task's output, and the sums from which its metrics are computed."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from lrurun.data.metric import Metric
from lrurun.data.task import Output, Spec
from lrurun.nn.network.body import Positions


def own_sum(metric: str, name: str) -> str:
    """The name of a sum that a metric computes itself, among the sums of all metrics."""
    return f"{metric}:{name}"


class Objective:
    """Loss and sums, as pure functions of a model's outputs and of labels, which `Output` describes.

    Attributes:
        needed: names of the sums that the metrics need, beside "loss" and "count".
        needed_items: names of the sums over the labels of single examples that some need.
        measures: metric -> the function that computes its own sums, of each metric that has some.
        item_measures: the same for sums over the labels of single examples.
    """

    def __init__(self, spec: Spec, metrics: Sequence[Metric]) -> None:
        self.output: Output = spec.output
        self.classes = spec.classes
        self.measures = {
            metric.name: metric.measure for metric in metrics if type(metric).measure is not Metric.measure
        }
        self.needed = tuple(dict.fromkeys(name for metric in metrics for name in metric.sums))
        with_items = [metric for metric in metrics if type(metric).items is not Metric.items]
        self.needed_items = tuple(
            dict.fromkeys(name for metric in with_items for name in ("loss", "count", *metric.sums))
        )
        self.item_measures = {
            metric.name: metric.measure_items
            for metric in with_items
            if type(metric).measure_items is not Metric.measure_items
        }

    def positions(self, labels: Array, length: int) -> Positions | None:
        """The positions to decode in sequences of `length` with these labels; None for an output for each sequence."""
        if self.output.at == "sequence":
            return None
        chosen, count = self._chosen(labels), labels.shape[1]
        return count if chosen is None else chosen + (length - count)

    def labels_at(self, labels: Array) -> Array:
        """The labels at the `positions` that are decoded; all of them for an output for each sequence."""
        chosen = self._chosen(labels)
        if chosen is None:
            return labels
        return jnp.take_along_axis(labels, chosen if labels.ndim == 2 else chosen[..., None], axis=1)

    def _chosen(self, labels: Array) -> Array | None:
        """(B, K) indices on the second axis of `labels`: those with a label, then others; None for all."""
        if self.output.labelled is None or self.output.labelled >= labels.shape[1]:
            return None
        # stable: the labelled positions first, in their order
        return jnp.argsort(~self._labelled(labels), axis=1, stable=True)[:, : self.output.labelled]

    def _labelled(self, labels: Array) -> Array:
        """(B,) or (B, P) bool."""
        return labels >= 0 if self.output.loss == "cross-entropy" else ~jnp.isnan(labels[..., 0])

    def loss(self, outputs: Array, labels: Array) -> tuple[Array, Array, Array]:
        """Mean loss over the labels of a batch, number of correct predictions (0 for values) and of labels, () each.

        `outputs` are (B, classes) with labels (B,), or (B, K, classes) with labels (B, K), or (B, K, values).
        """
        if self.output == Output():
            losses = self._cross_entropy(outputs, labels)
            correct = jnp.sum(jnp.argmax(outputs, -1) == labels)
            return jnp.mean(losses), correct.astype(jnp.float32), jnp.float32(labels.shape[0])
        losses, labelled = self._losses(outputs, labels)
        count = jnp.maximum(jnp.sum(labelled, dtype=jnp.float32), 1.0)
        if self.output.loss == "squared-error":
            return jnp.sum(losses) / count, jnp.float32(0.0), count
        correct = jnp.sum((jnp.argmax(outputs, -1) == labels) & labelled, dtype=jnp.float32)
        if self.output.balanced:
            member, inside, weight = self._classes(labels, labelled)
            return jnp.sum(losses * (member @ weight)) / jnp.sum(weight * inside), correct, count
        return jnp.sum(losses) / count, correct, count

    def shares(self, labels: Array) -> Array:
        """The share of each label in the mean loss of a batch, of the shape (B,) or (B, K), 0 where there is none.

        So that a batch can go through a network in parts, whose losses and gradients add up to those of the whole.
        """
        labelled = self._labelled(labels)
        if self.output.balanced:
            member, inside, weight = self._classes(labels, labelled)
            return (member @ weight) / jnp.sum(weight * inside)
        return labelled / jnp.maximum(jnp.sum(labelled, dtype=jnp.float32), 1.0)

    def _classes(self, labels: Array, labelled: Array) -> tuple[Array, Array, Array]:
        """The one-hot code of labels, zeros without one; and of each class the number of labels, and its inverse."""
        member = jax.nn.one_hot(jnp.where(labelled, labels, -1), self.classes)
        inside = jnp.sum(member, axis=tuple(range(labels.ndim)))
        return member, inside, jnp.where(inside > 0, 1 / jnp.maximum(inside, 1.0), 0.0)

    def loss_of_part(self, outputs: Array, labels: Array, shares: Array) -> tuple[Array, Array, Array]:
        """The part of the mean loss of a batch that some of its examples have, whose labels have these shares of it.

        And as `loss`, the numbers of correct predictions and of labels of the part, () each.
        """
        losses, labelled = self._losses(outputs, labels)
        count = jnp.sum(labelled, dtype=jnp.float32)
        if self.output.loss == "squared-error":
            return jnp.sum(losses * shares), jnp.float32(0.0), count
        correct = jnp.sum((jnp.argmax(outputs, -1) == labels) & labelled, dtype=jnp.float32)
        return jnp.sum(losses * shares), correct, count

    def _losses(self, outputs: Array, labels: Array) -> tuple[Array, Array]:
        """The loss at each position, 0 without a label, and where there is one; values count by their mean."""
        labelled = self._labelled(labels)
        if self.output.loss == "squared-error":
            errors = jnp.where(labelled[..., None], outputs - labels, 0.0)
            return jnp.mean(jnp.square(errors), axis=-1), labelled
        losses = self._cross_entropy(outputs, jnp.maximum(labels, 0))
        return jnp.where(labelled, losses, 0.0), labelled

    def _cross_entropy(self, outputs: Array, labels: Array) -> Array:
        """The loss at each position. No look-up of the label's class, whose gradient is slow to compile; and no product
        with its one-hot code, which is NaN where a class is impossible, 0 times infinity."""
        is_label = jax.nn.one_hot(labels, self.classes, dtype=bool)
        return -jnp.sum(jnp.where(is_label, jax.nn.log_softmax(outputs), 0.0), axis=-1)

    def sums(self, outputs: Array, labels: Array, weight: Array) -> dict[str, Array]:
        """The sums of `lrurun.data.metric.Sums` over a batch whose examples have weights (B,), 0 for padding.

        A metric's own sums have the names that `own_sum` gives.
        """
        losses, labelled = self._losses(outputs, labels)
        if losses.ndim > 1:
            weight = weight[:, None]
        real = labelled * weight
        sums = {"loss": jnp.sum(losses * weight), "count": jnp.sum(real)}
        if self.output.loss == "squared-error":
            mean = jnp.sum(jnp.where(labelled, jnp.mean(labels, -1), 0.0) * weight) / jnp.maximum(sums["count"], 1.0)
            centred = jnp.where(labelled, jnp.mean(jnp.square(labels - mean), -1), 0.0)
            sums |= {"mean": mean, "variation": jnp.sum(centred * weight)}
        else:
            sums |= self._sums_of_classes(jnp.argmax(outputs, -1), labels, labelled, weight)
        wanted = {name: sums[name] for name in ("loss", "count", *self.needed)}
        return wanted | self._own_sums(outputs, labels, labelled, real.astype(jnp.float32)) if self.measures else wanted

    def _own_sums(self, outputs: Array, labels: Array, labelled: Array, weight: Array) -> dict[str, Array]:
        labels = _without_unknown(labels, labelled)
        return {
            own_sum(metric, name): jnp.asarray(value, jnp.float32)
            for metric, measure in self.measures.items()
            for name, value in measure(outputs, labels, weight).items()
        }

    def items(self, outputs: Array, labels: Array, weight: Array) -> dict[str, Array]:
        """The sums of `lrurun.data.metric.ItemSums`, (B,) float32; arguments as of `sums`.

        Raises:
            ValueError: a metric's own sums have another shape.
        """
        losses, labelled = self._losses(outputs, labels)
        each = weight[:, None] if losses.ndim > 1 else weight
        real = (labelled * each).astype(jnp.float32)

        def of_examples(values: Array) -> Array:
            return jnp.sum((values * each).astype(jnp.float32).reshape(len(values), -1), axis=1)

        sums = {"loss": of_examples(losses), "count": of_examples(labelled)}
        if self.output.loss == "cross-entropy":
            right = (jnp.argmax(outputs, -1) == labels) & labelled
            present, wrong = (jnp.any(part.reshape(len(part), -1), axis=1) for part in (labelled, labelled & ~right))
            sums |= {"correct": of_examples(right), "sequences": present * weight, "exact": (present & ~wrong) * weight}
        wanted = {name: sums[name] for name in self.needed_items if name in sums}
        known = _without_unknown(labels, labelled)
        for metric, measure in self.item_measures.items():
            for name, value in measure(outputs, known, real).items():
                if jnp.shape(value) != weight.shape:
                    rule = f"expected {weight.shape}, a number per example"
                    raise ValueError(
                        f"metric {metric}: measure_items returns {name} of shape {jnp.shape(value)}, {rule}"
                    )
                wanted[own_sum(metric, name)] = jnp.asarray(value, jnp.float32)
        return wanted

    def _sums_of_classes(self, predicted: Array, labels: Array, labelled: Array, weight: Array) -> dict[str, Array]:
        right = (predicted == labels) & labelled
        sums = {"correct": jnp.sum(right.astype(jnp.float32) * weight)}
        if {"exact", "sequences"} & {*self.needed}:
            rows = tuple(range(1, labels.ndim))
            present, wrong = jnp.any(labelled, axis=rows), jnp.any(labelled & ~right, axis=rows)
            each = weight.reshape(-1)
            sums |= {"sequences": jnp.sum(present * each), "exact": jnp.sum((present & ~wrong) * each)}
        if "slots" in self.needed:
            index = jnp.cumsum(labelled.reshape(len(labels), -1), axis=1) - 1
            slot = jax.nn.one_hot(index, index.shape[1])
            counts = jnp.stack([labelled, right], axis=-1).reshape(*index.shape, 2) * weight.reshape(len(labels), -1, 1)
            sums["slots"] = jnp.einsum("bps,bpc->sc", slot, counts, precision="float32")
        if "confusion" in self.needed:
            actual = jax.nn.one_hot(jnp.where(labelled, labels, -1), self.classes) * weight[..., None]
            guess = jax.nn.one_hot(predicted, self.classes)
            sums["confusion"] = jnp.einsum("...c,...d->cd", actual, guess, precision="float32")
        return sums


def _without_unknown(labels: Array, labelled: Array) -> Array:
    """Labels with 0 where there is none."""
    known = labelled if labels.ndim == labelled.ndim else labelled[..., None]
    return jnp.where(known, labels, jnp.zeros((), labels.dtype))
