"""Records of runs and of ladder instances: what a ledger has of them, as files of the runs folder hold it.

A ledger that is lost is made again from them, see `rebuilding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs
from sqlalchemy import Connection, Table, exists, insert, select, update

from lrurun.errors import LedgerError
from lrurun.ledger.connection import retried
from lrurun.ledger.curves import Curves
from lrurun.ledger.database.schema import (
    SCHEMA,
    attempts,
    checkpoints,
    eigenvalues,
    events,
    exclusions,
    ladder_runs,
    ladders,
    metrics,
    runs,
    tags,
)
from lrurun.ledger.queue import OWNER_EXITED, code_version
from lrurun.ledger.reading import Reading
from lrurun.ledger.recording import Recording, columns_of_result
from lrurun.ledger.rows import Document, clean, pack, pack_complex, pack_result, share, to_real
from lrurun.ledger.values import Attempt, Checkpoint, Event, LadderInstance, Run


class CurveRecord(Struct, frozen=True):
    """The values of one metric, by step."""

    steps: Sequence[int]
    values: Sequence[float]


class Head(Struct, frozen=True, kw_only=True):
    """What every record begins with."""

    schema: str = SCHEMA
    """The version of the ledger that it is of."""
    number: int
    """By which the records of one ledger are in its order."""


class RunRow(Run, frozen=True, kw_only=True):
    """A run without its settings, which its record has as plain tables: its plug-ins may not be loaded."""

    settings: None = None


class RunRecord(Head, frozen=True, kw_only=True):
    """A run, without its places in ladders, which the records of these have."""

    run: RunRow
    config: dict[str, Any]
    execution: dict[str, Any]
    sources: dict[str, str]
    result: dict[str, int | float] | None
    attempts: list[Attempt]
    checkpoints: list[Checkpoint]
    events: list[Event]
    eigenvalues: dict[str, list[list[tuple[float, float]] | None]]
    """Moment -> real and imaginary parts of those of each layer."""
    curves: dict[str, CurveRecord]


class PlaceRecord(Struct, frozen=True):
    """A place of a run in a ladder instance."""

    number: int
    run: str
    rung: str
    stage: str
    position: int


class LadderRecord(Head, frozen=True, kw_only=True):
    """A ladder instance."""

    ladder: LadderInstance
    events: list[Event]
    """Its own, not those of its runs: the ladder as it was run, the command, the sequential design with its looks."""
    places: list[PlaceRecord]


RUN_FILE = "run.json"
"""The record of a run in its folder."""
LADDERS_FOLDER = "ladders"
"""The folder of the records of ladder instances in the runs folder; their names are the keys."""

R = TypeVar("R", bound=Head)


def encode(record: Head) -> bytes:
    """A record as JSON; NaN and infinities are texts."""
    table = msgspec.to_builtins(record)
    try:
        text = pack(table)
    except ValueError:  # NaN or an infinity; looking at every number is slow where there are many
        text = pack(_without_nonfinite(table))
    return text.encode()


def decode(content: bytes, kind: type[R]) -> R:
    """A record from JSON. Raises msgspec.DecodeError, UnicodeError or RecursionError for what is none."""
    return msgspec.json.decode(content, type=kind, strict=False)  # so that texts are read as numbers


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {key: _without_nonfinite(inner) for key, inner in value.items()}
    return [_without_nonfinite(inner) for inner in value] if isinstance(value, list | tuple) else value


class Records(Recording, Reading, Curves):
    """Reading records, and adding those of another ledger to a new one."""

    @retried
    def run_record(self, run_id: str) -> RunRecord:
        """What the ledger has of a run (an id)."""
        run = self.run(run_id)
        with self._reading() as connection:
            number = self._run_number(connection, run.id)
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
        )

    @retried
    def ladder_record(self, key: str) -> LadderRecord:
        """What the ledger has of a ladder instance (a key)."""
        with self._reading() as connection:
            number = self._ladder_number(connection, key)
            table = ladder_runs.c
            wanted = select(table.id, runs.c.id, table.rung, table.stage, table.position)
            wanted = wanted.join(runs, runs.c.number == table.run).where(table.ladder == number).order_by(table.id)
            places = [PlaceRecord(*row) for row in connection.execute(wanted)]
        return LadderRecord(
            number=number, ladder=self.ladder(key), events=self.events(ladder_key=key, of_runs=False), places=places
        )

    def restore(
        self, of_runs: Iterable[RunRecord], of_ladders: Iterable[LadderRecord], kept: Callable[[str], bool]
    ) -> None:
        """Adds runs and ladder instances to a ledger without any, in this order; all or nothing.

        Running runs become interrupted. `kept` says whether a checkpoint is at its path in the runs folder; others are
        left out.
        """
        numbers: dict[str, int] = {}
        of_events: list[tuple[int, dict[str, Any]]] = []
        with self._writing() as connection:
            if any(connection.execute(select(table).limit(1)).first() for table in (runs, ladders)):
                raise LedgerError(
                    f"the ledger {self.path} has runs, and is not overwritten", "move it aside, or name another one"
                )
            for record in of_runs:
                number = numbers[record.run.id] = self._restore_run(connection, record, kept)
                of_events += [(event.id, _event_row(event, run=number, ladder=None)) for event in record.events]
            later = runs.alias()
            newer = (later.c.fingerprint == runs.c.fingerprint) & (later.c.generation > runs.c.generation)
            connection.execute(update(runs).where(exists().where(newer)).values(superseded=1))
            places: list[tuple[int, dict[str, Any]]] = []
            for found in of_ladders:
                row = _row(ladders, found.ladder, spec=pack(found.ladder.spec))
                ladder = connection.execute(insert(ladders).values(row).returning(ladders.c.id)).scalar_one()
                of_events += [(event.id, _event_row(event, ladder=ladder)) for event in found.events]
                places += [
                    (place.number, _row(ladder_runs, place, ladder=ladder, run=numbers[place.run]))
                    for place in found.places
                    if place.run in numbers
                ]
            _insert(connection, ladder_runs, _in_order(places))
            _insert(connection, events, _in_order(of_events))

    def _restore_run(self, connection: Connection, record: RunRecord, kept: Callable[[str], bool]) -> int:
        run, result = record.run, record.result
        settings = [Document.of(record.config, run.seed), Document.of(record.execution), Document.of(record.sources)]
        environments = [Document.of(attempt.environment) for attempt in record.attempts]
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
        of_attempts = []
        for attempt, environment in zip(record.attempts, environments, strict=True):
            ended = (
                {}
                if attempt.ended_at is not None
                else {"ended_at": attempt.seen_at, "outcome": "exited", "reason": OWNER_EXITED}
            )
            code = code_version(attempt.environment)
            of_attempts.append(
                _row(attempts, attempt, run=number, environment_id=documents[environment], code=code, **ended)
            )
        _insert(connection, attempts, of_attempts)
        _insert(
            connection,
            checkpoints,
            [_row(checkpoints, one, run=number) for one in reversed(record.checkpoints) if kept(one.path)],
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
        _insert(connection, tags, [{"run": number, "name": name} for name in run.tags])
        if run.excluded is not None:
            times = [event.time for event in record.events if event.kind == "excluded"]
            row = {"run": number, "why": clean(run.excluded), "time": max(times, default=run.created_at)}
            _insert(connection, exclusions, [row])
        return number


def _packed(pairs: list[tuple[float, float]] | None) -> str | None:
    return None if pairs is None else pack_complex([complex(*pair) for pair in pairs])


def _row(table: Table, value: Struct, **other: Any) -> dict[str, Any]:
    """The row of a value in a table that numbers its rows itself; `other` are columns that differ from its fields."""
    fields = structs.asdict(value).items()
    return {name: field for name, field in fields if name in table.c and name != "id"} | other


def _event_row(event: Event, **other: Any) -> dict[str, Any]:
    payload = None if event.payload is None else pack(event.payload)
    return _row(events, event, payload=payload, **other)


def _in_order(rows: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for _, row in sorted(rows, key=lambda numbered: numbered[0])]


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), rows)
