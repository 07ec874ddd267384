"""What readers ask a ledger: instances, runs, attempts, checkpoints, results, curves, events and progress."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, Row, Select, and_, bindparam, exists, func, or_, select, true
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import LADDER_KINDS, Config, RunKind
from lrurun.errors import NotFoundError, nearest
from lrurun.ledger import checks, columns, progress, views
from lrurun.ledger.database.schema import (
    ENVIRONMENT,
    attempts,
    checkpoints,
    eigenvalues,
    events,
    exclusions,
    hidden,
    ladder_runs,
    ladders,
    metric_keys,
    metrics,
    removals,
    runs,
    tags,
)
from lrurun.ledger.database.sql import among, json_names, now
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.heartbeat import same_machine
from lrurun.ledger.names import present_name
from lrurun.ledger.removed import removed_error, removed_instance, removed_run
from lrurun.ledger.rows import (
    build,
    build_attempt,
    build_event,
    from_real,
    ladder_instance,
    load_runs,
    read_shared,
    recorded_config,
    unpack,
    unpack_complex,
    unpack_numbers,
)
from lrurun.ledger.values import (
    SCORE,
    Attempt,
    Checkpoint,
    Event,
    Exclusion,
    GroupMean,
    LadderInstance,
    Owner,
    RecordedCurve,
    RemainingWork,
    Run,
    StateSummary,
)
from lrurun.ledger.where.sql import in_order, where

if TYPE_CHECKING:
    from lrurun.ledger.part import Part
    from lrurun.ledger.values import ValueType
    from lrurun.ledger.where.grammar import Condition


BATCH = 1000
"""How many runs of a long list are in memory at a time."""

CURVES_AT_ONCE = 100
"""How many runs' curves are read in one transaction."""


class Reader(Handle):
    """The questions of readers. Each is one short transaction, but for long lists, which are read in parts."""

    @retried
    def ladders(
        self, name: str | None = None, task: str | None = None, *, user: str | None = None
    ) -> list[LadderInstance]:
        """The ladder instances, oldest first; `name`, `task` and `user` select a ladder, a task, a user."""
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
    def ladders_of(self, part: Part) -> list[LadderInstance]:
        """The instances of a part of the ledger, oldest first: those that are named, or all, with a run that meets the
        condition."""
        query = select(ladders).order_by(ladders.c.id)
        if part.instances:
            query = query.where(among(ladders.c.key, (instance.key for instance in part.instances)))
        if part.condition is not None:
            members = ladder_runs.join(runs, runs.c.number == ladder_runs.c.run)
            query = query.where(
                ladders.c.id.in_(select(ladder_runs.c.ladder).select_from(members).where(part.of_runs()))
            )
        with self._reading() as connection:
            return [ladder_instance(row) for row in connection.execute(query)]

    @retried
    def latest_ladder(self) -> LadderInstance | None:
        """The ladder instance of which a run was begun last; hidden ones and studies do not count."""
        query = (
            select(ladders)
            .join(ladder_runs, ladder_runs.c.ladder == ladders.c.id)
            .join(attempts, attempts.c.run == ladder_runs.c.run)
            .where(ladders.c.kind.in_(LADDER_KINDS))
            .order_by(attempts.c.started_at.desc(), ladders.c.id.desc())
        )
        if hidden.name not in self.database.lacking:
            query = query.where(ladders.c.id.not_in(select(hidden.c.ladder)))
        with self._reading() as connection:
            row = connection.execute(query.limit(1)).one_or_none()
            return None if row is None else ladder_instance(row)

    @retried
    def latest_run(self, ladder_key: str | None = None) -> str | None:
        """The id of the run that was begun last, of all or of an instance (a key)."""
        query = select(runs.c.id).join(attempts, attempts.c.run == runs.c.number).order_by(attempts.c.started_at.desc())
        with self._reading() as connection:
            if ladder_key is not None:
                number = self._ladder_number(connection, ladder_key)
                query = query.join(ladder_runs, ladder_runs.c.run == runs.c.number).where(
                    ladder_runs.c.ladder == number
                )
            return connection.execute(query.limit(1)).scalar_one_or_none()

    @retried
    def ladder(self, key: str) -> LadderInstance:
        """The ladder instance with this short name or key, or the only one whose key begins with it. Raises
        NotFoundError."""
        with self._reading() as connection:
            row = connection.execute(select(ladders).where(ladders.c.short_name == key.strip())).one_or_none()
            if row is not None:
                return ladder_instance(row)
            full_key = self._by_prefix(connection, select(ladders), ladders.c.key, key, "ladder instance")
            return ladder_instance(connection.execute(select(ladders).where(ladders.c.key == full_key)).one())

    def runs_of(self, names: Iterable[str]) -> list[Run]:
        """The runs of ladder instances, as `ladder` finds them by these names, in the order of their rungs."""
        found: dict[str, Run] = {}
        for instance in map(self.ladder, names):
            placed = [
                (min(each.position for each in run.memberships if each.ladder_key == instance.key), run.id, run)
                for run in self.runs(instance.key)
            ]
            found |= {run_id: run for _, run_id, run in sorted(placed, key=itemgetter(0, 1))}
        return list(found.values())

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
        part: Part | None = None,
    ) -> list[str]:
        """The ids of runs, superseded ones included, of a ladder (a name) and in a part, that meet a condition, in an
        order."""
        query = in_order(select(runs.c.id), sort, descending=descending, ladder=ladder)
        if part is not None:
            query = query.where(part.of_runs())
        if condition is not None:
            query = query.where(where(condition))
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
    def count_runs(self, ladder: str | None = None, *, superseded: bool = True, part: Part | None = None) -> int:
        """The number of runs, or of those in a ladder (a name) and in a part; `superseded` as in `runs`."""
        query = select(func.count()).select_from(runs)
        if part is not None:
            query = query.where(part.of_runs())
        if ladder is not None:
            query = query.where(columns.in_ladder(ladder))
        if not superseded:
            query = query.where(runs.c.superseded == 0)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    @retried
    def tagged(self) -> dict[str, list[str]]:
        """Tag -> the ids of its runs, newest first; tags in the order of the alphabet."""
        query = select(tags.c.name, runs.c.id).join(runs, runs.c.number == tags.c.run)
        by_tag: dict[str, list[str]] = {}
        with self._reading() as connection:
            for name, run in connection.execute(query.order_by(tags.c.name, runs.c.number.desc())):
                by_tag.setdefault(name, []).append(run)
        return by_tag

    @retried
    def exclusions(self) -> list[Exclusion]:
        """The runs that reports leave out, the newest exclusion first."""
        query: Select[Any] = select(runs.c.id.label("run"), exclusions.c.why, exclusions.c.time)
        query = query.join(runs, runs.c.number == exclusions.c.run)
        query = query.order_by(exclusions.c.time.desc(), runs.c.number.desc())
        with self._reading() as connection:
            return [build(Exclusion, row) for row in connection.execute(query)]

    @retried
    def names_of(self, field: Literal["instance", "ladder", "rung", "task"]) -> list[str]:
        """The names of the instances, ladders, rungs or tasks that have runs."""
        of_ladders = {"instance": ladders.c.short_name, "ladder": ladders.c.name}
        column = (of_ladders | {"rung": ladder_runs.c.rung, "task": runs.c.task})[field]
        query = select(column).distinct().order_by(column)
        if field in of_ladders:
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
    def program_settings(self) -> dict[str, ValueType]:
        """Dotted path -> the type of the values of each setting that users' programs and imported runs have here."""
        with self._reading() as connection:
            return views.program_settings(connection)

    @retried
    def run(self, prefix: str) -> Run:
        """The run with an id, or the only one whose id begins with it. Raises NotFoundError."""
        with self._reading() as connection:
            full_id = self._by_prefix(connection, select(runs), runs.c.id, prefix, "run")
            return load_runs(connection, runs.c.id == full_id)[0]

    def _by_prefix(
        self, connection: Connection, query: Select[Any], column: ColumnElement[str], prefix: str, noun: str
    ) -> str:
        """The only value of `column` that is or begins with `prefix`.

        Raises:
            NotFoundError: there is none, with what became of it if it was removed; or there are several.
        """
        try:
            return _by_prefix(connection, query, column, prefix, noun)
        except NotFoundError as error:
            if removals.name not in self.database.lacking:
                removal = removed_instance if noun == "ladder instance" else removed_run
                if (found := removal(connection, prefix.strip())) is not None:
                    raise removed_error(error.message, found) from None
            raise

    @retried
    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts of a run, in order. Raises NotFoundError, as all methods that take the id of a run."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            query = select(attempts, ENVIRONMENT.label("environment")).where(attempts.c.run == number)
            return [build_attempt(run_id, row) for row in connection.execute(query.order_by(attempts.c.n))]

    def attempts_by_run(self, run_ids: Sequence[str]) -> dict[str, list[Attempt]]:
        """Run id -> its attempts, in order, for those of the runs that have some. Read as `each` does; attempts may
        share an environment."""
        by_run: dict[str, list[Attempt]] = {}
        for start in range(0, len(run_ids), BATCH):
            for attempt in self._attempts_of_runs(run_ids[start : start + BATCH]):
                by_run.setdefault(attempt.run, []).append(attempt)
        return by_run

    @retried
    def _attempts_of_runs(self, run_ids: Sequence[str]) -> list[Attempt]:
        chosen = runs.join(attempts, attempts.c.run == runs.c.number)
        of_runs = among(runs.c.id, run_ids)
        with self._reading() as connection:
            environments = select(attempts.c.environment_id).distinct().select_from(chosen).where(of_runs)
            shared = read_shared(connection, connection.execute(environments).scalars())
            query = (
                select(runs.c.id, attempts).select_from(chosen).where(of_runs).order_by(attempts.c.run, attempts.c.n)
            )
            return [
                build(Attempt, row, run=row.id, environment=shared[row.environment_id][1])
                for row in connection.execute(query.order_by(attempts.c.run, attempts.c.n))
            ]

    @retried
    def attempts_of(self, owner: Owner) -> list[Attempt]:
        """The attempts of the processes with the owner's id on its machine, in order."""
        query = select(attempts, runs.c.id, ENVIRONMENT.label("environment")).join(
            runs, runs.c.number == attempts.c.run
        )
        query = query.where(same_machine(owner), attempts.c.pid == owner.pid).order_by(attempts.c.started_at)
        with self._reading() as connection:
            return [build_attempt(row.id, row) for row in connection.execute(query)]

    @retried
    def newest_attempts(self, run_ids: Iterable[str], *, beside: Owner | None = None) -> dict[str, Attempt]:
        """Run id -> its newest attempt; with `beside`, only attempts on the machine of that owner, whose process ids
        mean the same. Attempts may share an environment."""
        newest = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, among(runs.c.id, run_ids))
        if beside is not None:
            newest = and_(newest, same_machine(beside))
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

        The events of a ladder are about the instance itself and, with `of_runs`, about its runs too. `kind` is the
        kind of all events; None: every kind.
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
        """Rung and stage -> the remaining work of their runs; None -> the ladder's. A run counts once in each."""
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
    def work_of_several(self, ladder_keys: Sequence[str]) -> tuple[dict[str, int], RemainingWork]:
        """State -> number of runs of some ladders, and their remaining work. A run that several have counts once."""
        with self._reading() as connection:
            numbers = {"ladders": [self._ladder_number(connection, key) for key in ladder_keys]}
            counts: dict[str, int] = dict(connection.execute(progress.COUNTS_OF_SEVERAL, numbers).all())
            rows: Iterable[Row[Any]] = connection.execute(progress.REMAINING_OF_SEVERAL, numbers)
            (row,) = rows
            return counts, build(RemainingWork, row, steps=int(row.steps))

    @retried
    def clock(self) -> float:
        """The ledger's clock, by which times are recorded: seconds since 1970."""
        with self._reading() as connection:
            return now(connection)

    @retried
    def check(self) -> list[str]:
        """The faults of the ledger, one sentence each; empty if there are none."""
        return checks.problems(self.database)

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
        if (
            noun == "run"
            and connection.execute(select(ladders.c.id).where(ladders.c.short_name == prefix.strip())).first()
        ):
            hint = f"it is the name of an instance: lrurun runs --instance {prefix.strip()} lists its runs"
        if noun == "ladder instance":
            short_names = connection.execute(select(ladders.c.short_name).order_by(ladders.c.id)).scalars().all()
            suggestion = nearest(prefix, short_names)
            hint = f"did you mean {suggestion!r}? see `lrurun status`" if suggestion else "see `lrurun status`"
            if (now := present_name(connection, prefix.strip())) is not None:
                hint = f"it was renamed, and is now {now}"
        raise NotFoundError(f"no {noun} {prefix!r} in this ledger", hint)
    if len(values) > 1:
        listed = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
        raise NotFoundError(f"{noun} {prefix!r} is ambiguous", f"it is the beginning of {listed}")
    return values[0]


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
