"""Runs that lrurun itself has exported to another tracker, and which come back."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import structs

from lrurun.errors import plural
from lrurun.trackers import Direction, Exported, State, TrackedRun, Value

RESULT = "result/"
"""The beginning of the names of results, see `report/export_shared.py`."""
_TEST = "test"
_SCORES = ("val", _TEST)
"""The beginnings of the names of scores among them."""
PREFIX = "lrurun."
"""The beginning of the names of texts that describe a run in its ledger."""
_PLACES = ("task", "ladder", "profile", "rung", "stage")
"""What says where a run belongs, and becomes settings of these names."""
_STATES: dict[str, State] = {
    "done": "finished", "diverged": "finished", "failed": "crashed", "interrupted": "crashed", "running": "running",
    "queued": "running",
}  # fmt: skip


def of_event_file(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of a run in an event file, as MLflow has them as tags."""
    with contextlib.suppress(json.JSONDecodeError, AttributeError):
        about = {
            f"{PREFIX}{name}": value if isinstance(value, str) else json.dumps(value)
            for name, value in json.loads(texts.get("run", "{}")).items()
        }
        return about | {f"{PREFIX}{name}": texts[name] for name in ("state", "renamed") if name in texts}
    return {}


_OF_TABLE = frozenset(("id", "fingerprint", "rung", "stage", "seed", "state", "superseded", "excluded"))
"""The columns by which a table of runs is one that lrurun has written."""


def is_own_table(names: Collection[str]) -> bool:
    """Whether a table with columns of these names is one of the runs of a ledger."""
    return _OF_TABLE.issubset(names)


def of_table(runs: Iterable[TrackedRun], notes: list[str]) -> Iterator[TrackedRun]:
    """The runs of such a table without those that no report counts, which `notes` get; a diverged run has NaN in the
    place of its scores, so that it ranks below all others."""
    left_out: dict[str, int] = {}
    for run in runs:
        about = {name: str(value).lower() for name in _OF_TABLE if (value := run.settings.get(name)) is not None}
        if reason := _left_out(about):
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        if run.state_text == "diverged":
            scores = [name for name, value in run.settings.items() if value is None and name.startswith(_SCORES)]
            settings = run.settings | dict.fromkeys(scores, math.nan)
            run = structs.replace(run, settings=settings, state=_STATES["diverged"])
        yield run
    notes += _sentences(left_out)


def names_in_export(names: Collection[str] | None, texts: Mapping[str, str]) -> Collection[str] | None:
    """The names in the export of a run of metrics that are asked for by their names in its ledger."""
    if not names:
        return names
    before = {ledger: exported for exported, ledger in _renamed(texts.get(f"{PREFIX}renamed", "{}")).items()}
    return [before.get(name, name) for name in names]


class ExportedRuns:
    """Reads the runs of an export as they were in their ledger; other runs stay as they are."""

    def __init__(self) -> None:
        self._left_out: dict[str, int] = {}
        self._diverged: list[TrackedRun] = []
        self._scores: dict[str, None] = {}

    def read(self, run: TrackedRun, texts: Mapping[str, str]) -> Iterator[TrackedRun]:
        """Yields the run as lrurun's, if these texts, whose names begin with `PREFIX`, say that it is one.

        Runs that no report counts are left out. A diverged run waits for `waiting`.
        """
        about = {name.removeprefix(PREFIX): text for name, text in texts.items() if name.startswith(PREFIX)}
        if "id" not in about or "state" not in about:
            yield run
            return
        if reason := _left_out(about):
            self._left_out[reason] = self._left_out.get(reason, 0) + 1
            return
        run = _in_ledger(run, about)
        if about["state"] == "diverged":
            self._diverged.append(run)
            return
        self._scores |= dict.fromkeys(name for name in run.last if name.startswith(_SCORES))
        yield run

    def waiting(self) -> Iterator[TrackedRun]:
        """Yields the diverged runs, with NaN as the scores that the others have: an export has none of these, and a run
        without one would count as missing, not as the worst."""
        for run in self._diverged:
            yield structs.replace(run, last={**dict.fromkeys(self._scores, math.nan), **run.last})

    def sentences(self) -> list[str]:
        """How many runs are left out, and why."""
        return _sentences(self._left_out)


def _sentences(left_out: Mapping[str, int]) -> list[str]:
    return [f"{plural(count, 'run')} left out: {reason}" for reason, count in left_out.items()]


def _left_out(about: Mapping[str, str]) -> str:
    """Why reports of lrurun leave a run out; empty where they do not."""
    if about.get("superseded") == "true":
        return "superseded in the ledger that they were exported from"
    if about.get("excluded"):
        return "excluded in the ledger that they were exported from"
    return "made to tune learning rates, in lrurun itself" if about.get("stage") == "tune" else ""


def _in_ledger(run: TrackedRun, about: Mapping[str, str]) -> TrackedRun:
    """The run with the names of metrics and settings, the state and the rung that it has in its ledger."""
    renamed = _renamed(about.get("renamed", "{}"))

    def name_of(exported: str) -> str:
        return renamed.get(exported, exported)

    places: dict[str, Value] = {name: about[name] for name in _PLACES if name in about}
    if "seed" in about:
        places["seed"] = int(about["seed"])
    settings = {name_of(name): value for name, value in run.settings.items()}
    last = {name_of(name): value for name, value in run.last.items()}
    results = {name.removeprefix(RESULT): value for name, value in last.items() if name.startswith(RESULT)}
    results |= json.loads(about.get("results", "{}"))  # event files have 32 bits
    curves = {name_of(name): curve for name, curve in run.curves.items()}

    def is_curve(name: str) -> bool:
        return not name.startswith(RESULT) and not (name.startswith(_TEST) and name in results)

    return structs.replace(
        run,
        settings=places | {path: value for path, value in settings.items() if not path.startswith("execution.")},
        exported=_exported(about),
        directions=run.directions | _direction(about),
        state=_STATES.get(about["state"], run.state),
        state_text=about["state"],
        last={name: value for name, value in last.items() if not name.startswith(RESULT)} | results,
        # The result is at the step of the best validation score, and the last point of such a curve is another score.
        curves={name: curve for name, curve in curves.items() if is_curve(name)},
        ends=None if run.ends is None else {name_of(k): end for k, end in run.ends.items() if is_curve(name_of(k))},
    )


def _exported(about: Mapping[str, str]) -> Exported | None:
    """The place of the run in its ladder; None of a run that was in none, and in the exports of older versions."""
    try:
        return Exported(
            rung=about["rung"],
            place=int(about["place"]),
            base=about.get("base", ""),
            metric=about.get("metric", ""),
            unit=about.get("unit", ""),
            test_items=int(about["test_items"]) if "test_items" in about else None,
            chance=float(about["chance"]) if "chance" in about else None,
        )
    except (KeyError, ValueError):
        return None


def _direction(about: Mapping[str, str]) -> dict[str, Direction]:
    directions: dict[str, Direction] = {"max": "max", "min": "min"}
    found = directions.get(about.get("direction", ""))
    return {} if found is None or "metric" not in about else {about["metric"]: found}


def _renamed(text: str) -> dict[str, str]:
    """Name in the export -> name in the ledger, where they differ."""
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError:  # cut for its length, which the export says
        return {}
