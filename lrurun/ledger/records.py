"""Records of runs and of ladder instances: what a ledger has of them, as files of the runs folder hold it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs
from sqlalchemy import select

from lrurun.ledger.curves import Curves
from lrurun.ledger.reading import Reading
from lrurun.ledger.recording import Recording
from lrurun.ledger.rows import pack
from lrurun.ledger.schema import (
    SCHEMA,
    ladder_runs,
    runs,
)
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


class RunRecord(Head, frozen=True, kw_only=True):
    """A run, without its places in ladders, which the records of these have."""

    run: Run
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
    """Reading records."""

    def run_record(self, run_id: str) -> RunRecord:
        """What the ledger has of a run (an id)."""
        run = self.run(run_id)
        with self._reading() as connection:
            number = self._run_number(connection, run.id)
        moments = self.eigenvalues(run.id)
        return RunRecord(
            number=number,
            run=structs.replace(run, memberships=(), result=None),
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
