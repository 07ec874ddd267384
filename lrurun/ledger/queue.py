"""The queue: runs are requested, claimed by a worker, and taken back from a process that has exited."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import structs
from sqlalchemy import (
    Connection,
    Integer,
    Row,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from lrurun.config.schema import FixedExecution
from lrurun.errors import LaterVersionError, LrurunError, plural
from lrurun.ledger import owner as owners
from lrurun.ledger.connection import LedgerBase, retried
from lrurun.ledger.database.schema import ENVIRONMENT, EXECUTION, attempts, ladder_runs, ladders, runs
from lrurun.ledger.database.sql import ENQUEUE, among, json_number, lock, now, server_age, upsert
from lrurun.ledger.rows import (
    Document,
    add_event,
    attempt,
    build,
    ladder_instance,
    load_runs,
    pack,
    share,
    unpack,
)
from lrurun.ledger.values import Attempt, ClaimedRun, Kind, LadderInstance, Owner, Run

if TYPE_CHECKING:
    from lrurun.config.runs import PlannedRun

HEARTBEAT_TIMEOUT = 120.0
"""Seconds without a heartbeat after which an owner on another machine counts as exited."""

RETURN_SECONDS = 30.0
"""After a server was away, the time that owners on other machines have for a heartbeat: they write one every 10 s."""

OWNER_EXITED = "interrupted: owner gone"
"""The reason of an attempt that `reap` ended."""

"""The keys of a run's execution on which results could depend: a later command cannot change them."""


class Queue(LedgerBase):
    """Requested runs, and who works on them."""

    @retried
    def add_ladder(
        self, name: str, task: str, profile: str | None, spec: Mapping[str, Any], *, kind: Kind = "training"
    ) -> LadderInstance:
        """The ladder instance of these values; it is inserted if it is new. `spec` must be JSON."""
        values = json.dumps([name, task, profile, spec], sort_keys=True, separators=(",", ":"), allow_nan=False)
        key = hashlib.sha256(values.encode()).hexdigest()[:12]
        row: dict[str, Any] = {"key": key, "name": name, "task": task, "profile": profile, "kind": kind}
        with self._writing() as connection:
            row |= {"spec": pack(spec), "created_at": now(connection), "user": owners.user()}
            connection.execute(
                upsert(connection, ladders).values(row).on_conflict_do_nothing(index_elements=[ladders.c.key])
            )
            return ladder_instance(connection.execute(select(ladders).where(ladders.c.key == key)).one())

    def enqueue(self, ladder_key: str, wanted: Sequence[PlannedRun], *, fresh: bool = False) -> list[Run]:
        """Make `wanted` the runs of a ladder, and return them: one run per fingerprint, in the order of `wanted`.

        Existing runs are used as they are, whatever their state and whichever ladder added them; others are queued.
        Unfinished runs get the execution in `wanted`, except what their first attempt has fixed.
        `fresh` starts over: existing runs are superseded and a next generation is queued, for every ladder that has
        them, except runs that are still queued. Raises LrurunError if `fresh` applies to a running run.
        """
        return self._enqueue(ladder_key, wanted, fresh, {})

    @retried
    def _enqueue(self, ladder_key: str, wanted: Sequence[PlannedRun], fresh: bool, tried: dict[str, int]) -> list[Run]:
        """`tried` gets the newest generations (0: none) before the first try: later ones are what was asked for."""
        first: dict[str, PlannedRun] = {}
        for want in wanted:
            first.setdefault(want.fingerprint, want)
        with self._writing() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            lock(connection, ENQUEUE)
            existing = _newest(connection, first)
            for fingerprint in first:
                tried.setdefault(fingerprint, existing[fingerprint].generation if fingerprint in existing else 0)
            old = {f: row for f, row in existing.items() if row.generation == tried[f]}
            superseded = {f: row for f, row in old.items() if fresh and row.state != "queued"}
            _refuse_running(superseded.values())
            new = [want for f, want in first.items() if f not in existing or f in superseded]
            if new:
                _add_runs(connection, new, existing)
            for fingerprint, row in existing.items():
                if fingerprint not in superseded:
                    _set_execution(connection, row, first[fingerprint])
            numbers = {f: row.number for f, row in _newest(connection, first).items()}
            for fingerprint, row in superseded.items():
                _supersede(connection, row.number, numbers[fingerprint])
            places = [
                {
                    "ladder": ladder,
                    "run": numbers[w.fingerprint],
                    "rung": w.rung,
                    "stage": w.stage,
                    "position": w.position,
                }
                for w in wanted
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

    def claim(
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
    ) -> ClaimedRun | None:
        """Claim a queued run of a ladder and open its next attempt; None if there is none.

        So that no program is compiled twice, it is a run of a rung in `compiled`, whose programs the worker has; if
        there is none, of a rung that no process is running; else any. Of several, the first in the order of the ladder.

        `rungs`, `seeds`, `threads` and `devices` (of the run's execution) limit which runs may be claimed; tuning runs
        have a seed of their own, which `seeds` does not limit. `environment` must be JSON; its "code", a text or a
        table of "lrurun", "commit" and "dirty", is the code version shown with the run, its "numerics" the numerics
        version.

        Raises LaterVersionError if the run began with a later numerics version.
        """
        member, place, other = ladder_runs, ladder_runs.alias("place"), runs.alias("other")
        queue = (
            select(runs.c.number)
            .join(member, member.c.run == runs.c.number)
            .where(runs.c.state == "queued", runs.c.superseded == 0)
            .limit(1)
        )
        if rungs is not None:
            queue = queue.where(among(member.c.rung, rungs))
        if seeds is not None:
            queue = queue.where(or_(member.c.stage != "train", among(runs.c.seed, seeds)))
        if threads is not None:
            queue = queue.where(json_number(EXECUTION, "threads") == threads)
        if devices is not None:  # runs of older releases do not name it
            queue = queue.where(func.coalesce(json_number(EXECUTION, "devices"), 1) == devices)
        ladder = bindparam("of_ladder", type_=Integer)
        running = select(place.c.rung).join(other, other.c.number == place.c.run)
        running = running.where(other.c.state == "running", place.c.ladder == ladder)
        turn = case((among(member.c.rung, compiled), 0), (member.c.rung.not_in(running), 1), else_=2)
        queue = queue.where(member.c.ladder == ladder).order_by(turn, member.c.position, member.c.id)
        queue = queue.with_for_update(of=runs, key_share=True, skip_locked=True)
        # Built before the transaction, so that other processes wait for less.
        claim = (
            update(runs)
            .where(runs.c.number == queue.scalar_subquery())
            .values(state="running", attempt=runs.c.attempt + 1, error=None, finished_at=None)
            .returning(runs.c.number, runs.c.attempt)
        )
        return self._claim(ladder_key, claim, owner, dict(environment or {}), [])

    @retried
    def _claim(
        self, ladder_key: str, claim: Any, owner: Owner, environment: dict[str, Any], tried: list[float]
    ) -> ClaimedRun | None:
        """Claim a run with the statement `claim`; `tried` has the times of the tries before, and gets that of this."""
        with self._writing() as connection:
            known = {"of_ladder": self._ladder_number(connection, ladder_key)}
            if (before := _claimed(connection, owner, tried)) is not None:
                return before
            claimed = connection.execute(claim, known).one_or_none()
            if claimed is None:
                return None
            if claimed.attempt > 1:
                last = and_(attempts.c.run == claimed.number, attempts.c.n == claimed.attempt - 1)
                newest = select(attempts, ENVIRONMENT.label("environment"), runs.c.id).join(runs).where(last)
                for row in connection.execute(newest):
                    refuse_later(attempt(row.id, row), environment.get("numerics", 1))
            time = now(connection)
            tried.append(time)
            _open_attempt(connection, claimed.number, claimed.attempt, owner, environment, time)
            run = load_runs(connection, runs.c.number == claimed.number)[0]
            text = f"attempt {claimed.attempt} on {owner.host}, process {owner.pid}"
            add_event(connection, time, "running", text, run=claimed.number, attempt=claimed.attempt)
            return ClaimedRun(run=run, attempt=claimed.attempt)

    @retried
    def reap(
        self, owner_here: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = HEARTBEAT_TIMEOUT
    ) -> list[Run]:
        """Mark running runs whose owner has exited as interrupted, and return them.

        An owner on this host, boot and pid namespace is looked up by pid and start time, and its heartbeat is ignored.
        In a file, an owner on this host and another boot has exited; on a server it may be on another machine of the
        same name. Any other has exited after `timeout` seconds without a heartbeat; when a server has just come back,
        it first gets the time to write one.
        """
        if not self.has_abandoned(owner_here, alive, timeout=timeout):
            return []
        with self._writing() as connection:
            time = now(connection)
            found = self._abandoned(connection, owner_here, alive, timeout, locked=True)
            for row in found:
                connection.execute(update(runs).where(runs.c.number == row.number).values(state="interrupted"))
                connection.execute(
                    update(attempts)
                    .where(attempts.c.run == row.number, attempts.c.n == row.n)
                    .values(ended_at=time, outcome="exited", reason=OWNER_EXITED)
                )
                text = f"owner exited: process {row.pid} on {row.host}"
                add_event(connection, time, "interrupted", text, run=row.number, attempt=row.n)
            return load_runs(connection, among(runs.c.number, [row.number for row in found]))

    @retried
    def has_abandoned(
        self, owner_here: Owner, alive: Callable[[Owner], bool] | None = None, *, timeout: float = HEARTBEAT_TIMEOUT
    ) -> bool:
        """Whether `reap` would find a run. Writes nothing, so that readers may ask too."""
        with self._reading() as connection:
            return bool(self._abandoned(connection, owner_here, alive, timeout))

    def _abandoned(
        self,
        connection: Connection,
        here: Owner,
        alive: Callable[[Owner], bool] | None,
        timeout: float,
        *,
        locked: bool = False,
    ) -> list[Row[Any]]:
        patience = math.inf if monotonic() - self._database.away_at < RETURN_SECONDS else timeout
        return _abandoned(
            connection, here, alive or owners.alive, patience, shared=self._database.is_shared, locked=locked
        )


def _add_places(connection: Connection, places: list[dict[str, Any]]) -> None:
    add = upsert(connection, ladder_runs)
    unique = ["ladder", "run", "rung", "stage"]
    connection.execute(
        add.on_conflict_do_update(index_elements=unique, set_={"position": add.excluded.position}), places
    )


def _newest(connection: Connection, fingerprints: Iterable[str]) -> dict[str, Row[Any]]:
    """Fingerprint -> the run of its newest generation."""
    wanted = select(runs, EXECUTION.label("execution")).where(among(runs.c.fingerprint, fingerprints))
    locked = wanted.order_by(runs.c.generation).with_for_update(of=runs, key_share=True)
    return {row.fingerprint: row for row in connection.execute(locked)}


def _refuse_running(rows: Iterable[Row[Any]]) -> None:
    running = [row.id for row in rows if row.state == "running"]
    if running:
        raise LrurunError(
            f"{plural(len(running), 'run')} cannot be started over while running: {', '.join(running[:5])}",
            "stop the other command first, or wait until it is done",
        )


def _add_runs(connection: Connection, new: Sequence[PlannedRun], existing: Mapping[str, Row[Any]]) -> None:
    settings = [(Document.of(w.config, w.seed), Document.of(w.execution), Document.of(w.sources)) for w in new]
    numbers = share(connection, itertools.chain.from_iterable(settings))
    rows = []
    time = now(connection)
    for want, texts in zip(new, settings, strict=True):
        generation = existing[want.fingerprint].generation + 1 if want.fingerprint in existing else 1
        references = dict(zip(("config_id", "execution_id", "provenance_id"), map(numbers.get, texts), strict=True))
        rows.append(_new_run(want, generation, time) | references)
    connection.execute(insert(runs), rows)


def _new_run(want: PlannedRun, generation: int, time: float) -> dict[str, Any]:
    name = want.fingerprint.removeprefix("sha256:")[:12]
    return {
        "id": name if generation == 1 else f"{name}-{generation}",
        "fingerprint": want.fingerprint,
        "generation": generation,
        "superseded": 0,
        "kind": want.kind,
        "task": want.task,
        "seed": want.seed,
        "state": "queued",
        "attempt": 0,
        "step": 0,
        "steps": want.steps,
        "created_at": time,
    }


def _set_execution(connection: Connection, row: Row[Any], want: PlannedRun) -> None:
    """Set the execution of an unfinished run to that in `want`, except what its first attempt has fixed."""
    if row.state not in ("queued", "interrupted", "failed"):
        return
    fixed = {k: v for k, v in unpack(row.execution).items() if k in FixedExecution.__struct_fields__ and row.attempt}
    execution = Document.of(structs.replace(want.execution, **fixed))
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


def _open_attempt(
    connection: Connection, run: int, n: int, owner: Owner, environment: dict[str, Any], time: float
) -> None:
    document = Document.of(environment)
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


def _claimed(connection: Connection, owner: Owner, tried: list[float]) -> ClaimedRun | None:
    """The run that `owner` claimed in one of these tries, which a server did although its answer was lost."""
    if not tried:
        return None
    current = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, runs.c.state == "running")
    this = and_(attempts.c.host == owner.host, attempts.c.boot == owner.boot, attempts.c.pid == owner.pid)
    found = connection.execute(
        select(runs.c.number, runs.c.attempt)
        .join(attempts, current)
        .where(this, attempts.c.pid_started == owner.pid_started, attempts.c.started_at.in_(tried))
    ).first()
    return (
        None
        if found is None
        else ClaimedRun(run=load_runs(connection, runs.c.number == found.number)[0], attempt=found.attempt)
    )


def refuse_later(newest: Attempt, numerics: int) -> None:
    """Checks that a program with this numerics version may continue the run of its newest attempt, or start it again.

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
    here: Owner,
    alive: Callable[[Owner], bool],
    timeout: float,
    *,
    shared: bool,
    locked: bool = False,
) -> list[Row[Any]]:
    """The running runs whose owner has exited, with their attempts; see `Queue.reap`.

    On a server, `locked` holds those that were found, and leaves out those that another transaction is changing.
    """
    running = (
        select(runs.c.number, runs.c.id, attempts)
        .join(attempts, and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt))
        .where(runs.c.state == "running")
    )
    time = now(connection)
    # Attempts that live elsewhere are not read: every node asks twice a second.
    running = running.where(or_(attempts.c.host == here.host, attempts.c.heartbeat_at < time - timeout))
    if locked:
        running = running.with_for_update(of=[runs, attempts], key_share=True, skip_locked=True)
    found = connection.execute(running).all()
    if found and server_age(connection) < RETURN_SECONDS:
        timeout = math.inf

    def silence(row: Row[Any]) -> float:
        return time - (max(row.heartbeat_at, row.seen_at) if shared else float(row.heartbeat_at))

    return [row for row in found if _exited(build(Owner, row), silence(row), here, alive, timeout, shared)]


def _exited(
    owner: Owner, silent: float, here: Owner, alive: Callable[[Owner], bool], timeout: float, shared: bool
) -> bool:
    # Machines that share a server may have the same name.
    if owner.host == here.host and owner.boot != here.boot and not shared:
        return True
    if (owner.host, owner.boot, owner.namespace) == (here.host, here.boot, here.namespace):
        return not alive(owner)
    return silent > timeout
