"""Runs of Trackio, from its SQLite file of a project or a folder with several."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from lrurun.errors import UsageError, plural
from lrurun.trackers import Source, TrackedRun, documents, flat, folders, numbers, sqlite
from lrurun.trackers.points import Points, numbers_in

SCHEMA = 2
"""The newest schema that is known, that of Trackio 0.43.0."""
COLUMNS = {"metrics": {"id", "run_name", "timestamp", "step", "metrics"}, "configs": {"run_name", "config"}}
"""Table -> the columns that are read, without `run_id`: where it is missing, each name was one run."""
_PERSONAL = ("_Username", "_Created")
"""Entries that Trackio adds to each configuration, and that are no settings."""


class TrackioReader:
    """A file, which is a project, or a folder with several. Trackio knows no states: every run counts as finished."""

    name = "trackio"
    title = "Trackio"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return any(_is_project(path) for path in _files(source.path))

    def version(self) -> str:
        return f"schema {SCHEMA}"

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        self._notes = []
        path = self.source.path
        projects = [file for file in _files(path) if _is_project(file)] if path.is_dir() else [path]
        if not projects:
            raise UsageError(
                f"{path}: no file of a project of Trackio", "name a file such as PROJECT.db, or its folder"
            )
        folders.check_project(self.source, [project.stem for project in projects])
        for project in projects:
            if not self.source.project or project.stem == self.source.project:
                with sqlite.opened(project) as connection:
                    yield from self._runs(connection, project, curves)

    def notes(self) -> Sequence[str]:
        return self._notes

    def _runs(self, connection: sqlite3.Connection, path: Path, curves: Collection[str] | None) -> Iterator[TrackedRun]:
        """The runs of a project, in the order of their first points."""
        key = self._key(connection, path)
        configurations = dict(connection.execute(f"SELECT {key}, config FROM configs"))
        rows = connection.execute(
            f"SELECT {key}, run_name, min(timestamp), max(timestamp) FROM metrics GROUP BY {key} ORDER BY min(id)"
        ).fetchall()
        without = 0
        for id, name, first, latest in rows:
            settings = self._settings(configurations.get(id), f"{path}, run {id}")
            without += not settings
            points = Points(curves)
            for metric, step, value in self._points(connection, key, id, path):
                points.add(metric, value, step)
            yield TrackedRun(
                id=str(id),
                project=path.stem,
                name=str(name),
                settings=settings,
                last=points.last,
                last_step=points.last_step,
                curves=points.curves,
                started_at=_time(first),
                ended_at=_time(latest),
                place=str(path),
            )
        if without:
            self._notes.append(
                f"{path}: {plural(without, 'run')} without settings: a run that was resumed without a configuration"
                " has lost that of its beginning"
            )

    def _key(self, connection: sqlite3.Connection, path: Path) -> str:
        """The column that says which run a row belongs to; notes a newer schema.

        Raises:
            UsageError: the database lacks a column that is read.
        """
        keys = set()
        for table, expected in COLUMNS.items():
            actual = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            if missing := sorted(expected - actual):
                what = f"the table {table} has no column {missing[0]}" if actual else f"there is no table {table}"
                raise UsageError(f"{path}: no database of a project of Trackio: {what}", "name its PROJECT.db")
            keys.add("run_id" if "run_id" in actual else "run_name")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema > SCHEMA:
            self._notes.append(
                f"{path}: its schema {schema} is newer than {SCHEMA}, which this reader knows: compare a few values"
            )
        return max(keys)  # the name, unless both tables have ids

    def _settings(self, stored: Any, where: str) -> dict[str, Any]:
        """The configuration of a run; none, with a note, where it is damaged."""
        table = self._table(stored, f"{where}, configuration") if stored is not None else {}
        return flat(
            {
                name: value
                for name, value in table.items()
                if name not in _PERSONAL and not (name == "_Group" and value is None)
            }
        )

    def _points(
        self, connection: sqlite3.Connection, key: str, id: str, path: Path
    ) -> Iterator[tuple[str, int, float]]:
        """Metric, step and value of the points of a run, in the order in which they were recorded."""
        rows = connection.execute(f"SELECT id, step, metrics FROM metrics WHERE {key} = ? ORDER BY id", (id,))
        for row, stored_step, stored in rows:
            step = numbers.step(stored_step)
            if step is None:
                self._notes.append(f"{path}, run {id}, row {row} of metrics: its step is no whole number: left out")
                continue
            table = self._table(stored, f"{path}, run {id}, row {row} of metrics")
            for metric, value in numbers_in(table, separator="."):
                yield metric, step, value

    def _table(self, stored: Any, where: str) -> Mapping[str, Any]:
        """A stored table, as text or bytes of JSON; an empty one, with a note, where it is damaged."""
        try:
            return msgspec.json.decode(stored, type=dict[str, Any])
        except (msgspec.DecodeError, TypeError, UnicodeDecodeError, RecursionError):
            self._notes.append(f"{where}: not the JSON of a table: left out")
            return {}


def _files(path: Path) -> list[Path]:
    """The files in a folder that are named as databases are, or the file itself."""
    with documents.reading(path):
        return sorted(path.glob("*.db")) if path.is_dir() else [path]


def _is_project(path: Path) -> bool:
    """Whether a file is a database with the tables of Trackio."""
    columns = sqlite.columns(path)
    return all(expected <= columns.get(table, set()) for table, expected in COLUMNS.items())


def _time(stored: Any) -> float | None:
    """Seconds since 1970 of a time with its zone; earlier versions stored none."""
    with contextlib.suppress(TypeError, ValueError):
        if (time := datetime.fromisoformat(stored)).tzinfo is not None:
            return time.timestamp()
    return None
