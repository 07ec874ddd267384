"""The reading of sources: first what decides rungs and scores, with the curves of scores alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from lrurun.config.imported import ImportTable
from lrurun.errors import UsageError
from lrurun.imported import sources, understanding
from lrurun.imported.options import ImportOptions
from lrurun.imported.sources import OpenedSource
from lrurun.trackers import TrackedRun

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
    identities = sources.Identities()
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


def opened(names: Sequence[str], given: ImportOptions, folder: Path, frame: Any) -> list[OpenedSource]:
    found = sources.opened(
        names,
        kind=given.kind,
        folder=folder,
        project=given.project or "",
        metrics_file=given.metrics_file or "",
        items=given.items or "",
        frame=frame,
    )
    kinds = {source.tracker for source in found}
    if len(kinds) > 1:
        listed = ", ".join(f"{source.name} ({source.tracker})" for source in found)
        raise UsageError(
            f"the sources are of several kinds: {listed}", "import each kind under a name of its own: --name"
        )
    return found


def with_columns(read: ReadRuns, opened: Sequence[OpenedSource], metrics: Sequence[str]) -> list[OpenedSource]:
    """The sources, and the runs that were read, with these metrics that are columns of a table no longer settings."""
    columns = tuple(name for name in metrics if any(name in run.settings for run, _ in read.runs))
    changed = {source.name: structs.replace(source, metrics=columns) for source in opened}
    read.runs = [(understanding.with_metrics(run, columns), changed[source.name]) for run, source in read.runs]
    return list(changed.values())


def needed(table: ImportTable, opened: Sequence[OpenedSource], twin: str | None = None) -> list[str]:
    """The metrics whose curves decide scores, or cautions on them; `twin` would choose another step than the last."""
    if table.at == "last" and table.protocol != "best-of-test" and twin is None and tell_ends(opened):
        return []
    return [name for name in (table.metric, table.metric_for_choice, twin) if name]


def tell_ends(opened: Sequence[OpenedSource]) -> bool:
    """Whether all that last values need is read without curves, in much less time."""
    return all(getattr(source.reader, "tells_ends", False) for source in opened)
