"""Rows and values: how values are stored in columns, and built from them by column name."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import structs
from sqlalchemy import Connection, Row, Select, and_, insert, select
from sqlalchemy.sql.elements import ColumnElement

from lrurun.config.schema import Config, Execution, recorded
from lrurun.errors import LedgerError
from lrurun.ledger.database.schema import (
    attempts,
    documents,
    events,
    exclusions,
    ladder_runs,
    ladders,
    runs,
    tags,
)
from lrurun.ledger.database.sql import EVENTS, among, lock, upsert
from lrurun.ledger.values import Attempt, Event, LadderInstance, Membership, Run, RunSettings

S = TypeVar("S", bound=msgspec.Struct)


def build(kind: type[S], row: Row[Any], **given: Any) -> S:
    """A value from the columns of a row that have the names of its fields; `given` are the other fields."""
    columns = row._mapping
    return kind(**given, **{name: columns[name] for name in kind.__struct_fields__ if name not in given})


def add_event(
    connection: Connection,
    time: float,
    kind: str,
    text: str,
    payload: msgspec.Struct | Mapping[str, Any] | None = None,
    *,
    run: int | None = None,
    attempt: int | None = None,
    ladder: int | None = None,
) -> int:
    """Insert an event and return its number; the last write of a transaction, for which others wait on a server.

    Numbers have the order of the commits: a process that has read up to a number has seen all events before it.
    """
    lock(connection, EVENTS)
    row: dict[str, Any] = {
        "run": run,
        "attempt": attempt,
        "ladder": ladder,
        "time": time,
        "kind": kind,
        "text": clean(text),
    }
    row["payload"] = None if payload is None else pack(msgspec.to_builtins(payload))
    return int(connection.execute(insert(events).values(row).returning(events.c.id)).scalar_one())


# Texts that rows share


class Document(msgspec.Struct, frozen=True):
    """A JSON text without what differs between the runs that share it."""

    text: str
    seed_at: int | None = None
    """How many characters precede the null that stands for the seed; None if there is none."""

    @classmethod
    def of(cls, table: Mapping[str, Any] | msgspec.Struct, seed: int | None = None) -> Document:
        """A table as JSON, without the `seed` that it contains."""
        text = pack(msgspec.to_builtins(table))
        before, found, after = text.rpartition(f'"seed":{seed}')
        if not found or not after.startswith((",", "}")):
            return cls(text)
        return cls(f'{before}"seed":null{after}', len(before) + len('"seed":'))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"{self.seed_at}\n{self.text}".encode()).hexdigest()


def share(connection: Connection, given: Iterable[Document]) -> dict[Document, int]:
    """Document -> its number; those that the ledger does not have are added."""
    wanted = set(given)
    numbers = _numbers_of(connection, wanted)
    if missing := wanted - numbers.keys():
        new = [{"sha256": one.sha256, "seed_at": one.seed_at, "text": one.text} for one in missing]
        # In one order, so that processes which add the same ones at once do not wait for each other.
        new.sort(key=lambda row: str(row["sha256"]))
        connection.execute(
            upsert(connection, documents).on_conflict_do_nothing(index_elements=[documents.c.sha256]), new
        )
        numbers |= _numbers_of(connection, missing)
    if not wanted <= numbers.keys():
        raise LedgerError("the ledger has documents that are not those of their hashes", "restore a backup")
    return numbers


def _numbers_of(connection: Connection, wanted: Iterable[Document]) -> dict[Document, int]:
    """Document -> its number; those that the ledger does not have are left out."""
    found = connection.execute(select(documents).where(among(documents.c.sha256, (one.sha256 for one in wanted))))
    return {Document(row.text, row.seed_at): int(row.id) for row in found}


def altered_documents(connection: Connection) -> int:
    """How many documents are not those of their hashes."""
    return sum(Document(row.text, row.seed_at).sha256 != row.sha256 for row in connection.execute(select(documents)))


def read_shared(connection: Connection, numbers: Iterable[int]) -> dict[int, tuple[Document, dict[str, Any]]]:
    """Number -> document and its table, decoded once for all rows that share it."""
    wanted = select(documents.c.id, documents.c.text, documents.c.seed_at).where(among(documents.c.id, numbers))
    return {number: (Document(text, at), unpack(text)) for number, text, at in connection.execute(wanted)}


# Values from rows


def ladder_instance(row: Row[Any]) -> LadderInstance:
    """The ladder instance of a row of `ladders`."""
    spec = unpack(row.spec)
    msgspec.convert(spec, _Spec)
    return build(LadderInstance, row, spec=spec)


def numbered(name: str) -> Iterator[str]:
    """A name, and the same with -2, -3 and so on."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def build_attempt(run_id: str, row: Row[Any]) -> Attempt:
    """The attempt of a row of `attempts` with its ENVIRONMENT."""
    return build(Attempt, row, run=run_id, environment=unpack(row.environment))


def load_runs(
    connection: Connection, condition: ColumnElement[bool], limit: int | None = None, *, brief: bool = False
) -> list[Run]:
    """The runs that meet a condition on `runs`, newest first, by a fixed number of statements for each thousand.

    `brief` leaves config, execution, provenance and code empty.
    """
    columns: list[ColumnElement[Any]] = [c for c in runs.c if c.name in Run.__struct_fields__]
    if not brief:
        columns += [runs.c.execution_id, runs.c.provenance_id]
    wanted = select(runs.c.number, *columns).where(condition).order_by(runs.c.number.desc()).limit(limit)
    names = [column.name for column in columns]
    settings = None if brief else _Settings(connection)
    loaded: list[Run] = []
    for part in connection.execute(wanted).partitions(_AT_ONCE):
        found = {row[0]: dict(zip(names, row[1:], strict=True)) for row in part}
        if settings is not None:
            settings.read(found.values())
        loaded += _with_relations(connection, found, settings)
    return loaded


def _with_relations(
    connection: Connection,
    found: Mapping[int, dict[str, Any]],
    settings: _Settings | None,
) -> list[Run]:
    """Runs from the columns of their rows, by number."""
    numbers = list(found)
    memberships = _memberships(connection, numbers)
    marks = _texts(
        connection, select(tags.c.run, tags.c.name).where(among(tags.c.run, numbers)).order_by(tags.c.run, tags.c.name)
    )
    reasons = _texts(connection, select(exclusions.c.run, exclusions.c.why).where(among(exclusions.c.run, numbers)))
    newest = and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt)
    numerics = select(runs.c.number, attempts.c.numerics).join(attempts, newest).where(among(runs.c.number, numbers))
    known = {row.number: row.numerics for row in connection.execute(numerics)}
    codes = {} if settings is None else _codes(connection, numbers, known)
    return [
        Run(
            **_decoded(fields, settings),
            code=tuple(codes.get(number, ())),
            numerics=known.get(number),
            memberships=tuple(memberships.get(number, ())),
            tags=tuple(marks.get(number, ())),
            excluded=next(iter(reasons.get(number, ())), None),
        )
        for number, fields in found.items()
    ]


def _codes(connection: Connection, numbers: list[int], numerics: Mapping[int, int]) -> dict[int, dict[str, None]]:
    """Run -> the code versions of its attempts with the numerics version of the newest one, in order, each once.

    A new numerics version starts the run again from step 0, so that nothing of the attempts before remains.
    """
    versions = (
        select(attempts.c.run, attempts.c.code, attempts.c.numerics)
        .where(among(attempts.c.run, numbers), attempts.c.code.is_not(None))
        .order_by(attempts.c.run, attempts.c.n)
    )
    found: dict[int, dict[str, None]] = {}
    for run, code, version in connection.execute(versions):
        if version == numerics.get(run):
            found.setdefault(run, {})[sys.intern(code)] = None
    return found


_AT_ONCE = 1000
"""How many rows are in memory beside the runs that are made of them."""


def recorded_config(document: Document, table: dict[str, Any]) -> Config:
    """The configuration that a document holds, with any seed where it has none."""
    return recorded(table if document.seed_at is None else {**table, "seed": 0})


class _Settings:
    """The settings of runs, from the documents that these share, each of which is decoded once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._configs: dict[int, tuple[Document, Config]] = {}
        self._executions: dict[int, Execution] = {}
        self._sources: dict[int, dict[str, str]] = {}

    def read(self, rows: Collection[Mapping[str, Any]]) -> None:
        """Reads the documents that these rows of `runs` name."""
        configs = {row["config_id"] for row in rows} - self._configs.keys()
        executions = {row["execution_id"] for row in rows} - self._executions.keys()
        sources = {row["provenance_id"] for row in rows} - self._sources.keys()
        read = read_shared(self._connection, configs | executions | sources)
        for number in configs:
            self._configs[number] = read[number][0], recorded_config(*read[number])
        self._executions |= {number: msgspec.convert(read[number][1], Execution) for number in executions}
        self._sources |= {number: msgspec.convert(read[number][1], dict[str, str]) for number in sources}

    def pop(self, fields: dict[str, Any]) -> RunSettings:
        """Those of a row, whose columns are no field of `Run`."""
        document, config = self._configs[fields["config_id"]]
        if document.seed_at is not None:
            config = structs.replace(config, seed=fields["seed"])
        execution, sources = self._executions[fields.pop("execution_id")], self._sources[fields.pop("provenance_id")]
        return RunSettings(config=config, execution=execution, sources=sources)


def _decoded(fields: dict[str, Any], settings: _Settings | None) -> dict[str, Any]:
    """The fields of a run from its columns."""
    fields["superseded"] = bool(fields["superseded"])
    # One copy of the texts that thousands of runs have in common.
    for field in ("kind", "task", "state"):
        fields[field] = sys.intern(fields[field])
    if fields["data_sha256"] is not None:
        fields["data_sha256"] = sys.intern(fields["data_sha256"])
    fields["settings"] = None if settings is None else settings.pop(fields)
    if fields["result"] is not None:
        fields["result"] = _result(fields["result"])
    return fields


def _memberships(connection: Connection, numbers: Sequence[int]) -> dict[int, list[Membership]]:
    """Run number -> its places in ladders, the first of them first."""
    # The few instances are read once: a join would repeat them for every run.
    named = select(
        ladders.c.id,
        ladders.c.name.label("ladder"),
        ladders.c.key.label("ladder_key"),
        ladders.c.short_name.label("instance"),
        ladders.c.task,
        ladders.c.profile,
        ladders.c.user.label("user"),
    )
    known = {row.id: row._asdict() for row in connection.execute(named)}
    for instance in known.values():
        del instance["id"]
    found: dict[int, list[Membership]] = {}
    table = ladder_runs.c
    places = select(table.run, table.ladder, table.rung, table.stage, table.position).where(among(table.run, numbers))
    for run, ladder, rung, stage, position in connection.execute(places.order_by(table.id)):
        place = Membership(rung=sys.intern(rung), stage=sys.intern(stage), position=position, **known[ladder])
        found.setdefault(run, []).append(place)
    return found


def _texts(connection: Connection, statement: Select[Any]) -> dict[int, list[str]]:
    """The first column of the rows -> the second columns, in order."""
    found: dict[int, list[str]] = {}
    for key, text in connection.execute(statement):
        found.setdefault(key, []).append(sys.intern(text))
    return found


def build_event(row: Row[Any]) -> Event:
    """The event of a row of `events` with the id of its run."""
    return build(Event, row, payload=None if row.payload is None else unpack(row.payload))


# Columns that hold JSON

NotFinite = Literal["nan", "inf", "-inf"]

unpack = msgspec.json.Decoder(dict[str, Any]).decode
_numbers = msgspec.json.Decoder(dict[str, int | float])
_results = msgspec.json.Decoder(dict[str, int | float | NotFinite])
_list = msgspec.json.Decoder(list[Any])
_pairs = msgspec.json.Decoder(list[tuple[int | float | NotFinite, int | float | NotFinite]])


class _Spec(msgspec.Struct):
    """What readers rely on in the spec of a ladder instance."""

    set: dict[str, Any] = {}
    tune: bool = False


def pack(table: Mapping[str, Any]) -> str:
    """A table as JSON."""
    # Lone surrogates, which come from undecodable file names, are escaped; NaN, which JSON does not have, is refused.
    return json.dumps(table, separators=(",", ":"), allow_nan=False)


def pack_result(result: Mapping[str, float]) -> str:
    """Results as JSON; NaN and infinities as the strings that `float` reads."""
    return pack({key: _json_number(value) for key, value in result.items()})


def _result(text: str) -> dict[str, float]:
    try:
        return _numbers.decode(text)
    except msgspec.ValidationError:  # NaN and infinities are strings
        found = _results.decode(text)
        return {key: float(value) if isinstance(value, str) else value for key, value in found.items()}


def pack_complex(values: Sequence[complex]) -> str:
    """Complex numbers as JSON pairs; NaN and infinities as in results."""
    numbers = map(complex, values)
    return json.dumps([[_json_number(z.real), _json_number(z.imag)] for z in numbers], separators=(",", ":"))


def unpack_complex(text: str) -> list[complex]:
    """Complex numbers from JSON pairs."""
    return [complex(float(real), float(imaginary)) for real, imaginary in _pairs.decode(text)]


def unpack_numbers(text: str) -> list[float]:
    """The numbers of a JSON list; null is left out."""
    numbers = _list.decode(text)
    return [number for number in numbers if number is not None] if None in numbers else numbers


def _json_number(value: float) -> float | str:
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)


# Other columns


def to_real(value: float) -> float | None:
    """A number for a REAL column, which cannot hold NaN: NULL stands for it."""
    number = float(value)
    return None if number != number else number


def from_real(value: float | None) -> float:
    """A number from a REAL column."""
    return math.nan if value is None else value


def clean(text: str | None) -> str | None:
    """Text that SQLite can store: lone surrogates are replaced."""
    return None if text is None else text.encode("utf-8", "replace").decode()
