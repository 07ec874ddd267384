"""Runs of several projects, objectives of searches, and what is there where no setting makes rungs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.errors import UsageError
from lrurun.imported import rungs, understanding
from lrurun.trackers import Source
from lrurun.trackers.optuna import OptunaReader
from tests.harness.machine import Machine
from tests.harness.tracked_runs import tracked
from tests.trackers.reader_output import FILES


def write(machine: Machine, columns: str, rows: list[str]) -> None:
    (machine.folder / "k.csv").write_text("\n".join([columns, *rows]))


def several(machine: Machine, projects: dict[str, list[str]]) -> str:
    """Imports four seeds of each norm, in these projects; what the details of the report say."""
    rows = [
        f"{project},{norm},{seed},{0.5 + 0.1 * (norm == 'layer') + seed / 100}"
        for norm, of_norm in projects.items()
        for seed, project in enumerate(of_norm)
    ]
    write(machine, "project,norm,seed,test_acc", rows)
    machine.run("import", "k.csv", "--by", "norm")
    return " ".join(machine.run("report", "k", "--details").stdout.split())


def test_unequal_projects_are_a_caution_of_the_first_screen(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    details = several(machine, {"none": ["p"] * 4, "layer": ["p", "p", "p", "q"]})
    assert "not alike in those that are compared: none: p (4 runs); layer: p (3 runs), q (1 run)" in details
    assert "unequal projects" in machine.run("report", "k").stdout


def test_equal_shares_of_projects_are_among_the_details(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    details = several(machine, {"none": ["p", "p", "q", "q"], "layer": ["q", "q", "p", "p"]})
    assert "alike in those that are compared: none: p (2 runs), q (2 runs); layer: q (2 runs), p (2 runs)" in details
    assert "projects" not in machine.run("report", "k").stdout


def test_one_project_is_no_caution(tmp_path: Path) -> None:
    assert "projects" not in several(Machine(tmp_path), {"none": ["p"] * 4, "layer": ["p"] * 4})


def test_projects_make_rungs(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    write(
        machine,
        "project,seed,test_acc",
        [f"{name},{seed},{0.5 + seed / 100}" for name in ("p 1", "q") for seed in range(4)],
    )
    machine.run("import", "k.csv", "--by", "project", "--base", "project=q")
    assert [(row["rung"], row["n"]) for row in machine.json("report", "k")["rows"]] == [("q", 4), ("p-1", 4)]
    assert "projects" not in machine.run("report", "k", "--details").stdout


def test_the_one_objective_of_a_search_is_the_score() -> None:
    runs = [tracked(f"r{k}", last={"value": 0.5, "intermediate_value": 0.4}, objective="value") for k in range(3)]
    assert understanding.chosen_metric(runs, None) == "value"
    of_test = [tracked(last={"value": 0.5, "test_acc": 0.5}, objective="value")]
    assert understanding.chosen_metric(of_test, None) == "test_acc", "a score of the test split comes before it"
    for other in ("", "cost"):
        with pytest.raises(UsageError, match="which is the score"):
            understanding.chosen_metric([*runs, tracked("x", last={"value": 0.1}, objective=other)], None)


@pytest.mark.parametrize("file", ["studies.db", "journal.log"])
def test_objectives_of_optuna(file: str) -> None:
    found = {run.project: run.objective for run in OptunaReader(Source(name=str(FILES / "optuna" / file))).runs()}
    assert found["norms"] == "value"


def test_a_setting_of_single_runs_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    write(machine, "arch,test_acc", [f"a{number},{number / 100}" for number in range(30)])
    error = machine.run("import", "k.csv", code=2).stderr
    assert "no setting has a value that two runs share, so that none can make rungs: arch (30 values)" in error
    assert "--by arch" in error


def test_steps_below_0_are_in_no_curve(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    rows = [
        f"{norm}{seed},{step},{norm},{seed},{0.5 + seed / 100 + step / 10}"
        for norm in "ab"
        for seed in range(3)
        for step in (-1, 0, 1)
    ]
    write(machine, "run_id,step,norm,seed,test_acc", rows)
    done = machine.run("import", "k.csv")
    assert "6 rows with a negative step count for last values alone" in done.stderr
    [row, _] = machine.json("report", "k")["rows"]
    assert sorted(row["scores"]) == pytest.approx([0.6, 0.61, 0.62])


def test_conditions_on_projects_that_are_no_settings() -> None:
    runs = [tracked(project=project, id=f"{project}{k}") for project in ("p 1", "q") for k in range(2)]
    assert [rung.where for rung in rungs.by_values(runs, ["project"])] == ["project = 'p 1'", "project = 'q'"]
