"""Runs as a database of MLflow.

It has no infinities: the largest number of 64 bits is in their place. NaN stays NaN.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun import console
from lrurun.errors import LrurunError
from lrurun.report import listing
from lrurun.report.export_shared import RESULT, Departures, Names, Places, known_metrics, result_step

if TYPE_CHECKING:
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import Run

DATABASE = "mlflow.db"
LONG_VALUES = "long_values.json"
"""The artifact with the settings and tags of a run that are too long for the database."""
_RENAMED = "lrurun.renamed"
"""The tag with the names of metrics and settings that MLflow does not take: name here -> name in the ledger."""
_TAGS = (
    *("id", "fingerprint", "state", "superseded", "tags", "excluded", "error"),
    *("ladder", "rung", "stage", "profile", "user"),
)
"""The columns of a run that are tags of MLflow."""
_AT_ONCE = {"metrics": 1000, "params": 100, "tags": 100}
"""The most values that MLflow takes at once."""
_STATUS = {
    "queued": "SCHEDULED", "running": "RUNNING", "interrupted": "KILLED", "done": "FINISHED", "diverged": "FAILED",
    "failed": "FAILED",
}  # fmt: skip


def write(ledger: Ledger, ids: Sequence[str], folder: Path, named: Path) -> list[str]:
    """A database with an experiment for each ladder and task, and a run for each run; see `exports.write`.

    Args:
        named: the name that `folder` will get, in which artifacts of these runs are.

    Raises:
        LrurunError: MLflow cannot write to a folder of this name, or refuses a run.
    """
    if any(character in str(folder) for character in "?#%"):
        raise LrurunError(f"{named}: MLflow cannot open a path with ?, # or %", "name a folder without them")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its makers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own use of other libraries
        from mlflow.exceptions import MlflowException
        from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH

        with _quiet():
            try:
                export = _Export(ledger, folder, named, most=MAX_ENTITY_KEY_LENGTH)
                for run in ledger.each(ids, brief=False):
                    export.add(run)
            except Exception as error:
                of_database = isinstance(error.__cause__, sqlite3.Error)  # as on a full disk
                if not of_database and not isinstance(error, MlflowException):
                    raise
                reason = _first_line(error.__cause__ if of_database and error.__cause__ else error)
                hint = "make room, or name another folder; --to parquet has the same"
                raise LrurunError(f"{named}: MLflow: {reason}", hint) from error
    return export.sentences()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """MLflow, which sets the level of its messages when it is imported, would report the making of its tables."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Export:
    """A database that is being made."""

    def __init__(self, ledger: Ledger, folder: Path, named: Path, most: int) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=f"sqlite:///{folder / DATABASE}")
        self._ledger, self._folder, self._named = ledger, folder, named
        self._experiments: dict[str, str] = {}
        self._metrics = Names(_permitted, known_metrics(ledger), most=most)
        self._settings = Names(_permitted, most=most)
        self._departures = Departures("MLflow")
        self._places = Places(ledger)

    def sentences(self) -> list[str]:
        """What the database does not have as the ledger has it."""
        return self._departures.sentences(
            [self._metrics, self._settings],
            record=f"the tag {_RENAMED} of a run",
            long=f"too long for MLflow's database, and whole in the artifact {LONG_VALUES} of the run",
            infinite="infinite, in place of which MLflow has 1.8e308",
        )

    def add(self, run: Run) -> None:
        """Adds a run with its settings, curves and results."""
        from mlflow.entities import Param
        from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH

        first = run.memberships[0] if run.memberships else None
        began = int(run.created_at * 1000)
        label = console.clean(f"{first.rung if first else run.task} seed {run.seed} {run.id}")
        entry = self._client.create_run(self._experiment(run), start_time=began, run_name=label).info
        long_values: dict[str, dict[str, str]] = {}
        settings = {"task": run.task, "seed": run.seed, **listing.flat(run)}
        fitted = self._fitted(
            {path: console.setting(value) for path, value in settings.items()},
            MAX_PARAM_VAL_LENGTH,
            long_values,
            "settings",
        )
        parameters = [Param(self._settings(path), value) for path, value in fitted.items()]
        self._log(entry.run_id, "params", parameters, self._settings)
        used: set[str] = set()
        self._log(entry.run_id, "metrics", self._points(run, began, used), self._metrics)
        renamed = self._metrics.changed(used) | self._settings.changed(parameter.key for parameter in parameters)
        self._tag(entry.run_id, run, renamed, long_values)
        if long_values:
            artifacts = self._folder / Path(entry.artifact_uri.removeprefix(self._named.as_uri()).lstrip("/"))
            artifacts.mkdir(parents=True)
            (artifacts / LONG_VALUES).write_text(
                json.dumps(long_values, indent=1, ensure_ascii=False), encoding="utf-8"
            )
        status = _STATUS[run.state]
        if run.finished_at is None:
            self._client.update_run(entry.run_id, status)  # the other call would take the present time
        else:
            self._client.set_terminated(entry.run_id, status, int(run.finished_at * 1000))

    def _experiment(self, run: Run) -> str:
        """The id of the experiment of a run."""
        name = run.task
        if run.memberships:
            first = run.memberships[0]
            name = f"{first.ladder} on {first.task}" + (f", profile {first.profile}" if first.profile else "")
        name = console.clean(name)
        if name not in self._experiments:
            location = (self._named / "artifacts" / str(len(self._experiments))).as_uri()
            self._experiments[name] = self._client.create_experiment(name, artifact_location=location)
        return self._experiments[name]

    def _points(self, run: Run, time: int, used: set[str]) -> Iterator[Any]:
        """The points of curves, and results; their names are added to `used`."""
        from mlflow.entities import Metric

        def metric(name: str, value: float, step: int) -> Any:
            if math.isinf(value):
                self._departures.infinite.add(self._metrics.before(name))
            return Metric(name, value, time, step)

        for curve in self._ledger.curves([run.id]):
            used.add(name := self._metrics(curve.key))
            for step, value in zip(curve.steps, curve.values, strict=True):
                yield metric(name, value, step)
        for result, score in (run.result or {}).items():
            used.add(name := self._metrics(result, RESULT))
            yield metric(name, float(score), result_step(run))

    def _tag(self, run_id: str, run: Run, renamed: dict[str, str], long_values: dict[str, dict[str, str]]) -> None:
        from mlflow.entities import RunTag
        from mlflow.utils.validation import MAX_TAG_VAL_LENGTH

        from lrurun.ledger.columns import COLUMNS

        about = {f"lrurun.{name}": COLUMNS[name].shown(run) for name in _TAGS}
        about |= {f"lrurun.{name}": str(value) for name, value in self._places.of(run).items()}
        if renamed:
            about[_RENAMED] = json.dumps(renamed, ensure_ascii=False)
        texts = {name: console.clean(value, lines=True) for name, value in about.items() if value}
        fitted = self._fitted(texts, MAX_TAG_VAL_LENGTH, long_values, "tags")
        self._client.log_batch(run_id, tags=[RunTag(name, value) for name, value in fitted.items()])

    def _fitted(
        self, texts: dict[str, str], most: int, long_values: dict[str, dict[str, str]], kind: str
    ) -> dict[str, str]:
        """Texts of which long ones are cut, and say so; these are whole in `long_values`."""
        fitted = {}
        for name, text in texts.items():
            if len(text) > most:
                end = f"... ({len(text):,} characters, whole in the artifact {LONG_VALUES})"
                fitted[name] = text[: most - len(end)] + end
                long_values.setdefault(kind, {})[name] = text
                self._departures.cut[name] = self._departures.cut.get(name, 0) + 1
            else:
                fitted[name] = text
        return fitted

    def _log(self, run_id: str, kind: str, values: Iterable[Any], names: Names) -> None:
        """Records values; what MLflow does not permit is left out, and named, and the others are recorded."""
        remaining = iter(values)
        while some := list(islice(remaining, _AT_ONCE[kind])):
            if self._refusal(run_id, kind, some) is None:
                continue
            for name in dict.fromkeys(value.key for value in some):
                refusal = self._refusal(run_id, kind, [value for value in some if value.key == name])
                if refusal is not None:
                    self._departures.refused[names.before(name)] = refusal

    def _refusal(self, run_id: str, kind: str, values: list[Any]) -> str | None:
        """Records values; why MLflow does not permit them, None if it has recorded them."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(run_id, **{kind: values})
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            return _first_line(error)
        return None


def _first_line(error: BaseException) -> str:
    return console.clean(str(error).strip().splitlines()[0])


def _permitted(name: str) -> str:
    """The nearest name that MLflow takes: it refuses most signs, and what is another path, as `a//b` or `a/../b`."""
    parts = re.sub(r"[^\w./ :-]", "_", name, flags=re.ASCII).split("/")
    parts = [re.sub(r"^\.{0,2}$", lambda found: "_" * max(1, len(found[0])), part) for part in parts]
    return re.sub(r"^\.\.", "__", "/".join(parts))
