"""By how much the choice of a task's test items alone moves a score, as far as that is known before training."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lrurun.data.metric import R2, Metric, binomial_variance
from lrurun.errors import plural

ENOUGH = 500
"""With so many test items the standard error of an accuracy is at most 2.2 points, which needs no caution."""
_SCORES = (0.5, 0.9)
"""The error is shown near these scores, because it depends on the score, which is not known before training."""


def caution(metric: Metric, items: int, groups: int | Sequence[int] | None = None, *, several: bool = False) -> str:
    """A sentence on the standard error of a score that comes from the choice of few test items; "" for enough of them.

    The items of a group may be alike, and so may the labels of an item. At worst they count as one, so that the error
    is as large as with one independent item for each group.

    Args:
        metric: an accuracy, or R².
        items: the number of test items.
        groups: the number of items in each group; or the number of groups, which are then taken to be equally large.
        several: whether an item has several labels.
    """
    fewest = _independent(items, groups)
    if fewest >= ENOUGH:
        return ""
    errors = []
    for score in _SCORES:
        least, most = (_error(metric, score, count) for count in (items, fewest))
        size = f"up to ± {most}" if several else f"± {most}" if groups is None else f"± {least} to {most}"
        errors.append(f"near {score * metric.scale:g}{metric.symbol and ' ' + metric.symbol} by {size}")
    noun, unit, more = "accuracy", f" {metric.unit}", ""
    if isinstance(metric, R2):
        noun, unit, more = "R²", "", ", if the errors of predictions are normal"
    if groups is not None and not several:
        more += " (the larger where the items of a group are alike)"
    count = f"{items:,} test item{'' if items == 1 else 's'}"
    if groups is not None:
        count += f" in {plural(groups if isinstance(groups, int) else len(groups), 'group')}"
    return f"{count}: the choice of items alone moves an {noun} {errors[0]}{unit}, {errors[1]}{unit}{more}"


def _independent(items: int, groups: int | Sequence[int] | None) -> float:
    """The number of independent items with the same error, if the items of a group are all alike."""
    if groups is None:
        return items
    return groups if isinstance(groups, int) else items**2 / sum(size**2 for size in groups)


def _error(metric: Metric, score: float, items: float) -> str:
    """The standard error of a score on so many independent items, as it is printed.

    A share has a binomial error. R² has 2 R (1 - R²) / sqrt(n), the error of 1 - SSE / SST with normal errors
    and labels.
    """
    if isinstance(metric, R2):
        return f"{2 * math.sqrt(score) * (1 - score) / math.sqrt(items):.{metric.decimals}f}"
    return f"{math.sqrt(binomial_variance(score, items)) * metric.scale:.{metric.decimals}f}"
