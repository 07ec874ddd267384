"""Malicious arguments and surroundings: passwords, file names, a missing home folder."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import lrurun
from lrurun import console
from lrurun.__main__ import run as command
from lrurun.ledger.database import postgresql
from tests.harness.hostile_texts import TEXTS, TOGETHER, check

URLS = [
    "postgresql://user:s3cr3t@host/db",
    "postgresql+psycopg://user:s3cr3t@host:5432/db?sslmode=require",
    "postgresql://user:%733cr3t-s3cr3t@host/db",
    "postgresql://user:a/s3cr3t@host/db",
    "postgresql://user:p@s3cr3t@host/db",
    "postgresql://host/db?user=u&password=s3cr3t",
    "POSTGRESQL://user:s3cr3t@host/db",
]
COMMANDS = [
    ("runs",),
    ("ladder", "sDigits", "--profile", "smoke"),
    ("resume",),
    ("status", "--json"),
    ("query", "select 1"),
    ("ledger", "path"),
    ("ledger", "migrate"),
    ("ledger", "check"),
    ("show", "a"),
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LRURUN_DATA", str(tmp_path / "data"))
    console.set_verbosity(0)


@pytest.mark.slow
@pytest.mark.parametrize("url", URLS)
def test_no_password_is_printed(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in the URL of a database is in no output, no traceback and no file."""
    monkeypatch.setattr(postgresql, "OPENING", 0.1)  # no server answers, however long a command waits
    calls = [[*arguments, "--ledger", url] for arguments in COMMANDS] + [["ledger", "merge", url], ["runs", url]]
    for arguments in [*calls, *([*arguments, "--debug"] for arguments in calls)]:
        code = command(arguments)
        out, err = capsys.readouterr()
        assert "s3cr3t" not in out + err, arguments
        assert code in (1, 2, 4, 5), arguments
    monkeypatch.setenv("LRURUN_LEDGER", url)
    for arguments in COMMANDS:
        command([*arguments, "--debug"])
        out, err = capsys.readouterr()
        assert "s3cr3t" not in out + err, arguments
    for path in Path().rglob("*"):
        assert "s3cr3t" not in path.name
        assert not path.is_file() or b"s3cr3t" not in path.read_bytes()


def test_only_passwords_are_replaced() -> None:
    for url in URLS:
        assert "s3cr3t" not in console.redact(f"see '{url}' there"), url
    assert console.redact("x postgresql://u:pw@h/d y") == "x postgresql://u:***@h/d y"
    for text in ("http://example.org/a@b", "at 12:30, a@b.c", "ladder:/x", "path /a:b@c", "a: b @ c"):
        assert console.redact(text) == text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["together", "minus", "newline", "return"])
def test_hostile_arguments_give_errors_in_the_usual_format(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = {**TEXTS, "together": TOGETHER}[name]
    for arguments in (
        ["ladder", text],
        ["plan", "sDigits", "--ladder", text],
        ["plan", "sDigits", "--profile", text],
        ["plan", "sDigits", "--rung", text],
        ["plan", "sDigits", "--set", text],
        ["plan", "sDigits", "--set", f"optim.lr={text}"],
        ["plan", "sDigits", "--seeds", text],
        ["ladder", "sDigits", "--time-limit", text],
        ["show", text],
        ["runs", "--where", text],
        ["runs", "--sort", text],
        ["query", text],
        ["mark", text, "--tag", text],
        ["mark", text, "--note", text],
        ["mark", text, "--exclude", text],
        ["compare", text, text],
        ["show", text, "--log"],
        ["report", text],
        ["report", "sDigits", "--instance", text],
        ["check", "ladder", text],
        ["data", "info", text],
        ["runs", "--ledger", f"no/{text}".replace("\0", "")],
        [text],
        [f"--{text}"],
    ):
        code = command(arguments)
        out, err = capsys.readouterr()
        check(code, out, err, arguments)
    assert [path for path in Path().rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("document", "code"),
    [
        ("x = " + "[" * 50_000, 2),
        ("x = " + "{a=" * 20_000, 2),
        ("[" + ".".join(["a"] * 3_000) + "]", 2),
        ("seeds = 1" + "0" * 100_000, 2),
        ('title = "' + "x" * 10_000_000 + '"', 2),
        ('title = "\\u0000\\u001b[31m"', 2),
        ("title = '\x1b[31m'", 2),
        ("\x00", 2),
        ("# " + "\u202e" * 1000, 2),
        ('"\\u001b]0;t\\u0007" = 1', 2),
    ],
)
def test_hostile_documents_give_errors_of_two_lines(
    document: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("evil.toml").write_text(document)
    for arguments in (["check", "ladder", "evil.toml"], ["check", "recipe", "evil.toml"], ["plan", "./evil.toml"]):
        found = command(arguments)
        out, err = capsys.readouterr()
        check(found, out, err, ["ledger check"])
        assert found in (1, code), (arguments, err[-300:])


def test_a_missing_home_folder(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for option in ("--ledger", "--runs-dir", "--data-dir"):
        assert command(["runs", option, "~nobody-of-this-name/x"]) == 2
        out, err = capsys.readouterr()
        check(2, out, err)
        assert f"error: {option}: ~nobody-of-this-name/x: there is no such home folder" in err
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LRURUN_DATA")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert command(["runs"]) == 2
    assert "set HOME" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "a?b#c%41", "ä€", "\x1b[31mred", "a\nb", "'; drop", "b\udcff", "-x"])
def test_ledgers_of_odd_names(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRURUN_LEDGER", f"{name}.db")
    for arguments in (["ledger", "migrate"], ["runs"], ["status"], ["ledger", "check"], ["ledger", "path"]):
        code = command(arguments)
        out, err = capsys.readouterr()
        check(code, out, err, arguments)
        assert code == 0, (arguments, err)
    assert f"{name}.db" in {path.name for path in Path().iterdir()}


def test_nothing_on_disk_is_unpickled_or_evaluated() -> None:
    """No call that runs what it reads, in the whole package; pickles go through pipes between its own processes."""
    root = Path(lrurun.__file__).parent
    loads = 0
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            assert called not in ("eval", "os.system", "marshal.loads", "yaml.load", "joblib.load"), path
            # files that a command or a ladder names to be run are run there
            assert called != "exec" or path.name == "plugins.py", path
            assert not any(k.arg == "shell" for k in node.keywords), path
            if called.startswith(("pickle.", "cloudpickle.", "dill.")):
                assert path.name == "parallel.py", path
            if called in ("np.load", "numpy.load"):
                loads += 1
                assert ast.unparse({k.arg: k.value for k in node.keywords}["allow_pickle"]) == "False", path
    assert loads >= 1
