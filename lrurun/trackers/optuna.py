"""Optuna: storages in SQLite and in journal files. They are read as files, never written, and without its package.

A study is a project, a trial is a run.

* COMPLETE is finished; FAIL, also of an objective that was NaN, is crashed.
* PRUNED is running: the trial was not trained to its end. Its value in the storage is its last report, and left out.
* RUNNING is running; a killed trial is so for ever. A trial that is WAITING has not begun, and is no run.
* Settings are parameters, with the choices of categorical ones, and attributes: `user_attrs.seed` of a trial,
  `study_user_attrs.data` of its study. A score may be among them.
* The metric is `value`; of several objectives `values/0`, `values/1`, ...; or what the study calls them. The reports
  of a trial are the curve `intermediate_value`. The study has their directions.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun.errors import UsageError
from lrurun.files import is_database
from lrurun.trackers import Direction, Source, State, TrackedRun, Value, documents, flat, folders, sqlite
from lrurun.trackers.points import JsonLines, Points

SCHEMAS = ("v3.0.0.d", "v3.2.0.a")
"""The versions of its tables that are read: of Optuna 3.0 to 3.1, and from 3.2 on."""
_STATES = ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING")
"""Names of states, in the order of their numbers in a journal."""
_ENDS: dict[str, State] = {"COMPLETE": "finished", "FAIL": "crashed", "PRUNED": "running", "RUNNING": "running"}
_DIRECTIONS: dict[str | int, Direction | None] = {
    **dict.fromkeys(("NOT_SET", 0)),
    **dict.fromkeys(("MINIMIZE", 1), "min"),
    **dict.fromkeys(("MAXIMIZE", 2), "max"),
}
"""Those of databases, and of journals."""
_REPORTS = "intermediate_value"
_NOT_FINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}
_CSV = "write it as a table: study.trials_dataframe().to_csv(...), and import that"


class _Study(Struct):
    name: str
    directions: list[Direction | None]
    """Those of its objectives; None of one that is not set."""
    attributes: dict[str, Any] = {}
    metric_names: list[str] | None = None

    def metrics(self) -> list[str]:
        """The names of its objectives."""
        objectives = len(self.directions)
        if self.metric_names and len(self.metric_names) == objectives:
            return self.metric_names
        return ["value"] if objectives == 1 else [f"values/{index}" for index in range(objectives)]

    def directions_of_metrics(self) -> dict[str, Direction]:
        """Metric -> its direction. Only a study of one objective has reports."""
        if len(self.directions) == 1:
            names, directions = [*self.metrics(), _REPORTS], self.directions * 2
        else:
            names, directions = self.metrics(), self.directions
        return {name: direction for name, direction in zip(names, directions, strict=False) if direction is not None}


class _Trial(Struct):
    number: int
    state: str
    started: str | None = None
    ended: str | None = None
    settings: dict[str, Value] = {}
    attributes: dict[str, Any] = {}
    values: list[float] = []
    reports: list[tuple[int, float]] = []
    """Step and value, in the order in which they were reported."""


class OptunaReader:
    """Reads the studies of a storage: `study.db`, `sqlite:///study.db`, or a journal file."""

    name = "optuna"
    title = "Optuna"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether it is an SQLite file with the tables of Optuna, or a file whose first line is one of its journals."""
        path = _path(source)
        if source.frame is not None or path is None or not path.is_file():
            return False
        try:
            if is_database(path):
                return {"studies", "trial_values"} <= sqlite.columns(path).keys()
            with path.open("rb") as file:
                row = json.loads(file.readline(100_000))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(row, dict) and {"op_code", "worker_id"} <= row.keys()

    def version(self) -> str:
        """The version of the tables, as in "Optuna v3.2.0.a"; empty of a journal."""
        path = self._file()
        with documents.reading(path):
            if not is_database(path):
                return ""
        with _opened(path) as connection:
            return f"Optuna {_schema(connection, path)}"

    def notes(self) -> Sequence[str]:
        """Sentences on what the last reading left out or had to interpret."""
        return list(self._notes)

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """Yields the trials of each study, by their numbers."""
        self._notes = []
        path = self._file()
        with documents.reading(path):
            database = is_database(path)
        found = _from_database(path, keeps(curves)) if database else self._from_journal(path)
        studies: set[str] = set()
        count = waiting = 0
        for study, trial in found:
            studies.add(study.name)
            if trial is None or self.source.project not in ("", study.name):
                continue
            count += 1
            if trial.state == "WAITING":
                waiting += 1
                continue
            yield _run(study, trial, path, curves)
        if waiting:
            self._notes.append(f"{path}: {waiting} of {count} trials have not begun (WAITING) and are left out")
        folders.check_found(self.source, self.title, "a study", len(studies), studies)

    def _file(self) -> Path:
        path = _path(self.source)
        if path is None:
            raise UsageError(
                f"{self.source.name}: is no file", "copy it: optuna.copy_study(..., to_storage='sqlite:///study.db')"
            )
        if not path.is_file():
            raise UsageError(f"{path}: there is no such file", "name the SQLite file or the journal file of a storage")
        return path

    def _from_journal(self, path: Path) -> Iterator[tuple[_Study, _Trial | None]]:
        journal = _Journal(path)
        lines = JsonLines(path)
        for number, row in enumerate(lines, 1):
            try:
                journal.apply(row)
            except _UnknownOperation:
                raise UsageError(
                    f"{path}: its operation {row['op_code']!r} is of a newer version of Optuna", _CSV
                ) from None
            except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
                raise UsageError(f"{path}: row {number} is none of a journal of Optuna", "name another file") from None
        if lines.half_written:
            self._notes.append(documents.half_written(path))
        for study, trials in journal.studies.values():
            yield study, None
            for trial in trials:
                yield study, trial


def keeps(curves: Collection[str] | None) -> bool:
    """Whether reports are asked for."""
    return curves is None or _REPORTS in curves


def _path(source: Source) -> Path | None:
    """The file of a storage; None of a URL of another database."""
    if source.name.startswith("sqlite:///"):
        return Path(source.name.removeprefix("sqlite:///").partition("?")[0]).expanduser()
    return None if "://" in source.name else source.path


def _run(study: _Study, trial: _Trial, path: Path, curves: Collection[str] | None) -> TrackedRun:
    collected = Points(curves)
    for step, value in trial.reports:
        collected.add(_REPORTS, value, step)
    if trial.state == "COMPLETE":
        for metric, value in zip(study.metrics(), trial.values, strict=False):
            collected.add(metric, value, None)
    attributes = flat(trial.attributes, "user_attrs.") | flat(study.attributes, "study_user_attrs.")
    return TrackedRun(
        id=str(trial.number),
        project=study.name,
        settings=trial.settings | attributes,
        state=_ENDS[trial.state],
        state_text=trial.state,
        last=collected.last,
        last_step=collected.last_step,
        directions=study.directions_of_metrics(),
        objective=study.metrics()[0] if len(study.directions) == 1 else "",
        curves=collected.curves,
        started_at=_seconds(trial.started),
        ended_at=_seconds(trial.ended),
        place=str(path),
    )


def _seconds(time: str | None) -> float | None:
    """A time with its zone, in seconds since 1970; None of one without, as older versions write: it is that of an
    unknown machine."""
    try:
        moment = datetime.fromisoformat(time) if time else None
    except ValueError:
        return None
    return moment.timestamp() if moment and moment.tzinfo else None


def _parameter(value: float | None, distribution: str) -> Value:
    """A parameter of its stored number: the choice of an index, a whole number, or the number."""
    table = json.loads(distribution)
    kind, attributes = table.get("name") or table["type"], table.get("attributes", table)
    if str(kind).lower().startswith("categorical"):
        choice: Value = attributes["choices"][int(value or 0)]
        return choice
    if value is not None and str(kind).startswith(("Int", "int")):
        return int(value)
    return None if value is None else float(value)


# databases


def _from_database(path: Path, with_reports: bool) -> Iterator[tuple[_Study, _Trial | None]]:
    """The studies and trials of an SQLite file. Each trial is read by itself: no lock is held between two of them, for
    which a study that runs would have to wait."""
    with _opened(path) as connection:
        _schema(connection, path)
        # From version 5 on times are UTC; before, of the machine that wrote them.
        [library] = connection.execute("SELECT library_version FROM version_info").fetchone() or [""]
        zone = "+00:00" if int(str(library).partition(".")[0] or 0) >= 5 else ""
        rows = connection.execute("SELECT study_id, study_name FROM studies ORDER BY study_id").fetchall()
        studies = [(key, _study(connection, key, name)) for key, name in rows]
    for key, study in studies:
        yield study, None
        with _opened(path) as connection:
            trials = connection.execute(
                "SELECT trial_id, number FROM trials WHERE study_id = ? ORDER BY number", (key,)
            ).fetchall()
        for trial_id, number in trials:
            with _opened(path) as connection:
                state, started, ended = connection.execute(
                    "SELECT state, datetime_start, datetime_complete FROM trials WHERE trial_id = ?", (trial_id,)
                ).fetchone()
                if state not in _STATES:
                    raise UsageError(f"{path}: trial {number} has the unknown state {state!r}", _CSV)
                trial = _Trial(number, state, started and f"{started}{zone}", ended and f"{ended}{zone}")
                _read(connection, trial_id, trial, with_reports)
            yield study, trial


def _study(connection: sqlite3.Connection, key: int, name: str) -> _Study:
    directions = connection.execute(
        "SELECT direction FROM study_directions WHERE study_id = ? ORDER BY objective", (key,)
    ).fetchall()
    rows = connection.execute(
        "SELECT value_json FROM study_system_attributes WHERE study_id = ? AND key = 'study:metric_names'", (key,)
    ).fetchone()
    attributes = connection.execute("SELECT key, value_json FROM study_user_attributes WHERE study_id = ?", (key,))
    return _Study(
        name,
        [_DIRECTIONS[direction] for (direction,) in directions],
        _json_values(attributes),
        json.loads(rows[0]) if rows else None,
    )


def _read(connection: sqlite3.Connection, trial_id: int, trial: _Trial, with_reports: bool) -> None:
    """Reads the parameters, attributes, values and reports of a trial; without `with_reports` the last two of these:
    that of the greatest step, and that which was reported last."""

    def rows(statement: str) -> list[Any]:
        return connection.execute(statement, (trial_id,)).fetchall()

    parameters = rows(
        "SELECT param_name, param_value, distribution_json FROM trial_params WHERE trial_id = ? ORDER BY param_id"
    )
    trial.settings = {name: _parameter(value, distribution) for name, value, distribution in parameters}
    trial.attributes = _json_values(
        rows("SELECT key, value_json FROM trial_user_attributes WHERE trial_id = ? ORDER BY trial_user_attribute_id")
    )
    values = rows("SELECT value, value_type FROM trial_values WHERE trial_id = ? ORDER BY objective")
    trial.values = [float(_NOT_FINITE.get(kind, value)) for value, kind in values]
    columns = (
        "SELECT step, intermediate_value, intermediate_value_type FROM trial_intermediate_values WHERE trial_id = ?"
    )
    if with_reports:
        reports = rows(f"{columns} ORDER BY trial_intermediate_value_id")
    else:
        reports = rows(f"{columns} ORDER BY step DESC LIMIT 1")
        reports += rows(f"{columns} ORDER BY trial_intermediate_value_id DESC LIMIT 1")
    trial.reports = [(int(step), float(_NOT_FINITE.get(kind, value))) for step, value, kind in reports]


def _json_values(rows: Any) -> dict[str, Any]:
    return {key: json.loads(value) for key, value in rows}


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _schema(connection: sqlite3.Connection, path: Path) -> str:
    """The version of the tables.

    Raises:
        UsageError: it is none that this reader knows.
    """
    if not {"studies", "trial_values"} <= (tables := _tables(connection)):
        raise UsageError(f"{path}: is no storage of Optuna, whose tables it lacks", "name another file")
    rows = connection.execute("SELECT version_num FROM alembic_version") if "alembic_version" in tables else ()
    schema = next((version for (version,) in rows), "none")
    if schema not in SCHEMAS:
        if "intermediate_value_type" in _columns(connection):
            hint = _CSV
        else:
            hint = f"copy the file and upgrade the copy: optuna storage upgrade --storage sqlite:///COPY; or {_CSV}"
        raise UsageError(f"{path}: its tables have version {schema}, and {' and '.join(SCHEMAS)} can be read", hint)
    return str(schema)


def _columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(trial_intermediate_values)")}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a storage. Values that are not as Optuna writes them are errors of its file."""
    with sqlite.opened(path) as connection:
        try:
            yield connection
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise UsageError(f"{path}: is not as Optuna writes it: {error}", _CSV) from error


# journals


class _UnknownOperation(Exception):
    """An operation that this version does not know."""


class _Journal:
    """The studies and trials of a journal, in which each line is an operation.

    As in Optuna, a trial that has ended is not changed any more, and of two studies of one name the second does not
    exist; operations of another process may be written after that.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.studies: dict[int, tuple[_Study, list[_Trial]]] = {}
        self._made = 0
        self._trials: list[_Trial] = []

    def apply(self, row: dict[str, Any]) -> None:
        """Applies an operation."""
        code = row["op_code"]
        if code == 0:
            if row["study_name"] not in {study.name for study, _ in self.studies.values()}:
                self.studies[self._made] = (
                    _Study(row["study_name"], [_DIRECTIONS[each] for each in row["directions"]]),
                    [],
                )
                self._made += 1
        elif code in (1, 2, 3, 4):
            if row["study_id"] in self.studies:
                self._apply_to_study(code, row["study_id"], row)
        elif code in (5, 6, 7, 8, 9):
            if row["trial_id"] < len(self._trials):
                trial = self._trials[row["trial_id"]]
                if trial.state in ("RUNNING", "WAITING"):
                    self._apply_to_trial(code, trial, row)
        elif code != 10:  # which Optuna itself skips
            raise _UnknownOperation

    def _apply_to_study(self, code: int, key: int, row: Mapping[str, Any]) -> None:
        study, trials = self.studies[key]
        if code == 1:
            del self.studies[key]
        elif code == 2:
            study.attributes |= row["user_attr"]
        elif code == 3:
            study.metric_names = row["system_attr"].get("study:metric_names", study.metric_names)
        else:
            trial = _Trial(
                len(trials), _STATES[row.get("state", 0)], row.get("datetime_start"), row.get("datetime_complete")
            )
            distributions = row.get("distributions") or {}
            trial.settings = {
                name: _parameter(value, distributions[name]) for name, value in (row.get("params") or {}).items()
            }
            trial.attributes = dict(row.get("user_attrs") or {})
            trial.values = row.get("values") or ([] if row.get("value") is None else [row["value"]])
            reports = row.get("intermediate_values") or {}
            trial.reports = [(int(step), float(value)) for step, value in reports.items()]
            trials.append(trial)
            self._trials.append(trial)

    @staticmethod
    def _apply_to_trial(code: int, trial: _Trial, row: Mapping[str, Any]) -> None:
        if code == 5:
            value = _parameter(row["param_value_internal"], row["distribution"])
            trial.settings[row["param_name"]] = value
        elif code == 6:
            state = _STATES[row["state"]]
            if state == trial.state == "RUNNING":  # another process has begun it before
                return
            trial.state = state
            trial.started = row.get("datetime_start") or trial.started
            trial.ended = row.get("datetime_complete") or trial.ended
            trial.values = trial.values if row["values"] is None else [float(value) for value in row["values"]]
        elif code == 7:
            trial.reports.append((int(row["step"]), float(row["intermediate_value"])))
        elif code == 8:
            trial.attributes |= row["user_attr"]
