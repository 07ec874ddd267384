"""Imported runs have the statistics and the verdicts of a program's runs with the same scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.machine import Machine
from tests.harness.programs import PYTHON
from tests.harness.shared import once
from tests.harness.tables import write_csv

SCORES: dict[str, list[float | None]] = {
    "none": [0.801, 0.812, 0.793, 0.806, 0.798, 0.81, 0.807, 0.795],
    "layer": [0.846, 0.851, 0.838, 0.857, 0.844, 0.852, 0.849, 0.841],
    "batch": [0.812, 0.795, 0.803, 0.814, 0.789, 0.806, 0.8, None],
    "none-at-all": [0.75, 0.8, 0.78, 0.81, 0.76, 0.79, 0.77, 0.802],
}
"""Rung -> the score of each seed; None is NaN."""
PROGRAM = f"""\
import lrurun

run = lrurun.this_run()
score = {{name: [float("nan") if score is None else score for score in scores] for name, scores in {SCORES}.items()}}
score = score[run.settings.norm][run.seed]
run.log(1, **{{"val/accuracy": 0.5, "test/accuracy": score}})
"""
HEAD = f"""\
task = "norms"

[program]
command = [{PYTHON}, "norms.py"]
files = ["norms.py"]
metric = "val/accuracy"
unit = "%"
chance = 0.1
test_items = 2000

[settings]
norm = "none"

[[rung]]
name = "none"
title = "none"
"""
KNOWN = ("--chance", "0.1", "--test-items", "2000")
"""What neither a table nor an export says."""
_OF_ROW = ("rung", "n", "mean", "stderr", "verdict", "diverged", "unscored", "infinite", "missing")
_OF_COMPARISON = ("other", "verdict", "difference", "low", "high", "p", "p_adjusted", "provisional")


def rows(report: dict[str, Any]) -> list[Any]:
    """What a report says of each rung."""
    return [
        [
            {key: row[key] for key in _OF_ROW},
            sorted(map(repr, row["scores"])),
            row["comparison"] and {key: row["comparison"][key] for key in _OF_COMPARISON if key in row["comparison"]},
        ]
        for row in report["rows"]
    ]


@pytest.fixture(scope="module")
def own() -> Machine:
    """A ledger with the runs of a program."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        (folder / "norms.py").write_text(PROGRAM)
        rungs = [
            f'[[rung]]\nname = "{name}"\ntitle = "{name}"\non = "none"\nchange = {{ "settings.norm" = "{name}" }}\n'
            for name in list(SCORES)[1:]
        ]
        (folder / "norms.toml").write_text("\n".join([HEAD, *rungs]))
        machine.run("ladder", "norms.toml", "--seeds", "8", "--jobs", "2")

    return Machine(once("same-verdicts", make))


def test_verdicts_do_not_depend_on_who_ran_the_runs(own: Machine, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    table = [
        [f"{norm}-{seed}", norm, seed, "nan" if score is None else score]
        for norm, scores in SCORES.items()
        for seed, score in enumerate(scores)
    ]
    write_csv(tmp_path / "runs.csv", ["run", "norm", "seed", "test_acc"], table)
    machine.run("import", "runs.csv", "--metric", "test_acc", "--by", "norm", *KNOWN)
    expected = rows(own.json("report", "norms.toml"))
    assert [row[0]["verdict"] for row in expected].count("helps") == 1, json.dumps(expected, indent=1)
    assert rows(machine.json("report", "--instance", "runs")) == expected


@pytest.mark.parametrize("format", ["mlflow", "tensorboard"])
def test_exports_of_a_programs_runs_give_its_report(format: str, own: Machine, tmp_path: Path) -> None:
    own.run("ledger", "export", "--to", format, str(tmp_path / format), apart=True)
    machine = Machine(tmp_path / "imported")
    score = ("--metric", "test/accuracy", "--name", "back", *KNOWN)
    machine.run("import", str(tmp_path / format), "--by", "rung", "--base", "rung=none", *score)
    found = {row[0]["rung"]: row for row in rows(machine.json("report", "--instance", "back"))}
    assert [found[name] for name in SCORES] == rows(own.json("report", "norms.toml"))
