"""The views of `lrurun query`: results, trials and curves, in files and on a server."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import UsageError
from lrurun.ledger import query
from lrurun.ledger.store import Ledger
from lrurun.server import Place, Server
from tests.harness.commands import said
from tests.harness.stores import on_file, path, raw, take, want

__all__ = ["path"]  # a fixture

SCORE = {"val/accuracy": 0.5, "val/loss": 1.0, "test/loss": 2.0}


def config(seed: int, lr: float, **recurrence: Any) -> dict[str, Any]:
    model = {"recurrence": {"kind": "dense", **recurrence}, "bidirectional": seed == 0}
    return {"task": "sDigits", "model": model, "optim": {"lr": lr}, "seed": seed}


def finish(
    ledger: Ledger, key: str, rung: str, number: int, state: str = "done", stage: str = "train", **of: Any
) -> Any:
    """Adds a run of this rung and seed, or trial, and finishes it with the result `of`; the claim."""
    settings = config(number, 0.25 * (number + 1), **({"kind": "diagonal", "r_min": 0.5} if rung == "ring" else {}))
    position = number if stage == "tune" else 5000 + number
    ledger.enqueue(key, [want(rung, number, position + 10_000 * (rung == "ring"), stage, config=settings)])
    claim = take(ledger, key)
    if state == "done":
        ledger.record(claim, [(100, name, value) for name, value in of["result"].items()], 100)
        ledger.finish(claim, "done", result=of["result"])
    else:
        ledger.finish(claim, "diverged", result={})
    return claim


@pytest.fixture
def filled(path: Place) -> Place:
    """Two rungs with two seeds each, one of them diverged; tuning runs; and runs that no view has."""
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec(tune=True)).key
        for rung in ("dense", "ring"):
            for number in range(2):
                score = 0.25 * number + (0.5 if rung == "ring" else 0.0)
                finish(ledger, key, rung, number, stage="tune", result=SCORE | {"val/accuracy": score})
        for rung, score in (("dense", 0.25), ("ring", 0.75)):
            finish(ledger, key, rung, 0, result=SCORE | {"test/accuracy": score, "test@48/top-two": math.inf})
        finish(ledger, key, "ring", 1, result=SCORE | {"test/accuracy": 0.5, "test@48/top_two": 0.125})
        finish(ledger, key, "dense", 1, "diverged")
        excluded = finish(ledger, key, "dense", 2, result=SCORE | {"test/accuracy": 0.0})
        ledger.mark([excluded.run.id], exclude="a test")
        cells = ledger.add_ladder("study", "study:memory", None, InstanceSpec(), kind="study").key
        [cell] = ledger.enqueue(cells, [want("cell", kind="study")])
        assert (cell.kind, ledger.ladder(cells).kind, ledger.run(excluded.run.id).kind) == (
            "study",
            "study",
            "training",
        )
        ledger.finish(take(ledger, cells), "done", result=SCORE)
        ledger.enqueue(key, [want("ring", 7, 15_007, config=config(7, 0.1))])
        other = ledger.add_ladder("other", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(other, [want("shared", 0, 5000, fingerprint=_fingerprint(path, "ring"), config=config(0, 0.25))])
    return path


def _fingerprint(path: Place, rung: str) -> str:
    sql = "SELECT r.fingerprint FROM stored_runs r JOIN ladder_runs m ON m.run = r.number WHERE m.rung = ? AND "
    return str(raw(path, sql + "r.seed = 0 AND m.stage = 'train'", rung)[0][0])


def rows(path: Place, sql: str) -> list[tuple[Any, ...]]:
    return query.select(path, sql)[1]


def test_a_rungs_mean_is_one_select(filled: Place) -> None:
    """Of finished final runs that count: diverged ones are rows without scores."""
    assert rows(filled, "select rung, avg(test_accuracy), count(*) from results group by rung order by rung") == [
        ("dense", 0.25, 2),
        ("ring", 0.625, 2),
        ("shared", 0.75, 1),
    ]
    found = rows(
        filled, "SELECT rung, seed, state, profile, steps FROM Results WHERE ladder = 'lru' ORDER BY rung, seed"
    )
    assert found == [
        ("dense", 0, "done", "smoke", 100),
        ("dense", 1, "diverged", "smoke", 100),
        ("ring", 0, "done", "smoke", 100),
        ("ring", 1, "done", "smoke", 100),
    ]


def test_settings_and_metrics_have_plain_names_and_their_types(filled: Place) -> None:
    sql = "select optim_lr, model_recurrence_kind, model_recurrence_r_min, model_bidirectional, test_48_top_two"
    sql += ", test_48_top_two_2, test_loss from results where ladder = 'lru' and rung = '{}' order by seed"
    assert rows(filled, sql.format("ring")) == [
        (0.25, "diagonal", 0.5, 1, math.inf, None, 2.0),
        (0.5, "diagonal", 0.5, 0, None, 0.125, 2.0),
    ]
    assert rows(filled, sql.format("dense"))[0] == (0.25, "dense", None, 1, math.inf, None, 2.0)
    assert rows(filled, "select max(duration) >= 0 as d, max(finished_at) > 1e9 as f from results") == [(1, 1)]


def test_trials_are_the_tuning_runs(filled: Place) -> None:
    sql = "select rung, trial, optim_lr, val_accuracy from trials order by val_accuracy desc limit 2"
    assert rows(filled, sql) == [("ring", 2, 0.5, 0.75), ("ring", 1, 0.25, 0.5)]
    assert rows(filled, "select count(*) from trials where test_accuracy is null") == [(4,)]


def test_views_are_used_in_longer_queries(filled: Place) -> None:
    best = "with best as (select rung, max(test_accuracy) as top from results group by rung)"
    assert rows(filled, f"/* a remark */ {best} select rung from best where top > 0.7 order by rung") == [
        ("ring",),
        ("shared",),
    ]
    recursive = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) "
    assert rows(filled, recursive + "select i, count(*) from n join results on seed < i group by i order by i") == [
        (1, 3),
        (2, 5),
        (3, 5),
    ]
    assert rows(
        filled, "select count(*) from results a join trials b on a.rung = b.rung and a.instance = b.instance"
    ) == [(8,)]
    own = "with results(a) as (select 7), trials as (select 8 as b) select a, b from results, trials"
    assert rows(filled, own) == [(7, 8)]
    assert rows(filled, "select 'results' as word") == [("results",)]


def test_curves_have_a_row_for_each_value(filled: Place) -> None:
    with Ledger.open(filled) as ledger:
        claim = take(ledger, ledger.ladders("lru")[0].key)
        ledger.record(claim, [(10, "train/loss", 2.5), (10, "val/accuracy", math.nan)], 10)
    sql = "select rung, seed, stage, state, metric, step, value from curves where step = 10 order by metric"
    assert rows(filled, sql) == [
        ("ring", 7, "train", "running", "train/loss", 10, 2.5),
        ("ring", 7, "train", "running", "val/accuracy", 10, None),
    ]


def test_an_unknown_column_has_a_hint(filled: Place) -> None:
    with pytest.raises(UsageError) as caught:
        query.select(filled, "select test_acuracy from results")
    assert "test_acuracy" in caught.value.message
    assert "test_accuracy" in f"{caught.value.message} {caught.value.hint}"
    assert "lrurun query --views" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        query.select(filled, "select metric from results")
    assert "metric is a column of curves; " in (caught.value.hint or "")


def test_queries_on_views_change_nothing(filled: Place) -> None:
    for sql in ("delete from results", "with n as (delete from stored_runs returning id) select * from n, results"):
        with pytest.raises(Exception, match=r"can only read|syntax error|near"):
            query.select(filled, sql)
    assert rows(filled, "select count(*) from stored_runs")[0][0] > 5


@on_file
def test_columns_are_listed(filled: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(filled.parent)
    code, out, err = said(capsys, "query", "--views")
    assert (code, err) == (0, "")
    lines = [line.split(maxsplit=1) for line in out.splitlines() if line]
    assert ["optim_lr", "optim.lr"] in lines
    assert ["test_48_top_two_2", "test@48/top_two"] in lines
    listed = json.loads(said(capsys, "query", "--views", "--json")[1])
    assert [view["name"] for view in listed["views"]] == ["results", "trials", "curves"]
    for view in listed["views"]:
        columns = query.select(filled, f"select * from {view['name']} limit 1")[0]
        assert columns == [column["name"] for column in view["columns"]]
        assert said(capsys, "query", f"pragma table_info({view['name']})")[1].count("\n") == len(columns) + 1
    assert said(capsys, "query", "--views", "select 1")[2].startswith("error: --views and SQL exclude each other\n")
    assert said(capsys, "query")[2].startswith("error: SQL is missing\nhint: as in: lrurun query 'select rung, ")


@on_file
def test_views_of_a_read_only_file(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect(filled)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    before = sorted(file.name for file in filled.parent.iterdir())
    assert rows(filled, "select count(*) from results") == [(5,)]
    assert sorted(file.name for file in filled.parent.iterdir()) == before


def test_an_empty_ledger_has_the_views(path: Place) -> None:
    Ledger.open(path).close()
    assert rows(path, "select rung, avg(test_accuracy) from results group by rung") == []
    assert rows(path, "select count(*) from trials") == rows(path, "select count(*) from curves") == [(0,)]
    assert isinstance(path, Path | Server)
