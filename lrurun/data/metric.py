"""What a task declares about its metric: direction, unit, the score of chance, and the error of a finite test set."""

from __future__ import annotations

from msgspec import Struct


class Metric(Struct, frozen=True, kw_only=True):
    """A score of a run on the test split, and how it is compared and printed.

    This class is for scores without a smallest step, such as R^2 or bits per byte; `Accuracy` is the share of items.
    """

    name: str
    """As in `test/<name>`."""
    unit: str
    """Of printed differences, as in "points"."""
    scale: float = 1.0
    """Printed scores are multiplied by it."""
    higher_is_better: bool = True
    chance: float | None = None
    """The score of a prediction that ignores the input; a diverged run scores it. None: not known."""
    naive: str | None = None
    """The naive predictor, among the `baselines` of the data, whose score replaces `chance` where it was measured."""

    near_chance: float | None = None
    """Two models whose scores are at most this far from chance have learned next to nothing; None: not declared."""

    def step(self, items: int) -> float | None:
        """The smallest difference between two scores on a test set of `items`; None for a continuous score."""
        return None

    def variance(self, score: float, items: int) -> float | None:
        """The variance of a score due to the choice of `items` test items; None where the score does not give it.

        Declared together with `step`: it is the variance of a mean over seeds that differ by less than one step.
        """
        return None


class Accuracy(Metric, frozen=True, kw_only=True):
    """The share of test items that are predicted correctly."""

    name: str = "accuracy"
    unit: str = "points"
    scale: float = 100.0
    naive: str | None = "majority class"
    near_chance: float | None = 0.03

    def step(self, items: int) -> float:
        """One item."""
        return 1 / items

    def variance(self, score: float, items: int) -> float:
        """That of a binomial share, at least as if one item decided it."""
        return max(score * (1 - score), 1 / items) / items
