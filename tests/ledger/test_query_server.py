"""`lrurun query` on a server: SQL that reads, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from lrurun.config.runs import InstanceSpec
from lrurun.ledger import query
from lrurun.ledger.store import Ledger
from lrurun.server import Server
from tests.harness.commands import said
from tests.harness.servers import PrivateServer
from tests.harness.stores import ME, dump, want

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(postgres: PrivateServer) -> Iterator[Server]:
    """A ledger of three runs, one of them done."""
    made = postgres.ledger()
    with Ledger.open(made) as opened:
        key = opened.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        opened.enqueue(key, [want(seed=seed, position=seed) for seed in range(3)])
        claim = opened.claim(key, ME)
        assert claim is not None
        opened.finish(claim, "done", result={"val/accuracy": 0.5})
    yield made
    postgres.drop(made)


def asked(capsys: pytest.CaptureFixture[str], server: Server, *words: str) -> tuple[int, str, str]:
    return said(capsys, "--ledger", str(server), "query", *words)


def test_rows_are_a_table_and_json(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select seed, state, result is null as open, null as n from runs order by seed; -- the end"
    assert asked(capsys, server, sql) == (
        0,
        "seed  state   open  n\n   0  done       0\n   1  queued     1\n   2  queued     1\n",
        "",
    )
    sql = "select 1.5::numeric r, 3::numeric n, 'inf'::float8 i, '\\x00ff'::bytea b"
    sql += ", '{\"a\": [1]}'::json j, date '2026-11-22' d"
    assert json.loads(asked(capsys, server, sql, "--json")[1])["rows"] == [
        [1.5, 3, None, "00ff", '{"a": [1]}', "2026-11-22"]
    ]
    config = json.dumps(msgspec.to_builtins(want(seed=1).config), separators=(",", ":"))
    assert asked(capsys, server, "select config from runs where seed = 1")[1] == f"config\n{config}\n"
    assert asked(capsys, server, "select user_name is null as u from attempts")[1] == "u\n0\n"


@pytest.mark.parametrize(
    "sql",
    [
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
)
def test_statements_that_change_something_are_refused(
    server: Server, capsys: pytest.CaptureFixture[str], sql: str
) -> None:
    before = dump(server)
    code, out, err = asked(capsys, server, sql)
    assert (code, out) == (2, "")
    assert err.startswith("error: lrurun query can only read, and this query would do more; nothing was changed\n")
    assert dump(server) == before


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("selec 1", 'SQL: syntax error at or near "selec"'),
        ("select * from nowhere", 'SQL: relation "nowhere" does not exist'),
        ("select 1; delete from runs", "SQL: cannot insert multiple commands into a prepared statement"),
        ("select 1 / 0", "SQL: division by zero"),
        ("select '\0'", "SQL: "),
        ("", "the text contains no query"),
        ("/* a remark */", "the text contains no query"),
    ],
)
def test_errors_of_postgresql_are_shown(
    server: Server, capsys: pytest.CaptureFixture[str], sql: str, error: str
) -> None:
    code, out, err = asked(capsys, server, sql)
    assert (code, out, len(err.splitlines())) == (2, "", 2)
    assert err.startswith(f"error: {error}")


def test_too_many_rows_are_refused(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "MAX_ROWS", 2)
    assert asked(capsys, server, "select id from runs")[0] == 1
    assert asked(capsys, server, "select id from runs limit 2")[0] == 0


def test_users_that_reach_the_servers_files_cannot_query(
    server: Server, postgres: PrivateServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A query could undo SET ROLE, as in select set_config('role', 'none', false), query_to_xml(...)."""
    postgres.admin("DO $$ BEGIN CREATE ROLE files LOGIN; EXCEPTION WHEN duplicate_object THEN END $$")
    postgres.admin("GRANT pg_read_server_files TO files")
    postgres.admin("GRANT lrurun TO files")
    for user in ("postgres", "files"):
        code, out, err = asked(capsys, Server(server.text.replace("lrurun@", f"{user}@")), "select 1")
        assert (code, out) == (1, "")
        assert f"the user {user} of the ledger" in err
