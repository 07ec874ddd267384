"""A part of a ledger as a new ledger, with the same numbers of rows.

A run comes with all that the ledger has of it, earlier generations included. An instance of which some runs do not
come has a removal in the new ledger, which says which these are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, exists, func, or_, select, union

from lrurun.errors import NotFoundError, plural
from lrurun.ledger.database import Copying
from lrurun.ledger.database.schema import (
    attempts,
    checkpoints,
    documents,
    eigenvalues,
    events,
    exclusions,
    hidden,
    item_results,
    ladder_runs,
    ladders,
    metric_keys,
    metrics,
    removals,
    removed_runs,
    runs,
    tags,
    test_sets,
)
from lrurun.ledger.database.sql import among, now
from lrurun.ledger.ledger import Ledger
from lrurun.ledger.owner import user
from lrurun.ledger.part import InstanceInPart, Part, instances_in
from lrurun.ledger.rows import build_removal, ladder_instance

_SHOWN = 5
"""How many instances are named at most."""


class Copied(Struct, frozen=True, kw_only=True):
    """What the copy of a part has."""

    runs: int
    """How many, superseded ones included."""
    instances: list[InstanceInPart]

    @property
    def in_part(self) -> list[InstanceInPart]:
        """The instances of which runs were left out."""
        return [instance for instance in self.instances if instance.runs < instance.of]

    @property
    def sentence(self) -> str:
        """What it has, as in "5 runs of 2 instances (1 in part: npDigits-2, 4 of 24 runs)"."""
        phrases = [instance.phrase for instance in self.in_part]
        of_instances = f" of {plural(len(self.instances), 'instance')}" if self.instances else ""
        more = f"; and {len(phrases) - _SHOWN} more" if len(phrases) > _SHOWN else ""
        in_part = f" ({len(phrases)} in part: {'; '.join(phrases[:_SHOWN])}{more})" if phrases else ""
        return f"{plural(self.runs, 'run')}{of_instances}{in_part}"


def copy(ledger: Ledger, target: Path, part: Part) -> Copied:
    """Copies a part of a ledger, even while others write to it, to a new ledger in the file `target`.

    Raises:
        NotFoundError: no run is in the part.
    """
    with ledger.database.copying(target) as copying:
        return _Copy(copying, part, ledger.database.lacking).copy()


class _Copy:
    def __init__(self, copying: Copying, part: Part, lacking: frozenset[str]) -> None:
        self._copying = copying
        self._part = part
        self._lacking = lacking

    @property
    def _connection(self) -> Connection:
        return self._copying.connection

    def copy(self) -> Copied:
        numbers = self._numbers(select(runs.c.number).where(self._part.of_runs()))
        if not numbers:
            raise NotFoundError(f"no run is in the part {self._part.text}", "lrurun runs lists the runs")
        later = runs.alias()
        newer = exists().where(
            later.c.fingerprint == runs.c.fingerprint,
            later.c.generation > runs.c.generation,
            among(later.c.number, numbers),
        )
        numbers = sorted({*numbers, *self._numbers(select(runs.c.number).where(runs.c.superseded == 1, newer))})
        memberships = and_(among(ladder_runs.c.run, numbers), self._part.of_memberships())
        named = [instance.key for instance in self._part.instances]
        instances = self._numbers(
            select(ladders.c.id).where(among(ladders.c.key, named))
            if named
            else select(ladder_runs.c.ladder).where(memberships).distinct()
        )
        self._copy_rows(numbers, memberships, instances)
        self._copy_removals(instances)
        self._record_left_out(numbers, instances)
        in_part = instances_in(self._connection, among(runs.c.number, numbers), among(ladders.c.id, instances))
        return Copied(runs=len(numbers), instances=in_part)

    def _numbers(self, query: Select[Any]) -> list[int]:
        return list(self._connection.execute(query).scalars())

    def _copy_rows(self, numbers: Sequence[int], memberships: ColumnElement[bool], instances: Sequence[int]) -> None:
        """Copies the rows of runs and instances, and what they refer to."""
        of_runs = among(runs.c.number, numbers)
        texts = union(
            *(
                select(column).where(of_runs)
                for column in (runs.c.config_id, runs.c.execution_id, runs.c.provenance_id)
            ),
            select(attempts.c.environment_id).where(among(attempts.c.run, numbers)),
        )
        self._rows(documents, documents.c.id.in_(texts))
        self._rows(runs, of_runs)
        self._rows(ladders, among(ladders.c.id, instances))
        self._rows(ladder_runs, memberships)
        # One search of the primary key for each run and key, which reads no more than one row.
        rows = select(metrics.c.run).where(metrics.c.run == runs.c.number, metrics.c.key == metric_keys.c.id)
        used = select(runs.c.number).where(of_runs, rows.correlate(runs, metric_keys).exists())
        self._rows(metric_keys, used.correlate(metric_keys).exists())
        sets = select(item_results.c.test_set).where(among(item_results.c.run, numbers))
        self._rows(test_sets, test_sets.c.id.in_(sets))
        for table in (attempts, metrics, eigenvalues, item_results, checkpoints, tags, exclusions):
            self._rows(table, among(table.c.run, numbers))
        of_instances = and_(events.c.run.is_(None), among(events.c.ladder, instances))
        self._rows(events, or_(among(events.c.run, numbers), of_instances))
        self._rows(hidden, among(hidden.c.ladder, instances))

    def _rows(self, table: Table, condition: ColumnElement[bool]) -> None:
        if table.name not in self._lacking:
            self._copying.copy(select(table).where(condition).order_by(*table.primary_key))

    def _copy_removals(self, instances: Sequence[int]) -> None:
        """Copies what was removed from the instances, and which others of the same sweeps were forgotten; files that
        remain are not of the new ledger."""
        if removals.name in self._lacking:
            return
        keys = select(ladders.c.key).where(among(ladders.c.id, instances))
        of_instances = or_(
            removed_runs.c.ladder_key.in_(keys), among(removed_runs.c.ladder_key, self._forgotten_beside(instances))
        )
        query = select(removals).where(removals.c.id.in_(select(removed_runs.c.removal).where(of_instances)))
        self._copying.insert(removals, [_finished(row) for row in self._connection.execute(query)])
        self._rows(removed_runs, of_instances)

    def _forgotten_beside(self, instances: Sequence[int]) -> set[str]:
        """The keys of the instances that were forgotten, and differ from one of these in changed settings alone."""
        those = self._connection.execute(select(ladders).where(among(ladders.c.id, instances)))
        beside = {(one.name, one.task, one.profile, one.spec.tune) for one in map(ladder_instance, those)}
        forgotten = self._connection.execute(select(removals).where(removals.c.instances.is_not(None)))
        there = set(self._connection.execute(select(ladders.c.key)).scalars())
        return {
            one.key
            for row in forgotten.all()
            for one in build_removal(row).instances
            if (one.ladder, one.task, one.profile, one.tune) in beside and one.key not in there
        }

    def _left_out(self, numbers: Sequence[int], instances: Sequence[int]) -> list[dict[str, Any]]:
        """The memberships in the instances whose runs do not come."""
        query = (
            select(
                runs.c.id.label("run"), ladders.c.key.label("ladder_key"), ladder_runs.c.rung, ladder_runs.c.stage,
                ladders.c.short_name.label("instance"), runs.c.task, runs.c.seed, runs.c.state,
            )
            .select_from(_MEMBERS)
            .where(among(ladders.c.id, instances), runs.c.superseded == 0, ~among(runs.c.number, numbers))
            .order_by(ladders.c.id, ladder_runs.c.id)
        )  # fmt: skip
        return [row._asdict() for row in self._connection.execute(query)]

    def _record_left_out(self, numbers: Sequence[int], instances: Sequence[int]) -> None:
        rows = self._left_out(numbers, instances)
        if not rows:
            return
        # The same part of the same ledger has one key: copies of it can be merged.
        key = hashlib.sha256(json.dumps([self._part.text, rows]).encode()).hexdigest()[:32]
        time = now(self._connection)
        number = 1
        if removals.name not in self._lacking:
            number += self._connection.execute(select(func.coalesce(func.max(removals.c.id), 0))).scalar_one()
        removal = {
            "id": number, "key": key, "kind": "left out", "time": time, "user": user(), "selection": self._part.text,
            "why": None, "runs": len({row["run"] for row in rows}), "bytes": None, "finished_at": time, "files": None,
            "instances": None,
        }  # fmt: skip
        self._copying.insert(removals, [removal])
        self._copying.insert(removed_runs, [row | {"removal": number} for row in rows])


_MEMBERS = ladder_runs.join(ladders, ladders.c.id == ladder_runs.c.ladder).join(
    runs, runs.c.number == ladder_runs.c.run
)


def _finished(row: Row[Any]) -> dict[str, Any]:
    """The row of a removal of which no files remain."""
    columns = {key: row._mapping[column] for key, column in removals.c.items()}
    return columns | {"files": None, "finished_at": row.time if row.finished_at is None else row.finished_at}
