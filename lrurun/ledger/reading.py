"""Reading: ladder instances, runs, and what was recorded about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import Config
from lrurun.errors import NotFoundError
from lrurun.ledger import checks, columns, conditions, progress, views
from lrurun.ledger.connection import LedgerBase, retried
from lrurun.ledger.database.schema import (
    ENVIRONMENT,
    attempts,
    checkpoints,
    eigenvalues,
    events,
    ladder_runs,
    ladders,
    metric_keys,
    metrics,
    runs,
)
from lrurun.ledger.database.sql import among, json_names, now
from lrurun.ledger.rows import (
    attempt,
    build,
    event,
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
    LadderInstance,
    RemainingWork,
    Run,
    RunGroup,
    StateSummary,
)

if TYPE_CHECKING:
    from lrurun.ledger.filters import Condition

BATCH = 1000
"""How many runs of a long list are in memory at a time."""


class Reading(LedgerBase):
    """What the ledger holds. Values that are returned are frozen."""

    @retried
    def ladders(
        self, name: str | None = None, task: str | None = None, *, user: str | None = None
    ) -> list[LadderInstance]:
        """The ladder instances, oldest first; only those of a ladder, on a task or of a user if these are given."""
        wanted = select(ladders).order_by(ladders.c.id)
        if name is not None:
            wanted = wanted.where(ladders.c.name == name)
        if task is not None:
            wanted = wanted.where(ladders.c.task == task)
        if user is not None:
            wanted = wanted.where(ladders.c.user == user)
        with self._reading() as connection:
            return [ladder_instance(row) for row in connection.execute(wanted)]

    @retried
    def ladder(self, key: str) -> LadderInstance:
        """The ladder instance with a key, or the only one whose key begins with it. Raises NotFoundError."""
        with self._reading() as connection:
            found = _by_prefix(connection, select(ladders), ladders.c.key, key, "ladder instance")
            return ladder_instance(connection.execute(select(ladders).where(ladders.c.key == found)).one())

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

        `ids` and `fingerprints` are exact; unknown ones are ignored. `brief` leaves config, execution, provenance and
        code empty, which is most of the work for thousands of runs.
        """
        with self._reading() as connection:
            wanted: list[ColumnElement[bool]] = [] if superseded else [runs.c.superseded == 0]
            if ladder_key is not None:
                ladder = self._ladder_number(connection, ladder_key)
                wanted.append(runs.c.number.in_(select(ladder_runs.c.run).where(ladder_runs.c.ladder == ladder)))
            if ids is not None:
                wanted.append(among(runs.c.id, ids))
            if fingerprints is not None:
                wanted.append(among(runs.c.fingerprint, fingerprints))
            if states is not None:
                wanted.append(runs.c.state.in_(list(states)))
            return load_runs(connection, and_(true(), *wanted), limit, brief=brief)

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
        wanted = conditions.in_order(select(runs.c.id), sort, descending=descending, ladder=ladder)
        if condition is not None:
            wanted = wanted.where(conditions.where(condition))
        if ladder is not None:
            wanted = wanted.where(columns.in_ladder(ladder))
        with self._reading() as connection:
            return list(connection.execute(wanted.limit(limit)).scalars())

    def each(self, ids: Sequence[str], *, brief: bool = True) -> Iterator[Run]:
        """The runs with these ids, in this order; `brief` as in `runs`.

        They are read in batches, each in a transaction of its own: a pager that shows the first page holds no lock.
        """
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            found = {run.id: run for run in self.runs(ids=batch, superseded=True, brief=brief)}
            yield from (found[run_id] for run_id in batch if run_id in found)

    @retried
    def number_of_runs(self, ladder: str | None = None, *, superseded: bool = True) -> int:
        """How many runs there are, or how many are in a ladder (a name); `superseded` as in `runs`."""
        wanted = select(func.count()).select_from(runs)
        if ladder is not None:
            wanted = wanted.where(columns.in_ladder(ladder))
        if not superseded:
            wanted = wanted.where(runs.c.superseded == 0)
        with self._reading() as connection:
            return int(connection.execute(wanted).scalar_one())

    @retried
    def ladder_names(self) -> list[str]:
        """The names of the ladders that have runs."""
        wanted = select(ladders.c.name).distinct().where(exists().where(ladder_runs.c.ladder == ladders.c.id))
        with self._reading() as connection:
            return list(connection.execute(wanted.order_by(ladders.c.name)).scalars())

    @retried
    def result_names(self) -> list[str]:
        """The names of all metrics in the results of runs."""
        entries = json_names(runs.c.result).table_valued("key")
        wanted = select(entries.c.key).select_from(runs).join(entries, true()).distinct().order_by(entries.c.key)
        with self._reading() as connection:
            return list(connection.execute(wanted).scalars())

    @retried
    def columns_of(
        self, names: Sequence[str], ids: Collection[str] | None = None, ladder: str | None = None
    ) -> dict[str, tuple[Any, ...]]:
        """Run id -> its values of these names, see `lrurun.ledger.columns.rows`."""
        with self._reading() as connection:
            return columns.rows(connection, names, ids, ladder)

    @retried
    def groups_of(
        self,
        by: Sequence[str],
        metric_of: Mapping[str, str],
        ids: Collection[str] | None = None,
        ladder: str | None = None,
    ) -> list[RunGroup]:
        """Means of the runs with equal values of `by`, see `lrurun.ledger.columns.groups`."""
        with self._reading() as connection:
            return columns.groups(connection, by, metric_of, ids, ladder)

    @retried
    def newest_results(self) -> dict[str, list[str]]:
        """Task -> the names in the result of its newest run that has one; none if no run has."""
        newest = select(func.max(runs.c.number)).where(runs.c.result.is_not(None)).group_by(runs.c.task)
        with self._reading() as connection:
            tasks = connection.execute(select(runs.c.task).distinct()).scalars()
            known = connection.execute(select(runs.c.task, runs.c.result).where(runs.c.number.in_(newest)))
            return {**{task: [] for task in tasks}, **{task: list(unpack(result)) for task, result in known}}

    @retried
    def views(self, names: Iterable[str] = views.NAMES) -> list[views.View]:
        """The views of these names, as `lrurun query` defines them."""
        with self._reading() as connection:
            return views.views(connection, names)

    @retried
    def run(self, prefix: str) -> Run:
        """The run with an id, or the only one whose id begins with it. Raises NotFoundError."""
        with self._reading() as connection:
            found = _by_prefix(connection, select(runs), runs.c.id, prefix, "run")
            return load_runs(connection, runs.c.id == found)[0]

    @retried
    def attempts(self, run_id: str) -> list[Attempt]:
        """The attempts of a run, in order. Raises NotFoundError, as all methods that take the id of a run."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            wanted = select(attempts, ENVIRONMENT.label("environment")).where(attempts.c.run == number)
            return [attempt(run_id, row) for row in connection.execute(wanted.order_by(attempts.c.n))]

    @retried
    def attempts_of(self, host: str, pid: int) -> list[Attempt]:
        """The attempts of the processes with an id on a host, in order."""
        wanted = select(attempts, runs.c.id, ENVIRONMENT.label("environment")).join(
            runs, runs.c.number == attempts.c.run
        )
        wanted = wanted.where(attempts.c.host == host, attempts.c.pid == pid).order_by(attempts.c.started_at)
        with self._reading() as connection:
            return [attempt(row.id, row) for row in connection.execute(wanted)]

    @retried
    def newest_attempts(self, run_ids: Iterable[str], *, host: str | None = None) -> dict[str, Attempt]:
        """Run id -> its newest attempt, if `host` is None or where it is. Attempts may share an environment."""
        newest = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt, among(runs.c.id, run_ids))
        if host is not None:
            newest = and_(newest, attempts.c.host == host)
        with self._reading() as connection:
            known = select(attempts.c.environment_id).distinct().select_from(runs.join(attempts, newest))
            shared = read_shared(connection, connection.execute(known).scalars())
            return {
                row.id: build(Attempt, row, run=row.id, environment=shared[row.environment_id][1])
                for row in connection.execute(select(runs.c.id, attempts).select_from(runs.join(attempts, newest)))
            }

    @retried
    def checkpoints(self, run_id: str, state: str | None = None) -> list[Checkpoint]:
        """The checkpoints of a run, of one state or of both, newest step first."""
        table = checkpoints
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            wanted = select(table).where(table.c.run == number).order_by(table.c.step.desc(), table.c.id.desc())
            if state is not None:
                wanted = wanted.where(table.c.state == state)
            return [build(Checkpoint, row, run=run_id) for row in connection.execute(wanted)]

    def each_checkpoint(self, run_ids: Sequence[str], state: str) -> Iterator[Checkpoint]:
        """The checkpoints of runs in a state, in the order of the runs, newest step first. Read as `each` does."""
        for start in range(0, len(run_ids), BATCH):
            batch = run_ids[start : start + BATCH]
            found = self._checkpoints_of(batch, state)
            for run_id in batch:
                yield from found.get(run_id, ())

    @retried
    def _checkpoints_of(self, run_ids: Sequence[str], state: str) -> dict[str, list[Checkpoint]]:
        table = checkpoints
        wanted = select(table, runs.c.id.label("name")).join(runs, runs.c.number == table.c.run)
        wanted = wanted.where(table.c.state == state, among(runs.c.id, run_ids))
        found: dict[str, list[Checkpoint]] = {}
        with self._reading() as connection:
            for row in connection.execute(wanted.order_by(table.c.step.desc(), table.c.id.desc())):
                found.setdefault(row.name, []).append(build(Checkpoint, row, run=row.name))
        return found

    @retried
    def newest_speeds(self) -> list[tuple[Config, float]]:
        """Configuration, with any seed, and steps per second of the newest run of each that has recorded a speed;
        newest first."""
        recorded = and_(runs.c.steps_per_second.is_not(None), runs.c.superseded == 0)
        newest = select(func.max(runs.c.number).label("number")).where(recorded).group_by(runs.c.config_id).subquery()
        wanted = select(runs.c.config_id, runs.c.steps_per_second).join(newest, newest.c.number == runs.c.number)
        with self._reading() as connection:
            found = connection.execute(wanted.order_by(runs.c.number.desc())).all()
            shared = read_shared(connection, [row.config_id for row in found])
        return [(recorded_config(*shared[row.config_id]), row.steps_per_second) for row in found]

    @retried
    def metrics(self, run_id: str, keys: Iterable[str] | None = None) -> dict[str, list[tuple[int, float]]]:
        """Key -> [(step, value), ...] by step. Keys without a row are left out."""
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            names = select(metric_keys.c.id, metric_keys.c.name).order_by(metric_keys.c.name)
            if keys is not None:
                names = names.where(among(metric_keys.c.name, keys))
            curves = {}
            for key, name in connection.execute(names).all():
                curve = connection.execute(_CURVE, {"run": number, "key": key}).all()
                if curve:
                    curves[name] = [(at, from_real(value)) for at, value in curve]
            return curves

    @retried
    def stamp(self) -> tuple[int, ...]:
        """Numbers of which some change whenever something is recorded. Quick, so that viewers may ask every second."""
        with self._reading() as connection:
            return tuple(connection.execute(progress.STAMP).one())

    @retried
    def eigenvalues(self, run_id: str) -> dict[str, list[list[complex] | None]]:
        """Moment ("start", "end") -> the eigenvalues of each layer, None if its recurrence has no eigenvalues.

        Moments that were not recorded are left out.
        """
        table = eigenvalues
        found: dict[str, list[list[complex] | None]] = {}
        with self._reading() as connection:
            number = self._run_number(connection, run_id)
            wanted = select(table.c.moment, table.c.pairs).where(table.c.run == number)
            for moment, pairs in connection.execute(wanted.order_by(table.c.moment.desc(), table.c.layer)):
                found.setdefault(moment, []).append(None if pairs is None else unpack_complex(pairs))
        return found

    @retried
    def events(
        self,
        after: int = 0,
        ladder_key: str | None = None,
        run: str | None = None,
        limit: int | None = None,
        *,
        of_runs: bool = True,
    ) -> list[Event]:
        """Events with a number above `after`, oldest first; with `limit`, that many of the newest.

        The events of a ladder are its own and, with `of_runs`, those of its runs.
        """
        wanted: Select[Any] = (
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
                own = events.c.ladder == ladder
                wanted = wanted.where(or_(own, events.c.run.in_(members)) if of_runs else own)
            if run is not None:
                wanted = wanted.where(events.c.run == self._run_number(connection, run))
            found = [event(row) for row in connection.execute(wanted)]
        return found[::-1] if limit is not None else found

    @retried
    def state_summaries(self, ladder_key: str, score: str = SCORE) -> list[StateSummary]:
        """The runs of a ladder by rung, stage and state, in the order of the ladder.

        `score` is the metric that selects the model, as in "val/r2". Runs that were started over are left out. One
        statement: a ladder may have thousands of runs.
        """
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            found = connection.execute(progress.summaries(score), {"ladder": ladder}).all()
        return [
            build(
                StateSummary,
                row,
                step=int(row.step),
                steps=int(row.steps),
                speeds=unpack_numbers(row.speeds),
            )
            for row in found
        ]

    @retried
    def state_counts(self, ladder_key: str) -> dict[str, int]:
        """State -> runs of a ladder that are in it. A run in several rungs counts once."""
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            return dict(connection.execute(progress.COUNTS, {"ladder": ladder}).all())

    @retried
    def remaining_work(self, ladder_key: str) -> dict[tuple[str, str] | None, RemainingWork]:
        """Rung and stage -> the remaining work of its runs; None -> that of the ladder, where each run counts once."""
        with self._reading() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            rows: Iterable[Row[Any]] = connection.execute(progress.REMAINING_BY_RUNG, {"ladder": ladder})
            found: dict[tuple[str, str] | None, RemainingWork] = {
                (row.rung, row.stage): build(RemainingWork, row, steps=int(row.steps)) for row in rows
            }
            of_ladder: Iterable[Row[Any]] = connection.execute(progress.REMAINING, {"ladder": ladder})
            (whole,) = of_ladder
            return {**found, None: build(RemainingWork, whole, steps=int(whole.steps))}

    @retried
    def clock(self) -> float:
        """The ledger's clock, by which times are recorded: seconds since 1970."""
        with self._reading() as connection:
            return now(connection)

    @retried
    def check(self) -> list[str]:
        """What is wrong with the ledger, one sentence each; empty if nothing is."""
        return checks.problems(self._database)


_CURVE = (
    select(metrics.c.step, metrics.c.value)
    .where(metrics.c.run == bindparam("run"), metrics.c.key == bindparam("key"))
    .order_by(metrics.c.step)
)


def _by_prefix(connection: Connection, rows: Select[Any], column: ColumnElement[str], prefix: str, what: str) -> str:
    """The only value of `column` that is or begins with `prefix`."""
    text = prefix.strip().lower()
    names = rows.with_only_columns(column)
    if connection.execute(names.where(column == text)).first() is not None:
        return text
    # A range instead of LIKE: it uses the index and has no wildcards.
    matches = names.where(column >= text, column < text + "\U0010ffff").order_by(column).limit(6)
    found = connection.execute(matches).scalars().all()
    listing = {"run": "lrurun runs", "ladder instance": "lrurun status"}[what]
    if not found or not text:
        raise NotFoundError(f"no {what} {prefix!r} in this ledger", f"see `{listing}`")
    if len(found) > 1:
        some = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise NotFoundError(f"{what} {prefix!r} is ambiguous", f"it is the beginning of {some}")
    return found[0]
