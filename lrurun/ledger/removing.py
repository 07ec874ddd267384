"""What is set aside or removed: hidden instances, and the record of runs that were forgotten or left out of a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, Text, exists, func, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.ledger.database.schema import hidden, ladder_runs, ladders, removals, removed_runs, runs
from lrurun.ledger.database.sql import among
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.rows import build, build_removal
from lrurun.ledger.values import FINISHED, Hidden, Removal, RemovedInstance, RemovedRun


class Removing(Handle):
    """Hidden instances and removed runs. Ledgers of older revisions have none."""

    @retried
    def hidden(self) -> Mapping[str, Hidden]:
        """Key of each hidden instance -> who hid it, and when."""
        if hidden.name in self.database.lacking:
            return {}
        query: Select[Any] = select(ladders.c.key, hidden.c.time, hidden.c.user).join(
            ladders, ladders.c.id == hidden.c.ladder
        )
        with self._reading() as connection:
            return {row.key: build(Hidden, row) for row in connection.execute(query)}

    @retried
    def removals(self, *, unfinished: bool = False) -> list[Removal]:
        """The removals, oldest first; `unfinished` selects those of which files remain."""
        if removals.name in self.database.lacking:
            return []
        query = select(removals).order_by(removals.c.id)
        if unfinished:
            query = query.where(removals.c.finished_at.is_(None))
        with self._reading() as connection:
            return [build_removal(row) for row in connection.execute(query)]

    @retried
    def removed_from(self, ladder_key: str) -> list[RemovedRun]:
        """The runs that were removed from an instance and that it does not have again, in the order of removal.

        A run is back if the instance has a run with its settings that is not superseded, of whatever generation. Of
        several generations that were removed, the newest is listed.
        """
        return self._removed_from(ladder_key, ~exists().where(*_has_again(ladder_key)))

    @retried
    def trained_again(self, ladder_key: str) -> list[RemovedRun]:
        """The runs with results that were forgotten from an instance, and in whose place it has runs with their
        settings that are newer, in the order of removal.

        A run that came back by a merge is the same one, which is older than its removal.
        """
        newer = exists().where(*_has_again(ladder_key), runs.c.created_at > removals.c.time)
        return self._removed_from(ladder_key, newer, removals.c.kind == "forgotten", removed_runs.c.state.in_(FINISHED))

    def _removed_from(self, ladder_key: str, *which: ColumnElement[bool]) -> list[RemovedRun]:
        if removals.name in self.database.lacking:
            return []
        with self._reading() as connection:
            rows = connection.execute(_REMOVED.where(removed_runs.c.ladder_key == ladder_key, *which)).all()
        newest = {(row.run[:_DIGITS], row.rung, row.stage): row for row in rows}
        return [build(RemovedRun, row) for row in newest.values()]

    @retried
    def forgotten_instances(self) -> list[tuple[RemovedInstance, Removal]]:
        """The instances that were forgotten with all their runs and are not back, each with its newest removal, oldest
        first. Those of which no run had begun are left out: they had no result.
        """
        if removals.name in self.database.lacking:
            return []
        begun = select(removed_runs.c.removal, removed_runs.c.ladder_key).where(removed_runs.c.state != "queued")
        query = select(removals).where(removals.c.instances.is_not(None)).order_by(removals.c.id)
        with self._reading() as connection:
            there = set(connection.execute(select(ladders.c.key)).scalars())
            rows = connection.execute(query).all()
            numbers = among(removed_runs.c.removal, [row.id for row in rows])
            had = {tuple(row) for row in connection.execute(begun.where(numbers).distinct())}
        found = {
            instance.key: (instance, removal)
            for row in rows
            for removal in [build_removal(row)]
            for instance in removal.instances
            if instance.key not in there and (row.id, instance.key) in had
        }
        return list(found.values())

    @retried
    def removed_runs(self, removal: str) -> list[RemovedRun]:
        """The runs of a removal (its key), once for each place that they had, whether or not they are back."""
        with self._reading() as connection:
            return [build(RemovedRun, row) for row in connection.execute(_REMOVED.where(removals.c.key == removal))]


_DIGITS = 12
"""The characters of a run's id that its settings give; a number of its generation may follow."""


def _settings_of(run: ColumnElement[str]) -> ColumnElement[str]:
    return func.substr(run, 1, _DIGITS, type_=Text)


def _has_again(ladder_key: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions on a run of an instance that has the settings of a removed one and is not superseded."""
    settings = _settings_of(removed_runs.c.run)
    return (
        ladder_runs.c.run == runs.c.number,
        ladder_runs.c.ladder == ladders.c.id,
        ladders.c.key == ladder_key,
        runs.c.id >= settings,
        runs.c.id < settings + ".",
        runs.c.superseded == 0,
    )


_REMOVED = (
    select(
        removed_runs,
        removals.c.kind,
        removals.c.why,
        removals.c.time.label("removed_at"),
        removals.c.user.label("removed_by"),
    )
    .join(removals, removals.c.id == removed_runs.c.removal)
    .order_by(
        removals.c.id, removed_runs.c.rung, removed_runs.c.seed, func.length(removed_runs.c.run), removed_runs.c.run
    )
)
