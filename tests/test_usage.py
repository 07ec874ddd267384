"""The words of the command line: what is wrong is told in two lines, with its exit code, and nothing is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lrurun import __main__ as entry
from lrurun import console, paths
from lrurun.errors import LrurunError
from lrurun.ledger import Ledger
from tests import results

GOOD_RECIPE = """
task = "sDigits"
[about]
source = "ours"
expect = "anything"
device = "a core"
hours = 0
checked = "never"
[model]
depth = 1
width = 8
state = 8
[optim]
lr = 0.01
recurrent_factor = 0.5
weight_decay = 0.05
[train]
steps = 10
batch = 8
eval_every = 5
[rung.ring.model.recurrence]
r_min = 0.5
r_max = 0.9
"""
GOOD_LADDER = """
name = "bad"
title = "t"
source = "s"
[[rung]]
name = "plane"
title = "t"
change = { "model.recurrence.kind" = "diagonal" }
[[rung]]
name = "ring"
title = "t"
tunes = ["model.recurrence.r_min", "model.recurrence.r_max"]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory, and no settings from outside."""
    for name in [name for name in os.environ if name.startswith("LRURUN_")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    console.set_verbosity(0)


def tree() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*") if path.is_file())


def lrurun(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of a command that may write no file."""
    before = tree()
    code = entry.run(list(words))
    assert tree() == before
    out, err = capsys.readouterr()
    return code, out, err


RECIPES = "Image, ListOps, PathX, Pathfinder, Retrieval, SpeechCommands, Text, sCIFAR, sDigits"
TASKS = "sCIFAR, Image, ListOps, Text, Retrieval, Pathfinder, PathX, SpeechCommands, sDigits"
OF_LEDGER = "path, check, migrate, backup, merge, export, gc"
COMMANDS = (
    "ladder, resume, plan, status, runs, show, report, plot, compare, query, logs, tag, note, exclude, list, check, "
    "doctor, bench, data, ledger"
)


@pytest.mark.parametrize("command", ["ladder", "plan"])
@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["sDigts"], "unknown task 'sDigts'", f"did you mean 'sDigits'? tasks: {RECIPES}"),
        (
            ["sDigits", "--ladder", "lur"],
            "unknown ladder 'lur'",
            "did you mean 'lru'? ladders: dlr, lru, nonlinearity, rotrnn, ssm, stability",
        ),
        (
            ["sDigits", "--rung", "tanh"],
            "ablations/lru.toml: unknown rung 'tanh'",
            "did you mean 'tanh-rnn'? rungs: tanh-rnn, linear-rnn, diagonal, exponential, stable-exponential, "
            "ring-init, gamma-norm, small-phase",
        ),
        (
            ["sDigits", "--profile", "smoek"],
            "recipes/sDigits.toml: unknown profile 'smoek'",
            "did you mean 'smoke'? profiles: smoke",
        ),
        (
            ["sDigits", "--sed", "3"],
            "no such option: --sed",
            "did you mean --seeds? lrurun @ --help lists what it takes",
        ),
        (["sDigits", "--zzz"], "no such option: --zzz", "lrurun @ --help lists what it takes"),
        (
            ["sDigits", "--legder", "x"],
            "no such option: --legder",
            "did you mean --ledger? lrurun @ --help lists what it takes",
        ),
        (["sDigits", "more"], "got unexpected extra argument(s) (more)", "lrurun @ --help lists what it takes"),
        ([], "missing argument 'TASK'", "lrurun @ --help lists what it takes"),
        (["sDigits", "--seeds"], "option '--seeds' requires an argument", "lrurun @ --help lists what it takes"),
        (["sDigits", "--ledger"], "option '--ledger' requires an argument", "as in --ledger PATH"),
        (["sDigits", "--runs-dir", "-q"], "option '--runs-dir' requires an argument", "as in --runs-dir PATH"),
        (
            ["sDigits", "--data-dir="],
            "--data-dir: expected a path, found nothing",
            "leave the option out, or name a path",
        ),
        (
            ["sDigits", "--ledger", "postgresql://host/db"],
            "--ledger: this version keeps its ledger in an SQLite file, found a postgresql URL",
            "give the path of a file, as in --ledger ledger.db",
        ),
        (
            ["sDigits", "--seeds", "0"],
            "--seeds 0: at least one seed is needed",
            "a number of seeds, as in --seeds 3, or a list, as in --seeds 0,4,7",
        ),
        (
            ["sDigits", "--seeds", "3.5"],
            "--seeds 3.5: expected whole numbers",
            "a number of seeds, as in --seeds 3, or a list, as in --seeds 0,4,7",
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
def test_wrong_words_are_told_in_two_lines_and_nothing_is_written(command, words, error, hint, capsys):
    code, out, err = lrurun(capsys, command, *words)
    assert (code, out) == (2, "")
    assert err == f"error: {error}\nhint: {hint.replace('@', command)}\n"


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["plann", "sDigits"], "no such command 'plann'", f"did you mean 'plan'? commands: {COMMANDS}"),
        (["ledger", "pth"], "no such command 'pth'", f"did you mean 'path'? commands: {OF_LEDGER}"),
        ([], "lrurun: no command given", f"lrurun --help; commands: {COMMANDS}"),
        (["-q"], "lrurun: no command given", f"lrurun --help; commands: {COMMANDS}"),
        (["ledger"], "lrurun ledger: no command given", f"lrurun ledger --help; commands: {OF_LEDGER}"),
        (
            ["list", "ladder"],
            "invalid value for '[ladders|recipes|tasks|recurrences]': 'ladder' is not one of 'ladders', 'recipes', "
            "'tasks', 'recurrences'",
            "did you mean 'ladders'? known values: ladders, recipes, tasks, recurrences",
        ),
        (["check", "recipe"], "check recipe: expected a name, or --all", f"recipes: {RECIPES}"),
        (["check", "recipe", "sDigitz"], "unknown task 'sDigitz'", f"did you mean 'sDigits'? tasks: {RECIPES}"),
        (
            ["report", "sDigits", "--format", "cvs"],
            "invalid value for '--format': 'cvs' is not one of 'table', 'md', 'csv', 'json', 'latex', 'html'",
            "did you mean 'csv'? known values: table, md, csv, json, latex, html",
        ),
        (
            ["--ledgr", "x", "list"],
            "no such option: --ledgr",
            "did you mean --ledger? lrurun --help lists what it takes",
        ),
    ],
)
def test_wrong_commands_and_values_get_the_nearest_one(words, error, hint, capsys):
    assert lrurun(capsys, *words) == (2, "", f"error: {error}\nhint: {hint}\n")


def documents(kind: str, old: str, new: str) -> None:
    for name, text in (("recipes/sDigits.toml", GOOD_RECIPE), ("ablations/bad.toml", GOOD_LADDER)):
        if name.startswith(kind):
            assert old in text
            text = text.replace(old, new, 1)
        Path(name).parent.mkdir()
        Path(name).write_text(text)


@pytest.mark.parametrize("command", [["ladder", "sDigits"], ["plan", "sDigits", "--json"]])
@pytest.mark.parametrize(
    ("kind", "old", "new", "error", "hint"),
    [
        (
            "recipes",
            "lr = 0.01",
            "lr = 0.01.",
            "recipes/sDigits.toml: not valid TOML: Expected newline or end of document after a statement "
            "(at line 14, column 10)",
            "mend the line named above",
        ),
        (
            "recipes",
            "width",
            "widht",
            "recipes/sDigits.toml, model.widht: unknown name",
            "did you mean 'model.width'?",
        ),
        (
            "recipes",
            "width = 8",
            'width = "8"',
            'recipes/sDigits.toml, model.width: expected a whole number, found "8"',
            "change model.width in recipes/sDigits.toml",
        ),
        (
            "recipes",
            "r_max = 0.9",
            "r_max = 0.4",
            "recipes/sDigits.toml [rung.ring], model.recurrence: r_min must not be larger than r_max, found "
            "r_min = 0.5, r_max = 0.4",
            "change one of the values named above",
        ),
        (
            "recipes",
            "lr = 0.01",
            "lr = -0.01",
            "recipes/sDigits.toml, optim.lr: expected a number > 0, found -0.01",
            "change optim.lr in recipes/sDigits.toml",
        ),
        (
            "recipes",
            'task = "sDigits"',
            'task = "MNIST"',
            "recipes/sDigits.toml, task: unknown task 'MNIST'",
            f"tasks: {TASKS}",
        ),
        (
            "ablations",
            'tunes = ["model.recurrence.r_min", "model.recurrence.r_max"]',
            "",
            "ablations/bad.toml, rung ring: declares no change",
            'say what it moves: change = { "model.recurrence.activation" = "identity" }, or tunes = ["path"]',
        ),
        (
            "ablations",
            "model.recurrence.r_min",
            "model.recurrence.rmin",
            "ablations/bad.toml, rung ring, model.recurrence.rmin: unknown name",
            "did you mean 'model.recurrence.r_min'?",
        ),
        (
            "ablations",
            'name = "ring"',
            'name = "plane"',
            "ablations/bad.toml, rung plane: there are two rungs of this name",
            "rename one of them",
        ),
        (
            "ablations",
            'title = "t"',
            "title = [1]",
            "ablations/bad.toml, title: expected a string, found a list",
            "change title in ablations/bad.toml",
        ),
    ],
)
def test_wrong_files_are_told_in_two_lines_and_nothing_is_written(command, kind, old, new, error, hint, capsys):
    documents(kind, old, new)
    assert lrurun(capsys, *command, "--ladder", "bad") == (2, "", f"error: {error}\nhint: {hint}\n")


def test_the_good_documents_of_these_tests_are_good(capsys):
    documents("", "", "")
    code, out, err = lrurun(capsys, "plan", "sDigits", "--ladder", "bad", "--json")
    assert code == 0, err
    assert [rung["rung"] for rung in json.loads(out)["rungs"]] == ["plane", "ring"]


def test_a_local_file_that_hides_a_packaged_one_is_named(capsys):
    hiding = "using recipes/sDigits.toml, which hides the packaged file of that name\n"
    assert hiding not in lrurun(capsys, "plan", "sDigits")[2]
    documents("", "", "")
    code, _, err = lrurun(capsys, "plan", "sDigits", "--ladder", "bad")
    assert (code, err) == (0, hiding)
    # the same name as a path, and another name, hide nothing
    Path("mine.toml").write_text(GOOD_RECIPE)
    assert lrurun(capsys, "plan", "./mine.toml", "--ladder", "bad")[2] == ""


@pytest.mark.parametrize(
    "words",
    [
        ["-q", "--ledger", "x.db", "plan", "sDigits"],
        ["plan", "-q", "sDigits", "--ledger", "x.db"],
        ["plan", "sDigits", "--ledger=x.db", "--quiet"],
        ["--ledger", "y.db", "plan", "sDigits", "-qvq", "--ledger", "x.db"],
        ["plan", "--ledger", "x.db", "-q", "--", "sDigits"],
    ],
)
def test_global_options_stand_before_and_after_the_command(words, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr("lrurun.commands.plan", lambda places, asked, json: seen.append((places, asked)) or 0)
    assert lrurun(capsys, *words)[0] == 0
    [(places, asked)] = seen
    assert (str(places.ledger), str(places.runs), asked.task) == ("x.db", "runs", "sDigits")
    assert console.verbosity() == -1


def test_what_stands_behind_two_dashes_is_no_option():
    assert entry.hoist(["plan", "-v", "--", "-q", "--ledger"]) == (["-v"], ["plan", "--", "-q", "--ledger"])


def test_options_win_over_the_environment_and_that_over_the_defaults(monkeypatch, tmp_path):
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
    assert paths.places("a/l.db").runs == Path("a/runs")


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///x.db", "x.db"), ("sqlite:////tmp/x.db", "/tmp/x.db"), ("sqlite+pysqlite:///a/x.db", "a/x.db")],
)
def test_an_sqlite_url_is_a_path(url, path):
    assert paths.places(url).ledger == Path(path)


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (LrurunError("it is so", "do this"), 1, "error: it is so\nhint: do this\n"),
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
        (SystemExit("words"), 1, ""),
        (SystemExit(None), 0, ""),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_every_way_out_has_its_code_and_a_trace_only_with_debug(raised, code, text, debug, capsys, monkeypatch):
    def fail(what, *, json):
        raise raised

    monkeypatch.setattr("lrurun.inventory.list_", fail)
    found, _, err = lrurun(capsys, "list", *(["--debug"] if debug else []))
    assert found == code
    assert err.endswith(text)
    assert err.startswith("Traceback") == (debug and bool(text))
    assert debug or err == text


def test_check_refuses_what_plan_refuses(capsys):
    documents("recipes", "width", "widht")
    error = "error: recipes/sDigits.toml, model.widht: unknown name\nhint: did you mean 'model.width'?\n"
    assert lrurun(capsys, "check", "recipe", "sDigits") == (2, "", error)
    assert lrurun(capsys, "check", "recipe", "./recipes/sDigits.toml") == (2, "", error)
    assert lrurun(capsys, "check", "ladder", "bad")[0] != 0


def test_a_recipe_and_a_ladder_may_be_files_anywhere(capsys, tmp_path, monkeypatch):
    documents("", "", "")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recipe, ladder = tmp_path / "recipes/sDigits.toml", tmp_path / "ablations/bad.toml"
    code, out, err = lrurun(capsys, "plan", str(recipe), "--ladder", str(ladder), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["ladder"] == "bad"


def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    monkeypatch.setenv("_LRURUN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["lrurun", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    code, out, err = lrurun(capsys)
    assert (code, err) == (0, "")
    return out.split()


def test_the_shell_completes_names(monkeypatch, capsys):
    assert complete(monkeypatch, capsys, "plan", "sD") == ["sDigits"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--ladder", "non") == ["nonlinearity"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--rung", "st") == ["stable-exponential"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--ladder", "nonlinearity", "--rung", "r") == ["relu-rnn"]
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--profile", "s") == ["smoke"]
    # where there is nothing to complete from, nothing is said
    assert complete(monkeypatch, capsys, "plan", "nowhere", "--profile", "s") == []
    assert complete(monkeypatch, capsys, "plan", "sDigits", "--ladder", "no", "--rung", "r") == []
    assert complete(monkeypatch, capsys, "show", "a") == []


def test_the_shell_completes_what_is_in_the_ledger(monkeypatch, capsys, tmp_path):
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("LRURUN_LEDGER", str(path))
    results.fill(path, "sDigits", {"tanh-rnn": [0.5, 0.6], "linear-rnn": [0.7]})
    with Ledger.read(path) as ledger:
        ids, [instance] = [run.id for run in ledger.runs()], [ladder.key for ladder in ledger.ladders()]
    assert complete(monkeypatch, capsys, "show", ids[1][:4]) == [ids[1]]
    assert complete(monkeypatch, capsys, "show", "") == ids
    assert complete(monkeypatch, capsys, "show", "%") == []
    assert complete(monkeypatch, capsys, "plot", ids[0][:5]) == [ids[0]]
    assert complete(monkeypatch, capsys, "report", "sDigits", "--instance", instance[:3]) == [instance]
    assert complete(monkeypatch, capsys, "runs", "--sort", "optim.l") == ["optim.lr"]
    assert complete(monkeypatch, capsys, "runs", "--where", "seed=0&val/acc") == ["seed=0&val/accuracy"]
    path.write_bytes(b"no database" * 100)
    assert complete(monkeypatch, capsys, "show", "") == []
    assert complete(monkeypatch, capsys, "report", "sDigits", "--instance", "") == []
