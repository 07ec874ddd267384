"""The sources of an import, and the reading of their runs."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from lrurun import trackers
from lrurun.config.schema import Origin
from lrurun.errors import UsageError
from lrurun.imported import understanding
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


def opened(
    names: Sequence[str],
    *,
    kind: str | None,
    folder: Path,
    project: str = "",
    metrics_file: str = "",
    items: str = "",
    frame: Any = None,
    metrics: Sequence[str] = (),
) -> list[OpenedSource]:
    """The sources with their readers; relative paths are from `folder`.

    Raises:
        UsageError: a source is named twice, does not exist or is of no known kind.
    """
    sources: list[OpenedSource] = []
    places: dict[str, str] = {}
    for name in names:
        located = name if frame is not None or "://" in name else str(located_in(folder, name))
        place = os.path.realpath(located) if "://" not in located and frame is None else located
        if place in places:
            raise UsageError(f"{name}: is the same source as {places[place]}", "name each source once")
        places[place] = name
        source = Source(name=located, project=project, metrics_file=metrics_file, items=items, frame=frame)
        reader = trackers.opened(source, kind)
        sources.append(OpenedSource(name=name, tracker=kind or reader.name, reader=reader, metrics=tuple(metrics)))
    return sources


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
                "name a source that has it once, or limit it with --project",
            )
        self._places[origin] = place
        return origin
