"""A part of a ledger: the runs that `--where` and `--instance` select."""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import and_, select, true
from sqlalchemy.sql.elements import ColumnElement

from lrurun.ledger.database.schema import ladder_runs, ladders, runs
from lrurun.ledger.database.sql import among
from lrurun.ledger.values import LadderInstance
from lrurun.ledger.where.grammar import Condition
from lrurun.ledger.where.sql import where


class Part(Struct, frozen=True, kw_only=True):
    """Runs of some instances that meet a condition, superseded ones included."""

    instances: tuple[LadderInstance, ...] = ()
    """The instances that are named; empty for all, and for runs of none."""
    condition: Condition | None = None
    text: str = ""
    """What the user named, as in "--instance npDigits --where 'seed<3'"; empty for the whole ledger."""

    @property
    def is_all(self) -> bool:
        """Whether it is the whole ledger."""
        return not self.instances and self.condition is None

    def of_runs(self) -> ColumnElement[bool]:
        """Its runs, as a condition on rows of `runs`."""
        parts: list[ColumnElement[bool]] = []
        if self.instances:
            parts.append(runs.c.number.in_(select(ladder_runs.c.run).where(self.of_memberships())))
        if self.condition is not None:
            parts.append(where(self.condition))
        return and_(true(), *parts)

    def of_memberships(self) -> ColumnElement[bool]:
        """The memberships in the instances that are named, as a condition on rows of `ladder_runs`; all, if none is."""
        if not self.instances:
            return true()
        keys = (instance.key for instance in self.instances)
        return ladder_runs.c.ladder.in_(select(ladders.c.id).where(among(ladders.c.key, keys)))
