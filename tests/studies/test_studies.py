"""Studies from outside: their cells are runs, their checks can fail, and errors come before anything runs."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import lrurun
from lrurun import studies
from lrurun.errors import UsageError
from lrurun.ledger.store import Ledger
from lrurun.report.figures import figure_files
from lrurun.report.figures.figures import Figure
from lrurun.runner import processes
from lrurun.runner.executors import local
from lrurun.studies import checks, execution, page
from lrurun.studies import plan as planning
from lrurun.studies import report as reporting
from lrurun.studies.kind import KIND
from lrurun.studies.study import Results, Study
from tests.harness.drawings import misplaced, size
from tests.harness.machine import Machine, stop, training, wait_for


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    """A machine on which `memory` was computed."""
    machine = Machine(tmp_path_factory.mktemp("computed"))
    machine.run("study", "memory")
    return machine


def test_cells_are_runs(computed: Machine) -> None:
    runs = computed.json("runs", "--where", "cell.rho>0.95")["runs"]
    assert {(run["task"], run["rung"], run["state"]) for run in runs} == {
        ("study:memory", f"rho={rho}", "done") for rho in ("0.99", "0.999", "1")
    }
    assert "E|dh/dλ|²" in computed.run("report", "study:memory").stdout
    shown = computed.json("show", runs[0]["id"])
    assert len(shown["metrics"]["sensitivity"]) == 41
    assert computed.json("query", "select count(*) as n from runs")["rows"] == [[5]]
    [status] = computed.json("status")["ladders"]
    assert (status["ladder"], status["task"], status["done"]) == ("study", "study:memory", 5)
    assert "mean val" not in computed.run("status").stdout  # cells have no score


def test_curves_of_cells_are_drawn_by_name(computed: Machine, tmp_path) -> None:
    run = computed.json("runs")["runs"][0]["id"]
    names = sorted(computed.json("show", run)["metrics"])
    assert names
    done = computed.run("plot", run, "--out", str(tmp_path / "a.svg"), code=4)
    assert done.stderr.splitlines() == [
        f"error: run {run}: has curves, but none that is drawn without --metric",
        f"hint: name one: --metric {names[0]}; curves: {', '.join(names)}",
    ]
    computed.run("plot", run, "--out", str(tmp_path / "a.svg"), "--metric", names[0])
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("kind", ["errors", "predictions"])
def test_cells_have_no_model_that_predicts(computed: Machine, tmp_path, kind: str) -> None:
    run = computed.json("runs")["runs"][0]["id"]
    done = computed.run("plot", run, "--kind", kind, "--out", str(tmp_path / "a.svg"), code=2)
    assert done.stderr.splitlines() == [
        f"error: run {run}: is a run of study:memory, not a trained model",
        "hint: lrurun report study:memory shows its result",
    ]


def test_a_finished_cell_is_not_repeated(computed: Machine, tmp_path) -> None:
    machine = computed.copy(tmp_path / "copy")
    before = machine.json("runs")
    report = machine.json("study", "memory", "--set", "rho=[0.5,0.9]")
    after = machine.json("runs")
    assert len(after["runs"]) == len(before["runs"]) + 1  # 0.9 was there
    assert [cell["grid"]["rho"] for cell in report["cells"]] == [0.5, 0.9]
    assert {run["id"] for run in before["runs"]} <= {run["id"] for run in after["runs"]}


def test_the_report_has_the_numbers_of_the_closed_form(computed: Machine) -> None:
    report = computed.json("report", "study:memory")
    values = {cell["grid"]["rho"]: cell["values"] for cell in report["cells"]}
    # theory: 1 / (1 - lambda^2) and (1 + lambda^2) / (1 - lambda^2)^3 at rho = 0, 1 / |1 - lambda|^2 and ^4 at rho = 1
    assert values[0.0]["state at 0.9"] == pytest.approx(1 / 0.19, rel=1e-12)
    assert values[0.0]["sensitivity at 0.9"] == pytest.approx(1.81 / 0.19**3, rel=1e-12)
    assert values[1.0]["state at 0.9"] == pytest.approx(100, rel=1e-12)
    assert values[1.0]["sensitivity at 0.9"] == pytest.approx(1e4, rel=1e-12)
    assert all(check["passed"] for check in report["checks"])
    assert report["substitute"] is None


def test_a_failed_check_is_reported_and_makes_the_exit_code_3(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lrurun.studies.landscape.TRIED", 0.91)  # in the check: the worker has the module's own
    arguments = ("study", "landscape", "--set", "gap=0.01", "--set", "rho=0")
    done = machine.run(*arguments, code=3)
    assert "FAILED" in done.stdout
    kinds = machine.json("query", "select kind, text from events where kind in ('warning', 'checks')")["rows"]
    assert [kind for kind, _ in kinds] == ["checks", "warning"]
    assert "loss at 0.9 as a series" in kinds[1][1]
    recorded = json.loads(kinds[0][1])
    assert {"name", "kind", "measured", "expected", "tolerance", "passed"} <= recorded[0].keys()
    assert machine.json(*arguments, code=3)["checks"] == recorded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("memry",), "did you mean 'memory'?"),
        (("memory", "--set", "rho=1.5"), "--set rho: expected a number <= 1, found 1.5"),
        (("memory", "--set", "points=1"), "--set points"),
        (("powers", "--set", "radius=1.0"), "--set radius"),
        (("powers", "--set", "angle=nan"), "--set angle: expected a finite number"),
        (("memory", "--set", "rh=1"), "did you mean 'rho'?"),
        (("memory", "--cell", "rho=2"), "unknown cell 'rho=2'"),
        (("powers", "--cell", "polar"), "unknown cell 'polar'"),
        (("powers", "--set", "form=polar"), "--set form"),
        (("powers", "--set", "lr=[0.001,0]"), "--set lr"),
        (
            ("leak", "--set", "samples=300"),
            "--set samples: expected a whole number that is a multiple of 64, found 300",
        ),
        (("convolution", "--set", "updates=31"), "--set updates: expected a whole number that is a multiple of 30"),
        (("disk", "--set", "size=fifty"), "--set size"),
        (("disk", "--set", "size=[]"), "--set size"),
        (("impulse", "--set", "decay=1"), "decay times steps must be at most 600"),
        (("phase", "--set", "r_max=0.9"), "the inner radius of the ring, 0.999, must be below the outer one, 0.9"),
        (("phase", "--set", "r_min=0.99989999"), "the ring must have an outer radius from 0.01 and a width from 1e-5"),
        (
            ("hessian", "--set", "low=0.993", "--set", "high=0.99"),
            "low must not be larger than high",
        ),
        (("gain", "--set", "ring=[0.1,0.5]"), "--set ring: expected a list, found 0.1"),
        (("gain", "--set", "ring=[[0.1,0.5],[0.1]]"), "--set ring: expected a list of length 2"),
        (("gain", "--set", "ring=[[0.1,1.5]]"), "ring[1]: expected a number <= 1, found 1.5"),
        (("teacher", "--set", "nu=0.99999"), "--set nu: expected a number <= 0.9999, found 0.99999"),
        (("parametrise", "--set", "radius=1e-12"), "--set radius: expected a number >= 0.001, found 1e-12"),
        (("landscape", "--set", "gap=0.999"), "--set gap: expected a number <= 0.95, found 0.999"),
        (("angle", "--set", "start=0"), "--set start: expected a number > 0"),
        (("angle", "--set", "normalised=maybe"), "--set normalised"),
        (("similarity", "--set", "side=1e9"), "--set side"),
        (("memory", "--profile", "labtop"), "did you mean 'laptop'?"),
        (("memory", "--out", "figure.gif"), "must end in .png, .svg, .pdf or .html"),
        (("memory", "--plain"), "--plain: is for figures"),
        (("memory", "--width", "page", "--out", "a.html"), "--width page: is for figures"),
        (("all", "--out", "figure.png"), "several studies need a folder"),
        (("memory", "--seeds", "x"), "--seeds x"),
        (("all", "--set", "rho=1"), "--cell and --set belong to one study"),
        (("ci", "--profile", "paper"), "hint: lrurun study all --profile paper"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(machine: Machine, arguments, message: str) -> None:
    done = machine.run("study", *arguments, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 2
    assert not list(machine.folder.iterdir())


@pytest.mark.slow
def test_workers_of_studies_compute_with_one_thread(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Watched(processes.LocalWorker):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(wait_for(psutil.Process(self.pid).environ))  # empty for a moment after exec

    monkeypatch.setattr(local, "LocalWorker", Watched)
    machine.run("study", "memory", "--set", "rho=0")
    assert started
    for variables in started:
        assert {variables[name] for name in KIND.environment(1)} == {"1"}


def test_seeds_count_as_cells() -> None:
    with pytest.raises(UsageError, match="ring: 120000 cells, at most 100000 are possible"):
        planning.make(studies.get("ring"), "laptop", {}, range(40_000))


@pytest.mark.slow
def test_a_study_without_a_report_does_not_lose_the_others(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(studies, "_MODULES", ("memory", "landscape"))
    monkeypatch.setattr(type(studies.get("memory")), "checks", fail)
    done = machine.run("study", "ci", code=1)
    assert "landscape: 28 of 28 checks passed." in done.stdout
    assert "error: memory: a bug in lrurun: IndexError: tuple index out of range" in done.stderr


def test_an_incomplete_study_says_why_there_is_no_figure(machine: Machine) -> None:
    done = machine.run("study", "memory", "--cell", "rho=0", "--out", "m.png")
    missing = "rho=0.9, rho=0.99, rho=0.999, rho=1; lrurun study memory computes them"
    assert f"memory: no figure, because cells are missing: {missing}" in done.stderr
    assert not (machine.folder / "m.png").exists()


@pytest.mark.parametrize(
    "arguments", [("--ladder", "lru"), ("--tune",), ("--instance", "ab"), ("--speed",), ("--limit", "2")]
)
def test_reports_of_studies_refuse_options_of_ladders(computed: Machine, arguments: tuple[str, ...]) -> None:
    done = computed.run("report", "study:memory", *arguments, code=2)
    assert f"error: {arguments[0]}: does not apply to reports of studies" in done.stderr


@pytest.mark.slow
def test_the_report_is_written_to_a_file(computed: Machine, tmp_path) -> None:
    refused = computed.run("report", "study:memory", "--json", "--out", str(tmp_path / "r.png"), code=2)
    assert "exclude each other" in refused.stderr
    computed.run("report", "study:memory", "--json", "--out", str(tmp_path / "r.json"))
    assert json.loads((tmp_path / "r.json").read_text()) == computed.json("report", "study:memory")
    computed.run("report", "study:memory", "--out", str(tmp_path / "r.txt"))
    assert (tmp_path / "r.txt").read_text() == computed.run("report", "study:memory").stdout


@pytest.mark.slow
def test_the_report_has_the_seeds_of_the_newest_command(machine: Machine) -> None:
    for seeds in ("0,1", "0,", "0,1"):
        first = machine.json("study", "impulse", "--profile", "ci", "--seeds", seeds)
    assert machine.json("report", "study:impulse", "--profile", "ci") == first
    assert {cell["seed"] for cell in first["cells"]} == {0, 1}


@pytest.mark.slow
def test_what_does_not_depend_on_the_seed_is_computed_once(computed: Machine, tmp_path) -> None:
    machine = computed.copy(tmp_path / "copy")
    done = machine.run("study", "memory", "--seeds", "3")
    assert "memory: nothing in it depends on the seed, so it has one seed" in done.stderr
    assert machine.states() == {"done": 5}
    names = [check["name"] for check in machine.json("report", "study:memory")["checks"]]
    assert len(names) == len(set(names))


@pytest.mark.slow
def test_cells_of_one_label_are_shown_with_their_settings(machine: Machine) -> None:
    done = machine.run("study", "memory", "--set", "rho=0", "--set", "points=[21,31]")
    for cell in ("rho=0, points=21", "rho=0, points=31"):
        assert f" {cell} seed 0 (" in done.stderr
        assert machine.run("runs").stdout.count(f"  {cell}\n") == 1


def test_a_ledger_that_cannot_be_written_is_enough_for_reports(
    computed: Machine, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = computed.copy(tmp_path / "copy")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    before = {path: path.read_bytes() for path in machine.folder.iterdir() if path.is_file()}
    done = machine.run("study", "memory", "--set", "rho=[0,0.9]")  # a grid that has not been computed as one
    assert " checks passed" in done.stdout
    assert {path: path.read_bytes() for path in machine.folder.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_resume_goes_on_after_a_record_that_it_cannot_read(machine: Machine) -> None:
    plan = planning.make(studies.get("memory"), "laptop", {})
    with Ledger.open(machine.ledger) as ledger:
        for task, payload in (("study:disk", None), ("sMNIST", {}), (plan.task, {"study": "memory"})):
            instance = ledger.add_ladder(
                "study", task, "laptop", plan.spec, kind="training" if task == "sMNIST" else "study"
            )
            ledger.enqueue(instance.key, plan.runs())
            ledger.event("asked", "requested", payload, ladder=instance.key)
    done = machine.run("resume", code=5)
    assert done.stderr.count("its recorded command cannot be read") == 2
    assert machine.states() == {"done": 5}


def test_closed_forms_refuse_eigenvalues_on_the_circle() -> None:
    from lrurun.studies import formulas

    with pytest.raises(UsageError, match=r"\|lambda\| < 1"):
        formulas.sensitivity(1.0, 0.5)
    with pytest.raises(UsageError, match="rho"):
        formulas.state_variance(0.5, 1.1)


@pytest.mark.slow
def test_without_matplotlib_numbers_are_recorded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = machine.run("study", "memory", "--out", "memory.png", code=1)
    assert "the numbers are recorded, but matplotlib is missing" in done.stderr
    assert " checks passed" in done.stdout
    assert machine.states() == {"done": 5}


@pytest.mark.slow
def test_figure_and_page(computed: Machine, tmp_path) -> None:
    machine = computed.copy(tmp_path / "copy")
    machine.run("study", "memory", "--out", "a.html")
    html = (machine.folder / "a.html").read_text()
    assert "<svg" in html
    checked = machine.json("report", "study:memory")["checks"]
    assert html.count('class="supported">ok') == len(checked)
    assert f"{len(checked)} of {len(checked)} checks passed</li>" in html
    assert "Zucchet and Orvieto 2024, Fig. 1A" in html
    report = machine.json("study", "memory", "--out", "b.png")
    assert report["figure"] == "b.png"
    assert (machine.folder / "b.png").read_bytes().startswith(b"\x89PNG")
    machine.run("study", "memory", "--plain", "--width", "page", "--out", "d.png")
    width, height = size(str(machine.folder / "d.png"))
    assert width == round(6.75 * figure_files.DPI)
    assert height < size(str(machine.folder / "b.png"))[1]
    machine.run("report", "study:memory", "--out", "c.PNG")
    machine.run("report", "study:memory", "--out", "c.html")
    assert (machine.folder / "c.PNG").read_bytes() == (machine.folder / "b.png").read_bytes()
    assert (machine.folder / "c.html").read_text() == html


def test_the_page_may_show_the_colours_of_planes() -> None:
    study = studies.get("similarity")
    plan = planning.make(study, "ci", {"rho": 0.0})
    results = execution.in_process(plan)
    report = reporting.build(plan, results)
    html = page.render([(report, page.inline(report, study.figure(results)))])
    assert "data:image/png" in html
    assert "img-src data:;" in html


def test_every_study_is_declared_completely() -> None:
    aliases = [alias for study in studies.every() for alias in study.aliases]
    assert len(aliases) == len(set(aliases))
    for study, name in zip(studies.every(), studies.names(), strict=True):
        assert study.name == name
        assert set(study.profiles) >= {"ci", "laptop", "paper"}
        for alias in study.aliases:
            assert studies.get(alias) is study
        for profile in study.profiles:
            made = planning.make(study, profile, {})
            fingerprints = [run.fingerprint for run in made.runs()]
            assert len(fingerprints) == len(set(fingerprints))
            assert len(set(map(study.described, made.cells))) == len(made.cells)


def floats(of: msgspec.inspect.Type) -> Iterator[msgspec.inspect.FloatType]:
    if isinstance(of, msgspec.inspect.FloatType):
        yield of
    inner = [*getattr(of, "types", ()), *getattr(of, "item_types", ())]
    for one in [*inner, of.item_type] if hasattr(of, "item_type") else inner:
        yield from floats(one)


@pytest.mark.parametrize("name", studies.names())
def test_every_number_among_the_settings_has_a_range(name: str) -> None:
    for field in msgspec.inspect.type_info(studies.get(name).settings).fields:
        for one in floats(field.type):
            assert (one.ge, one.gt) != (None, None), field.name
            assert (one.le, one.lt) != (None, None), field.name


def judged(study: Study[Any], results: Results[Any]) -> tuple[list[checks.Check], Figure]:
    """The checks and the figure of a study; its answer must be possible."""
    assert study.answer(results).endswith(".")
    return study.checks(results), study.figure(results)


EDGES: dict[str, list[dict[str, Any]]] = {
    "memory": [{"rho": 1.0, "points": 2}],
    "disk": [{"size": 2}, {"size": 3}],
    "leak": [{"samples": 256}],
    "convolution": [{"state": 1}, {"state": 5, "lr": 10.0, "updates": 60}],
    "powers": [{"angle": -4.0, "updates": 1}, {"radius": 1e-6, "updates": 5}, {"lr": 10.0, "updates": 50}],
    "landscape": [{"gap": 1e-4}, {"gap": 0.95, "rho": 1.0, "points": 1}],
    "remedy": [{"points": 1}, {"rho": 0.999999}],
    "parametrise": [{"radius": 0.9999, "points": 1}, {"radius": 1e-3, "angle": 1.0, "points": 2}],
    "angle": [{"updates": 1, "radius": 0.999999}, {"updates": 3, "start": 1.0, "normalised": True}],
    "similarity": [{"rho": 0.5, "side": 3}],
    "ring": [{"ring": [[0.0, 0.01]]}, {"ring": [[0.99998, 0.99999]]}, {"ring": [[0.9, 1.0]], "samples": 1}],
    "gain": [{"steps": 1, "ring": [[0.0, 0.01]]}, {"steps": 1500, "units": 1, "ring": [[0.998, 0.9999]]}],
    "impulse": [{"decay": 1.0, "steps": 600, "phase": 2.0}, {"decay": 1e-6, "steps": 100_000, "phase": 1e-3}],
    "phase": [
        {"updates": 20, "length": 2, "state": 1, "r_min": 0.0, "r_max": 0.5},
        {"updates": 20, "length": 2, "state": 4096, "r_min": 0.0, "r_max": 0.01},
    ],
    "teacher": [{"nu": 0.9999, "updates": 1}, {"architecture": ["lru", "dense"], "nu": [0.0, 0.9], "updates": 1}],
    "bridge": [{"architecture": ["dense", "complex"], "nu": 0.0, "lr": 10.0, "updates": 1}],
    "hessian": [{"network": ["dense", "lru"], "low": 0.5, "high": 0.5, "length": 10}],
    "concentration": [
        {"architecture": "lru", "angle": 1e-6, "rho": 1.0, "systems": 1},
        {"part": "training", "architecture": ["dense", "lru", "complex"], "angle": 1.0, "rho": 0.0, "updates": 1},
    ],
    "depth": [{"width": 2, "length": 64, "time": 1e6, "rho": 1.0, "model": ["cRNN", "LSTM"]}],
    "adam": [{"architecture": "dense", "lr": 10.0, "updates": 400}],
    "norms": [
        {"task": "white", "decay": 1e-3},
        {"task": "map", "heads": 1, "width": 1, "state": 2},
        {"task": "marked", "updates": 10, "rate": 1e-3, "width": 2, "state": 4, "heads": 1},
    ],
    "reals": [{"modes": 2, "length": 8}, {"modes": 64, "length": 8}],
}
"""Study -> settings at the ends of their ranges."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"), [(name, changes) for name, settings in EDGES.items() for changes in settings]
)
def test_checks_pass_at_the_ends_of_the_ranges(name: str, changes: dict[str, Any]) -> None:
    study = studies.get(name)
    results = execution.in_process(planning.make(study, "ci", changes))
    found, _ = judged(study, results)
    assert checks.failed(found) == []
    for claim in study.claims:
        evidence = claim.evidence(results)
        assert evidence is None or evidence.detail


@pytest.mark.parametrize("changes", [{"angle": 0.25}, {"form": "exponential"}, {"updates": 10}, {"radius": 0.5}])
def test_powers_reports_settings_that_its_question_is_not_about(changes: dict[str, Any]) -> None:
    powers = studies.get("powers")
    judged(powers, execution.in_process(planning.make(powers, "ci", changes)))


def test_landscape_compares_no_gap_with_itself() -> None:
    study = studies.get("landscape")
    found = study.checks(execution.in_process(planning.make(study, "ci", {"gap": [0.01, 0.1]}, range(2))))
    assert checks.failed(found) == []


def test_checks_fail_where_they_should() -> None:
    assert not checks.identity("a", 1.0 + 2e-8, 1.0).passed
    assert not checks.identity("a", math.nan, 1.0).passed
    assert not checks.sampling("a", 1.6, 1.0, 0.1).passed
    assert checks.sampling("a", 1.4, 1.0, 0.1).passed
    assert [checks.identity("a", 1.0, at).tolerance_kind for at in (0.0, 2.0)] == ["absolute", "relative"]
    assert [checks.below("a", number, 2.0).passed for number in (1.0, 2.0, math.nan)] == [True, False, False]


def test_the_one_sided_test_is_that_of_scipy() -> None:
    from scipy import stats

    differences = [0.3, -0.1, 0.8, 0.2]
    expected = stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue
    assert checks.one_sided_p(differences) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_killed_and_resumed_cells_have_identical_numbers(machine: Machine, tmp_path) -> None:
    arguments = ("study", "powers", "--jobs", "1")
    undisturbed = Machine(tmp_path / "undisturbed")
    undisturbed.run(*arguments)
    for done in (5, 20, 35):
        process = machine.start(*arguments)
        wait_for(lambda least=done: machine.states().get("done", 0) >= least)
        stop(process, signal.SIGKILL)
    machine.run("resume")
    assert machine.states() == {"done": 42}
    [first, second] = (one.json("report", "study:powers") for one in (undisturbed, machine))
    assert first == second


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_cell_interrupted_within_its_training_has_identical_numbers(
    machine: Machine, tmp_path, number: signal.Signals
) -> None:
    sets = ("form=optimal", "updates=400000", "lr=[0.001,0.002]")
    arguments = (
        "study",
        "angle",
        "--profile",
        "ci",
        "--jobs",
        "1",
        *(part for value in sets for part in ("--set", value)),
    )
    undisturbed = Machine(tmp_path / "undisturbed")
    first = undisturbed.json(*arguments)
    process = machine.start(*arguments)
    wait_for(training(machine))
    stop(process, number)
    process.wait()
    assert machine.states().get("done", 0) < 2
    assert machine.json(*arguments) == first
    assert first["unfinished"] == 0


@pytest.mark.rare
def test_all_studies_killed_and_repeated_have_identical_numbers(machine: Machine, tmp_path) -> None:
    """`study all`, where there are only four."""
    (tmp_path / "sitecustomize.py").write_text(
        "import lrurun.studies\nlrurun.studies._MODULES = ('disk', 'gain', 'depth', 'parametrise')\n"
    )
    calm = Machine(tmp_path / "calm")
    for one in (calm, machine):
        one.env |= {"PYTHONPATH": f"{tmp_path}:{Path(lrurun.__file__).parents[1]}"}
    arguments = ("study", "all", "--profile", "ci", "--jobs", "2")
    undisturbed = calm.json(*arguments, apart=True)
    assert [study["study"] for study in undisturbed["studies"]] == ["disk", "gain", "depth", "parametrise"]
    for done in (50, 81):  # within gain, within depth
        process = machine.start(*arguments)
        wait_for(lambda least=done: machine.states().get("done", 0) >= least, seconds=300)
        stop(process, signal.SIGKILL)
    assert machine.states().keys() > {"done"}
    assert machine.json(*arguments, apart=True) == undisturbed
    assert all(study["unfinished"] == 0 for study in undisturbed["studies"])


@pytest.mark.slow
@pytest.mark.parametrize("name", studies.names())
def test_the_checks_of_every_study_pass_and_its_figure_fits(name: str) -> None:
    """And each axis may have one value: the cells are then a part of these."""
    study = studies.get(name)
    whole = execution.in_process(planning.make(study, "ci", {}))
    found, figure = judged(study, whole)
    assert found
    assert checks.failed(found) == []
    whole_figure = msgspec.structs.replace(figure, title="A question?", caption="An answer.")
    assert misplaced(figure_files.draw(whole_figure)) == []
    assert misplaced(figure_files.draw(figure.without_texts(), "page")) == []
    for axis, values in study.profiles["ci"].items():
        if isinstance(values, list):
            plan = planning.make(study, "ci", {axis: values[:1]})
            some = [one for one in whole if one.cell in plan.cells]
            assert len(some) == len(plan.cells) * len(plan.seeds)
            judged(study, Results(some, "ci"))


@pytest.mark.slow
def test_a_report_says_that_cells_are_missing_and_which_profiles_there_are(computed: Machine, tmp_path) -> None:
    machine = computed.copy(tmp_path / "copy")
    run = machine.json("runs", "--limit", "1")["runs"][0]["id"]
    machine.run("mark", run, "--exclude", "a test")
    shown = machine.run("report", "study:memory").stdout
    assert "1 of 5 cells have no result: they are not finished, or excluded." in shown
    drawn = machine.run("report", "study:memory", "--out", "m.png", code=4)
    assert "hint: lrurun study memory computes them" in drawn.stderr
    assert "checks passed" not in shown
    missing = machine.run("report", "study:memory", "--profile", "paper", code=4).stderr
    assert "this ledger has --profile laptop; or run: lrurun study memory --profile paper" in missing


@pytest.mark.parametrize(
    ("profile", "changes", "sentence"),
    [
        ("paper", {}, ""),
        ("paper", {"updates": 100}, "Stand-in: updates=100 by --set, otherwise the profile paper."),
        ("ci", {"updates": 100}, "Stand-in: updates=100 by --set, otherwise the profile ci: 500 updates"),
    ],
)
def test_a_stand_in_names_the_changed_settings(profile: str, changes: dict[str, Any], sentence: str) -> None:
    plan = planning.make(studies.get("powers"), profile, changes)
    found = reporting.build(plan, Results([], profile)).stand_in
    assert found.startswith(sentence)
    assert bool(found) == bool(sentence)
