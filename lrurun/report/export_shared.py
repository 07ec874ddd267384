"""What exports have in common: names of metrics and settings, and what is not in files as the ledger has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lrurun.data.metric import Accuracy
from lrurun.errors import UsageError, plural
from lrurun.ledger.views import untaken

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run
    from lrurun.report.tables.loaded_instance import LoadedInstance

RESULT = "result/"
"""The beginning of the name of a result in formats that have curves alone, so that it is no point of the curve of
that name."""

Name = tuple[str, str]
"""The beginning that a kind of values has in files, as RESULT, and the name in the ledger."""


def known_metrics(ledger: Ledger) -> list[Name]:
    """The curves and results of all runs, so that a name in files does not depend on the runs of an export."""
    curves, results = ledger.metric_names(), ledger.result_names()
    return [*(("", name) for name in curves), *((RESULT, name) for name in results)]


def result_step(run: Run) -> int:
    """The step that the results of a run belong to: the step of the best validation score, if it is known."""
    best = (run.result or {}).get("best_step", math.nan)
    return int(best) if math.isfinite(best) else run.step


def as_it_is(name: str) -> str:
    """The name."""
    return name


class Places:
    """What exports say of the place of runs in their ladders, from which an import makes the same ladder again."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._loaded: dict[str, tuple[LoadedInstance | None, dict[str, Any]]] = {}

    def of(self, run: Run) -> dict[str, Any]:
        """Name -> value: the number of the rung in its ladder, its base, and how the ladder is scored; empty for a run
        that is in no ladder, or in one whose plug-ins are not loaded."""
        if not run.memberships:
            return {}
        first = run.memberships[0]
        if first.ladder_key not in self._loaded:
            self._loaded[first.ladder_key] = self._load(first.ladder_key, run)
        instance, scoring = self._loaded[first.ladder_key]
        if instance is None or first.rung not in (bases := instance.ladder.bases):
            return {}
        base = bases[first.rung]
        return {"place": [*bases].index(first.rung) + 1, **({} if base is None else {"base": base}), **scoring}

    def _load(self, key: str, run: Run) -> tuple[LoadedInstance | None, dict[str, Any]]:
        """An instance, and how it is scored."""
        from lrurun.judging.scored_runs import scoring_of
        from lrurun.report.tables import loaded_instance

        found = next(instance for instance in self._ledger.ladders() if instance.key == key)
        try:
            instance = loaded_instance.of_instance(self._ledger, found)
        except UsageError:
            return None, {}
        metric, plan = instance.metric, instance.plan
        chance = scoring_of(metric, instance.identity.data, None).chance
        items = plan.task.sizes(plan.options).get("test")
        if items is None:
            recorded = instance.items([run.id], f"test/{metric.name}")
            items = next((results.test_set.count for results in recorded.values()), None)
        scoring = {
            "metric": f"test/{metric.name}",
            "direction": "max" if metric.higher_is_better else "min",
            "unit": "%" if isinstance(metric, Accuracy) else metric.symbol,
            "test_items": items,
            "chance": chance,
        }
        return instance, {name: value for name, value in scoring.items() if value not in (None, "")}


class Names:
    """What names become in a program that does not take all of them: different ones stay different."""

    def __init__(
        self, permitted: Callable[[str], str], known: Iterable[Name] = (), taken: Iterable[str] = (), most: int = 10_000
    ) -> None:
        """
        Args:
            permitted: gives the nearest name that the program takes.
            known: names that have their place before others, of which those come first that the program takes.
            taken: names of other things in the files.
            most: characters of a name.
        """
        self._permitted, self._taken, self._most = permitted, set(taken), most
        self._given: dict[Name, str] = {}
        self._before: dict[str, str] = {}
        self.used: set[str] = set()
        """The names in the files that were asked for."""
        for name in sorted(known, key=lambda name: (permitted("".join(name)) != "".join(name), name)):
            self._give(name)

    def __call__(self, name: str, beginning: str = "") -> str:
        """The name in the files."""
        given = self._give((beginning, name))
        self.used.add(given)
        return given

    def _give(self, name: Name) -> str:
        if name not in self._given:
            given = untaken(self._permitted("".join(name)), self._taken, self._most)
            self._taken.add(given)
            self._given[name] = given
            self._before[given] = "".join(name)
        return self._given[name]

    def before(self, given: str) -> str:
        """The name here of one in the files."""
        return self._before[given]

    def changed(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Name in the files -> name here, where they differ; of all that are used, or of these."""
        return {
            given: before
            for given in sorted(self.used if names is None else names)
            if (before := self._before[given]) != given
        }


class Departures(Struct):
    """What files do not have as the ledger has it."""

    program: str
    cut: dict[str, int] = field(default_factory=dict)
    """Setting or tag -> the number of runs in which it is longer than the program permits."""
    infinite: set[str] = field(default_factory=set)
    """Metrics with values that have another one in their place."""
    refused: dict[str, str] = field(default_factory=dict)
    """Metric or setting that the program refuses -> why."""

    def sentences(self, names: Iterable[Names], record: str = "", long: str = "", infinite: str = "") -> list[str]:
        """A sentence for each kind of departure.

        Args:
            record: what has all new names of a run.
            long: how many characters the program permits, and where the whole value is.
            infinite: what is in the place of values.
        """
        renamed = [f"{before} to {given}" for part in names for given, before in part.changed().items()]
        runs = [f"{name} ({plural(count, 'run')})" for name, count in sorted(self.cut.items())]
        refused = [f"{name}: {why}" for name, why in sorted(self.refused.items())]
        return [
            *([f"renamed for {self.program}{record and f' ({record} has all)'}: {some(renamed)}"] if renamed else []),
            *([f"{long}: {some(runs)}"] if runs else []),
            *([f"{infinite}: {some(sorted(self.infinite))}"] if self.infinite else []),
            *([f"not exported, because {self.program} refuses it: {some(refused)}"] if refused else []),
        ]


def some(texts: list[str], most: int = 5) -> str:
    """The first of some texts, and how many more there are."""
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more
