"""The metrics that tasks declare: value, direction, unit, the score of chance, error of a finite test set.

A task plug-in may define metrics of its own, as subclasses of `Mean`, for what is averaged over labels, or of `Metric`,
for what follows from other sums over batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct, structs

if TYPE_CHECKING:
    import numpy as np

Sums = Mapping[str, "np.ndarray"]
"""Name of a sum -> (batches, ...) float64, its value in every batch of an evaluation. The names:

loss: summed over the labels. count: labels; with the default output, examples.
Of classes: correct: labels predicted correctly; sequences: examples with a label; exact: sequences whose labels are
all predicted correctly; confusion: (batches, classes, classes) labels, by label and prediction; slots: (batches, P, 2)
labels and how many of them are predicted correctly, by their index among the labels of their example.
Of real values: mean: of the labels, not summed; variation: summed squares of the labels less this mean.
A metric that defines `measure` also has the sums that it returns, under their names there.
"""

OF_CLASSES = frozenset({"correct", "sequences", "exact", "confusion", "slots"})
OF_VALUES = frozenset({"mean", "variation"})
"""The names of sums beside "loss" and "count"."""


ItemSums = Mapping[str, "np.ndarray"]
"""Name of a sum -> (items,) float64, its value over the labels of each item, that is of each example of a split: "loss"
and "count"; "correct", "sequences" and "exact" where `Metric.sums` names them; what `measure_items` returns."""

MAJORITY = "majority class"
"""The naive predictor of the most frequent class; preparation measures it."""

SLOT = "slot/"
"""The beginning of the names of results of a slot; its number follows, from 1."""

ESCAPE = "escape_step"
"""The result of a run whose task declares when a plateau is left: a step, or infinity where it never was."""

LONGEST = "longest"
"""The name by which claims mean the further test whose name is the largest number."""


class Metric(Struct, frozen=True, kw_only=True):
    """A score of a run on a split, how it is computed, compared and printed.

    Scores without a declared `step`, such as R^2 or bits per byte, are continuous; `Accuracy` is a share of items.
    """

    name: str
    """Name of the metric, as in `test/<name>`."""
    unit: str
    """Unit of printed differences, as in "points"."""
    scale: float = 1.0
    """Printed scores are multiplied by it."""
    decimals: int = 3
    """Decimals of printed scores."""
    symbol: str = ""
    """Symbol after printed scores, as in "%"."""
    higher_is_better: bool = True
    chance: float | None = None
    """The score of a prediction that ignores the input; a run that diverged or has no usable score scores it. None: not
    known."""
    naive: str | None = None
    """The naive predictor, among the `baselines` of the data, whose score replaces `chance` where it was measured."""

    sums: tuple[str, ...] = ()
    """Names of the sums that `value` needs beside "loss" and "count", see `Sums`."""
    escape: float | None = None
    """A run has left the plateau at its first evaluation whose validation score is at least as good as this. None: no
    plateau is expected, and the step is not recorded."""
    near_chance: float | None = None
    """Two models whose scores are at most this far from chance have learned next to nothing; None: not declared."""
    over: Literal["labels", "sequences"] = "sequences"
    """The unit that `step` counts. A sequence with one label is one of both."""
    of_test_items: ClassVar[bool] = True
    """Whether it is a score on test items, so that another choice of these would change it."""

    def measure(self, outputs: Any, labels: Any, weight: Any) -> Mapping[str, Any]:
        """Sums of this metric's own over a batch: name -> an array, as jax computes it; none by default.

        It is traced once and runs on the device, in evaluation only, never in training. `Sums` describes those that
        need no definition.

        Args:
            outputs: (B, C) float32, the logits of the classes or the values that are predicted; where a task has
                outputs at positions, (B, P, C).
            labels: (B,) or (B, P) integers; real values (B, C) or (B, P, C). 0 where there is no label.
            weight: (B,) or (B, P) float32, of the labels: 1, or 0 where there is none and for padding.
        """
        return {}

    def value(self, sums: Sums) -> float:
        """The score of an evaluation."""
        raise NotImplementedError(f"{type(self).__name__} defines no value")

    def measure_items(self, outputs: Any, labels: Any, weight: Any) -> Mapping[str, Any]:
        """Sums of this metric's own over the labels of each example of a batch: name -> (B,), as jax computes it; none
        by default. The arguments are as in `measure`."""
        return {}

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """A sum and a weight for each item of a split, if the score is a function of the weighted mean over items.

        The mean is the total of the sums divided by the total of the weights, and `of_mean` gives the score from it.
        None by default: the score is no such function, and nothing is recorded of single items.

        Args:
            sums: the sums over the labels of each item.
            labels: of the whole split, as `Output` describes them. The weights depend on nothing else, so that they are
                the same for all runs.
        """
        return None

    def of_mean(self, mean: float) -> float:
        """The score that belongs to a weighted mean over items, which it increases with: the mean itself by default."""
        return mean

    def parts(self, sums: Sums) -> dict[str, float]:
        """Name -> the scores of parts of the labels, which are recorded beside the score, as in `test/slot/1`."""
        return {}

    def oriented(self, score: float) -> float:
        """The score, negated where lower is better."""
        return score if self.higher_is_better else -score

    def escape_step(self, curve: Iterable[tuple[int, float]]) -> float:
        """The step at which a run has left the plateau, see `escape`; infinity where it never has.

        Args:
            curve: the steps and scores of its evaluations on the validation split.
        """
        assert self.escape is not None
        bound = self.oriented(self.escape)
        return next((float(step) for step, score in curve if self.oriented(score) >= bound), math.inf)

    def step(self, items: int) -> float | None:
        """The smallest difference between two scores on `items` labels or sequences (`over`); None where continuous."""
        return None

    def variance(self, score: float, items: int) -> float | None:
        """The variance of a score due to the choice of `items` test sequences; None where the score does not give it.

        Declared together with `step`: it is the variance of a mean over seeds that differ by less than one step.
        """
        return None


def binomial_variance(share: float, items: float, *, least: float = 0.0) -> float:
    """The variance of a share of so many independent items; `least` is the least variance of one item."""
    return max(share * (1 - share), least) / items


class Mean(Metric, frozen=True, kw_only=True):
    """The mean of something over all labels; a subclass defines `each`."""

    def each(self, outputs: Any, labels: Any) -> Any:
        """The number of each label that is averaged: (B,) or (B, P), an array of jax. The arguments are as in
        `measure`."""
        raise NotImplementedError(f"{type(self).__name__} defines no each")

    def measure(self, outputs: Any, labels: Any, weight: Any) -> Mapping[str, Any]:
        """The sum of `each`.

        Raises:
            ValueError: `each` does not return one number for each label.
        """
        return {"total": self._weighted(outputs, labels, weight).sum()}

    def measure_items(self, outputs: Any, labels: Any, weight: Any) -> Mapping[str, Any]:
        """The sums of `each` over the labels of each example."""
        each = self._weighted(outputs, labels, weight)
        return {"total": each.reshape(len(each), -1).sum(axis=1)}

    def _weighted(self, outputs: Any, labels: Any, weight: Any) -> Any:
        each = self.each(outputs, labels)
        if getattr(each, "shape", None) != weight.shape:
            actual = getattr(each, "shape", type(each).__name__)
            raise ValueError(f"metric {self.name}: each returns {actual}, expected {weight.shape}, a number per label")
        return each * weight

    def value(self, sums: Sums) -> float:
        """The mean of `each`."""
        return _share(sums["total"], sums["count"])

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums["total"], sums["count"]


class _PerCent(Metric, frozen=True, kw_only=True):
    """A share of labels or sequences, printed in per cent."""

    unit: str = "points"
    scale: float = 100.0
    decimals: int = 1
    symbol: str = "%"
    near_chance: float | None = 0.03


class Accuracy(_PerCent, frozen=True, kw_only=True):
    """The share of labels that are predicted correctly.

    It changes by one label. Labels of one sequence may depend on each other, so that sequences count in its variance.
    """

    name: str = "accuracy"
    sums: tuple[str, ...] = ("correct",)
    naive: str | None = MAJORITY
    over: Literal["labels", "sequences"] = "labels"

    def value(self, sums: Sums) -> float:
        return _share(sums["correct"], sums["count"])

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums["correct"], sums["count"]

    def step(self, items: int) -> float:
        """The share of one item."""
        return 1 / items

    def variance(self, score: float, items: int) -> float:
        """The variance of a binomial share, at least as if one item decided it."""
        return binomial_variance(score, items, least=1 / items)


def declared(
    name: str, *, unit: str, decimals: int | None, higher_is_better: bool, chance: float | None, is_share: bool
) -> Metric:
    """The metric of runs whose scores lrurun does not compute: those of a user's program, and imported ones.

    Args:
        unit: as people write it; with "%", scores are fractions, which are printed in per cent.
        decimals: None: 1 for per cent, else 3.
        is_share: whether it is a share of test items, as an accuracy.
    """
    is_percent = unit == "%"
    metric = Metric(
        name=name,
        unit="points" if is_percent else unit or name.replace("_", " "),
        scale=100.0 if is_percent else 1.0,
        decimals=decimals if decimals is not None else 1 if is_percent else 3,
        symbol=unit,
        higher_is_better=higher_is_better,
        chance=chance,
    )
    return Accuracy(**structs.asdict(metric)) if is_share else metric


class Exact(Accuracy, frozen=True, kw_only=True):
    """The share of sequences whose labels are all predicted correctly."""

    name: str = "exact"
    sums: tuple[str, ...] = ("exact", "sequences")
    naive: str | None = None
    over: Literal["labels", "sequences"] = "sequences"

    def value(self, sums: Sums) -> float:
        return _share(sums["exact"], sums["sequences"])

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums["exact"], sums["sequences"]


class WorstSlot(_PerCent, frozen=True, kw_only=True):
    """The share of correct labels at the slot where it is smallest: slot k has the k-th label of every example.

    The scores of all slots are recorded as `slot/1`, `slot/2`, ...: of a recall task, they say how far back it reaches.
    """

    name: str = "worst_slot"
    sums: tuple[str, ...] = ("slots",)

    def value(self, sums: Sums) -> float:
        return min(self.parts(sums).values())

    def parts(self, sums: Sums) -> dict[str, float]:
        labels, right = sums["slots"].sum(axis=0).T
        return {f"{SLOT}{k}": float(right[k - 1] / n) for k, n in enumerate(labels, 1) if n}


class EscapeStep(Metric, frozen=True, kw_only=True):
    """The step at which a run has left the plateau, see `Metric.escape`. Claims may name it; it is not evaluated."""

    name: str = ESCAPE
    unit: str = "steps"
    decimals: int = 0
    higher_is_better: bool = False
    of_test_items: ClassVar[bool] = False


def named(name: str, metrics: Sequence[Metric]) -> Metric | None:
    """The metric with a name that claims may use; None if the task does not have it.

    It is a metric of the task; such a metric in a further test, as in "accuracy@256", where "accuracy@longest" means
    the test of the largest number; or the step of the escape.
    """
    base, _, test = name.partition("@")
    if name == ESCAPE and metrics[0].escape is not None:
        return EscapeStep()
    base_metric = next((metric for metric in metrics if metric.name == base), None)
    return structs.replace(base_metric, name=name, naive=None) if base_metric and test else base_metric


class MacroF1(_PerCent, frozen=True, kw_only=True):
    """The mean over the classes of F1 = 2 TP / (2 TP + FP + FN), over all labels; 0 for a class that never occurs."""

    name: str = "f1"
    sums: tuple[str, ...] = ("confusion",)
    naive: str | None = MAJORITY

    def value(self, sums: Sums) -> float:
        import numpy as np

        table = sums["confusion"].sum(axis=0)
        occur = table.sum(axis=0) + table.sum(axis=1)
        return float(np.mean(2 * np.diagonal(table) / np.maximum(occur, 1)))


class BalancedAccuracy(_PerCent, frozen=True, kw_only=True):
    """The mean over the classes that occur of the share of their labels that is predicted correctly."""

    name: str = "balanced_accuracy"
    sums: tuple[str, ...] = ("confusion",)

    def value(self, sums: Sums) -> float:
        import numpy as np

        table = sums["confusion"].sum(axis=0)
        labels = table.sum(axis=1)
        return float(np.mean(np.diagonal(table)[labels > 0] / labels[labels > 0]))


class R2(Metric, frozen=True, kw_only=True):
    """1 - MSE / variance of the labels, over all labels of a split: 0 for their mean as prediction, 1 at best."""

    name: str = "r2"
    unit: str = "R²"
    chance: float | None = 0.0
    near_chance: float | None = 0.03
    sums: tuple[str, ...] = ("mean", "variation")

    def value(self, sums: Sums) -> float:
        return 1 - _unexplained(sums)

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The explained part of the variation of the labels of each item around the mean of the split."""
        variation = _variation(labels)
        return variation - sums["loss"], variation


class Nmse(Metric, frozen=True, kw_only=True):
    """MSE / variance of the labels, over all labels of a split, in decibel: 0 for their mean, lower is better.

    Where models come close to the labels, R^2 is 1 to three decimals for all of them. This is 10 log10(1 - R^2), whose
    differences are ratios of errors.
    """

    name: str = "nmse"
    unit: str = "dB"
    decimals: int = 1
    symbol: str = "dB"
    higher_is_better: bool = False
    chance: float | None = 0.0
    near_chance: float | None = 0.13
    sums: tuple[str, ...] = ("mean", "variation")

    def value(self, sums: Sums) -> float:
        return 10 * math.log10(max(_unexplained(sums), 1e-20))

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The unexplained part of the variation: a difference from 1 would lose small errors."""
        return sums["loss"], _variation(labels)

    def of_mean(self, mean: float) -> float:
        return 10 * math.log10(max(mean, 1e-20))


class BatchR2(R2, frozen=True, kw_only=True):
    """R^2 of each batch, averaged over batches, as in the code of Gupta et al. 2023: it depends on the batch size."""

    name: str = "r2_batch"

    def value(self, sums: Sums) -> float:
        import numpy as np

        floor = 1e-5 * sums["count"]  # as in the published code
        return float(np.mean(1 - sums["loss"] / np.maximum(sums["variation"], floor)))

    items = Metric.items  # none: it is a mean over batches


class BitsPerByte(Metric, frozen=True, kw_only=True):
    """The cross-entropy of bytes, in bits. Chance is a unigram model, among the baselines of the data."""

    name: str = "bits_per_byte"
    unit: str = "bits per byte"
    higher_is_better: bool = False
    naive: str | None = "unigram model"

    def value(self, sums: Sums) -> float:
        return _share(sums["loss"], sums["count"]) / math.log(2)

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums["loss"], sums["count"]

    def of_mean(self, mean: float) -> float:
        return mean / math.log(2)


class CrossEntropy(Metric, frozen=True, kw_only=True):
    """The cross-entropy of tokens, in nats. Chance is a unigram model, among the baselines of the data."""

    name: str = "cross_entropy"
    unit: str = "nats per token"
    higher_is_better: bool = False
    naive: str | None = "unigram model"

    def value(self, sums: Sums) -> float:
        return _share(sums["loss"], sums["count"])

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums["loss"], sums["count"]


class Perplexity(Metric, frozen=True, kw_only=True):
    """exp(cross-entropy) of tokens."""

    name: str = "perplexity"
    unit: str = "perplexity"
    decimals: int = 1
    higher_is_better: bool = False

    def value(self, sums: Sums) -> float:
        return math.exp(min(_share(sums["loss"], sums["count"]), 700.0))

    def items(self, sums: ItemSums, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return sums["loss"], sums["count"]

    def of_mean(self, mean: float) -> float:
        return math.exp(min(mean, 700.0))


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *(Accuracy(), Exact(), WorstSlot(), MacroF1(), BalancedAccuracy(), R2(), BatchR2(), Nmse()),
        *(BitsPerByte(), CrossEntropy(), Perplexity()),
    )
}
"""lrurun's own metrics by name, as no task has changed them."""


def _unexplained(sums: Sums) -> float:
    """MSE / variance of the labels."""
    import numpy as np

    count, mean = sums["count"], sums["mean"]
    between = count * np.square(mean - (count @ mean) / count.sum())
    return float(sums["loss"].sum() / np.sum(sums["variation"] + between))


def _variation(labels: np.ndarray) -> np.ndarray:
    """(N,) the squared distances of the labels of each example to the mean of all labels, NaN left out."""
    import numpy as np

    rows = labels.reshape(len(labels), -1, labels.shape[-1]).astype(np.float64)
    known = ~np.isnan(rows[..., :1])
    mean = float(np.where(known, rows, 0.0).mean(axis=-1).sum()) / int(known.sum())
    squares: np.ndarray = np.where(known, np.square(rows - mean), 0.0).mean(axis=-1).sum(axis=-1)
    return squares


def _share(part: np.ndarray, whole: np.ndarray) -> float:
    return float(part.sum() / whole.sum())
