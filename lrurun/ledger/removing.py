"""What is set aside or removed: hidden instances, and the record of runs that were forgotten or left out of a copy."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from lrurun.ledger.database.schema import hidden, ladder_runs, ladders, removals, removed_runs, runs
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.rows import build
from lrurun.ledger.values import Hidden, Removal, RemovedRun


class Removing(Handle):
    """Hidden instances and removed runs. Ledgers of older revisions have none."""

    @retried
    def hidden(self) -> Mapping[str, Hidden]:
        """Key of each hidden instance -> who hid it, and when."""
        if hidden.name in self.database.lacking:
            return {}
        query = select(ladders.c.key, hidden.c.time, hidden.c.user).join(ladders, ladders.c.id == hidden.c.ladder)
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
            return [build(Removal, row) for row in connection.execute(query)]

    @retried
    def removed_from(self, ladder_key: str) -> list[RemovedRun]:
        """The runs that were removed from an instance and that it does not have, in the order of removal."""
        if removals.name in self.database.lacking:
            return []
        members = select(runs.c.id).join(ladder_runs, ladder_runs.c.run == runs.c.number)
        members = members.join(ladders, ladders.c.id == ladder_runs.c.ladder).where(ladders.c.key == ladder_key)
        query = (
            select(removed_runs, removals.c.kind, removals.c.why)
            .join(removals, removals.c.id == removed_runs.c.removal)
            .where(removed_runs.c.ladder_key == ladder_key, removed_runs.c.run.not_in(members))
            .order_by(removals.c.id, removed_runs.c.rung, removed_runs.c.seed)
        )
        with self._reading() as connection:
            return [build(RemovedRun, row) for row in connection.execute(query)]
