"""MLflow: an SQLite database with an experiment for each ladder and task, and a run for each run.

MLflow's database has no infinities: it keeps the largest number of 64 bits in their place. NaN stays NaN.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrurun import console
from lrurun.errors import LrurunError
from lrurun.report import listing
from lrurun.report.exports import RESULT, missing, result_step

if TYPE_CHECKING:
    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run

DATABASE = "mlflow.db"
_STATUS = {
    "queued": "SCHEDULED", "running": "RUNNING", "interrupted": "KILLED", "done": "FINISHED", "diverged": "FAILED",
    "failed": "FAILED",
}  # fmt: skip
AT_ONCE = 1000
"""The most metrics that MLflow takes at once; of settings and tags it is 100."""


def write(ledger: Ledger, ids: Sequence[str], folder: Path, named: Path) -> None:
    """Writes the database; `named` is the folder that artifacts of these runs would be in.

    Raises:
        LrurunError: mlflow is not installed, or cannot write to a folder of this name.
    """
    if any(character in str(folder) for character in "?#%"):
        raise LrurunError(f"{named}: MLflow cannot open a path with ?, # or %", "name a folder without them")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its makers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own use of other libraries
        try:
            from mlflow.tracking import MlflowClient
        except ModuleNotFoundError as error:
            raise missing(error, "mlflow") from None
        with _quiet():
            client = MlflowClient(tracking_uri=f"sqlite:///{folder / DATABASE}")
            experiments: dict[str, str] = {}
            for run in ledger.each(ids, brief=False):
                name = _experiment(run)
                if name not in experiments:
                    at = (named / "artifacts" / str(len(experiments))).as_uri()
                    experiments[name] = client.create_experiment(name, artifact_location=at)
                _write_run(client, ledger, run, experiments[name])


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow, which sets the level of its messages when it is imported, would report the making of its tables."""
    logger = logging.getLogger("mlflow")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _experiment(run: Run) -> str:
    if not run.memberships:
        return console.clean(run.task)
    first = run.memberships[0]
    profile = f", profile {first.profile}" if first.profile else ""
    return console.clean(f"{first.ladder} on {first.task}{profile}")


def _write_run(client: Any, ledger: Ledger, run: Run, experiment: str) -> None:
    from mlflow.entities import Metric, Param, RunTag

    first = run.memberships[0] if run.memberships else None
    about = {
        "lrurun.id": run.id,
        "lrurun.fingerprint": run.fingerprint,
        "lrurun.state": run.state,
        "lrurun.superseded": str(run.superseded).lower(),
        "lrurun.tags": ", ".join(run.tags),
        "lrurun.excluded": run.excluded,
        "lrurun.error": run.error,
    }
    if first is not None:
        about |= {f"lrurun.{name}": getattr(first, name) for name in ("ladder", "rung", "stage", "profile", "user")}
    tags = [RunTag(name, console.clean(value, lines=True)[:5000]) for name, value in about.items() if value]
    began = int(run.created_at * 1000)
    label = console.clean(f"{first.rung if first else run.task} seed {run.seed} {run.id}")
    made = client.create_run(experiment, start_time=began, run_name=label)
    settings = {"task": run.task, "seed": run.seed, **listing.flat(run)}
    parameters = [Param(_name(path), console.setting(value)) for path, value in settings.items()]
    client.log_batch(made.info.run_id, tags=tags)
    for some in _parts(parameters, 100):
        client.log_batch(made.info.run_id, params=some)
    for some in _parts(_metrics(ledger, run, began, Metric), AT_ONCE):
        client.log_batch(made.info.run_id, metrics=some)
    status = _STATUS[run.state]
    if run.finished_at is None:
        client.update_run(made.info.run_id, status)  # the other call would take the present time
    else:
        client.set_terminated(made.info.run_id, status, int(run.finished_at * 1000))


def _metrics(ledger: Ledger, run: Run, time: int, kind: Any) -> Iterator[Any]:
    for curve in ledger.curves([run.id]):
        for step, value in zip(curve.steps, curve.values, strict=True):
            yield kind(_name(curve.key), value, time, step)
    for name, score in (run.result or {}).items():
        yield kind(_name(f"{RESULT}{name}"), float(score), time, result_step(run))


def _name(text: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^\w./ :-]", "_", text, flags=re.ASCII)


def _parts(values: Any, size: int) -> Iterator[list[Any]]:
    left = iter(values)
    while some := list(islice(left, size)):
        yield some
