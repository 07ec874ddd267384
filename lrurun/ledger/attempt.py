"""What a worker writes about the run that it holds.

Every write carries the number of the attempt, so that an attempt from which the run was taken is fenced: it writes
nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from lrurun.errors import LrurunError
from lrurun.ledger import columns
from lrurun.ledger.database.schema import ENVIRONMENT, attempts, checkpoints, eigenvalues, metric_keys, metrics, runs
from lrurun.ledger.database.sql import among, now, upsert
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.items import packed_items, write_items
from lrurun.ledger.rows import (
    Document,
    add_event,
    clean,
    code_version,
    pack_complex,
    pack_result,
    share,
    to_real,
    unpack,
)
from lrurun.ledger.values import FINISHED, SCORE, HeldRun, Moment, Outcome

if TYPE_CHECKING:
    from lrurun.items import ItemResults


_ENDS = ("done", "diverged", "failed", "interrupted")


class Fenced(LrurunError):
    """The run was taken from this attempt, or has ended: nothing was written, and the worker must stop."""


class AttemptWrites(Handle):
    """The writes of an attempt, from its start to its end."""

    @retried
    def rewind(self, held: HeldRun, step: int | None, *, score: str = SCORE) -> None:
        """Start the attempt from `step`: metric rows past it are deleted; all of them where it is None.

        `score` is the metric that selects the model, as in `record`.
        """
        with self._writing() as connection:
            number = _number_held(connection, held)
            deletion = delete(metrics).where(metrics.c.run == number)
            connection.execute(deletion if step is None else deletion.where(metrics.c.step > step))
            connection.execute(_SET_STEP, {"run_number": number, "new_step": step or 0})
            for key, column in _newest_columns(score).items():
                connection.execute(_SET_NEWEST[column], {"run_number": number, "key": key})
            connection.execute(update(attempts).where(_attempt_of(held, number)).values(resumed_from=step or 0))

    @retried
    def record(self, held: HeldRun, rows: Iterable[tuple[int, str, float]], step: int, *, score: str = SCORE) -> None:
        """Write metric rows (step, key, value), over older ones of the same step and key, and the run's step.

        `score` is the metric that selects the model, as in "val/r2": its newest value is the run's `last_score`.
        """
        rows, newest = list(rows), _newest_columns(score)
        with self._writing(durable=False) as connection:
            number = _number_held(connection, held)
            names = {key for _, key, _ in rows}
            keys = self._key_numbers(connection, names)
            if rows:
                add = upsert(connection, metrics)
                connection.execute(
                    add.on_conflict_do_update(index_elements=_METRIC, set_={"value": add.excluded.value}),
                    [
                        {"run": number, "key": keys[key], "step": int(row_step), "value": to_real(value)}
                        for row_step, key, value in rows
                    ],
                )
            connection.execute(_SET_STEP, {"run_number": number, "new_step": int(step)})
            for key in names & newest.keys():
                connection.execute(_SET_NEWEST[newest[key]], {"run_number": number, "key": key})
        # Only after the commit: before it, a new key may be rolled back.
        self._metric_numbers.update(keys)

    @retried
    def check_held(self, held: HeldRun) -> None:
        """Check that the attempt is still the newest one of its run, and running, without a write. Raises Fenced."""
        same = (runs.c.id == held.run.id, runs.c.attempt == held.attempt, runs.c.state == "running")
        with self._reading() as connection:
            if connection.execute(select(runs.c.number).where(*same)).scalar_one_or_none() is None:
                raise _lost(held)

    @retried
    def begin_checkpoint(self, held: HeldRun, step: int, path: str) -> int:
        """Announce a checkpoint before its first byte is written; returns its id. `path` is below the runs folder."""
        with self._writing() as connection:
            number = _number_held(connection, held)
            row = {"run": number, "attempt": held.attempt, "step": step, "state": "saving", "path": path}
            announced = select(checkpoints.c.id).filter_by(**row)
            if (checkpoint := connection.execute(announced).scalars().first()) is not None:
                return int(checkpoint)  # an earlier try succeeded, although the answer of the server was lost
            return int(connection.execute(insert(checkpoints).values(row).returning(checkpoints.c.id)).scalar_one())

    @retried
    def commit_checkpoint(self, held: HeldRun, checkpoint: int, size: int, sha256: str) -> None:
        """Mark a checkpoint of this attempt as committed: all its `size` bytes are on the disk."""
        with self._writing() as connection:
            number = _number_held(connection, held)
            changed = connection.execute(
                update(checkpoints)
                .where(
                    checkpoints.c.id == checkpoint,
                    checkpoints.c.run == number,
                    checkpoints.c.attempt == held.attempt,
                    or_(checkpoints.c.state == "saving", checkpoints.c.sha256 == sha256),
                )
                .values(state="committed", bytes=size, sha256=sha256)
            )
            if not changed.rowcount:
                raise ValueError(f"checkpoint {checkpoint} is not one that attempt {held.attempt} is saving")

    @retried
    def delete_checkpoints(self, held: HeldRun, ids: Iterable[int]) -> None:
        """Delete rows of checkpoints of this run, of earlier attempts too. Unknown ids are ignored."""
        with self._writing() as connection:
            number = _number_held(connection, held)
            connection.execute(delete(checkpoints).where(checkpoints.c.run == number, among(checkpoints.c.id, ids)))

    @retried
    def record_eigenvalues(self, held: HeldRun, moment: Moment, layers: Sequence[Sequence[complex] | None]) -> None:
        """Write the eigenvalues of each recurrent layer at a moment, in place of an earlier attempt's.

        None stands for a layer whose recurrence has no eigenvalues; NaN and infinities are kept.
        """
        table = eigenvalues
        with self._writing() as connection:
            number = _number_held(connection, held)
            connection.execute(delete(table).where(table.c.run == number, table.c.moment == moment))
            rows = [
                {
                    "run": number,
                    "moment": moment,
                    "layer": layer,
                    "pairs": None if values is None else pack_complex(values),
                }
                for layer, values in enumerate(layers)
            ]
            if rows:
                connection.execute(insert(table), rows)

    @retried
    def describe(
        self,
        held: HeldRun,
        *,
        parameters: int | None = None,
        data_sha256: str | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """Add what the worker found out to the run, and `environment` to its attempt's. None changes nothing."""
        values = {"parameters": parameters, "data_sha256": data_sha256}
        changes = {name: value for name, value in values.items() if value is not None}
        with self._writing() as connection:
            number = _number_held(connection, held)
            if changes:
                connection.execute(update(runs).where(runs.c.number == number).values(changes))
            if environment:
                attempt = _attempt_of(held, number)
                recorded = connection.execute(select(ENVIRONMENT).select_from(attempts).where(attempt)).scalar_one()
                merged = {**unpack(recorded), **environment}
                document = Document.pack(merged)
                numbers = share(connection, [document])
                connection.execute(
                    update(attempts).where(attempt).values(environment_id=numbers[document], code=code_version(merged))
                )

    @retried
    def finish(
        self,
        held: HeldRun,
        state: str,
        *,
        result: Mapping[str, float] | None = None,
        error: str | None = None,
        reason: str | None = None,
        step: int | None = None,
        outcome: Outcome | None = None,
        items: Mapping[str, ItemResults] | None = None,
    ) -> None:
        """End the attempt and the run: "done", "diverged", "failed" or "interrupted".

        `reason` is why the attempt ended, the state by default; `error` is the traceback of a failed run. Results may
        contain NaN and infinities. A run that is done or has diverged never changes again. `outcome` is the attempt's,
        where it is not the state. `items` are the per-item results of a run that is done, by the
        names of scores.
        """
        if state not in _ENDS:
            raise ValueError(f"a run ends as one of {', '.join(_ENDS)}, not {state!r}")
        if items and state != "done":
            raise ValueError(f"only a run that is done has per-item results, not one that is {state}")
        item_records = packed_items(items)
        changes: dict[str, Any] = {"state": state, "error": clean(error)}
        if result is not None:
            changes["result"] = pack_result(result)
            changes |= columns_of_result(result)
        if step is not None:
            changes["step"] = step
        why = clean(reason) or state
        with self._writing() as connection:
            if self.database.may_be_away and _ended(connection, held, changes, why):
                return
            number = _number_held(connection, held)
            time = now(connection)
            if state != "interrupted":
                changes["finished_at"] = time
            connection.execute(update(runs).where(runs.c.number == number).values(changes))
            write_items(connection, number, item_records)
            connection.execute(
                update(attempts)
                .where(_attempt_of(held, number))
                .values(ended_at=time, outcome=outcome or state, reason=why)
            )
            # The event keeps the traceback: the next attempt overwrites the run's error.
            add_event(connection, time, state, error or why, run=number, attempt=held.attempt)
        if state in FINISHED:
            with contextlib.suppress(LrurunError):  # as on a full disk: the log has the run
                self.database.write_back()


def _newest_columns(score: str) -> dict[str, str]:
    """Metric -> the column of runs with the value of its newest row, so that no reader has to search for it."""
    return {"train/loss": "last_loss", score: "last_score", "machine/steps_per_second": "last_speed"}


_SET_STEP = update(runs).where(runs.c.number == bindparam("run_number")).values(step=bindparam("new_step"))


def _newest_value() -> Any:
    curve = select(metrics.c.value).join(metric_keys, metric_keys.c.id == metrics.c.key)
    rows = curve.where(metrics.c.run == bindparam("run_number"), metric_keys.c.name == bindparam("key"))
    return rows.order_by(metrics.c.step.desc()).limit(1).scalar_subquery()


_SET_NEWEST = {
    column: update(runs).where(runs.c.number == bindparam("run_number")).values({column: _newest_value()})
    for column in _newest_columns(SCORE).values()
}


_HELD = select(runs.c.number).where(
    runs.c.id == bindparam("id"), runs.c.attempt == bindparam("n"), runs.c.state == "running"
)

# On a server nobody takes the run until the transaction ends.
_HELD = _HELD.with_for_update(key_share=True)


_SEEN = (
    update(attempts)
    .where(attempts.c.run == bindparam("run_number"), attempts.c.n == bindparam("attempt_number"))
    .values(seen_at=bindparam("now"))
)


_METRIC = ["run", "key", "step"]


def _lost(held: HeldRun) -> Fenced:
    return Fenced(
        f"attempt {held.attempt} at run {held.run.id} no longer holds it",
        "another process continued the run; this one stops and has changed nothing",
    )


def _number_held(connection: Connection, held: HeldRun) -> int:
    """The number of the run that is held; its worker is recorded as active.

    Raises Fenced unless the attempt is the run's newest and running.
    """
    number = connection.execute(_HELD, {"id": held.run.id, "n": held.attempt}).scalar_one_or_none()
    if number is None:
        raise _lost(held)
    connection.execute(_SEEN, {"run_number": number, "attempt_number": held.attempt, "now": now(connection)})
    return int(number)


def _ended(connection: Connection, held: HeldRun, changes: Mapping[str, Any], why: str) -> bool:
    """Whether the attempt has already ended the run in this way: the server did so, although its answer was lost."""
    ending = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, attempts.c.reason == why)
    ended = select(runs.c.number).join(attempts, ending).where(runs.c.id == held.run.id, runs.c.attempt == held.attempt)
    expected = {"result": None, **changes} if changes["state"] in FINISHED else changes
    unchanged = [runs.c[name].is_not_distinct_from(value) for name, value in expected.items()]
    return connection.execute(ended.where(attempts.c.ended_at.is_not(None), *unchanged)).first() is not None


def _attempt_of(held: HeldRun, number: int) -> ColumnElement[bool]:
    return and_(attempts.c.run == number, attempts.c.n == held.attempt)


def columns_of_result(result: Mapping[str, float]) -> dict[str, float | None]:
    """The columns of runs that repeat numbers of their result."""
    return {column: to_real(result[key]) for key, column in columns.OWN_COLUMNS.items() if key in result}
