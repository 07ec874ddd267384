"""Plug-ins in commands: fingerprints, reports, resume, and what runs code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import paths, plugins
from lrurun.config import planning
from lrurun.config.fingerprint import fingerprint
from lrurun.config.planning import final_runs
from lrurun.config.runs import InstanceSpec
from lrurun.config.settings import parse_sets
from lrurun.data.task_data import load, prepare
from lrurun.data.tasks import TASKS
from lrurun.errors import LrurunError
from lrurun.instances import documents, requests
from lrurun.instances.requests import LadderRequest
from lrurun.ledger.ledger import Ledger
from lrurun.runner.processes import LocalWorker
from lrurun.runner.work import Needs, Preparation, WorkerError, decode
from tests.harness.machine import Machine, wait_for
from tests.harness.plug_ins import AVERAGES, LADDER, MAJORITY, RADIUS, RECIPE, folder, forget, forgotten
from tests.harness.results import fill

__all__ = ["folder", "forgotten"]  # fixtures


@pytest.fixture
def machine(folder: Path) -> Machine:
    return Machine(folder)


def noted(text: str) -> str:
    """A plug-in that notes each time that its code is run."""
    return f"with open({str(Path('ran').absolute())!r}, 'a') as file:\n    file.write('x')\n{text}"


def enqueued(*arguments: str) -> list[str]:
    """The runs that a ladder of that file would train, in a ledger; their ids."""
    plan = planning.make("sDigits", ladder="averages.toml", profile="smoke", sets=parse_sets(arguments))
    with Ledger.open(Path("ledger.db")) as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        wanted = [w for rung in plan.rungs for w in final_runs(plan, rung, [0])]
        return [run.id for run in ledger.enqueue(key, wanted)]


def fingerprints(ladder: str) -> dict[str, str]:
    return {rung.name: fingerprint(rung.config) for rung in planning.make("sDigits", ladder=ladder).rungs}


def afresh(ladder: str) -> dict[str, str]:
    """The same, as another process sees it."""
    forget()
    return fingerprints(ladder)


def checked(machine: Machine, code: int = 0) -> list[dict[str, Any]]:
    done = machine.run("check", "recurrence", "averages", "--load", "averages.py", "--json", code=code)
    assert done.stderr.startswith("checking averages\n")
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


@pytest.mark.slow
def test_the_example_is_short_and_sound(machine: Machine) -> None:
    assert AVERAGES.count("\n") < 40
    findings = checked(machine)
    assert len(findings) > 15
    assert all(finding["passed"] for finding in findings)
    assert {finding["name"] for finding in findings} == {"averages"}


@pytest.mark.slow
def test_the_suite_finds_what_is_wrong_with_a_plug_in(machine: Machine) -> None:
    """A backward scan that begins in the padding."""
    wrong = AVERAGES.replace("u if mask is None else jnp.where(mask[..., None], u, 0.0)", "u")
    Path("averages.py").write_text(
        wrong.replace("longest: float = 32.0", "longest: float = 32.0\n        fast: bool = True")
    )
    findings = checked(machine, code=1)
    assert {f["name"] for f in findings} == {"averages", "averages, fast = False"}  # each choice is tried
    assert {f["check"] for f in findings if not f["passed"]} == {"padding does not leak, both directions"}


@pytest.mark.slow
def test_an_exception_in_a_scan_names_its_line_once(folder: Path, machine: Machine) -> None:
    Path("averages.py").write_text(AVERAGES.replace("    def scan(", "    def scan(self, *_): 1 / 0\n\n    def other("))
    line = next(k for k, text in enumerate(Path("averages.py").read_text().splitlines(), 1) if "1 / 0" in text)
    details = [finding["detail"] for finding in checked(machine, code=1) if not finding["passed"]]
    place = f"averages.py, line {line}"
    assert details[0] == f"{place}: raised ZeroDivisionError: division by zero"
    assert len(details) > 3
    assert set(details[1:]) == {f"raised at {place}, too"}
    words = ("sDigits", "--profile", "smoke", "--ladder", "averages.toml", "--rung", "averages")
    assert machine.run("ladder", *words, code=None).returncode != 0
    [run, *_] = machine.json("runs")["runs"]
    assert details[0] in machine.run("show", run["id"]).stdout


ONE_WAY = AVERAGES.replace("(False, True) if self.bidirectional else (False,)", "(False,)").replace(
    "        self.require_causal()\n", ""
)
"""The same recurrence without its backward direction."""


def test_a_causal_recurrence_declares_that_it_is(folder: Path, machine: Machine) -> None:
    assert ONE_WAY != AVERAGES
    text = ONE_WAY.replace("    class Settings", "    causal_only = True\n\n    class Settings")
    Path("averages.py").write_text(text)
    both = ("--set", "model.bidirectional=true")
    plan = ("plan", "sDigits", "--profile", "smoke", "--ladder", "averages.toml")
    assert machine.refused(*plan, *both).startswith(
        'error: --set model.bidirectional: bidirectional must be false with kind = "averages", which is causal only\n'
    )
    line = "        longest: float = 32.0  # steps that the slowest average remembers\n"
    own = "        def fits(self, *, width, state, bidirectional):\n            raise ValueError('not these')\n"
    Path("averages.py").write_text(text.replace(line, f"{line}\n{own}"))
    forget()
    assert machine.run(*plan, code=None).stderr.count("not these") == 1


@pytest.mark.slow
def test_a_causal_recurrence_fails_the_suite_unless_it_is_declared(machine: Machine) -> None:
    Path("averages.py").write_text(ONE_WAY)
    failed = {f["check"] for f in checked(machine, code=1) if not f["passed"]}
    assert "looks both ways" in failed


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ("def offline(", "def offlin(", "its data can neither be downloaded nor generated", "define offline()"),
        ('writer.save(split, "labels", ', 'print(split, "labels", ', "the array train-labels is missing", "the `fill`"),
        ("bits.sum(1) > 4", "bits.sum(1)", "train-labels[0]: expected numbers from 0 to 1, found 7", "the code"),
        ("astype(np.uint8)\n                writer",
         "astype(np.float32)\n                bits[5, 2:4] = np.nan\n                writer",
         "train-inputs[5, 2]: expected finite numbers, found nan", "the code of task Majority wrote it"),
        ("length=9", "length=8", "train-inputs: expected the shape (64, 8, 1), found (64, 9)", "the code"),
        ('"labels", (bits', '"labels", (bits[1:]', "train-inputs: expected one for each of 63 labels, found 64", "the"),
        ("size=(self.sizes(options)[split], 9)", "size=(5, 9)", "train: expected 64 examples, found 5", "the code"),
    ],
)  # fmt: skip
def test_mistakes_in_the_code_of_a_task_are_named(folder: Path, old: str, new: str, message: str, hint: str) -> None:
    assert MAJORITY.count(old) == 1
    Path("mine.py").write_text(MAJORITY.replace(old, new))
    plugins.load("mine.py")
    task = TASKS["Majority"]
    with pytest.raises(LrurunError) as caught:  # noqa: PT012 (the error is of one or the other)
        prepare(task, task.options(), Path("Majority"))
        load(task, task.options(), Path("Majority"))
    assert caught.value.message.startswith(f"Majority: {message}")
    assert str(caught.value.hint).startswith(hint)


def test_a_task_without_a_recipe_and_a_recipe_without_its_task(folder: Path, machine: Machine) -> None:
    Path("mine.py").write_text(MAJORITY)
    Path("m.toml").write_text(RECIPE)
    zebras = machine.refused("report", "Zebras")  # no task of lrurun has a name like it
    assert zebras.startswith("error: unknown task 'Zebras'")
    assert zebras.rstrip().endswith("with a task of your own: the path of its recipe, and --load FILE")
    assert machine.refused("report", "m.toml").startswith("error: m.toml, task: unknown task 'Majority'")
    assert machine.refused("plan", "Majority", "--load", "mine.py").startswith(
        "error: no recipe for task Majority\nhint: write recipes/Majority.toml"
    )


def test_the_fingerprint_has_the_file_where_it_is_used(folder: Path) -> None:
    plain = RADIUS.replace('"radius"', '"plain"')
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


def test_settings_of_a_plug_in_are_as_strict_as_the_others(folder: Path, machine: Machine) -> None:
    arguments = ("plan", "sDigits", "--profile", "smoke", "--ladder", "averages.toml")
    where = "averages.toml, rung averages, model.recurrence.longest"
    for old, new, error, hint in (
        (
            "64.0",
            '"long"',
            f'{where}: expected a number, found "long"',
            "change model.recurrence.longest in averages.toml",
        ),
        (".longest", ".longst", f"{where[:-3]}st: unknown name", "did you mean 'model.recurrence.longest'?"),
        (
            'longest" = 64.0',
            'normalize" = true',
            f"{where[:-7]}normalize: unknown name",
            "known names here: kind, longest",
        ),
        (
            '"averages", "m',
            '"average", "m',
            f"{where[:-7]}kind: expected one of attention, ",
            "did you mean 'averages'?",
        ),
    ):
        Path("averages.toml").write_text(LADDER.replace(old, new))
        found = machine.refused(*arguments)
        assert found.startswith(f"error: {error}")
        assert f"\nhint: {hint}" in found
    Path("averages.toml").write_text(LADDER)
    assert "longest = 4; code = averages.py" in machine.run(*arguments, "--set", "model.recurrence.longest=4").stdout
    refused = machine.refused(*arguments, "--set", "code.recurrence=x")
    assert refused.startswith("error: --set code.recurrence: unknown name")


def test_reading_commands_run_no_code(folder: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row of the ledger makes code run, nor does a ladder that lies about; a command that names the ladder does."""
    Path("averages.py").write_text(noted(AVERAGES))
    diagonal, run = enqueued()
    Path("radius.toml").write_text(RADIUS)
    assert Path("ran").read_text() == "x"
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
    Path("ablations").mkdir()
    Path("ablations/averages.toml").write_text(LADDER.replace("averages.py", "../averages.py"))
    for kind, name in (("recipes", "sDigits"), ("ablations", "lru")):  # the others take long to check
        (folder / "packaged" / kind).mkdir(parents=True)
        shutil.copy(paths.packaged(kind) / f"{name}.toml", folder / "packaged" / kind)
    monkeypatch.setattr(paths, "packaged", lambda kind: folder / "packaged" / kind)
    forget()
    for arguments in (
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
        done = machine.run(*arguments, code=4 if arguments[0] == "report" else 0)
        assert arguments[:2] != ("check", "ladder") or "not checked: loads ../averages.py" in done.stdout
    by_id = ("report", "sDigits", "--instance", instance.key)
    assert machine.refused(*by_id) == (
        "error: ablations/averages.toml: needs ../averages.py, which this command does not load\n"
        "hint: name it: --load ablations/../averages.py\n"
    )
    assert Path("ran").read_text() == "x"
    for arguments in (
        (*by_id, "--load", "averages.py"),
        ("report", "sDigits", "--profile", "smoke", "--ladder", "averages"),
        ("check", "ladder", "averages"),
    ):
        machine.run(*arguments)
        forget()
    assert Path("ran").read_text() == "xxxx"


def test_a_ledger_names_no_file_to_load(folder: Path, machine: Machine) -> None:
    """An instance whose ladder is a path: a ledger that somebody sent may say anything."""
    Path("averages.py").write_text(noted(AVERAGES))
    with Ledger.open(Path("ledger.db")) as ledger:
        key = ledger.add_ladder("./averages.toml", "sDigits", "smoke", InstanceSpec()).key
    assert machine.refused("report", "sDigits", "--instance", key).startswith(
        "error: averages.toml: needs averages.py, which this command does not load\n"
    )
    assert not Path("ran").exists()
    plan = planning.make("sDigits", ladder="averages.toml", profile="smoke")
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        documents.record(ledger, instance, plan)
    Path("ran").unlink()
    forget()
    assert "averages" in machine.run("report", "--instance", key).stdout
    assert not Path("ran").exists()


def test_results_are_read_as_recorded_and_code_is_loaded_only_unchanged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("averages.py").write_text(noted(AVERAGES))
    Path("averages.toml").write_text(LADDER.replace(', "model.recurrence.longest" = 64.0', ""))  # the default
    fill(folder / "ledger.db", "sDigits", {"averages": [0.3, 0.4]}, profile="smoke", ladder="averages.toml")
    wanted: Any = {"task": "sDigits", "ladder": "averages.toml", "profile": "smoke"}
    plan = planning.make(**wanted)
    with Ledger.open(folder / "ledger.db") as ledger:
        [instance] = ledger.ladders()
        requests.remember(ledger, instance, LadderRequest(**wanted, tune=False, sets={}), plan, [0, 1])
        documents.record(ledger, instance, plan)
        assert documents.plan_of(ledger, instance).spec == instance.spec
        [run, *_] = ledger.runs(instance.key)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    machine = Machine(folder / "elsewhere")
    machine.env["LRURUN_LEDGER"] = "../ledger.db"
    ran = folder / "ran"
    of_instance = ("report", "--instance", instance.short_name)
    by_name = ("report", "sDigits", "--profile", "smoke", "--ladder", "averages")

    def report(*arguments: str) -> Any:
        forget()
        ran.write_text("")
        return machine.json(*arguments)

    recorded = report(*of_instance)
    assert ([row["n"] for row in recorded["rows"]], recorded["notes"], ran.read_text()) == ([0, 2], [], "")
    assert (report(*by_name), ran.read_text()) == (recorded, "x")
    assert report("claims", "sDigits", "--ladder", "averages")["claims"] == []
    forget()
    machine.run("show", run.id, "--toml")

    (folder / "averages.py").write_text((folder / "averages.py").read_text() + "# changed\n")
    note = f"{folder / 'averages.py'} changed after these runs: they are shown as recorded"
    for more in ((), ("--load", "../averages.py")):
        changed = report(*of_instance, *more)
        assert (changed["rows"], changed["notes"]) == (recorded["rows"], [{"text": note, "runs": []}])
        assert bool(ran.read_text()) == bool(more)
    forget()
    ran.unlink()
    assert f"lrurun report --instance {instance.short_name}" in machine.run(*by_name, code=2).stderr
    assert not ran.exists()
    machine.run("show", run.id, "--toml", code=1)


def test_what_an_option_loaded_is_named_again_for_resume(folder: Path, machine: Machine) -> None:
    """Code is not taken from a row of the ledger."""
    Path("averages.toml").write_text(LADDER.replace('load = ["averages.py"]', ""))
    plugins.load_files(["averages.py"])
    asked = requests.LadderRequest(
        task="sDigits", ladder="averages.toml", profile="smoke", rungs=[], seeds="1", tune=False, sets={}
    )
    enqueued()
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        requests.remember(ledger, instance, asked, asked.plan(), [0])
        [remembered] = requests.recorded(ledger, instance, requests.LadderRequest)
        assert remembered.load == [str(folder / "averages.py")]
        Path("majority.py").write_text(MAJORITY)
        plugins.load_files(["majority.py"])
        claim = '[[claim]]\ntext = "t"\nsource = "s"\nrung = "ring"\nthan = "disk"\ntasks = ["Majority"]\n'
        Path("claims.toml").write_text(RADIUS + claim)
        other = msgspec.structs.replace(asked, ladder="claims.toml")
        key = ledger.add_ladder("claims", "sDigits", "other", InstanceSpec())
        requests.remember(ledger, key, other, other.plan(), [0])
        assert requests.recorded(ledger, key, requests.LadderRequest)[0].load == [str(folder / "majority.py")]
        # of what a ladder does not use, or names itself, nothing is remembered
        for name, text in (("radius", RADIUS), ("averages", LADDER)):
            Path(f"{name}-2.toml").write_text(text)
            other = msgspec.structs.replace(asked, ladder=f"{name}-2.toml")
            key = ledger.add_ladder(name, "sDigits", "other", InstanceSpec())
            requests.remember(ledger, key, other, other.plan(), [0])
            assert requests.recorded(ledger, key, requests.LadderRequest)[0].load == []
    forget()  # as another process
    assert machine.refused("resume").splitlines() == [
        f"error: ladder {instance.short_name}: was started with --load {folder / 'averages.py'}",
        f"hint: code is not loaded from a ledger; name it again: lrurun resume --load {folder / 'averages.py'}",
    ]


def test_a_file_that_has_changed_is_refused(folder: Path) -> None:
    plugins.load("averages.py")
    order = plugins.loaded()
    assert order.files == [(str(folder / "averages.py"), plugins._FILES[str(folder / "averages.py")].sha256)]
    plugins.load_all(order)
    order = plugins.Loaded([(order.files[0][0], "sha256:other")])
    with pytest.raises(LrurunError, match=r"averages\.py was changed while this command was using it"):
        plugins.load_all(order)
    Path("averages.py").write_text(AVERAGES + "\n")
    with pytest.raises(LrurunError, match=r"averages\.py was changed while this command was using it"):
        plugins.load("averages.py")


@pytest.mark.slow
def test_a_worker_whose_file_has_changed_says_so(folder: Path) -> None:
    plugins.load("averages.py")
    Path("averages.py").write_text(AVERAGES + "\n")
    worker = LocalWorker(Preparation(task="sDigits", options={}, data=folder, from_path=None), needs=Needs())
    assert wait_for(worker.poll) == 74
    assert decode(worker.tail(1), WorkerError).message == "averages.py was changed while this command was using it"
    worker.close()


@pytest.mark.parametrize("kind", ["Task", "Recurrence"])
def test_the_decorator_is_all_that_a_process_needs_to_import(kind: str, tmp_path: Path) -> None:
    """Registers a class in a fresh interpreter, in which nothing else has imported lrurun's own ones."""
    script = f"import lrurun\nlrurun.{kind.lower()}('mine')(type('Mine', (lrurun.{kind},), {{}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert "Mine lacks" in done.stderr.splitlines()[-1], done.stderr
