"""Small sources of each kind that is made of plain files: the same made-up runs, to try imports with.

The runs compare three norms with six seeds each. Their numbers are made by a generator with a fixed seed.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from lrurun import files

ACCURACIES = {"none": 0.905, "batch": 0.909, "layer": 0.927}
"""Norm -> the mean accuracy of its runs."""
SEEDS = 6
STEPS = (100, 200, 300, 400, 500)
SPREAD = 0.004
"""The standard deviation between the seeds of a norm."""
_BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Example(Struct, frozen=True):
    """A made-up run."""

    number: int
    norm: str
    seed: int
    curves: dict[str, list[float]]
    """Metric -> its values at `STEPS`."""

    @property
    def id(self) -> str:
        return f"{self.norm}-{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"norm": self.norm, "lr": 0.001, "seed": self.seed}

    @property
    def last(self) -> dict[str, float]:
        return {metric: values[-1] for metric, values in self.curves.items()}

    @property
    def rows(self) -> list[dict[str, float]]:
        """Metric -> value at each step."""
        return [{metric: values[index] for metric, values in self.curves.items()} for index in range(len(STEPS))]

    @property
    def times(self) -> list[datetime]:
        """When each step was recorded; each run begins an hour after the one before."""
        return [_BEGIN + timedelta(hours=self.number, seconds=step) for step in STEPS]


def runs() -> list[Example]:
    """The runs of all norms."""
    generator = np.random.default_rng(0)
    made: list[Example] = []
    rest = np.exp(-np.array(STEPS) / 80)
    for norm, mean in ACCURACIES.items():
        for seed in range(SEEDS):
            accuracy = mean + SPREAD * generator.standard_normal()
            curves = {
                "train_loss": 2.5 * (1 - accuracy) + 1.8 * rest,
                "val_acc": accuracy + 0.004 - 0.8 * rest,
                "test_acc": accuracy - 0.8 * rest,
            }
            rounded = {metric: [round(float(value), 4) for value in values] for metric, values in curves.items()}
            made.append(Example(len(made), norm, seed, rounded))
    return made


def write(folder: Path, commands: Callable[[str], str]) -> list[str]:
    """Writes a folder with a source of each kind and a README.txt; it appears when it is complete.

    Args:
        commands: the command that imports a source, of its path in the folder with the options that it needs.

    Returns:
        The names of what is in it.

    Raises:
        OSError: it cannot be written.
    """
    made = runs()
    with files.atomic(folder) as temporary:
        temporary.mkdir()
        written = []
        for kind, source in SOURCES.items():
            if source.package and importlib.util.find_spec(source.package) is None:
                continue
            source.write(_folder(temporary / kind), made)
            written.append(kind)
        readme = temporary / "README.txt"
        readme.write_text(
            "The same made-up runs as several tools would have stored them: three norms, six seeds each.\n\n"
            + "".join(f"{commands(SOURCES[kind].words)}\n" for kind in written)
        )
    return [readme.name, *written]


def _table(folder: Path, made: Sequence[Example]) -> None:
    """A row for each run, as the page of a W&B project exports its table."""
    rows = ({"Name": run.id, "State": "finished"} | run.settings | run.last for run in made)
    _csv(folder / "runs.csv", rows)


def _steps(folder: Path, made: Sequence[Example]) -> None:
    """A row for each step of each run."""
    _csv(
        folder / "steps.csv",
        (
            {"run": run.id} | run.settings | {"step": step} | row
            for run in made
            for step, row in zip(STEPS, run.rows, strict=True)
        ),
    )


def _csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    listed = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, listed[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)


def _lines(folder: Path, made: Sequence[Example]) -> None:
    (folder / "lines.jsonl").write_text(
        "".join(json.dumps({"run": run.id} | run.settings | run.last) + "\n" for run in made)
    )


def _wandb(folder: Path, made: Sequence[Example]) -> None:
    for run in made:
        inner = _folder(folder / f"run-{run.times[0]:%Y%m%d_%H%M%S}-{run.number:08x}" / "files")
        (inner / "config.yaml").write_text(
            "".join(f"{name}:\n    value: {value}\n" for name, value in run.settings.items())
        )
        _json(inner / "wandb-summary.json", run.last | {"_step": STEPS[-1], "_timestamp": run.times[-1].timestamp()})


def _mlflow(folder: Path, made: Sequence[Example]) -> None:
    experiment = _folder(folder / "mlruns" / "1")
    (experiment / "meta.yaml").write_text(
        "artifact_location: mlruns/1\nexperiment_id: '1'\nlifecycle_stage: active\nname: norms\n"
    )
    for run in made:
        id = f"{run.number:032x}"
        inner = experiment / id
        for name in ("metrics", "params", "tags"):
            _folder(inner / name)
        begin, end = (int(time.timestamp() * 1000) for time in (run.times[0], run.times[-1]))
        (inner / "meta.yaml").write_text(
            f"artifact_uri: mlruns/1/{id}/artifacts\nend_time: {end}\nentry_point_name: ''\nexperiment_id: '1'\n"
            f"lifecycle_stage: active\nrun_id: {id}\nrun_name: {run.id}\nrun_uuid: {id}\nsource_name: ''\n"
            f"source_type: 4\nsource_version: ''\nstart_time: {begin}\nstatus: 3\ntags: []\nuser_id: ''\n"
        )
        for name, value in run.settings.items():
            (inner / "params" / name).write_text(str(value))
        (inner / "tags" / "mlflow.runName").write_text(run.id)
        for metric, values in run.curves.items():
            points = zip(run.times, values, STEPS, strict=True)
            (inner / "metrics" / metric).write_text(
                "".join(f"{int(time.timestamp() * 1000)} {value} {step}\n" for time, value, step in points)
            )


def _tensorboard(folder: Path, made: Sequence[Example]) -> None:
    from tensorboardX import SummaryWriter

    for run in made:
        inner = _folder(folder / run.id)
        _yaml(inner / "hparams.yaml", run.settings)
        with SummaryWriter(str(inner)) as writer:
            for metric, values in run.curves.items():
                for step, value, time in zip(STEPS, values, run.times, strict=True):
                    writer.add_scalar(metric, value, step, walltime=time.timestamp())


def _lightning(folder: Path, made: Sequence[Example]) -> None:
    for run in made:
        inner = _folder(folder / f"version_{run.number}")
        _yaml(inner / "hparams.yaml", run.settings)
        rows = zip(STEPS, run.rows, strict=True)
        _csv(inner / "metrics.csv", ({"epoch": step // 100 - 1, "step": step - 1} | row for step, row in rows))


def _transformers(folder: Path, made: Sequence[Example]) -> None:
    for run in made:
        inner = _folder(folder / run.id)
        _json(inner / "args.json", run.settings)
        history = [{"epoch": step / 100, "step": step} | row for step, row in zip(STEPS, run.rows, strict=True)]
        state = {"epoch": 5.0, "global_step": STEPS[-1], "max_steps": STEPS[-1], "log_history": history}
        _json(inner / "trainer_state.json", state)


def _hydra(folder: Path, made: Sequence[Example]) -> None:
    for run in made:
        inner = _folder(folder / "multirun" / f"{_BEGIN:%Y-%m-%d}" / f"{_BEGIN:%H-%M-%S}" / str(run.number))
        _yaml(_folder(inner / ".hydra") / "config.yaml", run.settings)
        _json(inner / "metrics.json", run.last)


def _ray(folder: Path, made: Sequence[Example]) -> None:
    trials = []
    for run in made:
        inner = _folder(folder / "train" / f"train_{run.number:05d}")
        _json(inner / "params.json", run.settings)
        lines = []
        for index, (row, time) in enumerate(zip(run.rows, run.times, strict=True)):
            added = {
                "trial_id": f"{run.number:05d}",
                "training_iteration": index + 1,
                "timestamp": int(time.timestamp()),
                "done": False,
                "config": run.settings,
            }
            lines.append(json.dumps(row | added))
        (inner / "result.json").write_text("\n".join(lines) + "\n")
        trial = {"trial_id": f"{run.number:05d}", "status": "TERMINATED", "relative_logdir": inner.name}
        times = {"start_time": run.times[0].timestamp(), "last_result_time": run.times[-1].timestamp()}
        # as Ray does, with a text of JSON for each part
        trials.append([json.dumps(trial | {"config": run.settings}), json.dumps(times)])
    _json(folder / "train" / f"experiment_state-{_BEGIN:%Y-%m-%d_%H-%M-%S}.json", {"trial_data": trials})


def _trackio(folder: Path, made: Sequence[Example]) -> None:
    with closing(sqlite3.connect(folder / "norms.db")) as database, database:
        database.execute("PRAGMA user_version = 2")
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, run_id TEXT, timestamp TEXT, run_name TEXT, step INTEGER,"
            " metrics TEXT)"
        )
        database.execute("CREATE TABLE configs (id INTEGER PRIMARY KEY, run_id TEXT, run_name TEXT, config TEXT)")
        for run in made:
            id = f"{run.number:032x}"
            settings = json.dumps(run.settings).encode()
            database.execute("INSERT INTO configs (run_id, run_name, config) VALUES (?, ?, ?)", (id, run.id, settings))
            for step, row, time in zip(STEPS, run.rows, run.times, strict=True):
                point = (id, time.isoformat(), run.id, step, json.dumps(row).encode())
                database.execute(
                    "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", point
                )


def _sacred(folder: Path, made: Sequence[Example]) -> None:
    for run in made:
        inner = _folder(folder / str(run.number + 1))
        times = [time.replace(tzinfo=None).isoformat() for time in run.times]
        _json(inner / "config.json", run.settings)
        record: dict[str, Any] = {
            "command": "train",
            "experiment": {"name": "norms", "repositories": [], "sources": []},
            "meta": {"command": "train", "config_updates": run.settings},
            "resources": [],
            "result": None,
            "start_time": times[0],
            "status": "COMPLETED",
            "stop_time": times[-1],
        }
        _json(inner / "run.json", record)
        (inner / "cout.txt").write_text("")
        metrics = {
            metric: {"steps": list(STEPS), "timestamps": times, "values": values}
            for metric, values in run.curves.items()
        }
        _json(inner / "metrics.json", metrics)


def _dvclive(folder: Path, made: Sequence[Example]) -> None:
    for run in made:
        inner = _folder(folder / run.id / "dvclive")
        _yaml(inner / "params.yaml", run.settings)
        _json(inner / "metrics.json", run.last | {"step": STEPS[-1]})
        curves = _folder(inner / "plots" / "metrics")
        for metric, values in run.curves.items():
            lines = "".join(f"{step}\t{value}\n" for step, value in zip(STEPS, values, strict=True))
            (curves / f"{metric}.tsv").write_text(f"step\t{metric}\n{lines}")


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _yaml(path: Path, settings: dict[str, Any]) -> None:
    path.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))


class ExampleSource(Struct, frozen=True):
    """A source with the made-up runs."""

    words: str
    """What `lrurun import` takes: the path, and the options that only this source needs."""
    write: Callable[[Path, Sequence[Example]], None]
    package: str = ""
    """The package that writes it, where the files are more than text."""


SOURCES = {
    "table": ExampleSource("table/runs.csv", _table),
    "steps": ExampleSource("steps/steps.csv", _steps),
    "lines": ExampleSource("lines/lines.jsonl", _lines),
    "wandb": ExampleSource("wandb", _wandb),
    "mlflow": ExampleSource("mlflow/mlruns", _mlflow),
    "tensorboard": ExampleSource("tensorboard", _tensorboard, "tensorboardX"),
    "lightning": ExampleSource("lightning", _lightning),
    "transformers": ExampleSource("transformers", _transformers),
    "hydra": ExampleSource("hydra/multirun --metrics-file metrics.json", _hydra),
    "ray": ExampleSource("ray/train", _ray),
    "trackio": ExampleSource("trackio/norms.db", _trackio),
    "sacred": ExampleSource("sacred", _sacred),
    "dvclive": ExampleSource("dvclive", _dvclive),
}
"""The folder of a source -> what is in it."""
