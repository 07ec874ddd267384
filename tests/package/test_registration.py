"""Loading and registering plug-ins: decorators, files, entry points, and their errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lrurun
from lrurun import __main__ as entry
from lrurun import plugins
from lrurun.config import plan as planning
from lrurun.config import plugin_code, schema
from lrurun.config.recurrences import KINDS
from lrurun.data import TASKS
from lrurun.decoding import canonical
from lrurun.errors import UsageError
from tests.harness.commands import said
from tests.harness.plug_ins import AVERAGES, BUILT_IN, LADDER, MAJORITY, folder, forget, forgotten

__all__ = ["folder", "forgotten"]  # fixtures


@pytest.mark.parametrize(
    ("decorator", "attribute", "name"),
    [('("mine")', "", "mine"), ("", 'name = "mine"', "mine"), ('("mine")', 'name = "mine"', "mine")],
)
def test_decorators_work_with_a_name_and_without(folder: Path, decorator: str, attribute: str, name: str) -> None:
    Path("x.py").write_text(
        "import lrurun\nfrom lrurun.data.generated.digits import Digits\n"
        "from lrurun.nn.recurrences.rnn import RNN\n"
        f"@lrurun.recurrence{decorator}\nclass Layer(RNN):\n    {attribute or 'pass'}\n"
        f"@lrurun.task{decorator}\nclass Data(Digits):\n    {attribute or 'pass'}\n"
    )
    plugins.load("x.py")
    assert KINDS[name].load().__name__ == "Layer"
    assert KINDS[name].kind == TASKS[name].name == name


def test_the_public_names_are_loaded_on_first_use(folder: Path) -> None:
    script = (
        "import sys, lrurun; heavy = {'jax', 'numpy', 'msgspec'}; assert not heavy & set(sys.modules);"
        "print(lrurun.Task); assert 'jax' not in sys.modules"
    )
    env = {"PYTHONPATH": str(Path(lrurun.__file__).parent.parent), "PATH": "", "HOME": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "<class 'lrurun.data.task.Task'>\n", done.stderr
    assert all(getattr(lrurun, name) for name in lrurun.__all__)
    with pytest.raises(AttributeError, match="no attribute 'recurrance'"):
        lrurun.recurrance  # noqa: B018


CLASS = "import lrurun\nfrom lrurun.nn.recurrences import Recurrence, rnn; RNN = rnn.RNN\n"


NAMED = '@lrurun.recurrence("mine")\nclass Mine(RNN):\n'


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("x = (\n", "x.py, line 1: not valid Python: '(' was never closed", "correct the line named above"),
        ("x = '\xe9'\n".encode("latin-1"), "x.py, line 1: not valid Python: ", "correct the line named above"),
        (
            "x = 1\n\0",
            "x.py: not valid Python: source code string cannot contain null bytes",
            "save the file as UTF-8 text",
        ),
        (
            "def f():\n    1 / 0\nf()\n",
            "x.py, line 2: raised ZeroDivisionError: division by zero",
            "--debug shows the traceback",
        ),
        ("raise SystemExit(3)\n", "x.py, line 1: raised SystemExit: 3", "--debug shows the traceback"),
        (
            "import nothing_of_this_name\n",
            "x.py, line 1: raised ModuleNotFoundError: No module named 'nothing_of_this_name'",
            "install it, or leave it out: a plug-in is one file, and cannot import the files beside x.py",
        ),
        ("x = 1\n", "x.py: registers nothing", 'decorate a class: @lrurun.recurrence("name") or @lrurun.task("name")'),
        (
            f"{CLASS}{NAMED}    pass\n{NAMED}    pass\n",
            "x.py, line 6: recurrence 'mine' is registered already, by x.py",
            "choose another name",
        ),
        (
            f'{CLASS}@lrurun.recurrence("diagonal")\nclass Mine(RNN): pass\n',
            "x.py, line 3: recurrence 'diagonal': already part of lrurun",
            "choose another name",
        ),
        (
            "import lrurun\nfrom lrurun.data.generated.digits import Digits\nlrurun.task(Digits)\n",
            "x.py, line 3: task 'sDigits': already part of lrurun",
            "choose another name",
        ),
        (
            f'{CLASS}@lrurun.recurrence("a/b")\nclass Mine(RNN): pass\n',
            "x.py, line 3: recurrence 'a/b': expected a name of letters, digits, '.', '_' and '-'",
            "as in recurrence 'mine'",
        ),
        (
            f'{CLASS}@lrurun.recurrence("mine")\nclass Mine: pass\n',
            "x.py, line 3: recurrence 'mine': Mine is not a subclass of lrurun.Recurrence",
            "class Mine(lrurun.Recurrence)",
        ),
        (
            f"{CLASS}@lrurun.recurrence\nclass Mine(RNN): pass\n",
            "x.py, line 3: recurrence Mine: has no name",
            'add one: @lrurun.recurrence("mine")',
        ),
        (
            MAJORITY.replace("@lrurun.task", '@lrurun.task("Minority")'),
            "x.py, line 11: task 'Minority': its attribute name is 'Majority'",
            "use one name, or leave one of them out",
        ),
        (
            f'{CLASS}@lrurun.recurrence("mine")\ndef mine(): pass\n',
            "x.py, line 3: recurrence 'mine': expected a class, found function",
            "decorate a class",
        ),
        (
            f'{CLASS}@lrurun.recurrence("mine")\nclass Mine(Recurrence):\n    recurrent_parameters = frozenset()\n',
            "x.py, line 3: recurrence 'mine': Mine lacks init, initial_state, scan, step",
            "the docstrings of lrurun.Recurrence say what they do",
        ),
        (
            f"{CLASS}import msgspec\n{NAMED}    class Settings(msgspec.Struct):\n        rate: float\n",
            "x.py, line 4: recurrence 'mine': setting rate has no default",
            "give it one",
        ),
        (
            f'{CLASS}import msgspec\n{NAMED}    class Settings(msgspec.Struct):\n        rate: float = "x"\n',
            "x.py, line 4: recurrence 'mine': its Settings or their defaults cannot be used: Expected `float`, got",
            "use numbers, strings, booleans and lists, with defaults of the same type",
        ),
        (
            f"{CLASS}{NAMED}    class Settings:\n        rate: float = 1.0\n",
            "x.py, line 3: recurrence 'mine': Settings is not a msgspec.Struct",
            "class Settings(msgspec.Struct): ...",
        ),
        (
            MAJORITY.replace('    version = "1"\n', ""),
            "x.py, line 11: task 'Majority': has no version",
            "add version, as lrurun.Task describes it",
        ),
        (
            MAJORITY.replace("def sizes", "def size"),
            "x.py, line 11: task 'Majority': Majority lacks sizes",
            "the docstrings of lrurun.Task say what they do",
        ),
    ],
)
def test_errors_of_a_plug_in_have_two_lines(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, error: str, hint: str
) -> None:
    Path("x.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    known = set(KINDS), set(TASKS), set(sys.modules)
    code, out, err = said(capsys, "list", "--load", "x.py")
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", 2), err
    assert lines[0].startswith(f"error: {error}")
    assert lines[1] == f"hint: {hint}"
    assert (set(KINDS), set(TASKS)) == known[:2]
    assert not {name for name in sys.modules if name.startswith("lrurun_plugin_")}


def test_a_file_that_is_not_there_or_of_the_wrong_kind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder.py").mkdir()
    for name, code, error in (
        ("none.py", 2, "error: --load: there is no file none.py\nhint: paths are relative to the working directory\n"),
        ("mine.txt", 2, "error: --load: expected a .py file, found mine.txt\nhint: as in --load mine.py\n"),
        ("folder.py", 1, "error: folder.py: Is a directory\nhint: check the path and its permissions\n"),
    ):
        assert said(capsys, "list", "--load", name) == (code, "", error)
    assert said(capsys, "list", "--load") == (
        2,
        "",
        "error: option '--load' requires an argument\nhint: as in --load PATH\n",
    )


def test_a_failed_file_leaves_nothing_behind_and_a_corrected_one_loads(folder: Path) -> None:
    averages = AVERAGES.replace("longest", "longest_of_mine")  # no other recurrence has a setting of this name
    Path("averages.py").write_text(averages)
    Path("x.py").write_text(f"{averages}\nraise RuntimeError('late')\n")
    with pytest.raises(UsageError, match=r"x\.py, line 38: raised RuntimeError: late"):
        plugins.load("x.py")
    assert "averages" not in KINDS
    assert "model.recurrence.longest_of_mine" not in schema.known_paths()
    plugins.load("averages.py")
    assert "model.recurrence.longest_of_mine" in schema.known_paths()
    Path("copy.py").write_text(averages)
    plugins.load("copy.py")  # the same code
    Path("other.py").write_text(averages + "\n")
    with pytest.raises(UsageError, match="recurrence 'averages' is registered already"):
        plugins.load("other.py")


def test_what_a_file_prints_goes_to_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("averages.py").write_text("print('hello')\n" + AVERAGES)
    code, out, err = said(capsys, "list", "recurrences", "--json", "--load", "averages.py")
    assert (code, err) == (0, "hello\n")
    assert [entry["name"] for entry in json.loads(out)["recurrences"]][-1] == "averages"


def test_the_list_of_recurrences_has_the_first_paragraph_of_the_docstring_on_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "list", "recurrences", "--json")
    assert code == 0
    about = {entry["name"]: entry["what"] for entry in json.loads(out)["recurrences"]}
    assert about["attention"] == (
        "Softmax attention in place of a recurrence (Vaswani et al. 2017), with rotary positions (Su et al. 2021)."
    )
    assert not [name for name, what in about.items() if "\n" in what or "  " in what]


def test_a_class_that_a_program_registers_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An imported module is the same code as its file loaded."""
    Path("averages_of_mine.py").write_text(AVERAGES)
    monkeypatch.syspath_prepend(folder)
    import averages_of_mine  # type: ignore[import-not-found]  # noqa: F401

    code, sources = plugin_code.code_of("averages", "sDigits")
    assert code is not None
    assert sources == {"code.recurrence": "averages_of_mine.py"}
    plugins.load("averages.py")
    assert plugin_code.code_of("averages", "sDigits")[0] == code
    sys.modules.pop("averages_of_mine")
    namespace: dict[str, object] = {"__name__": "nowhere"}
    with pytest.raises(UsageError, match="recurrence 'averages2': its class is not defined in a file"):
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
    assert rung.sources["code.recurrence"] == "package means"
    was = canonical(rung.config)
    order = plugins.loaded()
    assert order == plugins.Loaded(installed=[("recurrence", "averages")])
    assert said(capsys, "check", "recurrence", "other") == (
        2,
        "",
        "error: entry point 'other' of package means: registers no recurrence with this name\n"
        "hint: report it, or remove the package\n",
    )
    forget()
    plugins.load_all(order)
    assert canonical(planning.make("sDigits", ladder="averages.toml").rungs[-1].config) == was
    forget()
    (site / "means" / "helper.py").write_text("x = 2\n")  # all of the package counts
    assert planning.make("sDigits", ladder="averages.toml").rungs[-1].config.code != rung.config.code
    forget()
    plugins.load("averages.py")
    with pytest.raises(UsageError, match=r"recurrence 'averages': is in package means and in averages\.py"):
        planning.make("sDigits", ladder="averages.toml")
    forget()
    other = site / "others-1.0.dist-info"
    shutil.copytree(site / "means-1.0.dist-info", other)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    with pytest.raises(UsageError, match="recurrence 'averages': is in package means and in package others"):
        planning.make("sDigits", ladder="averages.toml")
    forget()
    shutil.rmtree(other)
    points.write_text("[lrurun]\naverages = means.gone\n")
    code, _, err = said(capsys, "plan", "sDigits", "--ladder", "averages.toml")
    assert code == 2
    assert "entry point 'averages' of package means: raised ModuleNotFoundError: No module named 'means.gone'" in err


def test_a_ladder_names_tasks_of_plug_ins(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a file that it or the command loads, or of an installed package, which is not imported for it."""
    claim = '[[claim]]\ntext = "t"\nsource = "s"\nrung = "averages"\nthan = "lru"\ntasks = ["Majority"]\n'
    Path("majority.py").write_text(MAJORITY)
    Path("loads.toml").write_text(LADDER.replace('["averages.py"]', '["averages.py", "majority.py"]') + claim)
    Path("claims.toml").write_text(LADDER + claim)
    arguments = ("plan", "sDigits", "--ladder", "claims.toml")
    for _ in range(2):  # what another command loaded is not known to the next
        code, _, err = said(capsys, *arguments)
        assert code == 2
        assert "claims.toml, claim 't', tasks: unknown task 'Majority'" in err
        assert "; --load FILE if it is a task of your own" in err
        assert said(capsys, *arguments, "--load", "majority.py")[0] == 0
        forget()
        assert said(capsys, "plan", "sDigits", "--ladder", "loads.toml")[0] == 0
        forget()
    site = folder / "site" / "votes-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: votes\nVersion: 1.0\n")
    (site / "entry_points.txt").write_text("[lrurun]\nMajority = votes.gone\n")
    monkeypatch.syspath_prepend(site.parent)
    assert said(capsys, *arguments)[0] == 0


def test_the_command_line_knows_no_plug_in_of_a_test_before() -> None:
    assert entry.run(["list", "recurrences", "-q"]) == 0
    assert list(KINDS) == BUILT_IN
