"""Whether it matters for a ladder at which step its runs are scored: the last one, or the best one by validation.

It does where

* the verdict on a comparison of the ladder, by the test of reports and corrected as there, is not the same; or
* the means of two rungs have the opposite order, and at least one of both differences is larger than its standard error
  (any difference, where that is not known). Means that are equal have no order.

Then nothing is assumed: the user says which step counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lrurun.config.imported import metric_of
from lrurun.errors import UsageError
from lrurun.judging import statistics, verdicts
from lrurun.judging.rung_runs import Result
from lrurun.judging.samples import Sample, Scoring, sample
from lrurun.judging.verdicts import Pair, Question

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.imported.scoring import LastAndBest

_Rungs = Mapping[str, Sequence["LastAndBest"]]
"""Rung -> both scores of each of its runs."""


def step_to_name(rungs: _Rungs, pairs: Sequence[tuple[str, str]], table: ImportTable, choice: str) -> UsageError | None:
    """The error that asks for the step, where it matters by the rule at the head of this module; None where it does
    not. `pairs` are the rungs that the ladder compares."""
    hint = f"say which counts: --at last, or --at best --metric-for-choice {choice}"
    last, best = (_samples(rungs, table, index) for index in (0, 1))
    if (pair := _reversed(rungs, last, best)) is not None:
        first, second = pair
        return UsageError(
            f"the order of {first} and {second} by {table.metric} at the last step is the opposite of that at the step "
            f"at which {choice} is best",
            hint,
        )
    known = [pair for pair in pairs if all(rung in last for rung in pair)]
    for (rung, base), at_last, at_best in zip(
        known, _verdicts(known, last, table), _verdicts(known, best, table), strict=True
    ):
        if at_last != at_best:
            return UsageError(
                f"the verdict on {rung} and {base} by {table.metric} depends on the step: {at_last} at the last one, "
                f"{at_best} at the one at which {choice} is best",
                hint,
            )
    return None


def _samples(rungs: _Rungs, table: ImportTable, index: int) -> dict[str, Sample]:
    scoring = Scoring(metric=metric_of(table), chance=table.chance, items=table.test_items)
    return {
        rung: sample([Result(seed=seed, score=both[index]) for seed, both in enumerate(runs)], scoring)
        for rung, runs in rungs.items()
        if runs
    }


def _verdicts(pairs: Sequence[tuple[str, str]], samples: Mapping[str, Sample], table: ImportTable) -> list[str]:
    """The verdicts in words."""
    metric = metric_of(table)
    judged = verdicts.judge(
        [
            Pair(
                question=Question(kind="better", rung=rung, other=base),
                mine=samples[rung],
                other=samples[base],
                metric=metric,
            )
            for rung, base in pairs
        ]
    )
    words = {verdicts.SUPPORTED: "better", verdicts.CONTRADICTED: "worse"}
    return [words.get(comparison.verdict, comparison.verdict) for comparison in judged]


def _reversed(rungs: _Rungs, last: Mapping[str, Sample], best: Mapping[str, Sample]) -> tuple[str, str] | None:
    """The first two rungs with the opposite order, of which one difference is larger than its standard error."""
    for pair in itertools.combinations([rung for rung in rungs if rung in last], 2):
        differences, are_larger = [], []
        for samples in (last, best):
            mine, other = (samples[rung] for rung in pair)
            assert mine.mean is not None
            assert other.mean is not None
            differences.append(statistics.difference(mine.mean, other.mean))
            error = _error(mine, other)
            are_larger.append(error is None or abs(differences[-1]) > error)
        at_last, at_best = differences
        if ((at_last > 0 > at_best) or (at_last < 0 < at_best)) and any(are_larger):
            return pair
    return None


def _error(mine: Sample, other: Sample) -> float | None:
    if mine.counted is None or other.counted is None:
        return None
    between = statistics.between(mine.counted, other.counted)
    return None if between.stderr is None else between.stderr * between.unit
