"""Exports, parsed back, are what `runs`, `show` and `report` print as JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once
from tests.harness.stores import key, ledger, path, take, want

__all__ = ["key", "ledger", "path"]  # fixtures

Points = dict[str, list[tuple[int, float]]]


@pytest.fixture(scope="session")
def filled() -> Machine:
    """A ledger of six runs of two rungs, and three that count in no report; tests only read it."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        scores = {"tanh-rnn": [0.1, 0.2, 0.7], "gamma-norm": [0.3, 1 / 3, 0.9]}
        fill(machine.ledger, "sDigits", scores, profile="smoke", more={"best_step": 20})
        with Ledger.open(machine.ledger) as ledger:
            key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
            odd_ledger(ledger, key)
            ledger.enqueue(key, [want(seed=1)])

    return Machine(once("exported", make))


def curves_of(machine: Machine, run: str) -> Points:
    """Those that the command prints."""
    shown = machine.json("show", run)["metrics"]
    return {name: [(step, value) for step, value in curve] for name, curve in shown.items()}


def in_order(points: Iterable[tuple[str, int, float]]) -> Points:
    found: Points = {}
    for name, step, value in points:
        found.setdefault(name, []).append((step, value))
    return found


def scalars(file: Path) -> Points:
    """The scalars of an event file, as TensorBoard's reader has them: tag -> (step, value)."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    return in_order(
        (value.tag, event.step, make_ndarray(value.tensor).item())
        for event in EventFileLoader(str(file)).Load()
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "scalars"
    )


def single(value: float) -> float:
    """A number of 32 bits, as TensorBoard has it."""
    return float(np.float32(value))


def lines(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(file.read_text())))


def assert_equal(found: Any, expected: Any) -> None:
    """Equal bit for bit, NaN too."""
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_tables_are_what_the_commands_print(format: str, filled: Machine, tmp_path: Path) -> None:
    from pyarrow import parquet

    target = tmp_path / "out"
    done = filled.run("ledger", "export", "--to", format, str(target), "--where", "profile=smoke and seed<2")
    runs = filled.json("runs", "--where", "profile=smoke and seed<2")["runs"]
    assert done.stderr == f"wrote {target}: {len(runs)} runs\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out"], "nothing else is left"
    if format == "parquet":
        table, rows = (parquet.read_table(target / f"{name}.parquet").to_pylist() for name in ("runs", "metrics"))
        assert {f"{row['finished_at']:%Y-%m-%dT%H:%M:%SZ}" for row in table} == {one["finished_at"] for one in runs}
    else:
        table, rows = (lines(target / f"{name}.csv") for name in ("runs", "metrics"))
        assert {row["finished_at"] for row in table} == {one["finished_at"] for one in runs}
    assert [row["id"] for row in table] == [one["id"] for one in runs]
    assert len(runs) == 4
    for row, one in zip(table, runs, strict=True):
        assert_equal([float(row[name]) for name in one["metrics"]], [float(value) for value in one["metrics"].values()])
        assert [str(row[name]) for name in ("rung", "task", "state", "seed")] == [
            str(one[name]) for name in ("rung", "task", "state", "seed")
        ]
        mine = ((r["key"], int(r["step"]), float(r["value"])) for r in rows if r["run"] == one["id"])
        assert_equal(in_order(mine), curves_of(filled, one["id"]))
    config = filled.json("show", runs[0]["id"])["config"]
    assert float(table[0]["optim.lr"]) == config["optim"]["lr"]
    # The means of the report are those of the exported runs.
    filled.run("ledger", "export", "--to", "parquet", str(tmp_path / "all"), "--where", "profile=smoke")
    scores = {row["id"]: row["test/accuracy"] for row in parquet.read_table(tmp_path / "all/runs.parquet").to_pylist()}
    trained = [rung for rung in filled.json("report", "sDigits", "--profile", "smoke")["rows"] if rung["n"]]
    assert len(trained) == 2
    for rung in trained:
        assert sum(scores[run] for run in rung["runs"]) / rung["n"] == pytest.approx(rung["mean"], rel=1e-15)


def odd_ledger(ledger: Ledger, key: str) -> str:
    """A diverged run with numbers that are not finite, and with texts that are not harmless."""
    [run] = ledger.enqueue(key, [want(rung="../../<b>=1")])
    held = take(ledger, key)
    ledger.rewind(held, 0)
    values = (math.nan, math.inf, -math.inf, 5e-324, 0.1)
    ledger.record(held, [(step, "train/loss", value) for step, value in enumerate(values, 1)], 5)
    ledger.record(held, [(2, "=x(1)", 2.0)], 5)
    ledger.finish(held, "diverged", result={"test/loss": math.nan, "val/loss": math.inf}, error="=1+1\x1b[31m")
    ledger.mark([run.id], tag=["a;b", "c"])
    return run.id


def test_odd_numbers_and_texts_come_back(ledger: Ledger, key: str, tmp_path: Path) -> None:
    from pyarrow import parquet

    run = odd_ledger(ledger, key)
    [curve] = ledger.curves([run], ["train/loss"])
    machine = Machine(tmp_path / "here")
    machine.use(ledger.path)
    for format in ("parquet", "csv", "tensorboard"):
        machine.run("ledger", "export", "--to", format, format)
    folder = machine.folder
    expected = list(zip(curve.steps, curve.values, strict=True))
    rows = parquet.read_table(folder / "parquet/metrics.parquet").to_pylist()
    assert_equal([(row["step"], row["value"]) for row in rows if row["key"] == "train/loss"], expected)
    [row] = parquet.read_table(folder / "parquet/runs.parquet").to_pylist()
    assert math.isnan(row["test/loss"])
    assert (row["val/loss"], row["tags"], row["error"]) == (math.inf, ["a;b", "c"], "=1+1\x1b[31m")
    rows = lines(folder / "csv/metrics.csv")
    assert_equal([(int(r["step"]), float(r["value"])) for r in rows if r["key"] == "train/loss"], expected)
    [line] = lines(folder / "csv/runs.csv")
    assert (line["error"], line["tags"], line["val/loss"]) == ("'=1+1", "a;b; c", "inf"), "no formula, no control codes"
    assert {row["key"] for row in rows} == {"train/loss", "'=x(1)"}
    [file] = (folder / "tensorboard").rglob("events.*")
    assert file.parent.relative_to(folder / "tensorboard") == Path("lru/sDigits/_..__b_=1", f"seed-0-{run}")
    points = scalars(file)
    assert_equal(points["train/loss"], [(step, single(value)) for step, value in expected])
    assert math.isnan(points["result/test/loss"][0][1])
    assert points["result/val/loss"] == [(5, math.inf)]


def test_formats_have_one_meaning_by_whichever_option_they_are_named(filled: Machine, tmp_path: Path) -> None:
    def exported(*words: str) -> dict[str, bytes]:
        out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
        filled.run("ledger", "export", *words, str(out))
        return {file.name: file.read_bytes() for file in ([out] if out.is_file() else out.iterdir())}

    runs = exported("--to", "parquet", "--where", "seed=0")
    assert sorted(runs) == ["metrics.parquet", "runs.parquet"]
    assert exported("--format", "parquet", "--where", "seed=0") == runs
    assert exported("--where", "seed=0", "--to", "parquet", "--out") == runs
    whole = exported("--format", "csv", "--out")
    assert "ladder_runs.csv" in whole
    assert exported("--format", "csv") == whole
    assert exported("--to", "csv").keys() == {"metrics.csv", "runs.csv"}
    lines = filled.run("ledger", "export", "--format", "json").stdout
    assert lines == filled.run("ledger", "export").stdout
    assert json.loads(lines.splitlines()[0])["table"]


def test_wrong_requests_write_nothing(filled: Machine, tmp_path: Path) -> None:
    machine = filled.copy(tmp_path / "copy")
    there = machine.folder / "there"
    there.mkdir()
    (there / "file").write_text("mine")
    cases = [
        (["--to", "csv"], 2, "--to csv: writes a folder, and needs its name"),
        (["--format", "mlflow"], 2, "--format mlflow: writes a folder, and needs its name"),
        (["out"], 2, "DEST: belongs to --to"),
        (["--where", "rung=none"], 4, "--where: none of "),
        (["--instance", "none"], 4, "no ladder instance 'none' in this ledger"),
        (["--to", "csv", "out", "--out", "x"], 2, "DEST and --out exclude each other"),
        (["--to", "csv", "out", "--format", "csv"], 2, "--to and --format exclude each other"),
        (["--to", "excel", "out"], 2, "'excel'"),
        (["--to", "csv", "out", "--where", "seed=="], 2, "--where, column 7: expected a value"),
        (["--to", "parquet", "out", "--where", "rung=none"], 4, "--where: none of "),
        (["--to", "tensorboard", "out", "--where", "id=none"], 4, "--where: none of "),
        (["--to", "csv", "there"], 1, "there: exists already, and is not overwritten"),
        (["--to", "mlflow", "no/where"], 1, "no/where: the folder "),
        (["--to", "mlflow", "a?b"], 1, "a?b: MLflow cannot open a path with ?"),
        (["--to", "tensorboard", "ledger.db/x"], 1, "ledger.db/x: the folder "),
    ]
    before = sorted(machine.folder.iterdir())
    for arguments, code, message in cases:
        error = machine.run("ledger", "export", *arguments, code=code).stderr
        assert message in error, error
        assert "hint: " in error or "expected one of" in error
    assert sorted(machine.folder.iterdir()) == before
    assert [file.name for file in there.iterdir()] == ["file"]
    empty = Machine(tmp_path / "empty")
    assert "there is no ledger" in empty.run("ledger", "export", "--to", "csv", "out", code=4).stderr
    assert not list(empty.folder.iterdir())


def test_a_missing_library_or_a_full_disk_leaves_nothing(
    filled: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lrurun.report import exports

    for format, module in (("parquet", "pyarrow"), ("tensorboard", "tensorboardX"), ("mlflow", "mlflow")):
        with monkeypatch.context() as patch:
            for name in [name for name in sys.modules if name.partition(".")[0] == module]:
                patch.delitem(sys.modules, name)
            patch.setitem(sys.modules, module, None)
            error = filled.run("ledger", "export", "--to", format, str(tmp_path / "out"), code=1).stderr
        assert re.search(
            rf"error: {module}\S* is not installed\nhint: install it: pip install 'lrurun\[{format}\]'", error
        )

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exports, "_write_lines", full)
    error = filled.run("ledger", "export", "--to", "csv", str(tmp_path / "out"), code=1).stderr
    assert f"error: {tmp_path / 'out'}: No space left on device\n" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_tensorboard_and_mlflow_have_what_the_commands_print(filled: Machine, tmp_path: Path) -> None:
    """TensorBoard's own reader, and the database of MLflow as plain SQL shows it."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    runs = filled.json("runs", "--where", "profile=smoke and state=done and seed=0")["runs"]
    assert len(runs) == 2
    departures = [
        "warning: renamed for MLflow (the tag lrurun.renamed of a run has all): =x(1) to _x_1_",
        "warning: infinite, in place of which MLflow has 1.8e308: result/val/loss; train/loss",
    ]
    smoke = ("--where", "profile=smoke")
    for format, count, more, expected in (("tensorboard", 6, smoke, []), ("mlflow", 8, (), departures)):
        done = filled.run("ledger", "export", "--to", format, str(tmp_path / format), *more, apart=True)
        *before, last = done.stderr.splitlines()
        assert before == expected
        assert last.startswith(f"wrote {tmp_path / format}: {count} runs; view it with: {format} ")
    database = sqlite3.connect(tmp_path / "mlflow/mlflow.db")
    found = dict(database.execute("SELECT value, count(*) FROM tags WHERE key = 'lrurun.id' GROUP BY value"))
    assert found == {run["id"]: 1 for run in filled.json("runs")["runs"]}
    for run in runs:
        shown = filled.json("show", run["id"])
        expected = curves_of(filled, run["id"])
        results = {f"result/{name}": float(value) for name, value in run["metrics"].items()}
        [file] = (tmp_path / "tensorboard").rglob(f"*{run['id']}/events.*")
        settings = {}
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "hparams":
                    data = HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info.hparams
                    settings |= {k: v.WhichOneof("kind") and getattr(v, v.WhichOneof("kind")) for k, v in data.items()}
        points = scalars(file)
        rounded = {tag: [(step, single(value)) for step, value in curve] for tag, curve in expected.items()}
        assert_equal({tag: points[tag] for tag in points if not tag.startswith("result/")}, rounded)
        assert_equal({tag: points[tag][0][1] for tag in results}, {tag: single(x) for tag, x in results.items()})
        assert settings["optim.lr"] == shown["config"]["optim"]["lr"]
        assert settings["model.recurrence.kind"] == shown["config"]["model"]["recurrence"]["kind"]

        [[at]] = database.execute("SELECT run_uuid FROM tags WHERE key = 'lrurun.id' AND value = ?", (run["id"],))
        rows = database.execute("SELECT key, step, value FROM metrics WHERE run_uuid = ? ORDER BY key, step", (at,))
        logged = in_order(rows)
        assert_equal({tag: logged[tag] for tag in logged if not tag.startswith("result/")}, expected)
        assert_equal({tag: logged[tag][0][1] for tag in results}, results)
        parameters = dict(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (at,)))
        assert float(parameters["optim.lr"]) == shown["config"]["optim"]["lr"]
        assert parameters["seed"] == str(run["seed"])
        [[name, status]] = database.execute(
            "SELECT e.name, r.status FROM runs r JOIN experiments e USING (experiment_id) WHERE run_uuid = ?", (at,)
        )
        assert (name, status) == ("lru on sDigits, profile smoke", "FINISHED")
    assert_numbers_that_mlflow_has_no_place_for(filled, database)
    database.close()


def assert_numbers_that_mlflow_has_no_place_for(filled: Machine, database: sqlite3.Connection) -> None:
    [[odd]] = database.execute("SELECT run_uuid FROM tags WHERE key = 'lrurun.error' AND value = '=1+1'")
    rows = database.execute(
        "SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY key, step", (odd,)
    ).fetchall()
    largest = 1.7976931348623157e308
    losses = [(step, math.nan if is_nan else value) for name, step, value, is_nan in rows if name == "train/loss"]
    assert_equal(losses, [(1, math.nan), (2, largest), (3, -largest), (4, 5e-324), (5, 0.1)])
    assert {name for name, *_ in rows} == {"train/loss", "_x_1_", "result/test/loss", "result/val/loss"}
    tags = dict(database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", (odd,)))
    assert tags["lrurun.tags"] == "a;b, c"
    with Ledger.open(filled.ledger) as ledger:
        one, [queued] = ledger.run(tags["lrurun.id"]), ledger.runs(states=["queued"])
    assert one.finished_at is not None
    statuses = "SELECT r.status, start_time, end_time FROM runs r JOIN experiments e USING (experiment_id)"
    statuses += " WHERE e.name = ?"
    assert sorted(database.execute(statuses, ("lru on sDigits",))) == [
        ("FAILED", int(one.created_at * 1000), int(one.finished_at * 1000)),
        ("SCHEDULED", int(queued.created_at * 1000), None),
    ]
