"""What an import writes to a ledger: the runs as they ended elsewhere, and the rungs that count them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from lrurun.config.fingerprint import fingerprint
from lrurun.config.imported import ImportTable
from lrurun.config.schema import ImportedConfig, Origin
from lrurun.imported import scoring
from lrurun.imported.repeats import RunKey
from lrurun.imported.scoring import ScoredRun
from lrurun.imported.sources import OpenedSource, origin_of
from lrurun.items import ItemResults, TestSet
from lrurun.ledger.imports import SOURCE, ImportedRun
from lrurun.trackers import Curve, TrackedRun

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.import_record import ImportRecord
    from lrurun.ledger.imports import Member
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance


CONTENTS = "digest without curves"
"""The entry of a run's origin with the digest of all that was read of it but its curves, where it has any."""


PARTS = "mean of"
"""The entry of a run's origin with the projects and ids of the runs of which it is the mean, where it is one."""


class Placed(Struct, frozen=True, kw_only=True):
    """A run that belongs to a rung."""

    scored: ScoredRun
    origin: Origin
    seed: int
    """Its seed, or its number among the runs of its rung."""
    rung: str
    stage: str
    position: int
    parts: tuple[RunKey, ...] = ()
    """The runs of which it is the mean; none where it is a single run."""
    sources: tuple[str, ...] = ()
    """The sources that it is from, as the table `[import]` names them: several only of a mean."""

    def config(self, task: str, table: ImportTable) -> ImportedConfig:
        """Its configuration in the ledger."""
        settings = {path: value for path, value in self.scored.run.settings.items() if path != table.seed}
        return ImportedConfig(task=task, origin=self.origin, reading=table.reading, settings=settings, seed=self.seed)


class Known(Struct, frozen=True):
    """What the ledger has of a run of an earlier import."""

    contents: str
    """The digest of all but its curves."""
    digest: str


def key_of(placed: Placed, task: str, table: ImportTable) -> str:
    """The fingerprint of a run."""
    return fingerprint(placed.config(task, table))


def runs(
    sources: Sequence[OpenedSource],
    placed: Mapping[Origin, Placed],
    task: str,
    table: ImportTable,
    *,
    with_curves: bool,
    known: Mapping[Origin, Known] = MappingProxyType({}),
) -> Iterator[ImportedRun]:
    """The runs as the ledger has them, one at a time; with their curves, the sources are read once more.

    A run that appeared since the first reading is left to the next import; one that has gone counts as it was read.
    Without curves, a run of an earlier import that has the same contents but them is as it was. `known` are those.
    """
    remaining = dict(placed)
    if with_curves:
        for source in sources:
            for run in source.runs(None):
                found = remaining.pop(origin_of(run, source.tracker), None)
                if found is not None:
                    usable = structs.replace(run, items=found.scored.run.items)
                    rescored = structs.replace(found, scored=scoring.scored(usable, source.tracker, table))
                    yield imported_run(rescored, usable, task, table, source, with_curves=True)
    of_tracker = {source.tracker: source for source in sources}
    for found in remaining.values():
        made = imported_run(found, found.scored.run, task, table, of_tracker[found.scored.tracker], with_curves=False)
        earlier = known.get(found.origin)
        is_same = earlier is not None and not with_curves and earlier.contents == made.digest
        yield structs.replace(made, digest=earlier.digest) if earlier is not None and is_same else made


def imported_run(
    placed: Placed, run: TrackedRun, task: str, table: ImportTable, source: OpenedSource, *, with_curves: bool
) -> ImportedRun:
    """A run as the ledger has it; its curves are those of `run`."""
    scored = placed.scored
    curves = scoring.recorded_curves(run, table) if with_curves else {}
    contents = digest(run, scored)
    items = {} if run.items is None or scored.result is None else {table.result: item_results(run.items)}
    return ImportedRun(
        config=placed.config(task, table),
        state=scored.state,
        result=scored.result,
        error=scored.why or None,
        step=scored.step,
        digest=with_curves_of(contents, curves),
        origin=_origin(run, source, placed) | ({CONTENTS: contents} if curves else {}),
        curves={name: (curve.steps, curve.values) for name, curve in curves.items()},
        items=items,
        started_at=run.started_at,
        ended_at=run.ended_at,
    )


def item_results(items: Sequence[float]) -> ItemResults:
    """The results of a run on the items of its test set, whose names are not known."""
    return ItemResults(test_set=TestSet(count=len(items)), sums=np.asarray(items, np.float64))


def _origin(run: TrackedRun, source: OpenedSource, placed: Placed) -> dict[str, Any]:
    """What `show` says about the origin of a run."""
    origin = {
        "tracker": source.tracker,
        "title": source.reader.title,
        "version": source.version,
        "project": run.project,
        "run": run.id,
        "name": run.name,
        "state": run.state_text or run.state,
        "place": run.place or source.name,
        "code": run.code,
        "data": run.data,
        SOURCE: placed.sources[0] if len(placed.sources) == 1 else list(placed.sources),
        PARTS: [list(part) for part in placed.parts],
    }
    return {name: value for name, value in origin.items() if value}


def digest(run: TrackedRun, scored: ScoredRun) -> str:
    """A digest of all that was read of a run but its curves, and of what was made of it; not of its seed where that is
    a number that lrurun gave."""
    canonical = [
        [run.id, run.project, run.name, run.state, run.state_text, run.code, run.data, run.started_at, run.ended_at],
        sorted((path, _digested(value)) for path, value in run.settings.items()),
        sorted((name, repr(value)) for name, value in run.last.items()),
        [scored.state, scored.step, scored.why, sorted((k, repr(v)) for k, v in (scored.result or {}).items())],
        None if run.items is None else list(map(repr, run.items)),
    ]
    return f"sha256:{hashlib.sha256(json.dumps(canonical, ensure_ascii=True).encode()).hexdigest()}"


def with_curves_of(contents: str, curves: Mapping[str, Curve]) -> str:
    """The digest of all that was read of a run, from that of the rest; without curves it is the same."""
    if not curves:
        return contents
    digest = hashlib.sha256(contents.encode())
    for name in sorted(curves):
        curve = curves[name]
        digest.update(f"\n{name}\n{len(curve.steps)}\n".encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(curve.steps, "<i8").tobytes())
        digest.update(np.ascontiguousarray(curve.values, "<f8").tobytes())
    return f"sha256:{digest.hexdigest()}"


def _digested(value: Any) -> Any:
    """The value of a setting in the text of a digest: 1, 1.0 and true are different."""
    return [_digested(part) for part in value] if isinstance(value, list) else [type(value).__name__, repr(value)]


def members(placed: Sequence[tuple[Placed, str]]) -> list[Member]:
    """The places of runs in their rungs, each with its id in the ledger."""
    from lrurun.ledger.imports import Member

    return [Member(run=run, rung=place.rung, stage=place.stage, position=place.position) for place, run in placed]


def instance_of(ledger: Ledger, plan: planning.Plan) -> LadderInstance:
    """The ladder instance of a plan; it is inserted if it is new."""
    return ledger.add_ladder(plan.ladder.name, plan.recipe.task, None, plan.spec, plan.short_name, kind="imported")


def record(
    ledger: Ledger,
    instance: LadderInstance,
    plan: planning.Plan,
    record: ImportRecord,
    request: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Records the documents of an instance and what the import knew, unless both are recorded as they are, and no
    instance of the task was imported since. `request` is what the user asked for, where the file is written."""
    from lrurun.instances import documents, import_record

    documents.record(ledger, instance, plan)
    of_task = {other.key for other in ledger.ladders(None, instance.task)}
    imports = [key for key, _ in ledger.events_of_ladders(import_record.IMPORTED) if key in of_task]
    is_recorded = imports[-1:] == [instance.key] and import_record.newest(ledger, instance) == record
    if not is_recorded or (request and request != import_record.newest_request(ledger, instance.task)):
        table: dict[str, Any] = msgspec.to_builtins(record)
        if request:
            table[import_record.REQUEST] = dict(request)
        ledger.event(import_record.IMPORTED, _sentence(record), table, ladder=instance.key)


def _sentence(record: ImportRecord) -> str:
    places = ", ".join(source.place for source in record.sources)
    return f"imported from {places}: {record.new} new, {record.changed} changed, {record.equal} equal"
