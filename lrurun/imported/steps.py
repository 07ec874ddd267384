"""Whether the order of rungs depends on the step at which runs are scored: then the user has to choose one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from lrurun import floats
from lrurun.errors import UsageError
from lrurun.imported.scoring import scored

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.trackers import TrackedRun

LastAndBest = tuple[float, float]
"""The scores of a run at its last step, and at the step with the best validation score."""


def last_and_best(run: TrackedRun, table: ImportTable, choice: str) -> LastAndBest | None:
    """Both scores of a run whose curves of the score and of the validation metric `choice` were read; None if it lacks
    one of them, or one is not finite."""
    scores = [
        scored(run, "", structs.replace(table, seed="", at=at, metric_for_choice=choice)).result
        for at in ("last", "best")
    ]
    last, best = ((result or {}).get(table.result, math.nan) for result in scores)
    return (last, best) if math.isfinite(last) and math.isfinite(best) else None


def reversed_pair(rungs: Mapping[str, Sequence[LastAndBest]]) -> tuple[str, str] | None:
    """The first two rungs of which one has the better mean at the last step and the worse one at the best step; None if
    there are none. Equal means have no order."""
    means = {rung: [floats.mean(scores) for scores in zip(*runs, strict=True)] for rung, runs in rungs.items() if runs}
    for (first, of_first), (second, of_second) in itertools.combinations(means.items(), 2):
        at_last, at_best = of_first[0] - of_second[0], of_first[1] - of_second[1]
        if (at_last > 0 > at_best) or (at_last < 0 < at_best):
            return first, second
    return None


def step_to_name(rungs: Mapping[str, Sequence[LastAndBest]], table: ImportTable, choice: str) -> UsageError | None:
    """The error that asks for the step, where the order of two rungs depends on it; None where it does not."""
    pair = reversed_pair(rungs)
    if pair is None:
        return None
    first, second = pair
    return UsageError(
        f"the order of {first} and {second} by {table.metric} at the last step is the opposite of that at the step at "
        f"which {choice} is best",
        f"say which counts: --at last, or --at best --metric-for-choice {choice}",
    )
