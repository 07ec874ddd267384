"""The seeds of the runs of a rung: as a setting has them, or numbers; and what counts where two runs have one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs

from lrurun.config.imported import ImportTable
from lrurun.config.schema import Origin
from lrurun.errors import UsageError
from lrurun.imported.rungs import settings_of, title_of
from lrurun.imported.scoring import ScoredRun
from lrurun.imported.sources import origin_of

_LISTED = 4


class Seeded(Struct, frozen=True, kw_only=True):
    """A run that is a seed of its rung."""

    scored: ScoredRun
    origin: Origin
    seed: int
    is_derived: bool = False
    """Whether it is the mean of several runs."""


def seeded(rung: str, runs: Sequence[ScoredRun], table: ImportTable, known: Mapping[Origin, int]) -> list[Seeded]:
    """The runs of a rung with their seeds.

    Without a seed setting they are numbered in their order; `known` are the numbers that the ledger has, which stay.
    Of runs with one seed, `repeat` says which count.

    Raises:
        UsageError: a run has no value of the seed setting, or two have one value and `repeat` does not say what counts.
    """
    if not table.seed:
        return _numbered(runs, known)
    missing = [run for run in runs if run.seed is None]
    if missing:
        raise UsageError(
            f"rung {rung}: {_listed(missing)}: no value of {table.seed}, which has the seeds",
            "name another setting with --seed-column, or leave these runs out by the condition of the rung",
        )
    by_seed: dict[int, list[ScoredRun]] = {}
    for run in runs:
        by_seed.setdefault(run.seed or 0, []).append(run)
    repeated = {seed: same for seed, same in by_seed.items() if len(same) > 1}
    if repeated and not table.repeat:
        raise _repeated(rung, runs, repeated, table)
    if table.repeat == "all" and repeated:
        return _with_own_seeds(by_seed, known)
    found = []
    for seed, same in by_seed.items():
        if len(same) == 1 or table.repeat == "latest":
            run = max(same, key=_time) if _have_times(same) else same[-1]
            found.append(Seeded(scored=run, origin=_origin(run), seed=seed))
        else:
            found.append(_mean(same, seed))
    return found


def _repeated(
    rung: str, runs: Sequence[ScoredRun], repeated: Mapping[int, Sequence[ScoredRun]], table: ImportTable
) -> UsageError:
    seed, same = next(iter(repeated.items()))
    if len(repeated) == 1 and len(same) == len(runs):
        return UsageError(
            f"rung {rung}: all its {len(runs)} runs have {table.seed} = {seed}, so that it is no seed of theirs",
            "name another setting with --seed-column; or say what counts: --repeat latest, mean, or all",
        )
    more = f"; {len(repeated) - 1} more seeds have several runs" if len(repeated) > 1 else ""
    return UsageError(
        f"rung {rung}: {_listed(same)}: these runs all have {table.seed} = {seed}{more}",
        "say which count: --repeat latest, mean, or all (as seeds of their own); or name another setting that tells "
        "rungs apart: --by",
    )


def _listed(runs: Sequence[ScoredRun]) -> str:
    more = f" and {len(runs) - _LISTED} more" if len(runs) > _LISTED else ""
    return f"{', '.join(title_of(run.run) for run in runs[:_LISTED])}{more}"


def _numbered(runs: Sequence[ScoredRun], known: Mapping[Origin, int]) -> list[Seeded]:
    """Runs with numbers: those that they have in the ledger, and the smallest free ones."""
    origins = [_origin(run) for run in runs]
    kept = {known[origin] for origin in origins if origin in known}
    counts = Counter(known[origin] for origin in origins if origin in known)
    free = _free(kept)
    numbered = []
    for run, origin in zip(runs, origins, strict=True):
        seed = known[origin] if origin in known and counts[known[origin]] == 1 else next(free)
        numbered.append(Seeded(scored=run, origin=origin, seed=seed))
    return numbered


def _with_own_seeds(by_seed: Mapping[int, Sequence[ScoredRun]], known: Mapping[Origin, int]) -> list[Seeded]:
    """Runs with seeds of their own: of several with one seed, the first keeps it."""
    free = _free({*by_seed, *known.values()})
    found = []
    for seed, same in by_seed.items():
        for k, run in enumerate(same):
            origin = _origin(run)
            found.append(Seeded(scored=run, origin=origin, seed=seed if k == 0 else known.get(origin) or next(free)))
    return found


def _free(taken: set[int]) -> Iterator[int]:
    number = 0
    while True:
        if number not in taken:
            yield number
        number += 1


def _origin(run: ScoredRun) -> Origin:
    return origin_of(run.run, run.tracker)


def _have_times(runs: Sequence[ScoredRun]) -> bool:
    return all(run.run.started_at is not None or run.run.ended_at is not None for run in runs)


def _time(run: ScoredRun) -> float:
    return run.run.started_at if run.run.started_at is not None else run.run.ended_at or 0.0


def _mean(runs: Sequence[ScoredRun], seed: int) -> Seeded:
    """The mean of runs with one seed: of their scores, where all have one; else it is missing as they are."""
    results = [run.result for run in runs if run.result is not None]
    first = runs[0]
    shared = settings_of([run.run for run in runs], ()).shared
    tracked = structs.replace(
        first.run,
        id="+".join(run.run.id for run in runs),
        name="+".join(run.run.name for run in runs if run.run.name),
        settings=shared,
        items=None,
        last={},
    )
    names = [name for name in results[0] if all(name in result for result in results)] if results else []
    result = {name: math.fsum(result[name] for result in results) / len(results) for name in names}
    counted = next((run for run in runs if run.result is not None), first)
    merged = structs.replace(
        counted, run=tracked, result=result or None, step=max(run.step for run in runs)
    )
    return Seeded(scored=merged, origin=_origin(merged), seed=seed, is_derived=True)
