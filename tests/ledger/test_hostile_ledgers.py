"""Ledgers that another program has changed: reading commands show what they can, and change nothing."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.hostile_texts import ODD, OURS, RAW, TEXTS, TOGETHER, check, formulas, parts
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once

SMOKE = ("sDigits", "--profile", "smoke")
READERS = [
    ("runs",),
    ("runs", "--json"),
    ("runs", "--where", "seed=0 and optim.lr<1", "--sort", "tag"),
    ("status",),
    ("status", "--json"),
    ("show", "@"),
    ("show", "@", "--json"),
    ("show", "@", "--toml"),
    ("compare", "@", "@2"),
    ("compare", "@", "@2", "--json"),
    ("show", "@", "--log"),
    ("report", *SMOKE),
    ("report", *SMOKE, "--json"),
    ("report", *SMOKE, "--speed"),
    *(("report", *SMOKE, "--format", kind) for kind in ("md", "csv", "latex", "html")),
    ("report", "--all"),
    ("report", "--all", "--format", "html"),
    ("plan", *SMOKE),
    ("query", "select * from runs, events, tags, exclusions, attempts, checkpoints limit 3"),
    ("query", "select * from runs, events, tags, exclusions, attempts, checkpoints limit 3", "--json"),
    ("ledger", "check"),
    ("ledger", "check", "--json"),
    ("ledger", "export"),
    ("ledger", "gc", "--dry-run", "--finished"),
]


FEW = [READERS[at] for at in (0, 2, 3, 6, 9, 12, 15, 21, 23)]
"""One reader of each kind."""


def make(folder: Path) -> None:
    """A ledger of four finished runs without errors."""
    machine = Machine(folder)
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7, 0.8]}, profile="smoke")
    connection = sqlite3.connect(machine.ledger)
    connection.executescript(
        "drop trigger runs_finished_stay; drop trigger runs_finished_not_deleted; drop trigger documents_stay;"
        "insert into tags select number, 'good' from runs;"
        "insert into checkpoints (run, attempt, step, state, path) select number, 1, 20, 'committed',"
        " id || '/1/checkpoints/20' from runs;"
        "update stored_runs set error = 'e'"
    )
    connection.close()


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    """A copy of it."""
    copy = Machine(once("hostile", make)).copy(tmp_path / "here")
    copy.env |= {"LRURUN_DATA": str(tmp_path / "data")}
    return copy


def write(here: Machine, *statements: tuple[str, tuple[object, ...]]) -> None:
    connection = sqlite3.connect(here.ledger)
    for statement, values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


def ids(here: Machine) -> list[str]:
    connection = sqlite3.connect(here.ledger)
    found = [row[0] for row in connection.execute("select id from runs order by number")]
    connection.close()
    return found


def arguments(here: Machine, words: tuple[str, ...]) -> list[str]:
    first, second = ids(here)[:2]
    return [{"@": first, "@2": second}.get(word, word) for word in words]


def checked(here: Machine, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs a command; whatever it finds, its output harms nobody."""
    done = here.run(*arguments(here, words), code=None)
    check(done.returncode, done.stdout, done.stderr, words)
    return done


PLACES = (
    "update ladder_runs set rung = ?1 || rung where run = 1",
    "update stored_runs set error = ?1, data_sha256 = ?1",
    "update documents set seed_at = null, text = json_set((select config from runs where number = 1),"
    " '$.model.recurrence.kind', ?1) where id = (select config_id from stored_runs where number = 1)",
    "update documents set text = json_set(text, '$.\"optim.lr\"', ?1)"
    " where id in (select provenance_id from stored_runs)",
    "update stored_runs set result = json_set(result, '$.' || json_quote(?1), 0.5) where number = 2",
    "update stored_attempts set host = ?1, reason = ?1, code = ?1 || n, boot = ?1, namespace = ?1",
    "update documents set text = json_set(text, '$.device', ?1, '$.' || json_quote(?1), ?1)"
    " where id in (select environment_id from stored_attempts)",
    "update metric_keys set name = ?1",
    "update checkpoints set path = ?1, sha256 = ?1",
    "insert into tags select number, ?1 from runs",
    "insert into exclusions select number, ?1, 0 from runs where number = 4",
    "insert into events (ladder, run, attempt, time, kind, text) values (1, 1, 1, 0, ?1, ?1)",
    "insert into ladders (kind, key, name, short_name, task, profile, spec, created_at)"
    " values ('training', ?1, ?1, ?1, ?1, ?1, json_object(?1, ?1), 0)",
    "insert into ladder_runs (ladder, run, rung, stage, position) select max(id), 3, ?1, ?1, 0 from ladders",
)
"""Every column of text that a reader shows."""

TEXT = "update documents set text = ?, seed_at = null where id in (select {})"
CONFIG = TEXT.format("config_id from stored_runs")


@pytest.mark.slow
@pytest.mark.parametrize("shift", [None, 0, 4])
def test_texts_in_every_column_stay_texts(here: Machine, shift: int | None) -> None:
    """All that do harm anywhere, together; those that do harm alone, another in each place."""
    harmful = [name for name in ODD if name != "nul"]
    for at, statement in enumerate(PLACES):
        text = TOGETHER if shift is None else TEXTS[harmful[(at + shift) % len(harmful)]]
        write(here, (statement, (text if shift is None or at % 5 or "json" in statement else TEXTS["nul"],)))
    runs = here.runs / ids(here)[0] / "1"
    runs.mkdir(parents=True)
    (runs / "log.txt").write_text(f"first\n{TOGETHER}\n{TEXTS['return']}\nlast\n", errors="replace")
    before = here.ledger.read_bytes()
    for words in READERS:
        done = checked(here, words)
        assert "html" not in words or RAW.search(done.stdout) is None
        assert "csv" not in words or formulas(done.stdout) == []
    assert here.ledger.read_bytes() == before
    here.run("ledger", "export", "--format", "csv", "--out", "tables")
    for table in (here.folder / "tables").iterdir():
        assert formulas(table.read_text()) == [], table
        assert not RAW.search(table.read_text().replace("\r\n", "\n")), table


@pytest.mark.slow
def test_no_text_makes_an_element_of_a_page(here: Machine) -> None:
    """The page of a ledger full of hostile texts has the elements and attributes of a harmless one, and no others."""

    def page(text: str) -> set[tuple[str, ...]]:
        write(here, ("delete from exclusions", ()), ("delete from tags", ()))
        for statement in (
            "update stored_attempts set host = ?1, reason = ?1, code = ?1 || run",
            "insert into exclusions select number, ?1, 0 from runs where number = 4",
            "insert into tags select number, ?1 from runs",
            "update stored_runs set error = ?1",
        ):
            write(here, (statement, (text,)))
        return parts(here.run("report", *SMOKE, "--format", "html").stdout)

    harmless = page("harmless")
    assert ("table",) in harmless or any(kind[0] == "table" for kind in harmless)
    for text in (TEXTS["newline"], TOGETHER):
        assert page(text) == harmless


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "value"),
    [
        (CONFIG, "{"),
        (CONFIG, "[]"),
        (CONFIG, "[" * 100_000),
        (CONFIG, '{"a":' * 100_000),
        (CONFIG, '{"task": 1, "model": [[["x"]]], "seed": "y"}'),
        ("update stored_runs set result = ?", '{"test/accuracy": "x"}'),
        ("update stored_runs set result = ?", '{"test/accuracy": [1]}'),
        ("update stored_runs set result = ?", '{"test/accuracy": null}'),
        ("update stored_runs set result = ?", '{"test/accuracy": 1e999}'),
        ("update stored_runs set result = ?", '{"val/accuracy": 1' + "0" * 5000 + "}"),
        (TEXT.format("execution_id from stored_runs"), "null"),
        (TEXT.format("provenance_id from stored_runs"), '{"optim.lr": 5}'),
        (TEXT.format("environment_id from stored_attempts"), "not json"),
        (
            TEXT.format("environment_id from stored_attempts"),
            '{"device": {"x": []}, "code": 7, "machine": "m", "packed": "p"}',
        ),
        ("update ladders set spec = ?", "7"),
        ("update ladders set spec = ?", '{"set": 5, "tune": "maybe"}'),
        ("update events set text = ?", "x" * 1_000_000),
    ],
)
def test_values_that_no_command_writes(here: Machine, statement: str, value: object) -> None:
    write(here, (statement, (value,)))
    codes = [checked(here, words).returncode for words in FEW]
    assert not all(code == 5 for code in codes), "query and check need none of these values"


@pytest.mark.slow
def test_numbers_that_no_command_writes(here: Machine) -> None:
    for statement, value in (
        ("update stored_runs set created_at = ? where number = 1", 9e99),
        ("update stored_runs set finished_at = ? where number = 1", -9e99),
        ("update stored_attempts set started_at = ? where run = 2", 9e307),
        ("update events set time = ? where run = 2", 9e18),
        ("update stored_runs set step = ? where number = 1", 2**62),
        ("update stored_runs set steps = ? where number = 3", 0),
        ("update stored_runs set seed = ? where number = 4", -(2**63)),
        ("update stored_attempts set n = ? where run = 4", -5),
        ("update checkpoints set path = ? where run = 1", ""),
        ("update stored_runs set parameters = ? where number = 2", -1),
        ("update metrics set value = ? where run = 1", 9e999),
        ("update metrics set step = -step where run = ?", 2),
    ):
        write(here, (statement, (value,)))
    codes = [checked(here, words).returncode for words in READERS]
    assert codes.count(0) > len(READERS) // 2


@pytest.mark.slow
def test_the_check_finds_wrong_types_in_strict_columns(here: Machine) -> None:
    """With an edited schema there may be a blob in a column of numbers."""
    connection = sqlite3.connect(here.ledger)
    [(schema,)] = connection.execute("select sql from sqlite_master where name = 'stored_runs'").fetchall()
    connection.close()

    def edit(sql: str) -> None:
        write(
            here,
            ("pragma writable_schema = on", ()),
            ("update sqlite_master set sql = ? where name = 'stored_runs'", (sql,)),
        )

    edit(schema.rstrip().removesuffix("STRICT"))
    write(here, ("update stored_runs set step = ?, seed = 'zero', result = ?", (b"\x1b[31m\xff", b"\xff\x00")))
    edit(schema)
    done = checked(here, ("ledger", "check"))
    assert done.returncode == 1
    assert "runs.step" in done.stdout
    assert "hold no JSON in result" in done.stdout
    for words in FEW:
        done = here.run(*arguments(here, words), code=None)
        assert done.returncode in (0, 1, 4, 5), words
        assert "Traceback" not in done.stderr
        assert not RAW.search(done.stdout + done.stderr), words


@pytest.mark.slow
@pytest.mark.parametrize("words", [("show", "@"), ("report", *SMOKE)])
def test_a_terminal_gets_no_escape_but_our_own(here: Machine, words: tuple[str, ...]) -> None:
    """The same under a pty, where colours are on: what is left without ours holds nothing raw."""
    for name in ("csi", "link", "clipboard", "c1", "return", "bidi"):
        write(
            here,
            *(
                (one.replace("set name = ?1", "set name = ?1 || name"), (TEXTS[name],))
                for one in PLACES
                if "insert into ladder" not in one and "exclusions" not in one
            ),
        )
    command_line = [sys.executable, "-m", "lrurun", *arguments(here, words)]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command_line,
        cwd=here.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    sent = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:
            break
        if not block:
            break
        sent += block
    process.wait(timeout=60)
    os.close(ours)
    text = sent.decode()
    assert len(text) > 50
    assert "http://evil" not in text
    assert "]52;" not in text
    assert "\x1b]" not in text
    plain = OURS.sub("", text).replace("\r\n", "\n")
    assert not RAW.search(plain), RAW.search(plain)
    assert not {"\x1b[2J", "\x1b[1;31mred"} & set(OURS.findall(text))


@pytest.mark.slow
def test_completion_offers_nothing_that_a_shell_would_evaluate(here: Machine) -> None:
    write(here, ("update stored_runs set id = ? where number = 1", ("$(touch owned)",)))
    for kind in ("recipes", "ablations"):
        (here.folder / kind).mkdir()
        (here.folder / kind / "`id`$(touch owned);x.toml").write_text("")
    for shell, word in (("zsh", "show"), ("bash", "ladder"), ("fish", "plan")):
        line = f"lrurun {word} "
        request = {"_LRURUN_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line}
        done = here.run(apart=True, env=request | {"COMP_CWORD": "2", "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
        assert "touch" not in done.stdout
        assert "id`" not in done.stdout
        assert (ids(here)[1] if word == "show" else "sDigits") in done.stdout


def test_recorded_arguments_are_checked(here: Machine) -> None:
    """`resume` reads arguments from the ledger, and refuses those that no ladder command has written."""
    write(here, ("update stored_runs set state = 'queued'", ()))
    strange: dict[str, object] = {
        "ladder": "lru",
        "profile": None,
        "rungs": [],
        "seeds": None,
        "tune": False,
        "sets": [],
    }
    for text in (
        "{",
        "[]",
        '{"task": "sDigits"}',
        '{"task": 5}',
        "[" * 100_000,
        json.dumps({"task": "../../etc/passwd", **strange}),
        json.dumps({"task": "sDigits", **strange, "profile": "x\x1b[31m", "rungs": ["\x1b]0;t\x07"]}),
        json.dumps({"task": "sDigits", **strange, "seeds": "1; rm -rf /", "sets": ["optim.lr=__import__('os')"]}),
    ):
        write(
            here,
            ("delete from events", ()),
            ("insert into events (ladder, time, kind, text) values (1, 0, 'asked', ?)", (text,)),
        )
        assert checked(here, ("resume",)).returncode in (2, 5), text[:80]
