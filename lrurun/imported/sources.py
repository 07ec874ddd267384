"""The sources of an import, and the reading of their runs: first what decides rungs and scores, with few curves."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from lrurun import trackers
from lrurun.config.imported import ImportTable
from lrurun.config.schema import Origin
from lrurun.errors import UsageError
from lrurun.imported import understanding
from lrurun.imported.request import ImportOptions
from lrurun.instances.import_record import ReadSource
from lrurun.trackers import Reader, Source, TrackedRun, Value

FRAME = "frame"
"""The name of a source that is a data frame."""


class OpenedSource(Struct, frozen=True, kw_only=True, dict=True):
    """A source with its reader."""

    name: str
    """The source as the user names it."""
    tracker: str
    """The name of its reader, as `--from` takes it."""
    reader: Reader
    metrics: tuple[str, ...] = ()
    """Columns of a table that are metrics, whatever their names say."""

    @cached_property
    def version(self) -> str:
        """The version of the format, or of the package that reads it; empty where there is none."""
        return self.reader.version()

    def runs(self, curves: Collection[str] | None) -> Iterator[TrackedRun]:
        """The runs with the settings that a ledger can keep, and these columns as metrics."""
        for run in self.reader.runs(curves):
            settings = {path: kept(value) for path, value in run.settings.items()}
            yield understanding.with_metrics(structs.replace(run, settings=settings), self.metrics)

    def record(self, runs: int) -> ReadSource:
        """What the ledger records of it, after so many runs were read."""
        return ReadSource(
            place=self.name,
            tracker=self.tracker,
            version=self.version,
            runs=runs,
            notes=tuple(self.reader.notes()),
        )


def kept(value: Value) -> Any:
    """The value of a setting as a ledger keeps it: JSON has neither NaN nor infinities, which become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return [kept(part) for part in value] if isinstance(value, list) else value


def opened(names: Sequence[str], given: ImportOptions, folder: Path, frame: Any = None) -> list[OpenedSource]:
    """The sources with their readers; relative paths are from `folder`.

    Raises:
        UsageError: a source is named twice, does not exist or is of no known kind, or they are of several kinds.
    """
    found: list[OpenedSource] = []
    places: dict[str, str] = {}
    for name in names:
        if not name:
            raise UsageError("a source has an empty name", "name a file, a folder or an address with runs")
        located = name if frame is not None or "://" in name else str(located_in(folder, name))
        place = os.path.realpath(located) if "://" not in located and frame is None else located
        if place in places:
            raise UsageError(f"{name}: is the same source as {places[place]}", "name each source once")
        places[place] = name
        source = Source(
            name=located,
            project=given.project or "",
            metrics_file=given.metrics_file or "",
            items=given.items or "",
            frame=frame,
        )
        reader = trackers.opened(source, given.kind)
        found.append(OpenedSource(name=name, tracker=given.kind or reader.name, reader=reader))
    if len({source.tracker for source in found}) > 1:
        listed = ", ".join(f"{source.name} ({source.tracker})" for source in found)
        raise UsageError(
            f"the sources are of several kinds: {listed}", "import each kind under a name of its own: --name"
        )
    return found


def places(names: Sequence[str], folder: Path) -> list[str]:
    """Where sources are, whatever their names; relative paths are from `folder`."""
    return sorted(name if "://" in name else os.path.realpath(located_in(folder, name)) for name in names)


def located_in(folder: Path, name: str) -> Path:
    """The path of a source, from the folder of its file; as short as one would type it."""
    path = Path(name).expanduser()
    if path.is_absolute() or folder == Path():
        return path
    return folder / path


def origin_of(run: TrackedRun, tracker: str) -> Origin:
    """Which run of which tracker it is."""
    return Origin(tracker=tracker, project=run.project, run=run.id)


class Identities:
    """The runs that were read so far: no two may be the same run of a tracker."""

    def __init__(self) -> None:
        self._places: dict[Origin, str] = {}

    def add(self, run: TrackedRun, source: OpenedSource) -> Origin:
        """Notes a run.

        Raises:
            UsageError: it was there before.
        """
        origin = origin_of(run, source.tracker)
        place = run.place or source.name
        if (earlier := self._places.get(origin)) is not None:
            of_project = f" of {run.project}" if run.project else ""
            raise UsageError(
                f"run {run.id}{of_project} is there twice: in {earlier} and in {place}",
                "name a source that has it once, import them under two names with --name, or limit it with --project; "
                "a column project distinguishes runs of tables",
            )
        self._places[origin] = place
        return origin


MOST_POINTS = 3_000_000
"""The most points of curves of scores that are held until it is known how they are read."""


class ReadRuns(Struct, kw_only=True):
    """Runs as they were read, without curves unless they are short."""

    runs: list[tuple[TrackedRun, OpenedSource]]
    curves: frozenset[str]
    """The metrics whose curves were asked for."""
    has_curves: bool
    """Whether they have them."""


def read(opened: Sequence[OpenedSource], curves: Collection[str]) -> ReadRuns:
    identities = Identities()
    found: list[tuple[TrackedRun, OpenedSource]] = []
    points, has_curves = 0, True
    for source in opened:
        for run in source.runs(curves):
            identities.add(run, source)
            points += sum(len(curve.steps) for curve in run.curves.values())
            if points > MOST_POINTS:
                has_curves = False
            found.append((run if has_curves else structs.replace(run, curves={}), source))
    if not found:
        names = ", ".join(source.name for source in opened)
        notes = "; ".join(note for source in opened for note in source.reader.notes())
        raise UsageError(f"{names}: has no runs", notes or "name a source with runs")
    return ReadRuns(runs=found, curves=frozenset(curves), has_curves=has_curves)


def with_curves(
    read: ReadRuns, opened: Sequence[OpenedSource], needed: Collection[str]
) -> Iterator[tuple[TrackedRun, OpenedSource]]:
    """The runs with the curves that are needed: as they were read, or read again."""
    has_steps = any(run.last_step is not None for run, _ in read.runs)
    if not has_steps or (read.has_curves and read.curves.issuperset(needed)):
        yield from read.runs
        return
    known = {(source.tracker, run.project, run.id) for run, source in read.runs}
    for source in opened:
        for run in source.runs(needed):
            if (source.tracker, run.project, run.id) in known:
                yield run, source


def with_columns(read: ReadRuns, opened: Sequence[OpenedSource], metrics: Sequence[str]) -> list[OpenedSource]:
    """The sources, and the runs that were read, with these metrics that are columns of a table no longer settings."""
    columns = tuple(name for name in metrics if any(name in run.settings for run, _ in read.runs))
    changed = {source.name: structs.replace(source, metrics=columns) for source in opened}
    read.runs = [(understanding.with_metrics(run, columns), changed[source.name]) for run, source in read.runs]
    return list(changed.values())


def needed(table: ImportTable, opened: Sequence[OpenedSource], for_steps: Sequence[str] = ()) -> list[str]:
    """The metrics whose curves decide scores, or cautions on them; those of `for_steps` would choose another step than
    the last."""
    if table.at == "last" and table.protocol != "best-of-test" and not for_steps and tell_ends(opened):
        return []
    return list(dict.fromkeys(name for name in (table.metric, table.metric_for_choice, *for_steps) if name))


def tell_ends(opened: Sequence[OpenedSource]) -> bool:
    """Whether all that last values need is read without curves, in much less time."""
    return all(getattr(source.reader, "tells_ends", False) for source in opened)
