"""Stores of MLflow 3.17.2: a database, a folder, and the answers of its server; Python 3.11."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.trackers.make import environment

PACKAGES = ["mlflow==3.17.2"]
TIME = 1_700_000_000_000
"""The time of the first point, in milliseconds."""
MODULE = "tests.trackers.make.mlflow"
ENDINGS = (
    "exception", "exit", "interrupted", "terminated", "shot", "in-block", "exit-in-block", "interrupted-in-block",
)  # fmt: skip


def write(folder: Path) -> None:
    """Runs in a database, some of them in a folder and by a server with that database."""
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true", "GIT_PYTHON_REFRESH": "quiet"}
    with tempfile.TemporaryDirectory() as temporary:
        os.chdir(temporary)
        for uri in ("sqlite:///mlflow.db", "file:mlruns"):
            _runs(uri)
            for ending in ENDINGS:
                environment.in_process(MODULE, "end", uri, ending, folder=Path(temporary))
        _record(Path("mlflow.db"), folder / "server.json")
        _without_traces(Path("mlflow.db"))
        shutil.copy("mlflow.db", folder / "mlflow.db")
        shutil.rmtree("mlruns/models", ignore_errors=True)
        for meta in Path("mlruns").glob("*/meta.yaml"):
            if "name: ends" in meta.read_text() or "name: norms" in meta.read_text():
                shutil.rmtree(meta.parent)
        for file in Path("mlruns").rglob("*"):
            if file.name in ("mlflow.user", "mlflow.source.name", "mlflow.source.type"):
                file.unlink()
            elif file.is_file():
                file.write_text(_anonymous(file.read_text()))
        shutil.copytree("mlruns", folder / "mlruns")


def _runs(uri: str) -> None:
    """Runs whose values are known by construction."""
    import mlflow
    from mlflow.data.http_dataset_source import HTTPDatasetSource
    from mlflow.data.meta_dataset import MetaDataset
    from mlflow.entities import Metric, Param, RunTag

    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(uri)
    first = client.create_experiment("norms", artifact_location="artifacts/norms")
    for index, (norm, seed) in enumerate([("layer", 0), ("layer", 1), ("none", 0)]):
        run = client.create_run(first, start_time=TIME + index * 1000, run_name=f"{norm}-{seed}").info.run_id
        parameters = {"norm": norm, "seed": seed, "lr": 1e-3, "depth": 4, "bias": True, "decay": 1e-5, "none": None}
        parameters |= {"octal": "010", "version": "1.10", "exponent": "1e-3", "nan": float("nan"), "sizes": [1, 2]}
        client.log_batch(run, params=[Param(name, str(value)) for name, value in parameters.items()])
        client.log_batch(run, tags=[RunTag("mlflow.source.git.commit", "c0ffee"), RunTag("team", "vision")])
        points = [Metric("val/acc", (step + index) / 10, TIME + index * 1000 + step, step) for step in range(5)]
        points += [Metric("test acc", 0.5 + index / 8, TIME + index * 1000 + 5, 0)]
        client.log_batch(run, metrics=points)
        client.set_terminated(run, end_time=TIME + index * 1000 + 500)

    second = client.create_experiment("odd", artifact_location="artifacts/odd")

    def add(name: str, points: list[tuple[str, float, int, int]], **options: Any) -> str:
        run = client.create_run(second, start_time=TIME + len(name), run_name=name, **options).info.run_id
        for key, value, moment, step in points:  # not in a batch, as programs record them
            client.log_metric(run, key, value, timestamp=TIME + moment, step=step)
        return str(run)

    # A run that was resumed from step 2 and ended at step 3: MLflow shows the abandoned value of step 5.
    resumed = add("resumed", [("acc", 0.1 * step, step, step) for step in range(6)])
    for step in (2, 3):
        client.log_metric(resumed, "acc", 0.7 + step / 100, timestamp=TIME + 100 + step, step=step)
    client.log_metric(resumed, "loss", 0.25, timestamp=TIME + 200, step=1)
    # A point that was recorded later than others, with the time at which it was measured.
    late = add("late", [("acc", 0.1, 1, 1), ("acc", 0.3, 3, 3), ("acc", 0.2, 2, 2)])
    numbers = [float("nan"), float("inf"), float("-inf"), -1.0]
    odd = add("numbers", [("all", value, step, step) for step, value in enumerate(numbers)])
    for name, value in zip(("nan", "inf", "-inf"), numbers, strict=False):
        client.log_metric(odd, name, value, timestamp=TIME, step=0)
    client.log_metric(odd, "negative then nan", -1.0, timestamp=TIME, step=1)
    client.log_metric(odd, "negative then nan", float("nan"), timestamp=TIME + 1, step=1)
    twice = add("twice", [("acc", 0.5, 0, 1), ("acc", 0.5, 0, 1), ("acc", 0.75, 1, 1), ("acc", 0.25, 2, 1)])
    long_names = ["val/acc top:5 ä", "a.b-c_d"]
    for name in long_names:
        client.log_metric(twice, name, 1.0, timestamp=TIME, step=1)
    # Three values of one step and millisecond, as a fast loop without steps records them: MLflow shows the greatest.
    tied = add("tied", [("acc", value, 7, 0) for value in (0.5, 0.875, 0.25)])
    client.log_param(tied, "long", "x" * 6001)  # is cut at 6,000 characters
    for run in (resumed, late, odd, twice, tied):
        client.set_terminated(run, end_time=TIME + 1000)
    client.set_terminated(add("killed", [("acc", 0.5, 0, 1)]), "KILLED", end_time=TIME + 1000)
    client.create_run(second, start_time=TIME + 50, run_name="scheduled")

    third = client.create_experiment("folds", artifact_location="artifacts/folds")
    with mlflow.start_run(experiment_id=third, run_name="around"):
        mlflow.log_params({"model": "big", "fold": "all"})
        for fold in range(2):
            with mlflow.start_run(experiment_id=third, nested=True, run_name=f"fold-{fold}"):
                mlflow.log_param("fold", fold)
                dataset = MetaDataset(HTTPDatasetSource("http://example.org/digits.csv"), name="digits", digest="d1g1")
                mlflow.log_input(dataset, context="training")
                mlflow.log_metric("acc", 0.5 + fold / 4, step=3, dataset=dataset)
    removed = client.create_run(third, run_name="removed").info.run_id
    client.log_metric(removed, "acc", 0.0)
    client.delete_run(removed)
    gone = client.create_experiment("gone", artifact_location="artifacts/gone")
    client.log_metric(client.create_run(gone).info.run_id, "acc", 0.0)
    client.delete_experiment(gone)


def end(uri: str, how: str) -> None:
    """A run of a process that ends in this way."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("ends")
    run = mlflow.start_run(run_name=how)
    mlflow.log_metric("acc", 0.5, step=1)
    if how == "exception":
        raise RuntimeError
    if how == "exit":
        sys.exit(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    signals = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM, "shot": signal.SIGKILL}
    if how in signals:
        os.kill(os.getpid(), signals[how])
        time.sleep(10)
    with run:
        if how == "in-block":
            raise RuntimeError
        if how == "interrupted-in-block":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        sys.exit(0)


def _record(database: Path, target: Path) -> None:
    """Has a server answer what the client asks when runs are read, and records it: no data of the machine is in it."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    command = ["mlflow", "server", "--backend-store-uri", f"sqlite:///{database.absolute()}", "--port", str(ports[0])]
    server = subprocess.Popen(
        [Path(sys.executable).parent / command[0], *command[1:], "--workers", "1", "--host", "127.0.0.1"]
    )
    answers: dict[str, Any] = {}

    class Recorder(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = urllib.request.Request(
                f"http://127.0.0.1:{ports[0]}{self.path}", body or None, method=self.command,
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
            try:
                with urllib.request.urlopen(request) as answer:
                    status, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
            answers[f"{self.command} {self.path} {body.decode()}".strip()] = [status, _anonymous(content.decode())]
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    recorder = ThreadingHTTPServer(("127.0.0.1", ports[1]), Recorder)
    threading.Thread(target=recorder.serve_forever, daemon=True).start()
    try:
        for _ in range(120):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/health").close()
                break
            time.sleep(0.5)
        _ask(f"http://127.0.0.1:{ports[1]}")
    finally:
        recorder.shutdown()
        server.terminate()
        server.wait()
    target.write_text(json.dumps(answers, indent=0, sort_keys=True))


def _ask(address: str) -> None:
    """What the client asks a server to read the runs of two experiments."""
    from mlflow import MlflowClient
    from mlflow.entities import ViewType

    client = MlflowClient(address)
    for experiment in client.search_experiments():
        if experiment.name in ("odd", "folds"):
            client.search_runs([experiment.experiment_id], run_view_type=ViewType.DELETED_ONLY, max_results=1000,
                               order_by=["attributes.start_time ASC"])  # fmt: skip
            for run in client.search_runs([experiment.experiment_id], run_view_type=ViewType.ACTIVE_ONLY,
                                          max_results=1000, order_by=["attributes.start_time ASC"]):  # fmt: skip
                for metric in client.get_run(run.info.run_id).data.metrics:
                    client.get_metric_history(run.info.run_id, metric)


def _without_traces(database: Path) -> None:
    """Removes what names the machine, and the space of the many tables that are empty."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET user_id = 'user', artifact_uri = '', source_name = 'program.py'")
        connection.execute("UPDATE experiments SET artifact_location = ''")
        connection.execute("UPDATE tags SET value = 'user' WHERE key = 'mlflow.user'")
        connection.execute("UPDATE tags SET value = 'program.py' WHERE key = 'mlflow.source.name'")
        kept = (
            "alembic_version",
            "datasets",
            "experiments",
            "inputs",
            "latest_metrics",
            "metrics",
            "params",
            "runs",
            "tags",
        )
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        connection.execute("PRAGMA foreign_keys = OFF")
        for table in tables:
            if table not in kept and not table.startswith("sqlite_"):
                connection.execute(f'DROP TABLE "{table}"')
        # Smaller pages: each table and index has one at least.
        connection.execute("PRAGMA page_size = 512")
        connection.execute("VACUUM")


def _anonymous(text: str) -> str:
    """A text without the folder and the user of the machine that made it."""
    import getpass

    text = text.replace(str(Path.cwd()), "/store").replace(str(Path.cwd().resolve()), "/store")
    for before, after in ((f"user_id: {getpass.getuser()}", "user_id: user"), (f'"{getpass.getuser()}"', '"user"')):
        text = text.replace(before, after)
    return text.replace(sys.argv[0], "program.py") if len(sys.argv[0]) > 3 else text


if __name__ == "__main__":
    environment.main(MODULE, PACKAGES, write)
