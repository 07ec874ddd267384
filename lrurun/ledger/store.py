"""The ledger: what is asked for, what is running, what came out.

Every method is one short transaction and returns frozen values. Writers begin with `BEGIN IMMEDIATE`: a transaction
that reads first and writes later would fail under several processes however long it waits. State changes are on the
disk when a method returns; metrics and heartbeats survive any killed process, but may lose the last seconds to a power
cut.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import time
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec
from sqlalchemy import (
    Connection,
    Engine,
    Integer,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    create_engine,
    delete,
    event,
    exists,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.elements import ColumnElement

from lrurun.errors import LedgerError, LrurunError, NotFoundError
from lrurun.ledger import files, migrate
from lrurun.ledger import owner as owners
from lrurun.ledger.tables import (
    SCHEMA,
    TRIGGERS,
    attempts,
    checkpoints,
    events,
    exclusions,
    ladder_runs,
    ladders,
    metadata,
    metric_keys,
    metrics,
    runs,
    tags,
)
from lrurun.ledger.values import (
    STATES,
    Attempt,
    Checkpoint,
    Claim,
    Event,
    Ladder,
    Membership,
    Owner,
    Run,
    Standing,
    Wanted,
)

TIMEOUT = 30.0
"""Seconds to wait for other processes that write."""

PATIENCE = 600.0
"""The same for commands that train: hours of work are worth minutes of waiting."""

GLANCE = 1.0
"""Seconds of waiting after which whoever set `Ledger.waiting` is called."""

GONE_AFTER = 120.0
"""Seconds without a heartbeat after which an owner that cannot be looked at counts as gone."""

GONE = "interrupted: owner gone"
"""The reason of an attempt that `reap` ended."""

_SETTLED = ("threads", "steps_per_dispatch", "scan_backend", "remat")
"""Of a run's execution: what a later command cannot change once the run has begun."""

_ENDS = ("done", "diverged", "failed", "interrupted")


class Fenced(LrurunError):
    """The run was taken from this attempt, or has ended: nothing was written, and the worker must stop."""


class Ledger:
    """A ledger that is open, for writing (`Ledger.open`) or for reading (`Ledger.read`). May be shared by threads."""

    def __init__(
        self, path: Path, *, query: str, timeout: float, read_only: bool, durable: bool, note: str | None
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.note = note
        """A sentence for the user about how the file had to be opened, or None."""
        self.waiting: Callable[[float], None] | None = None
        """Called about every second while another process keeps this one from writing, with the seconds waited so far;
        what it raises ends the wait."""
        self._timeout = timeout
        self._keys: dict[str, int] = {}

        def engine(synchronous: str) -> Engine:
            def connect() -> sqlite3.Connection:
                connection = files.connect(path, query, timeout)
                connection.execute(f"PRAGMA synchronous={synchronous}")
                if read_only:
                    connection.execute("PRAGMA query_only=ON")
                return connection

            made = create_engine("sqlite://", creator=connect, poolclass=QueuePool)
            event.listen(made, "begin", self._begin)
            return made

        self._states = engine("FULL")
        # Without a write-ahead log a lesser setting could damage the file when the power fails.
        self._measures = engine("FULL" if durable else "NORMAL")
        self._reads = self._states.execution_options(lrurun_begin="BEGIN")

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = True, timeout: float = TIMEOUT) -> Ledger:
        """Open a ledger for writing; it is created, or brought up to date, where needed.

        `timeout` is in seconds, and how long each write waits for other processes. Raises NotFoundError where there is
        none and `create` is off, LrurunError where the file cannot be written, LedgerError where it is busy, newer than
        this version, or no ledger.
        """
        place = files.locate(path)
        size = files.size_of(place)
        if size is None and not create:
            raise NotFoundError(f"there is no ledger {place}", "create it: lrurun ledger migrate")
        files.require_writable(place, size is not None)
        kind = files.filesystem(place)
        wanted = "delete" if kind in files.NETWORK else "wal"
        patience = max(timeout, migrate.TIMEOUT) if not size else min(timeout, TIMEOUT)  # no signal is heeded in it
        with (
            files.plain_words(place, patience),
            contextlib.closing(files.connect(place, "mode=rwc", patience)) as connection,
        ):
            if migrate.version_of(connection, place) != SCHEMA:
                migrate.upgrade(place)
            journal = files.set_journal(connection, wanted, patience)
        note = None
        if kind in files.NETWORK:
            note = (
                f"the ledger {place} is on a network file system ({kind}): slow, and safe from one machine only; "
                "keep it on a local disk"
            )
        elif journal != "wal":
            note = f"the file system of {place} refuses a write-ahead log: the ledger works, but slowly"
        return cls(place, query="mode=rw", timeout=timeout, read_only=False, durable=journal != "wal", note=note)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> Ledger | None:
        """Open a ledger for reading; None when there is none. Never creates a file and never changes a row.

        Raises LedgerError for a ledger of another version or a file that is none, LrurunError where it cannot be read.
        """
        place = files.locate(path)
        if not files.size_of(place):
            return None
        if not os.access(place, os.R_OK):
            raise LrurunError(f"the ledger {place} cannot be read by this user", f"change the permissions of {place}")
        query, note = files.read_query(place)
        with files.plain_words(place, timeout), contextlib.closing(files.connect(place, query, timeout)) as connection:
            version = migrate.version_of(connection, place)
            if version is None:
                return None
            if version > SCHEMA:
                raise migrate.newer(connection, place, version)
            if version < SCHEMA:
                raise LedgerError(
                    f"the ledger {place} is of an older version ({version}, this lrurun reads {SCHEMA})",
                    "bring it up to date, a backup is made: lrurun ledger migrate",
                )
        return cls(place, query=query, timeout=timeout, read_only=True, durable=True, note=note)

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        self._states.dispose()
        self._measures.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Asking for runs

    def add_ladder(self, name: str, task: str, profile: str | None, spec: Mapping[str, Any]) -> Ladder:
        """The ladder instance of these words, made on first sight. `spec` must be JSON."""
        words = json.dumps([name, task, profile, spec], sort_keys=True, separators=(",", ":"), allow_nan=False)
        key = hashlib.sha256(words.encode()).hexdigest()[:12]
        row = {"key": key, "name": name, "task": task, "profile": profile, "spec": _pack(spec), "created_at": _now()}
        with self._writing(self._states) as connection:
            connection.execute(upsert(ladders).values(row).on_conflict_do_nothing(index_elements=[ladders.c.key]))
            return _ladder(connection.execute(select(ladders).where(ladders.c.key == key)).one())

    def enqueue(self, ladder_key: str, wanted: Sequence[Wanted], *, fresh: bool = False) -> list[Run]:
        """Make `wanted` the runs of a ladder, and return them: one run a fingerprint, in the order of `wanted`.

        Runs that exist are used as they are, whatever their state, and whichever ladder made them; others are queued.
        Unfinished ones take over the execution wanted, but for what a first attempt has settled.
        `fresh` starts over: existing runs are superseded and a next generation is queued, for every ladder that has
        them, except where the existing one is queued still. Raises LrurunError when `fresh` meets a running run.
        """
        now = _now()
        with self._writing(self._states) as connection:
            ladder = self._ladder_number(connection, ladder_key)
            first: dict[str, Wanted] = {}
            for want in wanted:
                first.setdefault(want.fingerprint, want)
            existing = _newest(connection, first)
            over = {f: row for f, row in existing.items() if row.state != "queued"} if fresh else {}
            running = [row.id for row in over.values() if row.state == "running"]
            if running:
                raise LrurunError(
                    f"{_count(len(running), 'run')} cannot be started over while running: {', '.join(running[:5])}",
                    "stop the other command first, or wait until it is done",
                )
            new = [
                _new_run(want, existing[f].generation + 1 if f in existing else 1, now)
                for f, want in first.items()
                if f not in existing or f in over
            ]
            if new:
                connection.execute(insert(runs), new)
            for fingerprint, row in existing.items():
                if row.state in ("queued", "interrupted", "failed") and fingerprint not in over:
                    # What results could depend on stays as the first attempt had it.
                    kept = {k: v for k, v in _unpack(row.execution).items() if k in _SETTLED and row.attempt}
                    execution = _pack({**first[fingerprint].execution, **kept})
                    connection.execute(update(runs).where(runs.c.number == row.number).values(execution=execution))
            numbers = {f: row.number for f, row in _newest(connection, first).items()}
            for fingerprint, row in over.items():
                connection.execute(update(runs).where(runs.c.number == row.number).values(superseded=1))
                # Other ladders that share the run follow, or they would lose it from their reports.
                place = ladder_runs.c
                places = select(place.ladder, literal(numbers[fingerprint]), place.rung, place.stage, place.position)
                connection.execute(
                    insert(ladder_runs).from_select(
                        ["ladder", "run", "rung", "stage", "position"],
                        places.where(place.run == row.number).order_by(place.id),
                    )
                )
            if wanted:
                connection.execute(
                    _PLACE,
                    [
                        {
                            "ladder": ladder,
                            "run": numbers[want.fingerprint],
                            "rung": want.rung,
                            "stage": want.stage,
                            "position": want.position,
                        }
                        for want in wanted
                    ],
                )
            loaded = {run.fingerprint: run for run in _load(connection, _among(runs.c.number, numbers.values()))}
            return [loaded[fingerprint] for fingerprint in first]

    def requeue(self, run_ids: Iterable[str]) -> int:
        """Queue interrupted and failed runs again; runs in other states stay as they are. Returns how many changed."""
        with self._writing(self._states) as connection:
            return connection.execute(
                update(runs)
                .where(_among(runs.c.id, run_ids), runs.c.state.in_(["interrupted", "failed"]), runs.c.superseded == 0)
                .values(state="queued", error=None, finished_at=None)
            ).rowcount

    def unlink(self, ladder_key: str, run_ids: Iterable[str], rung: str, stage: str) -> int:
        """Take runs out of one place of a ladder; the runs themselves stay. Returns how many memberships went."""
        with self._writing(self._states) as connection:
            ladder = self._ladder_number(connection, ladder_key)
            chosen = select(runs.c.number).where(_among(runs.c.id, run_ids))
            place = ladder_runs.c
            return connection.execute(
                delete(ladder_runs).where(
                    place.ladder == ladder, place.rung == rung, place.stage == stage, place.run.in_(chosen)
                )
            ).rowcount

    # Doing them

    def reap(
        self, owner_here: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = GONE_AFTER
    ) -> list[Run]:
        """Turn running runs whose owner is gone into interrupted ones, and return these.

        An owner of this host, boot and pid namespace is looked up by pid and start time, its heartbeat means nothing;
        one of this host and another boot is gone; any other is gone after `timeout` seconds without a heartbeat.
        """
        if not self.has_abandoned(owner_here, alive, timeout=timeout):
            return []
        with self._writing(self._states) as connection:
            now = _now()
            found = _abandoned(connection, owner_here, alive or owners.alive, timeout)
            for row in found:
                connection.execute(update(runs).where(runs.c.number == row.number).values(state="interrupted"))
                connection.execute(
                    update(attempts)
                    .where(attempts.c.run == row.number, attempts.c.n == row.n)
                    .values(ended_at=now, reason=GONE)
                )
                text = f"owner gone: process {row.pid} on {row.host}"
                _note(connection, now, "interrupted", text, run=row.number, attempt=row.n)
            return _load(connection, _among(runs.c.number, [row.number for row in found]))

    def has_abandoned(
        self, owner_here: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = GONE_AFTER
    ) -> bool:
        """Whether `reap` would find some. Writes nothing: for readers too."""
        with self._reading() as connection:
            return bool(_abandoned(connection, owner_here, alive or owners.alive, timeout))

    def claim(
        self,
        ladder_key: str,
        owner: Owner,
        *,
        rungs: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        threads: int | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> Claim | None:
        """Take the first queued run of a ladder and open its next attempt; None when there is nothing to take.

        `rungs`, `seeds` and `threads` (of the run's execution) say which runs may be taken; tuning runs have a seed of
        their own and pass whatever `seeds` says. `environment` must be JSON; its "code", a text or a table of "lrurun",
        "commit" and "dirty", is the code version shown with the run.
        """
        member = ladder_runs
        queue = (
            select(runs.c.number)
            .join(member, member.c.run == runs.c.number)
            .where(runs.c.state == "queued", runs.c.superseded == 0)
            .order_by(member.c.position, member.c.id)
            .limit(1)
        )
        if rungs is not None:
            queue = queue.where(_among(member.c.rung, rungs))
        if seeds is not None:
            queue = queue.where(or_(member.c.stage != "train", _among(runs.c.seed, seeds)))
        if threads is not None:
            queue = queue.where(func.json_extract(runs.c.execution, "$.threads") == threads)
        given = dict(environment or {})
        now = _now()
        with self._writing(self._states) as connection:
            ladder = self._ladder_number(connection, ladder_key)
            taken = connection.execute(
                update(runs)
                .where(runs.c.number == queue.where(member.c.ladder == ladder).scalar_subquery())
                .values(state="running", attempt=runs.c.attempt + 1, error=None, finished_at=None)
                .returning(runs.c.number, runs.c.attempt)
            ).one_or_none()
            if taken is None:
                return None
            connection.execute(
                insert(attempts).values(
                    run=taken.number,
                    n=taken.attempt,
                    host=owner.host,
                    boot=owner.boot,
                    namespace=owner.namespace,
                    pid=owner.pid,
                    pid_started=owner.pid_started,
                    started_at=now,
                    heartbeat_at=now,
                    seen_at=now,
                    environment=_pack(given),
                    code=_code(given),
                )
            )
            text = f"attempt {taken.attempt} on {owner.host}, process {owner.pid}"
            _note(connection, now, "running", text, run=taken.number, attempt=taken.attempt)
            return Claim(run=_load(connection, runs.c.number == taken.number)[0], attempt=taken.attempt)

    def rewind(self, claim: Claim, step: int) -> None:
        """Start the attempt from `step`: metric rows past it are deleted, and all of them when it is 0."""
        with self._writing(self._states) as connection:
            number = self._held(connection, claim)
            past = delete(metrics).where(metrics.c.run == number)
            connection.execute(past.where(metrics.c.step > step) if step > 0 else past)
            connection.execute(update(runs).where(runs.c.number == number).values(step=step))
            connection.execute(
                update(attempts)
                .where(attempts.c.run == number, attempts.c.n == claim.attempt)
                .values(resumed_from=step)
            )

    def record(self, claim: Claim, rows: Iterable[tuple[int, str, float]], step: int) -> None:
        """Write metric rows (step, key, value), over older ones of the same step and key, and how far the run is."""
        given = list(rows)
        with self._writing(self._measures) as connection:
            number = self._held(connection, claim)
            connection.execute(update(runs).where(runs.c.number == number).values(step=int(step)))
            if not given:
                return
            keys = self._key_numbers(connection, {key for _, key, _ in given})
            connection.execute(
                _RECORD,
                [{"run": number, "key": keys[key], "step": int(at), "value": _real(value)} for at, key, value in given],
            )
        # Only now: before the commit a new key might never come to be.
        self._keys.update(keys)

    def beat(self, pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Record a sign of life of attempts (run id, attempt). Returns those that no longer hold their run."""
        now = _now()
        lost = []
        with self._writing(self._measures) as connection:
            for run_id, n in pairs:
                number = (
                    select(runs.c.number)
                    .where(runs.c.id == run_id, runs.c.attempt == n, runs.c.state == "running")
                    .scalar_subquery()
                )
                beaten = connection.execute(
                    update(attempts).where(attempts.c.run == number, attempts.c.n == n).values(heartbeat_at=now)
                )
                if not beaten.rowcount:
                    lost.append((run_id, n))
        return lost

    def saving(self, claim: Claim, step: int, path: str) -> int:
        """Announce a checkpoint before its first byte is written; returns its id. `path` is below the runs folder."""
        with self._writing(self._states) as connection:
            number = self._held(connection, claim)
            row = {"run": number, "attempt": claim.attempt, "step": step, "state": "saving", "path": path}
            return int(connection.execute(insert(checkpoints).values(row).returning(checkpoints.c.id)).scalar_one())

    def committed(self, claim: Claim, checkpoint: int, size: int, sha256: str) -> None:
        """Call a checkpoint of this attempt whole: all its `size` bytes are on the disk."""
        with self._writing(self._states) as connection:
            number = self._held(connection, claim)
            changed = connection.execute(
                update(checkpoints)
                .where(
                    checkpoints.c.id == checkpoint,
                    checkpoints.c.run == number,
                    checkpoints.c.attempt == claim.attempt,
                    checkpoints.c.state == "saving",
                )
                .values(state="committed", bytes=size, sha256=sha256)
            )
            if not changed.rowcount:
                raise ValueError(f"checkpoint {checkpoint} is not one that attempt {claim.attempt} is saving")

    def forget(self, claim: Claim, ids: Iterable[int]) -> None:
        """Delete rows of checkpoints of this run, of earlier attempts too. Ids that are not there are fine."""
        with self._writing(self._states) as connection:
            number = self._held(connection, claim)
            connection.execute(delete(checkpoints).where(checkpoints.c.run == number, _among(checkpoints.c.id, ids)))

    def describe(
        self,
        claim: Claim,
        *,
        parameters: int | None = None,
        data_sha256: str | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> None:
        """Add what the worker found out to the run, and `environment` to that of its attempt. None changes nothing."""
        given = {"parameters": parameters, "data_sha256": data_sha256}
        found = {name: value for name, value in given.items() if value is not None}
        with self._writing(self._states) as connection:
            number = self._held(connection, claim)
            if found:
                connection.execute(update(runs).where(runs.c.number == number).values(found))
            if environment:
                mine = and_(attempts.c.run == number, attempts.c.n == claim.attempt)
                known = connection.execute(select(attempts.c.environment).where(mine)).scalar_one()
                merged = {**_unpack(known), **environment}
                connection.execute(update(attempts).where(mine).values(environment=_pack(merged), code=_code(merged)))

    def finish(
        self,
        claim: Claim,
        state: str,
        *,
        result: Mapping[str, float] | None = None,
        error: str | None = None,
        parameters: int | None = None,
        reason: str | None = None,
        step: int | None = None,
    ) -> None:
        """End the attempt and the run with it: "done", "diverged", "failed" or "interrupted".

        `reason` is why the attempt ended, the state by default; `error` is the traceback of a failed run. Results may
        hold NaN and infinities. A run that is done or has diverged never changes again.
        """
        if state not in _ENDS:
            raise ValueError(f"a run ends as one of {', '.join(_ENDS)}, not {state!r}")
        now = _now()
        changes: dict[str, Any] = {"state": state, "error": _clean(error)}
        if state != "interrupted":
            changes["finished_at"] = now
        if result is not None:
            changes["result"] = _pack({key: _json_number(value) for key, value in result.items()})
        if parameters is not None:
            changes["parameters"] = parameters
        if step is not None:
            changes["step"] = step
        why = _clean(reason) or state
        with self._writing(self._states) as connection:
            number = self._held(connection, claim)
            connection.execute(update(runs).where(runs.c.number == number).values(changes))
            connection.execute(
                update(attempts)
                .where(attempts.c.run == number, attempts.c.n == claim.attempt)
                .values(ended_at=now, reason=why)
            )
            # The event keeps the traceback when the run is tried again and its error makes room for the next.
            _note(connection, now, state, error or why, run=number, attempt=claim.attempt)

    def event(
        self, kind: str, text: str, *, run: str | None = None, attempt: int | None = None, ladder: str | None = None
    ) -> int:
        """Write down that something happened, to a run (id), an attempt of it, or a ladder (key). Returns its number.

        The ledger itself writes "running", "done", "diverged", "failed" and "interrupted".
        """
        with self._writing(self._measures) as connection:
            number = None if run is None else self._run_number(connection, run)
            rungs = None if ladder is None else self._ladder_number(connection, ladder)
            return _note(connection, _now(), kind, text, run=number, attempt=attempt, ladder=rungs)

    def drop_checkpoints(self, ids: Iterable[int]) -> list[int]:
        """Delete rows of checkpoints, but for those of running runs. Returns the ids that went."""
        idle = select(runs.c.number).where(runs.c.state != "running")
        with self._writing(self._states) as connection:
            gone = connection.execute(
                delete(checkpoints)
                .where(_among(checkpoints.c.id, ids), checkpoints.c.run.in_(idle))
                .returning(checkpoints.c.id)
            )
            return sorted(gone.scalars())

    # What people say of them

    def tag(self, run_id: str, names: Iterable[str], *, remove: bool = False) -> Run:
        """Give a run tags, or take them from it; what it has already, or has not, is fine."""
        with self._writing(self._states) as connection:
            number = self._run_number(connection, run_id)
            rows = [{"run": number, "name": name} for name in names]
            if remove:
                gone = [row["name"] for row in rows]
                connection.execute(delete(tags).where(tags.c.run == number, _among(tags.c.name, gone)))
            elif rows:
                connection.execute(upsert(tags).on_conflict_do_nothing(), rows)
            return _load(connection, runs.c.number == number)[0]

    def annotate(self, run_id: str, text: str) -> None:
        """Write a note on a run: an event of kind "note"."""
        with self._writing(self._states) as connection:
            _note(connection, _now(), "note", text, run=self._run_number(connection, run_id))

    def exclude(self, run_id: str, why: str | None) -> Run:
        """Leave a run out of every report, or no longer where `why` is None; an event tells of each change."""
        now = _now()
        with self._writing(self._states) as connection:
            number = self._run_number(connection, run_id)
            before = _load(connection, runs.c.number == number)[0]
            if why is None:
                connection.execute(delete(exclusions).where(exclusions.c.run == number))
            else:
                row = {"run": number, "why": _clean(why), "time": now}
                connection.execute(upsert(exclusions).values(row).on_conflict_do_update(set_=row))
            after = _load(connection, runs.c.number == number)[0]
            if after != before:
                _note(connection, now, "included" if why is None else "excluded", why or "", run=number)
            return after

    # Reading

    def ladders(self) -> list[Ladder]:
        """All ladder instances, oldest first."""
        return self.find_ladders()

    def find_ladders(self, name: str | None = None, task: str | None = None) -> list[Ladder]:
        """The instances of a ladder, or on a task, oldest first."""
        wanted = select(ladders).order_by(ladders.c.id)
        if name is not None:
            wanted = wanted.where(ladders.c.name == name)
        if task is not None:
            wanted = wanted.where(ladders.c.task == task)
        with self._reading() as connection:
            return [_ladder(row) for row in connection.execute(wanted)]

    def ladder(self, key: str) -> Ladder:
        """The ladder instance of a key, or of the only key that begins so. Raises NotFoundError."""
        with self._reading() as connection:
            found = _by_prefix(connection, select(ladders), ladders.c.key, key, "ladder instance")
            return _ladder(connection.execute(select(ladders).where(ladders.c.key == found)).one())

    def runs(
        self,
        ladder_key: str | None = None,
        limit: int | None = None,
        superseded: bool = False,
        ids: Iterable[str] | None = None,
        *,
        resultless: bool = False,
        brief: bool = False,
    ) -> list[Run]:
        """Runs with all their memberships, newest first; `superseded` includes those that were started over.

        `ids` are exact; those that are not there are left out. `resultless` leaves out those that have a result.
        `brief` leaves config, execution, provenance and code empty, which is most of the work for thousands of runs.
        """
        with self._reading() as connection:
            wanted: list[ColumnElement[bool]] = [] if superseded else [runs.c.superseded == 0]
            if ladder_key is not None:
                ladder = self._ladder_number(connection, ladder_key)
                wanted.append(runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)))
            if ids is not None:
                wanted.append(_among(runs.c.id, ids))
            if resultless:
                wanted.append(runs.c.result.is_(None))
            return _load(connection, and_(true(), *wanted), limit, brief=brief)

    def number_of_runs(self) -> int:
        """How many runs there are, those that were started over too."""
        with self._reading() as connection:
            return int(connection.execute(select(func.count()).select_from(runs)).scalar_one())

    def run(self, prefix: str) -> Run:
        """The run of an id, or of the only id that begins so. Raises NotFoundError."""
        with self._reading() as connection:
            found = _by_prefix(connection, select(runs), runs.c.id, prefix, "run")
            return _load(connection, runs.c.id == found)[0]

    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts at a run, first to last. Raises NotFoundError, as all that ask for a run do."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            found = connection.execute(select(attempts).where(attempts.c.run == number).order_by(attempts.c.n))
            return [_attempt(run_id, row) for row in found]

    def newest_attempts(self, run_ids: Iterable[str]) -> dict[str, Attempt]:
        """Run id -> the newest attempt at it. Runs without an attempt are left out."""
        newest = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
        wanted = select(runs.c.id, attempts).join(runs, newest).where(_among(runs.c.id, run_ids))
        with self._reading() as connection:
            return {row.id: _attempt(row.id, row) for row in connection.execute(wanted)}

    def checkpoints(self, run_id: str, state: str | None = None) -> list[Checkpoint]:
        """The checkpoints of a run, of one state or of both, newest step first."""
        table = checkpoints
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            wanted = select(table).where(table.c.run == number).order_by(table.c.step.desc(), table.c.id.desc())
            if state is not None:
                wanted = wanted.where(table.c.state == state)
            return [
                Checkpoint(
                    id=row.id,
                    run=run_id,
                    attempt=row.attempt,
                    step=row.step,
                    state=row.state,
                    path=row.path,
                    bytes=row.bytes,
                    sha256=row.sha256,
                )
                for row in connection.execute(wanted)
            ]

    def metrics(self, run_id: str, keys: Iterable[str] | None = None) -> dict[str, list[tuple[int, float]]]:
        """Key -> [(step, value), ...] by step. Keys without a row are left out."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            names = select(metric_keys.c.id, metric_keys.c.name).order_by(metric_keys.c.name)
            if keys is not None:
                names = names.where(_among(metric_keys.c.name, keys))
            curves = {}
            for key, name in connection.execute(names).all():
                curve = connection.execute(_CURVE, {"run": number, "key": key}).all()
                if curve:
                    curves[name] = [(at, _float(value)) for at, value in curve]
            return curves

    def latest(self, run_ids: Iterable[str], keys: Iterable[str]) -> dict[str, dict[str, tuple[int, float]]]:
        """Run id -> key -> (step, value) of the last row. Runs and keys without a row are left out."""
        key = bindparam("key", type_=Integer)
        later = metrics.alias("later")
        last = (
            select(func.max(later.c.step))
            .where(later.c.run == runs.c.number, later.c.key == key)
            .correlate(runs)
            .scalar_subquery()
        )
        match = and_(metrics.c.run == runs.c.number, metrics.c.key == key, metrics.c.step == last)
        # One statement a key: with the key given, every row is found by the whole primary key.
        wanted = (
            select(runs.c.id, metrics.c.step, metrics.c.value)
            .select_from(runs.join(metrics, match))
            .where(_among(runs.c.id, run_ids))
        )
        found: dict[str, dict[str, tuple[int, float]]] = {}
        with self._reading() as connection:
            names = select(metric_keys.c.id, metric_keys.c.name).where(_among(metric_keys.c.name, keys))
            for number, name in connection.execute(names).all():
                for run_id, step, value in connection.execute(wanted, {"key": number}):
                    found.setdefault(run_id, {})[name] = (step, _float(value))
        return found

    def events(
        self, after: int = 0, ladder_key: str | None = None, run: str | None = None, limit: int | None = None
    ) -> list[Event]:
        """Events with a number above `after`, oldest first; with `limit` the newest so many of them.

        Those of a ladder are its own and those of its runs.
        """
        wanted = (
            select(events, runs.c.id.label("run_id"))
            .outerjoin(runs, runs.c.number == events.c.run)
            .where(events.c.id > after)
            .order_by(events.c.id.desc() if limit is not None else events.c.id)
            .limit(limit)
        )
        with self._reading() as connection:
            if ladder_key is not None:
                ladder = self._ladder_number(connection, ladder_key)
                members = select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)
                wanted = wanted.where(or_(events.c.ladder == ladder, events.c.run.in_(members)))
            if run is not None:
                wanted = wanted.where(events.c.run == self._run_number(connection, run))
            found = [
                Event(id=row.id, run=row.run_id, attempt=row.attempt, time=row.time, kind=row.kind, text=row.text)
                for row in connection.execute(wanted)
            ]
        return found[::-1] if limit is not None else found

    def standings(self, ladder_key: str) -> list[Standing]:
        """The runs of a ladder by rung, stage and state, in the order of the ladder.

        Those that were started over are left out. One statement: a ladder may have thousands of runs.
        """
        before = ladder_runs.alias("before")
        earlier = exists().where(
            before.c.ladder == ladder_runs.c.ladder, before.c.run == ladder_runs.c.run, before.c.id < ladder_runs.c.id
        )
        last_loss = (
            select(metrics.c.value)
            .where(metrics.c.run == runs.c.number)
            .where(
                metrics.c.key == select(metric_keys.c.id).where(metric_keys.c.name == "train/loss").scalar_subquery()
            )
            .order_by(metrics.c.step.desc())
            .limit(1)
            .correlate(runs)
            .scalar_subquery()
        )
        wanted = (
            select(
                ladder_runs.c.rung,
                ladder_runs.c.stage,
                func.min(ladder_runs.c.position),
                runs.c.state,
                func.count(),
                func.count().filter(~earlier),
                func.count().filter(runs.c.result.is_(None)),
                func.total(runs.c.step),  # which does not overflow, whatever a ledger says
                func.total(runs.c.steps),
                func.avg(last_loss),
                func.avg(_of_result("val/accuracy")),
                func.json_group_array(_of_result("machine/steps_per_second")),
            )
            .select_from(ladder_runs.join(runs, runs.c.number == ladder_runs.c.run))
            .where(runs.c.superseded == 0)
            .group_by(ladder_runs.c.rung, ladder_runs.c.stage, runs.c.state)
            .order_by(func.min(ladder_runs.c.position))
        )
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            found = connection.execute(wanted.where(ladder_runs.c.ladder == ladder)).all()
        return [
            Standing(
                rung=rung,
                stage=stage,
                position=position,
                state=state,
                count=count,
                first=first,
                resultless=resultless,
                step=int(step),
                steps=int(steps),
                loss=loss,
                score=score,
                speeds=tuple(speed for speed in json.loads(speeds) if speed is not None),
            )
            for rung, stage, position, state, count, first, resultless, step, steps, loss, score, speeds in found
        ]

    def check(self) -> list[str]:
        """What is wrong with the file, one sentence each; empty when nothing is."""
        with self._reading() as connection:
            problems = [
                f"the file is damaged: {row[0]}"
                for row in connection.exec_driver_sql("PRAGMA integrity_check")
                if row[0] != "ok"
            ]
            for table, rowid, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
                problems.append(f"a row of {table} ({rowid}) refers to a row of {parent} that is not there")
            for run_id, state in connection.execute(select(runs.c.id, runs.c.state).where(runs.c.state.not_in(STATES))):
                problems.append(f"run {run_id} is in an unknown state, {state!r}")
            current = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
            for run_id, state, n, ended in connection.execute(
                select(runs.c.id, runs.c.state, attempts.c.n, attempts.c.ended_at).outerjoin(attempts, current)
            ):
                if state == "running" and (n is None or ended is not None):
                    problems.append(f"run {run_id} is running without an open attempt")
                elif state != "running" and n is not None and ended is None:
                    problems.append(f"run {run_id} is {state}, but its attempt {n} is open")
            for column in _JSON:
                bad = select(func.count()).where(column.is_not(None), func.json_valid(cast(column, Text)) == 0)
                if count := connection.execute(bad).scalar_one():
                    problems.append(f"{_count(count, 'row')} of {column.table.name} hold no JSON in {column.name}")
            there = {row[0] for row in connection.exec_driver_sql("SELECT name FROM sqlite_master")}
            indexes = {str(index.name) for table in metadata.tables.values() for index in table.indexes}
            for name in sorted(({*metadata.tables, *TRIGGERS} | indexes) - there):
                problems.append(f"{name} is missing from the schema")
            return problems

    # Inside a transaction

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with files.plain_words(self.path, self._timeout), self._reads.begin() as connection:
            yield connection

    def _begin(self, connection: Connection) -> None:
        how = connection.get_execution_options().get("lrurun_begin", "BEGIN IMMEDIATE")
        if self.waiting is None or how == "BEGIN":
            connection.exec_driver_sql(how)
            return
        began = time.monotonic()
        raw = typing.cast(sqlite3.Connection, connection.connection.dbapi_connection)
        # SQLite waits without a look at signals, so it is asked to wait a little, again and again.
        raw.execute(f"PRAGMA busy_timeout={int(1000 * min(GLANCE, self._timeout))}")
        try:
            while True:
                try:
                    raw.execute(how)
                    return
                except sqlite3.OperationalError as error:
                    waited = time.monotonic() - began
                    if not files.busy(error) or waited >= self._timeout:
                        raise
                self.waiting(waited)
        finally:
            raw.execute(f"PRAGMA busy_timeout={int(1000 * self._timeout)}")

    @contextlib.contextmanager
    def _writing(self, engine: Engine) -> Iterator[Connection]:
        if self.read_only:
            raise LrurunError(f"the ledger {self.path} was opened for reading only")
        with files.plain_words(self.path, self._timeout), engine.begin() as connection:
            yield connection

    def _held(self, connection: Connection, claim: Claim) -> int:
        """The number of the claimed run; its worker counts as seen.

        Raises Fenced unless the attempt is the run's newest and running.
        """
        number = connection.execute(_HELD, {"id": claim.run.id, "n": claim.attempt}).scalar_one_or_none()
        if number is None:
            raise Fenced(
                f"attempt {claim.attempt} at run {claim.run.id} no longer holds it",
                "another process went on with the run; this one stops and has changed nothing",
            )
        connection.execute(_SEEN, {"of": number, "number": claim.attempt, "now": _now()})
        return int(number)

    def _key_numbers(self, connection: Connection, names: set[str]) -> dict[str, int]:
        known = {name: self._keys[name] for name in names if name in self._keys}
        unknown = sorted(names - known.keys())
        if unknown:
            connection.execute(
                upsert(metric_keys).on_conflict_do_nothing(index_elements=[metric_keys.c.name]),
                [{"name": name} for name in unknown],
            )
            for key, name in connection.execute(
                select(metric_keys.c.id, metric_keys.c.name).where(_among(metric_keys.c.name, unknown))
            ):
                known[name] = key
        return known

    def _run_number(self, connection: Connection, run_id: str) -> int:
        number = connection.execute(select(runs.c.number).where(runs.c.id == run_id)).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no run {run_id!r} in {self.path}", "see `lrurun runs`")
        return int(number)

    def _ladder_number(self, connection: Connection, key: str) -> int:
        number = connection.execute(select(ladders.c.id).where(ladders.c.key == key)).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"no ladder instance {key!r} in {self.path}", "see `lrurun status`")
        return int(number)


_JSON = (ladders.c.spec, runs.c.config, runs.c.execution, runs.c.provenance, runs.c.result, attempts.c.environment)

_HELD = select(runs.c.number).where(
    runs.c.id == bindparam("id"), runs.c.attempt == bindparam("n"), runs.c.state == "running"
)

_SEEN = (
    update(attempts)
    .where(attempts.c.run == bindparam("of"), attempts.c.n == bindparam("number"))
    .values(seen_at=bindparam("now"))
)

_CURVE = (
    select(metrics.c.step, metrics.c.value)
    .where(metrics.c.run == bindparam("run"), metrics.c.key == bindparam("key"))
    .order_by(metrics.c.step)
)

_PLACE = upsert(ladder_runs)
_PLACE = _PLACE.on_conflict_do_update(
    index_elements=["ladder", "run", "rung", "stage"], set_={"position": _PLACE.excluded.position}
)

_RECORD = upsert(metrics)
_RECORD = _RECORD.on_conflict_do_update(index_elements=["run", "key", "step"], set_={"value": _RECORD.excluded.value})


def _now() -> float:
    """The ledger's clock, in seconds since 1970: for a file that of the machine that opens it."""
    return time.time()


def _among(column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
    # One parameter for any number of values: the statement is prepared once, and SQLite's limit is never met.
    return column.in_(select(func.json_each(json.dumps(list(values))).table_valued("value").c.value))


def _abandoned(connection: Connection, here: Owner, alive: Callable[[Owner], bool], timeout: float) -> list[Row[Any]]:
    """The running runs whose owner is gone, with their attempts; see `Ledger.reap`."""
    running = connection.execute(
        select(runs.c.number, runs.c.id, attempts)
        .join(attempts, and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt))
        .where(runs.c.state == "running")
    )
    now = _now()
    return [row for row in running if _gone(_owner(row), row.heartbeat_at, here, alive, now, timeout)]


def _gone(
    owner: Owner, heartbeat_at: float, here: Owner, alive: Callable[[Owner], bool], now: float, timeout: float
) -> bool:
    if owner.host == here.host and owner.boot != here.boot:
        return True
    if owner.host == here.host and owner.namespace == here.namespace:
        return not alive(owner)
    return now - heartbeat_at > timeout


def _owner(row: Row[Any]) -> Owner:
    return Owner(host=row.host, boot=row.boot, namespace=row.namespace, pid=row.pid, pid_started=row.pid_started)


def _note(
    connection: Connection,
    now: float,
    kind: str,
    text: str,
    *,
    run: int | None = None,
    attempt: int | None = None,
    ladder: int | None = None,
) -> int:
    row = {"run": run, "attempt": attempt, "ladder": ladder, "time": now, "kind": kind, "text": _clean(text)}
    return int(connection.execute(insert(events).values(row).returning(events.c.id)).scalar_one())


def _newest(connection: Connection, fingerprints: Iterable[str]) -> dict[str, Any]:
    """Fingerprint -> the run of its newest generation."""
    found = connection.execute(select(runs).where(_among(runs.c.fingerprint, fingerprints)).order_by(runs.c.generation))
    return {row.fingerprint: row for row in found}


def _new_run(want: Wanted, generation: int, now: float) -> dict[str, Any]:
    name = want.fingerprint.removeprefix("sha256:")[:12]
    return {
        "id": name if generation == 1 else f"{name}-{generation}",
        "fingerprint": want.fingerprint,
        "generation": generation,
        "superseded": 0,
        "task": want.task,
        "seed": want.seed,
        "state": "queued",
        "attempt": 0,
        "step": 0,
        "steps": want.steps,
        "config": _pack(want.config),
        "execution": _pack(want.execution),
        "provenance": _pack(want.provenance),
        "created_at": now,
    }


def _by_prefix(connection: Connection, rows: Select[Any], column: ColumnElement[str], prefix: str, what: str) -> str:
    """The only value of `column` that is or begins with `prefix`."""
    text = prefix.strip().lower()
    names = rows.with_only_columns(column)
    if connection.execute(names.where(column == text)).first() is not None:
        return text
    # A range rather than LIKE: it uses the index and knows no wildcards.
    matches = names.where(column >= text, column < text + "\U0010ffff").order_by(column).limit(6)
    found = connection.execute(matches).scalars().all()
    listing = {"run": "lrurun runs", "ladder instance": "lrurun status"}[what]
    if not found or not text:
        raise NotFoundError(f"no {what} {prefix!r} in this ledger", f"see `{listing}`")
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise NotFoundError(f"{what} {prefix!r} is ambiguous", f"it begins {some}")
    return found[0]


def _ladder(row: Row[Any]) -> Ladder:
    return Ladder(
        key=row.key,
        name=row.name,
        task=row.task,
        profile=row.profile,
        spec=_spec(row.spec),
        created_at=row.created_at,
    )


_BRIEF = (
    runs.c.number,
    runs.c.id,
    runs.c.fingerprint,
    runs.c.generation,
    runs.c.superseded,
    runs.c.task,
    runs.c.seed,
    runs.c.state,
    runs.c.step,
    runs.c.steps,
    runs.c.parameters,
    runs.c.result,
    runs.c.error,
    runs.c.data_sha256,
    runs.c.created_at,
    runs.c.finished_at,
)
"""The columns of a run without its settings, in the order in which `_load` takes them."""


def _load(
    connection: Connection, wanted: ColumnElement[bool], limit: int | None = None, *, brief: bool = False
) -> list[Run]:
    """The runs that fulfil `wanted`, newest first: a handful of statements, however many they are."""
    columns = _BRIEF if brief else (*_BRIEF, runs.c.config, runs.c.execution, runs.c.provenance)
    found = connection.execute(select(*columns).where(wanted).order_by(runs.c.number.desc()).limit(limit)).all()
    if not found:
        return []
    numbers = [row.number for row in found]
    known = {
        row.id: (row.name, row.key, row.task, row.profile)
        for row in connection.execute(
            select(ladders.c.id, ladders.c.name, ladders.c.key, ladders.c.task, ladders.c.profile)
        )
    }
    places: dict[int, list[Membership]] = {}
    for run, ladder, rung, stage, position in connection.execute(
        select(ladder_runs.c.run, ladder_runs.c.ladder, ladder_runs.c.rung, ladder_runs.c.stage, ladder_runs.c.position)
        .where(_among(ladder_runs.c.run, numbers))
        .order_by(ladder_runs.c.id)
    ).all():
        name, key, task, profile = known[ladder]
        places.setdefault(run, []).append(
            Membership(
                ladder=name, ladder_key=key, task=task, profile=profile, rung=rung, stage=stage, position=position
            )
        )
    codes: dict[int, dict[str, None]] = {}
    versions = (
        select(attempts.c.run, attempts.c.code)
        .where(_among(attempts.c.run, numbers), attempts.c.code.is_not(None))
        .order_by(attempts.c.run, attempts.c.n)
    )
    for run, code in () if brief else connection.execute(versions):
        codes.setdefault(run, {})[code] = None
    marks: dict[int, list[str]] = {}
    for run, name in connection.execute(
        select(tags.c.run, tags.c.name).where(_among(tags.c.run, numbers)).order_by(tags.c.run, tags.c.name)
    ):
        marks.setdefault(run, []).append(name)
    whys = select(exclusions.c.run, exclusions.c.why).where(_among(exclusions.c.run, numbers))
    out = {row.run: row.why for row in connection.execute(whys)}
    return [
        Run(
            id=id_,
            fingerprint=fingerprint,
            generation=generation,
            superseded=bool(superseded),
            task=task,
            seed=seed,
            state=state,
            step=step,
            steps=steps,
            parameters=parameters,
            config={} if brief else _unpack(texts[0]),
            execution={} if brief else _unpack(texts[1]),
            provenance={} if brief else _sources.decode(texts[2]),
            result=None if result is None else _result(result),
            error=error,
            data_sha256=data_sha256,
            code=tuple(codes.get(number, ())),
            created_at=created_at,
            finished_at=finished_at,
            memberships=tuple(places.get(number, ())),
            tags=tuple(marks.get(number, ())),
            excluded=out.get(number),
        )
        for (
            number,
            id_,
            fingerprint,
            generation,
            superseded,
            task,
            seed,
            state,
            step,
            steps,
            parameters,
            result,
            error,
            data_sha256,
            created_at,
            finished_at,
            *texts,
        ) in found
    ]


def _of_result(key: str) -> ColumnElement[Any]:
    """A number of a run's result; null where it has none, or one that is not finite."""
    path = f'$."{key}"'
    number = func.json_type(runs.c.result, path).in_(["integer", "real"])
    return case((number, func.json_extract(runs.c.result, path)))


def _attempt(run_id: str, row: Row[Any]) -> Attempt:
    return Attempt(
        run=run_id,
        n=row.n,
        host=row.host,
        boot=row.boot,
        namespace=row.namespace,
        pid=row.pid,
        pid_started=row.pid_started,
        started_at=row.started_at,
        heartbeat_at=row.heartbeat_at,
        seen_at=row.seen_at,
        ended_at=row.ended_at,
        reason=row.reason,
        resumed_from=row.resumed_from,
        environment=_unpack(row.environment),
    )


def _code(environment: Mapping[str, Any]) -> str | None:
    """The code version of an environment in one text, None where it has none."""
    code = environment.get("code")
    if not isinstance(code, Mapping):
        return None if code is None else str(code)
    words = [f"lrurun {code['lrurun']}"] if "lrurun" in code else []
    if "commit" in code:
        words.append(f"commit {code['commit'][:12]}")
    if "dirty" in code:
        words.append(f"changes {code['dirty'].removeprefix('sha256:')[:12]}")
    return ", ".join(words) or None


def _pack(table: Mapping[str, Any]) -> str:
    # Surrogates, which undecodable file names bring, become escapes; JSON has no NaN, and `json` must not invent one.
    return json.dumps(table, separators=(",", ":"), allow_nan=False)


_decoder = msgspec.json.Decoder(dict[str, Any])
_unpack = _decoder.decode


def _json_number(value: float) -> float | str:
    """A number as JSON can hold it: NaN and infinities as the words that `float` reads."""
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


_sources = msgspec.json.Decoder(dict[str, str])
_numbers = msgspec.json.Decoder(dict[str, int | float])
_results = msgspec.json.Decoder(dict[str, int | float | Literal["nan", "inf", "-inf"]])


class _Spec(msgspec.Struct):
    """What readers rely on in the words of a ladder instance."""

    set: dict[str, Any] = {}
    tune: bool = False


def _spec(text: str) -> dict[str, Any]:
    spec = _unpack(text)
    msgspec.convert(spec, _Spec)
    return spec


def _result(text: str) -> dict[str, float]:
    try:
        return _numbers.decode(text)
    except msgspec.ValidationError:  # NaN and infinities are words
        found = _results.decode(text)
        return {key: float(value) if isinstance(value, str) else value for key, value in found.items()}


def _real(value: float) -> float | None:
    number = float(value)
    return None if number != number else number


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def _clean(text: str | None) -> str | None:
    """Text that SQLite can store: lone surrogates replaced."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
