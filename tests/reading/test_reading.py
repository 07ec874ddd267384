"""`lrurun.open`: what it returns is what the commands print as JSON, also as data frames."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest

import lrurun
from lrurun.config.runs import InstanceSpec
from lrurun.errors import LrurunError, NotFoundError, UsageError
from lrurun.ledger.ledger import Ledger
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.stores import key, ledger, path, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


def cells(frame: Any, row: int) -> dict[str, Any]:
    """A row of a data frame as JSON has it."""
    table = frame.iloc[row].to_dict() if isinstance(frame, pandas.DataFrame) else frame.row(row, named=True)
    clean = {}
    for name, value in table.items():
        missing = value is None or value is pandas.NA or value is pandas.NaT or value != value
        clean[name] = None if missing else value
    return clean


def test_runs_are_those_of_the_command(finished: Machine) -> None:
    expected = finished.json("runs", "--where", "stage=train", "--sort", "-test/accuracy")["runs"]
    with lrurun.open(finished.ledger) as opened:
        found = opened.runs("stage=train", sort="-test/accuracy")
        assert [run.id for run in found] == [one["id"] for one in expected]
        for frame in (found.to_pandas(), found.to_polars()):
            assert len(frame) == len(expected) > 2
            for row, one in enumerate(expected):
                table = cells(frame, row)
                metrics = {name: table.get(name) for name in one["metrics"]}
                assert metrics == one["metrics"], "bit for bit"
                same = ("id", "fingerprint", "task", "ladder", "rung", "stage", "profile", "seed", "state", "step")
                assert {name: table[name] for name in same} == {name: one[name] for name in same}
                assert f"{table['finished_at']:%Y-%m-%dT%H:%M:%SZ}" == one["finished_at"]
                assert table["parameters"] == one["parameters"]
        config = finished.json("show", expected[0]["id"])["config"]
        first = cells(found.to_polars(), 0)
        assert first["optim.lr"] == config["optim"]["lr"]
        assert first["model.recurrence.kind"] == config["model"]["recurrence"]["kind"]
        assert [run.id for run in opened.runs(limit=2)] == [run.id for run in opened.runs()][:2]
        assert opened.runs(limit=0) == []
        assert opened.runs(ladder="other") == []
        part = found[1:3]
        assert part.to_polars().equals(found.to_polars()[1:3].select(part.to_polars().columns))
        assert part[0] is found[1]
        html = found._repr_html_()
        assert html.count("<tr>") == len(found) + 1
        assert "test/accuracy" in html
        assert "optim.lr" not in html
        assert repr(opened) == f"<lrurun ledger {finished.ledger}: {len(opened.runs())} runs>"


def test_metrics_are_those_of_the_command(finished: Machine) -> None:
    # without -shm and -wal, which SQLite also makes for readers, such as the tests beside this one
    before = {file: file.stat().st_mtime_ns for file in finished.folder.glob("*[!lm]")}
    opened = lrurun.open(str(finished.ledger))
    run = opened.runs("stage=train", limit=1)[0]
    expected = finished.json("show", run.id)["metrics"]
    for curves in (opened.metrics(run.id[:8]), opened.metrics(run), opened.metrics([run])):
        assert {
            one.key: [list(point) for point in zip(one.steps, one.values, strict=True)] for one in curves
        } == expected
    both = opened.metrics(where=f"id={run.id}", keys=["train/loss", "val/accuracy"])
    assert [one.key for one in both] == ["train/loss", "val/accuracy"]
    for frame in (both.to_pandas(), both.to_polars().to_pandas()):
        for name, curve in frame.groupby("key"):
            assert set(curve["run"]) == {run.id}
            assert [[s, v] for s, v in zip(curve["step"], curve["value"], strict=True)] == expected[name]
        assert [str(kind) for kind in frame.dtypes[-2:]] == ["int64", "float64"]
    loss = expected["train/loss"]
    [few] = opened.metrics(run, keys="train/loss", points=4)
    assert len(few) <= 4 < len(loss)
    assert {min(v for _, v in loss), max(v for _, v in loss)} <= set(few.values)
    assert f"<td>train/loss</td><td>{len(loss)}</td>" in both._repr_html_()
    opened.close()
    assert opened.runs(limit=1)[0].id == run.id, "a closed one opens again"
    opened.close()
    assert {file: file.stat().st_mtime_ns for file in finished.folder.glob("*[!lm]")} == before, "nothing is written"


@pytest.mark.slow
def test_reports_and_claims_are_those_of_the_commands(finished: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRURUN_LEDGER", str(finished.ledger))
    expected = finished.json("report", "sDigits", "--profile", "smoke")
    with lrurun.open() as opened:
        found = opened.report("sDigits", profile="smoke")
        key = found.report.instance.key
        assert opened.report("sDigits", instance=key[:6]).report == found.report
        claims = opened.claims(ladder="lru", task="sDigits")
    for frame in (found.to_pandas(), found.to_polars()):
        for row, one in enumerate(expected["rows"]):
            table = cells(frame.drop(columns=["published"]) if hasattr(frame, "iloc") else frame.drop("published"), row)
            same = ("rung", "n", "mean", "stderr", "verdict", "learning", "failure_bound", "steps_per_second")
            assert {name: table[name] for name in same} == {name: one[name] for name in same}
            compared = one["comparison"] or {}
            for name in ("other", "difference", "low", "improvement", "p_adjusted", "provisional"):
                assert table[f"comparison.{name}"] == compared.get(name), name
            assert list(table["runs"]) == one["runs"]
    with lrurun.open() as opened:  # the mean of a rung, from the runs in the data frame
        runs = opened.runs().to_pandas().set_index("id")
        for one in [one for one in expected["rows"] if one["n"]]:
            assert runs.loc[one["runs"], "test/accuracy"].mean() == pytest.approx(one["mean"], rel=1e-15)
    assert [claim.verdict for claim in found.report.claims] == [one["verdict"] for one in expected["claims"]]
    assert found._repr_html_().startswith('<iframe title="')
    assert "&lt;!doctype html&gt;" in found._repr_html_().lower()
    judged = finished.json("claims", "--ladder", "lru", "sDigits")["claims"]
    assert len(claims) == len(judged) > 3
    for frame in (claims.to_pandas(), claims.to_polars()):
        for row, one in enumerate(judged):
            table = cells(frame, row)
            assert table["text"] == one["text"]
            assert (table["here.verdict"], table["here.detail"]) == (one["here"]["verdict"], one["here"]["detail"])
    assert "<th>in this ledger</th>" in claims._repr_html_()


def test_values_that_are_not_finite_and_hostile_texts(ledger: Ledger, key: str) -> None:
    runs = ledger.enqueue(key, [want(seed=seed, rung="<script>alert(1)</script>\x1b[31m") for seed in range(2)])
    for _ in range(2):
        held = take(ledger, key)
        values = (math.nan, math.inf, -math.inf, 0.1) if held.run.id == runs[0].id else ()
        ledger.record(held, [(step, "train/loss", value) for step, value in enumerate(values, 1)], 4)
        result = {"test/loss": values[0], "val/loss": values[2], "best_step": 3} if values else None
        ledger.finish(held, "diverged" if values else "failed", result=result, error=None if values else "<b>no</b>")
    ledger.mark([runs[0].id], tag=["a&b", "c"])
    opened = lrurun.open(ledger.path.text if hasattr(ledger.path, "text") else ledger.path)
    found = opened.runs(sort="seed")
    frame = found.to_polars()
    assert math.isnan(frame["test/loss"][0])
    assert frame["test/loss"][1] is None
    assert frame["val/loss"].to_list() == [-math.inf, None]
    assert frame["best_step"].to_list() == [3, None]
    assert frame["tags"].to_list() == [["a&b", "c"], []]
    assert found.to_pandas()["best_step"].to_list() == [3, pandas.NA]
    assert abs(frame["created_at"][0] - datetime.now(UTC)).total_seconds() < 600
    [curve] = opened.metrics(where="seed=0")
    assert math.isnan(curve.values[0])
    assert list(curve.values)[1:] == [math.inf, -math.inf, 0.1]
    assert math.isnan(opened.metrics(runs[0].id).to_pandas()["value"][0])
    html = found._repr_html_() + opened.metrics()._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;" in html
    assert "a&amp;b, c" in html
    opened.close()


def test_a_missing_ledger_is_empty_until_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    opened = lrurun.open(file)
    assert opened.runs() == []
    assert opened.metrics() == []
    assert opened.metrics(where="seed=0") == []
    assert len(opened.runs().to_pandas()) == len(opened.runs().to_polars()) == 0
    assert {"id", "task", "state"} <= set(opened.runs().to_polars().columns)
    assert list(opened.metrics().to_pandas().columns) == ["run", "key", "step", "value"]
    assert opened.metrics().to_polars().schema["value"] == polars.Float64
    assert opened.runs()._repr_html_().endswith("<p>no rows</p>")
    assert repr(opened) == f"<lrurun ledger {file}: none yet>"
    claims = opened.claims(task="sCIFAR")
    assert claims
    assert {claim.here.verdict for claim in claims} == {"not run"}
    for ask in (lambda: opened.report("sDigits"), lambda: opened.metrics("a")):
        with pytest.raises(NotFoundError, match="there is no ledger at"):
            ask()
    assert not list(tmp_path.iterdir())
    with Ledger.open(file) as ledger:
        ledger.enqueue(ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key, [want()])
    assert len(opened.runs()) == 1
    opened.close()


def test_wrong_requests_say_what_is_wrong(finished: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lrurun.open(finished.ledger)
    run = opened.runs(limit=1)[0].id
    cases: list[tuple[Any, type[LrurunError], str, str]] = [
        (lambda: opened.runs("state="), UsageError, "where, column 7: expected a value", "as in: task="),
        (lambda: opened.runs("optim.lrr=1"), UsageError, "where, column 1: unknown name 'optim.lrr'", "'optim.lr'"),
        (lambda: opened.runs(sort="-stat"), UsageError, "sort: unknown name 'stat'", "'state'"),
        (lambda: opened.runs(limit=-1), UsageError, "limit: expected at least 0, found -1", "leave it out"),
        (lambda: opened.metrics("zzz"), NotFoundError, "no run 'zzz' in this ledger", "lrurun runs"),
        (lambda: opened.metrics(run, keys="train/los"), NotFoundError, "metric 'train/los'", "'train/loss'"),
        (lambda: opened.metrics(run, where="seed=0"), UsageError, "exclude each other", "leave one"),
        (lambda: opened.metrics(run, points=3), UsageError, "points: expected at least 4, found 3", "leave it out"),
        (lambda: opened.report("sDigit"), UsageError, "unknown task 'sDigit'", "'sDigits'"),
        (
            lambda: opened.report("sDigits", ladder="controls"),
            NotFoundError,
            "not in this ledger",
            "this ledger has: ladder lru",
        ),
        (lambda: opened.report("study:disk"), UsageError, "have no rungs", "lrurun report study:disk --json"),
        (lambda: opened.claims(paper="s5"), UsageError, "paper: unknown paper 's5'", "papers: lru"),
        (lambda: lrurun.open("mysql://x/y"), UsageError, "ledger: a ledger is an SQLite file", "postgresql"),
        (lambda: lrurun.open("postgres://x:y@h/d"), UsageError, "ledger: a password in a script", "LRURUN_LEDGER"),
        (lambda: lrurun.load(run, ledger="postgres://x:y@h/d"), UsageError, "ledger: a password in a", "PGPASSFILE"),
        (lambda: lrurun.open(__file__), LrurunError, "not", ""),
    ]
    for ask, kind, message, hint in cases:
        with pytest.raises(kind) as caught:
            ask()
        assert message in caught.value.message
        assert hint in (caught.value.hint or "")
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(LrurunError, match=f"{name} is not installed") as caught:
            getattr(opened.runs(), f"to_{name}")()
        assert caught.value.hint == f"install it: pip install 'lrurun[{name}]'"
    opened.close()


def test_arguments_of_another_type_are_refused(finished: Machine) -> None:
    opened = lrurun.open(finished.ledger)
    run = opened.runs(limit=1)[0].id
    cases: dict[str, Any] = {
        "where: expected text, found int": lambda: opened.runs(5),
        "sort: expected text, found int": lambda: opened.runs(sort=5),
        "limit: expected a whole number, found str": lambda: opened.runs(limit="a"),
        "limit: expected a whole number, found float": lambda: opened.runs(limit=2.0),
        "run: expected a run or an id, or several, found int": lambda: opened.metrics(5),
        "run: expected a run or an id, found int": lambda: opened.metrics([run, 5]),
        "keys: expected a name, or several, found int": lambda: opened.metrics(keys=5),
        "keys: expected a name, found NoneType": lambda: opened.metrics(keys=[None]),
        "where: expected text, found list": lambda: opened.metrics(where=[]),
        "points: expected a whole number, found str": lambda: opened.metrics(points="a"),
        "task: expected text, found int": lambda: opened.report(5),
        "sets: expected a mapping or a list": lambda: opened.report("sDigits", sets=5),
        "ladder: expected text, found int": lambda: opened.claims(ladder=5),
        "instance: expected text, found int": lambda: opened.claims(instance=5),
        "instance and ladder or task exclude each other": lambda: opened.claims(instance="sDigits", task="sDigits"),
        "ledger: expected a path or a URL, found int": lambda: lrurun.open(5),
        "ledger: expected a path or a URL": lambda: lrurun.load(run, ledger=opened),
        "files: expected a list of paths, found int": lambda: lrurun.open(files=5),
        "files: expected a list of paths, found str": lambda: lrurun.open(files="mine.py"),
        "files: expected a path, found int": lambda: lrurun.open(files=[5]),
        "run: expected text, found int": lambda: lrurun.load(5),
        "runs_dir: expected a path or a URL, found int": lambda: lrurun.load(run, runs_dir=5),
    }
    for message, ask in cases.items():
        with pytest.raises(UsageError) as caught:
            ask()
        assert message in caught.value.message
        assert caught.value.hint
    opened.close()


@pytest.mark.slow
def test_reading_imports_neither_jax_nor_data_frames(finished: Machine) -> None:
    code = f"""
import json, sys
import lrurun
with lrurun.open({str(finished.ledger)!r}) as opened:
    opened.runs("stage=train")._repr_html_()
    opened.metrics(keys="train/loss")
    opened.report("sDigits", profile="smoke")
    opened.claims(ladder="lru", task="sDigits")
print(json.dumps([name for name in ("jax", "flax", "pandas", "polars", "typer", "pyarrow") if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=finished.folder, check=True)
    assert json.loads(done.stdout) == []


def test_claims_are_judged_by_the_instance_that_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for sets, scores in ({}, [0.5, 0.52]), ({"optim.lr": 0.5}, [0.9, 0.95]):
        fill(machine.ledger, "sDigits", {"tanh-rnn": [0.6, 0.61], "linear-rnn": scores}, sets=sets)
    for name in ("sDigits", "sDigits-lr0.5"):
        expected = machine.json("claims", "--instance", name)["claims"]
        with lrurun.open(machine.ledger) as opened:
            found = opened.claims(instance=name)
        [key_of] = [one["instance"] for one in machine.json("status", "--instance", name)["ladders"]]
        assert {row.here.instance for row in found if row.here is not None} == {key_of}
        assert [row.here and row.here.verdict for row in found] == [
            row["here"] and row["here"]["verdict"] for row in expected
        ]
