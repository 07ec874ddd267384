"""What an import knew and decided: recorded with the instance, so that every report can say so."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance

IMPORTED = "imported"
"""Kind of the event of an instance that records an import."""
REQUEST = "request"
"""The key of such an event with what the user asked for, where that import wrote its file."""


class Caution(Struct, frozen=True, kw_only=True):
    """What changes the reading of verdicts on imported runs."""

    short: str
    """A few words for the first screen; empty: it is among the details only."""
    full: str
    rungs: tuple[str, ...] = ()
    """The rungs that it is about; empty for all."""


class ReadSource(Struct, frozen=True, kw_only=True):
    """A source as it was read."""

    place: str
    """The path, address or name of the source."""
    tracker: str
    """The name of its reader."""
    version: str = ""
    """The version of the format, or of the package that read it."""
    runs: int = 0
    notes: tuple[str, ...] = ()
    """Sentences on what was left out or interpreted."""


class ImportRecord(Struct, frozen=True, kw_only=True):
    """One import, as the event of its instance has it."""

    sources: tuple[ReadSource, ...]
    new: int
    """Runs that the ledger did not have."""
    changed: int
    """Runs that the source has with other contents than before: new generations of them supersede the old ones."""
    equal: int
    """Runs that the ledger already had as they are."""
    vanished: int
    """Runs of earlier imports that the source no longer has: they are kept, and count."""
    outside: tuple[str, ...] = ()
    """The names of the runs that fit no rung."""
    choices: tuple[str, ...] = ()
    """What was chosen by validation among the runs of a rung, a sentence for each rung where there was a choice, as in
    "layer: lr = 0.01 is the best of 3 by the mean val_acc of 4 seeds; the verdict uses other seeds". The runs that only
    chose are members with the stage "tune"."""
    cautions: tuple[Caution, ...] = ()
    """In order: what weighs most comes first."""


def newest_request(ledger: Ledger, task: str) -> Mapping[str, Any]:
    """What the user asked for when the file of a task was last written by an import; empty if that is not known."""
    keys = {instance.key for instance in ledger.ladders(None, task) if instance.kind == "imported"}
    for key, event in reversed(ledger.events_of_ladders(IMPORTED)):
        if key in keys and isinstance(request := (event.payload or {}).get(REQUEST), dict):
            return request
    return {}


def newest(ledger: Ledger, instance: LadderInstance) -> ImportRecord | None:
    """The record of the newest import of an instance; None if there is none that this version can read."""
    events = ledger.events(ladder_key=instance.key, of_runs=False, kind=IMPORTED)
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(events[-1].payload, ImportRecord) if events else None
    return None
