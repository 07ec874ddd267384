"""Exports keep names apart, hold long texts and numbers that are not finite, and say what the files cannot hold."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.recorded_programs import add_ladder, record
from tests.harness.shared import once
from tests.harness.stores import SERVER, machine_with

NAMES = (
    *("val/AR@100", "val/AR_100", "val/ar_100", "val//x", "val/_/x", "a/./b", "a/../c", "a/__/c", "tail/", "..up"),
    *("/top", ".", "x" * 300, "x" * 299 + "é", "é", "ü", "a:b c", "=x(1)", "'=x(1)", "result/val/accuracy"),
    *("lrurun/state", "lrurun/configuration", "result/test/AR@1", "_hparams_/session_start_info", "plain"),
)
"""Names of curves, most of which no program may log now, but old ledgers may have."""
CURVES = {
    name: [(1, k + 0.5), (2, math.nan), (3, -math.inf), (4, math.inf), (5, -k - 1.0)] for k, name in enumerate(NAMES)
}
RESULT = {
    "val/accuracy": 0.25,
    "test/accuracy": 0.5,
    "test/AR@1": 1.0,
    "test/AR_1": 2.0,
    "test/score": 1e39,
    "test/low": -1e300,
}
LONG = "".join(f"{k}é" for k in range(2000))
SETTINGS = {"text": LONG, "layers": [64, 64], "large": 2**70 + 1, "sizes": list(range(2500)), "empty": "", "none": []}
FILES = {
    name: f"sha256:{digit * 64}" for name, digit in (("ä.py", "1"), ("ö.py", "2"), ("_.py", "3"), ("dir/x.py", "4"))
}


@pytest.fixture(scope="session")
def odd() -> Machine:
    """A ledger of two runs: one with all of this, which failed with a long message, and an ordinary one."""

    def make(folder: Path) -> None:
        with Ledger.open(Machine(folder).ledger) as ledger:
            key = add_ladder(ledger)
            record(ledger, key, SETTINGS, curves=CURVES, result=RESULT, files=FILES, error="no " * 5000)
            record(ledger, key, {"layers": [1]}, seed=1, curves={"val/AR_100": [(1, 7.0)]})

    return Machine(once("odd-names", make))


def export(machine: Machine, format: str, target: Path, *, apart: bool = True) -> list[str]:
    """Exports all runs, and returns what the command says before its last line."""
    *sentences, last = machine.run("ledger", "export", "--to", format, str(target), apart=apart).stderr.splitlines()
    assert last.startswith(f"wrote {target}: 2 runs")
    return sentences


def query(machine: Machine, column: str) -> Any:
    """What the ledger has of the first run."""
    [[value]] = machine.json("query", f"select {column} from runs where seed = 0")["rows"]
    return value


def assert_equal(found: Iterable[tuple[int, float]], expected: Iterable[tuple[int, float]]) -> None:
    """Equal bit for bit, NaN too."""
    assert json.dumps(list(found)) == json.dumps(list(expected))


def test_tables_have_every_name(odd: Machine, tmp_path: Path) -> None:
    from pyarrow import parquet

    assert export(odd, "parquet", tmp_path / "parquet", apart=False) == []
    table = parquet.read_table(tmp_path / "parquet/metrics.parquet").to_pylist()
    runs = parquet.read_table(tmp_path / "parquet/runs.parquet").to_pylist()
    first = query(odd, "id")
    for name in NAMES:
        assert_equal([(r["step"], r["value"]) for r in table if (r["run"], r["key"]) == (first, name)], CURVES[name])
    [row] = [row for row in runs if row["id"] == first]
    assert {name: row[name] for name in RESULT} == RESULT
    assert (row["settings.text"], row["settings.layers"], row["settings.none"]) == (LONG, "[64, 64]", "[]")
    assert {row[f"program.files.{name}"] for name in FILES} == set(FILES.values())

    assert export(odd, "csv", tmp_path / "csv", apart=False) == ["warning: renamed for CSV: =x(1) to '=x(1)_2"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "csv/metrics.csv").read_text())))
    for name in NAMES:
        key = "'=x(1)_2" if name == "=x(1)" else name
        found = [(int(r["step"]), float(r["value"])) for r in lines if (r["run"], r["key"]) == (first, key)]
        assert_equal(found, [(step, float(value)) for step, value in CURVES[name]])


@pytest.mark.slow
def test_tensorboard_has_every_name_and_says_what_32_bits_cannot_hold(odd: Machine, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    assert export(odd, "tensorboard", tmp_path / "board") == [
        "warning: renamed for TensorBoard (the text lrurun/renamed of a run has all): lrurun/configuration to"
        " lrurun/configuration_2; lrurun/state to lrurun/state_2; result/test/AR@1 to result/test/AR@1_2;"
        " result/val/accuracy to result/val/accuracy_2",
        "warning: infinite in TensorBoard, whose numbers have 32 bits: result/test/low; result/test/score",
    ], "and no line of the library"
    folders = {file.parent for file in (tmp_path / "board").rglob("events.*")}
    assert len(folders) == 2, "one writer and one folder a run"
    [folder] = [folder for folder in folders if folder.name.startswith("seed-0-")]
    [file] = folder.iterdir()
    assert file.name.endswith(f".{folder.name.rpartition('-')[2]}"), "not by the second in which it was written"
    shown = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    shown.Reload()
    curves = {name: f"{name}_2" if name.startswith("lrurun/") else name for name in NAMES}
    results = {name: f"result/{name}" + "_2" * (name in ("val/accuracy", "test/AR@1")) for name in RESULT}
    assert set(shown.Tags()["scalars"]) == {*curves.values(), *results.values()}
    for name, tag in curves.items():
        single = [(step, float(np.float32(value))) for step, value in CURVES[name]]
        assert_equal([(event.step, event.value) for event in shown.Scalars(tag)], single)
    infinite = {"test/score": math.inf, "test/low": -math.inf}
    for name, tag in results.items():
        assert [event.value for event in shown.Scalars(tag)] == [infinite.get(name, RESULT[name])]
    text = shown.Tensors("lrurun/renamed/text_summary")[0].tensor_proto.string_val[0].decode()
    assert json.loads(text) == {tag: name for name, tag in curves.items() if tag != name} | {
        tag: f"result/{name}" for name, tag in results.items() if tag.endswith("_2")
    }
    content = shown.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    start = HParamsPluginData.FromString(content).session_start_info.hparams
    assert start["settings.text"].string_value == LONG
    assert start["settings.large"].string_value == str(2**70 + 1)
    assert start["settings.layers"].string_value == "[64, 64]"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, in MLflow
def test_mlflow_has_every_name_and_every_text(odd: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient

    target = tmp_path / "a b"
    names, cut, infinite = export(odd, "mlflow", target)
    assert names == (
        "warning: renamed for MLflow (the tag lrurun.renamed of a run has all): . to _; /top to _/top; é to __2; ü to"
        " __3; ..up to __up; and 15 more"
    )
    assert cut == (
        "warning: too long for MLflow's database, and whole in the artifact long_values.json of the run:"
        " lrurun.error (1 run); settings.sizes (1 run); settings.text (1 run)"
    )
    assert infinite.startswith("warning: infinite, in place of which MLflow has 1.8e308: ")
    client = MlflowClient(tracking_uri=f"sqlite:///{target / 'mlflow.db'}")
    [experiment] = client.search_experiments(filter_string="name = 'own on toy'")
    runs = {run.data.params["seed"]: run for run in client.search_runs([experiment.experiment_id])}
    run = runs["0"]
    renamed = json.loads(run.data.tags["lrurun.renamed"])
    before = {name: renamed.get(name, name) for name in run.data.metrics}
    assert sorted(before.values()) == sorted([*NAMES, *(f"result/{name}" for name in RESULT)])
    largest = 1.7976931348623157e308
    curves, results = [], {}
    for name, original in before.items():
        points = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
        if len(points) > 1:
            curves.append(original)
            kept = [(step, math.copysign(largest, x) if math.isinf(x) else float(x)) for step, x in CURVES[original]]
            assert_equal(sorted(points), kept)
        else:
            results[original.removeprefix("result/")] = points[0][1]
    assert sorted(curves) == sorted(NAMES)
    assert results == RESULT
    assert before["val/AR_100"] == "val/AR_100", "a name that MLflow takes is not given to another metric"
    assert renamed["val/AR_100_2"] == "val/AR@100"
    other = runs["1"].data
    assert other.metrics["val/AR_100"] == 7.0
    assert json.loads(other.tags["lrurun.renamed"]) == {"result/val/accuracy_2": "result/val/accuracy"}

    files = {path: run.data.params[path] for path in run.data.params if path.startswith("program.files.")}
    assert {renamed.get(path, path).removeprefix("program.files."): value for path, value in files.items()} == FILES
    texts = json.loads(Path(client.download_artifacts(run.info.run_id, "long_values.json")).read_text("utf-8"))
    assert texts["settings"] == {"settings.text": LONG, "settings.sizes": json.dumps(SETTINGS["sizes"])}
    assert texts["tags"]["lrurun.error"] == query(odd, "error")
    for shown in (run.data.params["settings.text"], run.data.tags["lrurun.error"]):
        assert shown.endswith(" characters, whole in the artifact long_values.json)")
    assert run.data.params["settings.text"].startswith(LONG[:5000])
    assert (run.data.params["settings.large"], run.data.params["settings.empty"]) == (str(2**70 + 1), "")
    assert client.list_artifacts(runs["1"].info.run_id) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, in MLflow
def test_what_mlflow_refuses_is_named_and_the_rest_is_exported(
    odd: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rules on Windows permit no colon."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.tracking import MlflowClient
    from mlflow.utils import validation

    monkeypatch.setattr(validation, "is_windows", lambda: True)
    said = odd.run("ledger", "export", "--to", "mlflow", str(tmp_path / "out")).stderr.splitlines()
    [refused] = [line for line in said if "MLflow refuses" in line]
    assert refused.startswith("warning: not exported, because MLflow refuses it: a:b c: Invalid value")
    assert said[-1].startswith(f"wrote {tmp_path / 'out'}: 2 runs")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'out/mlflow.db'}")
    [experiment] = client.search_experiments(filter_string="name = 'own on toy'")
    counts = [len(run.data.metrics) for run in client.search_runs([experiment.experiment_id])]
    assert sorted(counts) == [3, len(NAMES) - 1 + len(RESULT)]


@pytest.mark.slow
def test_a_killed_export_is_repeated_and_a_second_one_is_refused(odd: Machine, tmp_path: Path) -> None:
    machine = odd.copy(tmp_path / "copy")
    for format in ("tensorboard", "mlflow"):
        target = machine.folder / format
        process = machine.start("ledger", "export", "--to", format, str(target))
        while process.poll() is None and not list(machine.folder.glob(f".{format}.*")):
            time.sleep(0.001)
        process.kill()
        process.communicate()
        assert not target.exists()
        export(machine, format, target)
        before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
        error = machine.run("ledger", "export", "--to", format, str(target), code=1).stderr
        assert error.startswith(f"error: {target}: exists already, and is not overwritten\n")
        assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


@pytest.mark.slow
def test_of_two_exports_at_once_one_has_the_folder(odd: Machine, tmp_path: Path) -> None:
    machine = odd.copy(tmp_path / "copy")
    processes = [machine.start("ledger", "export", "--to", "tensorboard", "out") for _ in range(2)]
    said = sorted(process.communicate()[1].splitlines()[-2:] for process in processes)
    assert [process.returncode for process in processes] in ([0, 1], [1, 0])
    assert said[0] == ["error: out: exists already, and is not overwritten", "hint: name a new folder"]
    assert len(list(tmp_path.glob("copy/out/own/toy/first/*/events.*"))) == 2
    assert not list(machine.folder.glob(".out.*"))


@pytest.mark.slow
def test_a_database_that_cannot_be_made_whole_leaves_nothing(odd: Machine, tmp_path: Path) -> None:
    """A limit on the size of files, as of a full disk."""
    machine = odd.copy(tmp_path / "copy")
    full = ("bash", "-c", 'ulimit -f 200; exec "$0" "$@"')
    done = machine.run("ledger", "export", "--to", "mlflow", "out", code=1, prefix=full)
    assert re.match(r"error: \S*/out: MLflow: disk I/O error\nhint: make room", done.stderr), done.stderr
    assert not list(machine.folder.glob("*out*")) + list(machine.folder.glob(".*out*"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "server"])
def test_views_have_more_columns_than_a_statement_may_have(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for machine in machine_with(kind, tmp_path, request):
        with Ledger.open(machine.ledger) as ledger:
            result = {f"test/m{k}": float(k) for k in range(2100)}
            record(ledger, add_ladder(ledger), {"x": 1}, result=result)
        sql = 'select id, TEST_M7 * test_m2099 as p, "test_m1", count(*) over () as n from results where test_m5 = 5'
        [[_, *row]] = machine.json("query", sql)["rows"]
        assert row == [7.0 * 2099.0, 1.0, 1]
        assert machine.json("query", "select count(*) from results")["rows"] == [[1]]
        error = machine.run("query", "select * from results", code=2).stderr
        assert re.fullmatch(r"error: SQL: results has 2,\d+ columns, too many for \*\nhint: name those .*\n", error)
        wrong = machine.run("query", "select test_m2100 from results", code=2).stderr
        assert "hint: did you mean 'test_m" in wrong


@pytest.mark.parametrize("kind", ["file", SERVER])
def test_views_keep_long_names_apart(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """PostgreSQL looks at the first 63 characters of a name."""
    long = "test/" + "a" * 80
    for machine in machine_with(kind, tmp_path, request):
        with Ledger.open(machine.ledger) as ledger:
            result = {f"{long}{k}": float(k) for k in range(3)} | {"test/AR@1": 3.0, "test/AR_1": 4.0, "val//x": 5.0}
            record(ledger, add_ladder(ledger), {"x": 1}, result=result)
        described = machine.json("query", "--views")["views"]
        columns = {c["about"]: c["name"] for view in described if view["name"] == "results" for c in view["columns"]}
        assert len({columns[name][:63] for name in result} if kind == "server" else set(columns.values())) >= len(
            result
        )
        sql = "select " + ", ".join(columns[name] for name in result) + " from results"
        assert machine.json("query", sql)["rows"] == [list(result.values())]
