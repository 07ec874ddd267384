"""Loading and registering plug-ins: decorators, files, entry points, their errors, and which files `resume` trusts."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lrurun
from lrurun import plugins
from lrurun.config import planning, plugin_code, schema
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.recurrences import KINDS
from lrurun.data.tasks import TASKS
from lrurun.decoding import canonical
from lrurun.errors import UsageError
from lrurun.plugins import is_protected
from tests.harness.machine import Machine
from tests.harness.plug_ins import AVERAGES, BUILT_IN, LADDER, MAJORITY, SIGNUM, folder, forget, forgotten

__all__ = ["folder", "forgotten"]  # fixtures


@pytest.fixture
def machine(folder: Path) -> Machine:
    return Machine(folder)


@pytest.mark.parametrize(
    ("decorator", "attribute", "name"),
    [('("mine")', "", "mine"), ("", 'name = "mine"', "mine"), ('("mine")', 'name = "mine"', "mine")],
)
def test_decorators_work_with_a_name_and_without(folder: Path, decorator: str, attribute: str, name: str) -> None:
    Path("x.py").write_text(
        "import lrurun\nfrom lrurun.data.synthetic.digits import Digits\n"
        "from lrurun.nn.recurrences.rnn import RNN\n"
        f"@lrurun.recurrence{decorator}\nclass Layer(RNN):\n    {attribute or 'pass'}\n"
        "from lrurun.training.optimizers.adamw import AdamW\n"
        f"@lrurun.task{decorator}\nclass Data(Digits):\n    {attribute or 'pass'}\n"
        f"@lrurun.optimizer{decorator}\nclass Steps(AdamW):\n    {attribute or 'pass'}\n"
    )
    plugins.load("x.py")
    assert KINDS[name].load().__name__ == "Layer"
    assert OPTIMIZERS[name].load().__name__ == "Steps"
    assert KINDS[name].kind == TASKS[name].name == OPTIMIZERS[name].name == name


def test_the_public_names_are_there() -> None:
    assert all(getattr(lrurun, name) for name in lrurun.__all__)
    with pytest.raises(AttributeError, match="no attribute 'recurrance'"):
        lrurun.recurrance  # noqa: B018


CLASS = "import lrurun\nfrom lrurun.nn.recurrences import Recurrence, rnn; RNN = rnn.RNN\n"


NAMED = '@lrurun.recurrence("mine")\nclass Mine(RNN):\n'


OF_CLASSES = [
    (f"{NAMED}    pass\n{NAMED}    pass\n", "line 6: recurrence 'mine' is registered already, by x.py", "choose"),
    ('@lrurun.recurrence("diagonal")\nclass Mine(RNN): pass\n', "line 3: recurrence 'diagonal': already", "choose"),
    ('@lrurun.recurrence("a/b")\nclass Mine(RNN): pass\n', "line 3: recurrence 'a/b': expected a name", "as in"),
    (f"{NAMED.replace('(RNN)', '')}    pass", "line 3: recurrence 'mine': Mine is not a subclass of", "class Mine(lru"),
    ("@lrurun.recurrence\nclass Mine(RNN): pass\n", "line 3: recurrence Mine: has no name", "add one: @lrurun.rec"),
    ('@lrurun.recurrence("mine")\ndef mine(): pass\n', "line 3: recurrence 'mine': expected a class, found", "dec"),
    (f"{NAMED.replace('RNN', 'Recurrence')}    recurrent_parameters = frozenset()\n",
     "line 3: recurrence 'mine': Mine lacks init, initial_state, step", "the docstrings of lrurun.Recurrence"),
    (f"import msgspec\n{NAMED}    class Settings(msgspec.Struct):\n        rate: float\n",
     "line 4: recurrence 'mine': setting rate has no default", "give it one"),
    (f'import msgspec\n{NAMED}    class Settings(msgspec.Struct):\n        rate: float = "x"\n',
     "line 4: recurrence 'mine': its Settings or their defaults cannot be used: Expected `float`", "use numbers"),
    (f"{NAMED}    class Settings:\n        rate: float = 1.0\n",
     "line 3: recurrence 'mine': Settings is not a msgspec.Struct", "class Settings(msgspec.Struct): ..."),
]  # fmt: skip
STEPS = "import lrurun, msgspec\nfrom lrurun.training.optimizers.adamw import AdamW\n"
MINE = '@lrurun.optimizer("mine")\nclass Mine(AdamW):\n'
SETTINGS = f"{MINE}    class Settings(msgspec.Struct):\n"
EVERY = "every [optim] has"
OF_OPTIMIZERS = [
    (f"{MINE}    pass\n{MINE}    pass\n", "line 6: optimizer 'mine' is registered already, by x.py", "choose"),
    ('@lrurun.optimizer("adamw")\nclass Mine(AdamW): pass\n', "line 3: optimizer 'adamw': already part of", "choose"),
    ('@lrurun.optimizer("a/b")\nclass Mine(AdamW): pass\n', "line 3: optimizer 'a/b': expected a name", "as in optim"),
    (f"{MINE.replace('(AdamW)', '')}    pass", "line 3: optimizer 'mine': Mine is not a subclass of lrurun.Optimizer",
     "class Mine(lrurun.Optimizer)"),
    ("@lrurun.optimizer\nclass Mine(AdamW): pass\n", "line 3: optimizer Mine: has no name", "add one: @lrurun.optim"),
    (f"{MINE.replace('AdamW', 'lrurun.Optimizer')}    pass\n",
     "line 3: optimizer 'mine': Mine lacks transformation", "the docstrings of lrurun.Optimizer"),
    (f"{SETTINGS}        rate: float\n", "line 3: optimizer 'mine': setting rate has no default", "give it one"),
    (f'{SETTINGS}        rate: float = "x"\n',
     "line 3: optimizer 'mine': its Settings or their defaults cannot be used: Expected `float`", "use numbers"),
    (f"{SETTINGS}        rate: nowhere = 1\n".replace("nowhere", "'nowhere'"),
     "line 3: optimizer 'mine': its Settings or their defaults cannot be used: name 'nowhere' is", "use numbers"),
    (f"{SETTINGS}        lr: float = 0.1\n        clip: float = 1.0\n        mine: int = 3\n",
     f"line 3: optimizer 'mine': Settings has lr, clip, which {EVERY}", "leave it out: it is applied to the direction"),
    (f'{SETTINGS}        name: str = "mine"\n', f"line 3: optimizer 'mine': Settings has name, which {EVERY}", "rena"),
    (f"{MINE}    from lrurun.config.optimizers.adamw import AdamW as Base\n    class Settings(Base):\n        floor: "
     "float = 0.0\n", f"line 3: optimizer 'mine': Settings has floor, which {EVERY}", "leave it out"),
    (f"{SETTINGS}        x: float = 1.0\n\n        @property\n        def floor(self):\n            return 1\n",
     f"line 3: optimizer 'mine': Settings has floor, which {EVERY}", "leave it out"),
    (f"{SETTINGS}        x: float = 1.0\n\n        def __post_init__(self):\n            super().__post_init__()\n",
     "line 3: optimizer 'mine': __post_init__ of its Settings uses super()", "call it by the name of the class"),
    (f"{MINE}    decay_in_gradient = 1\n",
     "line 3: optimizer 'mine': decay_in_gradient: expected True or False, found 1", "change decay_in_gradient"),
    (f"{MINE}    title = None\n", "line 3: optimizer 'mine': title: expected a string, found None", "change title"),
    (f"{MINE}    class Settings:\n        rate: float = 1.0\n",
     "line 3: optimizer 'mine': Settings is not a msgspec.Struct", "class Settings(msgspec.Struct): ..."),
]  # fmt: skip
DIGITS = "import lrurun\nfrom lrurun.data.synthetic.digits import Digits\nlrurun.task(Digits)\n"
OF_FILES: list[tuple[str | bytes, str, str]] = [
    ("x = (\n", "line 1: not valid Python: '(' was never closed", "correct the line named above"),
    ("x = '\xe9'\n".encode("latin-1"), "line 1: not valid Python: ", "correct the line named above"),
    ("x = 1\n\0", "not valid Python: source code string cannot contain null bytes", "save the file as UTF-8 text"),
    ("def f():\n    1 / 0\nf()\n", "line 2: raised ZeroDivisionError: division by zero", "--debug shows the traceback"),
    ("raise SystemExit(3)\n", "line 1: raised SystemExit: 3", "--debug shows the traceback"),
    ("import nothing_of_this\n", "line 1: raised ModuleNotFoundError: No module named 'nothing_of_this'", "install"),
    ("x = 1\n", "registers nothing", "decorate a class: @lrurun.recurrence("),
    (DIGITS, "line 3: task 'sDigits': already part of lrurun", "choose another name"),
    (MAJORITY.replace("@lrurun.task", '@lrurun.task("Minority")'),
     "line 11: task 'Minority': its attribute name is 'Majority'", "use one name, or leave one of them out"),
    (MAJORITY.replace('    version = "1"\n', ""), "line 11: task 'Majority': has no version", "add version"),
    (MAJORITY.replace("def sizes", "def size"), "line 11: task 'Majority': Majority lacks sizes", "the docstrings of"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        pytest.param(text, error, hint, id=error)
        for text, error, hint in [
            *OF_FILES,
            *((f"{CLASS}{text}", error, hint) for text, error, hint in OF_CLASSES),
            *((f"{STEPS}{text}", error, hint) for text, error, hint in OF_OPTIMIZERS),
        ]
    ],
)
def test_errors_of_a_plug_in_have_two_lines(machine: Machine, text: str | bytes, error: str, hint: str) -> None:
    (machine.folder / "x.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    known = set(KINDS), set(TASKS), set(OPTIMIZERS)
    lines = machine.refused("list", "--load", "x.py").splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(("error: x.py, " if error.startswith("line") else "error: x.py: ") + error)
    assert lines[1].startswith(f"hint: {hint}")
    assert (set(KINDS), set(TASKS), set(OPTIMIZERS)) == known
    assert not {name for name in sys.modules if name.startswith("lrurun_plugin_")}


def test_a_file_that_is_not_there_or_of_the_wrong_kind(machine: Machine) -> None:
    Path("folder.py").mkdir()
    for name, code, error in (
        ("none.py", 2, "error: --load: there is no file none.py\n"),
        ("mine.txt", 2, "error: --load: expected a .py file, found mine.txt\n"),
        ("folder.py", 1, "error: folder.py: Is a directory\n"),
    ):
        assert machine.refused("list", "--load", name, code=code).startswith(error)
    assert "as in --load PATH" in machine.refused("list", "--load")


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


def test_what_a_file_prints_goes_to_stderr(machine: Machine) -> None:
    Path("averages.py").write_text("print('hello')\n" + AVERAGES)
    done = machine.run("list", "recurrences", "--json", "--load", "averages.py")
    assert done.stderr == "hello\n"
    assert [entry["name"] for entry in json.loads(done.stdout)["recurrences"]][-1] == "averages"


def test_the_list_of_recurrences_has_the_first_paragraph_of_the_docstring_on_one_line(machine: Machine) -> None:
    about = {entry["name"]: entry["what"] for entry in machine.json("list", "recurrences")["recurrences"]}
    assert list(about) == BUILT_IN, "no plug-in of a test before"
    assert about["attention"].startswith(
        "Softmax attention in place of a recurrence (Vaswani et al. 2017), with rotary"
    )
    assert not [name for name, what in about.items() if "\n" in what or "  " in what]


def test_a_class_that_a_program_registers_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An imported module is the same code as its file loaded."""
    Path("averages_of_mine.py").write_text(AVERAGES)
    monkeypatch.syspath_prepend(folder)
    import averages_of_mine  # type: ignore[import-not-found]  # noqa: F401

    code, sources = plugin_code.code_of({"recurrence": "averages", "task": "sDigits"})
    assert code is not None
    assert sources == {"code.recurrence": "averages_of_mine.py"}
    plugins.load("averages.py")
    assert plugin_code.code_of({"recurrence": "averages", "task": "sDigits"})[0] == code
    sys.modules.pop("averages_of_mine")
    namespace: dict[str, object] = {"__name__": "nowhere"}
    with pytest.raises(UsageError, match="recurrence 'averages2': its class is not defined in a file"):
        exec(AVERAGES.replace('"averages"', '"averages2"'), namespace)


RULES = """
        beta: float = 0.9
        sizes: list[int] = []

        @property
        def rest(self):
            return 1 - self.beta

        def __post_init__(self):
            if self.beta > 1 or (self.schedule != "constant" and self.beta == 1):
                raise ValueError(f"beta = {self.beta} does not fit schedule = {self.schedule}")
"""


def test_the_table_of_an_optimizer_has_its_settings_and_those_of_all(folder: Path) -> None:
    Path("x.py").write_text(SIGNUM.replace("        momentum: float = 0.9\n", RULES.lstrip("\n")))
    plugins.load("x.py")
    type_ = OPTIMIZERS["signum"].settings
    common = {"name": "signum", "lr": 0.1, "recurrent_factor": 1.0, "weight_decay": 0.0}
    settings: Any = msgspec.convert(common, type_)
    assert (settings.beta, settings.sizes, settings.clip, settings.name) == (0.9, [], 0.0, "signum")
    assert settings.rest == pytest.approx(0.1)
    # a name that is left out would be another optimiser's
    assert canonical(settings) == common | {"sizes": []}
    assert schema.own_settings(schema.OPTIMIZER, "signum") == ("beta", "sizes")
    assert "optim.sizes" in schema.known_paths()
    for wrong, message in (
        ({"beta": 2.0}, "beta = 2.0 does not fit"),
        ({"beta": 1.0}, "does not fit schedule = cosine"),
        ({"floor": 0.5}, "floor must not be larger than lr"),
        ({"name": "adamw"}, "Invalid enum value 'adamw'"),
        ({"momentum": 0.5}, "unknown field `momentum`"),
        ({"beta": "x"}, "Expected `float`"),
    ):
        with pytest.raises(msgspec.ValidationError, match=message):
            msgspec.convert(common | wrong, type_)
    msgspec.convert(common | {"beta": 1.0, "schedule": "constant"}, type_)


def test_settings_of_an_optimizer_may_extend_those_of_another(folder: Path) -> None:
    text = SIGNUM.replace("class Settings(msgspec.Struct)", "class Settings(lrurun.config.optimizers.adamw.AdamW)")
    Path("x.py").write_text(f"import lrurun.config.optimizers.adamw\n{text}")
    plugins.load("x.py")
    assert set(schema.own_settings(schema.OPTIMIZER, "signum")) == {"b1", "b2", "eps", "momentum"}


def test_the_list_marks_optimizers_of_plug_ins(machine: Machine) -> None:
    lines = machine.run("list", "optimizers").stdout.splitlines()
    assert lines[1].split() == ["name", "what"], "none of its own is from a plug-in"
    assert max(map(len, lines)) <= 140, "a sentence each, as in the other lists"
    Path("signum.py").write_text(SIGNUM)
    *own, mine = machine.json("list", "optimizers", "--load", "signum.py")["optimizers"]
    assert mine == {"name": "signum", "what": "The sign of a momentum.", "plugin": "signum.py"}
    assert own[0]["name"] == "adamw"
    assert len(lines) == 2 + len(own)
    assert own[0]["what"].startswith("Adam with decoupled weight decay")
    assert not [optimizer for optimizer in own if optimizer["plugin"] or not optimizer["what"]]
    assert "signum.py" in machine.run("list", "optimizers", "--load", "signum.py").stdout
    forget()
    lines = machine.run("list", "optimizers").stdout.splitlines()
    assert lines[1].split() == ["name", "what"], "none of its own is from a plug-in"
    assert len(lines) == 2 + len(own)
    assert max(map(len, lines)) <= 140, "a sentence each, as in the other lists"


def test_entry_points_of_installed_packages(folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
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
    refused = machine.refused("check", "recurrence", "other")
    assert refused.startswith("error: entry point 'other' of package means: registers no recurrence with this name\n")
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
    err = machine.refused("plan", "sDigits", "--ladder", "averages.toml")
    assert "entry point 'averages' of package means: raised ModuleNotFoundError: No module named 'means.gone'" in err


def test_a_ladder_names_tasks_of_plug_ins(folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that it or the command loads, or of an installed package, which is not imported for it."""
    claim = '[[claim]]\ntext = "t"\nsource = "s"\nrung = "averages"\nthan = "lru"\ntasks = ["Majority"]\n'
    Path("majority.py").write_text(MAJORITY)
    Path("loads.toml").write_text(LADDER.replace('["averages.py"]', '["averages.py", "majority.py"]') + claim)
    Path("claims.toml").write_text(LADDER + claim)
    arguments = ("plan", "sDigits", "--ladder", "claims.toml")
    for _ in range(2):  # what another command loaded is not known to the next
        err = machine.refused(*arguments)
        assert "claims.toml, claim 't', tasks: unknown task 'Majority'" in err
        assert "; --load FILE if it is a task of your own" in err
        machine.run(*arguments, "--load", "majority.py")
        forget()
        machine.run("plan", "sDigits", "--ladder", "loads.toml")
        forget()
    site = folder / "site" / "votes-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: votes\nVersion: 1.0\n")
    (site / "entry_points.txt").write_text("[lrurun]\nMajority = votes.gone\n")
    monkeypatch.syspath_prepend(site.parent)
    machine.run(*arguments)


def test_a_file_is_protected_if_nobody_else_can_change_what_its_path_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link, user = tmp_path / "a" / "b", tmp_path / "link.py", os.getuid()
    folder.mkdir(parents=True)
    file = folder / "mine.py"
    assert not is_protected(file), "somebody else could write it"
    file.write_text("")
    link.symlink_to(file)
    for place in (file, folder, folder.parent):
        assert is_protected(file)
        assert is_protected(link)
        before = place.stat().st_mode
        place.chmod(before | 0o002)
        assert not is_protected(file)
        assert not is_protected(link), "a link leads there"
        place.chmod(before)
    folder.chmod(0o1777)
    assert is_protected(file), "nobody replaces files of others in a sticky folder"
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert is_protected(file) == (user == 0), "what root can change is as safe as the machine"
