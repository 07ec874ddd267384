"""Runs with configuration, curves and results as files of other programs: Parquet, CSV, TensorBoard, MLflow.

MLflow's database has no infinities: it keeps the largest number of 64 bits in their place. NaN stays NaN.
TensorBoard's scalars have 32 bits.
"""

from __future__ import annotations

import contextlib
import csv
import json
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lrurun import console, files
from lrurun.config.settings import flatten
from lrurun.errors import LrurunError
from lrurun.report import columns, listing
from lrurun.report.formats.csv import cell

if TYPE_CHECKING:
    import pyarrow

    from lrurun.ledger.store import Ledger
    from lrurun.ledger.values import Run
    from lrurun.report.columns import Columns
    from lrurun.report.formats import ExportFormat

RESULT = "result/"
"""The beginning of the name of a result in formats that have curves alone, so that it is no point of the curve of
that name."""
CURVES_AT_ONCE = 400
"""How many curves of tables are in memory at a time."""
METRICS_AT_ONCE = 1000
"""The most metrics that MLflow takes at once; of settings and tags it is 100."""
MLFLOW_DATABASE = "mlflow.db"
_MLFLOW_STATUS = {
    "queued": "SCHEDULED", "running": "RUNNING", "interrupted": "KILLED", "done": "FINISHED", "diverged": "FAILED",
    "failed": "FAILED",
}  # fmt: skip


def write(ledger: Ledger, ids: Sequence[str], format: ExportFormat, target: Path) -> None:
    """Writes runs to the new folder `target`, which appears when it is complete.

    Args:
        ids: exact ids of runs.

    Raises:
        LrurunError: `target` exists or cannot be written, or the libraries of the format are not installed.
    """
    check_new(target)
    try:
        with files.atomic(target.absolute()) as folder:
            folder.mkdir()
            if format == "parquet":
                _write_parquet(ledger, ids, folder)
            elif format == "csv":
                _write_csv(ledger, ids, folder)
            elif format == "tensorboard":
                _write_tensorboard(ledger, ids, folder)
            else:
                _write_mlflow(ledger, ids, folder, target.absolute())
    except OSError as error:
        raise LrurunError(f"{target}: {error.strerror or error}", "name another folder, or make room") from None
    except ModuleNotFoundError as error:
        raise LrurunError(f"{error.name} is not installed", f"install it: pip install 'lrurun[{format}]'") from None


def check_new(target: Path) -> None:
    """Checks the name of a new folder.

    Raises:
        LrurunError: it exists already, or cannot be made.
    """
    if target.exists() or target.is_symlink():
        raise LrurunError(f"{target}: exists already, and is not overwritten", "name a new folder")
    parent = target.absolute().parent
    if not parent.is_dir():
        raise LrurunError(f"{target}: the folder {parent} does not exist", f"create it: mkdir -p {parent}")
    if not os.access(parent, os.W_OK):
        raise LrurunError(f"{target}: cannot be written: {parent} is read-only for this user", "name another folder")


def _result_step(run: Run) -> int:
    """The step that the results of a run belong to: that of the best validation score, if it is known."""
    best = (run.result or {}).get("best_step", math.nan)
    return int(best) if math.isfinite(best) else run.step


# Tables


def _write_parquet(ledger: Ledger, ids: Sequence[str], folder: Path) -> None:
    """`runs.parquet` with a row for each run, `metrics.parquet` with a row for each point."""
    from pyarrow import parquet

    parquet.write_table(_table(columns.of_runs(list(ledger.each(ids, brief=False)))), folder / "runs.parquet")
    parts = map(_table, _points(ledger, ids))
    first = next(parts)
    with parquet.ParquetWriter(folder / "metrics.parquet", first.schema) as writer:
        for part in chain([first], parts):
            writer.write_table(part)


def _write_csv(ledger: Ledger, ids: Sequence[str], folder: Path) -> None:
    """`runs.csv` and `metrics.csv`; numbers as Python's `float` reads them, times as `runs --json` has them."""
    _write_lines(folder / "runs.csv", iter([columns.of_runs(list(ledger.each(ids, brief=False)))]))
    _write_lines(folder / "metrics.csv", _points(ledger, ids))


def _points(ledger: Ledger, ids: Sequence[str]) -> Iterator[Columns]:
    """The points of all runs, in parts, of which there is at least one."""
    curves = ledger.curves(ids)
    yield columns.of_curves(islice(curves, CURVES_AT_ONCE))
    while part := list(islice(curves, CURVES_AT_ONCE)):
        yield columns.of_curves(part)


def _table(part: Columns) -> pyarrow.Table:
    import pyarrow

    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    kinds |= {list: pyarrow.list_(pyarrow.string()), datetime: pyarrow.timestamp("us", "UTC")}
    arrays = {name: pyarrow.array(values, kinds[columns.kind_of(values)]) for name, values in part.items()}
    return pyarrow.table(arrays)


def _write_lines(path: Path, parts: Iterator[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, part in enumerate(parts):
            if not number:
                writer.writerow(map(cell, part))
            writer.writerows([_cell(value) for value in row] for row in zip(*part.values(), strict=True))


def _cell(value: Any) -> str | int | float:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return cell("; ".join(value) if isinstance(value, list) else value)


# TensorBoard


def _write_tensorboard(ledger: Ledger, ids: Sequence[str], folder: Path) -> None:
    """A folder for each run, with its configuration, its curves and its results.

    tensorboardX's `SummaryWriter` writes in a thread, which loses the error of a full disk: this is the writer in it.
    """
    from tensorboardX import summary
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event

    for run in ledger.each(ids, brief=False):
        run_folder = _tensorboard_folder(folder, run)
        run_folder.mkdir(parents=True)
        with contextlib.closing(EventsWriter(str(run_folder / "events"))) as writer:
            for step, part in _summaries(ledger, run, summary):
                # The ledger has no time of a row.
                writer.write_event(Event(wall_time=run.created_at, step=step, summary=part))


def _summaries(ledger: Ledger, run: Run, summary: Any) -> Iterator[tuple[int, Any]]:
    """The values that TensorBoard shows of a run, each with its step; `summary` is the module of tensorboardX."""
    results = {f"{RESULT}{name}": float(score) for name, score in (run.result or {}).items()}
    settings = {
        path: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for path, value in flatten(run.config)
    }
    experiment, start, end = summary.hparams(settings, results)
    yield 0, experiment
    yield 0, start
    config = json.dumps(msgspec.to_builtins(run.config), indent=1)
    text = "".join(f"    {line}\n" for line in config.splitlines())  # code, for TensorBoard's Markdown
    yield 0, summary.text("lrurun/configuration", text)
    for curve in ledger.curves([run.id]):
        for step, value in zip(curve.steps, curve.values, strict=True):
            yield step, summary.scalar(curve.key, value)
    for tag, score in results.items():
        yield _result_step(run), summary.scalar(tag, score)
    yield run.step, summary.text("lrurun/state", run.state)
    if run.state == "done":
        yield run.step, end


def _tensorboard_folder(folder: Path, run: Run) -> Path:
    """The folder of a run, which is its name in TensorBoard."""
    parts = ["other"]
    label = "run"
    if run.memberships:
        first = run.memberships[0]
        parts = [first.ladder, first.task + (f"-{first.profile}" if first.profile else ""), first.rung]
        label = f"seed-{run.seed}" if first.stage == "train" else f"{first.stage}-{run.seed}"
    return folder.joinpath(*map(_file_name, [*parts, f"{label}-{run.id}"]))


def _file_name(text: str) -> str:
    """A text from a ledger as the name of a folder."""
    return re.sub(r"[^\w.@=+-]", "_", text, flags=re.ASCII).lstrip(".")[:100] or "_"


# MLflow


def _write_mlflow(ledger: Ledger, ids: Sequence[str], folder: Path, named: Path) -> None:
    """A database with an experiment for each ladder and task, and a run for each run.

    Args:
        named: the folder that artifacts of these runs would be in.

    Raises:
        LrurunError: MLflow cannot write to a folder of this name.
    """
    if any(character in str(folder) for character in "?#%"):
        raise LrurunError(f"{named}: MLflow cannot open a path with ?, # or %", "name a folder without them")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its makers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own use of other libraries
        from mlflow.tracking import MlflowClient

        with _quiet():
            client = MlflowClient(tracking_uri=f"sqlite:///{folder / MLFLOW_DATABASE}")
            experiments: dict[str, str] = {}
            for run in ledger.each(ids, brief=False):
                name = _experiment(run)
                if name not in experiments:
                    place = (named / "artifacts" / str(len(experiments))).as_uri()
                    experiments[name] = client.create_experiment(name, artifact_location=place)
                _write_mlflow_run(client, ledger, run, experiments[name])


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


def _experiment(run: Run) -> str:
    if not run.memberships:
        return console.clean(run.task)
    first = run.memberships[0]
    profile = f", profile {first.profile}" if first.profile else ""
    return console.clean(f"{first.ladder} on {first.task}{profile}")


def _write_mlflow_run(client: Any, ledger: Ledger, run: Run, experiment: str) -> None:
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
    entry = client.create_run(experiment, start_time=began, run_name=label)
    settings = {"task": run.task, "seed": run.seed, **listing.flat(run)}
    parameters = [Param(_mlflow_name(path), console.setting(value)) for path, value in settings.items()]
    client.log_batch(entry.info.run_id, tags=tags)
    for some in _parts(parameters, 100):
        client.log_batch(entry.info.run_id, params=some)
    for some in _parts(_mlflow_metrics(ledger, run, began, Metric), METRICS_AT_ONCE):
        client.log_batch(entry.info.run_id, metrics=some)
    status = _MLFLOW_STATUS[run.state]
    if run.finished_at is None:
        client.update_run(entry.info.run_id, status)  # the other call would take the present time
    else:
        client.set_terminated(entry.info.run_id, status, int(run.finished_at * 1000))


def _mlflow_metrics(ledger: Ledger, run: Run, time: int, kind: Any) -> Iterator[Any]:
    for curve in ledger.curves([run.id]):
        for step, value in zip(curve.steps, curve.values, strict=True):
            yield kind(_mlflow_name(curve.key), value, time, step)
    for name, score in (run.result or {}).items():
        yield kind(_mlflow_name(f"{RESULT}{name}"), float(score), time, _result_step(run))


def _mlflow_name(text: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^\w./ :-]", "_", text, flags=re.ASCII)


def _parts(values: Any, size: int) -> Iterator[list[Any]]:
    remaining = iter(values)
    while some := list(islice(remaining, size)):
        yield some
