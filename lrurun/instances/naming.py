"""The short name of a new instance in a ledger, which no other instance there has."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lrurun.config import names
from lrurun.instances import documents, lookup

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.config.names import NameParts
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance


def of_plan(
    ledger: Ledger,
    plan: planning.Plan,
    given: str | None = None,
    before: Mapping[str, planning.Plan] = MappingProxyType({}),
) -> str:
    """The short name that the instance of a plan has in a ledger, or gets when it is trained.

    Args:
        given: the name that it is to have; None for none.
        before: the plans of instances that are added before it, by the names that they will have.

    Raises:
        UsageError: another instance has the given name, or it could be the beginning of an id.
    """
    from lrurun.ledger.names import taken
    from lrurun.ledger.rows import numbered

    instance = lookup.find(ledger, plan)
    by_name = {other.short_name: other for other in ledger.ladders()}
    if given is not None:
        if (other := by_name.get(given)) is not None and other != instance:
            raise taken(f"--name {given}", other)
        if other is None:
            names.check_new(given, f"--name {given}")
        return given
    if instance is not None:
        return instance.short_name
    if plan.short_name in before:
        further = _beside(plan.name_parts, before[plan.short_name].changes)
    else:
        further = others(ledger, plan)
    candidates = chain([plan.short_name], further, numbered(plan.short_name))
    return next(name for name in candidates if name not in by_name and name not in before)


def renamed(before: LadderInstance | None, now: LadderInstance) -> str | None:
    """That an instance has another short name than `before` in this command; None where it has not."""
    if before is None or before.short_name == now.short_name:
        return None
    return f"renamed: {before.short_name} is now {now.short_name}"


def others(ledger: Ledger, plan: planning.Plan) -> list[str]:
    """The names to choose from, in this order, where another instance of the ledger has the one that a plan proposes.

    They say what differs between the two: settings, or the folder of a file. There is none where only the contents of
    files differ: then a number follows the name.
    """
    other = _named(ledger, plan.short_name)
    if other is None:
        return []
    found = _beside(plan.name_parts, other.spec.set)
    recorded = documents.find(ledger, other)
    if recorded is not None and plan.is_trained_here:
        now, then = documents.lasting_paths(plan), (recorded.ladder.path, recorded.recipe.path)
        for path, before in zip(now, then, strict=True):
            if Path(path).parent != Path(before).parent and Path(path).name == Path(before).name:
                found.append(names.in_folder(plan.name_parts, Path(path).parent.name))
    return [name for name in dict.fromkeys(found) if name != plan.short_name]


def of_parts(ledger: Ledger, parts: NameParts) -> list[str]:
    """The same as `others`, for what has no documents."""
    other = _named(ledger, names.proposed(parts))
    return [] if other is None else _beside(parts, other.spec.set)


def _beside(parts: NameParts, changes: Mapping[str, Any]) -> list[str]:
    """The names that say which settings differ from those of another instance."""
    found = dict.fromkeys(names.beside(parts, changes))
    found.pop(names.proposed(parts), None)
    return list(found)


def _named(ledger: Ledger, name: str) -> LadderInstance | None:
    return next((instance for instance in ledger.ladders() if instance.short_name == name), None)
