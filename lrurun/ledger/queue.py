"""The queue of a ledger: runs are requested, given to workers, which hold them, and queued again."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs
from sqlalchemy import (
    Connection,
    Row,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    insert,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import FixedExecution, RunKind
from lrurun.errors import LaterVersionError, LrurunError, plural
from lrurun.ledger.database.schema import ENVIRONMENT, EXECUTION, SOURCES, attempts, ladder_runs, ladders, runs
from lrurun.ledger.database.sql import ENQUEUE, among, among_given, json_number, lock, now, upsert
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.heartbeat import same_machine
from lrurun.ledger.names import give_name
from lrurun.ledger.owner import user
from lrurun.ledger.rows import (
    Document,
    add_event,
    build_attempt,
    code_version,
    ladder_instance,
    load_runs,
    numbered,
    pack,
    share,
    unpack,
)
from lrurun.ledger.values import Attempt, HeldRun, LadderInstance, Owner, Run, instance_key

if TYPE_CHECKING:
    from lrurun.config.runs import PlannedRun


class Queue(Handle):
    """Ladder instances and their runs: what is requested, and who gets which run."""

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
        others: Sequence[str] = (),
        chosen: str | None = None,
    ) -> LadderInstance:
        """The ladder instance of these values; it is inserted if it is new.

        A new instance gets the short name; if another one has it, the first free one of `others`, and then the short
        name with -2, -3. With `chosen`, a new or known one gets that.

        Raises:
            UsageError: another instance has the `chosen` name.
        """
        key = instance_key(name, task, profile, spec)
        row: dict[str, Any] = {"key": key, "name": name, "task": task, "profile": profile, "kind": kind}
        query = select(ladders).where(ladders.c.key == key)
        with self._writing() as connection:
            row |= {"spec": pack(spec.table), "created_at": now(connection), "user": user()}
            if chosen is not None:
                give_name(connection, key, chosen, f"--name {chosen}")
                if (instance := connection.execute(query).one_or_none()) is not None:
                    return ladder_instance(instance)
            proposed = chosen or short_name or task
            for free_name in itertools.chain([proposed], others, numbered(proposed)):
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
            if run.kind == "imported":
                raise ValueError(f"the run {run.fingerprint} was made elsewhere: it is imported, and never queued")
            first.setdefault(run.fingerprint, run)
        with self._writing() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            lock(connection, ENQUEUE)
            existing = newest_generations(connection, first)
            for fingerprint in first:
                tried.setdefault(fingerprint, existing[fingerprint].generation if fingerprint in existing else 0)
            # In the order of the request: their new memberships get numbers, and the queue's order, from it.
            old = {f: existing[f] for f in first if f in existing and existing[f].generation == tried[f]}
            superseded = {f: row for f, row in old.items() if fresh and row.state != "queued"}
            _refuse_running(superseded.values())
            new = [run for f, run in first.items() if f not in existing or f in superseded]
            if new:
                _add_runs(connection, new, existing)
            for fingerprint, row in existing.items():
                if fingerprint not in superseded:
                    _set_execution(connection, row, first[fingerprint])
            numbers = {f: row.number for f, row in newest_generations(connection, first).items()}
            for fingerprint, row in superseded.items():
                _supersede(connection, row.number, numbers[fingerprint])
            memberships = [
                {
                    "ladder": ladder,
                    "run": numbers[run.fingerprint],
                    "rung": run.rung,
                    "stage": run.stage,
                    "position": run.position,
                }
                for run in planned
            ]
            if memberships:
                add_memberships(connection, memberships)
            loaded = {run.fingerprint: run for run in load_runs(connection, among(runs.c.number, numbers.values()))}
            return [loaded[fingerprint] for fingerprint in first]

    @retried
    def requeue(self, run_ids: Iterable[str]) -> int:
        """Queue interrupted and failed runs again; runs in other states, and imported ones, stay as they are.

        Returns how many changed.
        """
        unfinished = runs.c.state.in_(["interrupted", "failed"])
        with self._writing() as connection:
            return connection.execute(
                update(runs)
                .where(among(runs.c.id, run_ids), unfinished, runs.c.superseded == 0, runs.c.kind != "imported")
                .values(state="queued", error=None, finished_at=None)
            ).rowcount

    @retried
    def unlink(self, ladder_key: str, run_ids: Iterable[str], rung: str, stage: str) -> int:
        """Remove runs from one rung and stage of a ladder; the runs themselves stay. Returns how many were removed."""
        with self._writing() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            chosen = select(runs.c.number).where(among(runs.c.id, run_ids))
            table = ladder_runs.c
            return connection.execute(
                delete(ladder_runs).where(
                    table.ladder == ladder, table.rung == rung, table.stage == stage, table.run.in_(chosen)
                )
            ).rowcount

    def hold(
        self,
        ladder_key: str | Sequence[str],
        owner: Owner,
        *,
        rungs: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        threads: int | None = None,
        devices: int | None = None,
        compiled: Iterable[str] = (),
        programs: Mapping[str, Mapping[str, str]] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> HeldRun | None:
        """Give a queued run of a ladder, or of several, to a worker, which holds it in its next attempt; None if there
        is none.

        So that nothing is compiled twice, it is a run of a program in `compiled`, which the worker has; if there is
        none, of a program that no process is running; else any. Of several, the first in the order of the ladder: of
        several ladders, rung by rung.

        `rungs`, `seeds`, `threads` and `devices` (of the run's execution) limit which runs may be held; tuning runs
        have a seed of their own, which `seeds` does not limit. `programs` is ladder key -> rung -> name of its program;
        without it, a rung of any of the ladders is one program, of this name. `environment` must be JSON; its "code", a
        text or a table of "lrurun", "commit" and "dirty", is the code version shown with the run, its "numerics" the
        numerics version.

        Raises LaterVersionError if the run began with a later numerics version.
        """
        given: dict[str, Any] = {"rungs": rungs, "seeds": seeds, "threads": threads, "devices": devices}
        given = {name: value for name, value in given.items() if value is not None}
        values = {name: value if isinstance(value, int) else list(value) for name, value in given.items()}
        # Built before the transaction, so that other processes wait for less.
        statement = _holding(frozenset(given))
        given_values = {f"given_{name}": value for name, value in values.items()}
        ladder_keys = [ladder_key] if isinstance(ladder_key, str) else list(ladder_key)
        programs_of = _Programs(ladder_keys, programs or {}, frozenset(compiled))
        return self._hold(programs_of, statement, given_values, owner, dict(environment or {}), [])

    @retried
    def _hold(
        self,
        programs: _Programs,
        statement: Any,
        given: dict[str, Any],
        owner: Owner,
        environment: dict[str, Any],
        tried: list[float],
    ) -> HeldRun | None:
        """Hold a run by the statement and the values `given` to it; `tried` has the times of the tries before, and gets
        the time of this one."""
        with self._writing() as connection:
            numbers = {key: self._ladder_number(connection, key) for key in programs.ladder_keys}
            values = {**programs.values(connection, numbers), **given}
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


def add_memberships(connection: Connection, memberships: list[dict[str, Any]]) -> None:
    add = upsert(connection, ladder_runs)
    unique = ["ladder", "run", "rung", "stage"]
    connection.execute(
        add.on_conflict_do_update(index_elements=unique, set_={"position": add.excluded.position}), memberships
    )


def newest_generations(connection: Connection, fingerprints: Iterable[str]) -> dict[str, Row[Any]]:
    """Fingerprint -> the run of its newest generation, which nobody changes before the transaction ends."""
    query = select(runs, EXECUTION.label("execution"), SOURCES.label("sources")).where(
        among(runs.c.fingerprint, fingerprints)
    )
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


def id_of(fingerprint: str, generation: int) -> str:
    """The id of a run."""
    name = fingerprint.removeprefix("sha256:")[:12]
    return name if generation == 1 else f"{name}-{generation}"


def _new_run(run: PlannedRun, generation: int, time: float) -> dict[str, Any]:
    return {
        "id": id_of(run.fingerprint, generation),
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
    """Set the execution of an unfinished run to the planned one, except what its first attempt has fixed.

    A setting whose value changes has the source of its new value.
    """
    if row.state not in ("queued", "interrupted", "failed"):
        return
    before = unpack(row.execution)
    fixed = {k: v for k, v in before.items() if k in FixedExecution.__struct_fields__ and row.attempt}
    execution = Document.pack(structs.replace(planned.execution, **fixed))
    if execution.text != row.execution:
        after = unpack(execution.text)
        changed = {f"execution.{k}" for k in before | after if before.get(k) != after.get(k)}
        sources = {path: source for path, source in unpack(row.sources).items() if path not in changed}
        sources |= {path: source for path, source in planned.sources.items() if path in changed}
        texts = execution, Document.pack(sources)
        references = dict(zip(("execution_id", "provenance_id"), map(share(connection, texts).get, texts), strict=True))
        connection.execute(update(runs).where(runs.c.number == row.number).values(references))


def _supersede(connection: Connection, old: int, new: int) -> None:
    """Mark a run as superseded, and put the new one into all ladders that have the old one."""
    connection.execute(update(runs).where(runs.c.number == old).values(superseded=1))
    table = ladder_runs.c
    memberships = select(table.ladder, literal(new), table.rung, table.stage, table.position)
    connection.execute(
        insert(ladder_runs).from_select(
            ["ladder", "run", "rung", "stage", "position"], memberships.where(table.run == old).order_by(table.id)
        )
    )


_IS_RUNNING = ladder_runs.c.run.in_(select(runs.c.number).where(runs.c.state == literal_column("'running'")))
# The index has this literal.
_RUNNING_RUNGS = (
    select(ladder_runs.c.ladder, ladder_runs.c.rung)
    .distinct()
    .where(among_given(ladder_runs.c.ladder, "given_ladders"), _IS_RUNNING)
)
"""The ladders and rungs of running runs."""


class _Programs(Struct, frozen=True):
    """Which programs the rungs of some ladders have, for the statement that gives a run to a worker."""

    ladder_keys: Sequence[str]
    names: Mapping[str, Mapping[str, str]]
    """Ladder key -> rung -> its program."""
    compiled: frozenset[str]
    """The programs that the worker has."""

    def values(self, connection: Connection, numbers: Mapping[str, int]) -> dict[str, list[Any]]:
        """The values of the statement: the ladders, and their rungs whose program the worker has, or a process runs.

        Args:
            numbers: ladder key -> its number.
        """
        keys = {number: key for key, number in numbers.items()}
        rows = connection.execute(_RUNNING_RUNGS, {"given_ladders": list(keys)})
        running = {self._of(keys[row.ladder], row.rung) for row in rows}
        programs = [
            (f"{number}:{rung}", self._of(key, rung))
            for key, number in numbers.items()
            for rung in {*self.names.get(key, ()), *self.compiled, *running}
        ]
        return {
            "given_ladders": list(keys),
            "given_compiled": [rung for rung, program in programs if program in self.compiled],
            "given_running": [rung for rung, program in programs if program in running],
        }

    def _of(self, key: str, rung: str) -> str:
        return self.names.get(key, {}).get(rung, rung)


def _program_of(member: Any) -> Any:
    """The rung of a ladder in the lists of `_Programs`."""
    return cast(member.c.ladder, Text) + ":" + member.c.rung


@functools.cache
def _holding(given: frozenset[str]) -> Any:
    """The statement that gives a run to a worker, as `Queue.hold` describes, of which these limits are given."""
    member = ladder_runs
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
    program = _program_of(member)
    turn = case((among_given(program, "given_compiled"), 0), (among_given(program, "given_running"), 2), else_=1)
    queue = queue.where(among_given(member.c.ladder, "given_ladders")).order_by(turn, member.c.position, member.c.id)
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


def _already_held(connection: Connection, owner: Owner, tried: list[float]) -> HeldRun | None:
    """The run that `owner` got in one of these tries: the server gave it, although its answer was lost."""
    if not tried:
        return None
    current = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, runs.c.state == "running")
    same_process = and_(same_machine(owner), attempts.c.pid == owner.pid)
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
