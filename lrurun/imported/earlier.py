"""Runs of earlier imports that the source no longer has: which of them still count.

1. A run that the source has is read again, and so is the mean of several of which it has any: that one is made again
   of those that it has, since the scores of the others are not known apart.
2. Any other run has *vanished*. It counts as the ledger has it while the table `[import]` names the source that it came
   from, and reading is not limited to other projects. Else it leaves the rungs; it stays in the ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from lrurun.config.imported import ImportTable
from lrurun.config.schema import ImportedConfig, Origin, Reading
from lrurun.errors import plural
from lrurun.imported import sources
from lrurun.imported.recording import CONTENTS, PARTS, Known
from lrurun.imported.repeats import RunKey
from lrurun.imported.scoring import ScoredRun
from lrurun.instances.import_record import Caution
from lrurun.ledger.imports import SOURCE
from lrurun.ledger.values import Run
from lrurun.trackers import State, TrackedRun

_SHOWN = 5
"""Runs that a sentence lists."""


class Earlier(Struct, frozen=True, kw_only=True):
    """A run that an earlier import has recorded."""

    run: Run
    environment: Mapping[str, Any]
    """What the ledger has beside its configuration: its digest, its times, and its origin."""

    @property
    def entries(self) -> Mapping[str, Any]:
        """What is recorded about its origin: the name, the state and the place in its tracker, and its source."""
        entries: Mapping[str, Any] = self.environment.get("origin", {})
        return entries

    @property
    def origin(self) -> Origin:
        assert isinstance(self.run.config, ImportedConfig)
        return self.run.config.origin

    @property
    def key(self) -> RunKey:
        return self.origin.project, self.origin.run

    @property
    def parts(self) -> tuple[RunKey, ...]:
        """The runs of which it is the mean; none where it is a single run."""
        return tuple((project, run) for project, run in self.entries.get(PARTS, ()))

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that it is from, as the table `[import]` named them: several only of a mean."""
        recorded = self.entries.get(SOURCE, ())
        return (recorded,) if isinstance(recorded, str) else tuple(recorded)

    @property
    def known(self) -> Known:
        digest = self.environment.get("digest", "")
        return Known(self.entries.get(CONTENTS, digest), digest)


class EarlierImports(Protocol):
    """What a ledger has of earlier imports."""

    def runs(self, task: str, reading: Reading) -> Sequence[Earlier]:
        """The imported runs of a task with this reading."""

    def request(self, task: str) -> Mapping[str, Any]:
        """What the user asked for when the file of the task was written; empty if that is not known."""


class VanishedRuns(Struct, frozen=True, kw_only=True):
    """The runs of earlier imports that the source no longer has, by the rule at the head of this module."""

    counted: list[Earlier] = []
    unnamed: list[Earlier] = []
    """Those that no longer count."""
    remade: list[Earlier] = []
    """Means that are made again, without a part that the source no longer has."""

    @property
    def sentences(self) -> Iterator[str]:
        """Messages about the runs that do not count."""
        if self.unnamed:
            verb = "comes" if len(self.unnamed) == 1 else "come"
            yield (
                f"{plural(len(self.unnamed), 'run')} of earlier imports {verb} from sources that are not named any "
                "more: in the ledger, and in no rung"
            )
        if self.remade:
            names = ", ".join(earlier.origin.run for earlier in self.remade[:_SHOWN])
            more = ", ..." if len(self.remade) > _SHOWN else ""
            yield f"{plural(len(self.remade), 'mean')} made again, of the runs that the source still has: {names}{more}"


def vanished(
    earlier: Sequence[Earlier], current: Collection[ScoredRun], table: ImportTable, folder: Path
) -> VanishedRuns:
    """What the source no longer has of earlier imports.

    Args:
        current: the runs that it has.
        folder: where the file of the import is: relative paths of sources are from there.
    """
    keys = {run.key for run in current}
    named = set(sources.places(table.source, folder))
    projects = {"", table.project, *(run.run.project for run in current)}
    found = VanishedRuns()
    for run in earlier:
        of_parts = run.parts or (run.key,)
        if keys.intersection(of_parts):
            if not keys.issuperset(of_parts):
                found.remade.append(run)
            continue
        is_named = named.issuperset(sources.places(run.sources, folder))
        is_read = not table.project or projects.issuperset(project for project, _ in of_parts)
        (found.counted if is_named and is_read else found.unnamed).append(run)
    return found


def on_vanished(runs: Collection[ScoredRun]) -> Iterator[Caution]:
    """A caution on vanished runs that count, wherever some do."""
    labels = dict.fromkeys(run.label for run in runs)
    if labels:
        verb = "is" if len(labels) == 1 else "are"
        names = ", ".join(list(labels)[:_SHOWN]) + ", ..." * (len(labels) > _SHOWN)
        yield Caution(
            short=f"{plural(len(labels), 'run')} {verb} no longer in the source",
            full=f"{plural(len(labels), 'run')} of earlier imports {verb} no longer in the source, and count as before"
            f": {names}. If they should not: lrurun mark RUN --exclude WHY.",
        )


def scored_again(earlier: Earlier, table: ImportTable) -> ScoredRun:
    """A run of an earlier import, as the ledger has it."""
    run, origin, entries = earlier.run, earlier.origin, earlier.entries
    assert isinstance(run.config, ImportedConfig)
    settings = dict(run.config.settings)
    if table.seed:
        settings[table.seed] = run.seed
    started_at, ended_at = earlier.environment.get("times", (None, None))
    tracked = TrackedRun(
        id=origin.run,
        project=origin.project,
        name=entries.get("name", ""),
        settings=settings,
        state=_STATES[run.state],
        state_text=entries.get("state", ""),
        started_at=started_at,
        ended_at=ended_at,
        code=entries.get("code", ""),
        data=entries.get("data", ""),
        place=entries.get("place", ""),
    )
    return ScoredRun(
        run=tracked,
        tracker=origin.tracker,
        seed=run.seed if table.seed else None,
        state=run.state,
        result=run.result,
        step=run.step,
        why=run.error or "",
        choice=(run.result or {}).get(table.result_for_choice),
    )


_STATES: dict[str, State] = {
    "done": "finished",
    "diverged": "finished",
    "failed": "crashed",
    "interrupted": "running",
}
"""State of a run in the ledger -> what its tracker called it."""
