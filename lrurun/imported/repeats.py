"""Which runs are the seeds of a rung: numbers for runs without seeds, and several runs of one rung and seed.

Where `choose` has settings, each combination of them has its own seeds in a rung: below, *rung* means that.

1. **No seed column.** The runs of a rung are numbered from 0, by the time of their start, else in the order of the
   source. A number that an earlier import gave a run stays, and new runs get the smallest numbers that are free. A run
   of several rungs has one number.
2. **A seed column** gives the seeds. A run that is missing and has no valid one is numbered above the others.
3. **Several runs of one rung and seed.** Of those without a score, none counts beside one with a score, which is taken
   for another attempt at the same, whether crashed runs are missing or failures; without such a one, the latest failure
   counts, else the latest missing run. If several have scores, `repeat`
   decides; without it, that is an error. "latest": by the time of their end, else of their start, if all of them have
   it, else the last in the source. "mean": one run with the mean of their results, and without curves; if one of them
   diverged or has NaN, it has no usable result either. "all": the first keeps its seed, the others get the next free
   numbers above all seeds.
4. **Runs that the source no longer has**, of earlier imports. None of them counts beside one of the source with its
   rung and seed; with "mean" and "all", it does if both have results. A mean of several is in no other mean: of those
   that the source no longer has, the one of most runs counts alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from lrurun import floats
from lrurun.config.imported import validation_metrics
from lrurun.errors import UsageError, plural
from lrurun.imported import understanding
from lrurun.imported.choosing import combination
from lrurun.imported.scoring import BEST_STEP
from lrurun.instances.import_record import Caution
from lrurun.ledger.where.grammar import comparable

if TYPE_CHECKING:
    from lrurun.config.imported import ImportTable
    from lrurun.imported.scoring import ScoredRun

RunKey = tuple[str, str]
"""Project and id of a run."""

_SHOWN = 4
"""Seeds with several runs, and settings, that an error lists."""


class SeededRuns(Struct, frozen=True, kw_only=True):
    """The runs of each rung with their seeds, none of which has two runs."""

    rungs: dict[str, tuple[ScoredRun, ...]]
    """All have a seed."""
    parts: dict[RunKey, tuple[RunKey, ...]] = {}
    """Project and id of a run that is the mean of several -> theirs."""
    sentences: tuple[str, ...] = ()
    """Messages about what was decided."""
    cautions: tuple[Caution, ...] = ()


class _Placed(Struct, frozen=True):
    """A run with its place in the source."""

    run: ScoredRun
    position: int

    @property
    def key(self) -> RunKey:
        return self.run.key

    @property
    def started(self) -> tuple[float, int]:
        at = self.run.run.started_at
        return math.inf if at is None else at, self.position


_Group = tuple[str, tuple[str, ...]]
"""A rung and a combination of chosen settings."""


def seeded(
    rungs: Mapping[str, Sequence[ScoredRun]],
    table: ImportTable,
    known: Mapping[RunKey, int] = MappingProxyType({}),
    vanished: Mapping[RunKey, Collection[RunKey]] = MappingProxyType({}),
) -> SeededRuns:
    """The seeds of each rung, by the rule at the head of this module.

    Args:
        rungs: the runs of each, in the order of the source.
        known: the numbers that earlier imports gave to runs.
        vanished: those that the source no longer has -> the runs of which they are the means; none of single runs.

    Raises:
        UsageError: several runs of one rung and seed with results, and `repeat` is not set; a run with a result that
            has no seed, or no valid one, although the table names a setting for it.
    """
    groups: dict[_Group, list[_Placed]] = {}
    for rung, runs in rungs.items():
        for position, run in enumerate(runs):
            groups.setdefault((rung, combination(run, table.choose)), []).append(_Placed(run, position))
    if table.seed:
        _refuse_without_seed(rungs, table)
    groups = _numbered(groups, known)
    sentences: list[str] = []
    left_out: set[RunKey] = set()
    yielding: set[RunKey] = set()
    kept: dict[_Group, list[_Placed]] = {}
    repeated: dict[tuple[_Group, int], list[_Placed]] = {}
    for group, members in groups.items():
        kept[group] = []
        for seed, of_seed in _by_seed(members).items():
            several = _without_vanished(of_seed, vanished, table)
            yielding |= {placed.key for placed in of_seed} - {placed.key for placed in several}
            with_result = [placed for placed in several if placed.run.state == "done"]
            if not with_result:  # all failures rank alike
                with_result = [_latest(failed)] if (failed := [p for p in several if p.run.has_result]) else []
            if len(with_result) > 1:
                repeated[group, seed] = with_result
            else:
                kept[group] += with_result or [_latest(several)]
            counted = {placed.key for placed in with_result or kept[group][-1:]}
            left_out |= {placed.key for placed in several if placed.key not in counted}
    if yielding:
        verb = "yields" if len(yielding) == 1 else "yield"
        sentences.append(
            f"{plural(len(yielding), 'run')} of earlier imports {verb} to others of the same rung and seed"
        )
    if left_out:
        sentences.append(
            f"{plural(len(left_out), 'run')} without a score left out: another run has the same rung and seed"
        )
    parts: dict[RunKey, tuple[RunKey, ...]] = {}
    if repeated and not table.repeat:
        raise _several(repeated, rungs, table)
    for (group, _seed), several in repeated.items():
        if table.repeat == "latest":
            kept[group].append(_latest(several))
        elif table.repeat == "mean":
            runs_of_seed = sorted((placed.run for placed in several), key=lambda run: run.key)  # in whatever order
            mean = mean_of(runs_of_seed)
            parts[mean.key] = tuple(run.key for run in runs_of_seed)
            kept[group].append(_Placed(mean, several[0].position))
        else:
            kept[group] += several
    if table.repeat == "all" and repeated:
        kept = _renumbered(kept, known)
    cautions = [*_on_numbers(groups, table), *_on_repeats(repeated, table), *_on_seeds(rungs, table)]
    return SeededRuns(
        rungs={
            rung: tuple(
                placed.run
                for placed in sorted(
                    (placed for group, members in kept.items() if group[0] == rung for placed in members),
                    key=lambda placed: placed.position,
                )
            )
            for rung in rungs
        },
        parts=parts,
        sentences=tuple(sentences),
        cautions=tuple(cautions),
    )


def _by_seed(members: Sequence[_Placed]) -> dict[int, list[_Placed]]:
    by_seed: dict[int, list[_Placed]] = {}
    for placed in members:
        assert placed.run.seed is not None
        by_seed.setdefault(placed.run.seed, []).append(placed)
    return by_seed


def _without_vanished(
    several: list[_Placed], vanished: Mapping[RunKey, Collection[RunKey]], table: ImportTable
) -> list[_Placed]:
    """The runs of one seed without those of earlier imports that yield to others."""
    means = [placed for placed in several if vanished.get(placed.key)]
    of_source = [placed for placed in several if placed.key not in vanished]
    if not of_source:
        return [max(means, key=lambda placed: len(vanished[placed.key]))] if means else several
    if table.repeat in ("mean", "all") and any(placed.run.has_result for placed in of_source):
        return [placed for placed in several if placed not in means]
    return of_source


def _refuse_without_seed(rungs: Mapping[str, Sequence[ScoredRun]], table: ImportTable) -> None:
    without = [(rung, run) for rung, runs in rungs.items() for run in runs if run.seed is None and run.has_result]
    if without:
        rung, run = without[0]
        if run.seed_error is not None:
            raise run.seed_error
        more = f", and {plural(len(without) - 1, 'other run')} neither" if len(without) > 1 else ""
        raise UsageError(
            f"rung {rung}, run {run.label}: has no {table.seed}, which the others have as their seed{more}",
            "name another setting with --seed-column; with --seed-column none, runs are numbered",
        )


def _numbered(groups: Mapping[_Group, list[_Placed]], known: Mapping[RunKey, int]) -> dict[_Group, list[_Placed]]:
    """The groups with a number as seed for each run that has none."""
    taken: dict[_Group, set[int]] = {
        group: {placed.run.seed for placed in members if placed.run.seed is not None}
        for group, members in groups.items()
    }
    free = {group: max(seeds, default=-1) + 1 for group, seeds in taken.items()}  # at least, see below
    groups_of: dict[RunKey, list[_Group]] = {}
    unnumbered: dict[RunKey, _Placed] = {}
    for group, members in groups.items():
        for placed in members:
            if placed.run.seed is None:
                groups_of.setdefault(placed.key, []).append(group)
                unnumbered.setdefault(placed.key, placed)
    numbers: dict[RunKey, int] = {}
    for placed in sorted(unnumbered.values(), key=lambda placed: (placed.key not in known, *placed.started)):
        own = groups_of[placed.key]
        number = known.get(placed.key, -1)
        if number < 0 or any(number in taken[group] for group in own):
            number = max(free[group] for group in own)
            while any(number in taken[group] for group in own):
                number += 1
        numbers[placed.key] = number
        for group in own:
            taken[group].add(number)
            while free[group] in taken[group]:
                free[group] += 1
    return {
        group: [
            placed
            if placed.run.seed is not None
            else _Placed(structs.replace(placed.run, seed=numbers[placed.key]), placed.position)
            for placed in members
        ]
        for group, members in groups.items()
    }


def _renumbered(kept: Mapping[_Group, list[_Placed]], known: Mapping[RunKey, int]) -> dict[_Group, list[_Placed]]:
    """The groups with numbers in the place of seeds that an earlier run has."""
    firsts: set[tuple[_Group, RunKey]] = set()
    for group, members in kept.items():
        firsts |= {(group, min(several, key=lambda p: p.started).key) for several in _by_seed(members).values()}
    again = {
        group: [
            placed
            if (group, placed.key) in firsts
            else _Placed(structs.replace(placed.run, seed=None), placed.position)
            for placed in members
        ]
        for group, members in kept.items()
    }
    return _numbered(again, known)


def _latest(several: Sequence[_Placed]) -> _Placed:
    ended = [placed.run.run.ended_at for placed in several]
    started = [placed.run.run.started_at for placed in several]
    for times in (ended, started):
        if None not in times:
            return max(zip(several, times, strict=True), key=lambda pair: (pair[1], pair[0].position))[0]
    return max(several, key=lambda placed: placed.position)


def mean_of(runs: Sequence[ScoredRun]) -> ScoredRun:
    """One run in the place of several with results: their mean, with the settings that they share and without curves.

    Its id is theirs, joined by "+". It diverged if one of them did; the chosen step is left out where they differ.
    """
    results = [run.result or {} for run in runs]
    choices = [run.choice for run in runs]
    shared = [name for name in results[0] if all(name in result for result in results)]
    means = {name: floats.mean([result[name] for result in results]) for name in shared}
    if len({result.get(BEST_STEP) for result in results}) > 1:
        means.pop(BEST_STEP, None)
    diverged = next((run for run in runs if run.state == "diverged"), None)
    tracked = [run.run for run in runs]
    first = tracked[0]
    starts = [run.started_at for run in tracked if run.started_at is not None]
    ends = [run.ended_at for run in tracked if run.ended_at is not None]
    merged = structs.replace(
        first,
        id="+".join(run.id for run in tracked),
        project="+".join(dict.fromkeys(run.project for run in tracked)),
        name="",
        settings={
            name: value
            for name, value in first.settings.items()
            if all(name in run.settings and comparable(run.settings[name]) == comparable(value) for run in tracked)
        },
        state_text="",
        last={},
        items=None,
        started_at=min(starts, default=None),
        ended_at=max(ends, default=None),
        code=", ".join(dict.fromkeys(run.code for run in tracked if run.code)),
        data=", ".join(dict.fromkeys(run.data for run in tracked if run.data)),
        place=", ".join(dict.fromkeys(run.place for run in tracked if run.place)),
    )
    return structs.replace(
        runs[0],
        run=merged,
        state="done" if diverged is None else "diverged",
        result=means if diverged is None else None,
        step=min(run.step for run in runs),
        why="" if diverged is None else diverged.why,
        choice=None if None in choices else floats.mean([choice for choice in choices if choice is not None]),
        at_only_value=any(run.at_only_value for run in runs),
        went_back=next((run.went_back for run in runs if run.went_back), ""),
    )


def _several(
    repeated: Mapping[tuple[_Group, int], Sequence[_Placed]],
    rungs: Mapping[str, Sequence[ScoredRun]],
    table: ImportTable,
) -> UsageError:
    """The error on several runs of one rung and seed."""
    lists = [
        f"{rung}, seed {seed}: {', '.join(placed.run.label for placed in several)}"
        for ((rung, _), seed), several in repeated.items()
    ]
    more = f"; and {len(lists) - _SHOWN} more" if len(lists) > _SHOWN else ""
    seeds = {run.seed for runs in rungs.values() for run in runs}
    if len(seeds) == 1:
        hint = (
            f"{table.seed} is {seeds.pop()} in all runs: name another one; with --seed-column none, runs are numbered"
        )
    else:
        hint = "say which count with --repeat latest, mean or all"
        if differing := _differing(list(repeated.values()), table):
            names = ", ".join(differing[:_SHOWN]) + ", ..." * (len(differing) > _SHOWN)
            choose = f"--choose {','.join(differing[:_SHOWN])}"
            if not table.metric_for_choice:
                known = understanding.metrics([run.run for runs in rungs.values() for run in runs])
                choose += f" --metric-for-choice {next(iter(validation_metrics(known, table.metric)), 'M')}"
            hint = (
                f"{names} {'differs' if len(differing) == 1 else 'differ'} between them: let validation choose with "
                f"{choose}, make other rungs of them, or {hint}"
            )
    return UsageError(f"several runs of one rung and seed: {'; '.join(lists[:_SHOWN])}{more}", hint)


def _differing(groups: Sequence[Sequence[_Placed]], table: ImportTable) -> list[str]:
    """The settings that differ between the runs of one rung and seed, those first that do in most of them."""
    runs = [placed.run.run for several in groups for placed in several]
    left_out = {table.seed, table.metric, table.metric_for_choice, *table.choose, *understanding.metrics(runs)}
    counts = {
        each.name: sum(
            len({comparable(placed.run.run.settings.get(each.name)) for placed in several}) > 1 for several in groups
        )
        for each in understanding.varying(runs, left_out, with_drawn=True)
        if not each.is_number or understanding.may_be_drawn(each.name)
    }
    return sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])


def _on_numbers(groups: Mapping[_Group, Sequence[_Placed]], table: ImportTable) -> Iterator[Caution]:
    """A caution that seeds were numbered: wherever the table names no seed."""
    if not table.seed and any(groups.values()):
        yield Caution(
            short="seeds numbered here",
            full="The source has no seeds: the runs of each rung were numbered. That they are independent, with seeds "
            "of their own, is what their user says, and is not known here.",
        )


def _on_repeats(repeated: Mapping[tuple[_Group, int], Sequence[_Placed]], table: ImportTable) -> Iterator[Caution]:
    """A caution on what `repeat` did, wherever it did something."""
    if not repeated:
        return
    count = sum(map(len, repeated.values()))
    rungs = tuple(dict.fromkeys(rung for (rung, _), _seed in repeated))
    runs, seeds = plural(count, "run"), plural(len(repeated), "seed")
    if table.repeat == "all":
        full = f"{runs} share {seeds}, and count as seeds of their own: verdicts take them to be independent."
        yield Caution(short="repeats of a seed count as seeds", full=full, rungs=rungs)
    elif table.repeat == "mean":
        yield Caution(short="", full=f"{runs} share {seeds}, each of which counts once, with their mean.", rungs=rungs)
    else:
        runs_of = list(repeated.values())
        timed = all(
            None not in [p.run.run.ended_at for p in several] or None not in [p.run.run.started_at for p in several]
            for several in runs_of
        )
        by = "the latest one" if timed else "the latest one (the last of the source where times are not known)"
        short = "" if timed else "the latest by the order of the source"
        yield Caution(short=short, full=f"{runs} share {seeds}, of each of which {by} counts.", rungs=rungs)


def _on_seeds(rungs: Mapping[str, Sequence[ScoredRun]], table: ImportTable) -> Iterator[Caution]:
    """A caution if several rungs have several runs with results, and no two runs of all share a seed."""
    runs = {run.key: run for of_rung in rungs.values() for run in of_rung if run.has_result}
    several = [rung for rung, of_rung in rungs.items() if sum(run.has_result for run in of_rung) > 1]
    if table.seed and len(several) > 1 and len({run.seed for run in runs.values()}) == len(runs):
        yield Caution(
            short="",
            full=f"No two of the {len(runs)} runs have the same {table.seed}: if it numbers the runs, or was drawn for "
            "a program that does not use it, it is not their seed.",
        )
