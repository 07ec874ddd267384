"""Runs are forgotten: their rows are deleted in one transaction, which records that they were removed, by whom and why.

Their files are removed afterwards, see `lrurun.session.forgetting`. Until then the removal is unfinished, and
`removal_files` says what remains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, Table, delete, exists, func, insert, literal, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from lrurun.errors import LrurunError, NotFoundError
from lrurun.ledger import owner
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
    metrics,
    removals,
    removed_runs,
    runs,
    tags,
    test_sets,
)
from lrurun.ledger.database.sql import ENQUEUE, among, insert_columns, lock, lock_tables, now
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.part import Part
from lrurun.ledger.rows import clean, ladder_instance, pack, pack_instances
from lrurun.ledger.values import FINISHED, KEEP, LadderInstance, RemovedInstance, State


class Place(Struct, frozen=True):
    """A membership of a run that is to be forgotten."""

    ladder_key: str
    instance: str
    """The short name."""
    rung: str
    stage: str


class ForgettableRun(Struct, frozen=True, kw_only=True):
    """A run that is to be forgotten."""

    id: str
    task: str
    seed: int
    kind: str
    state: State
    superseded: bool
    is_kept: bool
    """Whether it has the tag `keep`."""
    is_excluded: bool
    users: tuple[str, ...]
    """The users whose processes have trained it; those of its instances if none has."""
    places: tuple[Place, ...]


class Standing(Struct, frozen=True, kw_only=True):
    """What instances had, as far as it may make their runs evidence."""

    finished: int
    """The memberships of runs with results."""
    excluded: int
    """The memberships of excluded runs."""
    last_event: int
    """The number of the newest event of the instances themselves."""


class Forgettable(Struct, frozen=True, kw_only=True):
    """What a selection takes away, at one moment."""

    runs: tuple[ForgettableRun, ...]
    whole: tuple[LadderInstance, ...]
    """The instances that go."""
    in_part: tuple[LadderInstance, ...]
    """The instances that keep other runs."""
    shared: tuple[ForgettableRun, ...]
    """Runs of the named instances that other instances have too."""
    standing: Standing
    """Of the instances that lose runs, or go, with the runs that stay."""

    @property
    def instances(self) -> tuple[LadderInstance, ...]:
        """All instances that lose runs, or go."""
        return (*self.whole, *self.in_part)


class RemovalFiles(Struct, frozen=True, kw_only=True):
    """The files that go with the runs of a removal."""

    runs_dir: str
    """The runs folder, or its URL."""
    bytes: int
    instances: dict[str, str] = {}
    """Key of each instance that went -> its short name then."""
    programs: dict[str, dict[str, str]] = {}
    """Folder of a copy of a program's files, which no run needs any more -> the digests of these files."""


class ChangedError(LrurunError):
    """What was to be forgotten has changed since it was shown. Nothing was removed."""


def changed() -> ChangedError:
    """The error about a selection that other commands have changed."""
    return ChangedError(
        "other commands have changed what was to be forgotten: nothing was removed",
        "repeat the command: it says first what there is now",
    )


def gone(instance: str) -> NotFoundError:
    """The error about an instance that another command has just forgotten."""
    return NotFoundError(
        f"{instance}: is gone: another command has forgotten it",
        "lrurun ledger forgotten lists what was forgotten, and by whom",
    )


class Forgetting(Handle):
    """Runs that are forgotten, and the files that remain of them."""

    @retried
    def forgettable(self, part: Part, *, keep_shared: bool = False) -> Forgettable:
        """What would be forgotten of a part of the ledger: its runs with their superseded earlier generations.

        Args:
            keep_shared: whether runs that other instances have too stay, where instances are named.
        """
        with self._reading() as connection:
            return _forgettable(connection, part, keep_shared)[0]

    @retried
    def program_files(self, run_ids: Iterable[str]) -> list[dict[str, str]]:
        """The digests of the files of each version of a program that these runs have and no other one."""
        with self._reading() as connection:
            ids = list(run_ids)
            mine = _versions(connection, among(runs.c.id, ids))
            others = _versions(connection, among(runs.c.id, ids).is_not(True)) if mine else []
            return [version for version in mine if version not in others]

    @retried
    def missing_rights(self) -> list[str]:
        """The rights that this user of a server lacks to forget runs, as in "DELETE on metrics"."""
        rights = {table.name: "DELETE" for table in (*_OF_RUNS, runs, ladders, documents, test_sets)}
        with self._reading() as connection:
            wanted = [*((table, right) for table, right in rights.items())]
            wanted += [(removals.name, "INSERT"), (removals.name, "UPDATE"), (removed_runs.name, "INSERT")]
            return self.database.missing_rights(connection, wanted)

    @retried
    def forget(
        self,
        key: str,
        part: Part,
        expected: Forgettable,
        *,
        keep_shared: bool,
        selection: str,
        why: str | None,
        files: RemovalFiles,
    ) -> None:
        """Delete the rows of runs and instances, and record the removal under `key`, in one transaction.

        Raises:
            ChangedError: the part is not what was `expected`: another process has changed it meanwhile.
            NotFoundError: an instance is gone.
        """
        with self._writing() as connection:
            if connection.execute(select(removals.c.id).where(removals.c.key == key)).first() is not None:
                return  # the server did it, although its answer was lost
            lock(connection, ENQUEUE)
            # Workers wait until this is over, and nobody comes to need a document or test set meanwhile.
            lock_tables(connection, runs, test_sets)
            found, numbers = _forgettable(connection, part, keep_shared)
            if found != expected:
                raise changed()
            # No run is newer than its removal, although another machine may have had a faster clock.
            created = select(func.max(runs.c.created_at)).where(among(runs.c.number, numbers))
            time = max(now(connection), connection.execute(created).scalar_one() or 0.0)
            row = {"key": key, "kind": "forgotten", "time": time, "user": owner.user(), "selection": clean(selection)}
            row |= {"why": None if why is None else clean(why), "runs": len(found.runs)}
            row |= {"files": pack(msgspec.to_builtins(files)), "instances": pack_instances(map(_gone, found.whole))}
            connection.execute(insert(removals).values(row))
            number = connection.execute(select(removals.c.id).where(removals.c.key == key)).scalar_one()
            _record_runs(connection, number, found.runs)
            keys = [instance.key for instance in found.whole]
            _delete(connection, numbers, list(connection.execute(_numbers_of(keys)).scalars()))

    @retried
    def removal_files(self, key: str) -> tuple[RemovalFiles, list[str]]:
        """The files that go with a removal, and the ids of its runs."""
        with self._reading() as connection:
            row = connection.execute(select(removals.c.id, removals.c.files).where(removals.c.key == key)).one()
            ids = select(removed_runs.c.run).distinct().where(removed_runs.c.removal == row.id)
            files = RemovalFiles(runs_dir="", bytes=0)
            if row.files is not None:
                files = msgspec.json.decode(row.files, type=RemovalFiles)
            return files, list(connection.execute(ids.order_by(removed_runs.c.run)).scalars())

    @retried
    def while_removed(
        self,
        key: str,
        move: Callable[[list[str], list[str], list[str]], None],
        *,
        run_ids: Sequence[str] = (),
        ladder_keys: Sequence[str] = (),
        programs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> bool:
        """Calls `move` with those of these runs, instances and copies of programs' files that the ledger does not have
        again: nobody queues a run before it returns. Returns whether the removal is still unfinished; otherwise
        nothing is called.
        """
        with self._writing(durable=False) as connection:
            lock(connection, ENQUEUE)
            finished = select(removals.c.finished_at).where(removals.c.key == key).with_for_update(read=True)
            row = connection.execute(finished).one_or_none()
            if row is None or row.finished_at is not None:
                return False
            back = set(connection.execute(select(runs.c.id).where(among(runs.c.id, run_ids))).scalars())
            again = set(connection.execute(select(ladders.c.key).where(among(ladders.c.key, ladder_keys))).scalars())
            needed = _versions(connection, literal(True)) if programs else []
            move(
                [run_id for run_id in run_ids if run_id not in back],
                [ladder_key for ladder_key in ladder_keys if ladder_key not in again],
                [name for name, version in (programs or {}).items() if version not in needed],
            )
            return True

    @retried
    def finish_removal(self, key: str, size: int) -> None:
        """Record that the files of a removal are removed, and how many bytes they had."""
        with self._writing() as connection:
            unfinished = removals.c.finished_at.is_(None)
            connection.execute(
                update(removals)
                .where(removals.c.key == key, unfinished)
                .values(finished_at=now(connection), bytes=size)
            )


_OF_RUNS: tuple[Table, ...] = (
    *(metrics, eigenvalues, item_results, checkpoints, tags, exclusions, events, ladder_runs, attempts),
)
"""The tables with rows of runs, in an order in which they can be deleted."""

_DOCUMENTS = (runs.c.config_id, runs.c.execution_id, runs.c.provenance_id, attempts.c.environment_id)
"""The columns that refer to documents."""


def _forgettable(connection: Connection, part: Part, keep_shared: bool) -> tuple[Forgettable, list[int]]:
    """What is forgotten of a part, and the numbers of the runs."""
    named = {instance.key for instance in part.instances}
    there = dict(
        connection.execute(select(ladders.c.key, ladders.c.short_name).where(among(ladders.c.key, named))).all()
    )
    for instance in part.instances:
        if instance.key not in there:
            raise gone(instance.short_name)
    by_number = {row.number: row for row in connection.execute(select(*_COLUMNS).where(part.of_runs()))}
    by_number |= {row.number: row for row in _earlier(connection, by_number)}
    places = _grouped(
        connection.execute(
            select(ladder_runs.c.run, ladders.c.key, ladders.c.short_name, ladder_runs.c.rung, ladder_runs.c.stage)
            .join(ladders, ladders.c.id == ladder_runs.c.ladder)
            .where(among(ladder_runs.c.run, by_number))
            .order_by(ladder_runs.c.run, ladder_runs.c.id)
        )
    )
    kept = select(tags.c.run).where(among(tags.c.run, by_number), tags.c.name == KEEP)
    excluded = select(exclusions.c.run).where(among(exclusions.c.run, by_number))
    is_kept, is_excluded = (set(connection.execute(query).scalars()) for query in (kept, excluded))
    users = _users(connection, by_number)
    all_runs = {
        number: ForgettableRun(
            id=row.id,
            task=row.task,
            seed=row.seed,
            kind=row.kind,
            state=row.state,
            superseded=bool(row.superseded),
            is_kept=number in is_kept,
            is_excluded=number in is_excluded,
            users=users.get(number, ()),
            places=tuple(Place(*place) for place in places.get(number, ())),
        )
        for number, row in sorted(by_number.items())
    }
    elsewhere = {
        number: run for number, run in all_runs.items() if named and {place.ladder_key for place in run.places} - named
    }
    chosen = {number: run for number, run in all_runs.items() if not (keep_shared and number in elsewhere)}
    touched = named | {place.ladder_key for run in chosen.values() for place in run.places}
    rows = connection.execute(select(ladders).where(among(ladders.c.key, touched)).order_by(ladders.c.id)).all()
    others = select(ladder_runs.c.ladder).distinct().where(among(ladder_runs.c.ladder, [row.id for row in rows]))
    left = set(connection.execute(others.where(among(ladder_runs.c.run, chosen).is_not(True))).scalars())
    whole = [row for row in rows if (row.key in named if named else row.id not in left)]
    found = Forgettable(
        runs=tuple(chosen.values()),
        whole=tuple(map(ladder_instance, whole)),
        in_part=tuple(ladder_instance(row) for row in rows if row not in whole),
        shared=tuple(elsewhere.values()),
        standing=_standing(connection, [row.id for row in rows]),
    )
    return found, list(chosen)


def _standing(connection: Connection, instances: Sequence[int]) -> Standing:
    of_instances = among(ladder_runs.c.ladder, instances)
    members = select(func.count()).select_from(ladder_runs).where(of_instances)
    finished = members.join(runs, runs.c.number == ladder_runs.c.run)
    finished = finished.where(runs.c.superseded == 0, runs.c.state.in_(FINISHED))
    excluded = members.join(exclusions, exclusions.c.run == ladder_runs.c.run)
    own = select(func.max(events.c.id)).where(events.c.run.is_(None), among(events.c.ladder, instances))
    return Standing(
        finished=connection.execute(finished).scalar_one(),
        excluded=connection.execute(excluded).scalar_one(),
        last_event=connection.execute(own).scalar_one() or 0,
    )


_COLUMNS = (
    *(runs.c.number, runs.c.id, runs.c.task, runs.c.seed, runs.c.kind, runs.c.state, runs.c.superseded),
    *(runs.c.fingerprint, runs.c.generation),
)


def _earlier(connection: Connection, chosen: Mapping[int, Any]) -> list[Any]:
    """The superseded earlier generations of chosen runs: without the later one, they would count again."""
    generations: dict[str, int] = {}
    for row in chosen.values():
        generations[row.fingerprint] = max(row.generation, generations.get(row.fingerprint, 0))
    later = [fingerprint for fingerprint, generation in generations.items() if generation > 1]
    if not later:
        return []
    rows = connection.execute(select(*_COLUMNS).where(among(runs.c.fingerprint, later)))
    return [row for row in rows if row.generation < generations[row.fingerprint]]


def _users(connection: Connection, numbers: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Number of a run -> the users who have trained it; those of its instances if none has."""
    chosen = list(numbers)
    of_attempts = select(attempts.c.run, attempts.c.user).distinct()
    of_attempts = of_attempts.where(among(attempts.c.run, chosen), attempts.c.user.is_not(None))
    users = _grouped(connection.execute(of_attempts.order_by(attempts.c.run, attempts.c.user)))
    of_instances = select(ladder_runs.c.run, ladders.c.user).distinct()
    of_instances = of_instances.join(ladders, ladders.c.id == ladder_runs.c.ladder)
    of_instances = of_instances.where(among(ladder_runs.c.run, chosen), ladders.c.user.is_not(None))
    requested = _grouped(connection.execute(of_instances.order_by(ladder_runs.c.run, ladders.c.user)))
    return {number: tuple(user for (user,) in names) for number, names in {**requested, **users}.items()}


def _grouped(rows: Iterable[Any]) -> dict[int, list[tuple[Any, ...]]]:
    """First column -> the others, of rows in its order."""
    return {number: [tuple(row[1:]) for row in group] for number, group in groupby(rows, key=itemgetter(0))}


def _versions(connection: Connection, which: ColumnElement[bool]) -> list[dict[str, str]]:
    """The digests of the files of each version of a program that some runs have."""
    numbers = select(runs.c.config_id).distinct().where(runs.c.kind == "program", which)
    versions: list[dict[str, str]] = []
    for text in connection.execute(select(documents.c.text).where(documents.c.id.in_(numbers))).scalars():
        files = msgspec.json.decode(text).get("program", {}).get("files") or {}
        if files and files not in versions:
            versions.append(files)
    return versions


def _record_runs(connection: Connection, removal: int, forgotten: Sequence[ForgettableRun]) -> None:
    rows = list(_removed_rows(removal, forgotten))
    if rows:
        names = ("removal", "run", "ladder_key", "rung", "stage", "instance", "task", "seed", "state")
        insert_columns(connection, removed_runs, dict(zip(names, zip(*rows, strict=True), strict=True)))


def _removed_rows(removal: int, forgotten: Iterable[ForgettableRun]) -> Iterator[tuple[Any, ...]]:
    for run in forgotten:
        for place in run.places or (Place("", "", "", ""),):
            names = (place.ladder_key, place.rung, place.stage, place.instance)
            yield (removal, run.id, *names, run.task, run.seed, run.state)


def _gone(instance: LadderInstance) -> RemovedInstance:
    return RemovedInstance(
        key=instance.key,
        name=instance.short_name,
        ladder=instance.name,
        task=instance.task,
        profile=instance.profile,
        set=instance.spec.set,
        tune=instance.spec.tune,
    )


def _numbers_of(keys: Iterable[str]) -> Any:
    return select(ladders.c.id).where(among(ladders.c.key, keys))


def _delete(connection: Connection, numbers: Sequence[int], instances: Sequence[int]) -> None:
    """Deletes runs and instances, and the documents and test sets that nothing refers to then."""
    chosen, of_attempts = among(runs.c.number, numbers), among(attempts.c.run, numbers)
    references = [select(column).where(chosen if column.table is runs else of_attempts) for column in _DOCUMENTS]
    used = set(connection.execute(references[0].union(*references[1:])).scalars())
    of_items = select(item_results.c.test_set).distinct().where(among(item_results.c.run, numbers))
    tests = set(connection.execute(of_items).scalars())
    for table in _OF_RUNS:
        connection.execute(delete(table).where(among(table.c.run, numbers)))
    connection.execute(delete(runs).where(chosen))
    for table in (hidden, events, ladder_runs):
        connection.execute(delete(table).where(among(table.c.ladder, instances)))
    connection.execute(delete(ladders).where(among(ladders.c.id, instances)))
    is_used = or_(*(exists().where(column == documents.c.id) for column in _DOCUMENTS))
    connection.execute(delete(documents).where(among(documents.c.id, used), ~is_used))
    is_used = exists().where(item_results.c.test_set == test_sets.c.id)
    connection.execute(delete(test_sets).where(among(test_sets.c.id, tests), ~is_used))
