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

from lrurun.config.runs import InstanceSpec
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
from lrurun.ledger.database.sql import EVENTS, among, among_given, lock, upsert
from lrurun.ledger.values import (
    Attempt,
    Event,
    LadderInstance,
    Membership,
    Removal,
    RemovedInstance,
    Run,
    RunSettings,
)

S = TypeVar("S", bound=msgspec.Struct)


def build(struct: type[S], row: Row[Any], **fields: Any) -> S:
    """A value from the columns of a row that have the names of its fields; `fields` are the other fields."""
    columns = row._mapping
    return struct(**fields, **{name: columns[name] for name in struct.__struct_fields__ if name not in fields})


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
    """Insert an event and return its number.

    It must be the last write of a transaction: on a server, other transactions with events wait for its end. Numbers
    have the order of the commits: a process that has read up to a number has seen all events before it.
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


def add_run_events(connection: Connection, time: float, new: Sequence[tuple[int, int | None, str, str]]) -> None:
    """Insert events of many runs, given as run, attempt, kind and text: the last write of a transaction, as of
    `add_event`."""
    lock(connection, EVENTS)
    rows = [
        {"run": run, "attempt": attempt, "time": time, "kind": kind, "text": clean(text)}
        for run, attempt, kind, text in new
    ]
    if rows:
        connection.execute(insert(events), rows)


# Texts that rows share


class Document(msgspec.Struct, frozen=True):
    """A JSON text without what differs between the runs that share it."""

    text: str
    seed_at: int | None = None
    """The number of characters before the null that stands for the seed; None if there is no such null."""

    @classmethod
    def pack(cls, table: Mapping[str, Any] | msgspec.Struct, seed: int | None = None) -> Document:
        """A table as JSON, without the `seed` that it contains."""
        text = pack(msgspec.to_builtins(table))
        before, seed_text, after = text.rpartition(f'"seed":{seed}')
        if not seed_text or not after.startswith((",", "}")):
            return cls(text)
        return cls(f'{before}"seed":null{after}', len(before) + len('"seed":'))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"{self.seed_at}\n{self.text}".encode()).hexdigest()


def share(connection: Connection, needed: Iterable[Document]) -> dict[Document, int]:
    """Document -> its number; those that the ledger does not have are added."""
    unique = set(needed)
    numbers = _document_numbers(connection, unique)
    if missing := unique - numbers.keys():
        new = [{"sha256": document.sha256, "seed_at": document.seed_at, "text": document.text} for document in missing]
        # In one order, so that processes which add the same ones at once do not wait for each other.
        new.sort(key=lambda row: str(row["sha256"]))
        connection.execute(
            upsert(connection, documents).on_conflict_do_nothing(index_elements=[documents.c.sha256]), new
        )
        numbers |= _document_numbers(connection, missing)
    if not unique <= numbers.keys():
        raise LedgerError("the ledger has documents that do not match their hashes", "restore a backup")
    return numbers


def _document_numbers(connection: Connection, needed: Iterable[Document]) -> dict[Document, int]:
    """Document -> its number; those that the ledger does not have are left out."""
    hashes = (document.sha256 for document in needed)
    rows = connection.execute(select(documents).where(among(documents.c.sha256, hashes)))
    return {Document(row.text, row.seed_at): int(row.id) for row in rows}


def altered_documents(connection: Connection) -> int:
    """How many documents do not match their hashes."""
    return sum(Document(row.text, row.seed_at).sha256 != row.sha256 for row in connection.execute(select(documents)))


_DOCUMENTS = select(documents.c.id, documents.c.text, documents.c.seed_at).where(among_given(documents.c.id, "numbers"))


def read_shared(connection: Connection, numbers: Iterable[int]) -> dict[int, tuple[Document, dict[str, Any]]]:
    """Number -> document and its table, decoded once for all rows that share it."""
    rows = connection.execute(_DOCUMENTS, {"numbers": list(numbers)})
    return {number: (Document(text, seed_at), unpack(text)) for number, text, seed_at in rows}


# Values from rows


def ladder_instance(row: Row[Any]) -> LadderInstance:
    """The ladder instance of a row of `ladders`."""
    return build(LadderInstance, row, spec=msgspec.convert(unpack(row.spec), InstanceSpec))


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

    `brief` leaves `settings` None and `code` empty.
    """
    columns: list[ColumnElement[Any]] = [c for c in runs.c if c.name in Run.__struct_fields__]
    if not brief:
        columns += [runs.c.execution_id, runs.c.provenance_id]
    query = select(runs.c.number, *columns).where(condition).order_by(runs.c.number.desc()).limit(limit)
    names = [column.name for column in columns]
    settings = None if brief else _Settings(connection)
    loaded: list[Run] = []
    for batch in connection.execute(query).partitions(_AT_ONCE):
        rows = {row[0]: dict(zip(names, row[1:], strict=True)) for row in batch}
        if settings is not None:
            settings.read(rows.values())
        loaded += _with_relations(connection, rows, settings)
    return loaded


_TAGS = select(tags.c.run, tags.c.name).where(among_given(tags.c.run, "numbers")).order_by(tags.c.run, tags.c.name)
_EXCLUSIONS = select(exclusions.c.run, exclusions.c.why).where(among_given(exclusions.c.run, "numbers"))
_NUMERICS = (
    select(runs.c.number, attempts.c.numerics)
    .join(attempts, and_(attempts.c.run == runs.c.number, attempts.c.n == runs.c.attempt))
    .where(among_given(runs.c.number, "numbers"))
)
_CODES = (
    select(attempts.c.run, attempts.c.code, attempts.c.numerics)
    .where(among_given(attempts.c.run, "numbers"), attempts.c.code.is_not(None))
    .order_by(attempts.c.run, attempts.c.n)
)
_INSTANCES = select(
    ladders.c.id,
    ladders.c.name.label("ladder"),
    ladders.c.key.label("ladder_key"),
    ladders.c.short_name.label("instance"),
    ladders.c.task,
    ladders.c.profile,
    ladders.c.user.label("user"),
)
_MEMBERSHIPS = (
    select(ladder_runs.c.run, ladder_runs.c.ladder, ladder_runs.c.rung, ladder_runs.c.stage, ladder_runs.c.position)
    .where(among_given(ladder_runs.c.run, "numbers"))
    .order_by(ladder_runs.c.id)
)


def _with_relations(
    connection: Connection,
    rows: Mapping[int, dict[str, Any]],
    settings: _Settings | None,
) -> list[Run]:
    """Runs from the columns of their rows, by number."""
    numbers = list(rows)
    memberships = _memberships(connection, numbers)
    tag_names = _texts(connection, _TAGS, numbers)
    reasons = _texts(connection, _EXCLUSIONS, numbers)
    versions = {row.number: row.numerics for row in connection.execute(_NUMERICS, {"numbers": numbers})}
    codes = {} if settings is None else _codes(connection, numbers, versions)
    return [
        Run(
            **_decoded(fields, settings),
            code=tuple(codes.get(number, ())),
            numerics=versions.get(number),
            memberships=tuple(memberships.get(number, ())),
            tags=tuple(tag_names.get(number, ())),
            excluded=next(iter(reasons.get(number, ())), None),
        )
        for number, fields in rows.items()
    ]


def _codes(connection: Connection, numbers: list[int], numerics: Mapping[int, int]) -> dict[int, dict[str, None]]:
    """Run -> the code versions of its attempts with the numerics version of the newest one, in order, each once.

    A new numerics version starts the run again from step 0, so that nothing of the attempts before remains.
    """
    codes: dict[int, dict[str, None]] = {}
    for run, code, version in connection.execute(_CODES, {"numbers": numbers}):
        if version == numerics.get(run):
            codes.setdefault(run, {})[sys.intern(code)] = None
    return codes


_AT_ONCE = 1000
"""How many rows are in memory beside the runs that are made from them."""


def recorded_config(document: Document, table: dict[str, Any], run: str = "") -> Config:
    """The configuration that a document holds, with any seed where it has none; errors name the `run`, if it is given.

    Raises:
        LedgerError: it is not one of this version of lrurun.
    """
    try:
        return recorded(table if document.seed_at is None else {**table, "seed": 0})
    except (msgspec.ValidationError, TypeError) as error:
        raise _unknown(run, "configuration", error) from None


def _unknown(run: str, field: str, error: Exception) -> LedgerError:
    return LedgerError(
        f"{f'run {run}' if run else 'a run'}: its {field} is not one that this version of lrurun knows ({error})",
        "another version has written it: use that one; lrurun query reads it in any case",
    )


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
        runs_of = {row[name]: str(row["id"]) for row in rows for name in ("config_id", "execution_id")}
        for number in configs:
            self._configs[number] = read[number][0], recorded_config(*read[number], runs_of[number])
        for number in executions:
            try:
                self._executions[number] = msgspec.convert(read[number][1], Execution)
            except msgspec.ValidationError as error:
                raise _unknown(runs_of[number], "execution", error) from None
        self._sources |= {number: msgspec.convert(read[number][1], dict[str, str]) for number in sources}

    def pop(self, fields: dict[str, Any]) -> RunSettings:
        """The settings of a run; takes the columns that are no field of `Run` out of its row."""
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
    """Run number -> its memberships in ladders, in the order in which they were added."""
    # The few instances are read once: a join would repeat them for every run.
    instances = {row.id: row._asdict() for row in connection.execute(_INSTANCES)}
    for instance in instances.values():
        del instance["id"]
    memberships: dict[int, list[Membership]] = {}
    for run, ladder, rung, stage, position in connection.execute(_MEMBERSHIPS, {"numbers": numbers}):
        membership = Membership(rung=sys.intern(rung), stage=sys.intern(stage), position=position, **instances[ladder])
        memberships.setdefault(run, []).append(membership)
    return memberships


def _texts(connection: Connection, statement: Select[Any], numbers: Sequence[int]) -> dict[int, list[str]]:
    """The first column of the rows of these runs -> the second columns, in order."""
    texts: dict[int, list[str]] = {}
    for key, text in connection.execute(statement, {"numbers": numbers}):
        texts.setdefault(key, []).append(sys.intern(text))
    return texts


def build_event(row: Row[Any]) -> Event:
    """The event of a row of `events` with the id of its run."""
    return build(Event, row, payload=None if row.payload is None else unpack(row.payload))


# Columns that hold JSON

NotFinite = Literal["nan", "inf", "-inf"]

unpack = msgspec.json.Decoder(dict[str, Any]).decode
_numbers = msgspec.json.Decoder(dict[str, int | float])
_results = msgspec.json.Decoder(dict[str, int | float | NotFinite])
_list = msgspec.json.Decoder(list[Any])
_instances = msgspec.json.Decoder(tuple[RemovedInstance, ...])
_pairs = msgspec.json.Decoder(list[tuple[int | float | NotFinite, int | float | NotFinite]])


def pack(table: Mapping[str, Any] | list[Any]) -> str:
    """A table or a list as JSON."""
    # Lone surrogates, which come from undecodable file names, are escaped; NaN, which JSON does not have, is refused.
    return json.dumps(table, separators=(",", ":"), allow_nan=False)


def pack_result(result: Mapping[str, float]) -> str:
    """Results as JSON; NaN and infinities as the strings that `float` reads."""
    return pack({key: _json_number(value) for key, value in result.items()})


def _result(text: str) -> dict[str, float]:
    try:
        return _numbers.decode(text)
    except msgspec.ValidationError:  # NaN and infinities are strings
        numbers = _results.decode(text)
        return {key: float(value) if isinstance(value, str) else value for key, value in numbers.items()}


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


def build_removal(row: Row[Any]) -> Removal:
    """The removal of a row of `removals`."""
    return build(Removal, row, instances=() if row.instances is None else _instances.decode(row.instances))


def pack_instances(instances: Iterable[RemovedInstance]) -> str | None:
    """The instances of a removal as JSON, or None without any."""
    tables = msgspec.to_builtins(list(instances))
    return pack(tables) if tables else None


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
