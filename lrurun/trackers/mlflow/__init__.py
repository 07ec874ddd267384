"""Runs of MLflow: a SQLite file, a folder `mlruns`, or a server. Nothing is written to any of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lrurun.errors import LrurunError, UsageError, hint_for, plural
from lrurun.trackers import Curve, Source, State, TrackedRun, Value, sqlite
from lrurun.trackers.lrurun_exports import ExportedRuns, names_in_export
from lrurun.trackers.mlflow.file_store import FileStore, is_store
from lrurun.trackers.mlflow.server import Server
from lrurun.trackers.mlflow.sqlite_store import SqliteStore
from lrurun.trackers.mlflow.stores import Last, Store, StoredRun, Tags, typed

_DATABASE, _FOLDER = "mlflow.db", "mlruns"
_SERVERS = ("http://", "https://")
_DATABASES = ("postgresql", "mysql", "mssql")
"""Databases that MLflow itself opens, and whose tables it then creates or refuses to read."""
_STATES: dict[str, State] = {
    "FINISHED": "finished", "FAILED": "crashed", "KILLED": "crashed", "RUNNING": "running", "SCHEDULED": "running",
}  # fmt: skip
_COMMIT = "mlflow.source.git.commit"
_OWN_TAGS = ("mlflow.", "lrurun.")
"""The beginnings of tags that no user has set."""


class MlflowReader:
    """Reads the active runs of MLflow's experiments.

    Parameters and the user's own tags, as `tags.NAME`, are settings; a nested run has those of the runs around it that
    it does not set itself. A run around others that has no metrics is not a run of its own. Values are ordered by time,
    and the last is the newest: MLflow shows that of the greatest step, which is an abandoned one where a run was
    resumed from an earlier step.
    """

    name = "mlflow"
    title = "MLflow"

    def __init__(self, source: Source) -> None:
        self._source = source
        self._notes: list[str] = []
        self._version = ""

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether this is the address of a server, a database by its name, or a folder with a store."""
        if source.frame is not None:
            return False
        scheme = source.name.partition(":")[0]
        if source.name.startswith(_SERVERS):
            return not Path(urlsplit(source.name).path).suffix  # the address of a file is none of a server
        if scheme == "sqlite" or scheme.partition("+")[0] in _DATABASES:
            return scheme != "sqlite" or _has_runs(_path_of(source.name))
        path = _path_of(source.name)
        with contextlib.suppress(OSError):
            if path.is_dir():
                return (path / _DATABASE).is_file() or is_store(path / _FOLDER) or is_store(path)
            return path.is_file() and _has_runs(path)
        return False

    def version(self) -> str:
        """The mark of the tables of a database, or the version of the package that asks a server."""
        if not self._version:
            with contextlib.closing(self._opened()) as store:
                self._version = store.version
        return self._version

    @property
    def tells_ends(self) -> bool:
        """Of a database alone: a server and a folder have the ends only with the curves."""
        with contextlib.closing(self._opened()) as store:
            return isinstance(store, SqliteStore)

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """Yields the runs in the order in which they started."""
        with contextlib.closing(self._opened()) as store:
            self._version = store.version
            yield from self._read(store, curves)

    def notes(self) -> Sequence[str]:
        """What was left out, and which settings nested runs have from others."""
        return self._notes

    def _opened(self) -> Store:
        """The store that the source names."""
        name = self._source.name
        scheme = name.partition(":")[0]
        if name.startswith(_SERVERS):
            return Server(name.partition("#")[0].rstrip("/"))
        if scheme.partition("+")[0] in _DATABASES:
            raise UsageError(
                f"{scheme}: a store in a database of this kind is read by its server",
                "start `mlflow server --backend-store-uri ...` if none is there, and name its address: http://HOST:5000",
            )
        path = _path_of(name)
        if scheme == "sqlite" or path.is_file():
            return SqliteStore(path, str(path))
        has_database, has_folder = (path / _DATABASE).is_file(), is_store(path / _FOLDER)
        if has_database and has_folder:
            raise UsageError(
                f"{path}: has two stores, {_DATABASE} and {_FOLDER}",
                f"name one: {path / _DATABASE} or {path / _FOLDER}",
            )
        if has_database:
            return SqliteStore(path / _DATABASE, str(path / _DATABASE))
        folder = path / _FOLDER if has_folder else path
        return FileStore(folder, str(folder))

    def _read(self, store: Store, curves: Collection[str] | None) -> Iterator[TrackedRun]:
        experiments = self._chosen(store.experiments())
        parents = store.parents(experiments)
        around = set(parents.values())
        exports = ExportedRuns()
        left_out, nested, found = 0, 0, False
        for stored in store.runs(experiments):
            last, points = store.metrics(stored, names_in_export(curves, stored.tags))
            if stored.id in around and not last:
                left_out += 1
                continue
            inherited = self._inherited(store, stored.id, parents)
            nested += bool(inherited.keys() - stored.parameters.keys())
            found = True
            yield from exports.read(_run(stored, experiments[stored.experiment], inherited, last, points), stored.tags)
        yield from exports.waiting()
        deleted = store.deleted(experiments)
        if not found and not left_out:
            also = f"; {plural(deleted, 'deleted run')} {'is' if deleted == 1 else 'are'} left out" if deleted else ""
            raise UsageError(
                f"{self._source.name}: there are no runs in {', '.join(experiments.values()) or 'the store'}{also}",
                "name the store that your program logs to: mlflow.get_tracking_uri() prints it",
            )
        self._notes = store.sentences()
        if deleted:
            self._notes.append(f"{plural(deleted, 'deleted run')} left out")
        if left_out:
            self._notes.append(f"{plural(left_out, 'run')} left out with nested runs and without metrics")
        if nested:
            self._notes.append(f"{plural(nested, 'nested run')} with settings of the runs around them")
        self._notes += exports.sentences()

    def _chosen(self, experiments: dict[str, str]) -> dict[str, str]:
        """Id -> name of the experiments to which reading is limited: by the source's project, or by an address."""
        wanted = self._source.project
        if not wanted and (found := re.search(r"#/experiments/(\d+)", self._source.name)):
            wanted = found[1]
        if not wanted:
            return experiments
        chosen = {number: name for number, name in experiments.items() if wanted in (name, number)}
        if not chosen:
            hint = hint_for(wanted, experiments.values(), "experiments")
            raise UsageError(f"{self._source.name}: has no experiment {wanted!r}", hint)
        by_name = {number: name for number, name in chosen.items() if name == wanted}
        return by_name or chosen

    def _inherited(self, store: Store, run: str, parents: dict[str, str]) -> dict[str, str]:
        """The parameters of the runs around a run, the nearest of which wins."""
        parameters: dict[str, str] = {}
        seen = {run}
        while (run := parents.get(run, "")) and run not in seen:
            seen.add(run)
            parameters = {**store.parameters(run), **parameters}
        return parameters


def _run(
    stored: StoredRun, experiment: str, inherited: dict[str, str], last: dict[str, Last], points: dict[str, Curve]
) -> TrackedRun:
    """A run in the form of all trackers."""
    parameters = {**inherited, **stored.parameters}
    settings: dict[str, Value] = {name: typed(text) for name, text in parameters.items()}
    settings |= {f"tags.{name}": typed(text) for name, text in _tags(stored.tags).items()}
    steps = [end.greatest_step for end in last.values()]
    return TrackedRun(
        id=stored.id, project=experiment, name=stored.name, settings=settings,
        state=_STATES.get(stored.status, "running"), state_text=stored.status,
        last={name: end.value for name, end in last.items()},
        # MLflow gives the step 0 to what is logged without one.
        last_step=max(steps) if any(steps) else None,
        ends={name: (end.step, end.greatest_step) for name, end in last.items()},
        curves={name: curve for name, curve in points.items() if curve.steps.any()},
        started_at=stored.started_at, ended_at=stored.ended_at, code=stored.tags.get(_COMMIT, ""), data=stored.data,
        place=stored.place,
    )  # fmt: skip


def _tags(tags: Tags) -> Tags:
    """The tags that users have set."""
    return {name: text for name, text in tags.items() if not name.startswith(_OWN_TAGS)}


def _path_of(name: str) -> Path:
    """The path in a tracking URI, as in `sqlite:////data/mlflow.db`, `file:///data/mlruns` or `mlruns`."""
    if name.startswith("sqlite:"):
        return Path(unquote(name.removeprefix("sqlite:").removeprefix("///").partition("?")[0])).expanduser()
    if name.startswith("file:"):
        return Path(unquote(urlsplit(name).path)).expanduser()
    return Path(name).expanduser()


def _has_runs(path: Path) -> bool:
    """Whether a SQLite file has MLflow's tables; other tools have files of this kind too."""
    if not path.is_file():
        return False
    try:
        columns = sqlite.columns(path)
    except LrurunError:
        if path.name != _DATABASE:
            raise
        return True
    if not columns:  # no database
        return path.name == _DATABASE
    return "run_uuid" in columns.get("runs", ()) and "experiment_id" in columns.get("experiments", ())
