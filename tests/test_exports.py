"""Exports, parsed back, are what `runs`, `show` and `report` print as JSON; a mirror is what is committed."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrurun.ledger.store import Ledger
from tests.machine import LONG, Machine
from tests.stores import key, ledger, path, take, want

__all__ = ["key", "ledger", "path"]  # fixtures

Points = dict[str, list[tuple[int, float]]]


def curves_of(machine: Machine, run: str) -> Points:
    """Those that the command prints."""
    shown = machine.json("show", run)["metrics"]
    return {name: [(step, value) for step, value in curve] for name, curve in shown.items()}


def in_order(points: Iterator[tuple[str, int, float]]) -> Points:
    found: Points = {}
    for name, step, value in points:
        found.setdefault(name, []).append((step, value))
    return found


def events(file: Path) -> Iterator[Any]:
    """The complete events of a file, read by the definition of TFRecord."""
    from tensorboardX.proto.event_pb2 import Event

    data, at = file.read_bytes(), 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length <= len(data):
            yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length


def scalars(file: Path) -> Points:
    """The scalars of an event file: tag -> (step, value)."""
    return in_order(
        (value.tag, event.step, value.tensor.double_val[0])
        for event in events(file)
        for value in event.summary.value
        if len(value.tensor.double_val)
    )


def mirrored(folder: Path) -> dict[str, Points]:
    """Run -> the curves in a folder for TensorBoard, without results."""
    found = {}
    for file in folder.rglob("events.*"):
        points = scalars(file)
        found[file.parent.name[-12:]] = {tag: curve for tag, curve in points.items() if not tag.startswith("result/")}
    return found


def lines(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(file.read_text())))


def assert_equal(found: Any, expected: Any) -> None:
    """Equal bit for bit, NaN too."""
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_tables_are_what_the_commands_print(format: str, finished: Machine, tmp_path: Path) -> None:
    from pyarrow import parquet

    target = tmp_path / "out"
    done = finished.run("ledger", "export", "--to", format, str(target), "--where", "stage=train and seed<2")
    runs = finished.json("runs", "--where", "stage=train and seed<2")["runs"]
    assert done.stderr == f"wrote {target}: {len(runs)} runs\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out"], "nothing else is left"
    if format == "parquet":
        table, rows = (parquet.read_table(target / f"{name}.parquet").to_pylist() for name in ("runs", "metrics"))
        assert {f"{row['finished_at']:%Y-%m-%dT%H:%M:%SZ}" for row in table} == {one["finished_at"] for one in runs}
    else:
        table, rows = (lines(target / f"{name}.csv") for name in ("runs", "metrics"))
        assert {row["finished_at"] for row in table} == {one["finished_at"] for one in runs}
    assert [row["id"] for row in table] == [one["id"] for one in runs]
    for row, one in zip(table, runs, strict=True):
        assert_equal([float(row[name]) for name in one["metrics"]], [float(value) for value in one["metrics"].values()])
        assert [str(row[name]) for name in ("rung", "task", "state", "seed")] == [
            str(one[name]) for name in ("rung", "task", "state", "seed")
        ]
        mine = ((r["key"], int(r["step"]), float(r["value"])) for r in rows if r["run"] == one["id"])
        assert_equal(in_order(mine), curves_of(finished, one["id"]))
    config = finished.json("show", runs[0]["id"])["config"]
    assert float(table[0]["optim.lr"]) == config["optim"]["lr"]
    # The means of the report are those of the exported runs.
    finished.run("ledger", "export", "--to", "parquet", str(tmp_path / "all"))
    scores = {row["id"]: row["test/accuracy"] for row in parquet.read_table(tmp_path / "all/runs.parquet").to_pylist()}
    for rung in finished.json("report", "sDigits", "--profile", "smoke")["rows"]:
        assert sum(scores[run] for run in rung["runs"]) / rung["n"] == pytest.approx(rung["mean"], rel=1e-15)


def odd_ledger(ledger: Ledger, key: str) -> str:
    """A diverged run with numbers that are not finite, and with texts that are not harmless."""
    [run] = ledger.enqueue(key, [want(rung="../../<b>=1")])
    claim = take(ledger, key)
    ledger.rewind(claim, 0)
    values = (math.nan, math.inf, -math.inf, 5e-324, 0.1)
    ledger.record(claim, [(step, "train/loss", value) for step, value in enumerate(values, 1)], 5)
    ledger.record(claim, [(2, "=x(1)", 2.0)], 5)
    ledger.finish(claim, "diverged", result={"test/loss": math.nan, "val/loss": math.inf}, error="=1+1\x1b[31m")
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
    assert_equal(points["train/loss"], expected)
    assert math.isnan(points["result/test/loss"][0][1])
    assert points["result/val/loss"] == [(5, math.inf)]


def test_wrong_requests_write_nothing(finished: Machine, tmp_path: Path) -> None:
    machine = finished.copy(tmp_path / "copy")
    there = machine.folder / "there"
    there.mkdir()
    (there / "file").write_text("mine")
    cases = [
        (["--to", "csv"], 2, "--to csv: writes a folder, and needs its name"),
        (["out"], 2, "DEST: belongs to --to"),
        (["--where", "seed=0"], 2, "--where: belongs to --to"),
        (["--follow"], 2, "--follow: belongs to --to"),
        (["--to", "csv", "out", "--follow"], 2, "--follow: belongs to --to tensorboard, found --to csv"),
        (["--to", "csv", "out", "--out", "x"], 2, "--to and --out exclude each other"),
        (["--to", "csv", "out", "--format", "csv"], 2, "--to and --format exclude each other"),
        (["--to", "excel", "out"], 2, "'excel'"),
        (["--to", "csv", "out", "--where", "seed=="], 2, "--where, column 7: expected a value"),
        (["--to", "parquet", "out", "--where", "rung=none"], 4, "--where: none of "),
        (["--to", "tensorboard", "out", "--where", "id=none"], 4, "--where: none of "),
        (["--to", "csv", "there"], 1, "there: exists already, and is not overwritten"),
        (["--to", "tensorboard", "there", "--follow"], 1, "there: exists already, and is no mirror of a ledger"),
        (["--to", "mlflow", "no/where"], 1, "no/where: the folder "),
        (["--to", "mlflow", "a?b"], 1, "a?b: MLflow cannot open a path with ?"),
        (["--to", "tensorboard", "ledger.db/x"], 1, "ledger.db/x: the folder "),
        (["--to", "tensorboard", "ledger.db", "--follow"], 1, "ledger.db: exists already"),
    ]
    before = sorted(machine.folder.iterdir())
    for arguments, code, message in cases:
        error = machine.run("ledger", "export", *arguments, code=code).stderr
        assert message in error, error
        assert "hint: " in error
    assert sorted(machine.folder.iterdir()) == before
    assert [file.name for file in there.iterdir()] == ["file"]
    empty = Machine(tmp_path / "empty")
    assert "there is no ledger" in empty.run("ledger", "export", "--to", "csv", "out", code=4).stderr
    assert not list(empty.folder.iterdir())


def test_a_missing_library_or_a_full_disk_leaves_nothing(
    finished: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lrurun.report.exports import tables

    for format, module in (("parquet", "pyarrow"), ("tensorboard", "tensorboardX"), ("mlflow", "mlflow")):
        with monkeypatch.context() as patch:
            for name in [name for name in sys.modules if name.partition(".")[0] == module]:
                patch.delitem(sys.modules, name)
            patch.setitem(sys.modules, module, None)
            error = finished.run("ledger", "export", "--to", format, str(tmp_path / "out"), code=1).stderr
        assert re.search(
            rf"error: {module}\S* is not installed\nhint: install it: pip install 'lrurun\[{format}\]'", error
        )

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "_write", full)
    error = finished.run("ledger", "export", "--to", "csv", str(tmp_path / "out"), code=1).stderr
    assert f"error: {tmp_path / 'out'}: No space left on device\n" in error
    assert not list(tmp_path.iterdir())


def test_a_mirror_has_what_is_committed(ledger: Ledger, key: str, tmp_path: Path) -> None:
    from lrurun.report.exports.mirror import Mirror

    run = ledger.enqueue(key, [want()])[0].id
    folder = tmp_path / "mirror"
    folder.mkdir()
    mirror = Mirror(ledger, folder)

    def steps(mirror: Mirror = mirror, waiting: bool = True) -> list[int]:
        assert mirror.update(ledger.run_ids) == waiting
        return [step for step, _ in mirrored(folder).get(run, {}).get("train/loss", ())]

    def train(claim: Any, first: int, last: int, saved: int, scale: float = 1.0) -> None:
        ledger.record(claim, [(step, "train/loss", step * scale) for step in range(first, last + 1)], last)
        number = ledger.begin_checkpoint(claim, saved, f"{claim.attempt}/{saved}")
        ledger.commit_checkpoint(claim, number, 1, "b")

    assert steps() == []
    claim = take(ledger, key)
    ledger.rewind(claim, 0)
    train(claim, 1, 2, saved=3)
    assert steps() == [1, 2]
    train(claim, 3, 6, saved=5)  # the row of a checkpoint's step may be recorded after it
    assert steps() == [1, 2, 3, 4]
    train(claim, 7, 8, saved=8)
    assert steps() == [1, 2, 3, 4, 5, 6, 7]
    [file] = folder.rglob("events.*")
    whole = file.read_bytes()
    for kept in (0, 1, 30, len(whole) - 1, len(whole)):  # wherever a mirror was killed
        file.write_bytes(whole[:kept])
        assert steps(Mirror(ledger, folder)) == [1, 2, 3, 4, 5, 6, 7]
        assert file.read_bytes() == whole
    file.write_bytes(whole + whole[-20:])
    assert steps(Mirror(ledger, folder)) == [1, 2, 3, 4, 5, 6, 7]
    assert file.read_bytes() == whole
    ledger.finish(claim, "interrupted")
    ledger.requeue([run])
    # The checkpoints of steps 5 and 8 are damaged, and the steps after 3 come out a little different.
    claim = take(ledger, key)
    assert steps() == [1, 2, 3, 4, 5, 6, 7]
    ledger.rewind(claim, 3)
    assert steps() == [1, 2]
    train(claim, 4, 6, saved=6, scale=1.5)
    assert steps() == [1, 2, 3, 4, 5]
    assert mirrored(folder)[run]["train/loss"][3:] == [(4, 6.0), (5, 7.5)]
    train(claim, 7, 9, saved=9)
    assert steps() == [1, 2, 3, 4, 5, 6, 7, 8]
    before = file.read_bytes()
    ledger.record(claim, [(5, "test/accuracy", 0.5)], 9)  # at the best step, as training does when it is over
    assert steps() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert file.read_bytes() == before
    ledger.finish(claim, "done", result={"test/accuracy": 0.5, "best_step": 9})
    assert steps(waiting=False) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    once = file.read_bytes()
    assert once.startswith(before)
    assert scalars(file)["test/accuracy"] == [(5, 0.5)]
    assert steps(Mirror(ledger, folder), waiting=False) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert file.read_bytes() == once
    assert scalars(file)["result/test/accuracy"] == [(9, 0.5)]


@pytest.mark.slow
def test_tensorboard_and_mlflow_have_what_the_commands_print(finished: Machine, tmp_path: Path) -> None:
    """TensorBoard's own reader, and the database of MLflow as plain SQL shows it."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.compat.proto.types_pb2 import DT_FLOAT
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.util.tensor_util import make_ndarray

    runs = finished.json("runs", "--where", "seed=0")["runs"]
    for format in ("tensorboard", "mlflow"):
        done = finished.run("ledger", "export", "--to", format, str(tmp_path / format), "--where", "seed=0", apart=True)
        assert done.stderr.startswith(f"wrote {tmp_path / format}: {len(runs)} runs; view it with: {format} ")
        assert len(done.stderr.splitlines()) == 1
    database = sqlite3.connect(tmp_path / "mlflow/mlflow.db")
    assert dict(database.execute("SELECT value, count(*) FROM tags WHERE key = 'lrurun.id' GROUP BY value")) == {
        run["id"]: 1 for run in runs
    }
    for run in runs:
        shown = finished.json("show", run["id"])
        expected = curves_of(finished, run["id"])
        results = {f"result/{name}": float(value) for name, value in run["metrics"].items()}
        [file] = (tmp_path / "tensorboard").rglob(f"*{run['id']}/events.*")
        found, settings = [], {}
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "hparams":
                    data = HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info.hparams
                    settings |= {k: v.WhichOneof("kind") and getattr(v, v.WhichOneof("kind")) for k, v in data.items()}
                elif not value.tag.startswith("lrurun/"):
                    assert value.tensor.dtype == DT_FLOAT, "TensorBoard's fast reader leaves out any other"
                    found.append((value.tag, event.step, make_ndarray(value.tensor).item()))
        points, shown32 = scalars(file), in_order(iter(found))
        assert_equal({tag: points[tag] for tag in points if not tag.startswith("result/")}, expected)
        assert_equal({tag: points[tag][0][1] for tag in results}, results)
        rounded = {tag: [(step, float(np.float32(x))) for step, x in curve] for tag, curve in points.items()}
        assert_equal(shown32, rounded)
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
    database.close()


@pytest.mark.slow
def test_numbers_that_mlflow_has_no_place_for(ledger: Ledger, key: str, tmp_path: Path) -> None:
    run = odd_ledger(ledger, key)
    [queued] = ledger.enqueue(key, [want(seed=1)])
    machine = Machine(tmp_path / "here").use(ledger.path)
    machine.run("ledger", "export", "--to", "mlflow", "out", apart=True)
    database = sqlite3.connect(machine.folder / "out/mlflow.db")
    rows = database.execute("SELECT key, step, value, is_nan FROM metrics ORDER BY key, step").fetchall()
    largest = 1.7976931348623157e308
    losses = [(step, math.nan if is_nan else value) for name, step, value, is_nan in rows if name == "train/loss"]
    assert_equal(losses, [(1, math.nan), (2, largest), (3, -largest), (4, 5e-324), (5, 0.1)])
    assert {name for name, *_ in rows} == {"train/loss", "_x_1_", "result/test/loss", "result/val/loss"}
    tags = dict(database.execute("SELECT key, value FROM tags WHERE run_uuid = (SELECT run_uuid FROM metrics)"))
    assert (tags["lrurun.id"], tags["lrurun.error"], tags["lrurun.tags"]) == (run, "=1+1", "a;b, c")
    one = ledger.run(run)
    assert one.finished_at is not None
    assert sorted(database.execute("SELECT status, start_time, end_time FROM runs")) == [
        ("FAILED", int(one.created_at * 1000), int(one.finished_at * 1000)),
        ("SCHEDULED", int(queued.created_at * 1000), None),
    ]
    database.close()


@pytest.mark.slow
def test_a_mirror_follows_a_ladder_through_kills_of_both(machine: Machine) -> None:
    ladder = ("ladder", "sDigits", *LONG, "--rung", "ring-init", "--rung", "gamma-norm", "--seeds", "2")
    follow = ("ledger", "export", "--to", "tensorboard", "board", "--follow")
    machine.run("ledger", "migrate")
    board = machine.folder / "board"
    training, mirror = machine.start(*ladder), machine.start(*follow)
    seen: list[dict[str, Points]] = []
    kills = 0
    deadline = time.monotonic() + 600
    while training.poll() is None or training.returncode != 0:
        assert time.monotonic() < deadline
        time.sleep(0.7)
        if mirror.poll() == 0:  # all runs are finished, and the ladder is about to end
            break
        assert mirror.poll() is None, mirror.communicate()
        before = {run: len(points.get("train/loss", ())) for run, points in mirrored(board).items()}
        if kills < 3 and sum(before.values()) > 20 * kills:
            os.kill(mirror.pid, signal.SIGKILL)
            mirror.wait()
            seen.append(mirrored(board))
            mirror = machine.start(*follow)
            if kills == 1:
                os.killpg(training.pid, signal.SIGKILL)
                training.wait()
            kills += 1
        if training.poll() not in (None, 0):
            training = machine.start(*ladder)
    assert kills == 3
    _, errors = mirror.communicate(timeout=60)
    assert mirror.returncode == 0, errors
    assert training.wait(60) == 0
    assert "mirrored 4 finished runs" in errors
    runs = {run["id"]: run for run in machine.json("runs")["runs"]}
    found = mirrored(board)
    assert set(found) == set(runs)
    for run, one in runs.items():
        expected = curves_of(machine, run)
        assert_equal(found[run], expected)
        assert one["state"] == "done"
    # On a CPU a resumed run repeats its steps exactly, so that all that was ever mirrored is there to stay.
    for earlier in seen:
        for run, points in earlier.items():
            for tag, curve in points.items():
                if not tag.startswith("machine/"):
                    assert curve == found[run][tag][: len(curve)]
    assert any(points for earlier in seen for points in earlier.values())
    again = {file: file.read_bytes() for file in board.rglob("events.*")}
    machine.run(*follow)
    assert {file: file.read_bytes() for file in board.rglob("events.*")} == again, "nothing twice"
