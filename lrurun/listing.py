"""Which runs are listed, and in what order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from lrurun import catalog, where
from lrurun.config import known_paths
from lrurun.ledger.values import Run

SCREENFUL = 50
"""Runs that a terminal is shown where no number is asked for."""


class Choice:
    """What `--where` and `--sort` ask for, checked against the names that a ledger's runs know."""

    def __init__(self, condition: str | None, sort: str | None, metrics: Sequence[str]) -> None:
        known = where.names(metrics)
        self._condition = where.parse(condition, known) if condition is not None else None
        self._descending = sort is not None and sort.startswith("-")
        self._sort = sort.removeprefix("-") if sort is not None else None
        if self._sort is not None:
            where.check_name(self._sort, known, "--sort")

    @property
    def of_settings(self) -> bool:
        """Whether the runs' settings are needed to choose among them."""
        names = {self._sort} | (where.named(self._condition) if self._condition else set())
        return not names.isdisjoint(known_paths())

    def apply(self, runs: Sequence[Run]) -> list[Run]:
        """The runs that are asked for, those without the value that they are sorted by last."""
        condition, sort = self._condition, self._sort
        found = [run for run in runs if condition is None or where.holds(condition, partial(value, run))]
        if sort is None:
            return found
        keyed = [(_order(run, sort), run) for run in found]
        having = [(key, run) for key, run in keyed if key is not None]
        # equals keep their order, either way: the newest stays first
        having.sort(key=lambda one: one[0], reverse=self._descending)
        return [run for _, run in having] + [run for key, run in keyed if key is None]


def _order(run: Run, name: str) -> tuple[int, float | str] | None:
    # times are printed in whole seconds, and sorted more finely
    return where.order(getattr(run, name) if name in ("created_at", "finished_at") else value(run, name))


def value(run: Run, name: str) -> where.Value:
    """What a run has under a name of `where.names`; None where it has nothing."""
    match name:
        case "ladder" | "rung" | "stage" | "profile":
            found = dict.fromkeys(getattr(place, name) for place in run.memberships)
            return tuple(one for one in found if one is not None)
        case "created_at" | "finished_at":
            return when(getattr(run, name))
        case "tag":
            return run.tags
    if name in where.FIELDS:
        field: where.Value = getattr(run, name)
        return field
    if name in (run.result or {}):
        return (run.result or {})[name]
    found_at: Any = run.execution if name.startswith("execution.") else run.config
    for step in name.removeprefix("execution.").split("."):
        found_at = found_at.get(step) if isinstance(found_at, dict) else None
    setting: where.Value = found_at
    return setting


def state(run: Run) -> str:
    """Its state, and what sets it apart from the runs that reports count."""
    marks = {"superseded": run.superseded, "excluded": run.excluded is not None}
    return ", ".join([run.state, *(mark for mark, so in marks.items() if so)])


def flat(run: Run) -> dict[str, object]:
    """Dotted path -> value of all settings of a run."""
    return {**dict(catalog.flatten(run.config)), **dict(catalog.flatten(run.execution, "execution."))}


def when(seconds: float | None) -> str | None:
    """A time as it is printed and compared; one that no calendar has is none."""
    try:
        return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return None
