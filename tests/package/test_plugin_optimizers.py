"""Optimisers of the user's own: fingerprints, settings, entry points, and commands on what was trained with one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun import plugins
from lrurun.config import planning, wording
from lrurun.config.fingerprint import fingerprint
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.errors import LrurunError, UsageError
from lrurun.instances import documents, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.ledger import Ledger
from lrurun.training import conformance
from tests.harness.machine import Machine
from tests.harness.plug_ins import AVERAGES, OPTIMIZERS_LADDER, SIGNUM, folder, forget, forgotten
from tests.harness.results import fill

__all__ = ["folder", "forgotten"]  # fixtures

PLAN = ("plan", "sDigits", "--profile", "smoke", "--ladder", "signs.toml")
MODULE, CLASS = SIGNUM.split("\n\n\n")
TWO = f"{MODULE}\n\n\n{CLASS}\n\n{CLASS.replace('signum', 'other').replace('Signum', 'Other')}"
"""Two optimisers in a file."""


@pytest.fixture
def machine(folder: Path) -> Machine:
    Path("signum.py").write_text(SIGNUM)
    Path("signs.toml").write_text(OPTIMIZERS_LADDER)
    return Machine(folder)


def fingerprints() -> dict[str, str]:
    """Rung -> fingerprint, as a new process sees them."""
    forget()
    plan = planning.make("sDigits", ladder="signs.toml")
    return {rung.name: fingerprint(rung.config) for rung in plan.rungs}


def test_the_fingerprint_has_the_file_where_it_is_used(machine: Machine) -> None:
    before = fingerprints()
    Path("signum.py").write_text(SIGNUM + "# another version\n")
    changed = fingerprints()
    assert changed["adamw"] == before["adamw"]
    assert changed["signum"] != before["signum"]
    rung = planning.make("sDigits", ladder="signs.toml").rungs[-1]
    assert rung.sources["code.optimizer"] == "signum.py"
    assert rung.training.code is not None
    assert (rung.training.code.recurrence, rung.training.code.task) == (None, None)
    assert "optim.name = signum; optim.lr = 0.001; optim.momentum = 0.5; code = signum.py" in machine.run(*PLAN).stdout


def test_two_optimizers_of_a_file_have_fingerprints_of_their_own(machine: Machine) -> None:
    """Also where all of their settings are the defaults, which fingerprints leave out."""
    Path("signum.py").write_text(TWO)
    ladder = OPTIMIZERS_LADDER.replace(', "optim.momentum" = 0.5, "optim.lr" = 0.001', "")
    Path("signs.toml").write_text(ladder)
    one = fingerprints()
    Path("signs.toml").write_text(ladder.replace('"optim.name" = "signum"', '"optim.name" = "other"'))
    other = fingerprints()
    assert one["adamw"] == other["adamw"]
    assert one["signum"] != other["signum"]
    forget()
    names = [entry["name"] for entry in machine.json("list", "optimizers", "--load", "signum.py")["optimizers"]]
    assert names[-2:] == ["signum", "other"]


def test_an_optimizer_and_a_recurrence_in_one_file(machine: Machine) -> None:
    Path("signum.py").write_text(f"{SIGNUM}\n\n{AVERAGES}")
    both = '{ "model.recurrence.kind" = "averages", "optim.name" = "signum" }'
    rung = f'\n[[rung]]\nname = "both"\ntitle = "both"\nchange = {both}\n'
    Path("signs.toml").write_text(OPTIMIZERS_LADDER + rung)
    *_, signum, config = [rung.training for rung in planning.make("sDigits", ladder="signs.toml").rungs]
    assert config.code is not None
    assert config.code.recurrence == config.code.optimizer
    assert signum.code is not None
    assert signum.code.recurrence is None


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('.momentum" = 0.5', '.momentum" = "x"', "optim.momentum: expected a number, found \"x\"", "change optim.mom"),
        (".momentum", ".momentun", "optim.momentun: unknown name", "did you mean 'optim.momentum'?"),
        ('"optim.name" = "signum"', '"optim.name" = "signun"', "optim.name: expected one of adamw, ", "did you mean"),
        ('"optim.name" = "signum"', '"optim.name" = "lion"', "optim.momentum: unknown name", ""),
        ('.momentum" = 0.5', '.b1" = 0.5', "optim.b1: unknown name", ""),
    ],
)  # fmt: skip
def test_settings_of_a_plug_in_are_as_strict_as_the_others(
    machine: Machine, old: str, new: str, message: str, hint: str
) -> None:
    assert old in OPTIMIZERS_LADDER
    Path("signs.toml").write_text(OPTIMIZERS_LADDER.replace(old, new))
    error, _, found = machine.refused(*PLAN).partition("\nhint: ")
    assert error.startswith(f"error: signs.toml, rung signum, {message}")
    assert found.startswith(hint)


def test_values_are_set_and_swept(machine: Machine) -> None:
    assert "optim.momentum = 0.25; code = signum.py" in machine.run(*PLAN, "--set", "optim.momentum=0.25").stdout
    said = machine.refused(*PLAN, "--set", "optim.momentum=0.25", "--set", "optim.name=lion")
    assert "optim.momentum" in said
    forget()
    assert "optim.name: expected one of adamw, " in machine.refused(*PLAN[:4], "--set", "optim.name=signum")
    forget()
    shown = machine.run(*PLAN[:4], "--load", "signum.py", "--set", "optim.name=signum", "--rung", "gamma-norm").stdout
    assert "gamma-norm" in shown
    swept = machine.run(*PLAN[:4], "--load", "signum.py", "--sweep", "optim.name=adamw,signum").stdout
    assert [line.split()[0] for line in swept.splitlines()[2:4]] == ["adamw", "signum"]


def test_unknown_optimizers_are_refused_with_the_nearest_name(machine: Machine) -> None:
    refused = machine.refused("check", "optimizer", "signun", "--load", "signum.py")
    assert refused.startswith("error: unknown optimizer 'signun'\nhint: did you mean 'signum'?")
    forget()
    assert machine.refused("check", "optimizer", "signum") == (
        "error: unknown optimizer 'signum'\nhint: --load signum.py\n"
    )
    assert "did you mean 'optimizer'?" in machine.refused("check", "optimiser", "adamw")
    assert "did you mean 'optimizer'?" in machine.refused("new", "optimiser", "mine")
    assert "did you mean 'optimizers'?" in machine.refused("list", "optimisers")


def test_the_check_names_the_line_of_a_fault_once(machine: Machine) -> None:
    text = SIGNUM.replace("self.settings.momentum", "self.settings.lr")
    Path("signum.py").write_text(text)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if "settings.lr" in content)
    done = machine.run("check", "optimizer", "signum", "--load", "signum.py", "--json", code=1)
    details = [finding["detail"] for finding in json.loads(done.stdout)["findings"] if not finding["passed"]]
    assert details[0].startswith(
        f"signum.py, line {line}: raised AttributeError: optim.lr is not known to an optimiser"
    )
    assert set(details[1:]) == {f"raised at signum.py, line {line}, too"}
    assert "checks failed: signum" in done.stderr


RICH = """
import msgspec
import optax

import lrurun


class Mixed:
    def doubled(self):
        return 2 * self.momentum


class Base(msgspec.Struct):
    momentum: float = 0.25

    @property
    def kept(self):
        return READ

    @classmethod
    def most(cls):
        return cls.limit

    @staticmethod
    def halved(value):
        return value / 2

    def __post_init__(self):
        if self.momentum > self.most():
            raise ValueError(f"momentum must not be larger than {self.limit}, found momentum = {self.momentum}")


@lrurun.optimizer("rich")
class Rich(lrurun.Optimizer):
    class Settings(Mixed, Base):
        limit = 0.5

    def transformation(self):
        settings = self.settings
        return optax.trace(settings.halved(settings.doubled()) + settings.most() + settings.kept + settings.limit)
""".lstrip()


def rich(read: str) -> Any:
    """The optimiser, whose property `kept` is this expression."""
    Path("rich.py").write_text(RICH.replace("READ", read))
    plugins.load("rich.py")
    return OPTIMIZERS["rich"]


def test_settings_have_methods_properties_and_constants_of_their_own_and_inherited(folder: Path) -> None:
    declared = rich("self.momentum * 4")
    table = {"name": "rich", "lr": 0.1, "recurrent_factor": 1.0, "weight_decay": 0.0}
    settings = declared.load()(declared.settings(**table)).settings
    assert [settings.doubled(), settings.kept, settings.most(), settings.halved(3), settings.limit] == [
        0.5, 1.0, 0.5, 1.5, 0.5,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="momentum must not be larger than"):
        declared.settings(**table, momentum=0.75)
    with pytest.raises(ValueError, match="floor must not be larger than lr"):
        declared.settings(**table, floor=0.5)


@pytest.mark.parametrize(
    "read", ["self.lr", "self.momentum + self.floor", "len(self.schedule)", "getattr(self, 'warmup')"]
)
def test_methods_of_settings_do_not_know_the_learning_rate(machine: Machine, read: str) -> None:
    """The property is read where steps are compiled, which runs with other rates share."""
    rich(read)
    forget()
    done = machine.run("check", "optimizer", "rich", "--load", "rich.py", "--json", code=1)
    details = [finding["detail"] for finding in json.loads(done.stdout)["findings"] if not finding["passed"]]
    line = RICH[: RICH.index("return READ")].count("\n") + 1
    assert details[0].startswith(f"rich.py, line {line}: raised AttributeError: optim.")
    assert "is not known to an optimiser" in details[0]


def test_an_optimizer_with_its_own_init_does_not_know_the_learning_rate(folder: Path) -> None:
    own = "    def __init__(self, settings):\n        super().__init__(settings)\n        self.rate = settings.lr\n\n"
    Path("signum.py").write_text(SIGNUM.replace("    def transformation", f"{own}    def transformation"))
    plugins.load("signum.py")
    config = OPTIMIZERS["signum"].settings(name="signum", lr=0.1, recurrent_factor=1.0, weight_decay=0.0)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match=r"optim\.lr is not known to an optimiser"):
        conformance.check(config)


def test_what_texts_say_of_an_optimizer_is_declared_by_its_class(machine: Machine) -> None:
    declared = '    decay_in_gradient = True\n    title = "Signum"\n    source = "Bernstein et al. 2018"\n'
    Path("signum.py").write_text(SIGNUM.replace("    on_vector = True\n", f"    on_vector = True\n{declared}"))
    shown = " ".join(machine.run(*PLAN, "-v").stdout.split())
    assert "Signum with momentum = 0.5" in shown
    assert "a weight decay of 0.05 as a part of the gradient" in shown
    forget()
    plan = planning.make("sDigits", ladder="signs.toml")
    optim = plan.rungs[-1].training.optim
    text = wording.optimizer(optim, str, every=False)
    assert text == "Signum (Bernstein et al. 2018) with momentum = 0.5"
    assert wording.average(optim, str) == ""
    forget()
    own = "\n    def evaluated(self, params, state):\n        return params\n"
    Path("signum.py").write_text(SIGNUM + own)
    planning.make("sDigits", ladder="signs.toml")
    assert wording.average(optim, str) == "parameters that its optimiser computes"


def test_an_optimizer_or_recurrence_without_a_docstring_has_no_description(machine: Machine) -> None:
    """In place of that of the base class."""
    Path("signum.py").write_text(SIGNUM.replace('    """The sign of a momentum."""\n', ""))
    rows = machine.json("list", "optimizers", "--load", "signum.py")["optimizers"]
    assert [row["what"] for row in rows if row["name"] == "signum"] == [""]
    forget()
    docstring = next(line for line in AVERAGES.splitlines() if '"""Running' in line)
    Path("averages.py").write_text(AVERAGES.replace(docstring, ""))
    rows = machine.json("list", "recurrences", "--load", "averages.py")["recurrences"]
    assert [row["what"] for row in rows if row["name"] == "averages"] == [""]


def test_rules_that_refuse_what_the_check_tries_are_a_finding(machine: Machine) -> None:
    rule = "\n        def __post_init__(self):\n            raise ValueError(f'not {self.momentum}')\n"
    line = "        momentum: float = 0.9\n"
    Path("signum.py").write_text(SIGNUM.replace(line, line + rule))
    done = machine.run("check", "optimizer", "signum", "--load", "signum.py", "--json", code=1)
    [finding] = json.loads(done.stdout)["findings"]
    assert finding["detail"] == "its rules refuse all that were tried: not 0.9"


def test_entry_points_of_installed_packages(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by a rung, an option, a recipe, or the check."""
    site = Path("site")
    (site / "means").mkdir(parents=True)
    (site / "means" / "__init__.py").write_text(SIGNUM)
    info = site / "means-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: means\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lrurun]\nsignum = means\n")
    monkeypatch.syspath_prepend(site.absolute())
    Path("signs.toml").write_text(OPTIMIZERS_LADDER.replace('load = ["signum.py"]\n', ""))
    with pytest.raises(UsageError, match=r"optim\.(name|momentum): "):
        planning.make("sDigits", ladder="signs.toml", imports=False)
    rung = planning.make("sDigits", ladder="signs.toml").rungs[-1]
    assert rung.sources["code.optimizer"] == "package means"
    order = plugins.loaded()
    assert order == plugins.Loaded(installed=[("optimizer", "signum")])
    forget()
    plugins.load_all(order)
    assert "signum" in OPTIMIZERS
    for command in (
        ("plan", "sDigits", "--profile", "smoke", "--set", "optim.name=signum"),
        ("check", "optimizer", "signum"),
    ):
        forget()
        machine.run(*command)
    forget()
    text = (Path(lrurun.__file__).parents[1] / "recipes" / "sDigits.toml").read_text()
    assert text.count("\n[optim]") == 1
    Path("mine.toml").write_text(text.replace("\n[optim]", '\n[optim]\nname = "signum"'))
    plan = planning.make("mine.toml", ladder="lru")
    assert {rung.training.optim.name for rung in plan.rungs} == {"signum"}
    forget()
    plugins.load("signum.py")
    with pytest.raises(UsageError, match=r"optimizer 'signum': is in package means and in signum\.py"):
        planning.make("sDigits", ladder="signs.toml")


@pytest.mark.parametrize("defaults", [False, True])
def test_results_are_read_as_recorded_and_code_is_loaded_only_unchanged(machine: Machine, defaults: bool) -> None:
    if defaults:
        Path("signs.toml").write_text(OPTIMIZERS_LADDER.replace(', "optim.momentum" = 0.5', ""))
    Path("signum.py").write_text(f"with open('ran', 'a') as file:\n    file.write('x')\n{SIGNUM}")
    fill(Path("ledger.db"), "sDigits", {"signum": [0.3, 0.4]}, profile="smoke", ladder="signs.toml")
    wanted: Any = {"task": "sDigits", "ladder": "signs.toml", "profile": "smoke"}
    plan = planning.make(**wanted)
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        requests.remember(ledger, instance, LadderRequest(**wanted, tune=False, sets={}), plan, [0, 1])
        documents.record(ledger, instance, plan)
        [run, *_] = ledger.runs(instance.key)
    ran = Path("ran")

    def after(*arguments: str) -> Any:
        forget()
        ran.write_text("")
        return machine.json(*arguments)

    of_instance = ("report", "--instance", instance.short_name)
    recorded = after(*of_instance)
    assert ([row["n"] for row in recorded["rows"]], recorded["notes"], ran.read_text()) == ([0, 2], [], "")
    by_name = ("report", "sDigits", "--profile", "smoke", "--ladder", "signs.toml")
    assert ([row["mean"] for row in after(*by_name)["rows"]], ran.read_text()) == (
        [row["mean"] for row in recorded["rows"]],
        "x",
    )
    shown = after("show", run.id)
    assert (shown["config"]["optim"]["name"], ran.read_text()) == ("signum", "")
    where = ("runs", "--where", "optim.name=signum and optim.momentum<0.95")
    assert [found["rung"] for found in after(*where, "--load", "signum.py")["runs"]] == ["signum"] * 2
    forget()
    assert '"optim.name" = "signum"' in machine.run("show", run.id, "--toml").stdout

    Path("signum.py").write_text(f"{SIGNUM}# changed\n")
    note = "signum.py changed after these runs: they are shown as recorded"
    for more in ((), ("--load", "signum.py")):
        changed = after(*of_instance, *more)
        assert (changed["rows"], [found["text"] for found in changed["notes"]]) == (recorded["rows"], [note])
    assert after("show", run.id)["config"] == shown["config"]
    forget()
    said = machine.refused("show", run.id, "--toml", "--load", "signum.py", code=1)
    assert f"run {run.id}: signum.py, which has optimiser 'signum', has changed since: sha256:" in said
    Path("signum.py").unlink()
    assert after(*of_instance)["rows"] == recorded["rows"]
    assert after("show", run.id)["config"] == shown["config"]
    forget()
    said = machine.refused("show", run.id, "--toml", code=1)
    assert f"run {run.id}: its optimiser 'signum' comes from a file or package that is not loaded" in said
    assert "there is no file signum.py" in machine.refused(*by_name)


def test_a_file_that_an_option_loaded_is_remembered_for_resume(machine: Machine) -> None:
    Path("signs.toml").write_text(OPTIMIZERS_LADDER.replace('load = ["signum.py"]\n', ""))
    plugins.load_files(["signum.py"])
    asked = LadderRequest(
        task="sDigits", ladder="signs.toml", profile="smoke", rungs=[], seeds="1", tune=False, sets={}
    )
    plan = asked.plan()
    with Ledger.open(Path("ledger.db")) as ledger:
        instance = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec)
        requests.remember(ledger, instance, asked, plan, [0])
        [remembered] = requests.recorded(ledger, instance, LadderRequest)
    assert remembered.load == [str(Path("signum.py").absolute())]


@pytest.mark.slow
def test_all_commands_work_on_a_run_with_an_optimizer_of_a_plug_in(machine: Machine) -> None:
    few = (
        "--set",
        "train.steps=12",
        "--set",
        "train.eval_every=6",
        "--set",
        "optim.clip=0.5",
        "--set",
        "optim.accumulate=2",
    )
    words = ("sDigits", "--profile", "smoke", "--ladder", "signs.toml", *few)
    machine.run("ladder", *words, "--seeds", "2", "--pack", "2", "--jobs", "1")
    runs = {run["rung"]: run for run in machine.json("runs")["runs"]}
    run = runs["signum"]["id"]
    shown = machine.json("show", run)
    assert set(shown["config"]["code"]) == {"optimizer"}
    assert shown["config"]["optim"]["momentum"] == 0.5
    assert shown["provenance"]["code.optimizer"] == "signum.py"
    machine.run("plot", *words, "--out", "ladder.svg")
    assert "nothing to do" in machine.run("ladder", *words, "--seeds", "2").stderr

    forget()
    text = machine.run("show", run, "--toml").stdout
    Path("again.toml").write_text(text)
    again = shlex.split(text.splitlines()[1].removeprefix("# lrurun ").replace("FILE.toml", "again.toml"))
    assert "nothing to do" in machine.run(*again).stderr

    forget()
    places: dict[str, Any] = {"ledger": machine.ledger, "runs_dir": machine.runs}
    trained = lrurun.load(run, **places)
    assert np.isfinite(trained(np.zeros((2, 64), np.uint8))).all()
    forget()
    assert machine.json("verify", run)["verdict"] in ("equal", "within tolerance")

    Path("signum.py").write_text(f"{SIGNUM}# another version\n")
    forget()
    with pytest.raises(LrurunError, match="its optimiser 'signum' comes from a file or package that is not loaded"):
        lrurun.load(run, **places)
    assert "its optimiser 'signum' comes from" in machine.refused("verify", run, code=1)
    machine.run("ladder", *words, "--seeds", "2", "--jobs", "1")
    where = ("runs", "--where", "optim.name=signum", "--load", "signum.py")
    assert len({found["fingerprint"] for found in machine.json(*where)["runs"]}) == 4, "those of the new code, too"


def test_an_optimizer_that_evaluates_other_parameters_takes_no_average(machine: Machine) -> None:
    own = "\n    def evaluated(self, params, state):\n        return params\n"
    Path("signum.py").write_text(SIGNUM + own)
    Path("signs.toml").write_text(OPTIMIZERS_LADDER)
    words = ("plan", "sDigits", "--ladder", "signs.toml", "--rung", "signum", "--set", "optim.average=ema")
    refused = machine.run(*words, code=2).stderr
    assert 'signum evaluates parameters of its own: it needs average = "none", found average = "ema"' in refused
    Path("signum.py").write_text(SIGNUM)
    forget()
    machine.run(*words)
