"""Imported runs: they enter the ledger finished, and a changed one as a new generation."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs
from sqlalchemy import Connection, Table, and_, delete, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.fingerprint import fingerprint
from lrurun.config.schema import Execution, ImportedConfig, Origin
from lrurun.errors import UsageError
from lrurun.ledger.attempt import columns_of_result
from lrurun.ledger.database.schema import (
    ENVIRONMENT,
    attempts,
    document,
    events,
    exclusions,
    ladder_runs,
    metrics,
    runs,
    tags,
)
from lrurun.ledger.database.sql import ENQUEUE, EVENTS, among, insert_columns, lock, now
from lrurun.ledger.handle import Handle, retried
from lrurun.ledger.items import packed_items, write_items
from lrurun.ledger.owner import this_process
from lrurun.ledger.queue import add_memberships, id_of, newest_generations
from lrurun.ledger.rows import Document, add_run_events, clean, code_version, numbered, pack_result, share, unpack
from lrurun.ledger.values import State
from lrurun.ledger.where.grammar import comparable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lrurun.items import ItemResults

    Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
    Curves = Mapping[str, Curve]

SOURCE = "source"
"""The entry of a run's origin with the name of the source that has it, as its import names it."""
_ROWS, _RUNS, _SECONDS = 100_000, 250, 5.0
"""A transaction ends when it has so many rows of curves or runs, or its first run was read so many seconds ago: other
processes wait for it, and a kill loses what it has."""
_VALUES = 50_000
"""Points of a curve that are in memory as objects of Python at once."""


class ImportedRun(Struct, frozen=True, kw_only=True):
    """A run that is added to a ledger as it ended elsewhere."""

    config: ImportedConfig
    state: State
    """"done" or "diverged": a result; "failed" or "interrupted": missing."""
    result: dict[str, float] | None
    """The score at the chosen step, as in "test/acc"; "val/acc" of the metric that chose it, and "best_step"."""
    error: str | None = None
    """Why it has no result."""
    step: int
    """The last step."""
    digest: str
    """`sha256:` and 64 hex digits over all that was read of the run: the ledger leaves a run with an equal one as it
    is."""
    origin: dict[str, Any]
    """What `show` says about it: the tracker's title and version, name, state and place of the run, code, data."""
    curves: Curves = {}
    """Metric -> steps, which increase, and values."""
    items: Mapping[str, ItemResults] = {}
    """Name of a score -> its per-item results."""
    started_at: float | None = None
    ended_at: float | None = None


class Member(Struct, frozen=True, kw_only=True):
    """The rung and stage of an imported run."""

    run: str
    """The id of the run in the ledger."""
    rung: str
    stage: str
    """"train"; or "tune", where the run was only used to choose settings."""
    position: int


class _Batch(Struct):
    """The runs of a transaction."""

    runs: dict[str, ImportedRun] = {}
    """By fingerprint."""
    rows: int = 0
    """Of their curves."""
    started: float = 0.0
    """When its first run was read."""

    @property
    def is_full(self) -> bool:
        return self.rows >= _ROWS or len(self.runs) >= _RUNS or time.monotonic() - self.started >= _SECONDS


class Imports(Handle):
    """Runs that were made elsewhere, and the rungs that they are counted in."""

    def add_imported(
        self, runs: Iterable[ImportedRun], outcomes: dict[str, tuple[str, str]] | None = None
    ) -> dict[str, tuple[str, str]]:
        """Adds runs, each of them whole or not at all, in transactions of many.

        A run that the ledger has with an equal digest and its seed stays as it is, but for the name of its source; any
        other becomes a new generation, which supersedes the old one, with its tags, its notes and its exclusion. If
        settings and seed are the same, it also takes the places of the old one in instances, whose conditions it meets
        then. A digest has no seed that is a number which other runs decide, as the tracker has none.
        Returns fingerprint -> the id of its run, and what became of it: "new", "changed" or "equal".

        `runs` is read once, and no more of it than a transaction is in memory. `outcomes` gets what is returned after
        each transaction: what an interruption leaves.

        Raises:
            UsageError: two of them are the same run of a tracker and differ; those before them have been added.
        """
        outcomes = {} if outcomes is None else outcomes
        for batch in _batches(runs):
            outcomes |= self._add_batch(batch, {})
        return outcomes

    @retried
    def _add_batch(self, new: Mapping[str, ImportedRun], tried: dict[str, str]) -> dict[str, tuple[str, str]]:
        """`tried` gets fingerprint -> outcome before the end of the first try, which may have succeeded although the
        answer of the server was lost: then the runs are equal to what it has added."""
        with self._writing() as connection:
            lock(connection, ENQUEUE)
            existing = newest_generations(connection, new)
            numbers = [row.number for row in existing.values()]
            rows = connection.execute(_ENVIRONMENTS.where(among(runs.c.number, numbers)))
            environments = {key: unpack(text) for key, text in rows}
            added: dict[str, ImportedRun] = {}
            equal: dict[str, ImportedRun] = {}
            outcomes: dict[str, tuple[str, str]] = {}
            for key, run in new.items():
                known = existing.get(key)
                digest = environments.get(key, {}).get("digest")
                if known is not None and digest == run.digest and known.seed == run.config.seed:
                    outcomes[key] = known.id, tried.get(key, "equal")
                    equal[key] = run
                    continue
                added[key] = run
                tried[key] = "new" if known is None else "changed"
                outcomes[key] = id_of(key, 1 if known is None else known.generation + 1), tried[key]
            if added:
                self._add(connection, added, existing, outcomes)
            _update_sources(connection, equal, existing, environments)
            return outcomes

    def _add(
        self,
        connection: Connection,
        added: Mapping[str, ImportedRun],
        existing: Mapping[str, Any],
        outcomes: Mapping[str, tuple[str, str]],
    ) -> None:
        time = now(connection)
        documents = {key: _documents(run) for key, run in added.items()}
        document_numbers = share(connection, chain.from_iterable(documents.values()))
        references = {key: [document_numbers[document] for document in four] for key, four in documents.items()}
        ids = {key: outcomes[key][0] for key in added}
        connection.execute(
            insert(runs),
            [_run_row(run, key, ids[key], existing.get(key), references[key], time) for key, run in added.items()],
        )
        query = select(runs.c.id, runs.c.number).where(among(runs.c.id, ids.values()))
        of_id: dict[str, int] = dict(connection.execute(query).all())
        numbers = {key: of_id[run_id] for key, run_id in ids.items()}
        owner = structs.asdict(this_process())
        connection.execute(
            insert(attempts),
            [owner | _attempt_row(run, numbers[key], references[key][3], time) for key, run in added.items()],
        )
        self._add_curves(connection, {numbers[key]: _storable(run.curves) for key, run in added.items()})
        for key, run in added.items():
            write_items(connection, numbers[key], packed_items(run.items))
        replaced = {key: existing[key] for key in added if key in existing}
        same = _with_same_settings(connection, added, replaced)
        marks = _supersede(connection, [row.number for row in replaced.values()], same) if replaced else {}
        new_events: list[tuple[int, int | None, str, str]] = []
        for key, run in added.items():
            text = f"imported from {_named(run.config.origin)}"
            if key in replaced:
                text = f"{text}, changed since {replaced[key].id}"
                if taken := marks.get(replaced[key].number):
                    text = f"{text}, whose {' and '.join(taken)} it has"
                if replaced[key].number not in same:
                    text = f"{text}; other settings or another seed, so that it takes no place of it"
            new_events.append((numbers[key], 1, "imported", text))
        lock(connection, EVENTS)
        if replaced:
            _take_notes(connection, [row.number for row in replaced.values()])
        add_run_events(connection, time, new_events)

    def _add_curves(self, connection: Connection, curves: Mapping[int, Curves]) -> None:
        """Adds the curves of runs, in the order of the primary key, so that rows are only appended."""
        keys = self._key_numbers(connection, {name for of_run in curves.values() for name in of_run})
        for run, of_run in sorted(curves.items()):
            for name in sorted(of_run, key=keys.__getitem__):
                steps, values = of_run[name]
                for start in range(0, len(steps), _VALUES):
                    part = slice(start, start + _VALUES)
                    some: list[float | None] = values[part].tolist()
                    columns = {
                        "run": [run] * len(some),
                        "key": [keys[name]] * len(some),
                        "step": steps[part].tolist(),
                        "value": [None if value != value else value for value in some],
                    }
                    insert_columns(connection, metrics, columns)

    @retried
    def set_members(self, ladder_key: str, members: Sequence[Member]) -> None:
        """Makes these runs the runs of an instance, in one transaction; runs that it had before and that are not among
        them leave its rungs, and stay in the ledger.

        Where another command has superseded one of them meanwhile, its newest generation is the member. Earlier
        generations of members keep the places that they had.
        """
        with self._writing() as connection:
            ladder = self._ladder_number(connection, ladder_key)
            lock(connection, ENQUEUE)
            query = select(runs.c.id, runs.c.fingerprint).where(among(runs.c.id, {member.run for member in members}))
            keys: dict[str, str] = dict(connection.execute(query).all())
            for member in members:
                if member.run not in keys:
                    self._run_number(connection, member.run)  # raises NotFoundError
            newest = newest_generations(connection, keys.values())
            rows = [
                {
                    "ladder": ladder,
                    "run": newest[keys[member.run]].number,
                    "rung": member.rung,
                    "stage": member.stage,
                    "position": member.position,
                }
                for member in members
            ]
            wanted = {(row["run"], row["rung"], row["stage"]) for row in rows}
            table = ladder_runs.c
            places = select(table.id, table.run, table.rung, table.stage, runs.c.fingerprint, runs.c.superseded)
            before = connection.execute(places.join(runs).where(table.ladder == ladder)).all()
            left = [
                row.id
                for row in before
                if (row.run, row.rung, row.stage) not in wanted and not (row.superseded and row.fingerprint in newest)
            ]
            connection.execute(delete(ladder_runs).where(among(table.id, left)))
            if rows:
                add_memberships(connection, rows)


def _batches(imported: Iterable[ImportedRun]) -> Iterator[dict[str, ImportedRun]]:
    """The runs in batches, by fingerprint; of equal ones, the first."""
    digests: dict[str, str] = {}
    batch = _Batch()
    for run in imported:
        key = fingerprint(run.config)
        if digests.setdefault(key, run.digest) != run.digest:
            if batch.runs:
                yield batch.runs
            origin = run.config.origin
            raise UsageError(
                f"{origin.tracker}: the run {_named(origin)} is there twice, with different contents",
                "import them under two names with --name, or add a column project where they are tables",
            )
        if key in batch.runs:
            continue
        if not batch.runs:
            batch.started = time.monotonic()
        batch.runs[key] = run
        batch.rows += sum(len(steps) for steps, _ in run.curves.values())
        if batch.is_full:
            yield batch.runs
            batch = _Batch()
    if batch.runs:
        yield batch.runs


def _named(origin: Origin) -> str:
    place = "/".join(part for part in (origin.project, origin.run) if part)
    return f"{origin.tracker} {place}"


_CONFIG = document(runs.c.config_id)
"""The JSON text of the configuration of a run."""
_ENVIRONMENTS = select(runs.c.fingerprint, ENVIRONMENT.label("environment")).join(
    attempts, and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
)
"""Fingerprints of runs, and the environments of their newest attempts."""


def _update_sources(
    connection: Connection,
    equal: Mapping[str, ImportedRun],
    existing: Mapping[str, Any],
    environments: Mapping[str, dict[str, Any]],
) -> None:
    """Records of equal runs which source they are from now."""
    moved: dict[int, Document] = {}
    for key, run in equal.items():
        origin, source = environments[key].get("origin", {}), _in_json(run.origin).get(SOURCE)
        if source is not None and origin.get(SOURCE) != source:
            moved[existing[key].number] = Document.pack(environments[key] | {"origin": {**origin, SOURCE: source}})
    numbers = share(connection, moved.values()) if moved else {}
    for run_number, environment in moved.items():
        newest = select(runs.c.attempt).where(runs.c.number == run_number).scalar_subquery()
        of_run = update(attempts).where(attempts.c.run == run_number, attempts.c.n == newest)
        connection.execute(of_run.values(environment_id=numbers[environment]))


def _with_same_settings(
    connection: Connection, added: Mapping[str, ImportedRun], replaced: Mapping[str, Any]
) -> set[int]:
    """The runs with the settings and the seed of those that supersede them."""
    query = select(runs.c.number, _CONFIG).where(among(runs.c.number, [row.number for row in replaced.values()]))
    configs: dict[int, str] = dict(connection.execute(query).all())
    return {
        row.number
        for key, row in replaced.items()
        if row.seed == added[key].config.seed
        and comparable(unpack(configs[row.number])["settings"]) == comparable(_in_json(added[key].config.settings))
    }


def _documents(run: ImportedRun) -> list[Document]:
    """The documents of a run: its configuration, execution, sources and environment."""
    config, origin = _in_json(msgspec.to_builtins(run.config)), _in_json(run.origin)
    environment = {"digest": run.digest, "origin": origin}
    if run.started_at is not None or run.ended_at is not None:
        environment["times"] = [run.started_at, run.ended_at]  # of the tracker; an attempt has those of the import, too
    if origin.get("code"):
        environment["code"] = origin["code"]
    return [Document.pack(config, run.config.seed), _EXECUTION, _SOURCES, Document.pack(environment)]


_EXECUTION, _SOURCES = Document.pack(Execution()), Document.pack({})


def _in_json(value: Any) -> Any:
    """A value of a tracker, in which NaN and infinities are texts: JSON has none."""
    if isinstance(value, Mapping):
        return {_text(str(name)): _in_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(part) for part in value]
    if isinstance(value, str):
        return _text(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(text: str) -> str:
    """A text that every database can store, and JSON: without NUL characters and lone surrogates, which come from
    files."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _storable(curves: Curves) -> Curves:
    """Curves by names that can be stored, which stay different."""
    named: dict[str, Curve] = {}
    for name, curve in curves.items():
        named[next(free for free in numbered(_text(name)) if free not in named)] = curve
    return named


def _run_row(
    run: ImportedRun, key: str, run_id: str, known: Any, references: Sequence[int], time: float
) -> dict[str, Any]:
    result = None if run.result is None else pack_result({_text(name): x for name, x in run.result.items()})
    config_id, execution_id, provenance_id, _ = references
    is_finished = run.state in ("done", "diverged")
    return {
        **dict.fromkeys(_REPEATED),
        "id": run_id,
        "fingerprint": key,
        "generation": 1 if known is None else known.generation + 1,
        "superseded": 0,
        "kind": "imported",
        "task": run.config.task,
        "seed": run.config.seed,
        "state": run.state,
        "attempt": 1,
        "step": run.step,
        "steps": run.step if is_finished else 0,  # how many steps there would have been is not known
        "created_at": time if run.started_at is None else run.started_at,
        "finished_at": None if run.state == "interrupted" else run.ended_at,
        "config_id": config_id,
        "execution_id": execution_id,
        "provenance_id": provenance_id,
        "result": result,
        "error": clean(run.error),
        **({} if run.result is None else columns_of_result(run.result)),
        **_newest_values(run),
    }


_REPEATED = ("val_accuracy", "test_accuracy", "steps_per_second", "last_loss", "last_score", "last_speed")
"""Columns that repeat numbers of curves and results. All rows of a statement have the same columns."""


def _newest_values(run: ImportedRun) -> dict[str, float | None]:
    validation = [name for name in run.result or () if name.startswith("val/")]
    columns = {"last_loss": "train/loss", "last_score": next(iter(validation), "")}
    return {column: _last(run.curves[name][1]) for column, name in columns.items() if name in run.curves}


def _last(values: NDArray[np.float64]) -> float | None:
    return None if not len(values) or math.isnan(values[-1]) else float(values[-1])


def _attempt_row(run: ImportedRun, number: int, environment_id: int, time: float) -> dict[str, Any]:
    known = [at for at in (run.started_at, run.ended_at) if at is not None] or [time]
    started, ended = known[0], max(known)
    return {
        "run": number,
        "n": 1,
        "started_at": started,
        "heartbeat_at": ended,
        "seen_at": ended,
        "ended_at": ended,
        "outcome": run.state,
        "reason": clean(run.error) or run.state,
        "numerics": 1,
        "environment_id": environment_id,
        "code": code_version({"code": run.origin.get("code")}) or None,
    }


_NEXT = runs.alias("next_generation")
_FOLLOWED = runs.join(
    _NEXT, and_(_NEXT.c.fingerprint == runs.c.fingerprint, _NEXT.c.generation == runs.c.generation + 1)
)
"""Runs, each with its next generation."""


def _supersede(connection: Connection, old: Sequence[int], same: Collection[int]) -> dict[int, list[str]]:
    """Marks runs as superseded, and gives their tags and their exclusions to the next generations, for which they hold
    as well: origin and reading are the same. Where settings and seed are the `same`, so are the places in instances.
    Returns run -> which marks it has."""
    connection.execute(update(runs).where(among(runs.c.number, old)).values(superseded=1))
    _copy(connection, ladder_runs, list(same), ("ladder", "rung", "stage", "position"), ladder_runs.c.id)
    marks: dict[int, list[str]] = {}
    for table, names, title in ((tags, ("name",), "tags"), (exclusions, ("why", "time"), "exclusion")):
        _copy(connection, table, old, names, table.c.run)
        for number in connection.execute(select(table.c.run).where(among(table.c.run, old)).distinct()).scalars():
            marks.setdefault(number, []).append(title)
    return marks


def _take_notes(connection: Connection, old: Sequence[int]) -> None:
    """Gives what people said about runs to their next generations, with the times at which they did."""
    is_said = events.c.kind.in_(("note", "excluded", "included"))
    _copy(connection, events, old, ("time", "kind", "text", "payload"), events.c.id, is_said)


def _copy(
    connection: Connection,
    table: Table,
    old: Sequence[int],
    names: Sequence[str],
    order: ColumnElement[Any],
    *conditions: ColumnElement[bool],
) -> None:
    """Copies rows of runs to their next generations."""
    source = _FOLLOWED.join(table, table.c.run == runs.c.number)
    rows = select(_NEXT.c.number, *(table.c[name] for name in names)).select_from(source)
    rows = rows.where(among(runs.c.number, old), *conditions).order_by(order)
    connection.execute(insert(table).from_select(["run", *names], rows))
