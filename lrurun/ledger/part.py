"""A part of a ledger: the runs that `--where` and `--instance` select."""

from __future__ import annotations

from msgspec import Struct, field
from sqlalchemy import Connection, and_, func, select, true
from sqlalchemy.sql.elements import ColumnElement

from lrurun.errors import plural
from lrurun.ledger.database.schema import ladder_runs, ladders, runs
from lrurun.ledger.database.sql import among
from lrurun.ledger.values import LadderInstance
from lrurun.ledger.where.grammar import Condition
from lrurun.ledger.where.sql import where


class InstanceInPart(Struct, frozen=True, kw_only=True):
    """An instance, and how much of it is in a part; superseded runs do not count."""

    name: str
    """Its short name."""
    key: str = field(name="instance")
    runs: int
    """How many of its runs are in the part."""
    of: int
    """How many runs it has."""

    @property
    def phrase(self) -> str:
        """As in "npDigits-2, 4 of 24 runs"."""
        return f"{self.name}, {self.runs} of {plural(self.of, 'run')}"


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


def instances_in(
    connection: Connection, of_runs: ColumnElement[bool], instances: ColumnElement[bool] | None = None
) -> list[InstanceInPart]:
    """The instances that have runs, oldest first, each with how many of them meet a condition on rows of `runs`.

    `instances` is a condition on rows of `ladders`; None for all.
    """
    members = select(ladder_runs.c.ladder, ladder_runs.c.run).distinct().subquery()
    chosen = select(runs.c.number).where(of_runs)
    query = (
        select(
            ladders.c.short_name, ladders.c.key, func.count().filter(members.c.run.in_(chosen)), func.count()
        )
        .select_from(members)
        .join(ladders, ladders.c.id == members.c.ladder)
        .join(runs, runs.c.number == members.c.run)
        .where(runs.c.superseded == 0, true() if instances is None else instances)
        .group_by(ladders.c.id, ladders.c.short_name, ladders.c.key)
        .order_by(ladders.c.id)
    )  # fmt: skip
    return [
        InstanceInPart(name=name, key=key, runs=count, of=total)
        for name, key, count, total in connection.execute(query)
    ]
