"""Recording: what a worker writes about the run that it has claimed, and what people note about runs.

Every write of a worker carries its attempt's number, so that an attempt from which the run was taken writes nothing.
State changes are on the disk when a method returns; metrics and heartbeats survive any killed process, but the last
seconds of them may be lost in a power cut.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from lrurun.errors import LrurunError
from lrurun.ledger.connection import LedgerBase, retried
from lrurun.ledger.database.schema import (
    ENVIRONMENT,
    attempts,
    checkpoints,
    eigenvalues,
    exclusions,
    metric_keys,
    metrics,
    runs,
    tags,
)
from lrurun.ledger.database.sql import among, now, upsert
from lrurun.ledger.queue import code_version
from lrurun.ledger.rows import (
    Document,
    add_event,
    clean,
    load_runs,
    pack_complex,
    pack_result,
    share,
    to_real,
    unpack,
)
from lrurun.ledger.values import FINISHED, SCORE, ClaimedRun, Moment, Run

_ENDS = ("done", "diverged", "failed", "interrupted")


class Fenced(LrurunError):
    """The run was taken from this attempt, or has ended: nothing was written, and the worker must stop."""


class Recording(LedgerBase):
    """The progress and the results of runs, and notes on them."""

    # Of a claimed run

    @retried
    def rewind(self, claim: ClaimedRun, step: int, *, score: str = SCORE) -> None:
        """Start the attempt from `step`: metric rows past it are deleted, and all of them when it is 0.

        `score` is the metric that selects the model, as in `record`.
        """
        with self._writing() as connection:
            number = _held(connection, claim)
            past = delete(metrics).where(metrics.c.run == number)
            connection.execute(past.where(metrics.c.step > step) if step > 0 else past)
            connection.execute(_SET_STEP, {"of": number, "at": step})
            for key, column in _newest(score).items():
                connection.execute(_SET_NEWEST[column], {"of": number, "key": key})
            connection.execute(update(attempts).where(_attempt_of(claim, number)).values(resumed_from=step))

    @retried
    def record(
        self, claim: ClaimedRun, rows: Iterable[tuple[int, str, float]], step: int, *, score: str = SCORE
    ) -> None:
        """Write metric rows (step, key, value), over older ones of the same step and key, and the run's step.

        `score` is the metric that selects the model, as in "val/r2": its newest value is the run's `last_score`.
        """
        given, newest = list(rows), _newest(score)
        with self._writing(durable=False) as connection:
            number = _held(connection, claim)
            names = {key for _, key, _ in given}
            keys = self._key_numbers(connection, names)
            if given:
                add = upsert(connection, metrics)
                connection.execute(
                    add.on_conflict_do_update(index_elements=_METRIC, set_={"value": add.excluded.value}),
                    [
                        {"run": number, "key": keys[key], "step": int(at), "value": to_real(value)}
                        for at, key, value in given
                    ],
                )
            connection.execute(_SET_STEP, {"of": number, "at": int(step)})
            for key in names & newest.keys():
                connection.execute(_SET_NEWEST[newest[key]], {"of": number, "key": key})
        # Only after the commit: before it, a new key may be rolled back.
        self._metric_numbers.update(keys)

    @retried
    def record_heartbeats(self, pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Record a heartbeat of attempts (run id, attempt). Returns those that no longer hold their run."""
        lost = []
        with self._writing(durable=False) as connection:
            time = now(connection)
            for run_id, n in pairs:
                number = (
                    select(runs.c.number)
                    .where(runs.c.id == run_id, runs.c.attempt == n, runs.c.state == "running")
                    .scalar_subquery()
                )
                updated = connection.execute(
                    update(attempts).where(attempts.c.run == number, attempts.c.n == n).values(heartbeat_at=time)
                )
                if not updated.rowcount:
                    lost.append((run_id, n))
        return lost

    @retried
    def begin_checkpoint(self, claim: ClaimedRun, step: int, path: str) -> int:
        """Announce a checkpoint before its first byte is written; returns its id. `path` is below the runs folder."""
        with self._writing() as connection:
            number = _held(connection, claim)
            row = {"run": number, "attempt": claim.attempt, "step": step, "state": "saving", "path": path}
            announced = select(checkpoints.c.id).filter_by(**row)
            if (known := connection.execute(announced).scalars().first()) is not None:
                return int(known)  # of a server that did it although its answer was lost
            return int(connection.execute(insert(checkpoints).values(row).returning(checkpoints.c.id)).scalar_one())

    @retried
    def commit_checkpoint(self, claim: ClaimedRun, checkpoint: int, size: int, sha256: str) -> None:
        """Mark a checkpoint of this attempt as committed: all its `size` bytes are on the disk."""
        with self._writing() as connection:
            number = _held(connection, claim)
            changed = connection.execute(
                update(checkpoints)
                .where(
                    checkpoints.c.id == checkpoint,
                    checkpoints.c.run == number,
                    checkpoints.c.attempt == claim.attempt,
                    or_(checkpoints.c.state == "saving", checkpoints.c.sha256 == sha256),
                )
                .values(state="committed", bytes=size, sha256=sha256)
            )
            if not changed.rowcount:
                raise ValueError(f"checkpoint {checkpoint} is not one that attempt {claim.attempt} is saving")

    @retried
    def delete_checkpoints(self, claim: ClaimedRun, ids: Iterable[int]) -> None:
        """Delete rows of checkpoints of this run, of earlier attempts too. Unknown ids are ignored."""
        with self._writing() as connection:
            number = _held(connection, claim)
            connection.execute(delete(checkpoints).where(checkpoints.c.run == number, among(checkpoints.c.id, ids)))

    @retried
    def record_eigenvalues(self, claim: ClaimedRun, moment: Moment, layers: Sequence[Sequence[complex] | None]) -> None:
        """Write the eigenvalues of each recurrent layer at a moment, over those of an earlier attempt.

        None stands for a layer whose recurrence has no eigenvalues; NaN and infinities are kept.
        """
        table = eigenvalues
        with self._writing() as connection:
            number = _held(connection, claim)
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
        claim: ClaimedRun,
        *,
        parameters: int | None = None,
        data_sha256: str | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """Add what the worker found out to the run, and `environment` to that of its attempt. None changes nothing."""
        given = {"parameters": parameters, "data_sha256": data_sha256}
        found = {name: value for name, value in given.items() if value is not None}
        with self._writing() as connection:
            number = _held(connection, claim)
            if found:
                connection.execute(update(runs).where(runs.c.number == number).values(found))
            if environment:
                this = _attempt_of(claim, number)
                known = connection.execute(select(ENVIRONMENT).select_from(attempts).where(this)).scalar_one()
                merged = {**unpack(known), **environment}
                document = Document.of(merged)
                number_of = share(connection, [document])
                connection.execute(
                    update(attempts).where(this).values(environment_id=number_of[document], code=code_version(merged))
                )

    @retried
    def finish(
        self,
        claim: ClaimedRun,
        state: str,
        *,
        result: Mapping[str, float] | None = None,
        error: str | None = None,
        reason: str | None = None,
        step: int | None = None,
    ) -> None:
        """End the attempt and the run: "done", "diverged", "failed" or "interrupted".

        `reason` is why the attempt ended, the state by default; `error` is the traceback of a failed run. Results may
        contain NaN and infinities. A run that is done or has diverged never changes again.
        """
        if state not in _ENDS:
            raise ValueError(f"a run ends as one of {', '.join(_ENDS)}, not {state!r}")
        changes: dict[str, Any] = {"state": state, "error": clean(error)}
        if result is not None:
            changes["result"] = pack_result(result)
            changes |= columns_of_result(result)
        if step is not None:
            changes["step"] = step
        why = clean(reason) or state
        with self._writing() as connection:
            if self._database.may_be_away and _ended(connection, claim, changes, why):
                return
            number = _held(connection, claim)
            time = now(connection)
            if state != "interrupted":
                changes["finished_at"] = time
            connection.execute(update(runs).where(runs.c.number == number).values(changes))
            connection.execute(
                update(attempts).where(_attempt_of(claim, number)).values(ended_at=time, outcome=state, reason=why)
            )
            # The event keeps the traceback: the next attempt overwrites the run's error.
            add_event(connection, time, state, error or why, run=number, attempt=claim.attempt)
        if state in FINISHED:
            with contextlib.suppress(LrurunError):  # as on a full disk: the log has the run
                self._database.write_back()

    def _key_numbers(self, connection: Connection, names: set[str]) -> dict[str, int]:
        known = {name: self._metric_numbers[name] for name in names if name in self._metric_numbers}
        unknown = sorted(names - known.keys())
        if unknown:
            connection.execute(
                upsert(connection, metric_keys).on_conflict_do_nothing(index_elements=[metric_keys.c.name]),
                [{"name": name} for name in unknown],
            )
            for key, name in connection.execute(
                select(metric_keys.c.id, metric_keys.c.name).where(among(metric_keys.c.name, unknown))
            ):
                known[name] = key
        return known

    # Of any run

    @retried
    def event(
        self,
        kind: str,
        text: str,
        payload: Struct | None = None,
        *,
        run: str | None = None,
        attempt: int | None = None,
        ladder: str | None = None,
    ) -> int:
        """Record that something happened, to a run (id), an attempt of it, or a ladder (key). Returns its number.

        `text` is for people; what programs need to know is in `payload`.

        The ledger itself writes "running", "done", "diverged", "failed" and "interrupted".
        """
        with self._writing(durable=False) as connection:
            of_run = None if run is None else self._run_number(connection, run)
            of_ladder = None if ladder is None else self._ladder_number(connection, ladder)
            return add_event(
                connection, now(connection), kind, text, payload, run=of_run, attempt=attempt, ladder=of_ladder
            )

    @retried
    def drop_checkpoints(self, ids: Iterable[int]) -> list[int]:
        """Delete rows of checkpoints, except those of running runs. Returns the ids of the deleted ones."""
        idle = select(runs.c.number).where(runs.c.state != "running")
        with self._writing() as connection:
            deleted = connection.execute(
                delete(checkpoints)
                .where(among(checkpoints.c.id, ids), checkpoints.c.run.in_(idle))
                .returning(checkpoints.c.id)
            )
            return sorted(deleted.scalars())

    @retried
    def tag(self, run_id: str, names: Iterable[str], *, remove: bool = False) -> Run:
        """Add tags to a run, or remove them; tags that it already has, or does not have, are ignored."""
        with self._writing() as connection:
            number = self._run_number(connection, run_id)
            rows = [{"run": number, "name": name} for name in names]
            if remove:
                removed = [row["name"] for row in rows]
                connection.execute(delete(tags).where(tags.c.run == number, among(tags.c.name, removed)))
            elif rows:
                connection.execute(upsert(connection, tags).on_conflict_do_nothing(), rows)
            return load_runs(connection, runs.c.number == number)[0]

    @retried
    def annotate(self, run_id: str, text: str) -> None:
        """Write a note on a run: an event of kind "note"."""
        with self._writing() as connection:
            add_event(connection, now(connection), "note", text, run=self._run_number(connection, run_id))

    @retried
    def exclude(self, run_id: str, why: str | None) -> Run:
        """Exclude a run from every report, or include it again if `why` is None; each change is an event."""
        with self._writing() as connection:
            time = now(connection)
            number = self._run_number(connection, run_id)
            before = load_runs(connection, runs.c.number == number)[0]
            if why is None:
                connection.execute(delete(exclusions).where(exclusions.c.run == number))
            else:
                row = {"run": number, "why": clean(why), "time": time}
                connection.execute(
                    upsert(connection, exclusions).values(row).on_conflict_do_update(index_elements=["run"], set_=row)
                )
            after = load_runs(connection, runs.c.number == number)[0]
            if after != before:
                add_event(connection, time, "included" if why is None else "excluded", why or "", run=number)
            return after


def _newest(score: str) -> dict[str, str]:
    """Metric -> the column of runs that holds the value of its newest row, so that no reader has to search for it."""
    return {"train/loss": "last_loss", score: "last_score", "machine/steps_per_second": "last_speed"}


_OF_RESULT = {
    "val_accuracy": "val/accuracy",
    "test_accuracy": "test/accuracy",
    "steps_per_second": "machine/steps_per_second",
}
"""Column of runs -> the metric in their result that it holds, by which lists are sorted and filtered."""


def columns_of_result(result: Mapping[str, float]) -> dict[str, float | None]:
    """The columns of runs that repeat numbers of their result."""
    return {column: to_real(result[key]) for column, key in _OF_RESULT.items() if key in result}


_SET_STEP = update(runs).where(runs.c.number == bindparam("of")).values(step=bindparam("at"))


def _newest_value() -> Any:
    curve = select(metrics.c.value).join(metric_keys, metric_keys.c.id == metrics.c.key)
    mine = curve.where(metrics.c.run == bindparam("of"), metric_keys.c.name == bindparam("key"))
    return mine.order_by(metrics.c.step.desc()).limit(1).scalar_subquery()


_SET_NEWEST = {
    column: update(runs).where(runs.c.number == bindparam("of")).values({column: _newest_value()})
    for column in _newest(SCORE).values()
}


_HELD = select(runs.c.number).where(
    runs.c.id == bindparam("id"), runs.c.attempt == bindparam("n"), runs.c.state == "running"
)
# On a server nobody takes the run until the transaction ends.
_HELD = _HELD.with_for_update(key_share=True)

_SEEN = (
    update(attempts)
    .where(attempts.c.run == bindparam("of"), attempts.c.n == bindparam("number"))
    .values(seen_at=bindparam("now"))
)

_METRIC = ["run", "key", "step"]


def _held(connection: Connection, claim: ClaimedRun) -> int:
    """The number of the claimed run; its worker is recorded as active.

    Raises Fenced unless the attempt is the run's newest and running.
    """
    number = connection.execute(_HELD, {"id": claim.run.id, "n": claim.attempt}).scalar_one_or_none()
    if number is None:
        raise Fenced(
            f"attempt {claim.attempt} at run {claim.run.id} no longer holds it",
            "another process continued the run; this one stops and has changed nothing",
        )
    connection.execute(_SEEN, {"of": number, "number": claim.attempt, "now": now(connection)})
    return int(number)


def _ended(connection: Connection, claim: ClaimedRun, changes: Mapping[str, Any], why: str) -> bool:
    """Whether this very attempt has ended the run in this way: a server did it although its answer was lost."""
    this = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, attempts.c.reason == why)
    ended = select(runs.c.number).join(attempts, this).where(runs.c.id == claim.run.id, runs.c.attempt == claim.attempt)
    wanted = {"result": None, **changes} if changes["state"] in FINISHED else changes
    same = [runs.c[name].is_not_distinct_from(value) for name, value in wanted.items()]
    return connection.execute(ended.where(attempts.c.ended_at.is_not(None), *same)).first() is not None


def _attempt_of(claim: ClaimedRun, number: int) -> ColumnElement[bool]:
    return and_(attempts.c.run == number, attempts.c.n == claim.attempt)
