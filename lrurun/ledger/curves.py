"""Reading curves: the metric rows of runs by run and key, without the rows of others."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Select, func, select

from lrurun.ledger.connection import LedgerBase, retried
from lrurun.ledger.database.schema import attempts, checkpoints, metric_keys, metrics, runs
from lrurun.ledger.database.sql import among
from lrurun.ledger.rows import from_real
from lrurun.ledger.values import FINISHED, CommittedCurves, Curve

BATCH = 100
"""How many runs are read in one transaction."""


class Curves(LedgerBase):
    """The curves of runs."""

    def curves(self, run_ids: Sequence[str], keys: Iterable[str] | None = None) -> Iterator[Curve]:
        """The curves of runs, in their order and by key; unknown ids and keys without a row are left out.

        Args:
            run_ids: exact ids.
            keys: exact names of metrics; None: all.
        """
        wanted = None if keys is None else list(keys)
        for start in range(0, len(run_ids), BATCH):
            found = self._curves_of(run_ids[start : start + BATCH], wanted)
            for run_id in run_ids[start : start + BATCH]:
                yield from found.get(run_id, ())

    @retried
    def _curves_of(self, run_ids: Sequence[str], keys: Sequence[str] | None) -> dict[str, list[Curve]]:
        with self._reading() as connection:
            numbers = dict(connection.execute(select(runs.c.number, runs.c.id).where(among(runs.c.id, run_ids))).all())
            rows = _ROWS.where(among(metrics.c.run, numbers))
            names = _names(connection, keys)
            if keys is not None:
                rows = rows.where(among(metrics.c.key, names))
            found: dict[str, list[Curve]] = {}
            for curve in _grouped(connection, rows, numbers, names):
                found.setdefault(curve.run, []).append(curve)
            return {run: sorted(curves, key=lambda curve: curve.key) for run, curves in found.items()}

    @retried
    def metric_names(self, run_ids: Iterable[str] | None = None) -> list[str]:
        """The names of the metrics that runs have rows of, sorted; with None, those that any run has had."""
        with self._reading() as connection:
            names = select(metric_keys.c.name).order_by(metric_keys.c.name)
            if run_ids is not None:
                # One search of the primary key for each run and key, which reads no more than one row.
                of_run = metrics.c.run == runs.c.number
                rows = (
                    select(metrics.c.run).where(of_run, metrics.c.key == metric_keys.c.id).correlate(runs, metric_keys)
                )
                having = select(runs.c.id).where(among(runs.c.id, run_ids), rows.exists())
                names = names.where(having.correlate(metric_keys).exists())
            return list(connection.execute(names).scalars())

    @retried
    def committed_curves(self, run_id: str, since: int = 0) -> CommittedCurves:
        """The rows of a run that no resume changes: those before its last committed checkpoint; if it is finished, all.

        The row of the checkpoint's own step may be recorded after the checkpoint, by this attempt or the next one. All
        is read at one moment. Raises NotFoundError.

        Args:
            since: only rows of this step and of later ones.
        """
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            state = connection.execute(select(runs.c.state).where(runs.c.number == number)).scalar_one()
            # An attempt that has not begun has deleted no rows yet; those of the attempt before it are still there.
            begun = select(attempts.c.n, attempts.c.resumed_from).where(
                attempts.c.run == number, attempts.c.resumed_from.is_not(None)
            )
            newest = connection.execute(begun.order_by(attempts.c.n.desc()).limit(1)).first()
            attempt, resumed = (0, 0) if newest is None else (newest.n, newest.resumed_from)
            saved = select(func.max(checkpoints.c.step)).where(
                checkpoints.c.run == number, checkpoints.c.attempt >= attempt, checkpoints.c.state == "committed"
            )
            finished = state in FINISHED
            upto = None if finished else max(resumed, connection.execute(saved).scalar_one() or 0)
            rows = _ROWS.where(metrics.c.run == number, metrics.c.step >= since)
            if upto is not None:
                rows = rows.where(metrics.c.step < upto)
            curves = _grouped(connection, rows, {number: run_id}, _names(connection, None))
            return CommittedCurves(
                attempt=attempt, upto=upto, finished=finished, curves=tuple(sorted(curves, key=lambda one: one.key))
            )


_ROWS = select(metrics.c.run, metrics.c.key, metrics.c.step, metrics.c.value).order_by(
    metrics.c.run, metrics.c.key, metrics.c.step
)


def _names(connection: Connection, keys: Sequence[str] | None) -> dict[int, str]:
    """Number -> name of metrics; unknown ones are left out."""
    wanted = select(metric_keys.c.id, metric_keys.c.name)
    if keys is not None:
        wanted = wanted.where(among(metric_keys.c.name, keys))
    return dict(connection.execute(wanted).all())


def _grouped(connection: Connection, rows: Select[Any], runs: dict[int, str], names: dict[int, str]) -> Iterator[Curve]:
    """A curve of each run and key in the rows of a statement, which have the order of `_ROWS`."""
    for (run, key), group in groupby(connection.execute(rows), key=itemgetter(0, 1)):
        steps, values = array("q"), array("d")
        for _, _, step, value in group:
            steps.append(step)
            values.append(from_real(value))
        yield Curve(
            run=runs[run],
            key=names[key],
            steps=memoryview(steps).toreadonly(),
            values=memoryview(values).toreadonly(),
        )
