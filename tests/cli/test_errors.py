"""Errors of the command line: what they say, and the exit code of every exception."""

from __future__ import annotations

import re
import shlex
import sqlite3
from pathlib import Path

import pytest

from lrurun import paths
from lrurun.errors import LrurunError
from tests.harness.machine import Machine
from tests.harness.results import fill

SHOWN = """
ladder sDigts
ladder sDigits --ladder lur
ladder sDigits --rung tanh
ladder sDigits --profile smoek
ladder sDigits --sed 3
ladder sDigits --zzz
ladder sDigits --legder x
ladder sDigits more
ladder sDigits optim.lr=1
ladder sDigits 5
ladder sDigits --lr 0.1
ladder sDigits --batch=8
ladder sDigits --executor slurm
ladder images.npy
ladder
ladder sDigits --seeds
ladder sDigits --ledger
ladder sDigits --data-dir=
ladder sDigits --ledger mysql://host/db
ladder sDigits --data-dir gs://bucket/runs
ladder sDigits --seeds 0
ladder sDigits --seeds 3.5
ladder sDigits --set optim.lrr=1
ladder sDigits --set optim.lr=-1
ladder sDigits --set model.recurrence.r_min=nan
ladder ./no.toml
ladder sDigits --jobs 0
ladder sDigits --pack many
ladder sDigits --time-limit soon
ladder sDigits --name 1x --dry-run
ladder sDigits --ledger nowhere/ledger.db
ladder sDigits --runs-dir no/where
plan sDigits lru
plan sDigits own.py
plan sDigits --decide --max-seeds all
report sDigits a.csv
report 0123456789ab
report sDigits --format cvs
report sDigits --format json --format csv
report sDigits --json --format csv
report sDigits --csv
status --format csv
status --format json more
plot sDigits --json --out a.png
plot sDigits --format json --out a
plot sDigits --format svg --out a.png
ladder sDigits --json
ledger export --json
ledger export --to jsonl tables
report sDigits --out table.pdf
report sDigits --limit -1
report sDigits
report --instance none
report --instance none --methods
plot --instance none --out a.png
resume sDigits
plann sDigits
export
tag 3f2a x
ledger import
ledger pth
ledger
list ladder
list tasks memory
list studies memry
check recipe
check recipe sDigitz
check recipe lru
plan lru
plan train.py
plan sDigits --ladder npDigits
plot sDigits
plot --kind curves
new recipe
claims --task lru
compare
ledger delete
rm 3f2a
ledger restore
stop
restart
show 3f2a 81bc
show a X.npy
show 0123 --log --attempt 1.5
runs 3f2a
runs --limit -1
runs --limit 99999999999999999999999
bench --rounds 0
bench --seconds 1e3
status --watch --json
--ledgr x list
""".strip().splitlines()


def test_what_is_said_of_wrong_arguments(machine: Machine, golden) -> None:
    said = []
    for line in SHOWN:
        before = machine.files()
        done = machine.run(*shlex.split(line), code=None)
        assert (done.stdout, machine.files()) == ("", before), line
        said.append(f"$ lrurun {line}\n{done.stderr}exit code {done.returncode}\n")
    text = "\n".join(said).replace(str(machine.folder), "HERE")
    for folder in ("ablations", "recipes"):
        text = text.replace(", ".join(sorted(paths.names(folder))), f"[names in {folder}]")
    golden("errors.txt", re.sub(r"one of \d+ ", "one of N ", text))


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (LrurunError("it failed", "do this"), 1, "error: it failed\nhint: do this\n"),
        (OSError(28, "No space", "/there"), 1, "error: /there: No space\nhint: check the path, its space and perm"),
        (KeyError("x"), 1, "error: a bug in lrurun: KeyError: 'x'\nhint: --debug shows where; please report what it"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(143), 143, ""),
        (SystemExit("a reason"), 1, ""),
        (SystemExit(None), 0, ""),
    ],
)
def test_every_exception_has_its_exit_code_and_a_traceback_only_with_debug(
    raised, code, text, machine: Machine, monkeypatch
) -> None:
    def fail():
        raise raised

    monkeypatch.setattr("lrurun.commands.list._ladders", fail)
    plain = machine.run("list", code=code).stderr
    debug = machine.run("list", "--debug", code=code).stderr
    assert plain.startswith(text)
    assert plain.count("\n") == text.count("\n") + (text != "" and not text.endswith("\n"))
    assert debug.endswith(plain)
    assert debug.startswith("Traceback") == bool(text)


SMOKE = ("ladder", "sDigits", "--profile", "smoke", "--rung", "tanh-rnn")


def test_files_that_are_no_ledgers(machine: Machine) -> None:
    (machine.folder / "notes.txt").write_text("buy milk\n")
    change(machine.folder / "other.db", "create table milk (litres)")
    before = {path: path.read_bytes() for path in machine.folder.iterdir()}
    for name in ("notes.txt", "other.db"):
        for words in (SMOKE, ("runs",), ("status",), ("report", "sDigits"), ("ledger", "check"), ("ledger", "migrate")):
            said = machine.refused(*words, "--ledger", name, code=5)
            assert f"error: {machine.folder / name} is not a ledger of lrurun\nhint: name another file" in said
            assert ("if it was one, it is damaged" in said) == (name == "notes.txt")
    assert {path: path.read_bytes() for path in machine.folder.iterdir()} == before
    (machine.folder / "kept.db.xz").write_bytes(b"compressed")
    said = machine.refused("runs", "--ledger", "kept.db.xz", code=5)
    assert said.endswith(f"hint: add its runs to yours: lrurun ledger merge {machine.folder / 'kept.db.xz'}\n")


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()


def test_ledgers_of_other_versions_are_not_touched(machine: Machine, monkeypatch) -> None:
    machine.run("ledger", "migrate")
    change(machine.ledger, "update lrurun_version set version_num = '9999'")
    content = machine.ledger.read_bytes()
    for words in (SMOKE, ("runs",), ("status",), ("ledger", "migrate")):
        said = machine.refused(*words, code=5)
        assert "newer" in said
        assert "pip install" in said
    assert machine.ledger.read_bytes() == content
    machine.ledger.unlink()
    machine.run("ledger", "migrate", "--ledger", "my k.db")
    monkeypatch.setattr("lrurun.ledger.database.sqlite.SCHEMA", "9001")
    for words in (("mark", "zz", "--tag", "good"), ("runs",)):
        said = machine.refused(*words, "--ledger", "my k.db", code=5)
        assert "migrate it, a backup is made: lrurun ledger migrate --ledger 'my k.db'\n" in said


def test_an_empty_file_is_not_made_a_ledger_by_readers(machine: Machine) -> None:
    machine.ledger.touch()
    for words, code in ((("runs",), 0), (("status",), 0), (("report", "sDigits"), 4)):
        machine.run(*words, code=code)
    assert machine.ledger.read_bytes() == b""
    assert machine.json("runs", "--ledger", "nowhere/ledger.db")["runs"] == []


def test_folders_in_which_nothing_can_be_created(machine: Machine) -> None:
    (machine.folder / "file").write_text("in the way")
    assert "error: file: the runs folder cannot be written: " in machine.refused(*SMOKE, "--runs-dir", "file", code=1)
    if Path("/proc/self").exists():
        said = machine.refused(*SMOKE, "--ledger", "/proc/x.db", code=1)
        assert "/proc/x-runs: the runs folder cannot be written: nothing can be created in /proc" in said
    for option in ("--ledger", "--runs-dir", "--data-dir"):
        said = machine.refused("runs", option, "~nobody-of-this-name/x")
        assert f"error: {option}: ~nobody-of-this-name/x: there is no such home folder" in said


def test_data_that_cannot_be_prepared_leave_no_new_folder_of_runs(machine: Machine, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise LrurunError("no data")

    monkeypatch.setattr("lrurun.session.preparing.prepare_data", fail)
    machine.refused(*SMOKE, code=1)
    assert not machine.runs.exists()
    machine.runs.mkdir()
    machine.refused(*SMOKE, code=1)
    assert machine.runs.exists()


def test_out_replaces_a_file_whole_and_no_ledger(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]})
    report = ("report", "sDigits", "--format", "md")
    text = machine.run(*report).stdout
    (machine.folder / "real.md").write_text("old")
    (machine.folder / "link.md").symlink_to("real.md")
    machine.run(*report, "--out", "link.md")
    assert (machine.folder / "link.md").is_symlink()
    assert (machine.folder / "real.md").read_text() == text
    machine.run("report", "sDigits", "--out", "by-ending.MD")
    assert (machine.folder / "by-ending.MD").read_text() == text
    machine.run("report", "sDigits", "--out", "by-ending.json")
    assert machine.json("report", "sDigits")["rows"]
    assert (machine.folder / "by-ending.json").read_text().startswith("{")
    assert ".: Is a directory" in machine.refused(*report, "--out", ".", code=1)
    assert "missing" in machine.refused(*report, "--out", "missing/table.md", code=1)
    said = machine.refused("report", "sDigits", "--format", "csv", "--out", "ledger.db")
    assert "--out ledger.db: is a database, and would be lost" in said
    assert "ladder 'lruu': this ledger has no runs of it" in machine.refused("runs", "--ladder", "lruu", code=4)
    assert machine.states() == {"done": 1}


@pytest.mark.slow
def test_out_may_be_a_pipe(machine: Machine) -> None:
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]})
    report = ("report", "sDigits", "--format", "md")
    assert machine.run(*report, "--out", "/dev/stdout", apart=True).stdout == machine.run(*report).stdout


def test_texts_of_a_ledger_do_not_reach_the_terminal_raw(machine: Machine) -> None:
    """The text of a ledger is data: escape sequences and markup in it have no effect."""
    fill(machine.ledger, "sDigits", {"tanh-rnn": [0.5]})
    change(machine.ledger, "update ladder_runs set rung = char(27) || '[31m[red]tanh' || char(7)")
    change(machine.ledger, "update events set text = char(27) || ']0;owned' || char(7)")
    [run] = machine.json("runs")["runs"]
    for words in (("runs",), ("status", "--details"), ("show", run["id"])):
        text = machine.run(*words).stdout
        assert not {"\x1b", "\x07"} & set(text)
        assert words[0] == "show" or "[red]tanh" in text


@pytest.mark.slow
def test_a_worker_that_always_dies_ends_the_command(machine: Machine) -> None:
    """The command ends soon, with the reason, if no worker can hold a run."""
    (machine.folder / "site").mkdir()
    (machine.folder / "site" / "sitecustomize.py").write_text(
        "import sys, os, signal\n"
        "if 'lrurun.runner.worker' in ' '.join(sys.orig_argv): os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    machine.run("data", "prepare", "sDigits")
    lines = machine.run(*SMOKE, code=1, env={"PYTHONPATH": str(machine.folder / "site")}).stderr.splitlines()
    assert lines[-2] == "error: a worker ended with SIGSEGV"
    assert lines[-1].startswith("hint: lrurun doctor")
    assert machine.states() == {"queued": 1}
