"""Ledgers that another program has changed: reading commands show what they can, and change nothing."""

from __future__ import annotations

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from lrurun import console
from lrurun.__main__ import run as command
from tests.harness.hostile_texts import ODD, OURS, RAW, TEXTS, TOGETHER, check, formulas, parts
from tests.harness.results import fill

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


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of four finished runs without errors."""
    path = tmp_path_factory.mktemp("sound") / "ledger.db"
    fill(path, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7, 0.8]}, profile="smoke")
    with sqlite3.connect(path) as connection:
        connection.executescript("drop trigger runs_finished_stay; drop trigger runs_finished_not_deleted")
        connection.execute("drop trigger documents_stay")
        connection.execute("insert into tags select number, 'good' from runs")
        connection.execute(
            "insert into checkpoints (run, attempt, step, state, path) select number, 1, 20, 'committed',"
            " id || '/1/checkpoints/20' from runs"
        )
        connection.execute("update stored_runs set error = 'e'")
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    return path


@pytest.fixture
def ledger(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it in the working directory, whose data folder is empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("LRURUN_DATA", str(tmp_path / "data"))
    for name in ("FORCE_COLOR", "LRURUN_LEDGER", "LRURUN_RUNS"):
        monkeypatch.delenv(name, raising=False)
    console.set_verbosity(0)
    return Path(shutil.copy(sound, "ledger.db"))


def write(ledger: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    connection = sqlite3.connect(ledger)
    for statement, values in statements:
        connection.execute(statement, values)
    connection.commit()
    connection.close()


def ids(ledger: Path) -> list[str]:
    connection = sqlite3.connect(ledger)
    found = [row[0] for row in connection.execute("select id from runs order by number")]
    connection.close()
    return found


def arguments(ledger: Path, words: tuple[str, ...]) -> list[str]:
    first, second = ids(ledger)[:2]
    return [{"@": first, "@2": second}.get(word, word) for word in words]


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
@pytest.mark.parametrize("name", ["together", *ODD])
def test_texts_in_every_column_stay_texts(ledger: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = {**TEXTS, "together": TOGETHER}[name]
    statements = [one for one in PLACES if not (name == "nul" and "json" in one)]
    write(ledger, *((statement, (text,)) for statement in statements))
    runs = Path("runs") / ids(ledger)[0] / "1"
    runs.mkdir(parents=True)
    (runs / "log.txt").write_text(f"first\n{text}\nlast\n", errors="replace")
    before = ledger.read_bytes()
    for words in READERS:
        code = command(arguments(ledger, words))
        out, err = capsys.readouterr()
        if "html" in words:
            assert RAW.search(out) is None
        check(code, out, err, words)
        if "csv" in words:
            assert formulas(out) == []
    assert ledger.read_bytes() == before
    assert command(["ledger", "export", "--format", "csv", "--out", "tables"]) == 0
    for table in Path("tables").iterdir():
        assert formulas(table.read_text()) == [], table
        assert not RAW.search(table.read_text().replace("\r\n", "\n")), table
    capsys.readouterr()


@pytest.mark.slow
def test_no_text_makes_an_element_of_a_page(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page of a ledger full of hostile texts has the elements and attributes of a harmless one, and no others."""

    def page(text: str) -> set[tuple[str, ...]]:
        write(ledger, ("delete from exclusions", ()), ("delete from tags", ()))
        for statement in (
            "update stored_attempts set host = ?1, reason = ?1, code = ?1 || run",
            "insert into exclusions select number, ?1, 0 from runs where number = 4",
            "insert into tags select number, ?1 from runs",
            "update stored_runs set error = ?1",
        ):
            write(ledger, (statement, (text,)))
        assert command(["report", *SMOKE, "--format", "html"]) == 0
        return parts(capsys.readouterr().out)

    harmless = page("harmless")
    assert ("table",) in harmless or any(kind[0] == "table" for kind in harmless)
    for name in ("html", "markdown", "formula", "newline"):
        assert page(TEXTS[name]) == harmless, name
    assert page(TOGETHER) == harmless


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
        ("update stored_runs set created_at = ?", 9e99),
        ("update stored_runs set finished_at = ?", -9e99),
        ("update stored_attempts set started_at = ?", 9e307),
        ("update events set time = ?", 9e18),
        ("update stored_runs set step = ?", 2**62),
        ("update stored_runs set steps = ?", 0),
        ("update stored_runs set seed = ?", -(2**63)),
        ("update stored_attempts set n = ?", -5),
        ("update checkpoints set path = ?", ""),
        ("update stored_runs set parameters = ?", -1),
        ("update metrics set value = ?", 9e999),
        ("update metrics set step = -step where step > ?", 0),
    ],
)
def test_values_that_no_command_writes(
    ledger: Path, statement: str, value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    write(ledger, (statement, (value,)))
    failed = 0
    for words in READERS:
        code = command(arguments(ledger, words))
        out, err = capsys.readouterr()
        check(code, out, err, words)
        failed += code == 5
    assert failed < len(READERS), "query and check need none of these values"


@pytest.mark.slow
def test_the_check_finds_wrong_types_in_strict_columns(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With an edited schema there may be a blob in a column of numbers."""
    connection = sqlite3.connect(ledger)
    [(schema,)] = connection.execute("select sql from sqlite_master where name = 'stored_runs'").fetchall()
    connection.close()

    def edit(sql: str) -> None:
        write(
            ledger,
            ("pragma writable_schema = on", ()),
            ("update sqlite_master set sql = ? where name = 'stored_runs'", (sql,)),
        )

    edit(schema.rstrip().removesuffix("STRICT"))
    write(ledger, ("update stored_runs set step = ?, seed = 'zero', result = ?", (b"\x1b[31m\xff", b"\xff\x00")))
    edit(schema)
    assert command(["ledger", "check"]) == 1
    out, err = capsys.readouterr()
    assert "runs.step" in out
    assert "hold no JSON in result" in out
    check(1, out, err, ("ledger check",))
    for words in READERS:
        code = command(arguments(ledger, words))
        out, err = capsys.readouterr()
        assert code in (0, 1, 4, 5), words
        assert "Traceback" not in err
        assert not RAW.search(out + err), words


@pytest.mark.slow
@pytest.mark.parametrize("words", [("runs",), ("show", "@"), ("report", *SMOKE), ("status",)])
def test_a_terminal_gets_no_escape_but_our_own(ledger: Path, words: tuple[str, ...]) -> None:
    """The same under a pty, where colours are on: what is left without ours holds nothing raw."""
    for name in ("csi", "link", "clipboard", "c1", "return", "bidi"):
        write(
            ledger,
            *(
                (one.replace("set name = ?1", "set name = ?1 || name"), (TEXTS[name],))
                for one in PLACES
                if "insert into ladder" not in one and "exclusions" not in one
            ),
        )
    command_line = [sys.executable, "-m", "lrurun", *arguments(ledger, words)]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command_line, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm-256color"}
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
def test_completion_offers_nothing_that_a_shell_would_evaluate(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(ledger, ("update stored_runs set id = ? where number = 1", ("$(touch owned)",)))
    Path("recipes").mkdir()
    Path("ablations").mkdir()
    for kind in ("recipes", "ablations"):
        (Path(kind) / "`id`$(touch owned);x.toml").write_text("")
    for shell in ("zsh", "bash", "fish"):
        for word in ("show", "ladder", "plan"):
            line = f"lrurun {word} "
            request = {"_LRURUN_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, "COMP_WORDS": line}
            done = subprocess.run(
                [sys.executable, "-m", "lrurun"],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | request | {"COMP_CWORD": "2", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            )
            assert "touch" not in done.stdout
            assert "id`" not in done.stdout
            if word == "show":
                assert ids(ledger)[1] in done.stdout
            else:
                assert "sDigits" in done.stdout


def test_recorded_arguments_are_checked(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`resume` reads arguments from the ledger, and refuses those that no ladder command has written."""
    write(ledger, ("update stored_runs set state = 'queued'", ()))
    for text in (
        "{",
        "[]",
        '{"task": "sDigits"}',
        '{"task": 5}',
        "[" * 100_000,
        json.dumps(
            {
                "task": "../../etc/passwd",
                "ladder": "lru",
                "profile": None,
                "rungs": [],
                "seeds": None,
                "tune": False,
                "sets": [],
            }
        ),
        json.dumps(
            {
                "task": "sDigits",
                "ladder": "lru",
                "profile": "x\x1b[31m",
                "rungs": ["\x1b]0;t\x07"],
                "seeds": "1; rm -rf /",
                "tune": False,
                "sets": ["optim.lr=__import__('os')"],
            }
        ),
    ):
        write(
            ledger,
            ("delete from events", ()),
            ("insert into events (ladder, time, kind, text) values (1, 0, 'asked', ?)", (text,)),
        )
        code = command(["resume"])
        out, err = capsys.readouterr()
        check(code, out, err, [text[:80]])
        assert code in (2, 5), text[:80]
