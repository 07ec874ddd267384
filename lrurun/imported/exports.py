"""Runs that lrurun has exported: their ladder again, with its order, its bases and its scoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from msgspec import structs

from lrurun.imported import conditions
from lrurun.imported.request import ImportOptions
from lrurun.imported.rungs import NewRung
from lrurun.trackers import Exported, TrackedRun

_RUNG = "rung"
_LADDER = ("ladder", "task", "profile")
"""The settings of exported runs that say which ladder they are of."""
_T = TypeVar("_T")


def completed(given: ImportOptions, runs: Sequence[TrackedRun]) -> ImportOptions:
    """The options of an import, with what runs of one ladder say where the user leaves it open."""
    found = [run.exported for run in runs if run.exported is not None]
    ladders = {tuple(run.settings.get(name) for name in _LADDER) for run in runs}
    if len(found) < len(runs) or len(ladders) > 1:
        return given
    is_by_rung = not given.by and given.ladder is None
    metric = given.metric or _common([each.metric for each in found])
    if metric != _common([each.metric for each in found]):
        return structs.replace(given, by=(_RUNG,)) if is_by_rung else given
    test_items, chance = _common([each.test_items for each in found]), _common([each.chance for each in found])
    return structs.replace(
        given,
        by=(_RUNG,) if is_by_rung else given.by,
        metric=metric or None,
        unit=_common([each.unit for each in found]) if given.unit is None else given.unit,
        per_cent=False if given.per_cent is None else given.per_cent,
        test_items=test_items if given.test_items is None and given.items is None else given.test_items,
        chance=chance if given.chance is None else given.chance,
    )


def _common(values: Sequence[_T]) -> _T | None:
    """The value, if all are equal."""
    return values[0] if len(set(values)) == 1 else None


def in_order(runs: Sequence[_T], exported: Sequence[Exported | None]) -> list[_T]:
    """Runs by the places of their rungs in the ladder, where all have one; else as they are."""
    places = [each.place for each in exported if each is not None]
    if len(places) < len(runs):
        return list(runs)
    return [runs[index] for index in sorted(range(len(runs)), key=places.__getitem__)]


def with_bases(made: Sequence[NewRung], by: Sequence[str], runs: Sequence[TrackedRun]) -> list[NewRung]:
    """The rungs with the bases that they had, where each is one of the ladder that was exported; else as they are."""
    exported = [run.exported for run in runs if run.exported is not None]
    bases = {each.rung: each.base for each in exported}
    names = {rung.values.get(_RUNG, ""): rung.name for rung in made}
    if by != [_RUNG] or len(exported) < len(runs) or {*names} != {*bases}:
        return list(made)
    return [structs.replace(rung, on=names.get(bases[rung.values[_RUNG]])) for rung in made]


def settings_apart(differences: Sequence[str], runs: Sequence[TrackedRun]) -> list[str]:
    """The differences of a rung from its base that count as such: of runs that lrurun has trained, none but the one
    that their ladder declares; of runs that it had imported before, those of their settings."""
    if not runs or any(run.exported is None for run in runs):
        return list(differences)
    prefix = conditions.PREFIX
    while all(f"{prefix}{name}" in run.settings for name in (_RUNG, *_LADDER[:2]) for run in runs):
        prefix += conditions.PREFIX  # it was an export before
    return [path for path in differences if path.startswith(prefix)]
