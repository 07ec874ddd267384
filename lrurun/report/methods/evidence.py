"""What the ledger has of an instance, as the sentences of a methods paragraph need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lrurun.config.settings import flatten
from lrurun.ledger.values import FINISHED

if TYPE_CHECKING:
    from lrurun.ledger.values import Attempt, RemovedRun, Run
    from lrurun.report.tables.ladder_table import LadderReport
    from lrurun.report.tables.loaded_instance import LoadedInstance


class Evidence(Struct, frozen=True, kw_only=True, dict=True):
    """The runs of an instance by their part in it, with their attempts, and the report on them."""

    loaded: LoadedInstance
    report: LadderReport
    members: tuple[Run, ...]
    """All runs of the instance, superseded ones and those of tuning included."""
    attempts: Mapping[str, Sequence[Attempt]]
    """Run -> its attempts, in order."""
    removed: Sequence[RemovedRun]
    """The runs that were forgotten here, or left out of this copy."""
    trained_again: Sequence[RemovedRun]
    """The runs with results that were forgotten, and in whose place others were trained."""

    @cached_property
    def final(self) -> tuple[Run, ...]:
        """The runs for the comparison, with the settings that their rungs have now, excluded ones among them."""
        current = {run.id for run in self.loaded.runs}
        return tuple(run for run in self._of_stage("train") if not run.superseded and run.id in current)

    @cached_property
    def outdated(self) -> tuple[Run, ...]:
        """The runs for the comparison that have other settings than their rungs have now."""
        current = {run.id for run in self.loaded.runs}
        return tuple(run for run in self._of_stage("train") if not run.superseded and run.id not in current)

    @cached_property
    def tuning(self) -> tuple[Run, ...]:
        """The runs that chose settings."""
        return tuple(run for run in self._of_stage("tune") if not run.superseded)

    @cached_property
    def superseded(self) -> tuple[Run, ...]:
        """The runs in whose place others came."""
        return tuple(run for run in self.members if run.superseded)

    @cached_property
    def results(self) -> tuple[Run, ...]:
        """The runs whose results enter the comparison: finished with a score or without, or diverged."""
        return tuple(run for run in self.final if run.state in FINISHED and run.excluded is None)

    @cached_property
    def rungs(self) -> tuple[str, ...]:
        """The rungs that have results, in the order of the ladder."""
        having = {rung for run in self.results for rung in self.rungs_of(run)}
        shared = self.loaded.same_as_base
        bases = self.loaded.ladder.bases
        names: list[str] = []
        for name, base in bases.items():
            if name in having or (name in shared and base in names):
                names.append(name)
        return tuple(names)

    def rungs_of(self, run: Run, stage: str = "train") -> list[str]:
        """The rungs that a run has in this instance."""
        key = self.loaded.instance.key
        return [m.rung for m in run.memberships if (m.ladder_key, m.stage) == (key, stage)]

    def by_rung(self, runs: Iterable[Run], stage: str = "train") -> dict[str, list[Run]]:
        """Rung -> those of the runs that it has, in the order of the ladder, for rungs that have some."""
        runs = list(runs)
        found = {
            rung.name: [run for run in runs if rung.name in self.rungs_of(run, stage)]
            for rung in self.loaded.ladder.rungs
        }
        return {rung: sorted(members, key=lambda run: (run.seed, run.id)) for rung, members in found.items() if members}

    def settings(self, path: str, runs: Iterable[Run] | None = None) -> list[Any]:
        """The values that a setting has in the results, each once, in the order of the ladder."""
        values: list[Any] = []
        seen: set[int] = set()
        for run in self.results if runs is None else runs:
            if run.config_id not in seen:
                seen.add(run.config_id)
                value = self._flat(run).get(path)
                if value is not None and value not in values:
                    values.append(value)
        return values

    def setting(self, run: Run, path: str) -> Any:
        """The value of a setting of a run; None if it has none."""
        return self._flat(run).get(path)

    def shared_settings(self, prefix: str) -> dict[str, Any]:
        """Dotted path -> value of the settings that all results have in common, of those that begin so."""
        tables = [self._flat(run) for run in {run.config_id: run for run in self.results}.values()]
        first = tables[0] if tables else {}
        return {
            path: value
            for path, value in first.items()
            if path.startswith(prefix) and all(path in table and table[path] == value for table in tables)
        }

    def environments(self, read: Callable[[Attempt], Any], runs: Iterable[Run] | None = None) -> dict[Any, int]:
        """What attempts at runs have recorded -> how many of these runs have an attempt with that, most runs first.

        `read` gives what one attempt has recorded; None where it has not.
        """
        counts: dict[Any, int] = {}
        for run in self.results if runs is None else runs:
            values = dict.fromkeys(read(attempt) for attempt in self.attempts.get(run.id, ()))
            if len(values) > 1:  # an attempt that ended before it recorded says nothing against another
                values.pop(None, None)
            for value in values or [None]:
                counts[value] = counts.get(value, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def _of_stage(self, stage: str) -> list[Run]:
        order = list(self.loaded.ladder.bases)
        members = [run for run in self.members if self.rungs_of(run, stage)]

        def place(run: Run) -> tuple[int, int, str]:
            rungs = [order.index(rung) for rung in self.rungs_of(run, stage) if rung in order]
            return min(rungs, default=len(order)), run.seed, run.id

        return sorted(members, key=place)

    def _flat(self, run: Run) -> dict[str, Any]:
        if run.config_id not in self._tables:
            self._tables[run.config_id] = _flat(run.config)
        return self._tables[run.config_id]

    @cached_property
    def _tables(self) -> dict[int, dict[str, Any]]:
        return {}


def _flat(config: Any) -> dict[str, Any]:
    return dict(flatten(config))


def collect(loaded: LoadedInstance) -> Evidence:
    """The evidence on an instance."""
    ledger, key = loaded.ledger, loaded.instance.key
    members = tuple(ledger.runs(key, superseded=True))
    return Evidence(
        loaded=loaded,
        report=loaded.report(),
        members=members,
        attempts=ledger.attempts_by_run([run.id for run in members]),
        removed=ledger.removed_from(key),
        trained_again=ledger.trained_again(key),
    )
