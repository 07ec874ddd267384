"""`lrurun query`: SQL that reads, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import threading
import time
from pathlib import Path

import msgspec
import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger import query
from lrurun.ledger.database import files
from lrurun.ledger.store import Ledger
from tests.harness.commands import said
from tests.harness.machine import Machine
from tests.harness.stores import ME, dump, want


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of three runs, one of them done."""
    path = tmp_path_factory.mktemp("filled") / "ledger.db"
    with Ledger.open(path) as opened:
        key = opened.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        opened.enqueue(key, [want(seed=seed, position=seed) for seed in range(3)])
        claim = opened.claim(key, ME)
        assert claim is not None
        opened.finish(claim, "done", result={"val/accuracy": 0.5})
    return path


@pytest.fixture
def ledger(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of `filled` in the working directory."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(filled, tmp_path))


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return said(capsys, "query", *words)


def test_rows_are_a_table_and_json(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select seed, state, result is null as open, null as n from runs order by seed"
    assert asked(capsys, sql) == (
        0,
        "seed  state   open  n\n   0  done       0\n   1  queued     1\n   2  queued     1\n",
        "",
    )
    code, out, err = asked(capsys, sql, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "schema_version": 1,
        "columns": ["seed", "state", "open", "n"],
        "rows": [[0, "done", 0, None], [1, "queued", 1, None], [2, "queued", 1, None]],
    }
    assert asked(capsys, "select id from runs where 0") == (0, "id\n", "no rows\n")
    assert asked(capsys, "SELECT 1 AS a, 2 AS a; -- the end") == (0, "a  a\n1  2\n", "")
    assert asked(capsys, "with n(i) as (values (1), (2)) select sum(i) s from n") == (0, "s\n3\n", "")


def test_every_kind_of_value_is_printed(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select 9e999 as i, -1.5 as r, x'00ff' as b, cast(x'ff41' as text) as t, 9223372036854775807 as n"
    assert asked(capsys, sql)[1].split() == ["i", "r", "b", "t", "n", "inf", "-1.5", "00ff", "\ufffdA", str(2**63 - 1)]
    table = json.loads(asked(capsys, sql, "--json")[1])
    assert table["rows"] == [[None, -1.5, "00ff", "\ufffdA", 2**63 - 1]]
    assert table["finite"] is False
    assert asked(capsys, "select char(27) || '[31m[red]x' || char(7) as \"\x1b[1mc\"")[1] == "c\n[red]x\n"


def test_settings_are_columns_of_runs_as_in_old_ledgers(
    ledger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a file that cannot be written, and with the texts as they were given."""
    monkeypatch.setattr(files, "read_query", lambda path: ("immutable=1", None))
    sql = "select config, execution, provenance, seed, result is null from runs order by seed"
    rows = json.loads(asked(capsys, sql, "--json")[1])["rows"]
    assert [json.loads(row[0]) for row in rows] == [msgspec.to_builtins(want(seed=n).config) for n in range(3)]
    texts = [json.dumps(msgspec.to_builtins(want().execution), separators=(",", ":")), '{"data.rung":"recipe"}']
    assert [row[1:] for row in rows] == [[*texts, n, int(n > 0)] for n in range(3)]
    assert json.loads(asked(capsys, "select environment from attempts", "--json")[1])["rows"] == [["{}"]]


REFUSED = (
    "error: lrurun query can only read, and this query would do more; nothing was changed\n"
    "hint: start it with select; sqlite_master lists the tables\n"
)


@pytest.mark.parametrize(
    "sql",
    [
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
)
def test_statements_that_change_something_are_refused(
    ledger: Path, capsys: pytest.CaptureFixture[str], sql: str
) -> None:
    before = dump(ledger)
    assert asked(capsys, sql) == (2, "", REFUSED)
    assert dump(ledger) == before
    assert {path.name for path in ledger.parent.iterdir()} <= {"ledger.db", "ledger.db-wal", "ledger.db-shm"}


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("selec 1", 'SQL: near "selec": syntax error'),
        ("select * from nowhere", "SQL: no such table: nowhere"),
        ("select nought from runs", "SQL: no such column: nought"),
        ("select readfile('/etc/passwd')", "SQL: no such function: readfile"),
        ("select writefile('x', 'y')", "SQL: no such function: writefile"),
        ("select edit('x')", "SQL: no such function: edit"),
        ("select * from fsdir('/')", "SQL: no such table: fsdir"),
        ("select 1; delete from runs", "SQL: You can only execute one statement at a time."),
        ("select zeroblob(1000000000)", "SQL: string or blob too big"),
        ("select ?", "SQL: Incorrect number of bindings supplied. The current statement uses 1, and there are 0"),
        ("", "the text contains no query"),
        ("/* a remark */", "the text contains no query"),
    ],
)
def test_errors_of_sqlite_are_shown(ledger: Path, capsys: pytest.CaptureFixture[str], sql: str, error: str) -> None:
    code, out, err = asked(capsys, sql)
    assert (code, out, err.splitlines()[0].removesuffix(" supplied.")) == (2, "", f"error: {error}")
    assert len(err.splitlines()) == 2


def test_texts_that_are_no_query_are_refused(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for sql in ("select '\ud800'", "select '\0'", "(" * 10_000, "select " + "1+" * 500_000 + "1"):
        code, out, err = asked(capsys, sql)
        assert (code, out, len(err.splitlines())) == (2, "", 2), sql[:20]


def test_the_schema_can_be_queried(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "fingerprint" in asked(capsys, "pragma table_info(runs)")[1]
    assert "fingerprint" in asked(capsys, "select name from pragma_table_info('runs')")[1]
    assert "CREATE TABLE" in asked(capsys, "select sql from sqlite_master")[1]
    assert asked(capsys, "select key, value from json_each('{\"a\": 1}')")[1] == "key  value\na        1\n"
    text = asked(capsys, "select json_extract(result, '$.val/accuracy') as a from runs where seed = 0")[1]
    assert text == "  a\n0.5\n"


def test_no_ledger_and_a_file_that_is_no_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert asked(capsys, "select 1") == (
        4,
        "",
        "error: there is no ledger at ledger.db\nhint: name one with --ledger PATH\n",
    )
    assert list(tmp_path.iterdir()) == []
    Path("ledger.db").write_text("buy milk\n" * 100)
    assert asked(capsys, "select 1")[0] == 5


def test_a_ledger_that_cannot_be_written_can_be_queried(
    ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = sqlite3.connect(ledger)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    alone = Path(shutil.copy(ledger, ledger.parent / "alone.db"))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    code, out, err = asked(capsys, "select count(*) as n from runs", "--ledger", str(alone))
    assert (code, out) == (0, "n\n3\n")
    assert "is read-only: it is read as it is on disk" in err
    assert [path.name for path in alone.parent.glob("alone*")] == ["alone.db"]


def test_too_many_rows_are_refused(
    ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MAX_ROWS", 2)
    assert asked(capsys, "select id from runs") == (
        1,
        "",
        "error: the query has more than 2 rows\nhint: add a limit to it\n",
    )
    assert asked(capsys, "select seed from runs order by 1 limit 2")[0] == 0


def test_a_query_that_runs_for_ever_is_stopped_with_an_interrupt(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = "with n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.monotonic()
    try:
        assert asked(capsys, sql) == (130, "", "")
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - started < 5


def test_a_reader_that_leaves_early_is_no_error(ledger: Path, machine: Machine) -> None:
    sql = "with n(i) as (select 1 union all select i + 1 from n limit 100000) select i from n"
    process = machine.start("--ledger", str(ledger), "query", sql)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "i"
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(timeout=30) == 0
