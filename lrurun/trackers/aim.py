"""Runs of an Aim repository, read by the package `aim`: it stores them in RocksDB, which nothing light reads."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lrurun.errors import LrurunError, UsageError, plural
from lrurun.trackers import Curve, Source, TrackedRun, flat, folders

if TYPE_CHECKING:
    from aim import Repo

FOLDER = ".aim"
"""The folder of a repository, in the folder that its users name."""
_EXPORT = "export the runs as CSV from the table of Aim's browser view, and import that file"


class AimReader:
    """A folder with `.aim` in it, or `.aim` itself.

    Aim knows no failures: a run that has ended is finished, also where its script raised. One that was killed is active
    for ever, as one that still runs.
    """

    name = "aim"
    title = "Aim"

    def __init__(self, source: Source) -> None:
        self.source = source

    @classmethod
    def recognises(cls, source: Source) -> bool:
        return (_root(source.path) / FOLDER / "run_metadata.sqlite").is_file()

    def version(self) -> str:
        return f"aim {metadata.version('aim')}"

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        with self._errors(), contextlib.closing(self._opened()) as repository:
            stored = [(id, repository.get_run(id)) for id in sorted(repository.list_all_runs())]
            if unindexed := sum(run is None for _, run in stored):
                raise LrurunError(
                    f"{self.source.name}: {unindexed} of {plural(len(stored), 'run')} are not in Aim's index, so that"
                    " they look empty",
                    f"aim storage --repo {_root(self.source.path)} reindex",
                )
            folders.check_project(self.source, {run.experiment or "" for _, run in stored})
            for id, run in sorted(stored, key=lambda pair: (pair[1].creation_time, pair[0])):
                if not self.source.project or run.experiment == self.source.project:
                    yield self._run(id, run, curves)

    def notes(self) -> Sequence[str]:
        return []

    def _opened(self) -> Repo:
        """The repository.

        Raises:
            UsageError: there is none.
            LrurunError: the package is not installed.
        """
        if not self.recognises(self.source):
            raise UsageError(f"{self.source.name}: no repository of Aim", f"name the folder that has {FOLDER} in it")
        try:
            from aim import Repo
        except ImportError:
            raise LrurunError(
                f"{self.source.name}: a repository of Aim is read by its package, which is not installed",
                f"pip install aim, which needs Python 3.12 or earlier; or {_EXPORT}",
            ) from None
        logging.getLogger("aim").setLevel(logging.ERROR)
        return Repo(str(_root(self.source.path)))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of Aim, of RocksDB and of SQLAlchemy, which have no base in common, as one for users."""
        try:
            yield
        except LrurunError:
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise LrurunError(
                f"{self.source.name}: Aim cannot read it: {reason}", f"aim storage may repair it; or {_EXPORT}"
            ) from error

    def _run(self, id: str, run: Any, curves: Collection[str] | None) -> TrackedRun:
        """A run of the package as a tracked one."""
        series = {_metric(metric): curve for metric in run.metrics() if (curve := _curve(metric)) is not None}
        settings = {name: value for name, value in run.get(...).items() if not name.startswith("__")}
        return TrackedRun(
            id=id,
            project=run.experiment or "",
            name=run.name if run.name != f"Run: {id}" else "",
            settings=flat(settings),
            state="running" if run.active else "finished",
            state_text="active" if run.active else "",
            last={metric: float(curve.values[-1]) for metric, curve in series.items()},
            last_step=max((int(np.max(curve.steps)) for curve in series.values()), default=None),
            curves={metric: curve for metric, curve in series.items() if curves is None or metric in curves},
            started_at=run.creation_time,
            ended_at=run.end_time,
            place=str(_root(self.source.path)),
        )


def _root(path: Path) -> Path:
    """The folder that has `.aim` in it."""
    return path.absolute().parent if path.name == FOLDER else path


def _metric(metric: Any) -> str:
    """The name of a metric with its context, as in `acc[subset=val]`: contexts distinguish metrics of one name."""
    context = flat(metric.context.to_dict())
    listed = ",".join(f"{key}={value}" for key, value in sorted(context.items()))
    return f"{metric.name}[{listed}]" if listed else str(metric.name)


def _curve(metric: Any) -> Curve | None:
    """The points of a metric in the order of time; None where it has none.

    The view has steps. Lists without one have hashes of steps, in the order of these.
    """
    steps, (values, times) = metric.data.view(("val", "step", "time")).items_list()
    if not len(steps):
        return None
    order = np.argsort(np.array(times, np.float64), kind="stable")
    return Curve(steps=np.array(steps, np.int64)[order], values=np.array(values, np.float64)[order])
