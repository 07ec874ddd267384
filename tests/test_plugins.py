"""Recurrences and tasks from outside: what they can do, when their code is run, and how they go wrong."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

import lrurun
from lrurun import __main__ as entry
from lrurun import commands, config, plugins
from lrurun import plan as planning
from lrurun.config import RECURRENCES
from lrurun.errors import LrurunError, UsageError
from lrurun.executors.local import LocalWorker
from lrurun.ledger.store import Ledger
from lrurun.tasks import TASKS
from tests.machine import Machine, stop, training, wait_for
from tests.test_inspection import said
from tests.test_readme import files as readme_files

AVERAGES = readme_files()["averages.py"]
LADDER = readme_files()["averages.toml"]

MAJORITY = """
import numpy as np

import lrurun
from lrurun.tasks.base import SPLITS, Source, Spec, Task, limited, portions

SIZES = {"train": 64, "validation": 32, "test": 32}


@lrurun.task
class Majority(Task):
    name = "Majority"
    title = "are most of nine bits set?"
    version = "1"
    classes = 2

    def sizes(self, options):
        return limited(options, SIZES)

    def spec(self, options, vocabulary=()):
        return Spec(name=self.name, kind="features", features=1, classes=2, length=9)

    def offline(self, options):
        def fill(writer, tell):
            for seed, split in enumerate(SPLITS):
                bits = np.random.RandomState(seed).randint(2, size=(self.sizes(options)[split], 9)).astype(np.uint8)
                writer.save(split, "inputs", bits)
                writer.save(split, "labels", (bits.sum(1) > 4).astype(np.uint8))

        return Source(kind="generated", text="nine fair bits", fill=fill, generator={"name": "bits"})
"""
RECIPE = """
task = "Majority"
[about]
source = "ours"
expect = "nothing"
device = "a core"
hours = 0
checked = "never"
[model]
depth = 1
width = 8
state = 4
[optim]
lr = 0.01
recurrent_factor = 0.5
weight_decay = 0.05
[train]
steps = 20
batch = 8
eval_every = 10
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    yield
    forget()


def forget() -> None:
    """Makes this process as one that has loaded nothing."""
    for what, name in list(plugins._SOURCES):
        plugins.forget(what, name)
    for state in (plugins._FILES, plugins._GIVEN, plugins._FOUND):
        state.clear()
    for name in [name for name in sys.modules if name.startswith("lrurun_plugin_") or name.split(".")[0] == "means"]:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the README's example in it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)
    Path("averages.py").write_text(AVERAGES)
    Path("averages.toml").write_text(LADDER)
    return tmp_path


def noted(text: str) -> str:
    """A plug-in that notes each time that its code is run."""
    return f"with open({str(Path('ran').absolute())!r}, 'a') as file:\n    file.write('x')\n{text}"


def enqueued(*words: str) -> list[str]:
    """The runs that a ladder of that file would train, in a ledger; their ids."""
    plan = planning.make("sDigits", ladder="averages.toml", profile="smoke", sets=list(words))
    with Ledger.open(Path("ledger.db")) as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        wanted = [w for rung in plan.rungs for w in planning.wanted_final(plan, rung, [0])]
        return [run.id for run in ledger.enqueue(key, wanted)]


def fingerprints(ladder: str) -> dict[str, str]:
    return {rung.name: config.fingerprint(rung.config) for rung in planning.make("sDigits", ladder=ladder).rungs}


def afresh(ladder: str) -> dict[str, str]:
    """The same, as another process sees it."""
    forget()
    return fingerprints(ladder)


@pytest.mark.slow
def test_the_readmes_example_is_short_and_sound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert AVERAGES.count("\n") < 40
    code, out, err = said(capsys, "check", "recurrence", "averages", "--load", "averages.py", "--json")
    assert (code, err) == (0, "checking averages\n")
    findings = json.loads(out)["findings"]
    assert len(findings) > 15
    assert all(finding["passed"] for finding in findings)
    assert {finding["name"] for finding in findings} == {"averages"}


@pytest.mark.slow
def test_the_suite_finds_what_is_wrong_with_a_plug_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backward scan that begins in the padding."""
    wrong = AVERAGES.replace("u if mask is None else jnp.where(mask[..., None], u, 0.0)", "u")
    Path("averages.py").write_text(
        wrong.replace("longest: float = 32.0", "longest: float = 32.0\n        fast: bool = True")
    )
    code, out, err = said(capsys, "check", "recurrence", "averages", "--load", "averages.py", "--json")
    assert code == 1
    findings = json.loads(out)["findings"]
    assert {f["name"] for f in findings} == {"averages", "averages, fast = False"}  # each choice is tried
    bad = {f["check"] for f in findings if not f["passed"]}
    assert bad == {"padding does not leak, both directions"}
    assert "checks failed: averages" in err


def own_ladder(machine: Machine) -> tuple[str, ...]:
    """Trains a ladder with a new recurrence on a new task; the words that name it."""
    here = machine.folder
    (here / "own").mkdir()
    (here / "own" / "mine.py").write_text(AVERAGES + MAJORITY)
    (here / "own" / "mine.toml").write_text(
        LADDER.replace("averages.py", "mine.py").replace(
            '"averages"\ntitle = "running averages i', '"mine"\ntitle = "i'
        )
    )
    (here / "Majority.toml").write_text(RECIPE)
    words = ("Majority.toml", "--ladder", "own/mine.toml")
    machine.env["XDG_DATA_HOME"] = str(here / "share")
    machine.run("ladder", *words, "--seeds", "1")
    return words


def test_a_ladder_of_ones_own_from_file_to_report(machine: Machine) -> None:
    words = own_ladder(machine)
    table = machine.json("report", *words)
    assert (table["task"], table["ladder"]) == ("Majority", "mine")
    assert [(row["rung"], row["n"]) for row in table["rows"]] == [("lru", 1), ("averages", 1)]
    assert all(0 <= row["mean"] <= 1 for row in table["rows"])
    assert "nothing to do" in machine.run("ladder", *words, "--seeds", "1").stderr


@pytest.mark.slow
def test_what_else_can_be_done_with_a_run_of_ones_own(machine: Machine) -> None:
    """Show, plot, load, train again; and what is said once the file has changed, or is gone."""
    words, here = own_ladder(machine), machine.folder
    runs = {run["rung"]: run for run in machine.json("runs")["runs"]}
    shown = {rung: machine.json("show", run["id"]) for rung, run in runs.items()}
    assert set(shown["lru"]["config"]["code"]) == {"task"}
    assert set(shown["averages"]["config"]["code"]) == {"task", "recurrence"}
    assert shown["averages"]["provenance"]["code.recurrence"] == "own/mine.py"
    assert shown["averages"]["config"]["model"]["recurrence"] == {"kind": "averages", "longest": 64.0}
    where = ("runs", "--where", "model.recurrence.longest > 63", "--load", "own/mine.py")
    assert [run["rung"] for run in machine.json(*where)["runs"]] == ["averages"]
    machine.run("plan", "sDigits", "--profile", "smoke")  # looks for past speeds among all runs
    machine.run("plot", *words, "--out", "ladder.svg")

    run = runs["averages"]["id"]
    error = machine.run("show", run, "--toml", code=1).stderr.splitlines()
    assert error[0].startswith(
        f"error: run {run}: its recurrence 'averages' comes from a file or package that is not loaded"
    )
    assert error[1] == "hint: name the file: --load FILE.py"
    error = machine.run("show", run, "--toml", "--load", "own/mine.py", code=1).stderr
    assert "the recipe of Majority makes other data now, or is not here" in error
    (here / "recipes").mkdir()
    (here / "Majority.toml").rename(here / "recipes" / "Majority.toml")
    text = machine.run("show", run, "--toml", "--load", "own/mine.py").stdout
    (here / "again.toml").write_text(text)
    again = shlex.split(text.splitlines()[1].removeprefix("# lrurun ").replace("FILE.toml", "again.toml"))
    assert "nothing to do" in machine.run(*again).stderr

    load = {"ledger": machine.ledger, "runs_dir": machine.runs}
    with pytest.raises(LrurunError, match="is not loaded"):
        lrurun.load(run, **load)
    trained = lrurun.load(run, **load, files=[here / "own" / "mine.py"])
    bits = np.random.RandomState(2).randint(2, size=(32, 9)).astype(np.uint8)  # its test split
    hits = np.mean(trained(bits).argmax(1) == (bits.sum(1) > 4))
    assert hits == runs["averages"]["metrics"]["test/accuracy"]

    (here / "own" / "mine.py").write_text(AVERAGES + MAJORITY + "# another version\n")
    error = machine.run("show", run, "--toml", "--load", "own/mine.py", code=1).stderr
    assert f"run {run}: own/mine.py, which has recurrence 'averages', is another one now: sha256:" in error
    table = machine.json("report", "Majority", *words[1:])
    assert [row["n"] for row in table["rows"]] == [0, 0]
    error = machine.run("ladder", "Majority", *words[1:], code=1).stderr
    assert "was made by another version of the file that task Majority is in" in error
    (here / "own" / "mine.py").unlink()
    error = machine.run("report", "Majority", *words[1:], code=2).stderr.splitlines()
    assert error == [
        "error: own/mine.toml, load: there is no file own/mine.py",
        "hint: it is looked for from the ladder's folder, own",
    ]
    assert machine.json("show", run)["config"] == shown["averages"]["config"]


@pytest.mark.slow
def test_resume_after_the_file_has_changed_trains_what_it_says_now(machine: Machine) -> None:
    (machine.folder / "averages.py").write_text(AVERAGES)
    (machine.folder / "averages.toml").write_text(LADDER)
    words = ("sDigits", "--profile", "smoke", "--ladder", "averages.toml", "--rung", "averages")
    begun = machine.start("ladder", *words, "--set", "train.steps=20000", "--set", "train.eval_every=20000")
    wait_for(training(machine))
    stop(begun, signal.SIGTERM)
    begun.communicate()
    (machine.folder / "averages.py").write_text(AVERAGES + "# changed\n")
    (machine.folder / "averages.py").rename(machine.folder / "gone.py")
    error = machine.run("resume", code=2).stderr
    assert "error: averages.toml, load: there is no file averages.py" in error
    assert machine.states() == {"interrupted": 1}
    (machine.folder / "gone.py").rename(machine.folder / "averages.py")
    again = machine.start("resume")
    wait_for(lambda: machine.states().get("running", 0) == 1)
    wait_for(training(machine))
    old, new = sorted(machine.json("runs")["runs"], key=lambda run: run["state"])
    assert (old["state"], new["state"]) == ("interrupted", "running")
    assert old["fingerprint"] != new["fingerprint"]
    stop(again, signal.SIGTERM)
    said = again.communicate()[1]
    assert "averages: 1 runs of earlier settings leave this ladder" in said


def test_the_fingerprint_has_the_file_where_it_is_used(folder: Path) -> None:
    plain = readme_files()["radius.toml"].replace('"radius"', '"plain"')
    Path("plain.toml").write_text(plain)
    before = fingerprints("plain.toml")
    found = fingerprints("averages.toml")
    assert fingerprints("plain.toml") == before  # with the plug-in there, too
    assert found == afresh("averages.toml")
    (folder / "elsewhere").mkdir()
    Path("averages.py").rename("elsewhere/other.py")
    Path("averages.toml").write_text(LADDER.replace("averages.py", "elsewhere/other.py"))
    assert found == afresh("averages.toml")
    Path("elsewhere/other.py").write_text(AVERAGES.replace("0.0)", "0.00)"))
    changed = afresh("averages.toml")
    assert changed["lru"] == found["lru"]
    assert changed["averages"] != found["averages"]


def test_settings_of_a_plug_in_are_as_strict_as_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "sDigits", "--profile", "smoke", "--ladder", "averages.toml")
    where = "averages.toml, rung averages, model.recurrence.longest"
    for old, new, error, hint in (
        (
            "64.0",
            '"long"',
            f'{where}: expected a number, found "long"',
            "change model.recurrence.longest in averages.toml, rung averages",
        ),
        (
            ".longest",
            ".longst",
            "averages.toml, rung averages, model.recurrence.longst: unknown name",
            "did you mean 'model.recurrence.longest'?",
        ),
        (
            '"averages", "model.recurrence.longest" = 64.0',
            '"averages", "model.recurrence.normalize" = true',
            "averages.toml, rung averages, model.recurrence.normalize: unknown name",
            "known names here: kind, longest",
        ),
        (
            '"averages", "model',
            '"average", "model',
            "averages.toml, rung averages, model.recurrence.kind: "
            'expected one of dense, diagonal, rotrnn, dlr, dss, s5, s4d, s4, averages, found "average"',
            "did you mean 'averages'? known values: dense, diagonal, rotrnn, dlr, dss, s5, s4d, s4, averages",
        ),
    ):
        Path("averages.toml").write_text(LADDER.replace(old, new))
        assert said(capsys, *words) == (2, "", f"error: {error}\nhint: {hint}\n")
    Path("averages.toml").write_text(LADDER)
    code, out, _ = said(capsys, *words, "--set", "model.recurrence.longest=4")
    assert (code, "longest = 4; code = averages.py" in out) == (0, True)
    code, _, err = said(capsys, *words, "--set", "code.recurrence=x")
    assert (code, err.splitlines()[0]) == (2, "error: --set code.recurrence: unknown name")


def test_reading_commands_run_no_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No row of the ledger makes code run, nor does a ladder that lies about; a command that names the ladder does."""
    Path("averages.py").write_text(noted(AVERAGES))
    diagonal, run = enqueued()
    Path("radius.toml").write_text(readme_files()["radius.toml"])
    assert Path("ran").read_text() == "x"
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
    Path("ablations").mkdir()
    Path("ablations/averages.toml").write_text(LADDER.replace("averages.py", "../averages.py"))
    forget()
    for words in (
        ("status",),
        ("runs", "--where", "seed=0"),
        ("show", run),
        ("query", "select count(*) from runs"),
        ("compare", run[:4], diagonal[:4]),
        ("list",),
        ("check", "ladder", "--all"),
        ("check", "recipe", "sDigits"),
        ("plan", "sDigits"),
        ("report", "--all", "--ladder", "radius.toml"),
    ):
        code, out, err = said(capsys, *words)
        assert code == (4 if words[0] == "report" else 0), err
        assert words[:2] != ("check", "ladder") or "not checked: loads ../averages.py" in out
    by_id = ("report", "sDigits", "--instance", instance.key)
    assert said(capsys, *by_id) == (
        2,
        "",
        "error: ablations/averages.toml: loads ../averages.py, which this command does not by itself\n"
        "hint: name it: --load ablations/../averages.py\n",
    )
    assert Path("ran").read_text() == "x"
    for words in (
        (*by_id, "--load", "averages.py"),
        ("report", "sDigits", "--profile", "smoke", "--ladder", "averages"),
        ("check", "ladder", "averages"),
    ):
        assert said(capsys, *words)[0] == 0
        forget()
    assert Path("ran").read_text() == "xxxx"


def test_a_ledger_names_no_file_to_load(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An instance whose ladder is a path: a ledger that somebody sent may say anything."""
    Path("averages.py").write_text(noted(AVERAGES))
    with Ledger.open(Path("ledger.db")) as ledger:
        key = ledger.add_ladder("./averages.toml", "sDigits", "smoke", {"set": {}, "tune": False}).key
    code, _, err = said(capsys, "report", "sDigits", "--instance", key)
    assert (code, err.splitlines()[0]) == (
        2,
        "error: averages.toml: loads averages.py, which this command does not by itself",
    )
    assert not Path("ran").exists()


def in_a_new_process(*words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "lrurun", *words]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


def test_what_an_option_loaded_is_named_again_for_resume(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code is not taken from a row of the ledger."""
    Path("averages.toml").write_text(LADDER.replace('load = ["averages.py"]', ""))
    plugins.give(["averages.py"])
    asked = commands.Asked(
        task="sDigits", ladder="averages.toml", profile="smoke", rungs=[], seeds="1", tune=False, sets=[]
    )
    enqueued()
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        commands._remember(ledger, instance, asked, asked.plan(), [0])
        [remembered] = commands._asked(ledger, instance)
        assert remembered.load == [str(folder / "averages.py")]
        # of what a ladder does not use, or names itself, nothing is remembered
        for name, text in (("radius", readme_files()["radius.toml"]), ("averages", LADDER)):
            Path(f"{name}-2.toml").write_text(text)
            other = msgspec.structs.replace(asked, ladder=f"{name}-2.toml")
            key = ledger.add_ladder(name, "sDigits", "other", {"set": {}, "tune": False})
            commands._remember(ledger, key, other, other.plan(), [0])
            assert commands._asked(ledger, key)[0].load == []
    done = in_a_new_process("resume")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: ladder {instance.key}: was asked for with --load {folder / 'averages.py'}",
        f"hint: code is not taken from a ledger, name it again: lrurun resume --load {folder / 'averages.py'}",
    ]


def test_a_worker_refuses_a_file_that_has_changed(folder: Path) -> None:
    plugins.load("averages.py")
    order = plugins.order()
    assert order["files"] == [[str(folder / "averages.py"), plugins._FILES[str(folder / "averages.py")].sha256]]
    plugins.obey(order)
    order["files"][0][1] = "sha256:other"
    with pytest.raises(LrurunError, match=r"averages\.py was changed while this command was using it"):
        plugins.obey(order)
    Path("averages.py").write_text(AVERAGES + "\n")
    with pytest.raises(LrurunError, match=r"averages\.py was changed while this command was using it"):
        plugins.load("averages.py")
    worker = LocalWorker({"supervisor": os.getpid(), "plugins": order, "prepare": "sDigits"}, threads=1)
    assert wait_for(worker.poll) == 74
    assert json.loads(worker.tail(1))["error"] == "averages.py was changed while this command was using it"
    worker.close()


CLASS = "import lrurun\nfrom lrurun.recurrences import Dense, Recurrence\n"
NAMED = '@lrurun.recurrence("mine")\nclass Mine(Dense):\n'


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("x = (\n", "x.py, line 1: not valid Python: '(' was never closed", "mend the line named above"),
        ("x = '\xe9'\n".encode("latin-1"), "x.py, line 1: not valid Python: ", "mend the line named above"),
        (
            "x = 1\n\0",
            "x.py: not valid Python: source code string cannot contain null bytes",
            "save the file as UTF-8 text",
        ),
        (
            "def f():\n    1 / 0\nf()\n",
            "x.py, line 2: raised ZeroDivisionError: division by zero",
            "--debug shows all of it",
        ),
        ("raise SystemExit(3)\n", "x.py, line 1: raised SystemExit: 3", "--debug shows all of it"),
        (
            "import nothing_of_this_name\n",
            "x.py, line 1: raised ModuleNotFoundError: No module named 'nothing_of_this_name'",
            "install it, or leave it out: a plug-in is one file, and does not see the files beside x.py",
        ),
        ("x = 1\n", "x.py: registers nothing", 'decorate a class: @lrurun.recurrence("name"), or @lrurun.task'),
        (
            f"{CLASS}{NAMED}    pass\n{NAMED}    pass\n",
            "x.py, line 6: recurrence 'mine' is registered already, by x.py",
            "choose another name",
        ),
        (
            f'{CLASS}@lrurun.recurrence("diagonal")\nclass Mine(Dense): pass\n',
            "x.py, line 3: recurrence 'diagonal': lrurun has one of this name",
            "choose another name",
        ),
        (
            "import lrurun\nfrom lrurun.tasks.digits import Digits\nlrurun.task(Digits)\n",
            "x.py, line 3: task 'sDigits': lrurun has one of this name",
            "choose another name",
        ),
        (
            f'{CLASS}@lrurun.recurrence("a/b")\nclass Mine(Dense): pass\n',
            "x.py, line 3: recurrence 'a/b': expected a name of letters, digits, '.', '_' and '-'",
            "as in recurrence 'mine'",
        ),
        (
            f'{CLASS}@lrurun.recurrence("mine")\nclass Mine: pass\n',
            "x.py, line 3: recurrence 'mine': Mine is no subclass of lrurun.recurrences.Recurrence",
            "class Mine(lrurun.recurrences.Recurrence)",
        ),
        (
            f'{CLASS}@lrurun.recurrence("mine")\ndef mine(): pass\n',
            "x.py, line 3: recurrence 'mine': expected a class, found function",
            "decorate a class",
        ),
        (
            f'{CLASS}@lrurun.recurrence("mine")\nclass Mine(Recurrence):\n    slow = frozenset()\n',
            "x.py, line 3: recurrence 'mine': Mine lacks init, initial_state, scan, step",
            "lrurun.recurrences.Recurrence says what they do",
        ),
        (
            f"{CLASS}import msgspec\n{NAMED}    class Settings(msgspec.Struct):\n        rate: float\n",
            "x.py, line 4: recurrence 'mine': setting rate has no default",
            "give it one",
        ),
        (
            f'{CLASS}import msgspec\n{NAMED}    class Settings(msgspec.Struct):\n        rate: float = "x"\n',
            "x.py, line 4: recurrence 'mine': its Settings or their defaults do not do: Expected `float`, got `str`",
            "use numbers, strings, truths and lists, with defaults of their own type",
        ),
        (
            f"{CLASS}{NAMED}    class Settings:\n        rate: float = 1.0\n",
            "x.py, line 3: recurrence 'mine': Settings is no msgspec.Struct",
            "class Settings(msgspec.Struct): ...",
        ),
        (
            MAJORITY.replace('    version = "1"\n', ""),
            "x.py, line 10: task 'Majority': has no version",
            "add version, as lrurun.tasks.base.Task has it",
        ),
        (
            MAJORITY.replace("def sizes", "def size"),
            "x.py, line 10: task 'Majority': Majority lacks sizes",
            "lrurun.tasks.Task says what they do",
        ),
    ],
)
def test_a_plug_in_that_is_wrong_is_told_in_two_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, error: str, hint: str
) -> None:
    Path("x.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    known = set(RECURRENCES), set(TASKS), set(sys.modules)
    code, out, err = said(capsys, "list", "--load", "x.py")
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", 2), err
    assert lines[0].startswith(f"error: {error}")
    assert lines[1] == f"hint: {hint}"
    assert (set(RECURRENCES), set(TASKS)) == known[:2]
    assert not {name for name in sys.modules if name.startswith("lrurun_plugin_")}


def test_a_file_that_is_not_there_or_of_the_wrong_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder.py").mkdir()
    for name, code, error in (
        ("none.py", 2, "error: --load: there is no file none.py\nhint: give its path from here\n"),
        ("mine.txt", 2, "error: --load: expected a .py file, found mine.txt\nhint: as in --load mine.py\n"),
        ("folder.py", 1, "error: folder.py: Is a directory\nhint: check the path and its permissions\n"),
    ):
        assert said(capsys, "list", "--load", name) == (code, "", error)
    assert said(capsys, "list", "--load") == (
        2,
        "",
        "error: option '--load' requires an argument\nhint: as in --load PATH\n",
    )


def test_a_failed_file_leaves_nothing_behind_and_a_mended_one_loads(folder: Path) -> None:
    Path("x.py").write_text(f"{AVERAGES}\nraise RuntimeError('late')\n")
    with pytest.raises(UsageError, match=r"x\.py, line 39: raised RuntimeError: late"):
        plugins.load("x.py")
    assert "averages" not in RECURRENCES
    assert "model.recurrence.longest" not in config.known_paths()
    plugins.load("averages.py")
    assert "model.recurrence.longest" in config.known_paths()
    Path("copy.py").write_text(AVERAGES)
    plugins.load("copy.py")  # the same code
    Path("other.py").write_text(AVERAGES + "\n")
    with pytest.raises(UsageError, match="recurrence 'averages' is registered already"):
        plugins.load("other.py")


def test_what_a_file_prints_is_talk(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("averages.py").write_text("print('hello')\n" + AVERAGES)
    code, out, err = said(capsys, "list", "recurrences", "--json", "--load", "averages.py")
    assert (code, err) == (0, "hello\n")
    assert [entry["name"] for entry in json.loads(out)["recurrences"]][-1] == "averages"


def test_a_class_that_a_program_registers_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An imported module is the same code as its file loaded."""
    Path("averages_of_mine.py").write_text(AVERAGES)
    monkeypatch.syspath_prepend(folder)
    import averages_of_mine  # type: ignore[import-not-found]  # noqa: F401

    code, sources = plugins.code("averages", "sDigits")
    assert code is not None
    assert sources == {"code.recurrence": "averages_of_mine.py"}
    plugins.load("averages.py")
    assert plugins.code("averages", "sDigits")[0] == code
    sys.modules.pop("averages_of_mine")
    namespace: dict[str, object] = {"__name__": "nowhere"}
    with pytest.raises(UsageError, match="recurrence 'averages2': its class is in no file"):
        exec(AVERAGES.replace('"averages"', '"averages2"'), namespace)


def test_entry_points_of_installed_packages(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = folder / "site"
    (site / "means").mkdir(parents=True)
    (site / "means" / "__init__.py").write_text("")
    (site / "means" / "layer.py").write_text(AVERAGES)
    (site / "means" / "helper.py").write_text("x = 1\n")
    (site / "means-1.0.dist-info").mkdir()
    (site / "means-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: means\nVersion: 1.0\n")
    points = site / "means-1.0.dist-info" / "entry_points.txt"
    points.write_text("[lrurun]\naverages = means.layer\nother = means.layer\n")
    Path("averages.toml").write_text(LADDER.replace('load = ["averages.py"]', ""))
    monkeypatch.syspath_prepend(site)
    planning.make("sDigits", ladder="lru")
    assert "means.layer" not in sys.modules  # nothing asked for it
    with pytest.raises(UsageError, match="unknown name"):
        planning.make("sDigits", ladder="averages.toml", imports=False)
    rung = planning.make("sDigits", ladder="averages.toml").rungs[-1]
    assert rung.provenance["code.recurrence"] == "package means"
    was = config.canonical(rung.config)
    order = plugins.order()
    assert order == {"files": [], "found": [["recurrence", "averages"]]}
    assert said(capsys, "check", "recurrence", "other") == (
        2,
        "",
        "error: entry point 'other' of package means: registers no recurrence of this name\n"
        "hint: ask those who made it, or remove it\n",
    )
    forget()
    plugins.obey(order)
    assert config.canonical(planning.make("sDigits", ladder="averages.toml").rungs[-1].config) == was
    forget()
    (site / "means" / "helper.py").write_text("x = 2\n")  # all of the package counts
    assert planning.make("sDigits", ladder="averages.toml").rungs[-1].config.code != rung.config.code
    forget()
    points.write_text("[lrurun]\naverages = means.gone\n")
    code, _, err = said(capsys, "plan", "sDigits", "--ladder", "averages.toml")
    assert code == 2
    assert "entry point 'averages' of package means: raised ModuleNotFoundError: No module named 'means.gone'" in err


def test_the_command_line_knows_no_plug_in_of_a_test_before() -> None:
    assert entry.run(["list", "recurrences", "-q"]) == 0
    assert list(RECURRENCES) == ["dense", "diagonal", "rotrnn", "dlr", "dss", "s5", "s4d", "s4"]
