"""The settings that are chosen among imported runs, for each rung by a validation metric: `choose` of `[import]`.

1. The runs of a rung with equal values of the settings in `choose` are a *combination*. Where it is chosen, only
   *eligible* runs count: those that have ended with the metric for choice, whether or not they have a test score, and
   those that count as failures. A rung with one such combination has nothing to choose.
2. The *common seeds* are those with which every combination has an eligible run.
3. The first of the common seeds choose: a third of them, or as many fewer as leave `LEAST_SEEDS` other eligible runs of
   the chosen combination, but two where there are two. The verdict is about these others alone. The best
   combination has the smallest share of runs without a finite value of the metric for choice, and of those the best
   mean of it. Between equal ones, the first in the order of their values is chosen, smaller numbers first.
4. If fewer others are left, seeds are too few to be shared out: all common seeds choose, in the same way (without
   common seeds, all runs of each combination), and the verdict is about all runs of the chosen combination. A caution
   says so.

A choice never sees a test score, nor whether there is one: runs of the chosen combination without test scores are
missing in the rung.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import floats
from lrurun.errors import UsageError, hint_for, plural
from lrurun.imported import understanding
from lrurun.instances.import_record import Caution
from lrurun.judging.verdicts import LEAST_SEEDS
from lrurun.ledger.where.grammar import comparable
from lrurun.trackers.numbers import number

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.imported.scoring import ScoredRun

_LEAST_FOR_CHOICE = 2
"""Seeds that choose at least, where verdicts use others [ours]: with one, its luck would choose."""
_SHARE_FOR_CHOICE = 3
"""At most one in so many common seeds chooses [ours]: the verdict needs more of them."""


_SHOWN = 4
"""Rungs that a caution lists."""


class ChosenRuns(Struct, frozen=True, kw_only=True):
    """The runs of a rung, of which one combination of settings is chosen."""

    rung: str
    settings: dict[str, Any]
    """The chosen value of each setting; empty where there was nothing to choose."""
    train: tuple[ScoredRun, ...]
    """The runs of the chosen combination that the verdict is about, and those that are missing in it."""
    tune: tuple[ScoredRun, ...]
    """All others: they only served to choose."""
    sentence: str = ""
    """What was chosen, by which seeds."""
    shares_runs: bool = False
    """Whether the verdict uses runs that have chosen."""
    at_edge: tuple[str, ...] = ()
    """The settings whose chosen number is the smallest or the largest of three or more that could be chosen."""
    combinations: int = 0
    """Combinations that could be chosen; 0 if nothing was to be chosen in any rung."""


def combination(run: ScoredRun, names: Collection[str]) -> tuple[str, ...]:
    """The values of settings of a run, to be compared: 1 and 1.0 are equal, 1, "1" and true are not."""
    return tuple(comparable(run.run.settings.get(name)) for name in names)


def chosen(rungs: Mapping[str, Sequence[ScoredRun]], table: ImportTable) -> list[ChosenRuns]:
    """The chosen runs of each rung, by the rule at the head of this module. Seeds are known, see `repeats`.

    Raises:
        UsageError: a setting in `choose` that no run has, or a rung with several combinations of which none has a run
            with the metric for choice.
    """
    if not table.choose:
        return [ChosenRuns(rung=rung, settings={}, train=tuple(runs), tune=()) for rung, runs in rungs.items()]
    known = dict.fromkeys(name for runs in rungs.values() for run in runs for name in run.run.settings)
    for name in table.choose:
        if name not in known:
            raise UsageError(f"--choose {name}: no run has this setting", hint_for(name, known, "settings"))
    return [_of_rung(rung, runs, table) for rung, runs in rungs.items()]


def _of_rung(rung: str, runs: Sequence[ScoredRun], table: ImportTable) -> ChosenRuns:
    every: dict[tuple[str, ...], list[ScoredRun]] = {}
    for run in sorted(runs, key=lambda run: _order(run, table.choose)):
        every.setdefault(combination(run, table.choose), []).append(run)
    counted = {key: of_seed for key, group in every.items() if (of_seed := _by_seed(group))}
    with_results = [key for key, group in every.items() if any(run.has_result for run in group)]
    finite = [key for key, of_seed in counted.items() if any(_has_choice(run) for run in of_seed.values())]
    if not finite and len(set(counted).union(with_results)) > 1:
        raise UsageError(
            f"rung {rung}: has {len(every)} combinations of {', '.join(table.choose)}, and no run that has ended has a "
            f"finite {table.metric_for_choice}, by which one would be chosen",
            "name another metric with --metric-for-choice, or leave runs out with `where`",
        )
    if len(counted) < 2:  # nothing to choose; those that have not ended, if there are any, say nothing
        only = next(iter(counted or with_results), None)
        train = tuple(run for run in runs if only in (None, combination(run, table.choose)))
        choice = _chosen(rung, runs, train, table, combinations=len(counted))
        if only is None or set(with_results) <= {only}:
            return choice
        values = _shown(every[only][0], table.choose)
        sentence = f"{rung}: {values} is the only one of {len(every)} with {table.metric_for_choice}"
        return structs.replace(choice, sentence=sentence + _without_score(train, table))
    common = sorted(set.intersection(*(set(of_seed) for of_seed in counted.values())))
    shares, seeds, best = True, common, _best(_with_seeds(counted, common), table)
    for count in range(max(_LEAST_FOR_CHOICE, len(common) // _SHARE_FOR_CHOICE), _LEAST_FOR_CHOICE - 1, -1):
        first = common[:count]
        best_of_first = _best(_with_seeds(counted, first), table)
        if first and len(counted[best_of_first]) - len(first) >= LEAST_SEEDS:
            shares, seeds, best = False, first, best_of_first
            break
    choosers = set() if shares else {counted[best][seed].key for seed in seeds}
    train = tuple(run for run in runs if combination(run, table.choose) == best and run.key not in choosers)
    settings = {name: every[best][0].run.settings.get(name) for name in table.choose}
    values = _shown(every[best][0], table.choose)
    by = plural(len(seeds), "seed") if seeds else "all runs of each, which have no seed in common"
    use = "the verdict uses these runs too" if shares else "the verdict uses other seeds"
    sentence = f"{rung}: {values} is the best of {len(counted)} by the mean {table.metric_for_choice} of {by}; {use}"
    choice = _chosen(rung, runs, train, table, combinations=len(counted))
    tried = {name: [every[key][0].run.settings.get(name) for key in counted] for name in settings}
    return structs.replace(
        choice,
        settings=settings,
        sentence=sentence + _without_score(train, table),
        shares_runs=shares,
        at_edge=tuple(name for name, value in settings.items() if _is_at_edge(value, tried[name])),
    )


def _shown(run: ScoredRun, names: Collection[str]) -> str:
    values = {name: run.run.settings.get(name) for name in names}
    return ", ".join(f"{name} = {'none' if value is None else value}" for name, value in values.items())


def _without_score(train: Collection[ScoredRun], table: ImportTable) -> str:
    """The end of a sentence on runs that have ended without a score, which are missing in their rung."""
    without = sum(run.choice is not None and run.result is None for run in train)
    if not without:
        return ""
    verb = "has" if without == 1 else "have"
    return f"; {without} of its {plural(len(train), 'run')} {verb} no {table.metric}, and count as missing"


def _is_at_edge(value: Any, tried: Collection[Any]) -> bool:
    numbers = {number for number in tried if isinstance(number, int | float) and not isinstance(number, bool)}
    return len(numbers) > 2 and value in (min(numbers), max(numbers))


def _chosen(
    rung: str, runs: Sequence[ScoredRun], train: tuple[ScoredRun, ...], table: ImportTable, *, combinations: int
) -> ChosenRuns:
    keys = {run.key for run in train}
    tune = tuple(run for run in runs if run.key not in keys)
    return ChosenRuns(rung=rung, settings={}, train=train, tune=tune, combinations=combinations)


def _with_seeds(
    counted: Mapping[tuple[str, ...], Mapping[int, ScoredRun]], seeds: Collection[int]
) -> dict[tuple[str, ...], list[ScoredRun]]:
    """Combination -> its runs with these seeds; all of its runs without any."""
    return {key: [of_seed[seed] for seed in seeds or of_seed] for key, of_seed in counted.items()}


def _order(run: ScoredRun, names: Collection[str]) -> tuple[tuple[int, float, str], ...]:
    """The order of combinations: missing values, numbers by size, others by their text."""
    return tuple(_rank(run.run.settings.get(name)) for name in names)


def _rank(value: Any) -> tuple[int, float, str]:
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        size = number(value) or 0.0
        return (2, 0.0, "") if math.isnan(size) else (1, size, "")
    return 3, 0.0, comparable(value)


def _by_seed(runs: Sequence[ScoredRun]) -> dict[int, ScoredRun]:
    """Seed -> its run, of those that are eligible, in order of their seeds."""
    counted = sorted((run.seed, k) for k, run in enumerate(runs) if run.is_eligible and run.seed is not None)
    return {seed: runs[k] for seed, k in counted}


def _choice(run: ScoredRun) -> float:
    return math.nan if run.choice is None else run.choice


def _has_choice(run: ScoredRun) -> bool:
    return math.isfinite(_choice(run))


def _best(runs: Mapping[tuple[str, ...], Sequence[ScoredRun]], table: ImportTable) -> tuple[str, ...]:
    """The best combination; of equal ones, the first of the mapping."""
    sign = 1.0 if table.is_higher_better_for_choice else -1.0

    def badness(key: tuple[str, ...]) -> tuple[float, float]:
        finite = [sign * _choice(run) for run in runs[key] if _has_choice(run)]
        return 1 - len(finite) / len(runs[key]), -floats.mean(finite) if finite else 0.0

    return min(runs, key=badness)


def on_choices(choices: Sequence[ChosenRuns], table: ImportTable) -> Iterator[Caution]:
    """Cautions on the choice: that verdicts use runs that have chosen, in the rungs where they do; that rungs chose
    among unequal numbers of combinations, where they did; that the best number is at the edge of those tried."""
    if rungs := tuple(choice.rung for choice in choices if choice.shares_runs):
        yield Caution(
            short="choice and verdict share runs",
            full=f"The settings of {understanding.listed(rungs, _SHOWN)} were chosen by {table.metric_for_choice} of "
            f"runs that verdicts use too: fewer than {LEAST_SEEDS} seeds would have been left without them. This "
            "favours rungs with more combinations.",
            rungs=rungs,
        )
    numbers = {choice.rung: choice.combinations for choice in choices if choice.combinations}
    if len(set(numbers.values())) > 1:
        listed = understanding.listed([f"{rung} {number}" for rung, number in numbers.items()], _SHOWN)
        yield Caution(
            short="unequal numbers of combinations",
            full=f"The combinations of {', '.join(table.choose)} of which each rung counts the best are unequal in "
            f"number: {listed}. This favours rungs with more.",
        )
    edges = {choice.rung: choice.at_edge for choice in choices if choice.at_edge}
    if edges:
        listed = understanding.listed([f"{rung}: {', '.join(names)}" for rung, names in edges.items()], _SHOWN, "; ")
        yield Caution(
            short="best value at the edge of those tried",
            full=f"The chosen value is the smallest or the largest of those tried: {listed}. A better one may lie "
            "beyond.",
            rungs=tuple(edges),
        )
