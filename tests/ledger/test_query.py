"""`lrurun query`: SQL that reads, and nothing else, in files and on a server; and the views that it knows."""

from __future__ import annotations

import json
import math
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.errors import UsageError
from lrurun.ledger import query
from lrurun.ledger.database import files
from lrurun.ledger.ledger import Ledger
from lrurun.server import Location
from tests.harness.machine import Machine
from tests.harness.servers import PrivateServer
from tests.harness.stores import ME, SERVER, dump, machine_with, raw, take, want


@pytest.fixture(scope="module", params=["file", SERVER])
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A ledger of three runs, one of them done, in a file and on a server."""
    for machine in machine_with(request.param, tmp_path_factory.mktemp("query"), request):
        with Ledger.open(machine.ledger) as opened:
            key = opened.add_ladder("lru", "sDigits", None, InstanceSpec()).key
            opened.enqueue(key, [want(seed=seed, position=seed) for seed in range(3)])
            held = opened.hold(key, ME)
            assert held is not None
            opened.finish(held, "done", result={"val/accuracy": 0.5})
        yield machine


on_file = pytest.mark.parametrize("here", ["file"], indirect=True)
on_server = pytest.mark.parametrize("here", [SERVER], indirect=True)


def test_rows_are_a_table_and_json(here: Machine) -> None:
    sql = "select seed, state, result is null as open, null as n from runs order by seed; -- the end"
    done = here.run("query", sql)
    assert done.stdout == "seed  state   open  n\n   0  done       0\n   1  queued     1\n   2  queued     1\n"
    assert done.stderr == ""
    assert here.json("query", sql) == {
        "schema_version": 1,
        "columns": ["seed", "state", "open", "n"],
        "rows": [[0, "done", 0, None], [1, "queued", 1, None], [2, "queued", 1, None]],
    }
    done = here.run("query", "select id from runs where 1 = 0")
    assert (done.stdout, done.stderr) == ("id\n", "no rows\n")
    assert here.run("query", "with n(i) as (values (1), (2)) select sum(i) s from n").stdout == "s\n3\n"
    config = json.dumps(msgspec.to_builtins(want(seed=1).config), separators=(",", ":"))
    assert here.run("query", "select config from runs where seed = 1").stdout == f"config\n{config}\n"
    assert here.run("query", "select user_name is null as u from attempts").stdout == "u\n0\n"


@on_file
def test_every_kind_of_value_of_sqlite_is_printed(here: Machine) -> None:
    sql = "select 9e999 as i, -1.5 as r, x'00ff' as b, cast(x'ff41' as text) as t, 9223372036854775807 as n"
    words = here.run("query", sql).stdout.split()
    assert words == ["i", "r", "b", "t", "n", "inf", "-1.5", "00ff", "\ufffdA", str(2**63 - 1)]
    table = here.json("query", sql)
    assert table["rows"] == [[None, -1.5, "00ff", "\ufffdA", 2**63 - 1]]
    assert table["finite"] is False
    assert here.run("query", "SELECT 1 AS a, 2 AS a").stdout == "a  a\n1  2\n"
    escape = "select char(27) || '[31m[red]x' || char(7) as \"\x1b[1mc\""
    assert here.run("query", escape).stdout == "c\n[red]x\n"


@on_server
def test_every_kind_of_value_of_postgresql_is_printed(here: Machine) -> None:
    sql = "select 1.5::numeric r, 3::numeric n, 'inf'::float8 i, '\\x00ff'::bytea b"
    sql += ", '{\"a\": [1]}'::json j, date '2026-11-22' d"
    assert here.json("query", sql)["rows"] == [[1.5, 3, None, "00ff", '{"a": [1]}', "2026-11-22"]]


@on_file
def test_settings_are_columns_of_runs_as_in_old_ledgers(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a file that cannot be written, and with the texts as they were given."""
    with sqlite3.connect(here.ledger) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    monkeypatch.setattr(files, "read_query", lambda path: ("immutable=1", None))
    rows = here.json("query", "select config, execution, provenance, seed, result is null from runs order by seed")[
        "rows"
    ]
    assert [json.loads(row[0]) for row in rows] == [msgspec.to_builtins(want(seed=n).config) for n in range(3)]
    texts = [json.dumps(msgspec.to_builtins(want().execution), separators=(",", ":")), '{"data.rung":"recipe"}']
    assert [row[1:] for row in rows] == [[*texts, n, int(n > 0)] for n in range(3)]
    assert here.json("query", "select environment from attempts")["rows"] == [["{}"]]


WRITES = {
    "file": [
        "delete from runs",
        "DELETE FROM runs WHERE state = 'queued' RETURNING id",
        "update runs set seed = 7",
        "insert into ledger_info values ('a', 'b')",
        "with n as (select 1) insert into ledger_info select 'a', 'b'",
        "replace into ledger_info values ('a', 'b')",
        "drop table runs",
        "create table t (x)",
        "create temp table t (x)",
        "create temp view v as select 1",
        "create temp trigger t after insert on runs begin select 1; end",
        "alter table runs add column x",
        "attach 'other.db' as other",
        "attach ':memory:' as other",
        "detach main",
        "vacuum",
        "vacuum into 'copy.db'",
        "begin immediate",
        "commit",
        "savepoint s",
        "analyze",
        "reindex",
        "pragma user_version = 5",
        "pragma user_version",
        "pragma query_only = off",
        "pragma journal_mode = delete",
        "pragma wal_checkpoint(truncate)",
        "pragma writable_schema = on",
        "pragma temp_store_directory = '/'",
        "pragma trusted_schema = on",
        "pragma data_version",
        "pragma function_list",
        "select * from pragma_database_list",
        "attach database 'file:/etc/passwd?mode=ro' as p",
        "pragma optimize",
        "explain delete from runs",
        "select load_extension('libc.so.6')",
        "select fts3_tokenizer('simple')",
        "create virtual table v using fts5(x)",
    ],
    "server": [
        "delete from stored_runs",
        "/* a remark */ update stored_runs set seed = 7",
        "with n as (delete from stored_runs returning id) select * from n",
        "drop table stored_runs",
        "create table t (x int)",
        "copy stored_runs to program 'touch /tmp/lrurun-copied'",
        "copy stored_runs to '/tmp/lrurun-copied'",
        "do $$ begin delete from metrics; end $$",
        "set role postgres",
        "commit",
        "vacuum",
        "select nextval('events_id_seq')",
        "select pg_read_file('/etc/passwd')",
        "select lo_import('/etc/passwd')",
        "select pg_reload_conf()",
        "select set_config('transaction_read_only', 'off', false)",
    ],
}
MISTAKES = {
    "file": [
        ("selec 1", 'SQL: near "selec": syntax error'),
        ("select * from nowhere", "SQL: no such table: nowhere"),
        ("select nought from runs", "SQL: no such column: nought"),
        ("select readfile('/etc/passwd')", "SQL: no such function: readfile"),
        ("select writefile('x', 'y')", "SQL: no such function: writefile"),
        ("select edit('x')", "SQL: no such function: edit"),
        ("select * from fsdir('/')", "SQL: no such table: fsdir"),
        ("select 1; delete from runs", "SQL: You can only execute one statement at a time."),
        ("select zeroblob(1000000000)", "SQL: string or blob too big"),
        ("select ?", "SQL: Incorrect number of bindings supplied"),
        ("", "the text contains no query"),
        ("/* a remark */", "the text contains no query"),
    ],
    "server": [
        ("selec 1", 'SQL: syntax error at or near "selec"'),
        ("select * from nowhere", 'SQL: relation "nowhere" does not exist'),
        ("select 1; delete from runs", "SQL: cannot insert multiple commands into a prepared statement"),
        ("select 1 / 0", "SQL: division by zero"),
        ("select '\0'", "SQL: "),
        ("", "the text contains no query"),
        ("/* a remark */", "the text contains no query"),
    ],
}


def kind(here: Machine) -> str:
    return "file" if isinstance(here.ledger, Path) else "server"


def test_statements_that_change_something_are_refused(here: Machine) -> None:
    before = dump(here.ledger)
    for sql in WRITES[kind(here)]:
        error = here.run("query", sql, code=2).stderr
        begin = "error: lrurun query can only read, and this query would do more; nothing was changed\n"
        assert error.startswith(begin), sql
    assert dump(here.ledger) == before
    assert set(here.files()) <= {"ledger.db", "ledger.db-wal", "ledger.db-shm"}


def test_errors_of_the_database_are_shown(here: Machine) -> None:
    for sql, error in MISTAKES[kind(here)]:
        said = here.run("query", sql, code=2).stderr
        assert said.startswith(f"error: {error}"), sql
        assert len(said.splitlines()) == 2


@on_file
def test_texts_that_are_no_query_are_refused(here: Machine) -> None:
    for sql in ("select '\ud800'", "select '\0'", "(" * 10_000, "select " + "1+" * 500_000 + "1"):
        assert len(here.run("query", sql, code=2).stderr.splitlines()) == 2, sql[:20]


@on_file
def test_the_schema_can_be_queried(here: Machine) -> None:
    for sql, text in (
        ("pragma table_info(runs)", "fingerprint"),
        ("select name from pragma_table_info('runs')", "fingerprint"),
        ("select sql from sqlite_master", "CREATE TABLE"),
        ("select key, value from json_each('{\"a\": 1}')", "key  value\na        1\n"),
        ("select json_extract(result, '$.val/accuracy') as a from runs where seed = 0", "  a\n0.5\n"),
    ):
        assert text in here.run("query", sql).stdout


def test_no_ledger_and_a_file_that_is_no_ledger(machine: Machine) -> None:
    said = machine.refused("query", "select 1", code=4)
    assert said == "error: there is no ledger at ledger.db\nhint: name one with --ledger PATH\n"
    machine.ledger.write_text("buy milk\n" * 100)
    machine.refused("query", "select 1", code=5)


@pytest.mark.parametrize(("here", "filled"), [("file", "file")], indirect=True)
def test_a_ledger_that_cannot_be_written_can_be_queried(
    here: Machine, filled: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = [here.copy(tmp_path / "runs"), filled.copy(tmp_path / "views")]
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    for alone, table, count in zip(machines, ("runs", "results"), (3, 5), strict=True):
        before = alone.files()
        done = alone.run("query", f"select count(*) as n from {table}")
        assert done.stdout == f"n\n{count}\n"
        assert "is read-only: it is read as it is on disk" in done.stderr
        assert alone.files() == before


def test_too_many_rows_are_refused(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_ROWS", 2)
    said = here.run("query", "select id from runs", code=1).stderr
    assert said == "error: the query has more than 2 rows\nhint: add a limit to it\n"
    here.run("query", "select seed from runs order by 1 limit 2")


@on_file
def test_a_query_that_runs_for_ever_is_stopped_with_an_interrupt(here: Machine) -> None:
    sql = "with n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        done = here.run("query", sql, code=130)
        assert (done.stdout, done.stderr) == ("", "")
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


@on_file
@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(here: Machine) -> None:
    sql = "with n(i) as (select 1 union all select i + 1 from n limit 100000) select i from n"
    process = here.start("query", sql)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "i"
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 0


@on_server
def test_users_that_reach_the_servers_files_cannot_query(here: Machine, postgres: PrivateServer) -> None:
    """A query could undo SET ROLE, as in select set_config('role', 'none', false), query_to_xml(...)."""
    postgres.admin("DO $$ BEGIN CREATE ROLE files LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    postgres.admin("GRANT pg_read_server_files TO files")
    postgres.admin("GRANT lrurun TO files")
    for user in ("postgres", "files"):
        url = here.ledger.text.replace("lrurun@", f"{user}@")
        assert f"the user {user} of the ledger" in here.run("--ledger", url, "query", "select 1", code=1).stderr


# Views

SCORE = {"val/accuracy": 0.5, "val/loss": 1.0, "test/loss": 2.0}


def config(seed: int, lr: float, **recurrence: Any) -> dict[str, Any]:
    model = {"recurrence": {"kind": "dense", **recurrence}, "bidirectional": seed == 0}
    return {"task": "sDigits", "model": model, "optim": {"lr": lr}, "seed": seed}


def finish(
    ledger: Ledger, key: str, rung: str, number: int, state: str = "done", stage: str = "train", **of: Any
) -> Any:
    """Adds a run of this rung and seed, or trial, and finishes it with the result `of`; the held run."""
    settings = config(number, 0.25 * (number + 1), **({"kind": "diagonal", "r_min": 0.5} if rung == "ring" else {}))
    position = number if stage == "tune" else 5000 + number
    ledger.enqueue(key, [want(rung, number, position + 10_000 * (rung == "ring"), stage, config=settings)])
    held = take(ledger, key)
    if state == "done":
        ledger.record(held, [(100, name, value) for name, value in of["result"].items()], 100)
        ledger.finish(held, "done", result=of["result"])
    else:
        ledger.finish(held, "diverged", result={})
    return held


@pytest.fixture(scope="module", params=["file", SERVER])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Two rungs with two seeds each, one of them diverged; tuning runs; and runs that no view has."""
    for machine in machine_with(request.param, tmp_path_factory.mktemp("views"), request):
        fill(machine.ledger)
        yield machine


def fill(path: Location) -> None:
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
        ledger.record(take(ledger, key), [(10, "train/loss", 2.5), (10, "val/accuracy", math.nan)], 10)
        other = ledger.add_ladder("other", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(other, [want("shared", 0, 5000, fingerprint=fingerprint(path, "ring"), config=config(0, 0.25))])


def fingerprint(path: Location, rung: str) -> str:
    sql = "SELECT r.fingerprint FROM stored_runs r JOIN ladder_runs m ON m.run = r.number WHERE m.rung = ? AND "
    return str(raw(path, sql + "r.seed = 0 AND m.stage = 'train'", rung)[0][0])


def rows(machine: Machine, sql: str) -> list[tuple[Any, ...]]:
    return query.select(machine.ledger, sql)[1]


def test_a_rungs_mean_is_one_select(filled: Machine) -> None:
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


def test_settings_and_metrics_have_plain_names_and_their_types(filled: Machine) -> None:
    sql = "select optim_lr, model_recurrence_kind, model_recurrence_r_min, model_bidirectional, test_48_top_two"
    sql += ", test_48_top_two_2, test_loss from results where ladder = 'lru' and rung = '{}' order by seed"
    assert rows(filled, sql.format("ring")) == [
        (0.25, "diagonal", 0.5, 1, math.inf, None, 2.0),
        (0.5, "diagonal", 0.5, 0, None, 0.125, 2.0),
    ]
    assert rows(filled, sql.format("dense"))[0] == (0.25, "dense", None, 1, math.inf, None, 2.0)
    assert rows(filled, "select max(duration) >= 0 as d, max(finished_at) > 1e9 as f from results") == [(1, 1)]


def test_trials_are_the_tuning_runs(filled: Machine) -> None:
    sql = "select rung, trial, optim_lr, val_accuracy from trials order by val_accuracy desc limit 2"
    assert rows(filled, sql) == [("ring", 2, 0.5, 0.75), ("ring", 1, 0.25, 0.5)]
    assert rows(filled, "select count(*) from trials where test_accuracy is null") == [(4,)]


def test_views_are_used_in_longer_queries(filled: Machine) -> None:
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


def test_curves_have_a_row_for_each_value(filled: Machine) -> None:
    sql = "select rung, seed, stage, state, metric, step, value from curves where step = 10 order by metric"
    assert rows(filled, sql) == [
        ("ring", 7, "train", "running", "train/loss", 10, 2.5),
        ("ring", 7, "train", "running", "val/accuracy", 10, None),
    ]


def test_an_unknown_column_has_a_hint(filled: Machine) -> None:
    with pytest.raises(UsageError) as caught:
        query.select(filled.ledger, "select test_acuracy from results")
    assert "test_acuracy" in caught.value.message
    assert "test_accuracy" in f"{caught.value.message} {caught.value.hint}"
    assert "lrurun query --views" in (caught.value.hint or "")
    with pytest.raises(UsageError) as caught:
        query.select(filled.ledger, "select metric from results")
    assert "metric is a column of curves; " in (caught.value.hint or "")


def test_queries_on_views_change_nothing(filled: Machine) -> None:
    for sql in ("delete from results", "with n as (delete from stored_runs returning id) select * from n, results"):
        with pytest.raises(Exception, match=r"can only read|syntax error|near"):
            query.select(filled.ledger, sql)
    assert rows(filled, "select count(*) from stored_runs")[0][0] > 5


@pytest.mark.parametrize("filled", ["file"], indirect=True)
def test_columns_are_listed(filled: Machine) -> None:
    done = filled.run("query", "--views")
    lines = [line.split(maxsplit=1) for line in done.stdout.splitlines() if line]
    assert ["optim_lr", "optim.lr"] in lines
    assert ["test_48_top_two_2", "test@48/top_two"] in lines
    listed = filled.json("query", "--views")
    assert [view["name"] for view in listed["views"]] == ["results", "trials", "curves"]
    for view in listed["views"]:
        columns = query.select(filled.ledger, f"select * from {view['name']} limit 1")[0]
        assert columns == [column["name"] for column in view["columns"]]
        assert filled.run("query", f"pragma table_info({view['name']})").stdout.count("\n") == len(columns) + 1
    assert "--views and SQL exclude each other\n" in filled.run("query", "--views", "select 1", code=2).stderr
    assert "error: SQL is missing\nhint: as in: lrurun query 'select rung, " in filled.run("query", code=2).stderr


@pytest.mark.parametrize("kind", ["file", SERVER])
def test_an_empty_ledger_has_the_views(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for machine in machine_with(kind, tmp_path / "empty", request):
        assert rows(machine, "select rung, avg(test_accuracy) from results group by rung") == []
        counts = [rows(machine, f"select count(*) from {view}") for view in ("trials", "curves")]
        assert counts == [[(0,)], [(0,)]]
