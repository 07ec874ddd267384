"""A store of MLflow in a SQLite file, read without its package: opening it with that may create or change tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lrurun.errors import UsageError
from lrurun.trackers import Curve, sqlite
from lrurun.trackers.mlflow.revisions import NEWEST_RELEASE, REVISIONS
from lrurun.trackers.mlflow.stores import PARENT, Last, StoredRun, seconds, with_infinities

_COLUMNS = {
    "experiments": {"experiment_id", "name", "lifecycle_stage"},
    "runs": {"run_uuid", "name", "status", "start_time", "end_time", "lifecycle_stage", "experiment_id"},
    "params": {"run_uuid", "key", "value"},
    "tags": {"run_uuid", "key", "value"},
    "metrics": {"run_uuid", "key", "value", "timestamp", "step", "is_nan"},
    "latest_metrics": {"run_uuid", "key", "value", "timestamp", "step", "is_nan"},
}
"""Table -> the columns that are read."""
_POINT = np.dtype([("step", np.int64), ("value", np.float64)])
_VALUE = "iif(is_nan, 'nan', value)"
"""NaN is a row with the value 0 and a mark; NumPy reads this text as NaN, and SQLite itself has none."""
_TAIL = 4
"""How many of the newest points of a run are read for each of its metrics to find the last values."""


class SqliteStore:
    """A SQLite file, opened for reading alone.

    Each statement is read to its end at once, and not all of them in one state, as by `sqlite.opened`: as long as one
    is open, SQLite lets no training write, and these would fail after a while.
    """

    def __init__(self, path: Path, name: str) -> None:
        """Opens the file.

        Args:
            name: what messages call it.

        Raises:
            UsageError: it is no store, or one of another version.
            LrurunError: it cannot be read.
        """
        self._path, self._name = path, name
        self._sentences: list[str] = []
        if path.is_dir():
            raise UsageError(f"{name}: is a folder, not a SQLite file", "name the file, as in mlflow.db")
        if not path.exists():
            raise UsageError(f"{name}: there is no such file", "name the file of the store, as in mlflow.db")
        try:
            self._database = sqlite.connected(path)
        except sqlite3.Error as error:
            raise sqlite.refusal(error, path) from None
        try:
            self._check()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    def sentences(self) -> list[str]:
        return self._sentences

    def experiments(self) -> dict[str, str]:
        column = "workspace" if "workspace" in self._columns("experiments") else "'default'"
        rows = self._rows(
            f"SELECT experiment_id, name, {column} FROM experiments WHERE lifecycle_stage = 'active'"
            " ORDER BY experiment_id"
        )
        return {
            str(number): name if workspace in ("default", None) else f"{workspace}/{name}"
            for number, name, workspace in rows
        }

    def parents(self, experiments: Collection[str]) -> dict[str, str]:
        return dict(self._rows("SELECT run_uuid, value FROM tags WHERE key = ?", (PARENT,)))

    def deleted(self, experiments: Collection[str]) -> int:
        rows = self._rows("SELECT experiment_id FROM runs WHERE lifecycle_stage != 'active'")
        return sum(str(experiment) in experiments for (experiment,) in rows)

    def runs(self, experiments: Collection[str]) -> Iterator[StoredRun]:
        rows = self._rows(
            "SELECT run_uuid, name, status, start_time, end_time, experiment_id FROM runs"
            " WHERE lifecycle_stage = 'active' ORDER BY start_time, rowid"
        )
        for run, name, status, started, ended, experiment in rows:
            if str(experiment) in experiments:
                tags = dict(self._rows("SELECT key, value FROM tags WHERE run_uuid = ? ORDER BY rowid", (run,)))
                yield StoredRun(
                    id=run, experiment=str(experiment), status=status or "",
                    name=name or tags.get("mlflow.runName", ""),
                    started_at=seconds(started), ended_at=seconds(ended), parameters=self.parameters(run), tags=tags,
                    data=self._data(run), place=str(self._path),
                )  # fmt: skip

    def parameters(self, run: str) -> dict[str, str]:
        return dict(self._rows("SELECT key, value FROM params WHERE run_uuid = ? ORDER BY rowid", (run,)))

    def metrics(self, run: StoredRun, names: Collection[str] | None) -> tuple[dict[str, Last], dict[str, Curve]]:
        return self._last(run), self._curves(run, names) if names is None or names else {}

    def _last(self, run: StoredRun) -> dict[str, Last]:
        """The ends of all metrics, mostly without reading their curves, which have up to millions of points.

        The table of latest values has those of the greatest step. That point is the newest one too, unless a run went
        back; and if nothing of the metric was recorded after it, it did not. Otherwise its points are read.
        """
        latest = self._rows(
            f"SELECT key, step, timestamp, {_VALUE} FROM latest_metrics WHERE run_uuid = ? ORDER BY rowid", (run.id,)
        )
        newest: dict[str, tuple[int, int, Any]] = {}
        for key, *point in self._rows(
            f"SELECT key, step, timestamp, {_VALUE} FROM metrics {self._by('index_metrics_run_uuid')}"
            " WHERE run_uuid = ? ORDER BY rowid DESC LIMIT ?", (run.id, _TAIL * len(latest) + 20)
        ):  # fmt: skip
            newest.setdefault(key, tuple(point))
        points = {}
        for key, step, time, value in latest:
            found = newest.get(key) or self._recorded_last(run, key)
            if found is None:  # points were deleted, as from a large store: their last one is all that is left
                found = step, time, value
            elif found[:2] != (step, time):
                found = self._rows(
                    f"SELECT step, timestamp, {_VALUE} FROM metrics {self._by('index_metrics_run_uuid_key_step')}"
                    " WHERE run_uuid = ? AND key = ? ORDER BY timestamp DESC, rowid DESC LIMIT 1", (run.id, key)
                )[0]  # fmt: skip
            points[key] = found
        values = with_infinities(np.array([value for _, _, value in points.values()], np.float64)).tolist()
        return {key: Last(value, points[key][0], step) for (key, step, _, _), value in zip(latest, values, strict=True)}

    def _recorded_last(self, run: StoredRun, key: str) -> tuple[int, int, Any] | None:
        """The point of a metric that was recorded last, found in an index alone; None if it has no points."""
        index = self._by("index_metrics_run_uuid_key_step")
        rows = self._rows(
            f"SELECT step, timestamp, {_VALUE} FROM metrics WHERE rowid ="
            f" (SELECT max(rowid) FROM metrics {index} WHERE run_uuid = ? AND key = ?)", (run.id, key)
        )  # fmt: skip
        point: tuple[int, int, Any] | None = rows[0] if rows else None
        return point

    def _curves(self, run: StoredRun, names: Collection[str] | None) -> dict[str, Curve]:
        index = self._by("index_metrics_run_uuid" if names is None else "index_metrics_run_uuid_key_step")
        condition, values = "run_uuid = ?", [run.id]
        if names is not None:
            condition += f" AND key IN ({', '.join('?' * len(names))})"
            values += names
        self._rows("BEGIN")  # a training may write between the two
        try:
            counts = self._rows(
                f"SELECT key, count(*) FROM metrics {index} WHERE {condition} GROUP BY key ORDER BY key", values
            )
            try:
                # With one tuple for each point, and nothing else, this takes half the time of lists.
                rows = self._database.execute(
                    f"SELECT step, {_VALUE} FROM metrics {index} WHERE {condition} ORDER BY key, timestamp, rowid",
                    values,
                )
                points = np.fromiter(rows, _POINT)
            except sqlite3.Error as error:
                raise sqlite.refusal(error, self._path) from None
        finally:
            self._rows("COMMIT")
        with_infinities(points["value"])
        curves, start = {}, 0
        for key, count in counts:
            of_key = points[start : start + count]
            curves[key] = Curve(np.ascontiguousarray(of_key["step"]), np.ascontiguousarray(of_key["value"]))
            start += count
        return curves

    def _data(self, run: str) -> str:
        """The data sets that are inputs of a run."""
        if not self._has_data:
            return ""
        rows = self._rows(
            "SELECT datasets.name, datasets.digest"
            " FROM inputs JOIN datasets ON datasets.dataset_uuid = inputs.source_id"
            " WHERE inputs.destination_type = 'RUN' AND inputs.destination_id = ? AND inputs.source_type = 'DATASET'"
            " ORDER BY datasets.name, datasets.digest", (run,)
        )  # fmt: skip
        return ", ".join(f"{name} {digest}" for name, digest in rows)

    def _by(self, index: str) -> str:
        """The clause that has SQLite use an index, where it is there: without statistics, which MLflow does not make,
        it takes that of the primary key, which begins with the metric, and reads the points of all runs."""
        return f"INDEXED BY {index}" if index in self._indices else ""

    def _check(self) -> None:
        """Refuses a file that is no store, or one in which runs have another form."""
        present = {table: self._columns(table) for table in _COLUMNS}
        if "run_uuid" not in present["runs"] or "experiment_id" not in present["experiments"]:
            raise UsageError(
                f"{self._name}: is no store of MLflow: it has no tables runs and experiments of it",
                "name the database of MLflow, as in mlflow.db",
            )
        revision = (
            [row[0] for row in self._rows("SELECT version_num FROM alembic_version")]
            if self._columns("alembic_version")
            else []
        )
        name = revision[0] if revision else "none"
        self.version = f"schema {name}"
        missing = [
            f"{table}.{column}" for table, columns in _COLUMNS.items() for column in sorted(columns - present[table])
        ]
        if missing:
            known = name in REVISIONS or not revision
            hint = (
                "copy the file, upgrade the copy by `mlflow db upgrade sqlite:///COPY`, and import that"
                if known
                else "install a later lrurun, or export the runs as CSV: mlflow experiments csv"
            )
            age = "an older" if known else "a later"
            raise UsageError(
                f"{self._name}: is of {age} version of MLflow (schema {name}), without {', '.join(missing[:3])}", hint
            )
        if revision and name not in REVISIONS:
            self._sentences.append(
                f"the store is of a later version of MLflow (schema {name}) than {NEWEST_RELEASE}; its tables of runs,"
                " parameters and metrics have the columns of that one, and were read as such"
            )
        self._has_data = bool(self._columns("inputs") and self._columns("datasets"))
        self._indices = {name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'index'")}

    def _columns(self, table: str) -> set[str]:
        return {row[0] for row in self._rows("SELECT name FROM pragma_table_info(?)", (table,))}

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise sqlite.refusal(error, self._path) from None
