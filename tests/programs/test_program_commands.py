"""The commands on a ladder of a program: what they show of it is what they show of other ladders."""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest

import lrurun
from lrurun.errors import LrurunError
from tests import conftest
from tests.harness.browsing import View, closed
from tests.harness.machine import Machine
from tests.harness.programs import LINEAR, curves_of, runs_of, write

__all__ = ["closed"]  # a fixture
SCORES = {"narrow": [0.24, 0.241, 0.244], "wide": [0.44, 0.441, 0.444]}
"""The test scores of the three seeds at the last step, which is the best."""

NOISY = LINEAR.replace("import lrurun\n", "import lrurun, pathlib\n").replace(
    "+ (0.2 if", "+ (float(pathlib.Path('noise').read_text()) if pathlib.Path('noise').exists() else 0) + (0.2 if"
)
"""A program whose scores change with a file that it has not declared."""


@pytest.fixture(scope="module")
def finished() -> Machine:
    """A finished ladder, which tests only read."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        write(folder)
        machine.run("ladder", "toy.toml", "--jobs", "1")

    return Machine(conftest.once("program-ladder", make))


@pytest.fixture
def copy(finished: Machine, tmp_path: Path) -> Machine:
    """The same, which a test may change."""
    return finished.copy(tmp_path / "copy")


def a_run(machine: Machine, rung: str = "wide", seed: int = 0) -> str:
    [run] = machine.json("runs", "--where", f"rung={rung} and seed={seed}")["runs"]
    return str(run["id"])


def test_a_report_has_the_scores_the_change_and_the_claim(finished: Machine) -> None:
    report = finished.json("report", "toy.toml")
    for row in report["rows"]:
        scores = SCORES[row["rung"]]
        assert (row["n"], row["mean"]) == (3, pytest.approx(sum(scores) / 3))
    assert [row["verdict"] for row in report["rows"]] == ["", "helps"]
    assert [claim["verdict"] for claim in report["claims"]] == ["supported"]
    answer = finished.run("report", "toy.toml").stdout
    assert re.search(r"^wide +44\.2 ± 0\.1 % .* helps +\+20\.0 ", answer, re.MULTILINE)
    assert "learning rate" not in answer
    details = finished.run("report", "toy.toml", "--details").stdout
    assert "44.17 ± 0.12 (n=3)" in details
    assert "supported: wide blocks are better. (a note)" in details


def test_what_remains_and_how_long_it_takes(finished: Machine) -> None:
    plan = finished.json("plan", "toy.toml", "--seeds", "5")
    assert [rung["runs_left"] for rung in plan["rungs"]] == [2, 2]
    assert [rung["steps"] for rung in plan["rungs"]] == [4, 4]
    for rung in plan["rungs"]:
        assert 0 < rung["seconds_per_run"] < 60
        assert rung["learning_rate"] is None
    text = finished.run("plan", "toy.toml", "--seeds", "5").stdout
    assert re.search(r"^wide +3/5 ", text, re.MULTILINE)
    assert "block.wide = true" in text
    assert "nothing to do" in finished.run("ladder", "toy.toml").stderr


def test_figures_have_the_curves(finished: Machine, tmp_path: Path, drawing: list) -> None:
    finished.run("plot", "toy.toml", "--kind", "curves", "--out", str(tmp_path / "curves.svg"))
    assert (tmp_path / "curves.svg").stat().st_size > 1_000
    labels = {axes.get_ylabel() for axes in drawing[0].axes}
    assert {"training loss", "validation accuracy [%]"} <= labels


def test_runs_are_found_and_grouped_by_their_settings(finished: Machine) -> None:
    wide = finished.json("runs", "--where", "settings.block.wide=true")["runs"]
    assert {run["rungs"][0] if "rungs" in run else run["rung"] for run in wide} == {"wide"}
    assert len(wide) == 3
    assert finished.json("runs", "--where", "settings.lr>0.02")["runs"] == []
    text = finished.run("runs", "--columns", "rung,settings.block.wide,settings.name,settings.lr").stdout
    assert sum(line.split() == ["wide", "true", "plain", "text", "0.01"] for line in text.splitlines()) == 3
    grouped = finished.run("runs", "--by", "settings.block.wide").stdout
    assert [line.split()[:1] for line in grouped.splitlines() if line.split()[0] in ("true", "false")] == [
        ["false"],
        ["true"],
    ]
    counted = finished.run("query", "SELECT kind, count(*) AS n FROM runs GROUP BY kind").stdout
    assert re.search(r"program +6", counted)


def test_reports_by_a_setting_know_its_name(finished: Machine) -> None:
    assert "settings.lr" in finished.run("report", "toy.toml", "--by", "settings.lr").stdout
    for wrong, hint in (
        ("settings.epoch", "did you mean 'settings.epochs'?"),
        ("settings.block", "settings.block.wide"),
    ):
        error = finished.run("report", "toy.toml", "--by", wrong, code=2).stderr
        assert f"error: --by {wrong}: no setting of this program\n" in error
        assert hint in error


def test_show_has_the_settings_the_curves_and_the_log(finished: Machine) -> None:
    run = a_run(finished)
    shown = finished.json("show", run)
    assert shown["config"]["settings"] == {"lr": 0.01, "epochs": 4, "name": "plain text", "block": {"wide": True}}
    assert shown["provenance"]["settings.block.wide"] == "toy.toml, rung wide"
    assert [step for step, _ in shown["metrics"]["val/accuracy"]] == [1, 2, 3, 4]
    text = finished.run("show", run).stdout
    assert f"run {run}: toy, seed 0, done at step 4 of 4" in text
    assert "the learning rate is 0.01" in text.splitlines()
    assert "eigenvalues" not in text


def test_the_document_of_a_run_finds_the_finished_run(copy: Machine) -> None:
    run = a_run(copy, seed=2)
    text = copy.run("show", run, "--toml").stdout
    (copy.folder / "again.toml").write_text(text)
    [arguments] = re.findall(r"^# lrurun ladder FILE\.toml (--seeds \S+)$", text, re.MULTILINE)
    assert "nothing to do" in copy.run("ladder", "again.toml", *shlex.split(arguments)).stderr
    [again] = copy.json("runs", "--where", f"ladder=again-{run}")["runs"]
    assert again["id"] == run


def test_compare_and_status_name_the_runs(finished: Machine) -> None:
    compared = finished.run("compare", a_run(finished, "narrow"), a_run(finished)).stdout
    assert re.search(r"settings\.block\.wide +false +true", compared)
    assert "settings.lr" not in compared
    [status] = finished.json("status")["ladders"]
    assert (status["task"], status["total"], status["done"]) == ("toy", 6, 6)
    assert "best on validation: wide, 54.2 %" in finished.run("status", "--details").stdout


def test_a_ledger_is_read_without_script_and_recipe(copy: Machine) -> None:
    """And without the folder in which they were."""
    wanted = copy.json("report", "toy.toml")
    for name in ("toy.py", "toy.toml"):
        (copy.folder / name).unlink()
    [instance] = copy.json("status")["ladders"]
    report = copy.json("report", "--instance", instance["name"])
    assert [row["mean"] for row in report["rows"]] == [row["mean"] for row in wanted["rows"]]
    assert [claim["verdict"] for claim in report["claims"]] == ["supported"]
    assert "44.17 ± 0.12" in copy.run("report", "--instance", instance["name"], "--details").stdout
    view = View(copy.ledger, copy.runs)
    [page] = set(re.findall(r'href="(/ladders/\w+)"', view.page("/")))
    assert "44.17 ± 0.12" in view.page(page)
    assert "the learning rate is 0.01" in view.page(f"/runs/{a_run(copy)}")
    copy.run("plot", "--instance", instance["name"], "--out", "ladder.svg")
    assert copy.json("report", "toy")["rows"] == report["rows"]
    with lrurun.open(copy.ledger) as opened:
        assert opened.report("toy").report.rows[0].mean == report["rows"][0]["mean"]


def test_a_report_needs_no_script(copy: Machine) -> None:
    wanted = copy.json("report", "toy.toml")["rows"]
    (copy.folder / "toy.py").unlink()
    assert copy.json("report", "toy.toml")["rows"] == wanted
    assert "narrow" in copy.run("report", "--all", "--ladder", "toy.toml").stdout
    assert "there is no file 'toy.py'" in copy.run("ladder", "toy.toml", code=2).stderr


def test_in_python_a_report_is_read_and_no_model_is_loaded(finished: Machine) -> None:
    with contextlib.chdir(finished.folder), lrurun.open(finished.ledger) as opened:
        found = opened.report("toy.toml")
        assert [row.rung for row in found.report.rows] == ["narrow", "wide"]
        with pytest.raises(LrurunError, match="program"):
            lrurun.load(a_run(finished), ledger=str(finished.ledger), runs_dir=str(finished.runs))


def test_a_ledger_is_rebuilt_from_the_folders_of_runs(copy: Machine) -> None:
    wanted = copy.json("report", "toy.toml")
    curves = {rung: curves_of(copy, run) for rung, (run, _) in runs_of(copy).items()}
    copy.ledger.unlink()
    for suffix in ("-wal", "-shm"):
        copy.ledger.with_name(f"ledger.db{suffix}").unlink(missing_ok=True)
    copy.run("ledger", "rebuild")
    assert {rung: curves_of(copy, run) for rung, (run, _) in runs_of(copy).items()} == curves
    rebuilt = copy.json("report", "toy.toml")
    assert [row["mean"] for row in rebuilt["rows"]] == [row["mean"] for row in wanted["rows"]]


@pytest.mark.slow
def test_a_setting_that_the_program_does_not_use_is_noticed(copy: Machine) -> None:
    write(copy.folder, ('"settings.block.wide" = true', 'settings.name = "other"'))
    copy.run("ladder", "toy.toml", "--jobs", "1")
    caution = "the same score as before with every seed (all rungs): does the program use the setting?"
    assert caution in copy.run("report", "toy.toml").stdout


def test_what_a_program_does_not_record(finished: Machine) -> None:
    refused = finished.run("plot", "toy.toml", "--kind", "speed", "--out", "speed.pdf", code=4).stderr
    assert "no finished run has recorded its speed, so there is nothing to draw" in refused
    assert "packages of a program" in finished.run("show", a_run(finished), "--requirements", code=1).stderr


def test_verify_executes_a_run_again(machine: Machine) -> None:
    """It says by how much a program differs that is not the same twice."""
    write(machine.folder, ('unit = "%"\n', ""))
    (machine.folder / "toy.py").write_text(NOISY)
    machine.run("ladder", "toy.toml", "--rung", "wide", "--seeds", "1", "--jobs", "1")
    run, before = a_run(machine), sorted(machine.runs.rglob("*"))
    done = machine.run("verify", run)
    assert "verified: all 15 values of 4 metrics are equal bit for bit" in done.stdout
    assert re.search(r"test 0\.\d+ accuracy", done.stdout + done.stderr)  # as the recipe says
    assert sorted(machine.runs.rglob("*")) == before
    (machine.folder / "noise").write_text("1e-4")
    done = machine.run("verify", run)
    assert "verified within the tolerance: " in done.stdout
    assert "a program need not give the same numbers twice" in done.stdout
    assert re.search(r"Largest differences: .*val/accuracy at step \d: 0\.5\d* in the run, 0\.5\d+ in ", done.stdout)


@pytest.mark.slow
def test_a_rung_is_tuned_that_tuning_gave_the_values_of_runs_that_were_there(machine: Machine) -> None:
    """The best rate is that of the recipe, with which the ladder was trained before without --tune."""
    write(machine.folder, ("[tune.grid]", "[tune]\nseeds = 1\n[tune.grid]"), ("lr = 0.01", "lr = 0.02"))
    machine.run("ladder", "toy.toml", "--seeds", "1", "--jobs", "1")
    machine.run("ladder", "toy.toml", "--tune", "--seeds", "1", "--jobs", "1")
    untuned, tuned = (machine.json("report", "toy.toml", *more)["rows"] for more in ([], ["--tune"]))
    assert [row["runs"] for row in tuned] == [row["runs"] for row in untuned]
    assert [row["rate_source"]["kind"] for row in tuned] == ["tuned", "tuned"]
    answer = machine.run("report", "toy.toml", "--tune").stdout
    assert "chosen on validation with 1 seed: settings.lr = 0.02 (narrow, wide)\n" in answer
    assert "not tuned" not in answer


@pytest.mark.slow
def test_a_rung_of_which_tuning_chose_the_settings_of_its_base_is_not_compared_with_it(machine: Machine) -> None:
    """Its only change is a setting that is tuned: their runs are the same."""
    change = ('"settings.block.wide" = true', '"settings.lr" = 0.5')
    write(machine.folder, ("[tune.grid]", "[tune]\nseeds = 1\n[tune.grid]"), change)
    machine.run("ladder", "toy.toml", "--tune", "--seeds", "2", "--jobs", "1")
    narrow, wide = machine.json("report", "toy.toml", "--tune")["rows"]
    assert narrow["runs"] == wide["runs"]
    assert (wide["verdict"], wide["same_as_before"], wide["comparison"]["same_runs"]) == ("same runs", True, True)
    answer = machine.run("report", "toy.toml", "--tune").stdout
    assert "Same runs as before: wide." in answer
    assert "does the program use the setting?" not in answer


@pytest.mark.slow
def test_tuning_chooses_for_each_rung_without_a_look_at_the_test(machine: Machine) -> None:
    """A rung of which no tuning run has finished is not called tuned."""
    write(machine.folder, ("[tune.grid]", "[tune]\nseeds = 1\n[tune.grid]"))
    script = machine.folder / "toy.py"
    script.write_text(f"{LINEAR}if settings.block.wide and run.seed > 100: raise SystemExit(3)\n")
    machine.run("ladder", "toy.toml", "--tune", "--seeds", "1", "--jobs", "1", code=3)
    tuning = machine.json("runs", "--where", "stage=tune and rung=narrow")["runs"]
    assert len(tuning) == 2
    for run in tuning:
        shown = machine.json("show", run["id"])
        assert not [name for name in [*shown["metrics"], *shown["run"]["metrics"]] if name.startswith("test")]
    [final] = machine.json("runs", "--where", "stage=train and rung=narrow")["runs"]
    assert machine.json("show", final["id"])["config"]["settings"]["lr"] == 0.02
    rows = machine.json("report", "toy.toml", "--tune")["rows"]
    assert rows[0]["mean"] == pytest.approx(0.28)
    assert [row["rate_source"]["kind"] for row in rows] == ["tuned", "default"]
    answer = machine.run("report", "toy.toml", "--tune").stdout
    assert "Caution: not tuned, because no tuning run finished (wide);" in answer
    assert "chosen on validation with 1 seed: settings.lr = 0.02 (narrow)\n" in answer
    details = machine.run("report", "toy.toml", "--tune", "--details").stdout
    assert "the recipe's, because no tuning run finished (wide)" in details
    assert "--tune chooses" not in details


@pytest.mark.slow
def test_a_sweep_of_a_setting(copy: Machine) -> None:
    arguments = ("--sweep", "settings.lr=0.01,0.02", "--seeds", "1", "--rung", "narrow", "--jobs", "1")
    done = copy.run("ladder", "toy.toml", *arguments)
    assert "0.02" in done.stdout
    scores = {round(run["metrics"]["test/accuracy"], 6) for run in copy.json("runs", "--where", "seed=0")["runs"]}
    assert scores == {0.24, 0.28, 0.44}


@pytest.mark.slow
def test_another_recipe_of_the_same_name_changes_no_reading(copy: Machine) -> None:
    wanted = copy.run("status", "--instance", "toy").stdout
    assert "best on validation: wide, 54.2 %" in wanted
    write(copy.folder, ('unit = "%"\n', 'direction = "min"\n'), name="two.toml")
    copy.run("ladder", "two.toml", "--seeds", "1", "--jobs", "1")
    assert copy.run("status", "--instance", "toy").stdout == wanted
    assert "best on validation: narrow, 0.310" in copy.run("status", "--instance", "two").stdout
