"""The ledger: what was requested, what is running, and the results.

`Ledger` has all that is done with one: the queue (runs are requested, held by a worker, and taken back from a
process that has exited), recording (what a worker writes about the run that it holds, and what people note about
runs), reading, and records for the runs folder. The functions after it are parts of these, in the same order. Every
method is one short transaction.

Every write of a worker carries its attempt's number, so that an attempt from which the run was taken writes nothing.
State changes are on the disk when a method returns; metrics and heartbeats survive any killed process, but the last
seconds of them may be lost in a power cut.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import typing
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal

import msgspec
from msgspec import Struct, structs
from sqlalchemy import (
    Connection,
    Integer,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import LADDER_KINDS, Config, FixedExecution, RunKind
from lrurun.errors import LaterVersionError, LedgerError, LrurunError, NotFoundError, UsageError, nearest, plural
from lrurun.ledger import checks, columns, conditions, progress, views
from lrurun.ledger import database as databases
from lrurun.ledger import owner as owners
from lrurun.ledger.database import TIMEOUT, Database
from lrurun.ledger.database.schema import (
    ENVIRONMENT,
    EXECUTION,
    attempts,
    checkpoints,
    eigenvalues,
    events,
    exclusions,
    item_results,
    ladder_runs,
    ladders,
    metric_keys,
    metrics,
    runs,
    tags,
    test_sets,
)
from lrurun.ledger.database.sql import (
    ENQUEUE,
    among,
    among_given,
    json_names,
    json_number,
    lock,
    now,
    server_age,
    upsert,
)
from lrurun.ledger.records import (
    LADDERS_FOLDER,
    RUN_FILE,
    CurveRecord,
    ItemsRecord,
    LadderRecord,
    PlaceRecord,
    RunRecord,
    RunRow,
    TestSetRecord,
)
from lrurun.ledger.rows import (
    Document,
    add_event,
    build,
    build_attempt,
    build_event,
    clean,
    from_real,
    ladder_instance,
    load_runs,
    numbered,
    pack,
    pack_complex,
    pack_result,
    read_shared,
    recorded_config,
    share,
    to_real,
    unpack,
    unpack_complex,
    unpack_numbers,
)
from lrurun.ledger.values import (
    FINISHED,
    SCORE,
    Attempt,
    Checkpoint,
    Event,
    GroupMean,
    HeldRun,
    LadderInstance,
    Moment,
    Outcome,
    Owner,
    RecordedCurve,
    RemainingWork,
    Run,
    StateSummary,
)
from lrurun.paths import ledger_place
from lrurun.server import Place

if TYPE_CHECKING:
    from lrurun.config.runs import PlannedRun
    from lrurun.items import ItemResults, TestSet
    from lrurun.ledger.filters import Condition, ValueKind

HEARTBEAT_TIMEOUT = 120.0
"""Seconds without a heartbeat after which an owner on another machine counts as exited."""

RETURN_SECONDS = 30.0
"""Seconds that owners on other machines have for a heartbeat after a server was away."""

OWNER_EXITED = "interrupted: owner gone"
"""The reason of an attempt that `reap` ended."""

_ENDS = ("done", "diverged", "failed", "interrupted")

BATCH = 1000
"""How many runs of a long list are in memory at a time."""

CURVES_AT_ONCE = 100
"""How many runs' curves are read in one transaction."""

P = typing.ParamSpec("P")
T = typing.TypeVar("T")


class Fenced(LrurunError):
    """The run was taken from this attempt, or has ended: nothing was written, and the worker must stop."""


def retried(method: Callable[Concatenate[Ledger, P], T]) -> Callable[Concatenate[Ledger, P], T]:
    """A method of a ledger that is called again when a server, which may have restarted, did not do its transaction.

    Whether the server did it is unknown if the connection broke while it committed, so that doing it twice must be the
    same as doing it once.
    """

    @functools.wraps(method)
    def call(self: Ledger, *arguments: P.args, **options: P.kwargs) -> T:
        if not self.database.may_be_away:
            return method(self, *arguments, **options)
        # A second call would find an iterator at its end.
        lists = [list(value) if isinstance(value, Iterator) else value for value in arguments]
        named = {name: list(value) if isinstance(value, Iterator) else value for name, value in options.items()}
        return self.database.retry(lambda: method(self, *lists, **named))  # type: ignore[arg-type]

    return call  # type: ignore[return-value]


class Ledger:
    """A ledger that is open, for writing (`open`) or for reading (`read`). Threads may share it. Values that it returns
    are frozen."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._metric_numbers: dict[str, int] = {}
        """Name -> number of the metrics that were written."""

    @property
    def path(self) -> Place:
        """The file or the server."""
        return self.database.place

    @property
    def exists(self) -> bool:
        """Whether there was a ledger when it was opened; one that there is not has no rows."""
        return not self.database.is_missing

    @property
    def read_only(self) -> bool:
        return self.database.read_only

    @property
    def note(self) -> str | None:
        """A sentence for the user about how the ledger had to be opened, or None."""
        return self.database.note

    @property
    def waiting(self) -> Callable[[float], None] | None:
        """Called about every second while another process keeps this one from writing, or the server cannot be
        reached or does not answer, with the seconds waited so far; what it raises ends the wait."""
        return self.database.waiting

    @waiting.setter
    def waiting(self, call: Callable[[float], None] | None) -> None:
        self.database.waiting = call

    @classmethod
    def open(cls, path: str | Place, *, create: bool = True, timeout: float = TIMEOUT) -> typing.Self:
        """Open a ledger for writing; it is created or migrated if necessary.

        `timeout` is how many seconds each write waits for other processes, or for a server that restarts. Raises
        NotFoundError if there is no ledger and `create` is off, LrurunError if it cannot be written, LedgerError if it
        is busy, cannot be reached, is newer than this version, or not a ledger.
        """
        place = ledger_place(path) if isinstance(path, str) else path
        return cls(databases.implementation(place).open(place, create=create, timeout=timeout))

    @classmethod
    def read(cls, path: str | Place, *, timeout: float = TIMEOUT) -> typing.Self:
        """Open a ledger for reading; where there is none, one without rows. Never creates one and never changes a row.

        Raises LedgerError for a ledger of another version, for a file that is not a ledger and for a server that
        cannot be reached, LrurunError if it cannot be read.
        """
        place = ledger_place(path) if isinstance(path, str) else path
        database = databases.implementation(place).read(place, timeout=timeout)
        if database is None:
            from lrurun.ledger.database.missing import Missing

            database = Missing(place)
        return cls(database)

    def close(self) -> None:
        """Close the ledger. Closing twice is allowed."""
        self.database.close()

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reading(self) -> AbstractContextManager[Connection]:
        """A transaction that reads."""
        return self.database.reading()

    def _writing(self, *, durable: bool = True) -> AbstractContextManager[Connection]:
        """A transaction that writes. What is not `durable` survives a killed process, but maybe not a power cut."""
        if self.read_only:
            raise LrurunError(f"the ledger {self.path} was opened for reading only")
        return self.database.writing(durable=durable)

    def _run_number(self, connection: Connection, run_id: str) -> int:
        number = connection.execute(_RUN_NUMBER, {"id": run_id}).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no run {run_id!r} in {self.path}", "see `lrurun runs`")
        return int(number)

    def _ladder_number(self, connection: Connection, key: str) -> int:
        number = connection.execute(_LADDER_NUMBER, {"key": key}).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no ladder instance {key!r} in {self.path}", "see `lrurun status`")
        return int(number)

    # The queue

    @retried
    def add_ladder(
        self,
        name: str,
        task: str,
        profile: str | None,
        spec: InstanceSpec,
        short_name: str = "",
        *,
        kind: RunKind = "training",
        chosen: str | None = None,
    ) -> LadderInstance:
        """The ladder instance of these values; it is inserted if it is new.

        A new instance gets the short name, with -2, -3 if others have it; with `chosen`, a new or known one gets that.

        Raises:
            UsageError: another instance has the `chosen` name.
        """
        table = msgspec.to_builtins(spec)
        values = json.dumps([name, task, profile, table], sort_keys=True, separators=(",", ":"), allow_nan=False)
        key = hashlib.sha256(values.encode()).hexdigest()[:12]
        row: dict[str, Any] = {"key": key, "name": name, "task": task, "profile": profile, "kind": kind}
        query = select(ladders).where(ladders.c.key == key)
        with self._writing() as connection:
            row |= {"spec": pack(table), "created_at": now(connection), "user": owners.user()}
            if chosen is not None:
                lock(connection, ENQUEUE)  # of two commands that choose one name at once, the second is refused
                same_name = select(ladders).where(ladders.c.short_name == chosen, ladders.c.key != key)
                if (taken := connection.execute(same_name).one_or_none()) is not None:
                    title = f"ladder {taken.name} on {taken.task}" + f", profile {taken.profile}" * bool(taken.profile)
                    raise UsageError(
                        f"--name {chosen}: is the name of another instance: {title}",
                        f"choose another name; lrurun report --instance {chosen} shows that one",
                    )
                connection.execute(update(ladders).where(ladders.c.key == key).values(short_name=chosen))
            for free_name in numbered(chosen or short_name or task):
                connection.execute(
                    upsert(connection, ladders).values(**row, short_name=free_name).on_conflict_do_nothing()
                )
                if (instance := connection.execute(query).one_or_none()) is not None:
                    return ladder_instance(instance)
        raise AssertionError("some number is free")

    def enqueue(self, ladder_key: str, planned: Sequence[PlannedRun], *, fresh: bool = False) -> list[Run]:
        """Make the planned runs the runs of a ladder, and return them: one run per fingerprint, in the same order.

        Existing runs are used as they are, whatever their state and whichever ladder added them; others are queued.
        Unfinished runs get the planned execution, except what their first attempt has fixed.
        `fresh` starts over: existing runs are superseded and a next generation is queued, for every ladder that has
        them, except runs that are still queued. Raises LrurunError if `fresh` applies to a running run.
        """
        return self._enqueue(ladder_key, planned, fresh, {})

    @retried
    def _enqueue(self, ladder_key: str, planned: Sequence[PlannedRun], fresh: bool, tried: dict[str, int]) -> list[Run]:
        """`tried` gets the newest generations (0: none) before the first try: later ones are what was asked for."""
        first: dict[str, PlannedRun] = {}
        for run in planned:
            first.setdefault(run.fingerprint, run)
        with self._writing() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            lock(connection, ENQUEUE)
            existing = _newest_generations(connection, first)
            for fingerprint in first:
                tried.setdefault(fingerprint, existing[fingerprint].generation if fingerprint in existing else 0)
            # In the order of the request: their new places get numbers, and the queue's order, from it.
            old = {f: existing[f] for f in first if f in existing and existing[f].generation == tried[f]}
            superseded = {f: row for f, row in old.items() if fresh and row.state != "queued"}
            _refuse_running(superseded.values())
            new = [run for f, run in first.items() if f not in existing or f in superseded]
            if new:
                _add_runs(connection, new, existing)
            for fingerprint, row in existing.items():
                if fingerprint not in superseded:
                    _set_execution(connection, row, first[fingerprint])
            numbers = {f: row.number for f, row in _newest_generations(connection, first).items()}
            for fingerprint, row in superseded.items():
                _supersede(connection, row.number, numbers[fingerprint])
            places = [
                {
                    "ladder": ladder,
                    "run": numbers[run.fingerprint],
                    "rung": run.rung,
                    "stage": run.stage,
                    "position": run.position,
                }
                for run in planned
            ]
            if places:
                _add_places(connection, places)
            loaded = {run.fingerprint: run for run in load_runs(connection, among(runs.c.number, numbers.values()))}
            return [loaded[fingerprint] for fingerprint in first]

    @retried
    def requeue(self, run_ids: Iterable[str]) -> int:
        """Queue interrupted and failed runs again; runs in other states stay as they are. Returns how many changed."""
        with self._writing() as connection:
            return connection.execute(
                update(runs)
                .where(among(runs.c.id, run_ids), runs.c.state.in_(["interrupted", "failed"]), runs.c.superseded == 0)
                .values(state="queued", error=None, finished_at=None)
            ).rowcount

    @retried
    def unlink(self, ladder_key: str, run_ids: Iterable[str], rung: str, stage: str) -> int:
        """Remove runs from one place of a ladder; the runs themselves stay. Returns how many were removed."""
        with self._writing() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            chosen = select(runs.c.number).where(among(runs.c.id, run_ids))
            place = ladder_runs.c
            return connection.execute(
                delete(ladder_runs).where(
                    place.ladder == ladder, place.rung == rung, place.stage == stage, place.run.in_(chosen)
                )
            ).rowcount

    def hold(
        self,
        ladder_key: str,
        owner: Owner,
        *,
        rungs: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        threads: int | None = None,
        devices: int | None = None,
        compiled: Iterable[str] = (),
        environment: Mapping[str, Any] | None = None,
    ) -> HeldRun | None:
        """Give a queued run of a ladder to a worker, which holds it in its next attempt; None if there is none.

        So that no program is compiled twice, it is a run of a rung in `compiled`, whose programs the worker has; if
        there is none, of a rung that no process is running; else any. Of several, the first in the order of the ladder.

        `rungs`, `seeds`, `threads` and `devices` (of the run's execution) limit which runs may be held; tuning runs
        have a seed of their own, which `seeds` does not limit. `environment` must be JSON; its "code", a text or a
        table of "lrurun", "commit" and "dirty", is the code version shown with the run, its "numerics" the numerics
        version.

        Raises LaterVersionError if the run began with a later numerics version.
        """
        given: dict[str, Any] = {"rungs": rungs, "seeds": seeds, "threads": threads, "devices": devices}
        given = {name: value for name, value in given.items() if value is not None}
        values = {name: value if isinstance(value, int) else list(value) for name, value in given.items()}
        values["compiled"] = list(compiled)
        # Built before the transaction, so that other processes wait for less.
        statement = _holding(frozenset(given))
        given_values = {f"given_{name}": value for name, value in values.items()}
        return self._hold(ladder_key, statement, given_values, owner, dict(environment or {}), [])

    @retried
    def _hold(
        self,
        ladder_key: str,
        statement: Any,
        given: dict[str, Any],
        owner: Owner,
        environment: dict[str, Any],
        tried: list[float],
    ) -> HeldRun | None:
        """Hold a run by the statement and the values `given` to it; `tried` has the times of the tries before, and gets
        that of this."""
        with self._writing() as connection:
            values = {"ladder_number": self._ladder_number(connection, ladder_key), **given}
            if (earlier := _already_held(connection, owner, tried)) is not None:
                return earlier
            taken = connection.execute(statement, values).one_or_none()
            if taken is None:
                return None
            if taken.attempt > 1:
                previous = and_(attempts.c.run == taken.number, attempts.c.n == taken.attempt - 1)
                newest = select(attempts, ENVIRONMENT.label("environment"), runs.c.id).join(runs).where(previous)
                for row in connection.execute(newest):
                    refuse_later(build_attempt(row.id, row), environment.get("numerics", 1))
            time = now(connection)
            tried.append(time)
            _open_attempt(connection, taken.number, taken.attempt, owner, environment, time)
            run = load_runs(connection, runs.c.number == taken.number)[0]
            text = f"attempt {taken.attempt} on {owner.host}, process {owner.pid}"
            add_event(connection, time, "running", text, run=taken.number, attempt=taken.attempt)
            return HeldRun(run=run, attempt=taken.attempt)

    @retried
    def reap(
        self, this_process: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = HEARTBEAT_TIMEOUT
    ) -> list[Run]:
        """Mark running runs whose owner has exited as interrupted, and return them.

        An owner on this host, boot and pid namespace is looked up by pid and start time, and its heartbeat is ignored.
        In a file, an owner on this host and another boot has exited; on a server it may be on another machine of the
        same name. Any other has exited after `timeout` seconds without a heartbeat; when a server has just come back,
        it first gets the time to write one.
        """
        if not self.has_abandoned(this_process, alive, timeout=timeout):
            return []
        with self._writing() as connection:
            time = now(connection)
            rows = self._abandoned_runs(connection, this_process, alive, timeout, locked=True)
            for row in rows:
                connection.execute(update(runs).where(runs.c.number == row.number).values(state="interrupted"))
                seen = max(row.heartbeat_at, row.seen_at)  # its last sign of life, which may be hours ago
                connection.execute(
                    update(attempts)
                    .where(attempts.c.run == row.number, attempts.c.n == row.n)
                    .values(ended_at=seen, outcome="exited", reason=OWNER_EXITED)
                )
                text = f"owner exited: process {row.pid} on {row.host}"
                add_event(connection, time, "interrupted", text, run=row.number, attempt=row.n)
            return load_runs(connection, among(runs.c.number, [row.number for row in rows]))

    @retried
    def has_abandoned(
        self, this_process: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = HEARTBEAT_TIMEOUT
    ) -> bool:
        """Whether `reap` would find a run. Writes nothing, so that readers may ask too."""
        with self._reading() as connection:
            return bool(self._abandoned_runs(connection, this_process, alive, timeout))

    def _abandoned_runs(
        self,
        connection: Connection,
        this_process: Owner,
        alive: Callable[[Owner], bool] | None,
        timeout: float,
        *,
        locked: bool = False,
    ) -> list[Row[Any]]:
        patience = math.inf if monotonic() - self.database.away_at < RETURN_SECONDS else timeout
        return _abandoned(
            connection, this_process, alive or owners.alive, patience, shared=self.database.is_shared, locked=locked
        )

    # Recording: a held run

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
        """Write the eigenvalues of each recurrent layer at a moment, over those of an earlier attempt.

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
        """Add what the worker found out to the run, and `environment` to that of its attempt. None changes nothing."""
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
        contain NaN and infinities. A run that is done or has diverged never changes again. `outcome` is that of the
        attempt, where it is not the state. `items` are the per-item results of a run that is done, by the
        names of scores.
        """
        if state not in _ENDS:
            raise ValueError(f"a run ends as one of {', '.join(_ENDS)}, not {state!r}")
        if items and state != "done":
            raise ValueError(f"only a run that is done has per-item results, not one that is {state}")
        item_records = _packed_items(items)
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
            _write_items(connection, number, item_records)
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

    def _key_numbers(self, connection: Connection, names: set[str]) -> dict[str, int]:
        numbers = {name: self._metric_numbers[name] for name in names if name in self._metric_numbers}
        unknown = sorted(names - numbers.keys())
        if unknown:
            connection.execute(
                upsert(connection, metric_keys).on_conflict_do_nothing(index_elements=[metric_keys.c.name]),
                [{"name": name} for name in unknown],
            )
            for key, name in connection.execute(
                select(metric_keys.c.id, metric_keys.c.name).where(among(metric_keys.c.name, unknown))
            ):
                numbers[name] = key
        return numbers

    # Recording: any run

    @retried
    def event(
        self,
        kind: str,
        text: str,
        payload: Struct | Mapping[str, Any] | None = None,
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
            run_number = None if run is None else self._run_number(connection, run)
            ladder_number = None if ladder is None else self._ladder_number(connection, ladder)
            return add_event(
                connection, now(connection), kind, text, payload, run=run_number, attempt=attempt, ladder=ladder_number
            )

    @retried
    def record_items(self, run_id: str, items: Mapping[str, ItemResults]) -> list[str]:
        """Add the per-item results of a run that is done; those that it has stay as they are.

        Returns the names of the scores whose results were added.

        Raises:
            ValueError: the run is not done.
        """
        item_records = _packed_items(items)
        with self._writing() as connection:
            number = self._run_number(connection, run_id)
            if connection.execute(select(runs.c.state).where(runs.c.number == number)).scalar_one() != "done":
                raise ValueError(f"only a run that is done has per-item results: run {run_id} is not")
            added = _write_items(connection, number, item_records)
            if added:
                text = f"per-item results added: {', '.join(added)}"
                add_event(connection, now(connection), "items", text, run=number)
            return added

    @retried
    def drop_items(self, run_ids: Iterable[str]) -> int:
        """Remove the per-item results of runs; that they were removed, and from which test set, is kept.

        Returns how many bytes they had.
        """
        table = item_results
        chosen = table.c.run.in_(select(runs.c.number).where(among(runs.c.id, run_ids)))
        having = and_(chosen, table.c.sums.is_not(None))
        with self._writing() as connection:
            sizes = select(table.c.run, table.c.result, func.length(table.c.sums)).where(having)
            removed = connection.execute(sizes.order_by(table.c.run, table.c.result)).all()
            connection.execute(update(table).where(having).values(sums=None))
            time = now(connection)
            for number, rows in groupby(removed, key=itemgetter(0)):
                text = f"per-item results removed: {', '.join(row.result for row in rows)}"
                add_event(connection, time, "items", text, run=number)
        return sum(size for *_, size in removed)

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
    def mark(
        self,
        run_ids: Iterable[str],
        *,
        tag: Iterable[str] = (),
        untag: Iterable[str] = (),
        note: str | None = None,
        exclude: str | None = None,
        include: bool = False,
    ) -> list[Run]:
        """Record what people say about runs, for all of them or for none. Returns the runs as they are then.

        Args:
            run_ids: of the runs.
            tag: tags to add; those that a run already has stay. An event has all tags, if they have changed.
            untag: tags to remove; those that a run does not have are ignored.
            note: an event of each run, unless its newest event is the same note.
            exclude: exclude the runs from every report, for this reason; an event, unless it changes nothing.
            include: include them again; an event too.
        """
        with self._writing() as connection:
            time = now(connection)
            numbers = [self._run_number(connection, run_id) for run_id in run_ids]
            new_events: list[tuple[int, str, str]] = []
            for number in numbers:
                [run] = load_runs(connection, runs.c.number == number, brief=True)
                before = run.excluded
                for name in tag:
                    added = {"run": number, "name": name}
                    connection.execute(upsert(connection, tags).values(added).on_conflict_do_nothing())
                connection.execute(delete(tags).where(tags.c.run == number, among(tags.c.name, untag)))
                tag_names = select(tags.c.name).where(tags.c.run == number).order_by(tags.c.name)
                if (changed := connection.execute(tag_names).scalars().all()) != list(run.tags):
                    new_events.append((number, "tags", ", ".join(changed) or "none"))
                if exclude is not None and clean(exclude) != before:
                    row = {"run": number, "why": clean(exclude), "time": time}
                    statement = upsert(connection, exclusions).values(row)
                    connection.execute(statement.on_conflict_do_update(index_elements=["run"], set_=row))
                    new_events.append((number, "excluded", exclude))
                if include and before is not None:
                    connection.execute(delete(exclusions).where(exclusions.c.run == number))
                    new_events.append((number, "included", ""))
                newest = select(events.c.kind, events.c.text).where(events.c.run == number).order_by(events.c.id.desc())
                if note is not None and connection.execute(newest.limit(1)).first() != ("note", clean(note)):
                    new_events.append((number, "note", note))
            for number, kind, text in new_events:  # the last writes of the transaction
                add_event(connection, time, kind, text, run=number)
            return [load_runs(connection, runs.c.number == number)[0] for number in numbers]

    # Reading

    @retried
    def ladders(
        self, name: str | None = None, task: str | None = None, *, user: str | None = None
    ) -> list[LadderInstance]:
        """The ladder instances, oldest first; with `name`, `task` or `user` only those of a ladder, task or user."""
        query = select(ladders).order_by(ladders.c.id)
        if name is not None:
            query = query.where(ladders.c.name == name)
        if task is not None:
            query = query.where(ladders.c.task == task)
        if user is not None:
            query = query.where(ladders.c.user == user)
        with self._reading() as connection:
            return [ladder_instance(row) for row in connection.execute(query)]

    @retried
    def latest_ladder(self) -> LadderInstance | None:
        """The ladder instance of which a run was begun last; studies do not count."""
        query = (
            select(ladders)
            .join(ladder_runs, ladder_runs.c.ladder == ladders.c.id)
            .join(attempts, attempts.c.run == ladder_runs.c.run)
            .where(ladders.c.kind.in_(LADDER_KINDS))
            .order_by(attempts.c.started_at.desc(), ladders.c.id.desc())
        )
        with self._reading() as connection:
            row = connection.execute(query.limit(1)).one_or_none()
            return None if row is None else ladder_instance(row)

    @retried
    def latest_run(self) -> str | None:
        """The id of the run that was begun last."""
        query = select(runs.c.id).join(attempts, attempts.c.run == runs.c.number).order_by(attempts.c.started_at.desc())
        with self._reading() as connection:
            return connection.execute(query.limit(1)).scalar_one_or_none()

    @retried
    def ladder(self, key: str) -> LadderInstance:
        """The ladder instance with this short name or key, or the only one whose key begins with it. Raises
        NotFoundError."""
        with self._reading() as connection:
            row = connection.execute(select(ladders).where(ladders.c.short_name == key.strip())).one_or_none()
            if row is not None:
                return ladder_instance(row)
            full_key = _by_prefix(connection, select(ladders), ladders.c.key, key, "ladder instance")
            return ladder_instance(connection.execute(select(ladders).where(ladders.c.key == full_key)).one())

    @retried
    def runs(
        self,
        ladder_key: str | None = None,
        limit: int | None = None,
        superseded: bool = False,
        ids: Iterable[str] | None = None,
        *,
        fingerprints: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        brief: bool = False,
    ) -> list[Run]:
        """Runs with all their memberships, newest first; `superseded` includes those that were started over.

        `ids` and `fingerprints` are exact; unknown ones are ignored. `brief` leaves `settings` None and `code` empty,
        which are most of the work for thousands of runs.
        """
        with self._reading() as connection:
            clauses: list[ColumnElement[bool]] = [] if superseded else [runs.c.superseded == 0]
            if ladder_key is not None:
                ladder = self._ladder_number(connection, ladder_key)
                clauses.append(runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)))
            if ids is not None:
                clauses.append(among(runs.c.id, ids))
            if fingerprints is not None:
                clauses.append(among(runs.c.fingerprint, fingerprints))
            if states is not None:
                clauses.append(runs.c.state.in_(list(states)))
            return load_runs(connection, and_(true(), *clauses), limit, brief=brief)

    @retried
    def run_ids(
        self,
        condition: Condition | None = None,
        sort: str | None = None,
        *,
        descending: bool = False,
        ladder: str | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """The ids of runs, superseded ones included: those of a ladder (a name) that meet a condition, in an order."""
        query = conditions.in_order(select(runs.c.id), sort, descending=descending, ladder=ladder)
        if condition is not None:
            query = query.where(conditions.where(condition))
        if ladder is not None:
            query = query.where(columns.in_ladder(ladder))
        with self._reading() as connection:
            return list(connection.execute(query.limit(limit)).scalars())

    def each(self, ids: Sequence[str], *, brief: bool = True) -> Iterator[Run]:
        """The runs with these ids, in this order; `brief` as in `runs`.

        They are read in batches, each in a transaction of its own: a pager that shows the first page holds no lock.
        """
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            by_id = {run.id: run for run in self.runs(ids=batch, superseded=True, brief=brief)}
            yield from (by_id[run_id] for run_id in batch if run_id in by_id)

    @retried
    def count_runs(self, ladder: str | None = None, *, superseded: bool = True) -> int:
        """The number of runs, or of those in a ladder (a name); `superseded` as in `runs`."""
        query = select(func.count()).select_from(runs)
        if ladder is not None:
            query = query.where(columns.in_ladder(ladder))
        if not superseded:
            query = query.where(runs.c.superseded == 0)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    @retried
    def names_of(self, kind: Literal["ladder", "rung", "task"]) -> list[str]:
        """The names of the ladders, rungs or tasks that have runs."""
        column = {"ladder": ladders.c.name, "rung": ladder_runs.c.rung, "task": runs.c.task}[kind]
        query = select(column).distinct().order_by(column)
        if kind == "ladder":
            query = query.where(exists().where(ladder_runs.c.ladder == ladders.c.id))
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    @retried
    def result_names(self) -> list[str]:
        """The names of all metrics in the results of runs."""
        entries = json_names(runs.c.result).table_valued("key")
        query = select(entries.c.key).select_from(runs).join(entries, true()).distinct().order_by(entries.c.key)
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    @retried
    def columns_of(
        self, names: Sequence[str], ids: Collection[str] | None = None, ladder: str | None = None
    ) -> dict[str, tuple[Any, ...]]:
        """Run id -> its values of these columns, see `lrurun.ledger.columns.rows`."""
        with self._reading() as connection:
            return columns.rows(connection, names, ids, ladder)

    @retried
    def groups_of(
        self,
        by: Sequence[str],
        metric_of: Mapping[str, str],
        ids: Collection[str] | None = None,
        ladder: str | None = None,
    ) -> list[GroupMean]:
        """Means of the runs with equal values of `by`, see `lrurun.ledger.columns.groups`."""
        with self._reading() as connection:
            return columns.groups(connection, by, metric_of, ids, ladder)

    @retried
    def newest_results(self) -> dict[str, list[str]]:
        """Task -> the names in its newest result; an empty list if no run has a result."""
        newest = select(func.max(runs.c.number)).where(runs.c.result.is_not(None)).group_by(runs.c.task)
        with self._reading() as connection:
            tasks = connection.execute(select(runs.c.task).distinct()).scalars()
            results = connection.execute(select(runs.c.task, runs.c.result).where(runs.c.number.in_(newest)))
            return {**{task: [] for task in tasks}, **{task: list(unpack(result)) for task, result in results}}

    @retried
    def views(self, names: Iterable[str] = views.NAMES) -> list[views.View]:
        """The views of these names, as `lrurun query` defines them."""
        with self._reading() as connection:
            return views.views(connection, names)

    @retried
    def program_settings(self) -> dict[str, ValueKind]:
        """Dotted path -> the kind of the values of each setting that users' programs have here."""
        with self._reading() as connection:
            return views.program_settings(connection)

    @retried
    def run(self, prefix: str) -> Run:
        """The run with an id, or the only one whose id begins with it. Raises NotFoundError."""
        with self._reading() as connection:
            full_id = _by_prefix(connection, select(runs), runs.c.id, prefix, "run")
            return load_runs(connection, runs.c.id == full_id)[0]

    @retried
    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts of a run, in order. Raises NotFoundError, as all methods that take the id of a run."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            query = select(attempts, ENVIRONMENT.label("environment")).where(attempts.c.run == number)
            return [build_attempt(run_id, row) for row in connection.execute(query.order_by(attempts.c.n))]

    @retried
    def attempts_of(self, owner: Owner) -> list[Attempt]:
        """The attempts of the processes with the owner's id on its machine, in order."""
        query = select(attempts, runs.c.id, ENVIRONMENT.label("environment")).join(
            runs, runs.c.number == attempts.c.run
        )
        query = query.where(_same_machine(owner), attempts.c.pid == owner.pid).order_by(attempts.c.started_at)
        with self._reading() as connection:
            return [build_attempt(row.id, row) for row in connection.execute(query)]

    @retried
    def newest_attempts(self, run_ids: Iterable[str], *, beside: Owner | None = None) -> dict[str, Attempt]:
        """Run id -> its newest attempt; with `beside`, only attempts on the machine of that owner, whose process ids
        mean the same. Attempts may share an environment."""
        newest = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, among(runs.c.id, run_ids))
        if beside is not None:
            newest = and_(newest, _same_machine(beside))
        with self._reading() as connection:
            environments = select(attempts.c.environment_id).distinct().select_from(runs.join(attempts, newest))
            shared = read_shared(connection, connection.execute(environments).scalars())
            return {
                row.id: build(Attempt, row, run=row.id, environment=shared[row.environment_id][1])
                for row in connection.execute(select(runs.c.id, attempts).select_from(runs.join(attempts, newest)))
            }

    @retried
    def checkpoints(self, run_id: str, state: str | None = None) -> list[Checkpoint]:
        """The checkpoints of a run, in one state or in both, newest step first."""
        table = checkpoints
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            query = select(table).where(table.c.run == number).order_by(table.c.step.desc(), table.c.id.desc())
            if state is not None:
                query = query.where(table.c.state == state)
            return [build(Checkpoint, row, run=run_id) for row in connection.execute(query)]

    def each_checkpoint(self, run_ids: Sequence[str], state: str) -> Iterator[Checkpoint]:
        """The checkpoints of runs in a state, in the order of the runs, newest step first. Read as `each` does."""
        for start in range(0, len(run_ids), BATCH):
            batch = run_ids[start : start + BATCH]
            by_run = self._checkpoints_of(batch, state)
            for run_id in batch:
                yield from by_run.get(run_id, ())

    @retried
    def _checkpoints_of(self, run_ids: Sequence[str], state: str) -> dict[str, list[Checkpoint]]:
        table = checkpoints
        query = select(table, runs.c.id.label("name")).join(runs, runs.c.number == table.c.run)
        query = query.where(table.c.state == state, among(runs.c.id, run_ids))
        by_run: dict[str, list[Checkpoint]] = {}
        with self._reading() as connection:
            for row in connection.execute(query.order_by(table.c.step.desc(), table.c.id.desc())):
                by_run.setdefault(row.name, []).append(build(Checkpoint, row, run=row.name))
        return by_run

    @retried
    def newest_speeds(self) -> list[tuple[Config, float]]:
        """Configurations (with any seed), each with the steps per second of its newest run that has recorded a speed;
        newest first."""
        recorded = and_(runs.c.steps_per_second.is_not(None), runs.c.superseded == 0)
        newest = select(func.max(runs.c.number).label("number")).where(recorded).group_by(runs.c.config_id).subquery()
        query = select(runs.c.config_id, runs.c.steps_per_second).join(newest, newest.c.number == runs.c.number)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(runs.c.number.desc())).all()
            shared = read_shared(connection, [row.config_id for row in rows])
        return [(recorded_config(*shared[row.config_id]), row.steps_per_second) for row in rows]

    @retried
    def newest_durations(self, kind: RunKind) -> list[tuple[Config, float]]:
        """Configurations (with any seed), each with the seconds of its newest finished run of a kind; newest first."""
        done = and_(runs.c.state == "done", runs.c.superseded == 0, runs.c.kind == kind)
        newest = select(func.max(runs.c.number).label("number")).where(done).group_by(runs.c.config_id).subquery()
        seconds = columns.expression("duration").label("seconds")
        query = select(runs.c.config_id, seconds).join(newest, newest.c.number == runs.c.number)
        with self._reading() as connection:
            rows = connection.execute(query.order_by(runs.c.number.desc())).all()
            shared = read_shared(connection, [row.config_id for row in rows])
        return [(recorded_config(*shared[row.config_id]), row.seconds) for row in rows]

    @retried
    def metrics(self, run_id: str, keys: Iterable[str] | None = None) -> dict[str, list[tuple[int, float]]]:
        """Key -> [(step, value), ...] by step. Keys without a row are left out."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            names = select(metric_keys.c.id, metric_keys.c.name)
            rows = _CURVES
            if keys is not None:
                names = names.where(among(metric_keys.c.name, keys))
                rows = rows.where(metrics.c.key.in_(names.with_only_columns(metric_keys.c.id)))
            recorded = connection.execute(rows, {"run": number}).all()
            name_of = {row.id: row.name for row in connection.execute(names)}  # later, as another process may add names
            curves: dict[str, list[tuple[int, float]]] = {}
            for key, step, value in recorded:
                curves.setdefault(name_of[key], []).append((step, from_real(value)))
            return dict(sorted(curves.items()))

    @retried
    def stamp(self) -> tuple[int, ...]:
        """Numbers, some of which change whenever something is recorded. Quick, so that viewers may ask every second."""
        with self._reading() as connection:
            return tuple(connection.execute(progress.STAMP).one())

    @retried
    def eigenvalues(self, run_id: str) -> dict[str, list[list[complex] | None]]:
        """Moment ("start", "end") -> the eigenvalues of each layer, None if its recurrence has no eigenvalues.

        Moments that were not recorded are left out.
        """
        table = eigenvalues
        layers: dict[str, list[list[complex] | None]] = {}
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            query = select(table.c.moment, table.c.pairs).where(table.c.run == number)
            for moment, pairs in connection.execute(query.order_by(table.c.moment.desc(), table.c.layer)):
                layers.setdefault(moment, []).append(None if pairs is None else unpack_complex(pairs))
        return layers

    @retried
    def items(self, run_ids: Iterable[str], result: str) -> dict[str, ItemResults]:
        """Run -> its per-item results for a score, as "test/accuracy"; runs without them are left out.

        Runs with the same test set have the same object as `test_set`.
        """
        from lrurun.items import ItemResults
        from lrurun.ledger import item_rows

        table = item_results.c
        with self._reading() as connection:
            rows = self._item_rows(
                connection,
                select(runs.c.id, table.test_set, table.sums).where(
                    among(runs.c.id, run_ids), table.result == result, table.sums.is_not(None)
                ),
            )
            records = self._test_sets(connection, {row.test_set for row in rows})
            try:
                sets = {number: item_rows.test_set(record) for number, record in records.items()}
                return {
                    row.id: ItemResults(
                        test_set=sets[row.test_set], sums=item_rows.sums(row.sums, sets[row.test_set].count)
                    )
                    for row in rows
                }
            except ValueError as error:
                raise databases.damaged(self.path, error) from None

    @retried
    def first_test_set(self, ladder_key: str, result: str) -> tuple[str, TestSet] | None:
        """The oldest run of a ladder instance that has per-item results of a score and is not excluded, with its test
        set; None if there is none."""
        from lrurun.ledger import item_rows

        table = item_results.c
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            oldest = (
                select(runs.c.id.label("run"), *test_sets.c)
                .where(
                    runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)),
                    runs.c.number.not_in(select(exclusions.c.run)),
                    runs.c.superseded == 0,
                    table.result == result,
                    table.sums.is_not(None),
                )
                .order_by(runs.c.number)
                .limit(1)
            )
            for row in self._item_rows(connection, oldest, test_sets):
                try:
                    return row.run, item_rows.test_set(item_rows.test_set_record(row))
                except ValueError as error:
                    raise databases.damaged(self.path, error) from None
            return None

    @retried
    def item_counts(self, run_id: str) -> dict[str, int]:
        """Score -> the number of test items whose results a run has."""
        table = item_results.c
        counts = select(table.result, test_sets.c.count).where(runs.c.id == run_id, table.sums.is_not(None))
        with self._reading() as connection:
            return dict(self._item_rows(connection, counts.order_by(table.result), test_sets))

    @retried
    def item_names(self, run_ids: Iterable[str]) -> list[str]:
        """The names of the scores of which some of these runs have per-item results, sorted."""
        table = item_results.c
        names = select(table.result).distinct().where(among(runs.c.id, run_ids), table.sums.is_not(None))
        with self._reading() as connection:
            return [row.result for row in self._item_rows(connection, names.order_by(table.result))]

    @retried
    def item_totals(self, ladder_key: str) -> tuple[int, int]:
        """Of how many scores per-item results were recorded for runs of a ladder instance, and how many are there."""
        totals: Any = (func.count(), func.count(item_results.c.sums))
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            of_ladder = runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder))
            rows = self._item_rows(connection, select(*totals).where(of_ladder))
            return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    @retried
    def item_bytes(self) -> dict[str, int]:
        """Run -> the bytes of its per-item results, of the runs that have some."""
        table = item_results.c
        sizes = select(runs.c.id, func.sum(func.length(table.sums))).where(table.sums.is_not(None))
        with self._reading() as connection:
            rows = self._item_rows(connection, sizes.group_by(runs.c.number, runs.c.id).order_by(runs.c.number))
            return {run_id: int(size) for run_id, size in rows}

    @retried
    def items_removed(self, run_ids: Iterable[str], result: str) -> dict[str, int]:
        """Run -> the number of test items of a score, where `ledger gc --items` removed the per-item results."""
        table = item_results.c
        removed = select(runs.c.id, test_sets.c.count).where(
            among(runs.c.id, run_ids), table.result == result, table.sums.is_(None)
        )
        with self._reading() as connection:
            return dict(self._item_rows(connection, removed, test_sets))

    def _test_sets(self, connection: Connection, numbers: Collection[int]) -> dict[int, TestSetRecord]:
        """Number -> test set."""
        from lrurun.ledger import item_rows

        rows = connection.execute(select(test_sets).where(among(test_sets.c.id, numbers))) if numbers else ()
        found = {row.id: item_rows.test_set_record(row) for row in rows}
        if missing := sorted(set(numbers) - found.keys()):
            raise databases.damaged(self.path, f"test set {missing[0]} is missing")
        return found

    def _item_rows(self, connection: Connection, query: Select[Any], *more: Table) -> Sequence[Any]:
        """The rows of a query on runs and their per-item results; none where the ledger is of an older revision,
        which has no such tables."""
        if self.database.lacking >= {item_results.name}:
            return []
        joined = runs.join(item_results, item_results.c.run == runs.c.number)
        for table in more:
            joined = joined.join(table, table.c.id == item_results.c.test_set)
        return connection.execute(query.select_from(joined)).all()

    @retried
    def events(
        self,
        after: int = 0,
        ladder_key: str | None = None,
        run: str | None = None,
        limit: int | None = None,
        *,
        of_runs: bool = True,
        kind: str | None = None,
    ) -> list[Event]:
        """Events with a number above `after`, oldest first; with `limit`, that many of the newest.

        The events of a ladder are those of the instance itself and, with `of_runs`, those of its runs. `kind` is the
        kind of all events; None: of every kind.
        """
        query: Select[Any] = (
            select(*(c for c in events.c if c.name != "run"), runs.c.id.label("run"))
            .outerjoin(runs, runs.c.number == events.c.run)
            .where(events.c.id > after)
            .order_by(events.c.id.desc() if limit is not None else events.c.id)
            .limit(limit)
        )
        with self._reading() as connection:
            if ladder_key is not None:
                ladder = self._ladder_number(connection, ladder_key)
                members = select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)
                of_ladder = events.c.ladder == ladder
                query = query.where(or_(of_ladder, events.c.run.in_(members)) if of_runs else of_ladder)
            if run is not None:
                query = query.where(events.c.run == self._run_number(connection, run))
            if kind is not None:
                query = query.where(events.c.kind == kind)
            loaded = [build_event(row) for row in connection.execute(query)]
        return loaded[::-1] if limit is not None else loaded

    @retried
    def events_of_ladders(self, kind: str) -> list[tuple[str, Event]]:
        """The events of a kind that belong to ladder instances and to no run, oldest first, each with the key of its
        instance. One statement: a ledger may have hundreds of instances."""
        query = (
            select(events, ladders.c.key.label("ladder_key"))
            .join(ladders, ladders.c.id == events.c.ladder)
            .where(events.c.kind == kind, events.c.run.is_(None))
            .order_by(events.c.id)
        )
        with self._reading() as connection:
            return [(row.ladder_key, build_event(row)) for row in connection.execute(query)]

    @retried
    def state_summaries(self, ladder_key: str, score: str = SCORE) -> list[StateSummary]:
        """The runs of a ladder by rung, stage and state, in the order of the ladder.

        `score` is the metric that selects the model, as in "val/r2". Runs that were started over are left out. One
        statement: a ladder may have thousands of runs.
        """
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            rows = connection.execute(progress.summaries(score), {"ladder": ladder}).all()
        return [
            build(
                StateSummary,
                row,
                step=int(row.step),
                steps=int(row.steps),
                loss=progress.mean(row, "loss"),
                score=progress.mean(row, "score"),
                scored=row.scores,
                speeds=unpack_numbers(row.speeds),
            )
            for row in rows
        ]

    @retried
    def state_counts(self, ladder_key: str) -> dict[str, int]:
        """State -> number of runs of a ladder. A run in several rungs counts once."""
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            return dict(connection.execute(progress.COUNTS, {"ladder": ladder}).all())

    @retried
    def remaining_work(self, ladder_key: str) -> dict[tuple[str, str] | None, RemainingWork]:
        """Rung and stage -> the remaining work of their runs; None -> that of the ladder. A run counts once in each."""
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            rows: Iterable[Row[Any]] = connection.execute(progress.REMAINING_BY_RUNG, {"ladder": ladder})
            by_rung: dict[tuple[str, str] | None, RemainingWork] = {
                (row.rung, row.stage): build(RemainingWork, row, steps=int(row.steps)) for row in rows
            }
            totals: Iterable[Row[Any]] = connection.execute(progress.REMAINING, {"ladder": ladder})
            (ladder_total,) = totals
            return {**by_rung, None: build(RemainingWork, ladder_total, steps=int(ladder_total.steps))}

    @retried
    def clock(self) -> float:
        """The ledger's clock, by which times are recorded: seconds since 1970."""
        with self._reading() as connection:
            return now(connection)

    @retried
    def check(self) -> list[str]:
        """The faults of the ledger, one sentence each; empty if there are none."""
        return checks.problems(self.database)

    # Curves

    def curves(self, run_ids: Sequence[str], keys: Iterable[str] | None = None) -> Iterator[RecordedCurve]:
        """The curves of runs, in their order and by key; unknown ids and keys without a row are left out.

        Args:
            run_ids: exact ids.
            keys: exact names of metrics; None: all.
        """
        names = None if keys is None else list(keys)
        for start in range(0, len(run_ids), CURVES_AT_ONCE):
            by_run = self._curves_of(run_ids[start : start + CURVES_AT_ONCE], names)
            for run_id in run_ids[start : start + CURVES_AT_ONCE]:
                yield from by_run.get(run_id, ())

    @retried
    def _curves_of(self, run_ids: Sequence[str], keys: Sequence[str] | None) -> dict[str, list[RecordedCurve]]:
        with self._reading() as connection:
            ids = dict(connection.execute(select(runs.c.number, runs.c.id).where(among(runs.c.id, run_ids))).all())
            rows = _ROWS.where(among(metrics.c.run, ids))
            names = _names(connection, keys)
            if keys is not None:
                rows = rows.where(among(metrics.c.key, names))
            by_run: dict[str, list[RecordedCurve]] = {}
            for curve in _grouped(connection, rows, ids, names):
                by_run.setdefault(curve.run, []).append(curve)
            return {run: sorted(curves, key=lambda curve: curve.key) for run, curves in by_run.items()}

    @retried
    def metric_names(self, run_ids: Iterable[str] | None = None) -> list[str]:
        """The names of the metrics of which these runs have rows, sorted; with None, of which any run has had rows."""
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

    # Records

    @retried
    def run_record(self, run_id: str) -> RunRecord:
        """The record of a run (an id)."""
        run = self.run(run_id)
        with self._reading() as connection:
            number = self._run_number(connection, run.id)
            table = item_results.c
            item_query = select(table.result, table.test_set, table.sums).where(runs.c.number == number)
            item_table = self._item_rows(connection, item_query.order_by(table.result))
            sets = self._test_sets(connection, {row.test_set for row in item_table})
        moments = self.eigenvalues(run.id)
        return RunRecord(
            number=number,
            run=RunRow(**structs.asdict(run) | {"memberships": (), "result": None, "settings": None}),
            config=msgspec.to_builtins(run.config),
            execution=msgspec.to_builtins(run.execution),
            sources=run.sources,
            result=run.result,
            attempts=self.attempts(run.id),
            checkpoints=self.checkpoints(run.id, "committed"),
            events=self.events(run=run.id),
            eigenvalues={
                moment: [None if layer is None else [(z.real, z.imag) for z in layer] for layer in layers]
                for moment, layers in moments.items()
            },
            curves={
                curve.key: CurveRecord(curve.steps.tolist(), curve.values.tolist()) for curve in self.curves([run.id])
            },
            items={row.result: ItemsRecord(test_set=sets[row.test_set], sums=row.sums) for row in item_table},
        )

    @retried
    def ladder_record(self, key: str) -> LadderRecord:
        """The record of a ladder instance (a key)."""
        with self._reading() as connection:
            number = self._ladder_number(connection, key)
            table = ladder_runs.c
            query = select(table.id, runs.c.id, table.rung, table.stage, table.position)
            query = query.join(runs, runs.c.number == table.run).where(table.ladder == number).order_by(table.id)
            places = [PlaceRecord(*row) for row in connection.execute(query)]
        return LadderRecord(
            number=number, ladder=self.ladder(key), events=self.events(ladder_key=key, of_runs=False), places=places
        )

    def restore(
        self,
        run_records: Iterable[RunRecord],
        ladder_records: Iterable[LadderRecord],
        has_checkpoint: Callable[[str], bool],
    ) -> dict[str, str]:
        """Adds runs and ladder instances to an empty ledger, in this order, in one transaction.

        Running runs become interrupted. `has_checkpoint` says whether a checkpoint is at its path in the runs folder;
        others are left out. Returns the records that are left out because no reader would understand their rows or they
        contradict themselves or others: their paths in the runs folder, with the reasons.
        """
        refused: dict[str, str] = {}
        numbers: dict[str, int] = {}
        event_rows: list[tuple[int, dict[str, Any]]] = []
        with self._writing() as connection:
            if any(connection.execute(select(table).limit(1)).first() for table in (runs, ladders)):
                raise LedgerError(
                    f"the ledger {self.path} has runs, and is not overwritten", "move it aside, or name another one"
                )
            for run_record in run_records:
                try:
                    with connection.begin_nested():
                        number = self._restore_run(connection, run_record, has_checkpoint)
                        load_runs(connection, runs.c.number == number)
                        rows = [(event.id, _event_row(event, run=number, ladder=None)) for event in run_record.events]
                except _REFUSED as error:
                    refused[f"{run_record.run.id}/{RUN_FILE}"] = _why(error)
                    continue
                numbers[run_record.run.id] = number
                event_rows += rows
            later = runs.alias()
            newer = (later.c.fingerprint == runs.c.fingerprint) & (later.c.generation > runs.c.generation)
            connection.execute(update(runs).where(exists().where(newer)).values(superseded=1))
            places: list[tuple[int, dict[str, Any]]] = []
            taken: set[str] = set()
            for ladder_record in ladder_records:
                record = ladder_record.ladder
                short_name = next(name for name in numbered(record.short_name) if name not in taken)
                try:
                    with connection.begin_nested():
                        row = _row(ladders, record, spec=pack(msgspec.to_builtins(record.spec)), short_name=short_name)
                        inserted = connection.execute(insert(ladders).values(row).returning(ladders)).one()
                        ladder_instance(inserted)
                        rows = [(event.id, _event_row(event, ladder=inserted.id)) for event in ladder_record.events]
                        members = [
                            (place.number, _row(ladder_runs, place, ladder=inserted.id, run=numbers[place.run]))
                            for place in ladder_record.places
                            if place.run in numbers
                        ]
                except _REFUSED as error:
                    refused[f"{LADDERS_FOLDER}/{record.key}.json"] = _why(error)
                    continue
                taken.add(short_name)
                event_rows += rows
                places += members
            if places:
                _add_places(connection, _in_order(places))
            _insert(connection, events, _in_order(event_rows))
        return refused

    def _restore_run(self, connection: Connection, record: RunRecord, has_checkpoint: Callable[[str], bool]) -> int:
        run, result = record.run, record.result
        config, execution, sources = record.config, record.execution, record.sources
        settings = [Document.pack(config, run.seed), Document.pack(execution), Document.pack(sources)]
        environments = [Document.pack(attempt.environment) for attempt in record.attempts]
        documents = share(connection, [*settings, *environments])
        names = ("config_id", "execution_id", "provenance_id")
        was_running = run.state == "running"
        row = _row(
            runs,
            run,
            id=run.id,
            state="interrupted" if was_running else run.state,
            superseded=int(run.superseded),
            attempt=max((attempt.n for attempt in record.attempts), default=0),
            result=None if result is None else pack_result(result),
            **({} if result is None else columns_of_result(result)),
            **{name: documents[document] for name, document in zip(names, settings, strict=True)},
        )
        number = int(connection.execute(insert(runs).values(row).returning(runs.c.number)).scalar_one())
        attempt_rows = []
        for attempt, environment in zip(record.attempts, environments, strict=True):
            ended = (
                {}
                if attempt.ended_at is not None
                else {"ended_at": attempt.seen_at, "outcome": "exited", "reason": OWNER_EXITED}
            )
            code = code_version(attempt.environment)
            attempt_rows.append(
                _row(attempts, attempt, run=number, environment_id=documents[environment], code=code, **ended)
            )
        _insert(connection, attempts, attempt_rows)
        _insert(
            connection,
            checkpoints,
            [
                _row(checkpoints, checkpoint, run=number)
                for checkpoint in reversed(record.checkpoints)
                if has_checkpoint(checkpoint.path)
            ],
        )
        _insert(
            connection,
            eigenvalues,
            [
                {"run": number, "moment": moment, "layer": layer, "pairs": _packed(pairs)}
                for moment, layers in record.eigenvalues.items()
                for layer, pairs in enumerate(layers)
            ],
        )
        keys = self._key_numbers(connection, set(record.curves))
        for name, curve in record.curves.items():
            rows = zip(curve.steps, curve.values, strict=True)
            _insert(
                connection,
                metrics,
                [{"run": number, "key": keys[name], "step": step, "value": to_real(value)} for step, value in rows],
            )
        if record.items:
            from lrurun.ledger import item_rows

            for item_record in record.items.values():
                item_rows.check(item_record)
            _write_items(connection, number, record.items)
        _insert(connection, tags, [{"run": number, "name": name} for name in run.tags])
        if run.excluded is not None:
            times = [event.time for event in record.events if event.kind == "excluded"]
            row = {"run": number, "why": clean(run.excluded), "time": max(times, default=run.created_at)}
            _insert(connection, exclusions, [row])
        return number


# The queue


def _add_places(connection: Connection, places: list[dict[str, Any]]) -> None:
    add = upsert(connection, ladder_runs)
    unique = ["ladder", "run", "rung", "stage"]
    connection.execute(
        add.on_conflict_do_update(index_elements=unique, set_={"position": add.excluded.position}), places
    )


def _newest_generations(connection: Connection, fingerprints: Iterable[str]) -> dict[str, Row[Any]]:
    """Fingerprint -> the run of its newest generation."""
    query = select(runs, EXECUTION.label("execution")).where(among(runs.c.fingerprint, fingerprints))
    locked = query.order_by(runs.c.generation).with_for_update(of=runs, key_share=True)
    return {row.fingerprint: row for row in connection.execute(locked)}


def _refuse_running(rows: Iterable[Row[Any]]) -> None:
    running = [row.id for row in rows if row.state == "running"]
    if running:
        raise LrurunError(
            f"{plural(len(running), 'run')} cannot be started over while running: {', '.join(running[:5])}",
            "stop the other command first, or wait until it is done",
        )


def _add_runs(connection: Connection, new: Sequence[PlannedRun], existing: Mapping[str, Row[Any]]) -> None:
    settings = [
        (Document.pack(run.config, run.seed), Document.pack(run.execution), Document.pack(run.sources)) for run in new
    ]
    numbers = share(connection, itertools.chain.from_iterable(settings))
    rows = []
    time = now(connection)
    for run, texts in zip(new, settings, strict=True):
        generation = existing[run.fingerprint].generation + 1 if run.fingerprint in existing else 1
        references = dict(zip(("config_id", "execution_id", "provenance_id"), map(numbers.get, texts), strict=True))
        rows.append(_new_run(run, generation, time) | references)
    connection.execute(insert(runs), rows)


def _new_run(run: PlannedRun, generation: int, time: float) -> dict[str, Any]:
    name = run.fingerprint.removeprefix("sha256:")[:12]
    return {
        "id": name if generation == 1 else f"{name}-{generation}",
        "fingerprint": run.fingerprint,
        "generation": generation,
        "superseded": 0,
        "kind": run.kind,
        "task": run.task,
        "seed": run.seed,
        "state": "queued",
        "attempt": 0,
        "step": 0,
        "steps": run.steps,
        "created_at": time,
    }


def _set_execution(connection: Connection, row: Row[Any], planned: PlannedRun) -> None:
    """Set the execution of an unfinished run to the planned one, except what its first attempt has fixed."""
    if row.state not in ("queued", "interrupted", "failed"):
        return
    fixed = {k: v for k, v in unpack(row.execution).items() if k in FixedExecution.__struct_fields__ and row.attempt}
    execution = Document.pack(structs.replace(planned.execution, **fixed))
    if execution.text != row.execution:
        number = share(connection, [execution])[execution]
        connection.execute(update(runs).where(runs.c.number == row.number).values(execution_id=number))


def _supersede(connection: Connection, old: int, new: int) -> None:
    """Mark a run as superseded, and put the new one into all ladders that have the old one."""
    connection.execute(update(runs).where(runs.c.number == old).values(superseded=1))
    place = ladder_runs.c
    places = select(place.ladder, literal(new), place.rung, place.stage, place.position)
    connection.execute(
        insert(ladder_runs).from_select(
            ["ladder", "run", "rung", "stage", "position"], places.where(place.run == old).order_by(place.id)
        )
    )


@functools.cache
def _holding(given: frozenset[str]) -> Any:
    """The statement that gives a run to a worker, as `Ledger.held` describes, of which these limits are given."""
    member, place, other = ladder_runs, ladder_runs.alias("place"), runs.alias("other")
    queue = (
        select(runs.c.number)
        .join(member, member.c.run == runs.c.number)
        .where(runs.c.state == "queued", runs.c.superseded == 0)
        .limit(1)
    )
    if "rungs" in given:
        queue = queue.where(among_given(member.c.rung, "given_rungs"))
    if "seeds" in given:
        queue = queue.where(or_(member.c.stage != "train", among_given(runs.c.seed, "given_seeds")))
    for setting in ("threads", "devices"):
        if setting in given:
            queue = queue.where(json_number(EXECUTION, setting) == bindparam(f"given_{setting}"))
    ladder = bindparam("ladder_number", type_=Integer)
    running = select(place.c.rung).join(other, other.c.number == place.c.run)
    running = running.where(other.c.state == "running", place.c.ladder == ladder)
    is_compiled = among_given(member.c.rung, "given_compiled")
    turn = case((is_compiled, 0), (member.c.rung.not_in(running), 1), else_=2)
    queue = queue.where(member.c.ladder == ladder).order_by(turn, member.c.position, member.c.id)
    queue = queue.with_for_update(of=runs, key_share=True, skip_locked=True)
    return (
        update(runs)
        .where(runs.c.number == queue.scalar_subquery())
        .values(state="running", attempt=runs.c.attempt + 1, error=None, finished_at=None)
        .returning(runs.c.number, runs.c.attempt)
    )


def _open_attempt(
    connection: Connection, run: int, n: int, owner: Owner, environment: dict[str, Any], time: float
) -> None:
    document = Document.pack(environment)
    connection.execute(
        insert(attempts).values(
            run=run,
            n=n,
            **structs.asdict(owner),
            started_at=time,
            heartbeat_at=time,
            seen_at=time,
            numerics=environment.get("numerics", 1),
            environment_id=share(connection, [document])[document],
            code=code_version(environment),
        )
    )


def _same_machine(owner: Owner) -> ColumnElement[bool]:
    """Whether an attempt is on the machine and in the pid namespace of an owner: a name of a host is not enough."""
    columns = attempts.c
    return and_(columns.host == owner.host, columns.boot == owner.boot, columns.namespace == owner.namespace)


def _already_held(connection: Connection, owner: Owner, tried: list[float]) -> HeldRun | None:
    """The run that `owner` got in one of these tries: the server gave it, although its answer was lost."""
    if not tried:
        return None
    current = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, runs.c.state == "running")
    same_process = and_(_same_machine(owner), attempts.c.pid == owner.pid)
    row = connection.execute(
        select(runs.c.number, runs.c.attempt)
        .join(attempts, current)
        .where(same_process, attempts.c.pid_started == owner.pid_started, attempts.c.started_at.in_(tried))
    ).first()
    return (
        None if row is None else HeldRun(run=load_runs(connection, runs.c.number == row.number)[0], attempt=row.attempt)
    )


def refuse_later(newest: Attempt, numerics: int) -> None:
    """Checks that a program with this numerics version may continue the run of this attempt, or start it again.

    Raises:
        LaterVersionError: the attempt's version is later. Starting again would lose what a later lrurun has computed.
    """
    if newest.numerics > numerics:
        raise LaterVersionError(
            f"run {newest.run} began with numerics version {newest.numerics}, this lrurun has {numerics}: it is too "
            "old to continue the run, which stays as it is",
            f"install the lrurun that began it ({code_version(newest.environment) or 'not recorded'}) or a later one, "
            "or train the run from the start with --fresh",
        )


def code_version(environment: Mapping[str, Any]) -> str | None:
    """The code version in an environment as one text, None if it has none."""
    code = environment.get("code")
    if not isinstance(code, Mapping):
        return None if code is None else str(code)
    parts = [f"lrurun {code['lrurun']}"] if "lrurun" in code else []
    if "commit" in code:
        parts.append(f"commit {code['commit'][:12]}")
    if "dirty" in code:
        parts.append(f"changes {code['dirty'].removeprefix('sha256:')[:12]}")
    return ", ".join(parts) or None


def _abandoned(
    connection: Connection,
    this_process: Owner,
    alive: Callable[[Owner], bool],
    timeout: float,
    *,
    shared: bool,
    locked: bool = False,
) -> list[Row[Any]]:
    """The running runs whose owner has exited, with their attempts; see `Ledger.reap`.

    On a server, `locked` locks these runs, and leaves out runs that another transaction is changing.
    """
    running = (
        select(runs.c.number, runs.c.id, attempts)
        .join(attempts, and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt))
        .where(runs.c.state == "running")
    )
    time = now(connection)
    # Attempts that live elsewhere are not read: every node asks twice a second.
    running = running.where(or_(attempts.c.host == this_process.host, attempts.c.heartbeat_at < time - timeout))
    if locked:
        running = running.with_for_update(of=[runs, attempts], key_share=True, skip_locked=True)
    rows = connection.execute(running).all()
    if rows and server_age(connection) < RETURN_SECONDS:
        timeout = math.inf

    def silence(row: Row[Any]) -> float:
        return time - (max(row.heartbeat_at, row.seen_at) if shared else float(row.heartbeat_at))

    return [row for row in rows if _exited(build(Owner, row), silence(row), this_process, alive, timeout, shared)]


def _exited(
    owner: Owner, silent: float, this_process: Owner, alive: Callable[[Owner], bool], timeout: float, shared: bool
) -> bool:
    # Machines that share a server may have the same name.
    if owner.host == this_process.host and owner.boot != this_process.boot and not shared:
        return True
    if (owner.host, owner.boot, owner.namespace) == (this_process.host, this_process.boot, this_process.namespace):
        return not alive(owner)
    return silent > timeout


# Recording


def _newest_columns(score: str) -> dict[str, str]:
    """Metric -> the column of runs with the value of its newest row, so that no reader has to search for it."""
    return {"train/loss": "last_loss", score: "last_score", "machine/steps_per_second": "last_speed"}


def columns_of_result(result: Mapping[str, float]) -> dict[str, float | None]:
    """The columns of runs that repeat numbers of their result."""
    return {column: to_real(result[key]) for key, column in columns.OWN_COLUMNS.items() if key in result}


_RUN_NUMBER = select(runs.c.number).where(runs.c.id == bindparam("id"))
_LADDER_NUMBER = select(ladders.c.id).where(ladders.c.key == bindparam("key"))
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


# Per-item results


def _packed_items(items: Mapping[str, ItemResults] | None) -> dict[str, ItemsRecord]:
    if not items:
        return {}
    from lrurun.ledger import item_rows  # which imports NumPy

    return item_rows.packed(items)


def _write_items(connection: Connection, run: int, items: Mapping[str, ItemsRecord]) -> list[str]:
    """Writes those that the run does not have, or of which the results were removed. Returns their names."""
    if not items:
        return []
    test_set = {record.test_set.sha256: record.test_set for record in items.values()}
    add = upsert(connection, test_sets)
    connection.execute(
        add.on_conflict_do_nothing(index_elements=[test_sets.c.sha256]),
        # In one order, so that processes which add the same ones at once do not wait for each other.
        [_test_set_row(test_set[sha256]) for sha256 in sorted(test_set)],
    )
    known = select(test_sets.c.sha256, test_sets.c.id).where(among(test_sets.c.sha256, test_set))
    numbers: dict[str, int] = dict(connection.execute(known).all())
    table = item_results
    having = select(table.c.result).where(table.c.run == run, table.c.sums.is_not(None))
    present = set(connection.execute(having).scalars())
    added = [name for name in items if name not in present]
    if added:
        put = upsert(connection, table)
        connection.execute(
            put.on_conflict_do_update(
                index_elements=["run", "result"],
                set_={"test_set": put.excluded.test_set, "sums": put.excluded.sums},
            ),
            [
                {
                    "run": run,
                    "result": name,
                    "test_set": numbers[items[name].test_set.sha256],
                    "sums": items[name].sums,
                }
                for name in added
            ],
        )
    return added


def _test_set_row(record: TestSetRecord) -> dict[str, Any]:
    row = structs.asdict(record)
    return {"order_sha256": row.pop("order"), **row}


# Reading


_CURVES = (
    select(metrics.c.key, metrics.c.step, metrics.c.value)
    .where(metrics.c.run == bindparam("run"))
    .order_by(metrics.c.key, metrics.c.step)
)


def _by_prefix(connection: Connection, query: Select[Any], column: ColumnElement[str], prefix: str, noun: str) -> str:
    """The only value of `column` that is or begins with `prefix`."""
    text = prefix.strip().lower()
    names = query.with_only_columns(column)
    if connection.execute(names.where(column == text)).first() is not None:
        return text
    # A range instead of LIKE: it uses the index and has no wildcards.
    matches = names.where(column >= text, column < text + "\U0010ffff").order_by(column).limit(6)
    values = connection.execute(matches).scalars().all()
    if not values or not text:
        hint = "see `lrurun runs`"
        if noun == "ladder instance":
            short_names = connection.execute(select(ladders.c.short_name).order_by(ladders.c.id)).scalars().all()
            suggestion = nearest(prefix, short_names)
            hint = f"did you mean {suggestion!r}? see `lrurun status`" if suggestion else "see `lrurun status`"
        raise NotFoundError(f"no {noun} {prefix!r} in this ledger", hint)
    if len(values) > 1:
        listed = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
        raise NotFoundError(f"{noun} {prefix!r} is ambiguous", f"it is the beginning of {listed}")
    return values[0]


# Curves


_ROWS = select(metrics.c.run, metrics.c.key, metrics.c.step, metrics.c.value).order_by(
    metrics.c.run, metrics.c.key, metrics.c.step
)


def _names(connection: Connection, keys: Sequence[str] | None) -> dict[int, str]:
    """Number -> name of metrics; unknown ones are left out."""
    query = select(metric_keys.c.id, metric_keys.c.name)
    if keys is not None:
        query = query.where(among(metric_keys.c.name, keys))
    return dict(connection.execute(query).all())


def _grouped(
    connection: Connection, query: Select[Any], runs: dict[int, str], names: dict[int, str]
) -> Iterator[RecordedCurve]:
    """A curve of each run and key in the rows of a statement, which have the order of `_ROWS`."""
    for (run, key), group in groupby(connection.execute(query), key=itemgetter(0, 1)):
        steps, values = array("q"), array("d")
        for _, _, step, value in group:
            steps.append(step)
            values.append(from_real(value))
        yield RecordedCurve(
            run=runs[run],
            key=names[key],
            steps=memoryview(steps).toreadonly(),
            values=memoryview(values).toreadonly(),
        )


# Records


def _packed(pairs: list[tuple[float, float]] | None) -> str | None:
    return None if pairs is None else pack_complex([complex(*pair) for pair in pairs])


_REFUSED = (ValueError, TypeError, OverflowError, msgspec.ValidationError, LedgerError, IntegrityError, DataError)
"""The errors of a record whose values have no place in a ledger, or that no reader would understand."""


def _why(error: Exception) -> str:
    return str(error.orig if isinstance(error, IntegrityError | DataError) else error).splitlines()[0]


def _row(table: Table, value: Struct, **columns: Any) -> dict[str, Any]:
    """The row of a value in a table that numbers its rows itself; `columns` differ from its fields.

    Raises:
        OverflowError: a number has more bits than a column.
    """
    fields = structs.asdict(value).items()
    row = {name: field for name, field in fields if name in table.c and name != "id"} | columns
    for name, field in row.items():
        if isinstance(field, int) and field.bit_length() > 63:
            raise OverflowError(f"{name}: the number {field} is too large")
    return row


def _event_row(event: Event, **columns: Any) -> dict[str, Any]:
    payload = None if event.payload is None else pack(event.payload)
    return _row(events, event, payload=payload, **columns)


def _in_order(rows: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)
