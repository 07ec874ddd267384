"""Run files, ladder files and removal records: what the ledger knows of a run, of a ladder instance, and of runs that
were removed, as files in the runs folder.

A ledger that is lost is made again from them, see `rebuilding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from lrurun.ledger.database.schema import SCHEMA
from lrurun.ledger.rows import pack
from lrurun.ledger.values import Attempt, Checkpoint, Event, Hidden, LadderInstance, Removal, Run


class CurveValues(Struct, frozen=True):
    """The values of one metric, by step."""

    steps: Sequence[int]
    values: Sequence[float]


class Head(Struct, frozen=True, kw_only=True):
    """The fields that every such file begins with."""

    schema: str = SCHEMA
    """The version of the ledger that wrote the file."""
    number: int
    """The number of the row, which gives the order of the files of one ledger."""


class RunRow(Run, frozen=True, kw_only=True):
    """A run without its settings, which the file has as plain tables: the run's plug-ins may not be loaded."""

    settings: None = None


class PackedTestSet(Struct, frozen=True, kw_only=True):
    """The items of a test set, as a ledger has them: `lrurun.items` packs the numbers."""

    sha256: str
    count: int
    order: str
    weights: bytes | None = None
    groups: bytes | None = None


class PackedItems(Struct, frozen=True, kw_only=True):
    """The per-item results of a run."""

    test_set: PackedTestSet
    sums: bytes | None = None
    """None: they were removed."""


class RunFile(Head, frozen=True, kw_only=True):
    """A run file, without the memberships in ladders, which are in the ladder files."""

    run: RunRow
    config: dict[str, Any]
    execution: dict[str, Any]
    sources: dict[str, str]
    result: dict[str, int | float] | None
    attempts: list[Attempt]
    checkpoints: list[Checkpoint]
    events: list[Event]
    eigenvalues: dict[str, list[list[tuple[float, float]] | None]]
    """Moment -> real and imaginary parts of the eigenvalues of each layer."""
    curves: dict[str, CurveValues]
    items: dict[str, PackedItems] = {}
    """Name of a score -> the per-item results."""


class MembershipRow(Struct, frozen=True):
    """A membership of a run in a ladder instance."""

    number: int
    run: str
    rung: str
    stage: Literal["tune", "train"]
    position: int


class LadderFile(Head, frozen=True, kw_only=True):
    """A ladder file: a ladder instance and the runs that it has."""

    ladder: LadderInstance
    events: list[Event]
    """The events of the ladder, without events of its runs: the ladder as it was run, the command, the
    sequential design and its looks."""
    memberships: list[MembershipRow] = field(name="places")
    hidden: Hidden | None = None
    """None if lists have it."""


class RemovedPlace(Struct, frozen=True):
    """A place in an instance that a removed run had."""

    run: str
    ladder_key: str
    rung: str
    stage: str
    instance: str
    task: str
    seed: int
    state: str


class RemovalRecord(Head, frozen=True, kw_only=True):
    """A removal record: runs that were removed together."""

    removal: Removal
    runs: list[RemovedPlace]
    files: dict[str, Any] | None = None
    """The files that go with the runs."""


RUN_FILE = "run.json"
"""The name of a run file, in the folder of the run."""
LADDERS_FOLDER = "ladders"
"""The folder of the ladder files in the runs folder; their names are the keys of the instances."""
REMOVALS_FOLDER = "removals"
"""The folder of the removal records in the runs folder; their names are the keys of the removals."""

R = TypeVar("R", bound=Head)


def encode(content: Head) -> bytes:
    """A file as JSON; NaN and infinities are texts."""
    table = msgspec.to_builtins(content)
    try:
        text = pack(table)
    except ValueError:  # NaN or an infinity; looking at every number is slow where there are many
        text = pack(_without_nonfinite(table))
    return text.encode()


def decode(content: bytes, form: type[R]) -> R:
    """A file from JSON. Raises msgspec.DecodeError, UnicodeError or RecursionError if it has another form."""
    return msgspec.json.decode(content, type=form, strict=False)  # so that texts are read as numbers


def _without_nonfinite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {key: _without_nonfinite(inner) for key, inner in value.items()}
    return [_without_nonfinite(inner) for inner in value] if isinstance(value, list | tuple) else value
