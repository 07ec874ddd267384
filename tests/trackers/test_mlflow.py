"""Runs of MLflow: a database, a folder and a server of the real package give what its programs logged."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lrurun import trackers
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source, TrackedRun, sqlite
from lrurun.trackers.mlflow import MlflowReader
from lrurun.trackers.mlflow.stores import typed
from tests.trackers.reader_output import FILES, points, read, recognised

DATABASE, FOLDER, ANSWERS = (FILES / "mlflow" / name for name in ("mlflow.db", "mlruns", "server.json"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server that answers what the real one has answered."""
    answers = json.loads(ANSWERS.read_text())

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            status, content = answers.get(f"{self.command} {self.path} {body}".strip(), [404, "{}"])
            self.send_response(status)
            self.send_header("Content-Length", str(len(content.encode())))
            self.end_headers()
            self.wfile.write(content.encode())

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.fixture(params=["database", "folder", "server"])
def store(request: pytest.FixtureRequest) -> str:
    """Each kind of store."""
    sources = {"database": str(DATABASE), "folder": str(FOLDER)}
    return sources.get(request.param) or str(request.getfixturevalue("server"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the database, which may be changed."""
    return Path(shutil.copy(DATABASE, tmp_path / "mlflow.db"))


def by_name(source: str | Path, project: str = "") -> dict[str, TrackedRun]:
    return {run.name: run for run in read("mlflow", source, project=project)[0]}  # type: ignore[arg-type]


def change(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def error_of(source: str | Path, project: str = "") -> LrurunError:
    with pytest.raises(LrurunError) as raised:
        list(MlflowReader(Source(name=str(source), project=project)).runs())
    return raised.value


def test_parameters_are_numbers_only_where_python_writes_that_number() -> None:
    runs = by_name(DATABASE, "norms")
    assert list(runs) == ["layer-0", "layer-1", "none-0"]
    assert runs["none-0"].settings == {
        "norm": "none", "seed": 0, "lr": 0.001, "depth": 4, "bias": True, "decay": 1e-05, "none": "None",
        "octal": "010", "version": "1.10", "exponent": "1e-3", "nan": "nan", "sizes": "[1, 2]", "tags.team": "vision",
    }  # fmt: skip
    assert runs["none-0"].settings["bias"] is True
    run = runs["layer-1"]
    assert (run.project, run.state, run.state_text, run.code) == ("norms", "finished", "FINISHED", "c0ffee")
    assert (run.started_at, run.ended_at, run.last_step) == (1_700_000_001.0, 1_700_000_001.5, 4)
    assert run.last == {"val/acc": 0.5, "test acc": 0.625}
    assert points(run, "val/acc") == [(step, str((step + 1) / 10)) for step in range(5)]
    assert "test acc" not in run.curves  # it was logged once, and without a step


@pytest.mark.parametrize("text", ["1_000", "+1", " 1", "inf", "1e400", "1.0e-05", "true", "", "٣"])
def test_texts_that_python_would_not_write_stay_texts(text: str) -> None:
    assert typed(text) == text


def test_the_last_value_is_the_newest_one(store: str) -> None:
    runs = by_name(store, "odd")
    resumed = runs["resumed"]
    assert resumed.last == {"acc": 0.73, "loss": 0.25}
    assert resumed.last_step == 5
    assert [step for step, _ in points(resumed, "acc")] == [0, 1, 2, 3, 4, 5, 2, 3]
    assert points(resumed, "acc")[-2:] == [(2, "0.72"), (3, "0.73")]
    assert points(runs["late"], "acc") == [(1, "0.1"), (2, "0.2"), (3, "0.3")]
    assert runs["late"].last == {"acc": 0.3}
    # A database has dropped the first of two equal points.
    assert points(runs["twice"], "acc")[-3:] == [(1, "0.5"), (1, "0.75"), (1, "0.25")]
    assert len(runs["twice"].curves["acc"].steps) == (4 if store == str(FOLDER) else 3)
    assert runs["twice"].last == {"acc": 0.25, "val/acc top:5 ä": 1.0, "a.b-c_d": 1.0}
    assert all(run.ends is not None for run in runs.values())
    back = {run.name: _back(run) for run in runs.values() if _back(run)}
    assert back == {"resumed": {"acc": (3, 5)}}


def _back(run: TrackedRun) -> dict[str, tuple[int, int]]:
    """The metrics of a run whose steps go back, and where they end."""
    return {name: (end, greatest) for name, (end, greatest) in (run.ends or {}).items() if end < greatest}


def test_metrics_whose_points_were_deleted_have_the_value_that_is_left(copy: Path) -> None:
    change(copy, "DELETE FROM metrics")
    run = by_name(copy, "odd")["late"]
    assert (run.last, run.last_step, run.curves) == ({"acc": 0.3}, 3, {})


def test_the_newest_value_is_found_before_many_others(copy: Path) -> None:
    """Of the newest points of a run, all are of another metric."""
    runs = [run for run in by_name(copy).values() if run.last]
    many = "(WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 299) SELECT i FROM n)"
    columns = "key, value, timestamp, run_uuid, step, is_nan"
    for run in runs:
        row = f"'many', 1, 1900000000000 + i, '{run.id}', i, 0"
        falling = [f"('falling', 0.{step}, {1800000000000 - step}, '{run.id}', {step}, 0)" for step in (9, 1)]
        change(
            copy,
            f"INSERT INTO metrics ({columns}) VALUES {', '.join(falling)}",
            f"INSERT INTO latest_metrics ({columns}) VALUES {falling[0]}",
            f"INSERT INTO metrics ({columns}) SELECT {row} FROM {many}",
            f"INSERT INTO latest_metrics ({columns}) SELECT {row} FROM {many} WHERE i = 299",
        )
    later = by_name(copy)
    assert len(runs) > 10
    for run in runs:
        assert str(later[run.name].last) == str(run.last | {"falling": 0.1, "many": 1.0})
        assert _back(later[run.name]) == _back(run) | {"falling": (1, 9)}


def test_values_of_one_step_and_time_are_in_the_order_in_which_they_were_logged(store: str) -> None:
    """But not by a server, which sorts them by value, as MLflow itself does."""
    runs, notes = read("mlflow", store, project="odd")  # type: ignore[arg-type]
    [tied] = [run for run in runs if run.name == "tied"]
    greatest = "the greatest of several values of the last step and millisecond counts, as a server sorts them: acc"
    if store.startswith("http"):
        assert (tied.last["acc"], notes) == (0.875, [greatest])
    else:
        assert (tied.last["acc"], notes) == (0.25, [])
    assert (tied.curves, tied.last_step) == ({}, None)  # it was logged without steps


def test_parameters_are_as_long_as_mlflow_has_left_them(store: str) -> None:
    assert by_name(store, "odd")["tied"].settings["long"] == "x" * 6000  # of 6,001


def test_nan_and_infinities_come_back(store: str) -> None:
    run = by_name(store, "odd")["numbers"]
    assert points(run, "all") == [(0, "nan"), (1, "inf"), (2, "-inf"), (3, "-1.0")]
    assert (run.last["inf"], run.last["-inf"]) == (math.inf, -math.inf)
    assert math.isnan(run.last["nan"])
    assert math.isnan(run.last["negative then nan"])  # which MLflow shows as -1, because it compares NaN as 0
    assert "nan" not in run.curves


def test_nested_runs_have_the_settings_of_the_run_around_them(store: str) -> None:
    runs, notes = read("mlflow", store, project="folds")  # type: ignore[arg-type]
    assert [(run.name, run.settings, run.last, run.last_step, run.data) for run in runs] == [
        ("fold-0", {"model": "big", "fold": 0}, {"acc": 0.5}, 3, "digits d1g1"),
        ("fold-1", {"model": "big", "fold": 1}, {"acc": 0.75}, 3, "digits d1g1"),
    ]
    assert notes == [
        "1 deleted run left out",
        "1 run left out with nested runs and without metrics",
        "2 nested runs with settings of the runs around them",
    ]


def test_states_are_those_that_mlflow_has_though_they_tell_little() -> None:
    runs = by_name(DATABASE)
    states = {name: (run.state, run.state_text) for name, run in runs.items() if run.project == "ends"}
    assert states == {
        "exception": ("finished", "FINISHED"),
        "exit": ("finished", "FINISHED"),
        "interrupted": ("finished", "FINISHED"),
        "terminated": ("running", "RUNNING"),
        "shot": ("running", "RUNNING"),
        "in-block": ("crashed", "FAILED"),
        "exit-in-block": ("crashed", "FAILED"),
        "interrupted-in-block": ("crashed", "FAILED"),
    }
    assert (runs["killed"].state, runs["killed"].state_text) == ("crashed", "KILLED")
    assert (runs["scheduled"].state, runs["scheduled"].last, runs["scheduled"].ended_at) == ("running", {}, None)
    assert {run.project for run in runs.values()} == {"norms", "odd", "folds", "ends"}  # without the deleted one


def test_both_passes_give_the_same_last_values_and_the_curves_that_are_asked_for() -> None:
    whole, _ = read("mlflow", DATABASE)
    light, _ = read("mlflow", DATABASE, ())
    some, _ = read("mlflow", DATABASE, ["acc", "no metric"])
    assert [(run.id, str(run.last), run.last_step) for run in whole] == [
        (run.id, str(run.last), run.last_step) for run in light
    ]
    assert [run.ends for run in whole] == [run.ends for run in light]
    for run in whole:
        of_curves = {name: (curve.steps[-1], curve.steps.max()) for name, curve in run.curves.items()}
        assert {name: (run.ends or {})[name] for name in run.curves} == of_curves
    assert not any(run.curves for run in light)
    assert {name for run in some for name in run.curves} == {"acc"}
    for run, other in zip(whole, some, strict=True):
        assert "acc" not in run.curves or points(run, "acc") == points(other, "acc")


def test_a_database_alone_has_the_ends_without_the_curves(store: str) -> None:
    assert MlflowReader(Source(name=store)).tells_ends == (store == str(DATABASE))


def test_older_indices_give_the_same(copy: Path) -> None:
    before = str(read("mlflow", copy)[0])
    change(copy, "DROP INDEX index_metrics_run_uuid_key_step", "DROP INDEX index_metrics_run_uuid")
    assert str(read("mlflow", copy)[0]) == before


def test_a_store_is_named_by_its_folder_or_by_an_address(copy: Path, server: str) -> None:
    count = len(read("mlflow", DATABASE)[0])
    for name in (copy.parent, f"sqlite:///{copy}"):
        assert MlflowReader.recognises(Source(name=str(name)))
        assert len(read("mlflow", name)[0]) == count  # type: ignore[arg-type]
    for name in (f"file:{FOLDER}", f"file://{FOLDER}", FOLDER.parent / "mlruns"):
        assert MlflowReader.recognises(Source(name=str(name)))
        assert len(by_name(name)) == 9
    number = by_name(server, "folds")["fold-0"].place.split("/")[-3]
    assert list(by_name(f"{server}/#/experiments/{number}/runs")) == ["fold-0", "fold-1"]
    assert MlflowReader.recognises(Source(name=server))
    assert not MlflowReader.recognises(Source(name=f"{server}/runs.csv"))
    assert MlflowReader(Source(name=server)).version().startswith("mlflow-skinny 3.")


def test_a_folder_for_artifacts_is_no_store(copy: Path) -> None:
    (copy.parent / "mlruns/1/0123/artifacts").mkdir(parents=True)
    assert not recognised("mlflow", copy.parent / "mlruns")
    assert read("mlflow", copy.parent)[0]
    shutil.copytree(FOLDER, copy.parent / "mlruns", dirs_exist_ok=True)
    error = error_of(copy.parent)
    assert error.message == f"{copy.parent}: has two stores, mlflow.db and mlruns"
    assert error.hint == f"name one: {copy} or {copy.parent / 'mlruns'}"


def test_nothing_is_written(copy: Path) -> None:
    for journal in ("DELETE", "WAL"):
        change(copy, f"PRAGMA journal_mode = {journal}")
        before = copy.read_bytes()
        assert read("mlflow", copy)[0]
        assert copy.read_bytes() == before
        assert list(copy.parent.iterdir()) == [copy]


def test_a_training_can_write_while_runs_are_read(copy: Path) -> None:
    """SQLite lets nobody write as long as a reader has not ended its statement."""
    runs = MlflowReader(Source(name=str(copy))).runs(None)
    next(runs)
    with contextlib.closing(sqlite3.connect(copy, timeout=0)) as training:
        training.execute(
            "INSERT INTO metrics SELECT 'new', value, timestamp, run_uuid, step, is_nan FROM metrics LIMIT 1"
        )
        training.commit()
    assert len(list(runs)) == len(read("mlflow", copy)[0]) - 1


def test_values_that_are_not_committed_yet_are_not_there(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE params SET value = 'new' WHERE key = 'norm'")
        writer.execute("BEGIN")
        writer.execute("UPDATE params SET value = 'newer' WHERE key = 'norm'")
        assert {run.settings["norm"] for run in by_name(copy, "norms").values()} == {"new"}


def test_a_locked_database_is_an_error(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "TIMEOUT", 0.01)
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        error = error_of(copy)
        assert "another process holds this database" in error.message
        assert recognised("mlflow", copy)


def test_other_versions(copy: Path) -> None:
    change(copy, "UPDATE alembic_version SET version_num = 'ffffffffffff'")
    runs, notes = read("mlflow", copy)
    assert len(runs) == len(read("mlflow", DATABASE)[0])
    assert any("is of a later version of MLflow (schema ffffffffffff) than 3.17" in note for note in notes)
    change(copy, "ALTER TABLE metrics RENAME COLUMN is_nan TO is_not_a_number")
    error = error_of(copy)
    assert error.message.endswith("is of a later version of MLflow (schema ffffffffffff), without metrics.is_nan")
    assert "install a later lrurun" in str(error.hint)
    change(copy, "UPDATE alembic_version SET version_num = '451aebb31d03'")
    error = error_of(copy)
    assert "is of an older version of MLflow (schema 451aebb31d03), without metrics.is_nan" in error.message
    assert "mlflow db upgrade" in str(error.hint)
    assert recognised("mlflow", copy)


def test_wrong_sources(copy: Path, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change(copy, "DELETE FROM runs WHERE lifecycle_stage = 'active'")
    error = error_of(copy, "folds")
    assert error.message == f"{copy}: there are no runs in folds; 1 deleted run is left out"
    change(copy, *(f"DELETE FROM {table}" for table in ("runs", "experiments")))
    assert "there are no runs in the store" in error_of(copy).message
    assert "there is no such f" in error_of(tmp_path / "none.db").message
    assert error_of(DATABASE, "nrms").hint == "did you mean 'norms'? experiments: Default, norms, odd, folds, ends"
    error = error_of("postgresql://user@host/mlflow")
    assert "mlflow server" in str(error.hint)
    assert isinstance(error, UsageError)
    (tmp_path / "text.db").write_text("text")
    assert "not a whole database of SQLite" in error_of(tmp_path / "text.db").message
    change(tmp_path / "other.db", "CREATE TABLE metrics (x)", "CREATE TABLE runs (x)")
    assert "is no store of MLflow" in error_of(tmp_path / "other.db").message
    assert not recognised("mlflow", tmp_path / "other.db")
    assert not recognised("mlflow", tmp_path / "text.db")
    assert "does not answer as a server of MLflow" in error_of(f"{server}/elsewhere").message
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert error_of(server).hint == "install it: pip install 'lrurun[mlflow]'"


def test_files_that_are_half_written_or_damaged(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(FOLDER, tmp_path / "mlruns"))
    [file] = [Path(run.place, "metrics/acc") for run in by_name(folder).values() if run.name == "resumed"]
    whole = file.read_text()
    file.write_text(f"{whole}17000")
    runs, notes = read("mlflow", folder)
    assert {run.name: run for run in runs}["resumed"].last["acc"] == 0.73
    assert notes[0] == f"{file}: the last line is half-written, and was left out: '17000'"
    file.write_text(f"x\n{whole}")
    assert error_of(folder).message == f"{file}: line 1: expected a time, a value and a step, found 'x'"
    file.write_text(whole)
    meta = file.parents[1] / "meta.yaml"
    meta.write_text("{")
    assert error_of(folder).message == f"{meta}: is no table of MLflow"

    def refuse(path: Path, *_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        assert error_of(folder).message.endswith("meta.yaml: cannot be read: Permission denied")


def test_the_names_of_readers() -> None:
    assert trackers.reader("mlflow") is MlflowReader
    assert (MlflowReader.name, MlflowReader.title) == ("mlflow", "MLflow")


def test_a_server_that_does_not_answer() -> None:
    """It is named at once, before MLflow's client repeats its question."""
    pytest.importorskip("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"  # bound, and not listening
        with pytest.raises(LrurunError) as caught:
            list(MlflowReader(Source(name=address)).runs())
    assert caught.value.message == f"{address}: does not answer as a server of MLflow: Connection refused"
