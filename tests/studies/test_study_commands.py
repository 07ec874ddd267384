"""Commands on studies: their cells are runs of the ledger, are reported, drawn, judged, interrupted and resumed."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import psutil
import pytest

from lrurun import studies
from lrurun.errors import UsageError
from lrurun.ledger.ledger import Ledger
from lrurun.report.figures import figure_files
from lrurun.runner import processes
from lrurun.runner.executors import local
from lrurun.studies.machinery import checks, planning
from lrurun.studies.machinery.kind import KIND
from tests.harness.drawings import size
from tests.harness.machine import Machine, stop, training, wait_for
from tests.harness.results import memory


@pytest.fixture(scope="session")
def computed() -> Machine:
    return memory()


@pytest.fixture
def copy(computed: Machine, tmp_path) -> Machine:
    return computed.copy(tmp_path / "copy")


def test_what_people_see(computed: Machine, golden) -> None:
    shown = [
        f"$ lrurun {' '.join(words)}\n{computed.run(*words, env={'COLUMNS': '100'}).stdout}"
        for words in (
            ("report", "study:memory"),
            ("study", "memory", "--dry-run", "--cell", "rho=0"),
            ("status", "--details"),
            ("claims", "study:memory"),
        )
    ]
    golden("study.txt", "\n".join(shown))


def test_cells_are_runs_with_the_numbers_of_the_closed_form(computed: Machine) -> None:
    runs = computed.json("runs", "--where", "cell.rho>0.95")["runs"]
    assert {(run["task"], run["rung"], run["state"]) for run in runs} == {
        ("study:memory", f"rho={rho}", "done") for rho in ("0.99", "0.999", "1")
    }
    assert len(computed.json("show", runs[0]["id"])["metrics"]["sensitivity"]) == 41
    assert computed.json("query", "select count(*) as n from runs")["rows"] == [[5]]
    report = computed.json("report", "study:memory")
    values = {cell["grid"]["rho"]: cell["values"] for cell in report["cells"]}
    # theory: 1 / (1 - lambda^2) and (1 + lambda^2) / (1 - lambda^2)^3 at rho = 0, 1 / |1 - lambda|^2 and ^4 at rho = 1
    assert values[0.0]["state at 0.9"] == pytest.approx(1 / 0.19, rel=1e-12)
    assert values[0.0]["sensitivity at 0.9"] == pytest.approx(1.81 / 0.19**3, rel=1e-12)
    assert values[1.0]["state at 0.9"] == pytest.approx(100, rel=1e-12)
    assert values[1.0]["sensitivity at 0.9"] == pytest.approx(1e4, rel=1e-12)
    assert (report["substitute"], report["unfinished"]) == (None, 0)


def test_a_cell_has_curves_but_no_model(computed: Machine, tmp_path) -> None:
    run = computed.json("runs")["runs"][0]["id"]
    names = sorted(computed.json("show", run)["metrics"])
    out = ("--out", str(tmp_path / "a.svg"))
    missing = computed.refused("plot", run, *out, code=4)
    assert f"--metric {names[0]}; curves: {', '.join(names)}" in missing
    assert "not a trained model" in computed.refused("plot", run, "--kind", "errors", *out)
    assert "error: --tune: does not apply" in computed.refused("report", "study:memory", "--tune")
    assert "error: --limit: does not apply" in computed.refused("report", "study:memory", "--limit", "2")


def test_cells_that_are_missing_are_computed_by_one_thread_and_finished_ones_not_again(
    copy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in `memory` depends on the seed; cells of one label are shown with their settings."""
    started: list[dict[str, str]] = []

    class Watched(processes.LocalWorker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(wait_for(psutil.Process(self.pid).environ))  # empty for a moment after exec

    monkeypatch.setattr(local, "LocalWorker", Watched)
    before = {run["id"] for run in copy.json("runs")["runs"]}
    grid = ("memory", "--set", "rho=[0.5,0.9]", "--set", "points=[41,31]", "--seeds", "3")
    done = copy.run("study", *grid, "--cell", "rho=0.5", "--jobs", "1", "--out", "m.png")
    assert {variables[name] for variables in started for name in KIND.environment(1)} == {"1"}
    assert "memory: nothing in it depends on the seed, so it has one seed" in done.stderr
    assert "memory: no figure, because cells are missing: rho=0.9; " in done.stderr
    assert not (copy.folder / "m.png").exists()
    after = copy.json("runs")["runs"]
    assert [run["rung"] for run in after if run["id"] not in before] == ["rho=0.5"] * 2
    assert len(before) == len(after) - 2 == 5
    for cell in ("rho=0.5", "rho=0.5, points=31"):
        assert f" {cell} seed 0 (" in done.stderr
        assert copy.run("runs").stdout.count(f"  {cell}\n") == 1


def test_a_failed_check_is_reported_and_makes_the_exit_code_3(copy: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(studies.get("memory"))
    monkeypatch.setattr(kind, "checks", lambda self, results: [checks.identity("a sum", len(results), 4.0)])
    assert "FAILED" in copy.run("study", "memory", code=3).stdout
    [recorded, warning] = copy.json("query", "select kind, text from events order by id desc limit 2")["rows"][::-1]
    assert (recorded[0], warning[0]) == ("checks", "warning")
    assert warning[1] == "check failed: a sum: measured 5, expected equal up to 1e-08 (relative)"
    report = copy.json("study", "memory", code=3)  # the same checks are not recorded twice
    assert report["checks"] == json.loads(recorded[1])
    assert copy.json("query", "select count(*) from events where kind = 'warning'")["rows"] == [[1]]
    assert {claim["verdict"] for claim in report["claims"]} == {"undecided"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("memry",), "did you mean 'memory'?"),
        (("memory", "--set", "rho=1.5"), "--set rho: expected a number <= 1, found 1.5"),
        (("memory", "--set", "rh=1"), "did you mean 'rho'?"),
        (("memory", "--cell", "rho=2"), "unknown cell 'rho=2'"),
        (("memory", "--seeds", "x"), "--seeds x"),
        (("memory", "--profile", "labtop"), "did you mean 'laptop'?"),
        (("memory", "--out", "figure.gif"), "must end in .png, .svg, .pdf or .html"),
        (("memory", "--plain"), "--plain: is for figures"),
        (("memory", "--width", "page", "--out", "a.html"), "--width page: is for figures"),
        (("all", "--out", "figure.png"), "several studies need a folder"),
        (("all", "--set", "rho=1"), "--cell and --set belong to one study"),
        (("ci", "--profile", "paper"), "hint: lrurun study all --profile paper"),
        (("powers", "--set", "angle=nan"), "--set angle: expected a finite number"),
        (("disk", "--set", "size=[]"), "--set size"),
        (("gain", "--set", "ring=[[0.1,0.5],[0.1]]"), "--set ring: expected a list of length 2"),
        (("gain", "--set", "ring=[[0.1,1.5]]"), "ring[1]: expected a number <= 1, found 1.5"),
        (("leak", "--set", "samples=300"), "a whole number that is a multiple of 64, found 300"),
        (("impulse", "--set", "decay=1"), "decay times steps must be at most 600"),
        (("phase", "--set", "r_max=0.9"), "the inner radius of the ring, 0.999, must be below the outer one, 0.9"),
        (("phase", "--set", "r_min=0.99989999"), "an outer radius from 0.01 and a width from 1e-5"),
        (("hessian", "--set", "low=0.993", "--set", "high=0.99"), "low must not be larger than high"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_arguments_are_refused_before_anything_runs(machine: Machine, arguments, message: str) -> None:
    said = machine.refused("study", *arguments)
    assert message in said
    assert said.count("\n") == 2


def test_a_report_is_written_to_a_file(copy: Machine) -> None:
    both = ("report", "study:memory", "--json", "--out")
    assert "--json and --out r.png exclude each other" in copy.refused(*both, "r.png")
    copy.run(*both, "r.json")
    assert json.loads((copy.folder / "r.json").read_text()) == copy.json("report", "study:memory")
    copy.run("report", "study:memory", "--out", "r.txt")
    assert (copy.folder / "r.txt").read_text() == copy.run("report", "study:memory").stdout


@pytest.mark.slow
def test_figures_and_pages(copy: Machine) -> None:
    run = copy.json("runs")["runs"][0]["id"]
    copy.run("plot", run, "--metric", "state", "--out", "curve.svg")
    assert "<svg" in (copy.folder / "curve.svg").read_text()
    copy.run("study", "memory", "--out", "a.html")
    copy.run("report", "study:memory", "--out", "c.html")
    assert (copy.folder / "c.html").read_text() == (copy.folder / "a.html").read_text()
    html = (copy.folder / "a.html").read_text()
    assert "<svg" in html
    assert html.count('class="supported">ok') == 10
    assert "10 of 10 checks passed</li>" in html
    report = copy.json("study", "memory", "--plain", "--width", "page", "--out", "d.png")
    assert report["figure"] == "d.png"
    copy.run("study", "memory", "--out", "b.PNG")
    (width, height), whole = (size(str(copy.folder / name)) for name in ("d.png", "b.PNG"))
    assert width == round(6.75 * figure_files.DPI)
    assert height < whole[1]


def test_without_matplotlib_and_in_a_ledger_that_cannot_be_written_there_are_reports(
    copy: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = copy.run("study", "memory", "--out", "memory.png", code=1)
    assert "the numbers are recorded, but matplotlib is missing" in done.stderr
    assert " checks passed" in done.stdout
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    before = {path: path.read_bytes() for path in copy.folder.iterdir() if path.is_file()}
    assert "4 of 4 checks passed" in copy.run("study", "memory", "--set", "rho=[0,0.9]").stdout
    assert {path: path.read_bytes() for path in copy.folder.iterdir() if path.is_file()} == before


def test_a_report_says_that_cells_are_missing_and_which_profiles_there_are(copy: Machine) -> None:
    run = copy.json("runs", "--limit", "1")["runs"][0]["id"]
    copy.run("mark", run, "--exclude", "a test")
    shown = copy.run("report", "study:memory").stdout
    assert "1 of 5 cells have no result: they are not finished, or excluded." in shown
    assert "checks passed" not in shown
    assert "hint: lrurun study memory computes them" in copy.refused("report", "study:memory", "--out", "m.png", code=4)
    missing = copy.refused("report", "study:memory", "--profile", "paper", code=4)
    assert "this ledger has --profile laptop; or run: lrurun study memory --profile paper" in missing
    [claim, _] = copy.json("claims", "study:memory")["claims"]
    assert (claim["here"]["verdict"], claim["here"]["detail"]) == ("not run", "lrurun study memory would decide it")


def test_seeds_count_as_cells() -> None:
    with pytest.raises(UsageError, match="ring: 120000 cells, at most 100000 are possible"):
        planning.make(studies.get("ring"), "laptop", {}, range(40_000))


@pytest.mark.slow
def test_a_report_is_of_the_largest_profile_that_is_complete(machine: Machine) -> None:
    """The profiles ci and laptop of `memory` have the same cells."""
    machine.run("study", "memory", "--profile", "ci", "--cell", "rho=0", "--jobs", "1")
    refused = machine.refused("report", "study:memory", code=4)  # cells of a profile that lacks others are not taken
    assert "has no cell of the study memory in profile laptop\n" in refused
    assert "hint: this ledger has --profile ci; or run: lrurun study memory" in refused
    machine.run("study", "memory", "--profile", "ci", "--jobs", "1")
    assert machine.json("report", "study:memory")["profile"] == "ci"
    assert machine.json("report", "study:memory", "--profile", "laptop")["unfinished"] == 0
    machine.run("study", "memory", "--profile", "paper", "--cell", "rho=0", "--jobs", "1")
    assert machine.json("report", "study:memory")["profile"] == "ci"
    assert machine.json("report", "study:memory", "--profile", "paper")["unfinished"] == 4


@pytest.mark.slow
def test_a_report_has_the_seeds_of_the_newest_command(machine: Machine) -> None:
    impulse = ("study", "impulse", "--profile", "ci", "--jobs", "1", "--seeds")
    both, first = machine.json(*impulse, "0,1"), machine.json(*impulse, "0,")
    assert ({cell["seed"] for cell in both["cells"]}, {cell["seed"] for cell in first["cells"]}) == ({0, 1}, {0})
    assert machine.json("report", "study:impulse", "--profile", "ci") == first


@pytest.mark.slow
def test_a_study_without_a_report_does_not_lose_the_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(studies, "_MODULES", ("memory", "landscape"))
    monkeypatch.setattr(type(studies.get("memory")), "checks", fail)
    done = machine.run("study", "ci", code=1)
    assert "landscape: 28 of 28 checks passed." in done.stdout
    assert "error: memory: a bug in lrurun: IndexError: tuple index out of range" in done.stderr


@pytest.mark.slow
def test_resume_goes_on_after_a_record_that_it_cannot_read(machine: Machine) -> None:
    plan = planning.make(studies.get("memory"), "laptop", {})
    with Ledger.open(machine.ledger) as ledger:
        for task, payload in (("study:disk", None), ("sMNIST", {}), (plan.task, {"study": "memory"})):
            kind = "training" if task == "sMNIST" else "study"
            instance = ledger.add_ladder("study", task, "laptop", plan.spec, kind=kind)
            ledger.enqueue(instance.key, plan.runs())
            ledger.event("asked", "requested", payload, ladder=instance.key)
    done = machine.run("resume", code=5)
    assert done.stderr.count("its recorded command cannot be read") == 2
    assert machine.states() == {"done": 5}


@pytest.mark.slow
def test_cells_killed_within_and_between_their_trainings_have_identical_numbers(machine: Machine, tmp_path) -> None:
    sets = ("--set", "form=optimal", "--set", "updates=200000", "--set", "lr=[0.001,0.002,0.004]")
    arguments = ("study", "angle", "--profile", "ci", "--jobs", "1", *sets)
    undisturbed = Machine(tmp_path / "undisturbed").json(*arguments)
    for number, until in (
        (signal.SIGKILL, training(machine)),
        (signal.SIGTERM, lambda: machine.states().get("done", 0)),
    ):
        process = machine.start(*arguments)
        wait_for(until)
        stop(process, number)
        process.wait()
    assert machine.states().get("done", 0) < 3
    machine.run("resume")
    assert machine.json(*arguments) == undisturbed
    assert undisturbed["unfinished"] == 0
