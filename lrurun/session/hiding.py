"""Instances that lists leave out: which ones a command hides or shows again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from lrurun.errors import LrurunError, NotFoundError, listed
from lrurun.ledger.database import implementation
from lrurun.ledger.part import InstanceInPart
from lrurun.session import opening, parts

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places


class HiddenInstances(Struct, frozen=True, kw_only=True):
    """What `lrurun ledger hide` has done, by the short names of instances."""

    changed: list[str]
    """Hidden now, or, with --undo, shown again."""
    unchanged: list[str]
    """Hidden before, or shown before."""
    in_part: list[InstanceInPart]
    """Left as they are, because not all of their runs meet the condition."""
    left_to_others: dict[str, list[str]]
    """User -> the instances that were left as they are because this user requested them."""


def hide(
    places: Places, instances: Sequence[str], where: str | None, *, undo: bool, all_users: bool
) -> HiddenInstances:
    """Hides instances, those that are named or those all of whose runs meet a condition, or shows them again.

    Raises:
        UsageError: the condition is wrong.
        LrurunError: an instance that is named belongs to another user, or this user of a server may not hide and show
            instances.
        NotFoundError: there is no such instance, or no run meets the condition.
    """
    from lrurun.ledger import owner
    from lrurun.runner import run_files

    with opening.change(places) as ledger:
        if missing := ledger.missing_rights_to_hide():
            raise LrurunError(
                f"the user of the ledger {places.ledger} may not hide instances and show them again: it lacks "
                f"{listed(missing)}",
                "the owner of the tables grants it: GRANT SELECT, INSERT, DELETE ON hidden TO name",
            )
        chosen, in_part = _chosen(ledger, instances, where, undo=undo)
        of_others = {} if all_users or not implementation(places.ledger).is_shared else _of_others(chosen)
        for user, names in of_others.items() if instances else ():
            raise owner.belongs_to_others(f"instance {names[0]}", [user])
        left = [name for names in of_others.values() for name in names]
        keys = {instance.key: instance.short_name for instance in chosen if instance.short_name not in left}
        changed = ledger.show(keys) if undo else ledger.hide(keys)
        for key in changed:
            run_files.keep_ladder(ledger, places.runs, key)
    return HiddenInstances(
        changed=[keys[key] for key in changed],
        unchanged=[name for key, name in keys.items() if key not in changed],
        in_part=in_part,
        left_to_others=of_others,
    )


def _chosen(
    ledger: Ledger, instances: Sequence[str], where: str | None, *, undo: bool
) -> tuple[list[LadderInstance], list[InstanceInPart]]:
    """The instances that are named or meet the condition, and those of which only some runs do."""
    if where is None:
        return list({instance.key: instance for instance in map(ledger.ladder, instances)}.values()), []
    counted = [entry for entry in ledger.instances_in(parts.required(ledger, (), where)) if entry.runs]
    if not counted:
        raise NotFoundError(f"--where: the runs are in no instance of {ledger.path}", "name an instance")
    if undo:
        hidden = ledger.hidden()
        counted = [entry for entry in counted if entry.key in hidden]
    return (
        [ledger.ladder(entry.key) for entry in counted if entry.runs == entry.of],
        [entry for entry in counted if entry.runs < entry.of],
    )


def _of_others(instances: Sequence[LadderInstance]) -> dict[str, list[str]]:
    from lrurun.ledger import owner

    of_others: dict[str, list[str]] = {}
    for instance in instances:
        if instance.user not in (None, owner.user()):
            of_others.setdefault(str(instance.user), []).append(instance.short_name)
    return of_others
