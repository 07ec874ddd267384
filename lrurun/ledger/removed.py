"""What became of an instance or a run that a command names and the ledger does not have any more."""

from __future__ import annotations

from sqlalchemy import Connection, Select, select

from lrurun.console import clean
from lrurun.errors import NotFoundError
from lrurun.ledger.database.schema import ladders, removals, removed_runs
from lrurun.ledger.rows import build_removal
from lrurun.ledger.times import when
from lrurun.ledger.values import Removal

_LEAST = 4
"""The characters of an id by which a removed run is found."""


def removed_instance(connection: Connection, name: str) -> Removal | None:
    """The newest removal with which an instance of this name, or key, went; None if there is none.

    Its runs have its name; the removal has that of one without runs.
    """
    if not name:
        return None
    forgotten = select(removals).where(removals.c.kind == "forgotten").order_by(removals.c.id.desc())
    of_runs = select(removed_runs.c.removal).where(
        (removed_runs.c.instance == name) | (removed_runs.c.ladder_key == name.lower()),
        removed_runs.c.ladder_key.not_in(select(ladders.c.key)),
    )
    if (found := _first(connection, forgotten.where(removals.c.id.in_(of_runs)))) is not None:
        return found
    for row in connection.execute(forgotten.where(removals.c.instances.is_not(None))):
        found = build_removal(row)
        if any(name in (instance.key, instance.name) for instance in found.instances):
            return found
    return None


def removed_run(connection: Connection, prefix: str) -> Removal | None:
    """The newest removal of a run with this id, or one that begins so; None if there is none."""
    if len(prefix) < _LEAST:
        return None
    text = prefix.lower()
    begins = removed_runs.c.run >= text, removed_runs.c.run < text + "\U0010ffff"
    ids = connection.execute(select(removed_runs.c.run).distinct().where(*begins).limit(100)).scalars().all()
    if text not in ids and len(ids) != 1:
        return None  # none or several begin so
    of_run = select(removed_runs.c.removal).where(removed_runs.c.run == (text if text in ids else ids[0]))
    return _first(connection, select(removals).where(removals.c.id.in_(of_run)).order_by(removals.c.id.desc()))


def removed_error(message: str, removal: Removal) -> NotFoundError:
    """The error about what was removed; `message` says what was looked for."""
    if removal.kind == "forgotten":
        happened = f"it {was_forgotten(removal)}"
    else:
        happened = "it was left out of this copy of a part of a ledger"
    return NotFoundError(f"{message}: {happened}", "lrurun ledger forgotten lists what was removed, and why")


def was_forgotten(removal: Removal) -> str:
    """What became of something, when, by whom and why, as in "was forgotten at 2026-03-01 12:00:00 by ada: a trial"."""
    who = f" by {clean(removal.user)}" if removal.user else ""
    why = f": {clean(removal.why)}" if removal.why else ""
    return f"was forgotten at {when(removal.time)}{who}{why}"


def _first(connection: Connection, query: Select[tuple[object, ...]]) -> Removal | None:
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None else build_removal(row)
