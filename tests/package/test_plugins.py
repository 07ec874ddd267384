"""Plug-ins in commands: fingerprints, reports, resume, and what runs code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import plugins
from lrurun.config import plan as planning
from lrurun.config import schema
from lrurun.config.plan import final_runs
from lrurun.config.runs import InstanceSpec
from lrurun.data import TASKS
from lrurun.data.store import load, prepare
from lrurun.errors import LrurunError
from lrurun.ledger.store import Ledger
from lrurun.report import instance_documents
from lrurun.report import request as requests
from lrurun.report.request import LadderRequest
from lrurun.runner.processes import LocalWorker
from lrurun.runner.work import Needs, Preparation, WorkerError, decode
from tests.harness.commands import said
from tests.harness.machine import wait_for
from tests.harness.plug_ins import AVERAGES, BUILT_IN, LADDER, MAJORITY, RADIUS, RECIPE, folder, forget, forgotten
from tests.harness.results import fill

__all__ = ["folder", "forgotten"]  # fixtures


def noted(text: str) -> str:
    """A plug-in that notes each time that its code is run."""
    return f"with open({str(Path('ran').absolute())!r}, 'a') as file:\n    file.write('x')\n{text}"


def enqueued(*arguments: str) -> list[str]:
    """The runs that a ladder of that file would train, in a ledger; their ids."""
    plan = planning.make("sDigits", ladder="averages.toml", profile="smoke", sets=list(arguments))
    with Ledger.open(Path("ledger.db")) as ledger:
        key = ledger.add_ladder(plan.ladder.name, plan.recipe.task, plan.profile, plan.spec).key
        wanted = [w for rung in plan.rungs for w in final_runs(plan, rung, [0])]
        return [run.id for run in ledger.enqueue(key, wanted)]


def fingerprints(ladder: str) -> dict[str, str]:
    return {rung.name: schema.fingerprint(rung.config) for rung in planning.make("sDigits", ladder=ladder).rungs}


def afresh(ladder: str) -> dict[str, str]:
    """The same, as another process sees it."""
    forget()
    return fingerprints(ladder)


@pytest.mark.slow
def test_the_example_is_short_and_sound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.slow
def test_an_exception_in_a_scan_names_its_line_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("averages.py").write_text(AVERAGES.replace("    def scan(", "    def scan(self, *_): 1 / 0\n\n    def other("))
    line = next(k for k, text in enumerate(Path("averages.py").read_text().splitlines(), 1) if "1 / 0" in text)
    code, out, _ = said(capsys, "check", "recurrence", "averages", "--load", "averages.py", "--json")
    details = [finding["detail"] for finding in json.loads(out)["findings"] if not finding["passed"]]
    place = f"averages.py, line {line}"
    assert (code, details[0]) == (1, f"{place}: raised ZeroDivisionError: division by zero")
    assert len(details) > 3
    assert set(details[1:]) == {f"raised at {place}, too"}
    assert said(capsys, "ladder", "sDigits", "--profile", "smoke", "--ladder", "averages.toml", "--rung", "averages")[0]
    [run, *_] = json.loads(said(capsys, "runs", "--json")[1])["runs"]
    assert details[0] in said(capsys, "show", run["id"])[1]


ONE_WAY = AVERAGES.replace("(False, True) if self.bidirectional else (False,)", "(False,)").replace(
    "        self.require_causal()\n", ""
)
"""The same recurrence without its backward direction."""


def test_a_causal_recurrence_declares_that_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ONE_WAY != AVERAGES
    text = ONE_WAY.replace("    class Settings", "    causal_only = True\n\n    class Settings")
    Path("averages.py").write_text(text)
    both = ("--set", "model.bidirectional=true")
    assert said(capsys, "plan", "sDigits", "--profile", "smoke", "--ladder", "averages.toml", *both) == (
        2,
        "",
        'error: --set model.bidirectional: bidirectional must be false with kind = "averages", which is causal only\n'
        "hint: change one of the values named above\n",
    )
    line = "        longest: float = 32.0  # steps that the slowest average remembers\n"
    own = "        def fits(self, *, width, state, bidirectional):\n            raise ValueError('not these')\n"
    Path("averages.py").write_text(text.replace(line, f"{line}\n{own}"))
    forget()
    assert said(capsys, "plan", "sDigits", "--profile", "smoke", "--ladder", "averages.toml")[2].count("not these") == 1


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_a_causal_recurrence_passes_the_suite_if_it_is_declared(
    folder: Path, capsys: pytest.CaptureFixture[str], declared: bool
) -> None:
    Path("averages.py").write_text(
        ONE_WAY.replace("    class Settings", f"    causal_only = {declared}\n\n    class Settings")
    )
    code, out, _ = said(capsys, "check", "recurrence", "averages", "--load", "averages.py", "--json")
    found = {f["check"]: f["passed"] for f in json.loads(out)["findings"]}
    assert code == 1 - declared
    assert all(found.values()) == declared
    assert ("looks both ways" in found) != declared


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            "def offline(",
            "def offlin(",
            "Majority: its data can neither be downloaded nor generated",
            "define offline() in the class of task Majority, or find(), with `wanted`, which describes a copy",
        ),
        (
            'writer.save(split, "labels", ',
            'print(split, "labels", ',
            "Majority: the array train-labels is missing: the code of task Majority has not written it",
            'the `fill` of its Source must save it: writer.save("train", "labels", array)',
        ),
        (
            "bits.sum(1) > 4",
            "bits.sum(1)",
            "Majority: train-labels[0]: expected numbers from 0 to 1, found 7",
            "the code of task Majority wrote it: correct its `fill` or its spec()",
        ),
        (
            "astype(np.uint8)\n                writer",
            "astype(np.float32)\n                bits[5, 2:4] = np.nan\n                writer",
            "Majority: train-inputs[5, 2]: expected finite numbers, found nan",
            "the code of task Majority wrote it: correct its `fill` or its spec()",
        ),
        (
            "features=1, classes=2, length=9",
            "features=1, classes=2, length=8",
            "Majority: train-inputs: expected the shape (64, 8, 1), found (64, 9)",
            "the code of task Majority wrote it: correct its `fill` or its spec()",
        ),
        (
            '"labels", (bits',
            '"labels", (bits[1:]',
            "Majority: train-inputs: expected one for each of 63 labels, found 64",
            "the code of task Majority wrote it: correct its `fill` or its spec()",
        ),
        (
            "size=(self.sizes(options)[split], 9)",
            "size=(5, 9)",
            "Majority: train: expected 64 examples, found 5",
            "the code of task Majority wrote it, and its sizes() returns another number: correct one of them",
        ),
    ],
)
def test_mistakes_in_the_code_of_a_task_are_named(folder: Path, old: str, new: str, message: str, hint: str) -> None:
    assert MAJORITY.count(old) == 1
    Path("mine.py").write_text(MAJORITY.replace(old, new))
    plugins.load("mine.py")
    task = TASKS["Majority"]
    with pytest.raises(LrurunError) as caught:  # noqa: PT012 (the error is of one or the other)
        prepare(task, task.options(), Path("Majority"))
        load(task, task.options(), Path("Majority"))
    assert caught.value.message == message
    assert str(caught.value.hint).startswith(hint)


def test_a_task_without_a_recipe_and_a_recipe_without_its_task(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(MAJORITY)
    Path("m.toml").write_text(RECIPE)
    own = "with a task of your own: the path of its recipe, and --load FILE"
    code, _, err = said(capsys, "report", "Zebras")  # no task of lrurun has a name like it
    assert (code, err.splitlines()[0], err.rstrip().endswith(own)) == (2, "error: unknown task 'Zebras'", True)
    code, _, err = said(capsys, "report", "m.toml")
    assert (code, err.splitlines()[0]) == (2, "error: m.toml, task: unknown task 'Majority'")
    assert err.rstrip().endswith("; --load FILE if it is a task of your own")
    assert said(capsys, "plan", "Majority", "--load", "mine.py") == (
        2,
        "",
        "error: no recipe for task Majority\nhint: write recipes/Majority.toml, or name the path of one: PATH.toml\n",
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


def test_settings_of_a_plug_in_are_as_strict_as_the_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", "sDigits", "--profile", "smoke", "--ladder", "averages.toml")
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
            f'expected one of {", ".join([*BUILT_IN, "averages"])}, found "average"',
            "did you mean 'averages'?",
        ),
    ):
        Path("averages.toml").write_text(LADDER.replace(old, new))
        assert said(capsys, *arguments) == (2, "", f"error: {error}\nhint: {hint}\n")
    Path("averages.toml").write_text(LADDER)
    code, out, _ = said(capsys, *arguments, "--set", "model.recurrence.longest=4")
    assert (code, "longest = 4; code = averages.py" in out) == (0, True)
    code, _, err = said(capsys, *arguments, "--set", "code.recurrence=x")
    assert (code, err.splitlines()[0]) == (2, "error: --set code.recurrence: unknown name")


@pytest.mark.slow
def test_reading_commands_run_no_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No row of the ledger makes code run, nor does a ladder that lies about; a command that names the ladder does."""
    Path("averages.py").write_text(noted(AVERAGES))
    diagonal, run = enqueued()
    Path("radius.toml").write_text(RADIUS)
    assert Path("ran").read_text() == "x"
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
    Path("ablations").mkdir()
    Path("ablations/averages.toml").write_text(LADDER.replace("averages.py", "../averages.py"))
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
        code, out, err = said(capsys, *arguments)
        assert code == (4 if arguments[0] == "report" else 0), err
        assert arguments[:2] != ("check", "ladder") or "not checked: loads ../averages.py" in out
    by_id = ("report", "sDigits", "--instance", instance.key)
    assert said(capsys, *by_id) == (
        2,
        "",
        "error: ablations/averages.toml: needs ../averages.py, which this command does not load\n"
        "hint: name it: --load ablations/../averages.py\n",
    )
    assert Path("ran").read_text() == "x"
    for arguments in (
        (*by_id, "--load", "averages.py"),
        ("report", "sDigits", "--profile", "smoke", "--ladder", "averages"),
        ("check", "ladder", "averages"),
    ):
        assert said(capsys, *arguments)[0] == 0
        forget()
    assert Path("ran").read_text() == "xxxx"


def test_a_ledger_names_no_file_to_load(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An instance whose ladder is a path: a ledger that somebody sent may say anything."""
    Path("averages.py").write_text(noted(AVERAGES))
    with Ledger.open(Path("ledger.db")) as ledger:
        key = ledger.add_ladder("./averages.toml", "sDigits", "smoke", InstanceSpec()).key
    code, _, err = said(capsys, "report", "sDigits", "--instance", key)
    assert (code, err.splitlines()[0]) == (
        2,
        "error: averages.toml: needs averages.py, which this command does not load",
    )
    assert not Path("ran").exists()
    plan = planning.make("sDigits", ladder="averages.toml", profile="smoke")
    with Ledger.open(Path("ledger.db")) as ledger:
        [instance] = ledger.ladders()
        instance_documents.record(ledger, instance, plan)
    Path("ran").unlink()
    forget()
    code, out, _ = said(capsys, "report", "--instance", key)
    assert (code, "averages" in out, Path("ran").exists()) == (0, True, False)


def test_results_are_read_as_recorded_and_code_is_loaded_only_unchanged(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("averages.py").write_text(noted(AVERAGES))
    Path("averages.toml").write_text(LADDER.replace(', "model.recurrence.longest" = 64.0', ""))  # the default
    fill(folder / "ledger.db", "sDigits", {"averages": [0.3, 0.4]}, profile="smoke", ladder="averages.toml")
    wanted: Any = {"task": "sDigits", "ladder": "averages.toml", "profile": "smoke"}
    plan = planning.make(**wanted)
    with Ledger.open(folder / "ledger.db") as ledger:
        [instance] = ledger.ladders()
        requests.remember(ledger, instance, LadderRequest(**wanted, tune=False, sets=[]), plan, [0, 1])
        instance_documents.record(ledger, instance, plan)
        assert instance_documents.plan_of(ledger, instance).spec == instance.spec
        [run, *_] = ledger.runs(instance.key)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    monkeypatch.setenv("LRURUN_LEDGER", "../ledger.db")
    ran = folder / "ran"
    of_instance = ("report", "--instance", instance.short_name, "--json")
    by_name = ("report", "sDigits", "--profile", "smoke", "--ladder", "averages", "--json")

    def report(*arguments: str) -> Any:
        forget()
        ran.write_text("")
        code, out, _ = said(capsys, *arguments)
        assert code == 0
        return json.loads(out)

    recorded = report(*of_instance)
    assert ([row["n"] for row in recorded["rows"]], recorded["notes"], ran.read_text()) == ([0, 2], [], "")
    assert (report(*by_name), ran.read_text()) == (recorded, "x")
    assert report("claims", "sDigits", "--ladder", "averages", "--json")["claims"] == []
    forget()
    assert said(capsys, "show", run.id, "--toml")[0] == 0

    (folder / "averages.py").write_text((folder / "averages.py").read_text() + "# changed\n")
    note = f"{folder / 'averages.py'} changed after these runs: they are shown as recorded"
    for more in ((), ("--load", "../averages.py")):
        changed = report(*of_instance, *more)
        assert (changed["rows"], changed["notes"]) == (recorded["rows"], [{"text": note, "runs": []}])
        assert bool(ran.read_text()) == bool(more)
    forget()
    ran.unlink()
    code, _, error = said(capsys, *by_name)
    assert (code, f"lrurun report --instance {instance.short_name}" in error, ran.exists()) == (2, True, False)
    assert said(capsys, "show", run.id, "--toml")[0] == 1


def in_a_new_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "lrurun", *arguments]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


def test_what_an_option_loaded_is_named_again_for_resume(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code is not taken from a row of the ledger."""
    Path("averages.toml").write_text(LADDER.replace('load = ["averages.py"]', ""))
    plugins.load_files(["averages.py"])
    asked = requests.LadderRequest(
        task="sDigits", ladder="averages.toml", profile="smoke", rungs=[], seeds="1", tune=False, sets=[]
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
    done = in_a_new_process("resume")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"error: ladder {instance.short_name}: was started with --load {folder / 'averages.py'}",
        f"hint: code is not loaded from a ledger; name it again: lrurun resume --load {folder / 'averages.py'}",
    ]


def test_a_worker_refuses_a_file_that_has_changed(folder: Path) -> None:
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
    worker = LocalWorker(Preparation(task="sDigits", options={}, data=folder, from_path=None), needs=Needs())
    assert wait_for(worker.poll) == 74
    assert decode(worker.tail(1), WorkerError).message == "averages.py was changed while this command was using it"
    worker.close()
