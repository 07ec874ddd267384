"""Command-line arguments: errors of two lines, exit codes, global options."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun import console, paths
from lrurun.cli.arguments import split_global
from lrurun.errors import LrurunError
from tests.harness.commands import folder, lrurun

__all__ = ["folder"]  # a fixture

LADDERS = ", ".join(sorted(paths.names("ablations")))
RECIPES = ", ".join(sorted(paths.names("recipes")))
OF_LEDGER = "path, check, migrate, backup, merge, rebuild, export, gc"
COMMANDS = (
    "ladder, resume, plan, study, verify, status, runs, show, report, claims, plot, compare, query, ui, mark, doctor, "
    "list, new, check, bench, data, ledger"
)


@pytest.mark.parametrize("command", ["ladder", "plan"])
@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["sDigts"], "unknown task 'sDigts'", "did you mean 'sDigits'? it is one of 33 tasks"),
        (
            ["sDigits", "--ladder", "lur"],
            "unknown ladder 'lur'",
            f"did you mean 'lru'? ladders: {LADDERS}",
        ),
        (
            ["sDigits", "--rung", "tanh"],
            "ablations/lru.toml: unknown rung 'tanh'",
            "did you mean 'tanh-rnn'? rungs: tanh-rnn, linear-rnn, diagonal, exponential, stable-exponential, "
            "ring-init, gamma-norm, small-phase",
        ),
        (
            ["sDigits", "--profile", "smoek"],
            "sDigits: unknown profile 'smoek'",
            "did you mean 'smoke'? profiles: smoke",
        ),
        (
            ["sDigits", "--sed", "3"],
            "no such option: --sed",
            "did you mean --seeds? see lrurun @ --help",
        ),
        (["sDigits", "--zzz"], "no such option: --zzz", "see lrurun @ --help"),
        (
            ["sDigits", "--legder", "x"],
            "no such option: --legder",
            "did you mean --ledger? see lrurun @ --help",
        ),
        (
            ["sDigits", "more"],
            "lrurun @: unexpected argument 'more'",
            "see lrurun @ --help",
        ),
        (
            ["sDigits", "optim.lr=1"],
            "lrurun @: unexpected argument 'optim.lr=1'",
            "it looks like a setting: --set optim.lr=1",
        ),
        (["sDigits", "5"], "lrurun @: unexpected argument '5'", "it looks like a number of seeds: --seeds 5"),
        (["sDigits", "--lr", "0.1"], "no such option: --lr", "it is: --set optim.lr=0.1; see lrurun @ --help"),
        (["sDigits", "--batch=8"], "no such option: --batch", "it is: --set train.batch=8; see lrurun @ --help"),
        (
            ["images.npy"],
            "images.npy: an array, expected a task",
            "make a task of arrays: lrurun data import NAME --inputs X.npy --labels Y.npy",
        ),
        ([], "missing argument 'TASK'", "see lrurun @ --help"),
        (
            ["sDigits", "--seeds"],
            "option '--seeds' requires an argument",
            "see lrurun @ --help",
        ),
        (["sDigits", "--ledger"], "option '--ledger' requires an argument", "as in --ledger PATH"),
        (["sDigits", "--runs-dir", "-q"], "option '--runs-dir' requires an argument", "as in --runs-dir PATH"),
        (
            ["sDigits", "--data-dir="],
            "--data-dir: expected a path, found an empty text",
            "leave the option out, or name a path",
        ),
        (
            ["sDigits", "--ledger", "mysql://host/db"],
            "--ledger: a ledger is an SQLite file or a PostgreSQL database, found a mysql URL",
            "as in --ledger ledger.db, or --ledger postgresql+psycopg://USER@HOST/DATABASE",
        ),
        (
            ["sDigits", "--data-dir", "gs://bucket/runs"],
            "--data-dir: expected a path, found a gs URL",
            "of all folders only that of --runs-dir may be in an object store",
        ),
        (
            ["sDigits", "--seeds", "0"],
            "--seeds 0: at least one seed is needed",
            "a number of seeds, as in --seeds 3, or a list with ranges, as in --seeds 0-2,4,7; "
            "seed 0 alone is --seeds 0,",
        ),
        (
            ["sDigits", "--seeds", "3.5"],
            "--seeds 3.5: expected whole numbers",
            "a number of seeds, as in --seeds 3, or a list with ranges, as in --seeds 0-2,4,7; "
            "seed 0 alone is --seeds 0,",
        ),
        (["sDigits", "--set", "optim.lrr=1"], "--set optim.lrr: unknown name", "did you mean 'optim.lr'?"),
        (
            ["sDigits", "--set", "optim.lr=-1"],
            "--set optim.lr: expected a number > 0, found -1",
            "give it another value: --set optim.lr=...",
        ),
        (
            ["sDigits", "--set", "model.recurrence.r_min=nan"],
            "--set model.recurrence.r_min: expected a finite number, found nan",
            "give it another value: --set model.recurrence.r_min=...",
        ),
        (
            ["./no.toml"],
            "recipe: there is no file ./no.toml",
            f"give a path to a TOML file, or a name: {RECIPES}",
        ),
    ],
)
def test_invalid_arguments_give_an_error_of_two_lines_and_no_file(command, arguments, error, hint, capsys):
    code, out, err = lrurun(capsys, command, *arguments)
    assert (code, out) == (2, "")
    assert err == f"error: {error}\nhint: {hint}\n".replace("lrurun @", f"lrurun {command}")


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (
            ["resume", "sDigits"],
            "lrurun resume: unexpected argument 'sDigits'",
            "it looks like a task; lrurun resume takes --instance NAME, as lrurun status lists them",
        ),
        (["report", "0123456789ab"], "0123456789ab: a run, expected a task", "lrurun show 0123456789ab shows a run"),
        (["plann", "sDigits"], "no such command 'plann'", f"did you mean 'plan'? commands: {COMMANDS}"),
        (["export"], "no such command 'export'", "it is: lrurun ledger export"),
        (["tag", "3f2a", "x"], "no such command 'tag'", "it is: lrurun mark RUN --tag TAG"),
        (["ledger", "import"], "no such command 'import'", "it is: lrurun data import"),
        (
            ["show", "3f2a", "81bc"],
            "lrurun show: unexpected argument '81bc'",
            "it looks like a run, of which lrurun show takes one",
        ),
        (["ledger", "pth"], "no such command 'pth'", f"did you mean 'path'? commands: {OF_LEDGER}"),
        (["ledger"], "lrurun ledger: no command given", f"lrurun ledger --help; commands: {OF_LEDGER}"),
        (
            ["list", "ladder"],
            "list: expected one of ladders, recipes, tasks, recurrences, studies, found 'ladder'",
            "did you mean 'ladders'?",
        ),
        (["check", "recipe"], "check recipe: expected a name, or --all", f"recipes: {RECIPES}"),
        (["check", "recipe", "sDigitz"], "unknown task 'sDigitz'", "did you mean 'sDigits'? it is one of 33 tasks"),
        (
            ["report", "sDigits", "--format", "cvs"],
            "--format: expected one of table, md, csv, latex, html, found 'cvs'",
            "did you mean 'csv'?",
        ),
        (["ladder", "sDigits", "--foo"], "no such option: --foo", "see lrurun ladder --help"),
        (
            ["--ledgr", "x", "list"],
            "no such option: --ledgr",
            "did you mean --ledger? see lrurun --help",
        ),
    ],
)
def test_unknown_commands_and_values_get_the_nearest_one(arguments, error, hint, capsys):
    assert lrurun(capsys, *arguments) == (2, "", f"error: {error}\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("line", "expected", "found", "example"),
    [
        ("runs --limit -1", "whole number of at least 0", "-1", "--limit 20"),
        (
            "runs --limit 99999999999999999999999",
            "whole number of at most 2147483647",
            "99999999999999999999999",
            "--limit 20",
        ),
        ("ladder sDigits --jobs 0", "whole number of at least 1", "0", "--jobs 2"),
        ("ladder sDigits --pack many", "whole number from 1 to 64", "many", "--pack 4"),
        ("plan sDigits --decide --max-seeds all", "whole number from 1 to 2147483647", "all", "--max-seeds 12"),
        ("report sDigits --limit -1", "whole number of at least 0", "-1", "--limit 5"),
        ("show 0123 --log --attempt 1.5", "whole number from 1 to 2147483647", "1.5", "--attempt 1"),
        ("bench --rounds 0", "whole number of at least 1", "0", "--rounds 5"),
        ("bench --seconds 1e3", "number of at most 600", "1e3", "--seconds 2"),
        ("runs --limit " + "9" * 5000, "whole number from 0 to 2147483647", "9" * 37 + "...", "--limit 20"),
    ],
)
def test_numbers_out_of_range_are_refused(line, expected, found, example, capsys):
    option = example.split()[0]
    error = f"error: {option}: expected a {expected}, found {found!r}\nhint: as in {example}\n"
    assert lrurun(capsys, *line.split()) == (2, "", error)


@pytest.mark.parametrize(
    "arguments",
    [
        ["-q", "--ledger", "x.db", "plan", "sDigits"],
        ["plan", "-q", "sDigits", "--ledger", "x.db"],
        ["plan", "sDigits", "--ledger=x.db", "--quiet"],
        ["--ledger", "y.db", "plan", "sDigits", "-qvq", "--ledger", "x.db"],
        ["plan", "--ledger", "x.db", "-q", "--", "sDigits"],
    ],
)
def test_global_options_stand_before_and_after_the_command(arguments, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr("lrurun.commands.plan._print_plan", lambda *_: None)
    monkeypatch.setattr("lrurun.ledger.store.Ledger.read", lambda path: seen.append(path))
    assert lrurun(capsys, *arguments)[0] == 0
    assert list(map(str, seen)) == ["x.db"]
    assert console.verbosity() == -1


def test_arguments_after_two_dashes_are_not_options():
    assert split_global(["plan", "-v", "--", "-q", "--ledger"]) == (["-v"], ["plan", "--", "-q", "--ledger"])


def test_options_override_the_environment_which_overrides_the_defaults(monkeypatch, tmp_path):
    home = tmp_path / "home"
    assert paths.places() == paths.Places(ledger=Path("ledger.db"), runs=Path("runs"), data=home / "lrurun")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert paths.places().data == home / ".local/share/lrurun"
    for name in ("LEDGER", "RUNS", "DATA"):
        monkeypatch.setenv(f"LRURUN_{name}", f"env/{name}")
    assert paths.places() == paths.Places(ledger=Path("env/LEDGER"), runs=Path("env/RUNS"), data=Path("env/DATA"))
    given = paths.places("a/l.db", "~/r", "d")
    assert given == paths.Places(ledger=Path("a/l.db"), runs=home / "r", data=Path("d"))
    monkeypatch.setenv("LRURUN_RUNS", "")
    for ledger, runs in (
        ("ledger.db", "runs"),
        ("l.db", "l-runs"),
        ("ledger.db.backup-2", "runs"),
        ("e.1", "e.1-runs"),
    ):
        assert paths.places(f"a/{ledger}").runs == Path("a", runs)  # ledgers in one folder do not share theirs


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///x.db", "x.db"), ("sqlite:////tmp/x.db", "/tmp/x.db"), ("sqlite+pysqlite:///a/x.db", "a/x.db")],
)
def test_an_sqlite_url_is_a_path(url, path):
    assert paths.places(url).ledger == Path(path)


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (LrurunError("it failed", "do this"), 1, "error: it failed\nhint: do this\n"),
        (
            OSError(28, "No space left on device", "/there"),
            1,
            "error: /there: No space left on device\nhint: check the path, its space and permissions\n",
        ),
        (
            KeyError("x"),
            1,
            "error: a bug in lrurun: KeyError: 'x'\nhint: --debug shows where; please report what it says\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(143), 143, ""),
        (SystemExit("a reason"), 1, ""),
        (SystemExit(None), 0, ""),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_every_exception_has_its_exit_code_and_a_traceback_only_with_debug(
    raised, code, text, debug, capsys, monkeypatch
):
    def fail():
        raise raised

    monkeypatch.setattr("lrurun.commands.list._ladders", fail)
    found, _, err = lrurun(capsys, "list", *(["--debug"] if debug else []))
    assert found == code
    assert err.endswith(text)
    assert err.startswith("Traceback") == (debug and bool(text))
    assert debug or err == text
