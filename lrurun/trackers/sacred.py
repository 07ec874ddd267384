"""Runs of Sacred, from the folders of its FileStorageObserver.

Values that Sacred stored by jsonpickle are read as plain data, and no object is made of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lrurun.errors import UsageError, plural
from lrurun.trackers import Source, State, TrackedRun, documents, flat, numbers
from lrurun.trackers.folders import check_project
from lrurun.trackers.points import Points, numbers_in

RUN = "run.json"
"""The file that every folder of a run has."""
STATES: dict[str, State] = {"COMPLETED": "finished", "RUNNING": "running", "QUEUED": "running"}
"""Status of Sacred -> state. FAILED, INTERRUPTED, TIMEOUT and those of own interrupts are crashed."""


class SacredReader:
    """A folder of the FileStorageObserver, with a folder for each run, or one of these."""

    name = "sacred"
    title = "Sacred"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return bool(_folders(source.path))

    def version(self) -> str:
        return ""

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        self._notes = []
        folders = _folders(self.source.path)
        if not folders:
            raise UsageError(
                f"{self.source.name}: no folder of a run with a {RUN}",
                "name the folder that was given to FileStorageObserver, as in sacred_runs",
            )
        drawn = 0
        projects = set()
        for folder in folders:
            run, is_drawn = self._run(folder, curves)
            projects.add(run.project)
            if not self.source.project or run.project == self.source.project:
                drawn += is_drawn
                yield run
        check_project(self.source, projects)
        if drawn:
            self._notes.append(
                f"no command has named the seed of {plural(drawn, 'run')}: Sacred then draws one at random,"
                " which a script may not use"
            )

    def notes(self) -> Sequence[str]:
        return self._notes

    def _run(self, folder: Path, curves: Collection[str] | None) -> tuple[TrackedRun, bool]:
        """The run in a folder, and whether its seed may be one that Sacred has drawn."""
        record, is_whole = self._table(folder, RUN), True
        if record is None:
            record, is_whole = {}, False
        config = self._table(folder, "config.json")
        metrics = self._table(folder, "metrics.json") if (folder / "metrics.json").exists() else {}
        status = str(record.get("status", "")) if is_whole else f"{RUN} is damaged"
        points = Points(curves)
        for metric, stored in (metrics or {}).items():
            for step, value in _points(stored):
                points.add(metric, value, step)
        for name, value in numbers_in({"result": _plain(record.get("result"))}, separator="."):
            if name not in points.last:
                points.add(name, value, None)
        experiment, meta = _mapping(record.get("experiment")), _mapping(record.get("meta"))
        given = _mapping(meta.get("config_updates"))
        run = TrackedRun(
            id=folder.name,
            project=str(experiment.get("name", "")),
            settings=flat({name: _plain(value) for name, value in (config or {}).items()}),
            state=STATES.get(status, "crashed") if is_whole else "running",
            state_text=status,
            last=points.last,
            last_step=points.last_step,
            curves=points.curves,
            started_at=_time(record.get("start_time")),
            ended_at=_time(record.get("stop_time")),
            code=_commit(experiment),
            data=", ".join(_stored(record.get("resources"))),
            place=str(folder),
        )
        return run, "seed" in (config or {}) and "seed" not in given

    def _table(self, folder: Path, file: str) -> dict[str, Any] | None:
        """The table in a file of a run; None, with a note, where the file is damaged."""
        try:
            return documents.json_table(folder / file)
        except UsageError as error:
            self._notes.append(f"{error.message}: run {folder.name} is read without it")
            return None


def _folders(path: Path) -> list[Path]:
    """The folders of runs in a folder, in the order of their numbers, or this one itself."""
    if _is_run(path):
        return [path.absolute()]
    with documents.reading(path):
        inner = [folder for folder in path.iterdir() if _is_run(folder)] if path.is_dir() else []
    return sorted(inner, key=lambda folder: (not folder.name.isdecimal(), folder.name.zfill(20)))


def _is_run(folder: Path) -> bool:
    """Whether a folder is that of a run; other tools write files called run.json too, but no such pair."""
    return (folder / RUN).is_file() and (folder / "config.json").is_file()


def _points(stored: Any) -> Iterator[tuple[int, float]]:
    """The points of a metric; those whose value is no number are left out."""
    table = _mapping(stored)
    for stored_step, value in zip(_list(table.get("steps")), _list(table.get("values")), strict=False):
        step, number = numbers.step(stored_step), numbers.number(value)
        if step is not None and number is not None:
            yield step, number


def _plain(value: Any) -> Any:
    """A stored value as plain data: tuples, sets and arrays as lists, other objects as the JSON text that stands for
    them."""
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    for key in ("py/tuple", "py/set", "py/seq"):
        if isinstance(value.get(key), list):
            return _plain(value[key])
    if str(value.get("py/object", "")).startswith("numpy."):
        for key in ("value", "values"):
            if isinstance(value.get(key), int | float | list):
                return value[key]
    if any(key.startswith("py/") for key in value):
        return json.dumps(value, ensure_ascii=False)
    return {key: _plain(inner) for key, inner in value.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    """A stored value that should be a table; an empty one where it is not."""
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    """A stored value that should be a list; an empty one where it is not."""
    return value if isinstance(value, list) else []


def _time(stored: Any) -> float | None:
    """Seconds since 1970 of a time, which Sacred stores in UTC and without a zone."""
    try:
        return datetime.fromisoformat(stored).replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return None


def _commit(experiment: Mapping[str, Any]) -> str:
    """The git commit of the first repository."""
    first = _mapping(next(iter(_list(experiment.get("repositories"))), None))
    return str(first.get("commit") or "")


def _stored(resources: Any) -> list[str]:
    """The names, with digests, of the copies of files that the run has opened as resources."""
    return [Path(str(pair[1])).name for pair in map(_list, _list(resources)) if len(pair) == 2]
