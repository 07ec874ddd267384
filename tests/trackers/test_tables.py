"""Tables of runs: which form a table has, what its columns and cells become, and what is wrong with a table."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import parquet

from lrurun import trackers
from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import Source, TrackedRun, mlflow, optuna, sacred
from lrurun.trackers.tables import forms, roles
from tests.trackers.make import tables

FILES = Path(__file__).parent / "files" / "tables"


def read(
    place: Path, kind: str | None = None, curves: Collection[str] | None = None, **options: str
) -> tuple[list[TrackedRun], Sequence[str]]:
    """The runs of a file, and the notes."""
    reader = trackers.opened(Source(name=str(place), **options), kind)
    return list(reader.runs(curves)), reader.notes()


def read_frame(frame: Any, curves: Collection[str] | None = None) -> tuple[list[TrackedRun], Sequence[str]]:
    reader = trackers.opened(Source(name="results", frame=frame))
    return list(reader.runs(curves)), reader.notes()


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., tuple[list[TrackedRun], Sequence[str]]]:
    """Reads a text as a table."""

    def read_text(
        text: str | bytes, name: str = "runs.csv", curves: Collection[str] | None = None, **options: str
    ) -> tuple[list[TrackedRun], Sequence[str]]:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path, "jsonl" if name.endswith("jsonl") else "csv", curves, **options)

    return read_text


def points(run: TrackedRun, metric: str) -> list[tuple[int, float]]:
    curve = run.curves[metric]
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


# Files that other packages wrote


@pytest.mark.parametrize("name", ["runs-pandas.csv", "runs-polars.csv", "runs-polars.jsonl", "runs-pandas.jsonl"])
def test_rows_for_runs(name: str) -> None:
    """Every format gives the same runs; the index that pandas writes is none of their settings."""
    runs, notes = read(FILES / name)
    expected = tables.runs()
    assert [run.id for run in runs] == expected["run_id"]
    assert [run.state for run in runs] == expected["state"]
    assert {run.project for run in runs} == {""}
    for row, run in enumerate(runs):
        score = run.settings["test_acc"]
        # to_json of pandas writes ten decimals
        assert score == pytest.approx(expected["test_acc"][row], abs=1e-10 if name == "runs-pandas.jsonl" else 0)
        wanted = {setting: expected[setting][row] for setting in ("norm", "seed", "lr", "deep")}
        assert {**run.settings, "test_acc": score} == {**wanted, "test_acc": score}
        assert [type(run.settings[setting]) for setting in wanted] == [str, int, float, bool]
        assert (run.last, run.curves, run.last_step, run.items) == ({}, {}, None, None)
    assert not notes


@pytest.mark.parametrize("name", ["steps-polars.tsv", "steps-polars.parquet", "steps-pandas.parquet"])
def test_rows_for_steps(name: str) -> None:
    """Rows of two runs alternate. Empty cells are no points; NaN is one, except where pandas wrote it as null."""
    runs, notes = read(FILES / name)
    assert [run.id for run in runs] == ["a", "b"]
    assert [run.settings for run in runs] == [{"seed": 0, "norm": "layer"}, {"seed": 1, "norm": "none"}]
    assert [run.last_step for run in runs] == [3, 3]
    assert points(runs[0], "loss") == [(0, 1), (1, 1 / 2), (2, 1 / 3), (3, 1 / 4)]
    assert points(runs[1], "val_acc") == [(0, 1.0), (2, 1.2)]
    assert runs[0].last == {"loss": 1 / 4, "val_acc": 0.2}
    is_lost = name == "steps-pandas.parquet"
    assert len(runs[1].curves["loss"].steps) == (3 if is_lost else 4)
    assert math.isnan(runs[1].last["loss"]) != is_lost
    assert not notes


def test_curves_that_are_asked_for() -> None:
    """Last values of all metrics are there, whatever was asked for."""
    for name in ("steps-polars.tsv", "steps-polars.parquet"):
        for curves, expected in (((), set()), (["loss"], {"loss"}), (["other"], set()), (None, {"loss", "val_acc"})):
            runs, _ = read(FILES / name, curves=curves)
            assert [set(run.curves) for run in runs] == [expected] * 2
            assert [set(run.last) for run in runs] == [{"loss", "val_acc"}] * 2
            assert [run.last_step for run in runs] == [3, 3]


@pytest.mark.parametrize("frame", [polars.DataFrame, pandas.DataFrame, lambda table: polars.DataFrame(table).lazy()])
def test_frames(frame: Callable[[Any], Any]) -> None:
    runs, notes = read_frame(frame(tables.runs()))
    files, _ = read(FILES / "runs-polars.csv")
    assert [run.settings for run in runs] == [run.settings for run in files]
    assert [(run.id, run.state) for run in runs] == [(run.id, run.state) for run in files]
    assert {run.project for run in runs} == {""}
    assert not notes

    runs, notes = read_frame(frame(tables.steps()))
    of_file, _ = read(FILES / "steps-polars.parquet")
    assert points(runs[0], "loss") == points(of_file[0], "loss")
    assert points(runs[1], "val_acc") == points(of_file[1], "val_acc")
    is_pandas = frame is pandas.DataFrame
    assert len(runs[1].curves["loss"].steps) == (3 if is_pandas else 4)
    assert [note for note in notes if "NaN" in note] == list(notes)
    assert bool(notes) == is_pandas


def test_index_of_pandas() -> None:
    """An index that says something is a column; one that counts is none."""
    frame = pandas.DataFrame({"norm": ["a", "b"], "acc": [0.1, 0.2]})
    assert [run.settings for run in read_frame(frame)[0]] == [{"norm": "a", "acc": 0.1}, {"norm": "b", "acc": 0.2}]
    named = frame.set_index(pandas.Index(["x", "y"], name="run_id"))
    assert [run.id for run in read_frame(named)[0]] == ["x", "y"]
    texts = frame.set_index(pandas.Index(["x", "y"]))
    assert [run.settings["index"] for run in read_frame(texts)[0]] == ["x", "y"]


def test_nullable_types_of_pandas() -> None:
    frame = pandas.DataFrame(
        {
            "run_id": ["a", "b"],
            "depth": pandas.array([1, None], dtype="Int64"),
            "deep": pandas.array([None, True], dtype="boolean"),
            "norm": pandas.Categorical(["layer", None]),
            "date": pandas.to_datetime(["2026-11-28", None]),
        }
    )
    runs, _ = read_frame(frame)
    assert runs[0].settings == {"depth": 1, "deep": None, "norm": "layer", "date": "2026-11-28T00:00:00"}
    assert runs[1].settings == {"depth": None, "deep": True, "norm": None, "date": None}


def test_columns_of_one_name_in_pandas() -> None:
    frame = pandas.DataFrame([[0.1, 0.2]], columns=["lr", "lr"])
    with pytest.raises(UsageError, match="columns 1 and 2 are both named 'lr'"):
        read_frame(frame)


@pytest.mark.parametrize("frame", [None, [1, 2], np.zeros(3), polars.Series([1])])
def test_no_frame(frame: Any) -> None:
    with pytest.raises(UsageError, match="expected a pandas or polars frame"):
        trackers.opened(Source(name="results", frame=frame), "frame").runs()


def test_nested_columns() -> None:
    """Structs, lists and dictionaries of Parquet."""
    runs, _ = read(FILES / "nested.parquet", items="correct")
    assert [run.settings for run in runs] == [
        {"lr": 0.1, "model.depth": 2, "norm": "layer"},
        {"lr": 0.2, "model.depth": 4, "norm": None},
    ]
    assert [run.items for run in runs] == [[1, 0, 1], [1, 1, 1]]


def test_table_of_mlflow() -> None:
    """Prefixes say what a column is; so do its times and its states."""
    runs, notes = read(FILES / "mlflow.csv")
    assert [run.name for run in runs] == ["layer-0", "layer-1"]
    assert [(run.state, run.state_text) for run in runs] == [("finished", "FINISHED")] * 2
    assert [run.last for run in runs] == [{"acc": 0.7}, {"acc": 0.7 + 0.1}]
    assert {setting: runs[1].settings[setting] for setting in ("seed", "lr", "norm")} == {
        **{"seed": 1, "lr": 1e-5, "norm": "layer"}
    }
    assert all(run.started_at and run.ended_at and 0 < run.ended_at - run.started_at < 60 for run in runs)
    assert all(len(run.id) == 32 for run in runs)
    assert not notes


# What the page of W&B exports: every cell in quotes, a name, a state, a date, and columns as the user has them

PAGE = """"Name","State","Notes","Created","Runtime","ID","lr","norm","test_acc"
"lru-1","finished","-","2026-11-28T10:00:00.000Z","12","q1w2","0.00001","layer","0.91"
"lru-2","crashed","two
lines","2026-11-28T10:05:00.000Z","3","e3r4","0.001","none",""
"lru-3","running","-","2026-11-28T10:06:00.000Z","","t5z6","0.001","none","NaN"
"""


def test_table_of_the_page_of_wandb(table: Any) -> None:
    runs, notes = table(PAGE)
    assert [(run.id, run.name, run.state) for run in runs] == [
        *[("q1w2", "lru-1", "finished"), ("e3r4", "lru-2", "crashed"), ("t5z6", "lru-3", "running")]
    ]
    assert [run.settings["lr"] for run in runs] == [1e-5, 0.001, 0.001]
    assert (runs[0].settings["test_acc"], runs[1].settings["test_acc"]) == (0.91, None)
    assert math.isnan(runs[2].settings["test_acc"])
    assert runs[1].settings["Notes"] == "two\nlines"
    assert runs[0].started_at == 1795860000
    assert runs[1].started_at == runs[0].started_at + 300
    assert notes == [f"{runs[0].place}: 1 row takes several lines, as quotes say, the first from line 3 on"]


CHART = """"Step","a - 1 - acc","a - 1 - acc__MIN","a - 1 - acc__MAX","b - acc","b - acc__MIN","b - acc__MAX"
"0","0.1","0.1","0.1","","",""
"10","0.2","0.2","0.2","0.5","0.5","0.5"
"""


def test_chart_of_the_page_of_wandb(table: Any) -> None:
    runs, notes = table(CHART)
    assert [run.id for run in runs] == ["a - 1", "b"]
    assert points(runs[0], "acc") == [(0, 0.1), (10, 0.2)]
    assert points(runs[1], "acc") == [(10, 0.5)]
    assert [(run.last, run.last_step) for run in runs] == [({"acc": 0.2}, 10), ({"acc": 0.5}, 10)]
    assert [run.settings for run in runs] == [{}, {}]
    assert not notes
    assert [run.curves for run in table(CHART, curves=())[0]] == [{}, {}]


def test_chart_of_means(table: Any) -> None:
    """Bounds that differ say that the chart shows no single values."""
    runs, notes = table(CHART.replace('"10","0.2","0.2"', '"10","0.2","0.1"'))
    assert runs[0].last == {"acc": 0.2}
    assert len(notes) == 1
    assert "1 point of this chart are means" in notes[0]


def test_chart_over_another_axis(table: Any) -> None:
    """Steps are in columns of their own then; without them, an axis of fractions cannot be read."""
    text = """"epoch","a - _step","a - _step__MIN","a - _step__MAX","a - loss","a - loss__MIN","a - loss__MAX"
"0.5","100","100","100","2","2","2"
"1.5","300","300","300","1","1","1"
"""
    [run], _ = table(text)
    assert points(run, "loss") == [(100, 2.0), (300, 1.0)]
    assert run.last == {"loss": 1.0}
    without = "\n".join(",".join([*line.split(",")[:1], *line.split(",")[4:]]) for line in text.splitlines())
    with pytest.raises(UsageError, match="the axis 'epoch' has other values than whole numbers"):
        table(without + "\n")


# What the page of MLflow exports


def test_negative_numbers_of_the_page_of_mlflow(table: Any) -> None:
    """It writes an apostrophe before them."""
    text = """"Start Time","Duration","Run ID","Name","User","Status","norm","reward"
"2026-11-28 10:00:00","3.1s","a","one","user","FINISHED","'-tanh","'-0.5"
"2026-11-28 10:00:00","3.1s","b","two","user","FAILED","it's","0.25"
"""
    runs, notes = table(text)
    assert [run.settings["reward"] for run in runs] == [-0.5, 0.25]
    assert [run.settings["norm"] for run in runs] == ["-tanh", "it's"]
    assert [(run.id, run.name, run.state) for run in runs] == [("a", "one", "finished"), ("b", "two", "crashed")]
    assert runs[0].started_at == 1795860000  # without a zone: of UTC
    assert not notes


VALUES = """"Run","Run ID","metric","step","timestamp","value"
"one","a","loss","0","1795860000000","1"
"one","a","loss","5","1795860001000","0.5"
"two","b","loss","0","1795860000000","2"
"one","a","acc","5","1795860001000","0.75"
"""


def test_rows_for_values(table: Any) -> None:
    runs, notes = table(VALUES)
    assert [(run.id, run.name) for run in runs] == [("a", "one"), ("b", "two")]
    assert points(runs[0], "loss") == [(0, 1.0), (5, 0.5)]
    assert points(runs[0], "acc") == [(5, 0.75)]
    assert [run.last for run in runs] == [{"loss": 0.5, "acc": 0.75}, {"loss": 2}]
    assert [run.settings for run in runs] == [{}, {}]
    assert len(notes) == 1
    assert "timestamp left out" in notes[0]


def test_values_that_are_no_numbers(table: Any) -> None:
    with pytest.raises(UsageError, match="'value' has cells that are no numbers"):
        table(VALUES.replace('"0.75"', '"high"'))
    with pytest.raises(UsageError, match="line 3 has no name of a metric"):
        table(VALUES.replace('"loss","5"', '"","5"'))
    with pytest.raises(UsageError, match="are both named 'Run'"):
        table(VALUES.replace('"acc"', '"Run"'))


# Which rows are of one run


def test_steps_without_a_run(table: Any) -> None:
    """Rows are runs then, and the reader says so."""
    runs, notes = table("norm,seed,step,acc\nlayer,0,1,0.5\nlayer,0,2,0.6\n")
    assert runs[1].id == f"{runs[0].id}-2"
    assert [run.settings for run in runs] == [
        {"norm": "layer", "seed": 0, "step": 1, "acc": 0.5},
        {"norm": "layer", "seed": 0, "step": 2, "acc": 0.6},
    ]
    assert len(notes) == 1
    assert "no column names the run" in notes[0]
    assert "there are steps in 'step'" in notes[0]


def test_names_as_ids(table: Any) -> None:
    """A column of names that are all different names the runs; one of names that repeat is a setting."""
    runs, notes = table("Name,acc\na,1\nb,2\n")
    assert [(run.id, run.settings) for run in runs] == [("a", {"acc": 1}), ("b", {"acc": 2})]
    assert not notes
    runs, notes = table("Name,acc\na,1\na,2\n")
    assert [(run.row, run.settings["Name"]) for run in runs] == [("line 2", "a"), ("line 3", "a")]
    assert runs[1].id == f"{runs[0].id}-2"
    assert len(notes) == 1


@pytest.mark.parametrize("name", ["run_id", "run", "id", "ID", "_run_id", "Run ID", "RUN-ID"])
def test_names_of_the_run(table: Any, name: str) -> None:
    runs, notes = table(f"{name},acc\n7,1\n8,2\n")
    assert [(run.id, run.settings) for run in runs] == [("7", {"acc": 1}), ("8", {"acc": 2})]
    assert not notes


@pytest.mark.parametrize("name", ["step", "_step", "global_step", "trainer/global_step", "Step", "epoch", "iteration"])
def test_names_of_steps(table: Any, name: str) -> None:
    [run], _ = table(f"run_id,{name},acc\na,1,0.5\na,2,0.6\n")
    assert points(run, "acc") == [(1, 0.5), (2, 0.6)]
    assert run.last_step == 2
    assert run.settings == {}


def test_ids_that_repeat_without_steps(table: Any) -> None:
    with pytest.raises(UsageError) as error:
        table("run,norm,acc\n0,layer,1\n1,layer,2\n0,none,3\n1,none,4\n0,batch,5\n")
    assert "'run' are not unique: '0' in line 2, line 4, line 6; '1' in line 3, line 5" in error.value.message
    assert "as to seed" in error.value.hint


def test_runs_that_only_a_setting_tells_apart(table: Any) -> None:
    """A run that numbers repetitions would join the rows of several runs."""
    with pytest.raises(UsageError) as error:
        table("run,norm,step,acc\n0,layer,1,0.1\n0,layer,2,0.2\n0,none,1,0.3\n0,none,2,0.4\n")
    assert "line 2 and line 4 are both step 1 of the run '0', and differ in 'norm'" in error.value.message


def test_texts_that_change_within_a_run(table: Any) -> None:
    [run], notes = table("run,phase,step,acc\n0,warm,1,0.1\n0,main,2,0.2\n")
    assert run.settings == {}
    assert run.last == {"acc": 0.2}
    assert len(notes) == 1
    assert "phase left out: it changes within a run, and is no metric" in notes[0]
    with pytest.raises(UsageError, match=r"'params.phase' changes within a run"):
        table("run,params.phase,step,acc\n0,warm,1,0.1\n0,main,2,0.2\n")


def test_a_column_that_counts_rows_is_no_run(table: Any) -> None:
    """As the key of a table in a database."""
    runs, _ = table("id,run,step,loss\n0,a,1,3\n1,a,2,2\n2,b,1,4\n")
    assert [run.id for run in runs] == ["a", "b"]
    assert points(runs[0], "loss") == [(1, 3), (2, 2)]
    runs, _ = table("id,run,loss\n0,a,3\n1,b,2\n")
    assert [(run.id, run.name) for run in runs] == [("0", "a"), ("1", "b")]


def test_times_of_sparse_rows(table: Any) -> None:
    """They differ between rows of a step, and tell no runs apart."""
    text = "run,step,time,loss,acc\na,1,2026-11-28T10:00:00,1,\na,1,2026-11-28T10:00:01,,0.5\n"
    [run], notes = table(text)
    assert run.last == {"loss": 1, "acc": 0.5}
    assert "time left out" in notes[0]


def test_numbers_named_metric(table: Any) -> None:
    """A column of numbers names no metrics."""
    runs, _ = table("run_id,metric,value\na,0.5,1\nb,0.6,2\n")
    assert [run.settings for run in runs] == [{"metric": 0.5, "value": 1}, {"metric": 0.6, "value": 2}]


def test_lists_as_ids(table: Any) -> None:
    with pytest.raises(UsageError, match="'id' has lists, expected ids of runs"):
        table('{"id": [1]}\n{"id": [2]}\n', "runs.jsonl")
    runs, _ = table('{"id": "a", "name": [1], "state": ["x"]}\n', "runs.jsonl")
    assert (runs[0].name, runs[0].settings) == ("[1]", {"state": ["x"]})


def test_missing_ids(table: Any) -> None:
    with pytest.raises(UsageError, match="line 3 has no id of its run in 'run_id'"):
        table("run_id,acc\na,1\n,2\n")


def test_sparse_rows(table: Any) -> None:
    """As Lightning writes them: each row has some of the metrics. One that is there once is a metric, not a setting."""
    text = "run,epoch,step,loss,val_acc,test_acc\na,0,0,1.0,,\na,0,9,,0.5,\na,1,10,0.5,,\na,1,19,,0.6,\na,1,19,,,0.7\n"
    [run], notes = table(text)
    assert points(run, "loss") == [(0, 1.0), (10, 0.5)]
    assert points(run, "val_acc") == [(9, 0.5), (19, 0.6)]
    assert points(run, "test_acc") == [(19, 0.7)]
    assert points(run, "epoch") == [(0, 0), (9, 0), (10, 1), (19, 1), (19, 1)]
    assert run.settings == {}
    assert run.last == {"epoch": 1, "loss": 0.5, "val_acc": 0.6, "test_acc": 0.7}
    assert len(notes) == 1
    assert "steps are those of 'step'; epoch is read as any other column" in notes[0]


def test_steps_that_repeat_and_go_back(table: Any) -> None:
    [run], _ = table("run,step,loss\na,1,3\na,2,2\na,1,2.5\na,1,2.4\n")
    assert points(run, "loss") == [(1, 3.0), (2, 2.0), (1, 2.5), (1, 2.4)]
    assert run.last == {"loss": 2.4}
    assert run.last_step == 2


def test_rows_without_a_step(table: Any) -> None:
    """They count for last values alone."""
    [run], notes = table("run,step,loss,test_acc\na,1,3,\na,2,2,\na,,,0.9\n")
    assert points(run, "loss") == [(1, 3.0), (2, 2.0)]
    assert run.last == {"loss": 2.0, "test_acc": 0.9}
    assert "test_acc" not in run.curves
    assert len(notes) == 1
    assert "1 row without a step" in notes[0]


def test_steps_that_are_no_whole_numbers(table: Any) -> None:
    """Another column of steps is taken, if there is one."""
    [run], notes = table("run,step,epoch,loss\na,0.5,0,2\na,1.5,1,1\n")
    assert points(run, "loss") == [(0, 2.0), (1, 1.0)]
    assert "steps are those of 'epoch'" in notes[0]
    with pytest.raises(UsageError, match=r"line 2 has the step 0.5 in 'epoch', expected whole numbers"):
        table("run,epoch,loss\na,0.5,2\na,1.5,1\n")


def test_large_tables_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small limit, the curves of interleaved runs are the same as at once."""
    count, length = 7, 50
    order = np.random.default_rng(0).permutation(count * length)
    order = order[np.argsort(order % length, kind="stable")]  # steps in order, runs in any
    table = {"run": order // length, "step": order % length, "loss": order / 7.0, "acc": -order / 3.0}
    parquet.write_table(pyarrow.table(table), tmp_path / "steps.parquet", row_group_size=60)
    monkeypatch.setattr(forms, "VALUES_AT_ONCE", 250)
    for curves in (["acc"], None):
        runs, _ = read(tmp_path / "steps.parquet", curves=curves)
        assert sorted(run.id for run in runs) == [str(number) for number in range(count)]
        for run in runs:
            expected = [(step, -(int(run.id) * length + step) / 3.0) for step in range(length)]
            assert points(run, "acc") == expected
            assert run.last["loss"] == (int(run.id) * length + length - 1) / 7.0
            assert ("loss" in run.curves) == (curves is None)


def test_parts_begin_within_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs one after the other, in one row group, of which each part is some rows."""
    rows = np.arange(400)
    table = {"run": rows // 100, "step": rows % 100, "loss": rows / 7.0}
    parquet.write_table(pyarrow.table(table), tmp_path / "steps.parquet")
    monkeypatch.setattr(forms, "VALUES_AT_ONCE", 150)
    runs, _ = read(tmp_path / "steps.parquet")
    for number, run in enumerate(runs):
        assert points(run, "loss") == [(step, (100 * number + step) / 7.0) for step in range(100)]


# Cells


def cells(table: Any, *texts: str, separator: str = ",") -> list[Any]:
    """What a column of these cells becomes."""
    rows = "\n".join(f"{row}{separator}{text}" for row, text in enumerate(texts))
    runs, _ = table(f"run_id{separator}x\n{rows}\n")
    return [run.settings["x"] for run in runs]


def test_types_of_columns(table: Any) -> None:
    """A column is of one type, which all its cells have."""
    assert cells(table, "1", "-2", "") == [1, -2, None]
    assert cells(table, "1e-3", "0.001", "1") == [0.001, 0.001, 1.0]
    assert cells(table, "inf", "-Infinity", "1") == [math.inf, -math.inf, 1.0]
    assert cells(table, "True", "false", "") == [True, False, None]
    assert cells(table, " 1", "2 ") == [1, 2]
    assert cells(table, " a", "b ") == ["a", "b"]
    for first, last in (("010", "10"), ("1_000", "1"), ("1", "auto"), ("true", "1"), ("2026-11-28", "2026-11-29")):
        assert cells(table, first, last) == [first, last]
    assert cells(table, "12345678901234567", "1") == ["12345678901234567", "1"]
    assert cells(table, "0.5", "12345678901234567") == [0.5, 12345678901234567.0]
    assert cells(table, '"[1, 0]"', "yes") == ["[1, 0]", "yes"]
    assert cells(table, "None", "nan") == ["None", "nan"]
    assert cells(table, "٣", "4") == ["٣", "4"]


def test_decimal_commas(table: Any) -> None:
    """Spreadsheets write them where semicolons are between cells."""
    assert cells(table, "0,5", "1", separator=";") == [0.5, 1.0]
    assert cells(table, "0,5", "1.5", separator=";") == ["0,5", "1.5"]


def test_mixed_types_are_said(table: Any) -> None:
    runs, notes = table("run_id,lr\na,0.1\nb,1e-3\nc,auto\n")
    assert [run.settings["lr"] for run in runs] == ["0.1", "1e-3", "auto"]
    assert notes == [f"{runs[0].place}: 'lr' has numbers and texts, as 'auto' in line 4: all are read as texts"]


def test_a_text_after_many_numbers(table: Any) -> None:
    """It makes texts of all cells, as they were written."""
    numbers = "".join(f"r{row},0.{row % 9 + 1}0\n" for row in range(25_000))
    runs, notes = table(f"run_id,acc\n{numbers}x,bad\n")
    assert runs[0].settings["acc"] == "0.10"
    assert runs[-1].settings["acc"] == "bad"
    assert len(notes) == 1
    assert "'bad' in line 25002" in notes[0]


def test_states(table: Any) -> None:
    words = ["FINISHED", "success", "killed", "FAILED", "running", "queued", ""]
    runs, _ = table("run_id,status\n" + "".join(f"{row},{word}\n" for row, word in enumerate(words)))
    expected = ["finished", "finished", "crashed", "crashed", "running", "running", "running"]
    assert [run.state for run in runs] == expected
    assert [run.state_text for run in runs] == words


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("FINISHED COMPLETE completed done success succeeded ok TERMINATED TrialState.COMPLETE", "finished"),
        ("preempting PREEMPTED OUT_OF_MEMORY CANCELLED CANCELLED+ TIMEOUT NODE_FAIL killed aborted ABORTED", "crashed"),
        ("BOOT_FAIL DEADLINE out-of-memory OOMKilled INTERRUPTED FAIL error Timed-Out", "crashed"),
        ("running PENDING QUEUED in_progress SUSPENDED WAITING PAUSED SCHEDULED PRUNED unknown", "running"),
    ],
)
def test_words_of_trackers_and_schedulers(table: Any, words: str, state: str) -> None:
    listed = words.split()
    runs, notes = table("run_id,state\n" + "".join(f"{row},{word}\n" for row, word in enumerate(listed)))
    assert {word: run.state for word, run in zip(listed, runs, strict=True)} == dict.fromkeys(listed, state)
    assert not notes
    [run], _ = table("run_id,State\na,CANCELLED by 1000\n")
    assert (run.state, run.state_text) == ("crashed", "CANCELLED by 1000")


def test_a_word_has_one_meaning_in_tables_and_in_stores() -> None:
    """A table that a tracker exports has its words."""
    for of_tracker in (mlflow._STATES, optuna._ENDS, sacred.STATES):
        assert {word: roles.state_of(word) for word in of_tracker} == of_tracker


def test_a_state_with_an_unknown_word(table: Any) -> None:
    """Such a run is not known to have ended; what the other words say counts."""
    runs, notes = table("run_id,State\na,finished\nb,crashed\nc,zapped\nd,zapped\n")
    assert [run.state for run in runs] == ["finished", "crashed", "running", "running"]
    assert [run.state_text for run in runs] == ["finished", "crashed", "zapped", "zapped"]
    assert [run.settings for run in runs] == [{}] * 4
    [note] = notes
    assert "'State': the state of 2 runs is 'zapped', which is not known: read as running, so as missing" in note
    # many words for a few runs, or one for many, as one cluster names a failure
    for words in (["ok"] * 4 + ["x", "y", "z"], ["ok"] + ["x"] * 4):
        runs, _ = table("run_id,state\n" + "".join(f"{row},{word}\n" for row, word in enumerate(words)))
        assert [run.state for run in runs] == ["finished" if word == "ok" else "running" for word in words]


def test_a_setting_that_is_named_as_a_state(table: Any) -> None:
    runs, notes = table("run_id,state\na,Ohio\nb,Ohio\nc,finished\nd,Utah\n")
    assert [(run.state, run.settings) for run in runs] == [
        ("finished", {"state": word}) for word in ("Ohio", "Ohio", "finished", "Utah")
    ]
    [note] = notes
    assert "'state' is a setting: 'Ohio', 'Utah' are no states of a run" in note


def test_the_last_state_of_a_run_counts(table: Any) -> None:
    runs, notes = table("run,step,state,loss\na,0,working,1\na,1,finished,2\nb,0,working,1\nb,1,killed,2\n")
    assert [run.state for run in runs] == ["finished", "crashed"]
    assert not notes


def test_times(table: Any) -> None:
    """Dates with and without a zone, seconds, and milliseconds; of anything else, the column is a setting."""
    for text in ("2026-11-28T11:00:00+01:00", "2026-11-28 10:00:00", "1795860000", "1795860000000"):
        [run], _ = table(f"run_id,created_at\na,{text}\n")
        assert run.started_at == 1795860000
        assert run.settings == {}
    [run], _ = table("run_id,created_at\na,today\n")
    assert (run.started_at, run.settings) == (None, {"created_at": "today"})


def test_whole_numbers_that_no_float_reaches(table: Any) -> None:
    """They are infinite wherever they count as numbers, and no times."""
    large = 10**400
    lines = [
        {"run_id": "a", "acc": large, "some": "NaN", "list": [large], "created_at": large, "correct": [True, -large]},
        {"run_id": "b", "acc": 0.5, "some": -large, "list": [1], "created_at": 1795860000, "correct": [0, 1]},
    ]
    runs, _ = table("".join(json.dumps(line) + "\n" for line in lines), "runs.jsonl", items="correct")
    assert [run.settings["acc"] for run in runs] == [math.inf, 0.5]
    assert math.isnan(runs[0].settings["some"])
    assert runs[1].settings["some"] == -math.inf
    assert [run.settings["list"] for run in runs] == [[large], [1]]
    assert [run.items for run in runs] == [[1.0, -math.inf], [0.0, 1.0]]
    assert [run.started_at for run in runs] == [None, None]  # a column of which one cell is no time is a setting
    runs, _ = read_frame(pandas.DataFrame({"run_id": ["a", "b"], "acc": [large, 0.5]}))
    assert [run.settings["acc"] for run in runs] == [math.inf, 0.5]


@pytest.mark.parametrize("ids", [(10**400, 10**400 + 1), (2**64, 2**64 + 1), (float(2**53), 1.5)])
def test_ids_that_lose_digits(table: Any, ids: tuple[float, float]) -> None:
    """Two runs would be one."""
    text = "".join(json.dumps({"run_id": id, "step": step, "acc": 1}) + "\n" for id in ids for step in (0, 1))
    with pytest.raises(UsageError, match="line 1 has a number in 'run_id' that is too large for an id"):
        table(text, "runs.jsonl")
    runs, _ = table("".join(json.dumps({"run_id": str(id), "acc": 1}) + "\n" for id in ids), "runs.jsonl")
    assert [run.id for run in runs] == [str(id) for id in ids]


def test_prefixes_that_collide(table: Any) -> None:
    with pytest.raises(UsageError, match=r"without their prefixes: columns \d and \d are both named 'lr'"):
        table("run_id,params.lr,lr\na,1,2\n")


def test_items(table: Any) -> None:
    runs, _ = table('run_id,correct\na,"[1, 0, true]"\nb,\n', items="correct")
    assert [run.items for run in runs] == [[1.0, 0.0, 1.0], None]
    assert all("correct" not in run.settings for run in runs)
    with pytest.raises(UsageError, match="of the run 'a' is no list of numbers"):
        table("run_id,correct\na,many\n", items="correct")
    with pytest.raises(UsageError) as error:
        table("run_id,correct\na,[1]\n", items="corect")
    assert "has no column 'corect'" in error.value.message
    assert "did you mean 'correct'?" in error.value.hint
    long = "[" + ", ".join(["1"] * 60_000) + "]"  # longer than Python's csv takes by itself
    runs, _ = table(f'run_id,correct\na,"{long}"\n', items="correct")
    assert runs[0].items == [1.0] * 60_000


def test_the_project_is_that_of_a_column(table: Any) -> None:
    assert table("run_id,x\na,1\n")[0][0].project == ""
    with pytest.raises(UsageError, match="has no column of projects, found the project 'other'"):
        table("run_id,x\na,1\n", project="other")
    for name in ("project", "Experiment", "experiment_name"):
        rows = f"run_id,{name},x\n1,norms,0.1\n2,norms,0.2\n1,rates,0.3\n1,,0.4\n"
        runs, _ = table(rows)
        assert [(run.project, run.id) for run in runs] == [("norms", "1"), ("norms", "2"), ("rates", "1"), ("", "1")]
        assert [run.settings["x"] for run in table(rows, project="norms")[0]] == [0.1, 0.2]
        assert runs[0].settings[name] == "norms", "it may make the rungs"
    with pytest.raises(UsageError, match="no run is of the project 'norm'") as error:
        table(rows, project="norm")
    assert "did you mean 'norms'?" in error.value.hint
    runs, _ = table("run_id,project,step,loss\n1,a,1,0.5\n1,b,1,0.6\n1,a,2,0.4\n1,b,2,0.3\n")
    assert [(run.project, points(run, "loss")) for run in runs] == [
        ("a", [(1, 0.5), (2, 0.4)]),
        ("b", [(1, 0.6), (2, 0.3)]),
    ]


# Rows without ids


HEAD = "norm,depth,seed,bias,state,lr,test_acc,test_correct,runtime\n"
ROWS = [
    "layer,4,0,true,finished,0.1,0.91,910,60",
    "layer,4,1,true,finished,0.1,0.92,920,61",
    "none,4,0,true,running,0.1,0.83,830,12",
    "none,4,0,true,finished,0.2,0.84,840,64",
]


def test_a_row_without_an_id_is_known_again_wherever_it_is(table: Any) -> None:
    def ids(rows: Sequence[str], head: str = HEAD) -> list[str]:
        return [run.id for run in table(head + "\n".join(rows) + "\n")[0]]

    before = ids(ROWS)
    assert len(set(before)) == 4
    assert before[3] == f"{before[2]}-2", "texts and whole numbers are equal"
    assert ids(["batch,4,7,false,finished,0.3,0.5,500,60", *ROWS])[1:] == before
    assert ids(ROWS[1:]) == before[1:]
    assert ids(ROWS[::-1])[-2:] == before[1::-1]
    ended = [ROWS[0].replace("0.91,910,60", "1.0,1000,65"), ROWS[1], ROWS[2].replace("running", "failed"), ROWS[3]]
    assert ids(ended) == before, "scores, states and times change as a run goes on"
    assert (
        ids([f"{row},warm" for row in ROWS[:1]] + [f"{row}," for row in ROWS[1:]], HEAD[:-1] + ",schedule\n")[1:]
        == (before[1:])
    )
    moved = [",".join([*row.split(",")[1:], row.split(",")[0]]) for row in ROWS]
    assert ids(moved, "depth,seed,bias,state,lr,test_acc,test_correct,runtime,norm\n") == before
    for old, new in (("layer", "batch"), ("layer,4", "layer,8"), ("layer,4,0", "layer,4,9"), ("true", "false")):
        assert ids([ROWS[0].replace(old, new), *ROWS[1:]])[0] not in before


def test_rows_without_ids_are_named_by_their_lines(table: Any) -> None:
    runs, notes = table(HEAD + "\n".join(ROWS) + "\n")
    assert [run.row for run in runs] == ["line 2", "line 3", "line 4", "line 5"]
    assert any("no column names the run" in note and "1 row equals another one in these" in note for note in notes)
    runs, notes = table("Name,norm,test_acc\na,layer,0.5\nb,layer,0.6\n")
    assert [(run.id, run.row) for run in runs] == [("a", ""), ("b", "")]
    assert not notes


def test_lists_of_settings_are_of_the_id_and_lists_of_results_are_not(table: Any) -> None:
    text = 'sizes,correct,test_acc\n"[64, 64]","[1, 0]",0.5\n"[32]","[1, 1]",0.9\n'
    before = [run.id for run in table(text)[0]]
    assert len(set(before)) == 2
    assert [run.id for run in table(text.replace("[1, 0]", "[1, 1]"))[0]] == before
    assert [run.id for run in table(text, items="correct")[0]] == before
    assert [run.id for run in table(text.replace("[32]", "[16]"))[0]][1] not in before


# Quotes


def test_quotes_in_tsv() -> None:
    """Quotes that are never closed are letters; where they enclose a tab, they are quotes."""
    runs, notes = read(FILES / "quotes-polars.tsv")
    assert [(run.id, run.settings) for run in runs] == [
        ("a", {"disk": '5"', "acc": 0.1}),
        ("b", {"disk": '"open', "acc": 0.2}),
    ]
    assert not notes
    runs, notes = read(FILES / "quotes-pandas.tsv")
    assert [run.settings["disk"] for run in runs] == ['5"', 'say "hi"', "tab\there"]
    assert not notes


def test_quotes_that_close_on_a_later_line(table: Any) -> None:
    """No row is lost: in TSV such quotes are letters; in CSV they enclose lines, and a note says so."""
    runs, notes = table('run_id\tnote\na\t"b\nc\td"\ne\tf\n', "runs.tsv")
    assert [(run.id, run.settings["note"]) for run in runs] == [("a", '"b'), ("c", 'd"'), ("e", "f")]
    assert not notes
    runs, notes = table('run_id,note\na,"b\nc,d"\ne,f\n')
    assert [run.settings["note"] for run in runs] == ["b\nc,d", "f"]
    assert len(notes) == 1
    assert "1 row takes several lines, as quotes say, the first from line 2 on" in notes[0]


def test_quotes_that_never_close_in_csv(table: Any) -> None:
    runs, notes = table('run_id,note,acc\na,"open,1\nb,c,2\n')
    assert [run.settings for run in runs] == [{"note": '"open', "acc": 1}, {"note": "c", "acc": 2}]
    assert len(notes) == 1
    assert "a quote is opened in line 2 and never closed: quotes are read as letters" in notes[0]
    with pytest.raises(UsageError, match="a quote is opened in line 3 and never closed"):
        table('run_id,note,acc\na,"x,y",1\nb,"open,2\nc,d,3\n')


# Whole and broken files


def test_half_written_last_line(table: Any) -> None:
    for text in ("run_id,norm,acc\na,layer,1\nb,la", 'run_id,norm,acc\na,layer,1\nb,"la'):
        runs, notes = table(text)
        assert [run.id for run in runs] == ["a"]
        assert notes == [f"{runs[0].place}: the last line (3) is half-written, and left out"]
    runs, notes = table(b"run_id,norm,acc\na,layer,1\nb,\xc3")  # cut within a letter
    assert [run.id for run in runs] == ["a"]
    assert len(notes) == 1
    runs, notes = table("run_id,norm,acc\na,layer,1\nb,none,2")  # only without its end
    assert [run.id for run in runs] == ["a", "b"]
    assert notes == [
        f"{runs[0].place}: the last line (3) has no end: it counts, but if the file is half written, its last number "
        "may be cut off"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b,a\n1,2,3\n", "columns 1 and 3 are both named 'a'"),
        ("a, a\n1,2\n", "columns 1 and 2 are both named 'a'"),
        ("a,b\n1,2\n3\n4,5\n", "line 3 has 1 cells, and the first line has 2"),
        ("a,b\n1,2\n\n3\n", "line 4 has 1 cells, and the first line has 2"),
        ("a,b\n1,2,3\n", "line 2 has 3 cells, and the first line has 2"),
        ("1,2\n3,4\n", "the first line has numbers, expected the names of the columns"),
        (b"a,b\n1,caf\xe9\n2,x\n", "line 2 is no text in UTF-8"),
        (b"a,b\n1,\0\n", "line 2 has zero bytes"),
        (b"PAR1....", "this is a Parquet file"),
        (b"\x1f\x8b....", "this file is packed (gzip)"),
    ],
)
def test_broken_tables(table: Any, text: str | bytes, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        table(text)
    assert "runs.csv: " in error.value.message
    assert problem in error.value.message
    assert error.value.hint


def test_header_alone(table: Any) -> None:
    runs, notes = table("run_id,acc\n")
    assert runs == []
    assert len(notes) == 1
    assert notes[0].endswith("runs.csv has names of columns, and no rows")


def test_encodings(table: Any) -> None:
    text = "run_id,größe\na,1\n"
    for content in (
        text.encode(),
        text.encode("utf-8-sig"),
        b"\xff\xfe" + text.encode("utf-16-le"),
        text.encode("utf-16"),
    ):
        [run], notes = table(content)
        assert run.id == "a"
        assert run.settings == {"größe": 1}
        assert not notes
    [run], _ = table(text.replace("\n", "\r\n"))
    assert run.settings == {"größe": 1}


def test_separators(table: Any) -> None:
    for name, separator in (
        ("runs.csv", ","),
        ("runs.csv", ";"),
        ("runs.csv", "\t"),
        ("runs.tsv", "\t"),
        ("runs.txt", "\t"),
    ):
        [run], _ = table(
            separator.join(["run_id", "a,b" if separator != "," else "ab", "c"]) + f"\nx{separator}1{separator}2\n",
            name,
        )
        assert run.id == "x"
        assert list(run.settings.values()) == [1, 2]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_places_that_cannot_be_read(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        read(tmp_path / "absent.csv", kind)
    with pytest.raises(UsageError, match="this is a folder, expected a file with a table"):
        read(tmp_path, kind)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no file or folder, but a stream"):
        read(tmp_path / "pipe", kind)
    with pytest.raises(LrurunError):
        read(Path("a\0b"), kind)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_permissions(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("a\n1\n")
    path.chmod(0)
    with pytest.raises(LrurunError, match="Permission denied"):
        read(path, kind)


def test_failing_disk(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", fail)
    reader = trackers.opened(Source(name=str(FILES / "runs-polars.csv")), "csv")
    with pytest.raises(LrurunError, match=r"runs-polars.csv: cannot be read: Permission denied"):
        reader.runs()


# JSON lines


def test_json_lines(table: Any) -> None:
    text = (
        '{"run_id": "a", "step": 1, "config": {"lr": 0.1, "layers": [1, 2]}, "loss": NaN, "acc": null}\n\n'
        '{"run_id": "a", "step": 2, "config": {"lr": 0.1, "layers": [1, 2]}, "loss": "Infinity", "acc": 0.5}\n'
        '{"run_id": "b", "step": 1, "config": {"lr": 0.2}, "loss": 1}\n'
    )
    runs, notes = table(text, "runs.jsonl")
    assert [run.settings for run in runs] == [{"lr": 0.1, "layers": [1, 2]}, {"lr": 0.2, "layers": None}]
    assert math.isnan(points(runs[0], "loss")[0][1])
    assert points(runs[0], "loss")[1] == (2, math.inf)
    assert points(runs[0], "acc") == [(2, 0.5)]
    assert runs[1].last == {"loss": 1.0}
    assert not notes


def test_mixed_json(table: Any) -> None:
    """Values of JSON have types, and keep them."""
    runs, notes = table('{"run_id": "a", "lr": 0.1}\n{"run_id": "b", "lr": "auto"}\n{"run_id": "c"}\n', "runs.jsonl")
    assert [run.settings["lr"] for run in runs] == [0.1, "auto", None]
    assert len(notes) == 1
    assert "'lr' has numbers (line 1) and texts (line 2): they are kept as they are" in notes[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ('{"a": 1}\n{"a": \n{"a": 3}\n', "line 2 is not JSON"),
        ("[1]\n", "line 1 is no object"),
        ('{"a": 1, "a": 2}\n', "line 1 names 'a' twice"),
        ('{"n": {"x": 1}, "n.x": 2}\n', "line 1 has 'n.x' both as a name and nested"),
        (b'{"a": "\xe9"}\n', "line 1 is no text in UTF-8"),
    ],
)
def test_broken_json(table: Any, text: str | bytes, problem: str) -> None:
    with pytest.raises(UsageError) as error:
        table(text, "runs.jsonl")
    assert problem in error.value.message
    assert error.value.hint


def test_half_written_json(table: Any) -> None:
    runs, notes = table('{"run_id": "a"}\n{"run_id": "b', "runs.jsonl")
    assert [run.id for run in runs] == ["a"]
    assert notes == [f"{runs[0].place}: the last line (2) is half-written, and left out"]


# Parquet


def test_types_of_parquet(tmp_path: Path) -> None:
    columns = {
        "run_id": pyarrow.array([1, 2], pyarrow.uint8()),
        "half": pyarrow.array([0.5, None], pyarrow.float16()),
        "price": pyarrow.array([1, 2]).cast(pyarrow.decimal128(30, 2)),
        "flag": pyarrow.array([None, True]),
        "when": pyarrow.array([0, None], pyarrow.timestamp("s")),
        "nothing": pyarrow.nulls(2),
        "text": pyarrow.array(["0.5", None], pyarrow.large_string()),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "runs.parquet")
    runs, _ = read(tmp_path / "runs.parquet")
    assert [run.id for run in runs] == ["1", "2"]
    assert runs[0].settings == {
        **{"half": 0.5, "price": 1.0, "flag": None, "when": "1970-01-01T00:00:00", "nothing": None, "text": "0.5"}
    }
    assert runs[1].settings == {
        **{"half": None, "price": 2.0, "flag": True, "when": None, "nothing": None, "text": None}
    }


def test_broken_parquet(tmp_path: Path) -> None:
    whole = (FILES / "steps-polars.parquet").read_bytes()
    path = tmp_path / "cut.parquet"
    for content in (whole[: len(whole) // 2], b"PAR1", b"run_id,x\n1,2\n", b""):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"cut.parquet: cannot be read as Parquet"):
            read(path, "parquet")
    path.write_bytes(whole[:40] + bytes(200) + whole[240:])
    with pytest.raises(UsageError, match=r"cut.parquet: cannot be read as Parquet"):
        read(path, "parquet")


def test_parquet_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LrurunError) as error:
        read(FILES / "steps-polars.parquet", "parquet")
    assert error.value.hint == "pip install 'lrurun[parquet]'"


# Recognition, and imports


def test_recognition(tmp_path: Path) -> None:
    kinds = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
    for path in FILES.iterdir():
        assert trackers.recognise(Source(name=str(path))).name == kinds[path.suffix]
    hidden = tmp_path / "table.csv"
    hidden.write_bytes((FILES / "nested.parquet").read_bytes())
    assert trackers.recognise(Source(name=str(hidden))).name == "parquet"
    assert trackers.recognise(Source(name="", frame=polars.DataFrame())).name == "frame"


def test_the_file_of_one_run_is_no_table(tmp_path: Path) -> None:
    """metrics.csv of Lightning, progress.csv of Ray: the settings are in the folder."""
    from lrurun.trackers.tables.csv import CsvReader

    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,2\n")
    assert CsvReader.recognises(Source(name=str(path)))
    (tmp_path / "hparams.yaml").write_text("lr: 1\n")
    assert not CsvReader.recognises(Source(name=str(path)))


@pytest.mark.parametrize("name", ["runs-polars.csv", "runs-polars.jsonl", "steps-polars.parquet"])
def test_light_imports(name: str) -> None:
    """Neither jax, nor pandas, whose import takes longer than reading."""
    code = (
        "import sys; from lrurun import trackers\n"
        f"list(trackers.opened(trackers.Source(name={str(FILES / name)!r})).runs(None))\n"
        "print([name for name in ('jax', 'pandas', 'polars', 'sqlalchemy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
