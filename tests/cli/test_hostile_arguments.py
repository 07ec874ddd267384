"""Malicious arguments, documents and surroundings: passwords, file names, a missing home folder, pickles."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import lrurun
from lrurun import console
from lrurun.ledger.database import postgresql
from tests.harness.hostile_texts import TEXTS, TOGETHER, check
from tests.harness.machine import Machine

URLS = [
    "postgresql://user:s3cr3t@host/db",
    "postgresql+psycopg://user:s3cr3t@host:5432/db?sslmode=require",
    "postgresql://user:%733cr3t-s3cr3t@host/db",
    "postgresql://user:a/s3cr3t@host/db",
    "postgresql://user:p@s3cr3t@host/db",
    "postgresql://host/db?user=u&password=s3cr3t",
    "POSTGRESQL://user:s3cr3t@host/db",
]
READING = ("runs", "resume", "status --json", "query 'select 1'", "ledger path", "ledger check", "show a")


@pytest.mark.slow
@pytest.mark.parametrize("url", [URLS[2], URLS[4]])
def test_no_password_is_printed(url: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in the URL of a database is in no output, no traceback and no file."""
    monkeypatch.setattr(postgresql, "OPENING", 0.1)  # no server answers, however long a command waits
    ladder = ("ladder", "sDigits", "--profile", "smoke")
    for words in (ladder, *(line.split() for line in READING), ("ledger", "migrate"), ("ledger", "merge", url)):
        done = machine.run(*words, "--ledger", url, "--debug", code=None)
        assert "s3cr3t" not in done.stdout + done.stderr, words
        assert done.returncode in (1, 2, 4, 5), words
    machine.env["LRURUN_LEDGER"] = url
    for words in (ladder, ("runs",), ("ledger", "path"), ("runs", url)):
        done = machine.run(*words, code=None)
        assert "s3cr3t" not in done.stdout + done.stderr, words
    for name in machine.files():
        assert "s3cr3t" not in name
        assert b"s3cr3t" not in (machine.folder / name).read_bytes()


def test_only_passwords_are_replaced() -> None:
    for url in URLS:
        assert "s3cr3t" not in console.redact(f"see '{url}' there"), url
    assert console.redact("x postgresql://u:pw@h/d y") == "x postgresql://u:***@h/d y"
    for text in ("http://example.org/a@b", "at 12:30, a@b.c", "ladder:/x", "path /a:b@c", "a: b @ c"):
        assert console.redact(text) == text


@pytest.mark.parametrize(
    "text", [TOGETHER, pytest.param(TEXTS["newline"], marks=pytest.mark.slow)], ids=["together", "newline"]
)
def test_hostile_arguments_give_errors_in_the_usual_format(text: str, machine: Machine) -> None:
    plan = ["plan", "sDigits"]
    for words in (
        *([*plan, option, text] for option in ("--ladder", "--profile", "--rung", "--set", "--seeds")),
        [*plan, "--set", f"optim.lr={text}"],
        ["ladder", text],
        ["ladder", "sDigits", "--time-limit", text],
        ["runs", "--where", text],
        ["runs", "--sort", text],
        ["runs", "--ledger", f"no/{text}".replace("\0", "")],
        ["query", text],
        ["mark", text, "--note", text],
        ["mark", "a", "--tag", text],
        ["show", text],
        ["report", "sDigits", "--instance", text],
        ["check", "ladder", text],
        ["data", "info", text],
        [text],
        [f"--{text}"],
    ):
        done = machine.run(*words, code=None)
        check(done.returncode, done.stdout, done.stderr, words)
    assert machine.files() == []


@pytest.mark.parametrize(
    "document",
    [
        "x = " + "[" * 50_000,
        "x = " + "{a=" * 20_000,
        "[" + ".".join(["a"] * 3_000) + "]",
        "seeds = 1" + "0" * 100_000,
        'title = "\\u0000\\u001b[31m"',
        '"\\u001b]0;t\\u0007" = 1',
        "\x00",
    ],
    ids=range(7),
)
def test_hostile_documents_give_errors_of_two_lines(document: str, machine: Machine) -> None:
    (machine.folder / "evil.toml").write_text(document)
    for words in (["check", "ladder", "evil.toml"], ["plan", "./evil.toml"]):
        done = machine.run(*words, code=None)
        check(done.returncode, done.stdout, done.stderr, ["ledger check"])
        assert done.returncode in (1, 2), words


def test_a_missing_home_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_DATA_HOME"):
        machine.env.pop(name, None)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert "set HOME" in machine.refused("runs")


@pytest.mark.parametrize("name", ["a?b#c%41 ä€", "\x1b[31mred\na", "-x'; drop", "b\udcff"])
def test_ledgers_of_odd_names(name: str, machine: Machine) -> None:
    machine.env["LRURUN_LEDGER"] = f"{name}.db"
    for words in (["ledger", "migrate"], ["runs"], ["status"], ["ledger", "check"], ["ledger", "path"]):
        done = machine.run(*words)
        check(0, done.stdout, done.stderr, words)
    assert f"{name}.db" in machine.files()


RUNNING = ("eval", "exec", "system", "load", "loads", "Unpickler")


def test_nothing_on_disk_is_unpickled_or_evaluated() -> None:
    """No call that runs what it reads, in the whole package; pickles go through pipes between its own processes."""
    arrays = 0
    for path in Path(lrurun.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if not any(name in text for name in ("shell=", *(f"{one}(" for one in RUNNING))):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            assert not any(k.arg == "shell" for k in node.keywords), path
            if getattr(node.func, "id", getattr(node.func, "attr", "")) not in RUNNING:
                continue
            called = ast.unparse(node.func)
            assert called not in ("eval", "os.system", "marshal.loads", "joblib.load"), path
            # with loaders that make plain values only, see tests/trackers/test_yaml.py
            is_safe = path.parts[-2:] == ("trackers", "yaml.py") or "SafeLoader" in ast.unparse(node)
            assert called != "yaml.load" or is_safe, path
            # files that a command or a ladder names to be run are run there
            assert called != "exec" or path.name == "plugins.py", path
            assert path.name == "parallel.py" or not called.startswith(("pickle.", "cloudpickle.", "dill.")), path
            if called in ("np.load", "numpy.load"):
                arrays += 1
                assert ast.unparse({k.arg: k.value for k in node.keywords}["allow_pickle"]) == "False", path
    assert arrays >= 1
